"""Register a classifier, and write a few labelled rows and a pool without labels.

Generated rows of an easy, a middling and a hard class stand for your data. Only truth.parquet knows
the classes of the pool: it plays the people who label.
"""

import mlflow
import pandas as pd
from mlflow.models import infer_signature
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

features, labels = make_classification(
    22_500,
    n_features=6,
    n_informative=6,
    n_redundant=0,
    n_classes=3,
    n_clusters_per_class=1,
    flip_y=0.02,
    class_sep=0.8,
    random_state=1,
)
table = pd.DataFrame(features, columns=["x1", "x2", "x3", "x4", "x5", "x6"])
table.insert(0, "id", [f"T{number:05}" for number in range(len(table))])
table["topic"] = [("easy", "middle", "hard")[label] for label in labels]
train, labelled, pool = table[:2_000], table[2_000:2_500], table[2_500:]

x_train = train.drop(columns=["id", "topic"])
model = LogisticRegression().fit(x_train, train["topic"])

with mlflow.start_run(run_name="train tickets"):
    mlflow.sklearn.log_model(
        model,
        name="model",
        signature=infer_signature(x_train, model.predict(x_train)),
        pip_requirements=["mlflow", "scikit-learn", "skops"],
        registered_model_name="tickets",
    )
labelled.to_parquet("labelled.parquet")
pool.drop(columns="topic").to_parquet("pool.parquet")
pool[["id", "topic"]].to_parquet("truth.parquet")

# as many labels as the example spends, on rows of all kinds
others = pool.sample(1_000, random_state=0)
pd.concat([labelled, others]).to_parquet("at_random.parquet")
