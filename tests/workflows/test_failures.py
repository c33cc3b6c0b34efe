"""What goes wrong is told in a sentence, and leaves nothing half made behind."""

import math

import mlflow
import numpy as np
import pandas as pd
import pytest
import requests
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.core.rules import ThresholdRule
from scrib_mlflow.errors import ScribError, StoreError
from scrib_mlflow.registry import models
from tests.models import CLASSES, FEATURES, draw_table, register_pipeline


def versions():
    """Return every registered version."""
    return {
        (item.name, str(item.version)) for item in mlflow.MlflowClient().search_model_versions()
    }


def no_alias(*_):
    raise MlflowException("Permission denied")


def test_a_refused_registration_leaves_no_version_and_can_be_finished(base, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "set_registered_model_alias", no_alias)
        with pytest.raises(StoreError, match="python -m scrib_mlflow register --run_id") as error:
            scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.07)
    assert versions() == {("base", "1")}
    assert [m.name for m in mlflow.MlflowClient().search_registered_models()] == ["base"]
    run_id = str(error.value).split("--run_id ")[1].split()[0]
    assert mlflow.get_run(run_id).info.status == "FAILED"
    done = scrib_mlflow.register(run_id)
    assert (done.name, done.version, done.alias) == ("base-scrib", "1", "candidate")
    assert done.classifier.risk_targets == dict.fromkeys(CLASSES, 0.07)
    answers = mlflow.pyfunc.load_model("models:/base-scrib@candidate").predict(
        draw_table(5)[FEATURES]
    )
    assert len(answers) == 5


def test_a_lost_answer_to_the_alias_puts_the_alias_back(base, monkeypatch):
    scrib_mlflow.calibrate(base, "fit.parquet", "label")
    set_alias = mlflow.MlflowClient.set_registered_model_alias
    calls = []

    def lost(client, name, alias, version):
        set_alias(client, name, alias, version)
        calls.append(version)
        if len(calls) == 1:
            no_alias()

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", lost)
    with pytest.raises(StoreError):
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    assert versions() == {("base", "1"), ("base-scrib", "1")}
    found = mlflow.MlflowClient().get_model_version_by_alias("base-scrib", "candidate")
    assert str(found.version) == "1"


def test_a_refused_registration_is_finished_under_the_name_that_was_asked_for(base, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "set_registered_model_alias", no_alias)
        with pytest.raises(StoreError, match="--registered_model_name 'my model'") as error:
            scrib_mlflow.calibrate(
                base, "fit.parquet", "label", registered_model_name="my model", alias="beta"
            )
    run_id = str(error.value).split("--run_id ")[1].split()[0]
    with pytest.raises(ScribError, match="the classifier's own"):
        scrib_mlflow.register(run_id, registered_model_name="base")
    done = scrib_mlflow.register(run_id)
    assert (done.name, done.alias) == ("my model", "beta")


def test_an_alias_of_a_model_that_is_not_ours_is_left_alone(base):
    register_pipeline("foreign")
    mlflow.MlflowClient().set_registered_model_alias("foreign", "champion", "1")
    with pytest.raises(ScribError, match="which is no set classifier"):
        scrib_mlflow.calibrate(
            base, "fit.parquet", "label", registered_model_name="foreign", alias="champion"
        )


def test_an_earlier_version_stays_when_a_later_registration_is_refused(base, monkeypatch):
    scrib_mlflow.calibrate(base, "fit.parquet", "label")
    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", no_alias)
    with pytest.raises(StoreError):
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    assert versions() == {("base", "1"), ("base-scrib", "1")}


def test_a_model_that_serves_other_sets_than_were_counted_is_never_registered(base, monkeypatch):
    log_model = models.log_model

    def spoilt(stored, *rest):
        record = stored.record
        rule = ThresholdRule(thresholds=(0.99, 0.99, 0.99))
        other = type(record)(**{**{n: getattr(record, n) for n in record.__slots__}, "rule": rule})
        return log_model(models.Stored(other, scrib_mlflow.to_json(other)), *rest)

    monkeypatch.setattr(models, "log_model", spoilt)
    with pytest.raises(ScribError, match="when served, but"):
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    assert versions() == {("base", "1")}
    found = mlflow.search_logged_models(output_format="list")
    assert [model.name for model in found] == ["model"]


def test_a_model_that_cannot_be_served_is_told_before_any_use_of_the_rows(base, monkeypatch):
    def spoilt(*_, **__):
        raise MlflowException("no such type")

    monkeypatch.setattr(mlflow.pyfunc, "save_model", spoilt)
    with pytest.raises(ScribError, match=r"cannot save a set classifier .*: no such"):
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    (run,) = mlflow.search_runs(
        filter_string="attributes.run_name LIKE 'calibrate%'",
        output_format="list",
        search_all_experiments=True,
    )
    assert run.info.status == "FAILED"
    assert not [tag for tag in run.data.tags if "ledger" in tag]


