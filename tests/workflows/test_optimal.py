"""rule=optimal through every layer: calibrated, certified, registered, served, judged, promoted."""

import json
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import requests
from mlflow.pyfunc.scoring_server import invocations
from scipy import stats

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.records import seal
from scrib_mlflow.registry.models import Stored, version_tags
from scrib_mlflow.workflows.demo import serve
from tests.conftest import PATIENCE, using_copy
from tests.models import (
    CLASSES,
    FEATURES,
    case_hashes,
    draw_mixture,
    fit_pipeline,
    probabilities,
    read_record,
)
from tests.oracles import keep_top, optimal_answer
from tests.test_serve import ALONE
from tests.workflows.gates import champion, failed

TARGET = 0.05  # of the store `both`


def expected_sets(record, rows):
    """Return sets as lists of names, the most probable first, by the formula itself."""
    rule = record["rule"]
    found = []
    tops = fit_pipeline(draw_mixture(600, seed=100)).predict(rows[FEATURES])
    for row, top in zip(probabilities(record, rows), tops, strict=True):
        ranked = [int(j) for j in np.argsort(-row)]
        answer = optimal_answer(row, rule["multipliers"], rule["charges"], CLASSES.index(top))
        if answer is not None:
            found.append([CLASSES[answer]])
            continue
        enough = row >= [float(value) for value in rule["candidate_thresholds"]]
        found.append([CLASSES[j] for place, j in enumerate(ranked) if place < 2 or enough[j]])
    return found


def test_the_certificate_is_the_binomial_test_of_the_formula_on_rows_the_path_never_saw(both):
    record = read_record(2)
    assert record["rule"]["kind"] == "optimal"
    assert record["certified"]
    rows = pd.read_parquet("rows.parquet")
    labels = np.array([CLASSES.index(name) for name in rows["label"]])
    run_id = mlflow.MlflowClient().get_model_version("base-scrib", "2").run_id
    hashes = pd.read_parquet(
        mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="rows.parquet")
    )
    certify = np.isin(
        case_hashes(rows[FEATURES], labels), hashes.query("part == 'certify'")["hash"]
    )
    assert certify.sum() == record["certify_data"]["n_used"]
    sets = expected_sets(record, rows)
    certain = certify & np.array([len(each) == 1 for each in sets])
    for j, claim in enumerate(record["certificate"]["claims"]):
        own = certain & (labels == j)
        wrong = own & np.array([each[0] != CLASSES[j] for each in sets])
        assert (claim["n_certain"], claim["n_wrong"]) == (own.sum(), wrong.sum())
        p = stats.binom.cdf(wrong.sum(), own.sum(), TARGET)
        assert claim["p_value_iid"] == pytest.approx(p)
        tested = stats.binom.cdf(claim["n_tested_wrong"], claim["n_tested"], TARGET)
        assert claim["p_value"] == pytest.approx(tested)
        assert p <= 0.05
        # the candidates: the order statistic of abstained certify rows of the class
        asked = certify & ~certain & (labels == j)
        ranked = np.sort(probabilities(record, rows)[asked, j])
        m = int(0.05 * (len(ranked) + 1) + 1e-9)
        limit = float(record["rule"]["candidate_thresholds"][j])
        assert limit == -np.inf if m == 0 else (ranked >= limit).sum() == len(ranked) - m + 1


def test_the_last_of_the_path_that_passed_is_deployed_with_candidates(both):
    record = scrib_mlflow.from_json(json.dumps(read_record(2)))
    run_id = mlflow.MlflowClient().get_model_version("base-scrib", "2").run_id
    text = Path(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="path.json"))
    path = scrib_mlflow.from_json(text.read_text(encoding="utf-8"))
    step = path.steps[record.path.chosen].rule
    assert (step.multipliers, step.charges) == (record.rule.multipliers, record.rule.charges)
    assert step.recalibration == record.rule.recalibration == path.recalibration
    assert step.candidate_thresholds == (np.inf,) * 3
    assert record.candidate_coverage == record.confidence == 0.95


def test_two_versions_with_different_rules_answer_in_one_process(both):
    rows = draw_mixture(400, seed=9)
    first, second = (mlflow.pyfunc.load_model(f"models:/base-scrib/{v}") for v in (1, 2))
    params = {"explain": True}
    for _ in range(2):  # in turn, so that one cannot have spoilt the other
        thresholds = first.predict(rows[FEATURES], params=params)
        optimal = second.predict(rows[FEATURES], params=params)
        assert optimal["prediction_set"].tolist() == expected_sets(read_record(2), rows)
        scores = np.array(thresholds["scores"].tolist())
        sets = keep_top(scores >= np.array(thresholds["thresholds"][0]), scores)
        assert thresholds["set_size"].tolist() == sets.sum(axis=1).tolist()
    served = ["prediction", "abstain", "reason", "prediction_set", "set_size", "candidates"]
    assert list(thresholds) == [*served, "classes", "scores", "thresholds", "class_miscoverage"]
    assert list(optimal) == [*served, "classes", "scores", "multipliers", "class_miscoverage"]
    assert optimal["multipliers"][0] == read_record(2)["rule"]["multipliers"]
    assert not thresholds["prediction_set"].equals(optimal["prediction_set"])


