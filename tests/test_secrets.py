"""Passwords, tokens and signatures in URIs: hidden before anything is printed or stored."""

import json
import logging
import sqlite3
from pathlib import Path

import click.testing
import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow import cli, messages
from scrib_mlflow.errors import ScribError, StoreError
from scrib_mlflow.options import Calibrate
from scrib_mlflow.records import DataRecord
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.report import words
from scrib_mlflow.rows import leakage, tables
from tests.models import draw_table

SECRET = "s3cret"  # noqa: S105  # stands for one
PLAIN = "mssql+pyodbc:///?odbc_connect="
ENCODED = "DRIVER%3D%7BODBC+18%7D%3BSERVER%3Dh%3BUID%3Du%3B"
KEYS = "password Passwd pwd token secret key sig signature access_token client_secret api_key "
KEYS += "X-Amz-Security-Token X-Goog-Credential"
URIS = {
    f"postgresql://u:{SECRET}@h:5432/d": "postgresql://u:***@h:5432/d",
    f"postgresql://u:a@b/{SECRET}@h/d": "postgresql://u:***@h/d",
    f"postgresql://u:%40{SECRET}%2F@h/d": "postgresql://u:***@h/d",
    f"postgresql://u:a:{SECRET}@h/d": "postgresql://u:***@h/d",
    f"redis://:{SECRET}@h": "redis://:***@h",
    f"https://u:{SECRET}@h:5000/#/x@y": "https://u:***@h:5000/#/x@y",
    f"postgresql://u@h/d?user=u&password={SECRET}&x=1": "postgresql://u@h/d?user=u&password=***&x=1",
    f"s3://b/k?X-Amz-Date=3&X-Amz-Signature={SECRET}": "s3://b/k?X-Amz-Date=3&X-Amz-Signature=***",
    f"https://h/d.csv?SIG={SECRET}%3D&se=1#part": "https://h/d.csv?SIG=***&se=1#part",
    f"{PLAIN}{ENCODED}PWD%3D{SECRET}%25%3Bx%3D1": f"{PLAIN}{ENCODED}PWD%3D***%3Bx%3D1",
    f"{PLAIN}{ENCODED}Pwd+%3D+%7Ba%3B{SECRET}%7D%3Bx%3D1": f"{PLAIN}{ENCODED}Pwd+%3D+***%3Bx%3D1",
    f"{PLAIN}PWD%3D{SECRET}": f"{PLAIN}PWD%3D***",
    f"DRIVER={{x}};UID=u;PWD={{a;{SECRET}}};x=1": "DRIVER={x};UID=u;PWD=***;x=1",
    f"password = '{SECRET} x' host=h": "password = *** host=h",
    **{
        f"https://h/d.parquet?x=1&{key}={SECRET}": f"https://h/d.parquet?x=1&{key}=***"
        for key in KEYS.split()
    },
}
PLACES = (
    *("data/key=3/part.parquet", "models:/a@champion", "abfss://c@account.dfs.core.windows.net/x"),
    *("http://localhost:5000/#/x@y", "sqlite:////tmp/a b/mlflow.db", "postgresql://u@h/d", "C:\\x"),
    *("leave out group; key=patient does", "check your user name and password", "a.csv?keys=1"),
)


@pytest.mark.parametrize("uri", URIS)
def test_a_secret_in_a_uri_is_hidden_and_the_rest_of_it_shown(uri):
    assert messages.shown(uri) == URIS[uri]
    assert messages.shown(URIS[uri]) == URIS[uri]
    told = messages.shown(f"cannot open {uri!r}: no such host")
    assert SECRET not in told
    assert told.endswith("no such host")


@pytest.mark.parametrize("place", PLACES)
def test_what_holds_no_secret_is_shown_as_it_is(place):
    assert messages.shown(place) == place


def test_a_reason_hides_a_secret_before_it_is_cut():
    error = OSError(f"{'x' * 280} postgresql://u:{SECRET * 9}@h/d")
    assert SECRET not in messages.reason(error)
    assert len(messages.reason(OSError("y" * 10_000_000))) < 400


@pytest.mark.parametrize("uri", URIS)
def test_no_error_of_ours_tells_a_secret_or_goes_on_for_pages(uri):
    error = ScribError(f"data {uri} cannot be read: {'why ' * 1_000_000}")
    assert SECRET not in str(error)
    assert len(str(error)) <= messages.LONGEST_ERROR + 1
    assert SECRET not in str(StoreError(uri))


