"""One set classifier of many classes: print what an answer takes, and how long it is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from mlflow.pyfunc import PyFuncModel, load_model
from sklearn.linear_model import LogisticRegression

from scrib_mlflow.workflows.calibrate import calibrate

FEATURES = 16
TRAINED, CALIBRATED, ASKED = 10, 20, 100  # rows a class, and rows that are asked for
APART = 1.0
REPEATS = 40


def main(folder: Path, k: int) -> None:
    """Register a classifier of so many classes and a set classifier of it, and time both."""
    place = (folder / "artifacts").as_uri()
    mlflow.set_experiment(experiment_id=mlflow.create_experiment(folder.name, place))
    random = np.random.default_rng(0)
    centres = APART * random.normal(size=(k, FEATURES))

    def draw(n: int) -> pd.DataFrame:
        labels = np.arange(n) % k
        rows = centres[labels] + random.normal(size=(n, FEATURES))
        names = [f"class {label:04}" for label in labels]
        return pd.DataFrame(rows, columns=[f"f{j:02}" for j in range(FEATURES)]).assign(label=names)

    table = draw(TRAINED * k)
    inputs = table.drop(columns="label")
    model = LogisticRegression(max_iter=30).fit(inputs, table["label"])
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            model,
            name="model",
            signature=infer_signature(inputs, model.predict_proba(inputs.head())),
            pyfunc_predict_fn="predict_proba",
            pip_requirements=["mlflow", "scikit-learn", "skops"],
            registered_model_name=f"many-{k}",
        )
    base = f"models:/many-{k}/{info.registered_model_version}"
    options = {"mode": "paper", "risk_targets": 0.2}
    done = calibrate(base, draw(CALIBRATED * k), "label", **options)
    models = [load_model(uri, suppress_warnings=True) for uri in (base, done.model_uri)]
    asked = draw(10 * k).sample(ASKED, random_state=0).drop(columns="label")
    taken: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for seconds, each in zip(taken, models, strict=True):
            seconds.append(_seconds(each, asked))
    answers = models[1].predict(asked)
    open_rows = answers[answers["abstain"]]
    seen = {
        "classes": k,
        "abstain": float(answers["abstain"].mean()),
        "candidates": float(open_rows["candidates"].str.len().mean()),
        "more": float(open_rows["more_candidates"].mean()),
        "base": 1e3 * median(taken[0]),
        "set": 1e3 * median(taken[1]),
        "kilobytes": len(json.dumps(answers.to_dict(orient="records"))) / 1e3,
    }
    print(json.dumps(seen))


def _seconds(model: PyFuncModel, rows: pd.DataFrame) -> float:
    start = time.perf_counter()
    model.predict(rows)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