def test_every_abstention_names_at_least_two_candidates_and_a_bad_row_none(both):
    rows = draw_mixture(300, seed=9)[FEATURES]
    rows.loc[7, "x1"] = np.nan
    answers = mlflow.pyfunc.load_model("models:/base-scrib/2").predict(rows)
    assert answers.loc[7].to_dict() == {
        "prediction": "",
        "abstain": True,
        "reason": "invalid_scores",
        "prediction_set": [],
        "set_size": 0,
        "candidates": [],
    }
    asked = answers[answers["abstain"]].drop(7)
    assert len(asked) > 10
    assert (asked["reason"] == "ambiguous").all()
    assert (asked["candidates"].map(len) >= 2).all()
    assert (asked["candidates"] == asked["prediction_set"]).all()
    certain = answers[~answers["abstain"]]
    assert (certain["candidates"].str[0] == certain["prediction"]).all()


@pytest.mark.slow  # test_serve does it with thresholds
def test_it_is_served_as_json_and_without_this_package(both, tmp_path):
    rows = draw_mixture(40, seed=9)[FEATURES]
    expected = expected_sets(read_record(2), rows)
    model = mlflow.pyfunc.load_model("models:/base-scrib/2")
    body = {"dataframe_split": rows.to_dict(orient="split"), "params": {"explain": True}}
    answer = invocations(
        json.dumps(body), "application/json", model, model.metadata.get_input_schema()
    )
    assert answer.status == 200, answer.response
    check_answers(json.loads(answer.response)["predictions"], expected)
    alone = subprocess.run(
        [sys.executable, "-c", ALONE, both, "models:/base-scrib/2"],
        input=rows.to_json(orient="records"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        cwd=tmp_path,
    )
    assert alone.returncode == 0, alone.stderr
    assert [row["prediction_set"] for row in json.loads(alone.stdout)] == expected


def check_answers(found, expected):
    assert [row["prediction_set"] for row in found] == expected
    assert found[0]["multipliers"] == read_record(2)["rule"]["multipliers"]


@pytest.mark.slow
def test_it_is_served_over_http(both, tmp_path):
    rows = draw_mixture(40, seed=9)[FEATURES]
    with serve("models:/base-scrib/2", both, tmp_path / "server.log") as address:
        body = {"dataframe_split": rows.to_dict(orient="split"), "params": {"explain": True}}
        answer = requests.post(f"{address}/invocations", json=body, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    check_answers(answer.json()["predictions"], expected_sets(read_record(2), rows))


def test_a_version_says_which_rule_it_has_and_how_near_the_best_it_is(both):
    client = mlflow.MlflowClient()
    for version, kind in (("1", "thresholds"), ("2", "optimal")):
        found = client.get_model_version("base-scrib", version)
        assert found.tags["scrib.rule"] == kind
        gap = read_record(version)["gap"]
        metrics = mlflow.get_run(found.run_id).data.metrics
        assert metrics["abstention_bound"] == gap["bound"]
        assert metrics["abstention_bound_at_risks"] == gap["bound_at_risks"]
        assert metrics["abstention_rate"] == pytest.approx(gap["abstention_rate"])
        cost = gap["abstention_rate"] + gap["error_weight"] * gap["wrong_rate"]
        assert metrics["cost_rate"] == pytest.approx(cost)
        assert gap["bound"] < gap["bound_at_risks"] <= cost + 0.005
        assert "best possible at the targets, answering only top classes, is" in found.description
        assert "Candidates are chosen to hold the true class on 95.0 %" in found.description
        names = {each.path for each in client.list_artifacts(found.run_id, "figures")}
        drawn = "values" if kind == "optimal" else "thresholds"
        every = ("classes", "confusion", "risk_coverage", "sets", drawn)
        assert names == {f"figures/{each}.png" for each in every}


def test_evaluate_and_gate_take_either_rule(both_folder, tmp_path):
    with using_copy(both_folder, tmp_path / "copy"):
        done = scrib_mlflow.evaluate("models:/base-scrib/2", "fresh.parquet", "label")
        assert done.report.empty_rate == 0
        note = mlflow.get_run(done.run_id).data.tags["mlflow.note.content"]
        assert "the true class is among them on" in note
        assert "Its candidates were chosen to hold the true class on 95.0 %" in note
        assert max(each.risk for each in done.report.by_class.values()) < 0.06
        assert scrib_mlflow.gate("models:/base-scrib/1").decision.passed
        promoted = scrib_mlflow.gate(
            "models:/base-scrib/2",
            data="fresh.parquet",
            label="label",
            max_abstention_increase=0.05,
        )
        assert promoted.decision.passed, failed(promoted)
        assert champion() == "2"
        refused = scrib_mlflow.gate("models:/base-scrib/2", risk_targets=0.01)
        assert not refused.decision.passed


def test_a_version_is_sealed_by_the_file_that_it_holds_be_it_of_the_schema_before(both):
    old = {"gap", "candidate_coverage"}
    record = {key: value for key, value in read_record(1).items() if key not in old}
    text = json.dumps({**record, "schema_version": 2})
    tags = version_tags(Stored(scrib_mlflow.from_json(text), text), "run")
    assert tags["scrib.certificate_digest"] == seal(text)


def test_files_of_the_schema_before_are_still_read(both):
    record = read_record(1)
    old = {key: value for key, value in record.items() if key not in {"gap", "candidate_coverage"}}
    old["fit"] = {key: value for key, value in old["fit"].items() if key != "primal_gap"}
    found = scrib_mlflow.from_json(json.dumps({**old, "schema_version": 2}))
    assert found.gap is None
    assert found.rule == scrib_mlflow.from_json(json.dumps(record)).rule
    with pytest.raises(ScribError, match="schema version 1 "):
        scrib_mlflow.from_json(json.dumps({**old, "schema_version": 1}))
