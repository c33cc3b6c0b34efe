"""Register a new version of a classifier, and write rows it has not seen.

Generated rows of an easy, a middling and a hard class stand for your data.
"""

import mlflow
import pandas as pd
from mlflow.models import infer_signature
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

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
train, validation, test = table[:2_000], table[2_000:7_000], table[7_000:]

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
test.to_parquet("test.parquet")
