"""A remote tracking server that also stores the artifacts."""

import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import mlflow
import pytest
import requests

import scrib_mlflow
from scrib_mlflow.workflows.demo import HOST, free_port, stop
from tests.conftest import PATIENCE, copy_store, using
from tests.models import (
    FEATURES,
    draw_mixture,
    draw_table,
    register_mixture,
    register_pipeline,
)


@contextmanager
def running_server(empty_store, tmp_path, *options):
    """Yield the address of a server with one worker, on a store of its own."""
    folder = tmp_path / "server"
    folder.mkdir()
    store = copy_store(empty_store, folder, artifacts="mlflow-artifacts:/0")
    with serving(store, folder, "--workers", "1", *options) as address:
        yield address


@contextmanager
def serving(store, folder, *options):
    """Yield the address of a server on a store; artifacts and a log are in the folder."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "-h", HOST]
    command += ["-p", str(port), "--backend-store-uri", store, *options]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    address = f"http://{HOST}:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
        try:
            wait_for(f"{address}/health", process, folder / "log")
            yield address
        finally:
            stop(process)


@pytest.fixture(scope="module")
def server(empty_store, tmp_path_factory):
    with running_server(empty_store, tmp_path_factory.mktemp("remote")) as address:
        yield address


def wait_for(address, process, log):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(requests.RequestException):
            if requests.get(address, timeout=2).ok:
                return
        time.sleep(0.3)
    raise AssertionError(log.read_text())


def test_calibrate_and_evaluate_work_through_a_server_with_proxied_artifacts(server, tmp_path):
    with using(server, tmp_path):
        base = register_pipeline()
        draw_table(400, seed=2).to_parquet("rows.parquet")
        draw_table(300, seed=3).to_parquet("other.parquet")
        done = scrib_mlflow.calibrate(base, "rows.parquet", "label", risk_targets=0.05)
        location = mlflow.get_run(done.run_id).info.artifact_uri
        assert location.startswith("mlflow-artifacts:")
        answers = mlflow.pyfunc.load_model("models:/base-scrib@candidate").predict(
            draw_table(20)[FEATURES]
        )
        assert len(answers) == 20
        looked = scrib_mlflow.evaluate(done.model_uri, "other.parquet", "label")
        assert looked.report.n == 300
        with mlflow.start_run():
            mlflow.log_artifact("other.parquet")
            uri = mlflow.get_artifact_uri("other.parquet")
        again = scrib_mlflow.evaluate(done.model_uri, uri, "label")
        assert again.report == looked.report


def test_a_gate_moves_an_alias_through_a_server_and_counts_uses_there(server, tmp_path):
    with using(server, tmp_path):
        base = register_mixture("mixture")
        draw_mixture(3000, seed=1).to_parquet("rows.parquet")
        draw_mixture(1000, seed=2).to_parquet("fresh.parquet")
        done = [
            scrib_mlflow.calibrate(base, "rows.parquet", "label", seed=seed, alias=f"c{seed}")
            for seed in (0, 1)
        ]
        assert [each.classifier.use.number for each in done] == [1, 2]
        fresh = {"data": "fresh.parquet", "label": "label"}
        for each in done:
            gated = scrib_mlflow.gate(each.model_uri, max_abstention_increase=0.5, **fresh)
            assert gated.decision.passed, gated.decision
        again = scrib_mlflow.gate(done[0].model_uri, data="rows.parquet", label="label")
        assert [check.name for check in again.decision.checks if not check.passed] == [
            "unseen rows"
        ]
        model = mlflow.MlflowClient().get_registered_model("mixture-scrib")
        assert str(model.aliases["champion"]) == "2"
        tags = mlflow.MlflowClient().get_model_version("mixture-scrib", "2").tags
        assert tags["scrib.previous_champion"] == "1"
