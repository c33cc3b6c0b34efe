"""The gate on real stores: what passes, what is refused, and where the alias is then."""

from pathlib import Path

import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from tests.models import CLASSES, draw_mixture
from tests.workflows.gates import NAME, champion, failed, tags


def test_a_certified_version_gets_the_alias_and_says_by_whom_and_why(certified):
    done = scrib_mlflow.gate(f"models:/{NAME}/1", alias="champion")
    assert done.decision.passed
    assert done.moved
    assert champion() == "1"
    found = tags()
    assert found["scrib.gate"] == "passed"
    assert found["scrib.gate_run_id"] == done.run_id
    assert found["scrib.gate_confidence"] == "0.95"
    assert found["scrib.previous_champion"] == ""
    assert found["scrib.gate_at"] == done.decision.decided_at
    run = mlflow.get_run(done.run_id)
    assert run.data.metrics["gate"] == 1
    path = mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="decision.json")
    assert scrib_mlflow.from_json(Path(path).read_text()) == done.decision


def test_fresh_rows_that_do_not_refute_let_it_pass_and_are_logged(certified):
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="fresh.parquet", label="label")
    assert done.decision.passed
    fresh = done.decision.fresh
    assert tags()["scrib.gate_data_digest"] == fresh.data.digest
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


def test_targets_stricter_than_the_certified_are_refused_class_by_class(certified):
    done = scrib_mlflow.gate(
        f"models:/{NAME}/1", risk_targets={"hard": 0.05, "easy": 0.1, "default": 0.2}
    )
    assert failed(done) == ["targets"]
    detail = next(check.detail for check in done.decision.checks if check.name == "targets")
    assert detail == "hard: 10.0 % is certified, 5.0 % is asked for"
    assert champion() == ""


def test_bounds_below_a_stricter_target_do_not_count(certified):
    record = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", risk_targets=0.1, seed=1
    ).classifier
    bound = max(claim.risk_upper for claim in record.certificate.claims)
    assert bound < 0.1
    done = scrib_mlflow.gate(f"models:/{NAME}/3", risk_targets=(bound + 0.1) / 2)
    assert failed(done) == ["targets"]


def test_a_higher_confidence_than_the_certificate_s_is_refused(certified):
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1", confidence=0.99)) == ["confidence"]
    assert not failed(scrib_mlflow.gate(f"models:/{NAME}/1", confidence=0.9))


def test_the_overall_risk_follows_from_class_risks(certified):
    assert not failed(scrib_mlflow.gate(f"models:/{NAME}/1", overall_target=0.1))
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1", overall_target=0.09)) == ["overall target"]


def test_rows_that_refute_a_class_are_told(certified):
    table = draw_mixture(2000, seed=3)
    table["label"] = table["label"].replace({"hard": "easy", "easy": "hard"})
    table.to_parquet("bad.parquet")
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="bad.parquet", label="label")
    assert failed(done) == ["not refuted"]
    assert set(done.decision.fresh.refuted) == {"easy", "hard"}
    assert champion() == ""


def test_fresh_evidence_certifies_by_itself_also_what_has_no_certificate(certified):
    parameters = {"data": "fresh.parquet", "label": "label", "evidence": "fresh"}
    done = scrib_mlflow.gate(f"models:/{NAME}/2", risk_targets=0.2, **parameters)
    assert done.decision.passed
    assert {claim.target for claim in done.decision.fresh.certificate.claims} == {0.2}
    assert done.decision.fresh.use.number == 1
    draw_mixture(60, seed=4).to_parquet("few.parquet")
    few = scrib_mlflow.gate(
        f"models:/{NAME}/1", evidence="fresh", data="few.parquet", label="label"
    )
    assert failed(few) == ["fresh certificate"]
    assert champion() == "2"


def test_rows_of_the_calibration_are_refused_unless_allowed(certified):
    for name in ("rows.parquet", "again.csv"):
        draw_mixture(3000, seed=1).to_csv("again.csv", index=False)
        done = scrib_mlflow.gate(f"models:/{NAME}/1", data=name, label="label")
        assert failed(done) == ["unseen rows"]
        assert done.decision.fresh.n_shared == 3000
    done = scrib_mlflow.gate(
        f"models:/{NAME}/1", data="rows.parquet", label="label", allow_overlap=True
    )
    assert done.decision.passed
    assert tags()["scrib.gate_allow_overlap"] == "true"


