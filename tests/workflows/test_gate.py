"""The gate on real stores: evidence that it collects, what it logs, and where the alias is then.

What it decides from evidence is tested in test_policy.py.
"""

from pathlib import Path

import mlflow
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from tests.models import CLASSES, draw_mixture
from tests.workflows.gates import NAME, champion, failed, tags

FRESH = {"data": "fresh.parquet", "label": "label", "evidence": "fresh"}


def test_a_certified_version_gets_the_alias_and_says_by_whom_and_why(certified):
    done = scrib_mlflow.gate(f"models:/{NAME}/1", alias="champion")
    assert done.decision.passed
    assert done.moved
    assert champion() == "1"
    found = tags()
    assert found["scrib.gate"] == "passed"
    assert found["scrib.gate_run_id"] == done.run_id
    assert found["scrib.previous_champion"] == ""
    run = mlflow.get_run(done.run_id)
    assert run.data.metrics["gate"] == 1
    path = mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="decision.json")
    assert scrib_mlflow.from_json(Path(path).read_text()) == done.decision


def test_fresh_rows_that_do_not_refute_let_it_pass_and_are_logged(certified):
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="fresh.parquet", label="label")
    assert done.decision.passed
    fresh = done.decision.fresh
    assert fresh.n_shared == 0
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["abstention_rate"] == fresh.report.abstention_rate
    assert metrics["p_value/hard"] == fresh.certificate.claims[1].p_value


def test_a_version_without_certificate_is_refused_and_the_alias_stays(certified):
    scrib_mlflow.gate(f"models:/{NAME}/1")
    done = scrib_mlflow.gate(f"models:/{NAME}/2")
    assert not done.decision.passed
    assert not done.moved
    assert failed(done) == ["certified"]
    assert champion() == "1"
    assert tags("2")["scrib.gate"] == "failed"
    assert "mode=paper" in tags("2")["scrib.gate_reasons"]
    assert tags("1")["scrib.gate"] == "passed"


@pytest.mark.parametrize("group", [None, "site"])
def test_rows_that_refute_a_class_are_told_also_rows_of_one_group(certified, group):
    table = draw_mixture(2000, seed=3).assign(site="one")
    table["label"] = table["label"].replace({"hard": "easy", "easy": "hard"})
    table.to_parquet("bad.parquet")
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="bad.parquet", label="label", group=group)
    assert failed(done) == ["fresh rows"]
    assert set(done.decision.fresh.refuted) == {"easy", "hard"}
    assert champion() == ""


def test_fresh_evidence_certifies_by_itself_also_what_has_no_certificate(certified):
    done = scrib_mlflow.gate(f"models:/{NAME}/2", risk_targets=0.2, overall_target=0.3, **FRESH)
    assert done.decision.passed
    targets = {claim.name: claim.target for claim in done.decision.fresh.certificate.claims}
    assert targets == {**dict.fromkeys(CLASSES, 0.2), "overall": 0.3}
    assert done.decision.fresh.use.number == 1
    draw_mixture(60, seed=4).to_parquet("few.parquet")
    few = scrib_mlflow.gate(f"models:/{NAME}/1", **{**FRESH, "data": "few.parquet"})
    assert failed(few) == ["fresh certificate"]
    assert champion() == "2"


def test_rows_of_the_calibration_are_known_again_in_any_file_and_among_others(certified):
    draw_mixture(3000, seed=1).to_csv("again.csv", index=False)
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="again.csv", label="label")
    assert failed(done) == ["unseen rows"]
    assert done.decision.fresh.n_shared == 3000
    mixed = pd.concat([draw_mixture(1900, seed=5), draw_mixture(3000, seed=1).head(100)])
    mixed.to_parquet("mixed.parquet")
    parameters = {"data": "mixed.parquet", "label": "label"}
    done = scrib_mlflow.gate(f"models:/{NAME}/1", **parameters)
    assert failed(done) == ["unseen rows"]
    assert done.decision.fresh.n_shared == 100
    done = scrib_mlflow.gate(f"models:/{NAME}/1", allow_overlap=True, **parameters)
    assert done.decision.passed
    assert tags()["scrib.gate_allow_overlap"] == "true"


