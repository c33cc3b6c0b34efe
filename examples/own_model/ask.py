"""Ask a set classifier for the test rows: python ask.py MODEL_URI."""

import sys

import mlflow
import pandas as pd

test = pd.read_parquet("test.parquet")
model = mlflow.pyfunc.load_model(sys.argv[1])
answers = model.predict(test.drop(columns="digit")).assign(truth=test["digit"].to_numpy())
answered = answers[~answers["abstain"]]
right = 100 * (answered["prediction"] == answered["truth"]).mean()
print(f"answers {len(answered)} of {len(answers)} rows, {right:.1f} % of them right; abstains on\n")
columns = ["truth", "reason", "prediction_set", "candidates"]
print(answers.loc[answers["abstain"], columns].head(3).to_string(index=False))