def test_a_few_rows_of_the_calibration_among_many_are_refused_as_well(certified):
    import pandas as pd  # noqa: PLC0415

    mixed = pd.concat([draw_mixture(1900, seed=5), draw_mixture(3000, seed=1).head(100)])
    mixed.to_parquet("mixed.parquet")
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="mixed.parquet", label="label")
    assert failed(done) == ["unseen rows"]
    assert done.decision.fresh.n_shared == 100


def test_caps_on_abstention_are_judged_on_fresh_rows(certified):
    fresh = {"data": "fresh.parquet", "label": "label"}
    rate = scrib_mlflow.evaluate(
        f"models:/{NAME}/1", "fresh.parquet", "label"
    ).report.abstention_rate
    assert 0.01 < rate < 0.99
    assert not failed(scrib_mlflow.gate(f"models:/{NAME}/1", max_abstention=rate + 0.001, **fresh))
    done = scrib_mlflow.gate(f"models:/{NAME}/1", max_abstention=rate - 0.001, **fresh)
    assert failed(done) == ["abstention"]
    done = scrib_mlflow.gate(f"models:/{NAME}/1", max_class_abstention={"hard": 0.001}, **fresh)
    assert failed(done) == ["class abstention"]


def test_a_version_that_abstains_more_than_the_champion_is_refused(certified):
    fresh = {"data": "fresh.parquet", "label": "label"}
    scrib_mlflow.gate(f"models:/{NAME}/1", max_abstention_increase=0.0, **fresh)
    assert champion() == "1"
    strict = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", risk_targets=0.04, alias="strict"
    )
    done = scrib_mlflow.gate(
        strict.model_uri, evidence="fresh", risk_targets=0.1, max_abstention_increase=0.02, **fresh
    )
    assert failed(done) == ["champion"]
    assert done.decision.champion == "1"
    assert champion() == "1"
    done = scrib_mlflow.gate(
        strict.model_uri, evidence="fresh", risk_targets=0.1, max_abstention_increase=0.9, **fresh
    )
    assert done.decision.passed
    assert tags(strict.version)["scrib.previous_champion"] == "1"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"model_uri": f"models:/{NAME}/99"}, "not in the registry"),
        ({"model_uri": "models:/base/1"}, "no set classifier"),
        ({"alias": "latest"}, "alias is 'latest'"),
        ({"evidence": "fresh"}, "evidence=fresh needs fresh rows"),
        ({"data": "fresh.parquet"}, "label is missing"),
        ({"max_abstention_increase": 0.1}, "max_abstention_increase needs fresh rows"),
        ({"risk_targets": {"nobody": 0.1}}, "unknown class 'nobody'"),
        ({"risk_targets": 1.5}, "risk_targets is 1.5"),
        ({"waive": ["nobody"]}, "unknown class 'nobody'"),
        ({"waive": list(CLASSES)}, "asks about no risk"),
        ({"max_class_abstention": {"nobody": 0.1}}, "unknown class 'nobody'"),
        ({"data": "nowhere.parquet", "label": "label"}, "does not exist"),
        ({"data": "fresh.parquet", "label": "truth"}, "no column 'truth'"),
        ({"data": "fresh.parquet", "label": "label", "group": "patient"}, "no column 'patient'"),
        ({"evidence": "hope"}, "evidence is 'hope'"),
        ({"champion": "x"}, "no parameter 'champion'"),
    ],
)
def test_a_bad_policy_or_bad_data_is_told_in_a_sentence(certified, parameters, words):
    given = {"model_uri": f"models:/{NAME}/1", **parameters}
    with pytest.raises(ScribError, match=words):
        scrib_mlflow.gate(**given)
    assert champion() == ""
    assert "scrib.gate" not in tags()


