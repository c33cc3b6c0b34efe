#!/bin/sh
# Answer the rows of a night, and count the answers; ends with exit code 5 if there is an alarm.
# usage: sh night.sh NAME, beside NAME.parquet
set -eu

python -m scrib_mlflow predict --model_uri models:/tickets-scrib@champion \
    --data "$1.parquet" --output "answers/$1" --key id,asked --explain true
python -m scrib_mlflow monitor --model_uri models:/tickets-scrib@champion \
    --data "answers/$1" --key id --time asked --fail_on_alarm true
