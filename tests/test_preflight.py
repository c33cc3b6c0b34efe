"""What is told before MLflow is loaded: only what is certainly wrong."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import mlflow
import pandas as pd
import pytest

from scrib_mlflow import preflight
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.options import Calibrate, Evaluate, Gate, Predict
from scrib_mlflow.records import Frame
from tests.models import draw_table

CALIBRATE = {"model_uri": "models:/base/1", "data": "rows.csv", "label": "label"}


def check(kind=Calibrate, **options):
    preflight.check(kind(**{**CALIBRATE, **options}))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A folder with rows and without a registry."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
    draw_table(5).to_csv("rows.csv", index=False)


def test_a_file_and_a_label_that_are_not_there_are_told(rows):
    check()
    with pytest.raises(InvalidDataError, match=r"data row\.csv does not exist; a relative path"):
        check(data="row.csv")
    with pytest.raises(InvalidDataError, match="path_data none does not exist"):
        check(path_data="none")
    with pytest.raises(InvalidDataError, match=r"no column 'lable' .*did you mean 'label'"):
        check(label="lable")


@pytest.mark.parametrize(
    "place", ["s3://bucket/rows.csv", "runs:/0/rows.csv", Frame(pd.DataFrame())]
)
def test_what_lies_elsewhere_is_left_to_the_command(rows, place):
    check(data=place)


def test_what_spark_reads_is_left_to_spark(rows):
    check(data="a_table", engine="spark")


def test_a_uri_that_names_no_model_is_told(rows):
    with pytest.raises(ModelError, match=r"model_uri is 'model:/base/1', but must be models:/"):
        check(model_uri="model:/base/1")
    preflight.check(Evaluate(model_uri="runs:/0", data="rows.csv", label="label"))
    preflight.check(Gate(model_uri="models:/base@candidate"))
    preflight.check(Predict(model_uri="models:/base/1", data="rows.csv", output="out"))


def test_a_name_that_a_sqlite_registry_lacks_is_told_with_the_nearest(base):
    draw_table(5).to_csv("rows.csv", index=False)
    check(model_uri=base)
    with pytest.raises(ModelError, match=r"models:/bass/1 is not in .*; did you mean 'base'\?"):
        check(model_uri="models:/bass/1")
    mlflow.MlflowClient().delete_registered_model("base")
    with pytest.raises(ModelError, match="this registry is empty"):
        check(model_uri=base)


def test_a_store_that_is_no_registry_says_nothing(rows, tmp_path, monkeypatch):
    (tmp_path / "mlflow.db").write_bytes(b"no database")
    for store in ("sqlite:///mlflow.db", "sqlite:///none.db", "postgresql://u:p@h/d", "databricks"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
        check()


class Registry(BaseHTTPRequestHandler):
    """A server that knows one model."""

    def do_GET(self):
        known = "name=base" in self.path or "search" in self.path
        body = {"registered_models": [{"name": "base"}]}
        if not known:
            body = {"error_code": "RESOURCE_DOES_NOT_EXIST"}
        if self.path.startswith("/broken"):
            known, body = False, {"error_code": "INTERNAL_ERROR"}
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        """Say nothing."""


def test_a_name_that_a_server_lacks_is_told_and_a_server_in_trouble_is_not_blamed(
    rows, monkeypatch
):
    server = HTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        check()
        with pytest.raises(ModelError, match=r"did you mean 'base'\?"):
            check(model_uri="models:/bas@champion")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{place}/broken")
        check(model_uri="models:/bas@champion")
    finally:
        server.shutdown()
        server.server_close()
    check(model_uri="models:/bas@champion")  # nobody answers


def test_a_typo_is_told_without_loading_mlflow(rows):
    script = (
        "import sys\nfrom scrib_mlflow.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print([n for n in ('mlflow', 'pandas', 'numba') if n in sys.modules])"
    )
    options = ["calibrate", "--model_uri", "models:/base/1", "--data", "no.csv", "--label", "y"]
    command = [sys.executable, "-c", script, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: data no.csv does not exist")
    assert done.stdout.strip() == "[]"
