"""The evaluator plugin, called by MLflow as an installed one."""

import mlflow
import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

import scrib_mlflow
from tests.models import draw_table


def evaluate(done, table, **options):
    model_id = mlflow.models.get_model_info(done.model_uri).model_id
    return mlflow.models.evaluate(
        done.model_uri,
        table,
        targets="label",
        model_type="classifier",
        evaluators=["scrib"],
        model_id=model_id,
        **options,
    )


def test_the_plugin_gives_the_metrics_of_evaluate_linked_to_the_logged_model(calibrated):
    table = draw_table(300, seed=5)
    table.to_parquet("plugin.parquet")
    with mlflow.start_run() as run:
        result = evaluate(calibrated, table)
    own = scrib_mlflow.evaluate(calibrated.model_uri, "plugin.parquet", "label").report
    assert result.metrics["abstention_rate"] == own.abstention_rate
    for name, found in own.by_class.items():
        assert result.metrics[f"risk_upper/{name}"] == found.risk_upper
        assert result.metrics[f"abstention/{name}"] == found.abstention_rate
    assert mlflow.get_run(run.info.run_id).data.metrics["overall_risk"] == own.overall_risk
    content = result.artifacts["scrib_report"].content
    assert scrib_mlflow.from_json(content if isinstance(content, str) else str(content)) == own
    logged = mlflow.get_logged_model(mlflow.models.get_model_info(calibrated.model_uri).model_id)
    linked = {metric.key: metric.value for metric in logged.metrics or []}
    assert linked["abstention_rate"] == own.abstention_rate
    files = {item.path for item in mlflow.MlflowClient().list_artifacts(run.info.run_id, "scrib")}
    assert files == {"scrib/classes.json", "scrib/classes.png", "scrib/report.json"}


def test_a_team_s_own_thresholds_can_use_its_metrics(calibrated):
    with mlflow.start_run():
        result = evaluate(calibrated, draw_table(300, seed=5))
    bound = result.metrics["risk_upper/easy"]
    for limit, passes in ((bound + 0.01, True), (bound - 0.01, False)):
        threshold = MetricThreshold(threshold=limit, greater_is_better=False)
        if passes:
            mlflow.validate_evaluation_results({"risk_upper/easy": threshold}, result)
            continue
        with pytest.raises(ModelValidationFailedException, match="risk_upper/easy"):
            mlflow.validate_evaluation_results({"risk_upper/easy": threshold}, result)


def test_the_plugin_takes_a_confidence_and_names_what_it_does_not_know(calibrated):
    table = draw_table(300, seed=5)
    bounds = []
    for confidence in (0.8, 0.99):
        with mlflow.start_run():
            result = evaluate(
                calibrated, table, evaluator_config={"scrib": {"confidence": confidence}}
            )
        bounds.append(result.metrics["risk_upper/easy"])
    assert bounds[0] < bounds[1]
    with mlflow.start_run(), pytest.raises(MlflowException, match="no 'alpha'"):
        evaluate(calibrated, table, evaluator_config={"scrib": {"alpha": 0.1}})


def test_the_plugin_refuses_what_is_no_set_classifier_or_no_class(calibrated):
    table = draw_table(50, seed=5)
    with mlflow.start_run(), pytest.raises(MlflowException, match="make one of this model"):
        mlflow.models.evaluate(
            "models:/base/1", table, targets="label", model_type="classifier", evaluators=["scrib"]
        )
    wrong = table.assign(label=np.where(table["label"] == "easy", "nobody", table["label"]))
    with mlflow.start_run(), pytest.raises(MlflowException, match="'nobody'"):
        evaluate(calibrated, wrong)
