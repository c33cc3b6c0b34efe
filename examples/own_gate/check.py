"""A gate of one's own, on MLflow's evaluate and its thresholds for metrics.

usage: python check.py MODEL_URI DATA LABEL LIMIT
"""

import sys

import mlflow
import pandas as pd
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

model_uri, data, label, limit = sys.argv[1:]
rows = pd.read_parquet(data)

with mlflow.start_run(run_name="own gate"):
    result = mlflow.models.evaluate(
        model_uri,
        rows,
        targets=label,
        model_type="classifier",
        evaluators=["scrib"],
        evaluator_config={"scrib": {"confidence": 0.99}},
        model_id=mlflow.models.get_model_info(model_uri).model_id,
    )

bounds = {name: value for name, value in result.metrics.items() if name.startswith("risk_upper/")}
for name, value in bounds.items():
    print(f"{name}: {value:.3f}")
thresholds = {
    name: MetricThreshold(threshold=float(limit), greater_is_better=False) for name in bounds
}
thresholds["abstention_rate"] = MetricThreshold(threshold=0.5, greater_is_better=False)
try:
    mlflow.validate_evaluation_results(thresholds, result)
except ModelValidationFailedException as error:
    sys.exit(f"refused: {error}")
print("passed")