def test_a_policy_that_leaves_a_class_out_is_refused(certified):
    with pytest.raises(ScribError, match="no target covers class 'hard'"):
        scrib_mlflow.gate(f"models:/{NAME}/1", risk_targets={"easy": 0.3})
    with pytest.raises(ScribError, match="unknown class 'hrad'"):
        scrib_mlflow.gate(f"models:/{NAME}/1", risk_targets=0.2, waive=["hrad"])
    with pytest.raises(ScribError, match="group needs fresh rows"):
        scrib_mlflow.gate(f"models:/{NAME}/1", group="x0")


def test_a_cap_that_names_a_waived_class_is_kept(certified):
    done = scrib_mlflow.gate(
        f"models:/{NAME}/1", waive=["hard"], max_class_abstention={"hard": 1e-6}
    )
    assert failed(done) == ["class abstention"]


def test_an_overall_policy_does_not_follow_from_targets_where_a_class_is_waived(certified):
    waived = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", risk_targets=0.1, waive=["hard"], alias="w"
    )
    assert waived.classifier.certified
    policy = {"risk_targets": 0.1, "waive": ["hard"]}
    done = scrib_mlflow.gate(waived.model_uri, overall_target=0.2, **policy)
    assert failed(done) == ["overall target"]
    assert not failed(scrib_mlflow.gate(waived.model_uri, **policy))
    assert failed(scrib_mlflow.gate(waived.model_uri, risk_targets=0.1)) == ["targets"]


def test_the_version_s_own_overall_target_is_asked_of_fresh_rows(certified):
    made = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", overall_target=0.09, alias="o"
    )
    done = scrib_mlflow.gate(made.model_uri, data="fresh.parquet", label="label", evidence="fresh")
    assert [claim.name for claim in done.decision.fresh.certificate.claims] == [*CLASSES, "overall"]


def test_rows_of_one_group_still_refute(certified):
    table = draw_mixture(2000, seed=3).assign(site="one")
    table["label"] = table["label"].replace({"hard": "easy", "easy": "hard"})
    table.to_parquet("bad.parquet")
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="bad.parquet", label="label", group="site")
    assert failed(done) == ["not refuted"]


def test_groups_of_fresh_rows_count_where_they_certify(certified):
    table = draw_mixture(2000, seed=7).assign(site=[f"s{i % 20}" for i in range(2000)])
    table.to_parquet("grouped.parquet")
    fresh = {"data": "grouped.parquet", "label": "label", "evidence": "fresh"}
    assert not failed(scrib_mlflow.gate(f"models:/{NAME}/1", **fresh))
    done = scrib_mlflow.gate(f"models:/{NAME}/1", group="site", **fresh)
    assert failed(done) == ["fresh certificate"]
    assert {claim.status for claim in done.decision.fresh.certificate.claims} == {"too few groups"}
    assert done.decision.fresh.use.number == 2  # with groups it is another test


def test_fresh_certificates_spend_as_well(certified):
    fresh = {"data": "fresh.parquet", "label": "label", "evidence": "fresh", "ledger": "spend"}
    levels = [
        scrib_mlflow.gate(
            f"models:/{NAME}/1", risk_targets=target, **fresh
        ).decision.fresh.certificate.level
        for target in (0.2, 0.3)
    ]
    assert levels == pytest.approx([0.0304, 0.0076], abs=1e-4)


def test_rows_that_cannot_be_compared_are_refused_unless_allowed(certified):
    run_id = tags()["scrib.run_id"]
    place = mlflow.get_run(run_id).info.artifact_uri.removeprefix("file://")
    (Path(place) / "rows.parquet").unlink()
    fresh = {"data": "fresh.parquet", "label": "label"}
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1", **fresh)) == ["unseen rows"]
    assert not failed(scrib_mlflow.gate(f"models:/{NAME}/1", allow_overlap=True, **fresh))


def test_rows_that_drew_the_path_are_no_fresh_rows(certified):
    draw_mixture(3000, seed=8).drop(columns="label").to_parquet("more.parquet")
    made = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", path_data="more.parquet", alias="p"
    )
    draw_mixture(3000, seed=8).head(500).to_parquet("path.parquet")
    done = scrib_mlflow.gate(made.model_uri, data="path.parquet", label="label")
    assert failed(done) == ["unseen rows"]
    assert done.decision.fresh.n_shared == 500
