"""Methods compared on a registered classifier's scores: what is logged, printed and left unread."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from mlflow.models import infer_signature
from sklearn.linear_model import LogisticRegression

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.errors import ScribError
from scrib_mlflow.rows.hashes import key_hashes
from scrib_mlflow.workflows import compare
from tests.conftest import copy_folder, using
from tests.models import CLASSES, FEATURES, case_hashes, draw_mixture, fit_pipeline

METHODS = ["SCRIB", "optimal", "SCRIB-", "SGR", "LABEL", "top-1"]


@pytest.fixture(scope="module")
def rows():
    """Rows in groups of ten, with a number that says how sure each is."""
    table = draw_mixture(1200, seed=5, apart=2.0)
    return table.assign(who=np.arange(1200) // 10, sure=table[FEATURES].max(axis=1))


@pytest.fixture(scope="module")
def folder(mixture_folder, tmp_path_factory):
    return copy_folder(mixture_folder, tmp_path_factory.mktemp("compare"))


@pytest.fixture
def base(folder, rows):
    """The classifier, in its store, beside the file of rows."""
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        rows.to_parquet("rows.parquet")
        yield "models:/base/1"


def certify_groups(rows, seed=0):
    """Return which rows calibrate certifies on, by group."""
    hashes = key_hashes(rows["who"])
    return split_rows(hashes, np.zeros(len(rows), dtype=np.int32), 0.7, seed, groups=hashes)


def children(run_id):
    found = mlflow.search_runs(
        filter_string=f"tags.mlflow.parentRunId = '{run_id}'",
        output_format="list",
        search_all_experiments=True,
    )
    return {run.info.run_name: run for run in found}


def test_a_run_for_each_method_has_its_means_and_the_parent_the_rest(base, rows):
    done = scrib_mlflow.compare(
        base, "rows.parquet", "label", risk_targets=0.1, trust="sure", repeats=2, curves=2
    )
    assert mlflow.active_run() is None
    found = done.comparison
    assert found.classes == CLASSES
    assert (
        found.n_rows
        == done.data.n_used
        == 1200 - sum(int(0.7 * n + 0.5) for n in rows["label"].value_counts())
    )
    methods = [*METHODS, "SGR on sure"]
    assert [*found.methods] == methods
    runs = children(done.run_id)
    assert sorted(runs) == sorted(methods)
    for name, run in runs.items():
        assert run.info.status == "FINISHED"
        assert run.data.params == {"method": name}
        trials = found.of(name)
        assert len(trials) == 2
        for metric in ("abstention_rate", "size_ambiguity", "empty_rate", "worst_excess"):
            mean = (getattr(trials[0], metric) + getattr(trials[1], metric)) / 2
            assert run.data.metrics[metric] == pytest.approx(mean)
        assert {"overall_risk", "mean_excess", "fit_seconds_ratio"} <= set(run.data.metrics)
        areas = [curve.auc for curve in found.curves_of(name)]
        assert len(areas) == (0 if name in {"LABEL", "top-1"} else 2)
        assert ("auc" in run.data.metrics) == ("overall_rmse" in run.data.metrics) == bool(areas)
        if areas:
            assert run.data.metrics["auc"] == pytest.approx(np.mean(areas))
    assert runs["SCRIB"].data.metrics["fit_seconds_ratio"] == 1
    parent = mlflow.get_run(done.run_id)
    assert parent.info.run_name == "compare base"
    assert parent.data.params["repeats"] == "2"
    assert parent.inputs.dataset_inputs[0].dataset.name == "compare"
    assert "| SCRIB- |" in parent.data.tags["mlflow.note.content"]
    path = Path(mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path=""))
    assert sorted(item.name for item in (path / "figures").iterdir()) == [
        "abstention.png",
        "curves.png",
        "excess.png",
        "risks.png",
        "tradeoff.png",
    ]
    table = json.loads((path / "compare.json").read_text(encoding="utf-8"))
    assert len(table["data"]) == 2 * len(methods)
    text = (path / "comparison.json").read_text(encoding="utf-8")
    assert scrib_mlflow.to_json(scrib_mlflow.from_json(text)) == text


def test_labels_of_certify_rows_change_nothing(base, rows):
    def compared():
        options = {"group": "who", "repeats": 1, "trust": "sure", "curves": 1}
        return scrib_mlflow.compare(base, "rows.parquet", "label", **options).comparison

    before = compared()
    certify = certify_groups(rows)
    assert before.n_rows == (~certify).sum()
    others = {name: CLASSES[(j + 1) % 3] for j, name in enumerate(CLASSES)}
    corrupt = rows["label"].where(~certify, rows["label"].map(others))
    rows.assign(label=corrupt).to_parquet("rows.parquet")
    assert _timeless(compared()) == _timeless(before)
    rows.assign(label=rows["label"].where(certify, corrupt.map(others))).to_parquet("rows.parquet")
    assert _timeless(compared()) != _timeless(before)


def _timeless(found):
    text = scrib_mlflow.to_json(found)
    return [line for line in text.splitlines() if "fit_seconds_ratio" not in line]


def test_the_rows_are_those_that_calibrate_fits(base, monkeypatch):
    seen = {}

    def instead(scores, labels, *_, **options):
        seen.update(scores=scores, labels=labels, classes=options["classes"])
        raise ScribError("enough")

    monkeypatch.setattr(compare, "compare_rules", instead)
    with pytest.raises(ScribError, match="enough"):
        scrib_mlflow.compare(base, "rows.parquet", "label", seed=3)
    assert mlflow.active_run() is None
    done = scrib_mlflow.calibrate(base, "rows.parquet", "label", seed=3, risk_targets=0.3)
    path = mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="rows.parquet")
    hashes = pd.read_parquet(path).query("part == 'fit'")["hash"]
    table = pd.read_parquet("rows.parquet")
    labels = np.array([CLASSES.index(name) for name in table["label"]])
    fit = np.isin(case_hashes(table[FEATURES], labels), hashes)
    assert done.classifier.fit_data.n_used == fit.sum() == len(seen["labels"])
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(table[FEATURES][fit])
    assert seen["scores"] == pytest.approx(scores)
    assert seen["labels"].tolist() == labels[fit].tolist()


def test_the_command_prints_a_table_and_what_was_not_read(base):
    words = ["compare", "--model_uri", base, "--data", "rows.parquet", "--label", "label"]
    words += ["--risk_targets", "{hard: 0.2, default: 0.1}", "--repeats", "1", "--group", "who"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("On held-out rows, SCRIB abstains on ")
    assert "360 fit rows in 36 groups, which stay whole" in lines[1]
    assert lines[3].split()[:3] == ["method", "abstains", "worst"]
    assert [line.split()[0] for line in lines[4:10]] == METHODS
    assert len({len(line) for line in lines[3:10]}) == 1
    assert "SGR bounds the overall risk by 13." in done.stdout
    assert "curves begin at the accuracy of top-1, without abstention" in done.stdout
    assert "The other 840 rows are those that calibrate would certify on" in done.stdout


def test_trust_is_no_input_of_a_model_that_names_none(base, rows):
    rows.drop(columns="who").to_parquet("rows.parquet")
    features = rows[FEATURES].to_numpy()
    model = LogisticRegression().fit(features, rows["label"])
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            model,
            name="model",
            signature=infer_signature(features, model.predict(features)),
            pip_requirements=["mlflow", "scikit-learn", "skops"],
            registered_model_name="unnamed",
        )
    options = {"trust": "sure", "repeats": 1, "curves": 0}
    done = scrib_mlflow.compare("models:/unnamed/1", "rows.parquet", "label", **options)
    assert done.comparison.methods[-1] == "SGR on sure"
    assert done.comparison.curves == ()
    assert "AUC" not in compare.summary(done)
    figures = mlflow.artifacts.list_artifacts(run_id=done.run_id, artifact_path="figures")
    assert "figures/curves.png" not in [item.path for item in figures]


def test_logits_leave_the_optimal_rule_out_with_a_word(base):
    options = {"scores_from": "decision_function", "repeats": 1}
    done = scrib_mlflow.compare(base, "rows.parquet", "label", **options)
    assert "optimal" not in done.comparison.methods
    assert "optimal is left out: the scores are no probabilities" in compare.summary(done)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"curves": -1}, "curves is -1"),
        ({"trust": "suer"}, "no column 'suer', which trust names; did you mean 'sure'"),
        ({"trust": "label"}, "trust names the label"),
        ({"trust": "words"}, "trust must be numbers"),
        ({"group": "doctor"}, "no column 'doctor'"),
        ({"waive": ["hrad"]}, "unknown class 'hrad'"),
        ({"waive": list(CLASSES)}, "every class is waived"),
        ({"rule": "optimal"}, "compare has no parameter 'rule'"),
        ({"certify_fraction": 0.9999}, "class 'easy' has 1 row among the fit rows"),
    ],
)
def test_bad_options_are_told_in_a_sentence(base, rows, options, message):
    rows.assign(words="x").to_parquet("rows.parquet")
    with pytest.raises(ScribError, match=message):
        scrib_mlflow.compare(base, "rows.parquet", "label", **options)
    assert mlflow.active_run() is None
