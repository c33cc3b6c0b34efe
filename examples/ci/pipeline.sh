#!/bin/sh
# Calibrate a version of the classifier, and promote the set classifier if it passes the check.
# usage: sh pipeline.sh MODEL_URI LIMITS_FILE, beside validation.parquet and test.parquet
set -eu

python -m scrib_mlflow calibrate --model_uri "$1" --data validation.parquet --label topic \
    --risk_targets targets.yaml
python check.py models:/tickets-scrib@candidate test.parquet topic "$2"