def test_options_are_logged_without_secrets_under_their_names_too(store):
    uri = f"https://u:{SECRET}@h/rows.parquet?sig={SECRET}"
    settings = Calibrate(
        model_uri="models:/a/1",
        data=uri,
        label="y",
        key="token",
        spark_options={"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.master": "local[2]"},
    )
    with mlflow.start_run() as run:
        runs.log_parameters(run.info.run_id, settings.model_dump())
    params = mlflow.get_run(run.info.run_id).data.params
    assert params["data"] == "https://u:***@h/rows.parquet?sig=***"
    assert json.loads(params["spark_options"])["spark.master"] == "local[2]"
    assert params["key"] == "token"
    assert SECRET not in str(params)


def test_a_store_s_uri_is_printed_without_its_secrets():
    store = f"{PLAIN}{ENCODED}PWD%3D{SECRET}"
    assert SECRET not in words.look("r1", store, "1")
    assert SECRET not in words.look("r1", f"https://u:{SECRET}@h/", "1")


def test_a_log_line_and_an_error_in_the_terminal_hide_secrets(monkeypatch):
    def fail(*_):
        logging.getLogger("scrib_mlflow.x").warning(f"reading s3://b?token={SECRET}")
        raise OSError(f"no host for postgresql://u:{SECRET}@h/d")

    monkeypatch.setattr("scrib_mlflow.preflight.check", fail)
    command = ["plan", "--data", "x.csv", "--label", "y"]
    told = click.testing.CliRunner().invoke(cli.main, command)
    assert told.exit_code == 3
    assert SECRET not in told.output
    assert "no host for postgresql://u:***@h/d" in told.output


@pytest.fixture
def elsewhere(base, monkeypatch):
    """Rows at a URI with a password, which stands for a file here."""
    uri = f"s3://u:{SECRET}@bucket/fit.parquet?X-Amz-Signature={SECRET}"
    draw_table(600, seed=2).to_parquet("fit.parquet")
    local = tables._local
    monkeypatch.setattr(
        tables, "_local", lambda *of: Path("fit.parquet") if of[1] == uri else local(*of)
    )
    return base, uri


def test_no_store_and_no_artifact_holds_the_password_of_the_data(elsewhere, tmp_path):
    model_uri, data = elsewhere
    done = scrib_mlflow.calibrate(model_uri, data, "label", risk_targets=0.2, mode="paper")
    scrib_mlflow.evaluate(done.model_uri, data, "label")
    scrib_mlflow.predict(done.model_uri, data, str(tmp_path / "answers"))
    assert done.classifier.fit_data.source == "s3://u:***@bucket/fit.parquet?X-Amz-Signature=***"
    with sqlite3.connect("mlflow.db") as database:
        assert not any(SECRET in line for line in database.iterdump())
    database.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".db"]
    assert len(files) > 20
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_secret_is_no_part_of_what_the_ledger_knows_rows_by(elsewhere):
    _, data = elsewhere
    named = tables.read_rows("data", data, "label").record
    plain = tables.read_rows("data", "fit.parquet", "label").record
    assert named.digest == plain.digest
    assert named.source != plain.source


def test_rows_are_known_again_where_training_read_them_with_a_password(monkeypatch, caplog):
    uri = f"s3://u:{SECRET}@b/k.parquet"
    record = DataRecord(source=messages.shown(uri), digest="d", n_rows=3, n_used=3)

    class Like:
        what = "data"

    Like.record = record
    dataset = runs.LoggedDataset("x", "train", uri, 4, (), None)
    leakage._compare(Like, dataset, "models:/a/1", "r1", allowed=False)
    assert "is where run r1, which trained models:/a/1, read train rows" in caplog.text
    assert SECRET not in caplog.text


def test_a_store_that_does_not_answer_is_told_without_its_password(monkeypatch):
    for uri in (f"postgresql://u:{SECRET}@h:abc/d", f"mysql+x://u:{SECRET}@h/d?key={SECRET}"):
        monkeypatch.setattr(mlflow, "get_tracking_uri", lambda uri=uri: uri)
        monkeypatch.setattr(mlflow, "get_registry_uri", lambda uri=uri: uri)
        with pytest.raises(StoreError, match="does not answer") as told:
            stores.check_stores()
        assert SECRET not in str(told.value)
