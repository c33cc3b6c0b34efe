"""Ask the set classifier: one row that it answers, one on which it abstains."""

import mlflow
import pandas as pd

model = mlflow.pyfunc.load_model("models:/digits-scrib@candidate")
test = pd.read_parquet("test.parquet")
answers = model.predict(test.drop(columns="digit")).assign(truth=test["digit"].to_numpy())

answered = answers[~answers["abstain"]].iloc[0]
print(f"answered: {answered['prediction']}  (in truth {answered['truth']})")

abstained = answers[answers["abstain"]].iloc[0]
print(f"abstained ({abstained['reason']}): it is {' or '.join(abstained['candidates'])}", end="")
print(f"  (in truth {abstained['truth']})")

print(f"\nas served:\n{answers.loc[[answered.name, abstained.name]].to_string()}")