def test_a_classifier_whose_files_are_not_answered_for_is_a_failure_of_the_store(base, monkeypatch):
    def unanswered(*_, **__):
        raise MlflowException("API request failed") from requests.ConnectionError("reset")

    monkeypatch.setattr(mlflow.pyfunc, "save_model", unanswered)
    with pytest.raises(StoreError, match=f"{base} cannot be read: API request failed") as error:
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_uri": "models:/bose/1"}, "did you mean 'base'?"),
        ({"model_uri": "models:/base/7"}, "models:/base/7 is not in the registry"),
        ({"model_uri": "models:/base@nope"}, "its aliases are none"),
        ({"model_uri": "runs:/abc/model"}, "must be models:/NAME/VERSION"),
        ({"model_uri": "models:/m-" + "0" * 32}, "is not in the registry"),
        ({"data": "nowhere.csv"}, "does not exist"),
        ({"label": "lable"}, "has no column 'lable' for the labels; did you mean 'label'?"),
        ({"risk_targets": {"esay": 0.1}}, "did you mean 'easy'?"),
        ({"alias": "latest"}, "alias is 'latest'"),
        ({"alias": "a b"}, "alias is 'a b'"),
        ({"registered_model_name": "a/b"}, "registered_model_name is 'a/b'"),
        ({"registered_model_name": "base"}, "the classifier's own"),
        ({"classes": ["x", "y", "z"]}, "the model's own are"),
        ({"scores_from": "magic"}, "magic"),
        ({"certify_data": "none.csv"}, "certify_data none.csv does not exist"),
    ],
)
def test_bad_input_is_told_in_a_sentence_and_nothing_is_registered(base, change, words):
    given = {"model_uri": base, "data": "fit.parquet", "label": "label", **change}
    with pytest.raises(ScribError) as error:
        scrib_mlflow.calibrate(**given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert versions() == {("base", "1")}


def test_a_table_without_the_model_s_inputs_names_them(base):
    draw_table(50).drop(columns=["x1", "x2"]).to_csv("less.csv", index=False)
    with pytest.raises(ScribError, match=r"lacks the model's inputs 'x1', 'x2'"):
        scrib_mlflow.calibrate(base, "less.csv", "label")


def test_a_row_that_the_model_cannot_score_is_named(base):
    table = draw_table(50)
    table.loc[41, "x2"] = math.nan
    table.to_csv("hole.csv", index=False)
    with pytest.raises(ScribError, match=r"row 41 of data cannot be scored: ValueError: .*NaN"):
        scrib_mlflow.calibrate(base, "hole.csv", "label", batch_rows=7)


def test_a_class_without_rows_is_named(base):
    table = draw_table(200)
    table[table["label"] != "hard"].to_csv("without.csv", index=False)
    with pytest.raises(ScribError, match="hard"):
        scrib_mlflow.calibrate(base, "without.csv", "label")


def test_a_set_classifier_is_not_calibrated_again(calibrated):
    done = calibrated
    with pytest.raises(ScribError, match="is a set classifier already"):
        scrib_mlflow.calibrate(done.model_uri, "fit.parquet", "label")


def test_a_label_that_the_model_takes_as_input_is_refused(base):
    with pytest.raises(ScribError, match="is an input of the model"):
        scrib_mlflow.calibrate(base, "other.csv", "x0")


def test_certify_rows_that_were_fitted_are_found_across_kinds_of_files(base):
    table = draw_table(300, seed=2)
    table = table.assign(label=table["label"].map(CLASSES.index)).astype(
        dict.fromkeys(FEATURES, np.float32)
    )
    table.to_parquet("numbers.parquet")
    table.to_csv("numbers.csv", index=False)
    with pytest.raises(ScribError, match="300 of the 300 rows that certify stand in data"):
        scrib_mlflow.calibrate(base, "numbers.parquet", "label", certify_data="numbers.csv")


def test_a_few_equal_certify_rows_are_said_with_the_bounds(base):
    fitted, other = draw_table(600, seed=2), draw_table(500, seed=3)
    known = set(fitted["x0"])
    fresh = other[~other["x0"].isin(known)]
    pd.concat([fresh, fitted.head(7)]).to_csv("mixed.csv", index=False)
    done = scrib_mlflow.calibrate(base, "fit.parquet", "label", certify_data="mixed.csv")
    assert done.classifier.n_shared == 7
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert "7 of these rows equal a row of the fit" in version.description


def test_a_second_calibration_in_an_open_run_gets_a_run_of_its_own(base):
    with mlflow.start_run() as run:
        first = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.2)
        second = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.05)
    assert first.run_id == run.info.run_id != second.run_id
    inner = mlflow.get_run(second.run_id)
    assert inner.data.params["risk_targets"] == "0.05"
    assert inner.data.tags["mlflow.parentRunId"] == run.info.run_id
