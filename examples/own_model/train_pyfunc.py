"""Register the model of centroids.py, and write rows it has not seen."""

import mlflow
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits(as_frame=True)
names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
table = digits.data.assign(digit=[names[target] for target in digits.target])
train, rest = train_test_split(table, train_size=0.3, random_state=0)
validation, test = train_test_split(rest, train_size=0.6, random_state=0)

train.groupby("digit").mean().to_parquet("means.parquet")
with mlflow.start_run(run_name="train centroids"):
    mlflow.pyfunc.log_model(
        name="model",
        python_model="centroids.py",
        artifacts={"means": "means.parquet"},
        input_example=train.drop(columns="digit").head(2),
        pip_requirements=["mlflow", "pandas", "pyarrow"],
        registered_model_name="centroids",
    )
validation.to_parquet("validation.parquet")
test.to_parquet("test.parquet")
