"""One registration: a scikit-learn classifier, set classifiers of both rules, and rows to ask."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scrib_mlflow.workflows.calibrate import calibrate

CLASSES = np.array(["W", "N1", "N2", "N3", "REM"])
FEATURES = [f"feature_{j:02}" for j in range(20)]
TRAINED = 5_000
CALIBRATED = 5_000
ASKED = 10_000
RISK = 0.1
NEEDED = ("mlflow", "numpy", "pandas", "scikit-learn", "scipy", "skops")  # inferring takes minutes


def main(folder: Path) -> None:
    """Register the models in the store that MLFLOW_TRACKING_URI names; print their URIs."""
    mlflow.set_experiment(experiment_id=_experiment(folder))
    table = _draw_table(TRAINED + CALIBRATED + ASKED)
    base = _register(table[:TRAINED])
    path = folder / "calibration.parquet"
    table[TRAINED:-ASKED].to_parquet(path)
    made = {
        rule: calibrate(base, str(path), "label", risk_targets=RISK, rule=rule).model_uri
        for rule in ("thresholds", "optimal")
    }
    asked = table[-ASKED:][FEATURES].reset_index(drop=True)
    asked.to_parquet(folder / "asked.parquet")
    asked.to_json(folder / "asked.json", orient="split", index=False, double_precision=15)
    abstain = {}
    for rule, uri in made.items():
        answers = mlflow.pyfunc.load_model(uri, suppress_warnings=True).predict(asked)
        abstain[rule] = float(answers["abstain"].mean())
    print(json.dumps({"uris": {"base": base, **made}, "abstain": abstain}))


def _experiment(folder: Path) -> str:
    """Return a new experiment that keeps its files in the folder."""
    return mlflow.create_experiment("serving", artifact_location=(folder / "artifacts").as_uri())


def _draw_table(n: int) -> pd.DataFrame:
    """Return features and a label; some classes are hard to tell apart."""
    features, labels = make_classification(
        n,
        n_features=len(FEATURES),
        n_informative=8,
        n_classes=len(CLASSES),
        n_clusters_per_class=1,
        class_sep=1.2,
        random_state=0,
    )
    return pd.DataFrame(features, columns=FEATURES).assign(label=CLASSES[labels])


def _register(table: pd.DataFrame) -> str:
    """Train and register a classifier that answers with probabilities; return its URI."""
    rows = table[FEATURES]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, table["label"])
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            pipeline,
            name="model",
            signature=infer_signature(rows, pipeline.predict_proba(rows)),
            input_example=rows.head(2),
            pyfunc_predict_fn="predict_proba",
            pip_requirements=[f"{name}=={version(name)}" for name in NEEDED],
            registered_model_name="stages",
        )
    return f"models:/stages/{info.registered_model_version}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
