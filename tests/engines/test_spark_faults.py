"""Faults on a Spark cluster: a worker that dies changes nothing, a bad row is named."""

import json
import time

import mlflow
import numpy as np
import pytest
from mlflow.models import infer_signature

import scrib_mlflow
from tests.clusters import begin, cluster, elsewhere, end, kill_worker
from tests.conftest import PATIENCE
from tests.models import CLASSES, FEATURES, draw_mixture

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

FILES = 8
MODEL = '''
import os, time
from pathlib import Path

import mlflow, numpy as np, pandas as pd

FOLDER = Path({folder!r})


class Stalling(mlflow.pyfunc.PythonModel):
    """Says which worker scores many rows, and waits in its second batch until it may go on."""

    def predict(self, context, model_input, params=None):
        worker = next((part for part in Path.cwd().parts if part.startswith("worker-")), None)
        if worker and len(model_input) > 100:
            (FOLDER / f"{{worker}} {{time.time_ns()}}").touch()
            while len([*FOLDER.glob(f"{{worker}} *")]) > 1 and not (FOLDER / "go").exists():
                (FOLDER / f"stalled {{worker}}").touch()
                time.sleep(0.1)
        weights = np.exp(2.5 * model_input.to_numpy()[:, :3])
        columns = ["easy", "hard", "middle"]
        return pd.DataFrame(weights / weights.sum(axis=1, keepdims=True), columns=columns)


mlflow.models.set_model(Stalling())
'''
GATE = """
import json, sys
import scrib_mlflow

uri, alias, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
done = scrib_mlflow.gate(uri, alias=alias, data="fresh", label="label", evidence="fresh", **options)
print(scrib_mlflow.to_json(done.decision))
"""
CALIBRATE = """
import json, sys
import scrib_mlflow

options = json.loads(sys.argv[2])
try:
    scrib_mlflow.calibrate(sys.argv[1], "bad", "label", **options)
except scrib_mlflow.ScribError as error:
    print(error)
"""


def write_files(table, folder):
    """Write rows to files, so that several tasks read them."""
    folder.mkdir()
    size = len(table) // FILES
    for i in range(FILES):
        table.iloc[i * size : (i + 1) * size].to_parquet(folder / f"{i}.parquet")


@pytest.fixture
def stalling(store, tmp_path):
    """A registered classifier that waits in the middle, and rows for it in several files."""
    (tmp_path / "marks").mkdir()
    code = tmp_path / "stalling.py"
    code.write_text(MODEL.format(folder=str(tmp_path / "marks")), encoding="utf-8")
    rows = draw_mixture(3000, seed=1)
    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model",
            python_model=str(code),
            signature=infer_signature(rows[FEATURES]),
            registered_model_name="stalling",
            pip_requirements=["mlflow"],
        )
    rows.to_parquet("rows.parquet")
    write_files(draw_mixture(4000, seed=2), tmp_path / "fresh")
    return "models:/stalling/1"


@pytest.fixture
def two_workers(tmp_path):
    with cluster(tmp_path / "cluster") as found:
        yield found


def spark_options(found):
    """Return options of a command that runs on a cluster, a file to each task."""
    files = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.maxPartitionBytes": "25000"}
    return {"engine": "spark", "spark_options": found.options(**files)}


def wait_for(folder, pattern, process, seconds=PATIENCE):
    """Return the first file of a pattern as soon as it is there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := sorted(folder.glob(pattern)):
            return found[0]
        assert process.poll() is None, process.communicate()[1][-5000:]
        time.sleep(0.1)
    raise TimeoutError(pattern)


def judged(decision):
    """Return what a gate decided and by which numbers."""
    fields = json.loads(decision)
    fresh = fields["fresh"]
    return {
        "passed": fields["passed"],
        "checks": fields["checks"],
        "certificate": fresh["certificate"],
        "report": fresh["report"],
        "refuted": fresh["refuted"],
        "shared": [fresh["n_shared"], fresh["n_compared"], fresh["n_expected"]],
        "digest": fresh["data"]["digest"],
    }


def test_a_worker_killed_in_the_middle_of_a_gate_changes_neither_verdict_nor_numbers(
    stalling, two_workers, tmp_path, monkeypatch
):
    options = {"risk_targets": 0.1, "classes": CLASSES}
    made = scrib_mlflow.calibrate(stalling, "rows.parquet", "label", **options)
    assert made.classifier.certified
    marks = tmp_path / "marks"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.get_tracking_uri())
    words = json.dumps(spark_options(two_workers))
    (marks / "go").touch()
    undisturbed = elsewhere(GATE, made.model_uri, "undisturbed", words, folder=tmp_path)
    for path in marks.iterdir():
        path.unlink()
    process = begin(GATE, made.model_uri, "disturbed", words, folder=tmp_path)
    stalled = wait_for(marks, "stalled worker-*", process)
    victim = stalled.name.removeprefix("stalled ")
    kill_worker(two_workers.workers[int(victim[-1])])
    (marks / "go").touch()
    disturbed = end(process)
    assert len(two_workers.alive()) == 1
    (survivor,) = {"worker-0", "worker-1"} - {victim}
    assert len([*marks.glob(f"{survivor} *")]) > FILES // 2  # it went on with the other's rows
    near = scrib_mlflow.gate(
        made.model_uri, alias="near", data="fresh", label="label", evidence="fresh"
    )
    assert near.decision.passed
    assert judged(disturbed) == judged(undisturbed)
    assert judged(disturbed) == judged(scrib_mlflow.to_json(near.decision))
    aliases = mlflow.MlflowClient().get_registered_model(made.name).aliases
    moved = {name: str(version) for name, version in aliases.items() if name != "candidate"}
    assert moved == dict.fromkeys(["disturbed", "near", "undisturbed"], made.version)


def test_a_row_that_a_task_cannot_score_is_named(stalling, two_workers, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.get_tracking_uri())
    (tmp_path / "marks" / "go").touch()
    table = draw_mixture(3000, seed=1).assign(name=[f"r{i}" for i in range(3000)])
    table.loc[2041, "x1"] = np.nan
    write_files(table, tmp_path / "bad")
    options = {"classes": CLASSES, "key": "name", **spark_options(two_workers)}
    said = elsewhere(CALIBRATE, stalling, json.dumps(options), folder=tmp_path)
    assert "the row with name 'r2041' of data" in said
    assert [model.name for model in mlflow.MlflowClient().search_registered_models()] == [
        "stalling"
    ]
