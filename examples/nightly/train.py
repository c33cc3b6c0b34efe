"""Register a classifier, and write the tickets of three nights.

Generated rows stand for your data. In the third night an upstream job has begun to send `x2` in
other units. `audited.parquet` has labels that come later, of 300 tickets of the first two nights.
"""

import mlflow
import pandas as pd
from mlflow.models import infer_signature
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

NIGHT = 2_000

features, labels = make_classification(
    12_000,
    n_features=6,
    n_informative=6,
    n_redundant=0,
    n_classes=3,
    n_clusters_per_class=1,
    flip_y=0.02,
    random_state=1,
)
table = pd.DataFrame(features, columns=["x1", "x2", "x3", "x4", "x5", "x6"])
table["topic"] = [("easy", "middle", "hard")[label] for label in labels]
train, validation, rest = table[:2_000], table[2_000:6_000], table[6_000:]

x_train = train.drop(columns="topic")
model = LogisticRegression().fit(x_train, train["topic"])
with mlflow.start_run(run_name="train tickets"):
    mlflow.sklearn.log_model(
        model,
        name="model",
        signature=infer_signature(x_train, model.predict(x_train)),
        pip_requirements=["mlflow", "scikit-learn", "skops"],
        registered_model_name="tickets",
    )
validation.to_parquet("validation.parquet")

rest = rest.reset_index(drop=True).assign(id=range(len(rest)))
evening = pd.Timestamp("2026-11-01 22:00", tz="UTC")
for night in (1, 2, 3):
    rows = rest[(night - 1) * NIGHT : night * NIGHT].copy()
    seconds = pd.to_timedelta(range(NIGHT), unit="s") * 10
    rows["asked"] = evening + pd.Timedelta(days=night - 1) + seconds
    if night == 3:
        rows["x2"] *= 1.8
    rows.drop(columns="topic").to_parquet(f"night{night}.parquet")
rest[: 2 * NIGHT].sample(300, random_state=0).to_parquet("audited.parquet")
