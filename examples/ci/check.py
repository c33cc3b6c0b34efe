"""Move the alias champion to a set classifier if it keeps every limit on held-out rows.

usage: python check.py MODEL_URI DATA LABEL LIMITS_FILE
"""

import sys
from pathlib import Path

import mlflow
import yaml

import scrib_mlflow

model_uri, data, label, limits_file = sys.argv[1:]
limits = yaml.safe_load(Path(limits_file).read_text())

done = scrib_mlflow.evaluate(model_uri, data, label, confidence=0.95)
if done.fitted:
    sys.exit("refused: these are the rows of the fit, on which bounds prove nothing")

above = []
for name, found in done.report.by_class.items():
    limit = limits.get(name, limits["default"])
    print(f"{name}: risk {found.risk:.1%}, upper bound {found.risk_upper:.1%}, limit {limit:.1%}")
    if not found.risk_upper <= limit:  # written so that an undefined bound is refused
        above.append(name)
if above:
    sys.exit(f"refused: {done.model_uri} is above its limit for {', '.join(above)}")

name, version = done.model_uri.removeprefix("models:/").split("/")
mlflow.MlflowClient().set_registered_model_alias(name, "champion", version)
print(f"promoted: {name} version {version} is champion")
