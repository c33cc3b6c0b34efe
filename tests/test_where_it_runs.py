"""Servers of others that serve the model as it is registered, each in an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import mlflow
import pytest
import requests

from scrib_mlflow.workflows.demo import HOST, free_port, stop
from tests.conftest import PATIENCE
from tests.models import FEATURES, draw_table

pytestmark = pytest.mark.slow
ROWS = draw_table(12, seed=11)[FEATURES]
GRPC = """
import json, sys
import grpc
from mlserver.grpc import converters, dataplane_pb2_grpc
from mlserver.types import InferenceRequest
request = InferenceRequest(**json.load(open(sys.argv[1])))
message = converters.ModelInferRequestConverter.from_types(request, "scrib", None)
with grpc.insecure_channel(sys.argv[2]) as channel:
    answer = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(message)
found = converters.ModelInferResponseConverter.to_types(answer)
plain = {each.name: [*each.data] for each in found.outputs}
print(json.dumps(plain, default=lambda value: value.decode()))
"""
SERVICE = """
from __future__ import annotations
import bentoml
import pandas as pd


@bentoml.service
class Scrib:
    model = bentoml.models.BentoModel("scrib:latest")

    def __init__(self) -> None:
        self.scrib = bentoml.mlflow.load_model(self.model)

    @bentoml.api
    def predict(self, rows: list[dict[str, float]]) -> list[dict]:
        return self.scrib.predict(pd.DataFrame(rows)).to_dict("records")
"""


@pytest.fixture
def folder(calibrated, tmp_path):
    """The files of the model."""
    place = tmp_path / "model"
    place.mkdir()
    return Path(mlflow.artifacts.download_artifacts(calibrated.model_uri, dst_path=str(place)))


@pytest.fixture
def expected(calibrated):
    answers = mlflow.pyfunc.load_model(calibrated.model_uri).predict(ROWS)
    return json.loads(answers.to_json(orient="records"))


def environment(place, model, *packages):
    """Return the folder of programs of a new environment with what the model needs."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    if uv is None:
        pytest.skip("uv is not installed, which makes environments in seconds")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, place], check=True)
    wanted = ["-r", str(model / "requirements.txt"), *packages]
    python = str(place / "bin" / "python")
    made = subprocess.run(
        [uv, "pip", "install", "-q", "--python", python, *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"{packages[0]} cannot be installed here: {made.stderr[-300:]}")
    return place / "bin"


@contextmanager
def running(command, ready, folder, **variables):
    """Run a server until the end of the block, once it is ready."""
    log = folder / "server.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [str(word) for word in command],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not _is_ready(ready):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.3)
            yield
        finally:
            stop(server)


def _is_ready(address):
    with suppress(requests.RequestException):
        return requests.get(address, timeout=1).ok
    return False


def test_mlserver_answers_by_rest_by_grpc_and_as_mlflow_does(folder, expected, tmp_path):
    programs = environment(tmp_path / "venv", folder, "mlserver", "mlserver-mlflow")
    http, grpc, metrics = (free_port() for _ in range(3))
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    (tmp_path / "settings.json").write_text(
        json.dumps({"host": HOST, "parallel_workers": 0, **ports})
    )
    (tmp_path / "model-settings.json").write_text(
        json.dumps(
            {
                "name": "scrib",
                "implementation": "mlserver_mlflow.MLflowRuntime",
                "parameters": {"uri": str(folder)},
            }
        )
    )
    columns = [
        {"name": name, "shape": [len(ROWS), 1], "datatype": "FP64", "data": ROWS[name].tolist()}
        for name in FEATURES
    ]
    body = {"parameters": {"content_type": "pd"}, "inputs": columns}
    (tmp_path / "request.json").write_text(json.dumps(body))
    (tmp_path / "ask.py").write_text(GRPC)
    address = f"http://{HOST}:{http}"
    with running(
        [programs / "mlserver", "start", "."], f"{address}/v2/models/scrib/ready", tmp_path
    ):
        found = requests.post(f"{address}/v2/models/scrib/infer", json=body, timeout=PATIENCE)
        assert found.status_code == 200, found.text
        outputs = {each["name"]: each["data"] for each in found.json()["outputs"]}
        assert outputs["prediction"] == [row["prediction"] for row in expected]
        # arrays arrive as JSON texts
        named = [json.loads(text) for text in outputs["candidates"]]
        assert named == [row["candidates"] for row in expected]
        ask = [programs / "python", "ask.py", "request.json", f"{HOST}:{grpc}"]
        answered = subprocess.run(
            [str(word) for word in ask], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert json.loads(answered.stdout) == outputs
        split = {"dataframe_split": ROWS.to_dict(orient="split")}
        found = requests.post(f"{address}/invocations", json=split, timeout=PATIENCE)
        assert found.json()["predictions"] == expected


def test_bentoml_answers(folder, expected, tmp_path):
    programs = environment(tmp_path / "venv", folder, "bentoml")
    home = {"BENTOML_HOME": str(tmp_path / "home"), "BENTOML_DO_NOT_TRACK": "True"}
    kept = f"import bentoml; bentoml.mlflow.import_model('scrib', {str(folder)!r})"
    subprocess.run(
        [programs / "python", "-c", kept], env={**os.environ, **home}, cwd=tmp_path, check=True
    )
    (tmp_path / "service.py").write_text(SERVICE)
    port = free_port()
    command = [programs / "bentoml", "serve", "service:Scrib", "--host", HOST, "--port", port]
    address = f"http://{HOST}:{port}"
    with running(command, f"{address}/readyz", tmp_path, **home):
        body = {"rows": ROWS.to_dict(orient="records")}
        found = requests.post(f"{address}/predict", json=body, timeout=PATIENCE)
        assert found.json() == expected


def test_a_dockerfile_is_made(calibrated, tmp_path):
    command = [sys.executable, "-m", "mlflow", "models", "generate-dockerfile"]
    command += ["-m", calibrated.model_uri, "-d", str(tmp_path / "image")]
    uri = mlflow.get_tracking_uri()
    subprocess.run(command, env={**os.environ, "MLFLOW_TRACKING_URI": uri}, check=True)
    assert "mlflow" in (tmp_path / "image" / "Dockerfile").read_text()
    assert list((tmp_path / "image").rglob("scrib.json"))
