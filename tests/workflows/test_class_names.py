"""Classes that are called like a word of ours: `default`, as in credit risk, and `overall`."""

import json

import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.workflows.calibrate import summary
from tests.models import CLASSES, FEATURES, draw_mixture, fit_pipeline

NAMES = dict(zip(CLASSES, ("overall", "default", "paid"), strict=True))
NAME = "models:/credit-scrib"


def draw(n, seed):
    table = draw_mixture(n, seed=seed)
    return table.assign(label=table["label"].map(NAMES))


@pytest.fixture
def credit(store):
    """A classifier of loans in a store, and files of rows."""
    table = draw(600, 100)
    pipeline = fit_pipeline(table)
    signature = mlflow.models.infer_signature(table[FEATURES], pipeline.predict(table[FEATURES]))
    mlflow.sklearn.log_model(
        pipeline,
        name="model",
        signature=signature,
        pip_requirements=["mlflow", "scikit-learn", "skops"],
        registered_model_name="credit",
    )
    mlflow.end_run()
    draw(3000, 1).to_parquet("rows.parquet")
    draw(2000, 2).to_parquet("fresh.parquet")
    return "models:/credit/1", "rows.parquet", "label"


def test_classes_named_default_and_overall_are_certified_measured_and_gated(credit):
    targets = {"=default": 0.08, "default": 0.1}
    done = scrib_mlflow.calibrate(*credit, risk_targets=targets, overall_target=0.12)
    record = done.classifier
    assert record.certified
    assert record.risk_targets == {"default": 0.08, "overall": 0.1, "paid": 0.1}
    claims = {claim.name: claim.target for claim in record.certificate.claims}
    assert claims == {**record.risk_targets, "overall (all classes)": 0.12}
    text = scrib_mlflow.to_json(record)
    assert scrib_mlflow.to_json(scrib_mlflow.from_json(text)) == text
    metrics = mlflow.get_run(done.run_id).data.metrics
    by_name = {claim.name: claim.p_value for claim in record.certificate.claims}
    assert metrics["p_value/overall"] == by_name["overall"]
    assert metrics["overall_p_value"] == by_name["overall (all classes)"]
    assert metrics["risk/overall"] == record.certify_report.by_class["overall"].risk
    assert metrics["overall_risk"] == record.certify_report.overall_risk
    place = mlflow.get_run(done.run_id).info.experiment_id
    table = mlflow.MlflowClient().load_table(place, "classes.json", [done.run_id])
    assert [*table["class"]] == ["default", "overall", "paid"]
    assert "overall (all classes)  " in summary(done)

    looked = scrib_mlflow.evaluate(f"{NAME}/1", "fresh.parquet", "label")
    assert set(looked.report.by_class) == {"default", "overall", "paid"}

    fresh = {"data": "fresh.parquet", "label": "label"}
    policy = {"risk_targets": {"=default": 0.09, "default": 0.1}, "overall_target": 0.2}
    gated = scrib_mlflow.gate(f"{NAME}/1", **policy, **fresh)
    assert gated.decision.passed, gated.decision.checks
    assert gated.decision.policy.risk_targets == {"default": 0.09, "overall": 0.1, "paid": 0.1}
    strict = {"=default": 0.05, "default": 0.1}
    refused = scrib_mlflow.gate(f"{NAME}/1", risk_targets=strict)
    assert [check.name for check in refused.decision.checks if not check.passed] == ["targets"]
    waived = scrib_mlflow.gate(
        f"{NAME}/1",
        waive=["paid", "overall"],
        max_class_abstention={"=default": 0.9, "default": 0.95},
        **fresh,
    )
    assert waived.decision.policy.risk_targets == {"default": 0.08}
    assert waived.decision.policy.max_class_abstention == {"default": 0.9}


def test_one_target_for_all_needs_no_word_about_a_class_named_default(credit):
    done = scrib_mlflow.calibrate(*credit, risk_targets=0.1, waive=["default"])
    assert done.classifier.certified
    assert done.classifier.risk_targets == {"overall": 0.1, "paid": 0.1}
    explored = scrib_mlflow.frontier(*credit, risk_targets=0.1, points=5, overall_target=0.1)
    assert explored.frontier.targets == dict.fromkeys(NAMES.values(), 0.1)
    with pytest.raises(ScribError, match="'=default' for the class"):
        scrib_mlflow.calibrate(*credit, risk_targets={"default": 0.1})


def test_advice_knows_a_class_named_default_from_the_others(credit):
    targets = {"=default": 0.006, "default": 0.15}
    given = {"risk_targets": targets, "overall_target": 0.2, "rule": "thresholds"}
    done = scrib_mlflow.calibrate(*credit, **given)
    advice = json.loads(scrib_mlflow.to_json(done.classifier))["advice"]
    assert set(advice["targets"]) == {*NAMES.values(), "overall (all classes)"}
    assert advice["blocking"] == "default"
