"""Rows that are doubtful as evidence: trained on, given twice, or belonging together."""

import logging

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import scrib_mlflow
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.registry import runs
from scrib_mlflow.rows.leakage import check_untrained, looks_like_id
from scrib_mlflow.rows.tables import read_rows
from tests.models import FEATURES, draw_mixture, draw_table, fit_pipeline
from tests.workflows.gates import NAME

UNKNOWN = "nothing is known of the rows that models:/base/"


def log_model(model, table):
    """Register a classifier from the run that is open; return its URI."""
    info = mlflow.sklearn.log_model(
        model,
        name="model",
        input_example=table[FEATURES].head(2),
        pip_requirements=["mlflow", "scikit-learn", "skops"],
        registered_model_name="base",
    )
    return f"models:/base/{info.registered_model_version}"


def logged(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.fixture
def told(caplog):
    """What the package logs."""
    caplog.set_level(logging.INFO, logger="scrib_mlflow")
    return caplog


@pytest.mark.parametrize("kind", ["frame", "whole frame", "array", "shuffled frame"])
@pytest.mark.parametrize("file", ["trained.parquet", "trained.csv"])
def test_rows_that_the_model_was_trained_on_are_refused_by_the_digest_of_its_run(
    store, kind, file, told
):
    """The digests are those that autologging and training code get from MLflow itself."""
    table = draw_table(600, seed=1)
    if kind == "shuffled frame":
        table = table.sample(frac=1, random_state=0)
    if file.endswith("csv"):
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    with mlflow.start_run() as run:
        if kind == "whole frame":
            dataset = mlflow.data.from_pandas(table, targets="label")
            mlflow.log_input(dataset, context="training")
        else:
            mlflow.sklearn.autolog(log_models=False, silent=True)
            given = table[FEATURES].to_numpy() if kind == "array" else table[FEATURES]
            LogisticRegression().fit(given, table["label"].to_numpy())
            mlflow.sklearn.autolog(disable=True)
        uri = log_model(fit_pipeline(table), table)
    if kind == "shuffled frame" and file.endswith("csv"):  # the index is lost, and the digest
        check_untrained(uri, [read_rows("data", file, "label")], allowed=False)
        return
    rows = read_rows("data", file, "label")
    with pytest.raises(InvalidDataError, match=f"run {run.info.run_id} trained {uri} on, so these"):
        check_untrained(uri, [rows], allowed=False)
    check_untrained(uri, [rows], allowed=True)
    assert logged(told, "as far as its digest tells")
    draw_table(600, seed=2).to_parquet("others.parquet")
    check_untrained(uri, [read_rows("data", "others.parquet", "label")], allowed=False)
    assert not logged(told, UNKNOWN)


def test_calibrate_and_gate_refuse_rows_that_the_model_was_trained_on(certified, told):
    fresh = pd.read_parquet("fresh.parquet")
    trained = mlflow.models.get_model_info("models:/base/1").run_id
    with mlflow.start_run(run_id=trained):
        dataset = mlflow.data.from_pandas(fresh[FEATURES])
        mlflow.log_input(dataset, context="train")
    with pytest.raises(InvalidDataError, match=r"certify_data fresh\.parquet is the dataset"):
        scrib_mlflow.calibrate(
            "models:/base/1", "rows.parquet", "label", certify_data="fresh.parquet"
        )
    given = {"data": "fresh.parquet", "label": "label"}
    with pytest.raises(InvalidDataError, match="allow_overlap=true"):
        scrib_mlflow.gate(f"models:/{NAME}/1", **given)
    assert scrib_mlflow.gate(f"models:/{NAME}/1", **given, allow_overlap=True).decision.passed


def test_a_file_that_the_training_read_is_worth_a_warning(base, told):
    trained = mlflow.models.get_model_info(base).run_id
    with mlflow.start_run(run_id=trained):
        some = draw_table(100, seed=5)
        mlflow.log_input(mlflow.data.from_pandas(some, source="fit.parquet"), context="train")
    check_untrained(base, [read_rows("data", "fit.parquet", "label")], allowed=False)
    assert logged(told, f"data fit.parquet is where run {trained}, which trained {base}, read")
    told.clear()
    check_untrained(base, [read_rows("data", "other.csv", "label")], allowed=False)
    assert not told.records


def test_it_is_said_once_that_nothing_is_known_of_the_training_rows(base, told):
    rows = read_rows("data", "fit.parquet", "label")
    check_untrained(base, [rows, rows], allowed=False)
    assert len(logged(told, UNKNOWN)) == 1


def test_a_store_that_fails_is_no_reason_to_stop(base, told, monkeypatch):
    def fail(run_id):
        raise mlflow.exceptions.MlflowException("the store is away")

    monkeypatch.setattr(runs, "logged_datasets", fail)
    check_untrained(base, [read_rows("data", "fit.parquet", "label")], allowed=False)
    assert logged(told, "cannot be read, so nothing tells whether it has seen these rows")


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


def test_a_column_that_names_patients_is_hinted_at_where_no_group_is_given(mixture, told):
    rows = draw_mixture(1000, seed=3).assign(patient=np.arange(1000) // 20, row_id=np.arange(1000))
    rows.to_parquet("nights.parquet")
    scrib_mlflow.calibrate(mixture, "nights.parquet", "label")
    assert logged(told, "'patient' of data repeats (50 values in 1,000 rows)")
    assert logged(told, "pass group=patient")
    assert not logged(told, "row_id")
    told.clear()
    scrib_mlflow.calibrate(mixture, "nights.parquet", "label", group="patient")
    scrib_mlflow.calibrate(mixture, "nights.parquet", "label", mode="paper")
    assert not logged(told, "pass group")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("patient", "user_id", "id_customer", "PatientID", "subjectId")),
        *((name, False) for name in ("x0", "width", "idx", "valid", "residual", "age")),
    ],
)
def test_the_name_of_a_column_tells_whether_it_is_an_id(name, expected):
    assert looks_like_id(name) is expected
