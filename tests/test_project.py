"""``mlflow run`` on this repository, whose kernels are compiled, and on a scratch copy of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mlflow.exceptions import ExecutionException

import scrib_mlflow
from scrib_mlflow.synthetic import draw_scores
from tests.models import FEATURES, draw_mixture, draw_table
from tests.workflows.gates import NAME

ROOT = Path(__file__).parent.parent
PROJECT = ("MLproject", "conda.yaml", "scrib_mlflow", "experiments")


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


@pytest.fixture(autouse=True)
def found(monkeypatch):
    """Let `python` be the one that runs the tests, in projects as in a shell."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(paths))


class Done(NamedTuple):
    """How a project's process ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def mlflow_run(project, entry, **parameters):
    """Run an entry point by the command, on the store that is current here."""
    command = [sys.executable, "-m", "mlflow", "run", str(project), "-e", entry]
    command += ["--env-manager", "local"]
    for name, value in parameters.items():
        command += ["-P", f"{name}={value}"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": mlflow.get_tracking_uri()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run_project(capfd, project, entry, **parameters):
    """Run an entry point as the command does, without starting the command: half the time."""
    capfd.readouterr()
    try:
        mlflow.projects.run(str(project), entry, parameters=parameters, env_manager="local")
        code = 0
    except ExecutionException:
        code = 1
    return Done(code, *capfd.readouterr())


def test_mlflow_run_calibrates_in_the_run_that_it_opened(base):
    draw_table(400, seed=2).to_csv("rows.csv", index=False)
    done = mlflow_run(
        ROOT,
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


def test_mlflow_run_of_the_gate_ends_as_it_decides(certified, capfd):
    pd.read_parquet("fresh.parquet").to_csv("fresh.csv", index=False)
    policy = {"model_uri": f"models:/{NAME}/1", "alias": "champion"}
    refused = run_project(capfd, ROOT, "gate", **policy, risk_targets="{hard: .05, default: .1}")
    assert refused.returncode != 0
    assert "hard: 10.0 % is certified, 5.0 % is asked for" in refused.stdout
    assert "Traceback" not in refused.stderr
    assert "champion" not in mlflow.MlflowClient().get_registered_model(NAME).aliases
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'gate'", output_format="list"
    )
    assert run.info.status == "FAILED"
    fresh = str(Path("fresh.csv").absolute())
    passed = run_project(capfd, ROOT, "gate", **policy, data=fresh, label="label")
    assert passed.returncode == 0, passed.stderr
    assert "Passed: the alias champion is on version 1" in passed.stdout
    aliases = mlflow.MlflowClient().get_registered_model(NAME).aliases
    assert str(aliases["champion"]) == "1"


def test_mlflow_run_of_the_monitor_counts_a_batch_and_fails_on_an_alarm(certified, capfd):
    rows = pd.read_parquet("fresh.parquet").assign(id=range(2000))
    rows.drop(columns="label").to_csv("night.csv", index=False)
    given = {"model_uri": f"models:/{NAME}/1", "key": "id", "fail_on_alarm": "true"}
    fine = run_project(capfd, ROOT, "monitor", **given, data="night.csv")
    assert fine.returncode == 0, fine.stderr
    assert "ok: no alarm in 1 batch (2,000 rows)." in fine.stdout
    rows.assign(label=rows["label"].sample(frac=1, random_state=0).to_numpy()).to_parquet("b")
    Path("b").rename("shuffled.parquet")
    labels = {"label": "label", "late_labels": "true"}
    bad = run_project(capfd, ROOT, "monitor", **given, data="shuffled.parquet", **labels)
    assert bad.returncode != 0
    assert "the risks of easy, hard, middle are above their targets" in bad.stdout
    assert "Traceback" not in bad.stderr
    (run,) = mlflow.search_runs(filter_string="tags.scrib_monitor_of != ''", output_format="list")
    assert len([key for key in run.data.params if key.startswith("batch_")]) == 2


def test_relative_paths_of_a_project_from_git_start_where_the_user_stands(
    certified, project, tmp_path, monkeypatch
):
    """MLflow clones such a project to a temporary folder, and starts its commands there."""
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "project"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
        subprocess.run(["git", *who, *words], cwd=project, check=True)  # noqa: S607
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")  # a clone over the network, without a network
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{project}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://example.invalid/scrib.git")
    stand = tmp_path / "stand"
    stand.mkdir()
    pd.read_parquet("fresh.parquet").to_csv(stand / "fresh.csv", index=False)
    monkeypatch.chdir(stand)
    Path("policy.yaml").write_text("{hard: 0.2, default: 0.1}", encoding="utf-8")
    uri, made = "https://example.invalid/scrib.git", f"models:/{NAME}/1"
    done = mlflow_run(uri, "predict", model_uri=made, data="fresh.csv", output="answers")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(stand / "answers").num_rows == len(pd.read_csv("fresh.csv"))
    given = {"data": "fresh.csv", "label": "label", "risk_targets": "policy.yaml"}
    done = mlflow_run(project, "gate", model_uri=made, **given)
    assert "Passed: the alias champion is on version 1" in done.stdout, done.stderr


@pytest.mark.slow
def test_mlflow_run_compares_in_the_run_that_it_opened_with_a_run_for_each_method(mixture):
    draw_mixture(400, seed=3).to_parquet("rows.parquet")
    given = {"model_uri": "models:/base/1", "data": "rows.parquet", "label": "label"}
    done = mlflow_run(ROOT, "compare", **given, risk_targets=0.2, repeats=1, curves=1)
    assert done.returncode == 0, done.stderr
    assert "a random half to fit, the other to measure; once." in done.stdout
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'compare'", output_format="list"
    )
    assert run.info.status == "FINISHED"
    assert run.data.params["curves"] == "1"
    children = mlflow.search_runs(
        filter_string=f"tags.mlflow.parentRunId = '{run.info.run_id}'", output_format="list"
    )
    metrics = {child.info.run_name: child.data.metrics for child in children}
    assert {"SCRIB", "optimal", "SCRIB-", "SGR", "LABEL", "top-1"} == set(metrics)
    assert 0 < metrics["SCRIB"]["auc"] < 1
    assert not mlflow.MlflowClient().search_model_versions("name = 'base-scrib'")


@pytest.mark.slow
def test_a_failure_fails_the_run_and_registers_nothing(base, project, capfd):
    draw_table(50).to_csv("rows.csv", index=False)
    done = run_project(
        capfd, project, "main", model_uri="models:/base@nope", data="rows.csv", label="label"
    )
    assert done.returncode != 0
    assert "error: models:/base@nope is not in the registry" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'main'", output_format="list"
    )
    assert run.info.status == "FAILED"
    assert [m.name for m in mlflow.MlflowClient().search_registered_models()] == ["base"]


@pytest.mark.slow
def test_mlflow_run_of_the_frontier_says_what_targets_cost(mixture, project):
    draw_mixture(2000, seed=1).to_parquet("rows.parquet")
    done = mlflow_run(
        project,
        "frontier",
        model_uri="models:/base/1",
        data="rows.parquet",
        label="label",
        risk_targets="{hard: .2, default: .1}",
        points=5,
    )
    assert done.returncode == 0, done.stderr
    assert "300 rows to fit and 300 held out" in done.stdout
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'frontier'", output_format="list"
    )
    assert run.info.status == "FINISHED"
    assert "certifiable_target" in run.data.metrics


@pytest.mark.slow
def test_mlflow_run_of_reproduce_prints_tables_of_saved_outputs(store, project, tmp_path):
    scores, labels = draw_scores(300, noise=3**0.5)
    (tmp_path / "outputs").mkdir()
    np.savez(tmp_path / "outputs" / "drawn.npz", probs=scores, y=labels)
    done = mlflow_run(
        project,
        "reproduce",
        outputs=tmp_path / "outputs",
        experiments="class_risks,correlation",
        repeats=2,
    )
    assert done.returncode == 0, done.stderr
    assert "Excess of class risks, %" in done.stdout
    assert "paper: Sleep-EDF" in done.stdout
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'reproduce'", output_format="list"
    )
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_mlflow_run_predicts_and_a_second_one_is_refused(base, project, tmp_path):
    table = draw_table(400, seed=2)
    table.to_parquet("rows.parquet")
    made = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", mode="paper")
    table.assign(night=range(400)).to_parquet("nights.parquet")
    words = {"data": tmp_path / "nights.parquet", "output": tmp_path / "out", "key": "night"}
    done = mlflow_run(project, "predict", model_uri=made.model_uri, **words)
    assert done.returncode == 0, done.stderr
    assert "answered 400 rows into" in done.stdout
    again = mlflow_run(project, "predict", model_uri=made.model_uri, **words)
    assert again.returncode == 1
    assert "is there; replace it with overwrite=true" in again.stderr
    found = pq.read_table("out")
    assert found.column("night").to_pylist() == [*range(400)]
    served = mlflow.pyfunc.load_model(made.model_uri).predict(table[FEATURES])
    assert found.column("prediction").to_pylist() == served["prediction"].tolist()
    (run,) = mlflow.search_runs(
        filter_string="tags.mlflow.project.entryPoint = 'predict' and metrics.n_rows = 400",
        output_format="list",
    )
    assert run.data.tags["scrib.model_uri"] == made.model_uri
