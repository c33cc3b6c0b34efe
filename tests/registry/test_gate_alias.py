"""The alias when gates are killed, race each other, or the registry fails."""

import subprocess
import sys

import mlflow
import pytest
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.workflows import policy
from tests.workflows.gates import NAME, champion, tags

KILLED = """
import os, signal, sys
import mlflow
import scrib_mlflow

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

mlflow.MlflowClient.{method} = die
scrib_mlflow.gate("models:/base-scrib/1")
"""


@pytest.mark.parametrize(
    "method",
    [
        "set_registered_model_alias",
        pytest.param("set_model_version_tag", marks=pytest.mark.slow),  # earlier still
    ],
)
def test_a_gate_killed_before_the_alias_moves_leaves_it_and_can_be_run_again(certified, method):
    mlflow.MlflowClient().set_registered_model_alias(NAME, "champion", "2")
    died = subprocess.run(
        [sys.executable, "-c", KILLED.format(method=method)], check=False, capture_output=True
    )
    assert died.returncode == -9
    assert champion() == "2"
    assert scrib_mlflow.gate(f"models:/{NAME}/1").decision.passed
    assert champion() == "1"
    assert tags()["scrib.previous_champion"] == "2"


def test_a_gate_that_loses_a_race_says_so_and_decides_again(certified, monkeypatch, caplog):
    caplog.set_level("INFO", "scrib_mlflow")
    set_alias = mlflow.MlflowClient.set_registered_model_alias

    def raced(client, name, alias, version):
        set_alias(client, name, alias, version)
        if not caplog.messages and str(version) == "1":
            set_alias(client, name, alias, "2")  # another gate, right after

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", raced)
    from scrib_mlflow.options import Gate  # noqa: PLC0415
    from scrib_mlflow.workflows import gate  # noqa: PLC0415

    done = gate.run(Gate(model_uri=f"models:/{NAME}/1"))
    assert caplog.messages == [
        "the alias 'champion' went to version 2 while this gate was deciding; deciding again"
    ]
    assert done.decision.champion == "2"
    assert champion() == "1"
    assert tags()["scrib.previous_champion"] == "2"


def test_an_alias_that_moves_while_a_gate_decides_makes_it_decide_again(
    certified, monkeypatch, caplog
):
    from scrib_mlflow.options import Gate  # noqa: PLC0415
    from scrib_mlflow.workflows import gate  # noqa: PLC0415

    caplog.set_level("INFO", "scrib_mlflow")
    decide = policy.decide

    def slow(*arguments):
        if not caplog.messages:
            mlflow.MlflowClient().set_registered_model_alias(NAME, "champion", "2")
        return decide(*arguments)

    monkeypatch.setattr(gate, "decide", slow)
    done = gate.run(Gate(model_uri=f"models:/{NAME}/1"))
    assert "went to version 2 while this gate was deciding" in caplog.messages[0]
    assert done.decision.champion == "2"
    assert tags()["scrib.previous_champion"] == "2"


def test_an_alias_that_keeps_moving_is_an_error(certified, monkeypatch):
    set_alias = mlflow.MlflowClient.set_registered_model_alias

    def raced(client, name, alias, _):
        set_alias(client, name, alias, "2")

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", raced)
    with pytest.raises(ScribError, match="keeps moving"):
        scrib_mlflow.gate(f"models:/{NAME}/1")
    assert champion() == "2"


GATE = """
import sys
import scrib_mlflow
done = scrib_mlflow.gate(sys.argv[1])
print(done.decision.champion)
"""


@pytest.mark.parametrize("n_gates", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_gates_at_the_same_time_come_one_after_the_other(certified, n_gates):
    for seed in range(1, n_gates):
        scrib_mlflow.calibrate(
            "models:/base/1", "rows.parquet", "label", risk_targets=0.15, seed=seed, alias="c"
        )
    candidates = ["1", "3", "4"][:n_gates]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", GATE, f"models:/{NAME}/{version}"], stdout=subprocess.PIPE
        )
        for version in candidates
    ]
    before = {
        version: process.communicate()[0].decode().strip()
        for version, process in zip(candidates, running, strict=True)
    }
    assert [process.returncode for process in running] == [0] * n_gates
    last = champion()
    chain = [last]
    while before[chain[-1]]:
        chain.append(before[chain[-1]])
    assert sorted(chain) == candidates  # each decided against the one before it


def test_an_alias_that_cannot_be_moved_leaves_no_word_of_passing(certified, monkeypatch):
    def denied(*_):
        raise MlflowException("Permission denied")

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", denied)
    with pytest.raises(ScribError, match="could not be moved: Permission denied"):
        scrib_mlflow.gate(f"models:/{NAME}/1")
    assert tags()["scrib.gate"] == "error"
    (run,) = mlflow.search_runs(
        filter_string=f"attributes.run_name = 'gate {NAME}'",
        output_format="list",
        search_all_experiments=True,
    )
    assert run.data.tags["scrib.gate"] == "error"
    assert run.info.status == "FAILED"


def test_a_lost_answer_to_a_moved_alias_is_no_failure(certified, monkeypatch):
    set_alias = mlflow.MlflowClient.set_registered_model_alias

    def lost(client, *rest):
        set_alias(client, *rest)
        raise MlflowException("connection reset")

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", lost)
    assert scrib_mlflow.gate(f"models:/{NAME}/1").moved
    assert champion() == "1"
