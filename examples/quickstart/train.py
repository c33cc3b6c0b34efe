"""Train a classifier of handwritten digits, register it, and write rows it has not seen."""

import mlflow
from mlflow.models import infer_signature
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

table = load_digits(as_frame=True).frame.rename(columns={"target": "digit"})
train, rest = train_test_split(table, train_size=0.2, stratify=table["digit"], random_state=0)
validation, test = train_test_split(rest, train_size=0.7, stratify=rest["digit"], random_state=0)

pixels = train.drop(columns="digit")
model = LogisticRegression(C=0.01, max_iter=2000).fit(pixels, train["digit"])

with mlflow.start_run(run_name="train digits"):
    mlflow.sklearn.log_model(
        model,
        name="model",
        signature=infer_signature(pixels, model.predict(pixels)),
        pip_requirements=["mlflow", "scikit-learn", "skops"],
        registered_model_name="digits",
    )
validation.to_parquet("validation.parquet")
test.to_parquet("test.parquet")
accuracy = model.score(test.drop(columns="digit"), test["digit"])
print(f"right on {100 * accuracy:.1f} % of {len(test)} test rows when it must always answer")
