"""Rows that are doubtful as evidence: given twice."""

import logging

import mlflow
import numpy as np
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import InvalidSettingsError
from tests.models import draw_mixture


def logged(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.fixture
def told(caplog):
    """What the package logs."""
    caplog.set_level(logging.INFO, logger="scrib_mlflow")
    return caplog


def test_certify_rows_that_repeat_are_counted_and_dropped_only_if_asked(mixture, told):
    once = draw_mixture(1500, seed=3)
    once.to_parquet("once.parquet")
    pd.concat([once, once.head(400)]).to_parquet("twice.parquet")
    given = {"certify_data": "twice.parquet", "rule": "thresholds", "risk_targets": 0.15}
    kept = scrib_mlflow.calibrate(mixture, "rows.parquet", "label", **given).classifier
    text = "400 of 1,900 certify rows repeat another one; if they are copies, not further cases"
    assert len(logged(told, text)) == 1
    assert (kept.n_repeated, kept.n_dropped, kept.certify_report.n) == (400, 0, 1900)
    version = mlflow.MlflowClient().get_model_version("base-scrib", "1")
    assert text in version.description
    dropped = scrib_mlflow.calibrate(
        mixture, "rows.parquet", "label", **given, duplicates="drop"
    ).classifier
    assert (dropped.n_repeated, dropped.n_dropped) == (0, 400)
    assert dropped.certify_data.n_used == 1500
    alone = scrib_mlflow.calibrate(
        mixture, "rows.parquet", "label", **given | {"certify_data": "once.parquet"}
    ).classifier
    assert dropped.certificate == alone.certificate
    assert dropped.certify_report == alone.certify_report


def test_rows_with_a_key_of_their_own_are_no_copies(mixture):
    once = draw_mixture(300, seed=3)
    rows = pd.concat([once, once]).assign(number=np.arange(600))
    rows.to_parquet("keyed.parquet")
    done = scrib_mlflow.calibrate(mixture, "keyed.parquet", "label", key="number").classifier
    assert done.n_repeated == 0
    with pytest.raises(InvalidSettingsError, match="duplicates=drop and key exclude each other"):
        scrib_mlflow.calibrate(mixture, "keyed.parquet", "label", key="number", duplicates="drop")
