"""A small registered classifier for tests, and rows for it."""

import json
from functools import cache
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from scipy import special
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scrib_mlflow.rows import hashes, tables

CLASSES = ("easy", "hard", "middle")
FEATURES = [f"x{i}" for i in range(4)]
MOST = 1000  # rows of a draw
POOL = 30 * MOST


@cache
def pool():
    """Return features and labels of all rows that are drawn from."""
    return make_classification(
        POOL,
        n_features=4,
        n_informative=4,
        n_redundant=0,
        n_classes=3,
        n_clusters_per_class=1,
        class_sep=0.8,
        flip_y=0.05,
        random_state=7,
    )


def draw_table(n=600, *, seed=0):
    """Return a table with four features and a label column; other seeds give other rows."""
    features, labels = pool()
    chosen = np.random.default_rng(0).permutation(POOL)[seed * MOST : seed * MOST + n]
    table = pd.DataFrame(features[chosen], columns=FEATURES)
    return table.assign(label=np.array(CLASSES)[labels[chosen]])


def read_table(name, place, label):
    """Return all rows of a table."""
    return pd.concat(tables.open_table(name, place, label).batches(), ignore_index=True)


def case_hashes(features, labels):
    """Return a hash of the features of each row, and of its class."""
    return hashes.hash_cases(hashes.feature_sums(features), labels)


def digest(table):
    """Return the digest of all rows."""
    return hashes.digest_of(table.columns, hashes.digest_sums(hashes.row_hashes(table)))


def fit_pipeline(table):
    """Return a fitted scikit-learn pipeline."""
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    return pipeline.fit(table[FEATURES], table["label"])


def register_pipeline(name="base", *, seed=1, **options):
    """Train, log and register a classifier; return its version's URI."""
    table = draw_table(seed=seed)
    pipeline = fit_pipeline(table)
    signature = infer_signature(table[FEATURES], pipeline.predict(table[FEATURES]))
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            pipeline,
            name="model",
            signature=signature,
            input_example=table[FEATURES].head(2),
            pip_requirements=["mlflow", "scikit-learn", "skops"],
            registered_model_name=name,
            **options,
        )
    return f"models:/{name}/{info.registered_model_version}"


def raw_scores(table):
    """Return the registered classifier's probabilities, by scikit-learn alone."""
    return fit_pipeline(draw_table(seed=1)).predict_proba(table[FEATURES])


def draw_mixture(n, *, seed, apart=2.5):
    """Return fresh rows of three classes around corners that lie `apart`."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    features = random.normal(size=(n, 4))
    features[np.arange(n), labels] += apart
    table = pd.DataFrame(features, columns=FEATURES)
    return table.assign(label=np.array(CLASSES)[labels])


def register_mixture(name="base", *, seed=100, rows=600):
    """Train and register a classifier of such rows; with few rows it is a worse one."""
    table = draw_mixture(rows, seed=seed)
    pipeline = fit_pipeline(table)
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            pipeline,
            name="model",
            signature=infer_signature(table[FEATURES], pipeline.predict(table[FEATURES])),
            pip_requirements=["mlflow", "scikit-learn", "skops"],
            registered_model_name=name,
        )
    return f"models:/{name}/{info.registered_model_version}"


def read_record(version, name="base-scrib"):
    """Return what scrib.json of a version says."""
    uri = f"models:/{name}/{version}"
    place = mlflow.models.get_model_info(uri).flavors["python_function"]["artifacts"]["scrib"]
    path = mlflow.artifacts.download_artifacts(f"{uri}/{place['path']}")
    return json.loads(Path(path).read_text(encoding="utf-8"))


def probabilities(record, rows):
    """Return recalibrated scores of the mixture's classifier, by scrib.json and scikit-learn."""
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(rows[FEATURES])
    bent = record["rule"]["recalibration"]
    logs = np.log(np.maximum(scores, bent["least_score"]))
    return special.softmax(logs * bent["slopes"] + bent["offsets"], axis=1)
