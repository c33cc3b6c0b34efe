"""``mlflow run`` on a scratch copy of this repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from tests.models import draw_table, register_pipeline

ROOT = Path(__file__).parent.parent
PROJECT = ("MLproject", "conda.yaml", "scrib_mlflow")


@pytest.fixture
def project(tmp_path):
    """A copy of what `mlflow run` needs, and nothing else."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in PROJECT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def mlflow_run(project, store, entry, **parameters):
    command = [sys.executable, "-m", "mlflow", "run", str(project), "-e", entry]
    command += ["--env-manager", "local"]
    for name, value in parameters.items():
        command += ["-P", f"{name}={value}"]
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store, "PATH": os.pathsep.join(paths)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_mlflow_run_calibrates_in_the_run_that_it_opened(store, project):
    register_pipeline()
    draw_table(400, seed=2).to_csv("rows.csv", index=False)
    done = mlflow_run(
        project,
        store,
        "calibrate",
        model_uri="models:/base/1",
        data="rows.csv",
        label="label",
        risk_targets="{hard: .2, default: .1}",
    )
    assert done.returncode == 0, done.stderr
    assert "base-scrib version 1, alias candidate" in done.stdout
    version = mlflow.MlflowClient().get_model_version_by_alias("base-scrib", "candidate")
    run = mlflow.get_run(version.tags["scrib.run_id"])
    assert run.data.tags["mlflow.project.entryPoint"] == "calibrate"
    assert run.info.status == "FINISHED"
    assert run.data.params["label"] == "label"
    assert "fit_abstention_rate" in run.data.metrics


@pytest.mark.slow
def test_a_failure_fails_the_run_and_registers_nothing(store, project):
    register_pipeline()
    draw_table(50).to_csv("rows.csv", index=False)
    done = mlflow_run(
        project, store, "main", model_uri="models:/base@nope", data="rows.csv", label="label"
    )
    assert done.returncode != 0
    assert "error: models:/base@nope is not in the registry" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'main'", output_format="list"
    )
    assert run.info.status == "FAILED"
    assert [m.name for m in mlflow.MlflowClient().search_registered_models()] == ["base"]
