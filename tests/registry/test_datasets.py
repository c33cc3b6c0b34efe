"""Which rows a run logs, also when others log the same rows."""

from contextlib import nullcontext

import mlflow
import pandas as pd
import pytest

from scrib_mlflow.records import DataRecord
from scrib_mlflow.registry import runs


@pytest.mark.parametrize(
    ("says", "tries"), [("UNIQUE constraint failed: datasets.name", 3), ("Permission denied", 1)]
)
def test_a_dataset_that_another_run_logs_at_the_same_moment_is_logged_again(
    store, monkeypatch, says, tries
):
    log_inputs, asked = mlflow.MlflowClient.log_inputs, []

    def refused(client, *rest, **options):
        asked.append(options)
        if len(asked) < tries or tries == 1:
            raise mlflow.MlflowException(says)
        log_inputs(client, *rest, **options)

    monkeypatch.setattr(mlflow.MlflowClient, "log_inputs", refused)
    rows = pd.DataFrame({"x": [1.0, 2.0], "label": ["a", "b"]})
    record = DataRecord(source="rows.parquet", digest="d", n_rows=2, n_used=2)
    with (
        mlflow.start_run() as run,
        nullcontext() if tries > 1 else pytest.raises(mlflow.MlflowException, match=says),
    ):
        runs.log_table_input(rows, record, "label", "fit")
    assert len(asked) == tries
    found = [each.digest for each in runs.logged_datasets(run.info.run_id)]
    assert found == ["d"] * (tries > 1)
