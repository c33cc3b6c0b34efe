"""In which experiment a command's run stands."""

import os
import sqlite3

import mlflow
import pytest

from scrib_mlflow.errors import StoreError
from scrib_mlflow.registry import runs


def experiment(run_id):
    return mlflow.get_experiment(mlflow.get_run(run_id).info.experiment_id).name


def open_one(classifier="sleep"):
    with runs.open_run("calibrate sleep", classifier) as run_id:
        return run_id


def test_runs_stand_in_an_experiment_of_the_classifier_and_the_active_one_stays(store):
    with runs.open_run("calibrate sleep", "sleep") as run_id:
        runs.log_child("inside", {}, {})
        mlflow.set_tag(runs.MODEL_URI, "models:/sleep-scrib/1")
        with runs.open_run("another command", "sleep") as inner:
            assert experiment(inner) == "sleep-scrib"
    assert experiment(run_id) == experiment(open_one()) == "sleep-scrib"
    found = mlflow.search_runs(search_all_experiments=True)
    assert found["experiment_id"].nunique() == 1
    assert "MLFLOW_EXPERIMENT_ID" not in os.environ
    with mlflow.start_run() as own:
        pass
    assert experiment(own.info.run_id) == experiment(open_one(classifier="")) == "Default"


@pytest.mark.parametrize("how", ["id", "name", "run", "mlflow run", "set_experiment"])
def test_an_experiment_that_the_user_has_chosen_is_kept(store, monkeypatch, how):
    mine = mlflow.create_experiment("mine")
    if how == "set_experiment":
        mlflow.set_experiment("mine")
    elif how == "id":
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", mine)
    elif how == "name":
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    elif how == "run":
        mlflow.start_run(experiment_id=mine)
    else:
        run = mlflow.MlflowClient().create_run(mine)
        monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    assert experiment(open_one()) == "mine"
    assert mlflow.get_experiment_by_name("sleep-scrib") is None
    mlflow.end_run()
    if how == "set_experiment":
        mlflow.set_experiment(experiment_id="0")


def test_where_the_experiment_was_deleted_or_cannot_be_made_runs_stand_in_the_default(
    store, monkeypatch
):
    mlflow.delete_experiment(mlflow.create_experiment("sleep-scrib"))
    assert experiment(open_one()) == "Default"

    def denied(*_):
        raise mlflow.MlflowException("Permission denied")

    monkeypatch.setattr(mlflow, "create_experiment", denied)
    assert experiment(open_one("other")) == "Default"


def test_a_default_experiment_that_is_gone_is_told_with_what_to_set(store):
    mlflow.search_experiments()  # the first use of a store makes the default one
    with sqlite3.connect(store.removeprefix("sqlite:///")) as database:  # as in a workspace
        database.execute("DELETE FROM experiments")
    database.close()
    with pytest.raises(StoreError, match=r"No Experiment with id=0 .*set MLFLOW_EXPERIMENT_NAME"):
        open_one(classifier="")
