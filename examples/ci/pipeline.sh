#!/bin/sh
# Calibrate a version of the classifier, and promote the set classifier if it passes the gate.
# usage: sh pipeline.sh MODEL_URI POLICY_FILE, beside validation.parquet and test.parquet
set -eu

python -m scrib_mlflow calibrate --model_uri "$1" --data validation.parquet --label topic \
    --risk_targets targets.yaml
python -m scrib_mlflow gate --model_uri models:/tickets-scrib@candidate --alias champion \
    --data test.parquet --label topic --risk_targets "$2" --max_abstention_increase 0.02