def test_a_version_that_abstains_more_than_the_champion_is_refused(certified):
    scrib_mlflow.gate(f"models:/{NAME}/1")
    assert champion() == "1"
    strict = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", risk_targets=0.04, alias="strict"
    )
    policy = {**FRESH, "risk_targets": 0.1}
    done = scrib_mlflow.gate(strict.model_uri, max_abstention_increase=0.02, **policy)
    assert failed(done) == ["champion"]
    assert done.decision.fresh.champion_abstention < done.decision.fresh.report.abstention_rate
    assert done.decision.champion == champion() == "1"
    done = scrib_mlflow.gate(strict.model_uri, max_abstention_increase=0.9, **policy)
    assert done.decision.passed
    assert tags(strict.version)["scrib.previous_champion"] == "1"


def test_bad_models_and_bad_data_are_told_in_a_sentence(certified):
    uri = f"models:/{NAME}/1"
    for model_uri, options, words in (
        (f"models:/{NAME}/99", {}, "not in the registry"),
        ("models:/base/1", {}, "no set classifier"),
        (uri, {"risk_targets": {"nobody": 0.1}}, "unknown class 'nobody'"),
        (uri, {"data": "nowhere.parquet", "label": "label"}, "does not exist"),
        (uri, {"data": "fresh.parquet", "label": "truth"}, "no column 'truth'"),
        (uri, {"data": "fresh.parquet", "label": "label", "group": "it"}, "no column 'it'"),
    ):
        with pytest.raises(ScribError, match=words):
            scrib_mlflow.gate(model_uri, **options)
        assert champion() == ""
        assert "scrib.gate" not in tags()


def test_fresh_certificates_heed_groups_and_spend(certified):
    table = draw_mixture(2000, seed=7).assign(site=[f"s{i % 20}" for i in range(2000)])
    table.to_parquet("grouped.parquet")
    fresh = {**FRESH, "data": "grouped.parquet", "ledger": "spend"}
    done = scrib_mlflow.gate(f"models:/{NAME}/1", **fresh)
    assert not failed(done)
    assert done.decision.fresh.certificate.level == pytest.approx(0.0304, abs=1e-4)
    with pytest.raises(ScribError, match="groups need group_cap"):
        scrib_mlflow.gate(f"models:/{NAME}/1", group="site", **fresh)
    with pytest.raises(ScribError, match="group_cap is for evidence=fresh"):
        scrib_mlflow.gate(f"models:/{NAME}/1", group_cap=9)
    done = scrib_mlflow.gate(f"models:/{NAME}/1", group="site", group_cap=30, **fresh)
    assert failed(done) == ["fresh certificate"]
    assert done.decision.fresh.certificate.group_cap == 30
    assert {claim.status for claim in done.decision.fresh.certificate.claims} == {"too few groups"}
    assert done.decision.fresh.use.number == 2  # with groups it is another test
    assert done.decision.fresh.certificate.level == pytest.approx(0.0076, abs=1e-4)


def test_rows_that_cannot_be_compared_are_refused(certified):
    run_id = tags()["scrib.run_id"]
    place = mlflow.get_run(run_id).info.artifact_uri.removeprefix("file://")
    (Path(place) / "rows.parquet").unlink()
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="fresh.parquet", label="label")
    assert failed(done) == ["unseen rows"]


def test_rows_that_drew_the_path_are_no_fresh_rows(certified):
    draw_mixture(3000, seed=8).drop(columns="label").to_parquet("more.parquet")
    made = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", path_data="more.parquet", alias="p"
    )
    draw_mixture(3000, seed=8).head(500).to_parquet("path.parquet")
    done = scrib_mlflow.gate(made.model_uri, data="path.parquet", label="label")
    assert failed(done) == ["unseen rows"]
    assert done.decision.fresh.n_shared == 500
