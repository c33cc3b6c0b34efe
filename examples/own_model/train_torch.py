"""Train a small network that returns logits, register it, and write rows it has not seen."""

import mlflow
import numpy as np
import torch
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits(as_frame=True)
names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
table = digits.data.astype(np.float32).assign(digit=[names[target] for target in digits.target])
train, rest = train_test_split(table, train_size=0.3, random_state=0)
validation, test = train_test_split(rest, train_size=0.6, random_state=0)

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)
images = torch.tensor(train.drop(columns="digit").to_numpy())
targets = torch.tensor([names.index(name) for name in train["digit"]])
for _ in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(images), targets).backward()
    optimizer.step()

with mlflow.start_run(run_name="train network"):
    mlflow.pytorch.log_model(
        network,
        name="model",
        signature=ModelSignature(Schema([TensorSpec(np.dtype(np.float32), (-1, 64))])),
        input_example=images[:2].numpy(),
        pip_requirements=["mlflow", "torch"],
        registered_model_name="network",
    )
validation.to_parquet("validation.parquet")
test.to_parquet("test.parquet")
