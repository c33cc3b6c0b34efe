"""Calibrate, evaluate and register on a real store."""

import json
import math
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.adapters import registration
from scrib_mlflow.errors import ScribError, StoreError
from tests.models import CLASSES, FEATURES, draw_table, fit_pipeline, register_pipeline

SERVED = ["prediction", "abstain", "reason", "prediction_set", "set_size", "candidates"]


@pytest.fixture
def base(store):
    """A registered classifier, and files of rows for it."""
    uri = register_pipeline()
    draw_table(600, seed=2).to_parquet("fit.parquet")
    draw_table(500, seed=3).to_csv("other.csv", index=False)
    return uri


def raw_scores(table):
    """Return the classifier's probabilities, by scikit-learn alone."""
    return fit_pipeline(draw_table(seed=1)).predict_proba(table[FEATURES])


def test_served_sets_are_those_of_scikit_learn_s_probabilities_and_the_thresholds(calibrated):
    done = calibrated
    table = draw_table(200, seed=9)
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(table[FEATURES])
    assert list(answers.columns) == SERVED
    assert done.classifier.classes == CLASSES
    inside = raw_scores(table) >= np.array(done.classifier.rule.thresholds)
    expected = [{CLASSES[j] for j in range(3) if row[j]} for row in inside]
    assert [set(members) for members in answers["prediction_set"]] == expected
    certain = inside.sum(axis=1) == 1
    assert answers["abstain"].tolist() == (~certain).tolist()
    assert 0 < certain.sum() < len(certain)
    assert [bool(text) for text in answers["prediction"]] == certain.tolist()


def test_a_version_says_where_it_comes_from_and_that_it_is_not_certified(calibrated):
    done = calibrated
    client = mlflow.MlflowClient()
    version = client.get_model_version_by_alias("base-scrib", "candidate")
    assert (done.name, done.version) == ("base-scrib", "1")
    assert (version.name, str(version.version)) == ("base-scrib", "1")
    assert version.tags["scrib.base_model"] == "base"
    assert version.tags["scrib.base_version"] == "1"
    assert version.tags["scrib.certified"] == "false"
    assert version.tags["scrib.confidence"] == "0.95"
    assert version.tags["scrib.run_id"] == done.run_id
    assert version.tags["scrib.data_digest"] == done.classifier.fit_data.digest
    assert "Not certified" in version.description
    for name in CLASSES:
        assert f"| {name} |" in version.description


def test_the_run_holds_metrics_inputs_parameters_and_artifacts(calibrated):
    done = calibrated
    run = mlflow.get_run(done.run_id)
    assert run.info.status == "FINISHED"
    metrics = run.data.metrics
    plain = {name for name in metrics if not name.startswith("fit_")}
    assert plain == {"certified"}  # no rows are unseen
    assert metrics["certified"] == 0
    report = done.classifier.fit_report
    assert metrics["fit_abstention_rate"] == report.abstention_rate
    assert metrics["fit_risk/hard"] == report.by_class["hard"].risk
    assert metrics["fit_loss"] == done.classifier.fit.loss
    assert json.loads(run.data.params["risk_targets"]) == 0.05
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.digest == done.classifier.fit_data.digest
    assert {tag.value for tag in used.tags} == {"fit"}
    artifacts = {item.path for item in mlflow.MlflowClient().list_artifacts(done.run_id)}
    assert artifacts >= {
        "scrib.json",
        "classes.json",
        "description.md",
        "figures",
        "fit_rows.parquet",
    }
    folder = Path(mlflow.artifacts.download_artifacts(run_id=done.run_id))
    assert (folder / "figures" / "classes.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "scrib.json").read_text(encoding="utf-8")
    assert scrib_mlflow.from_json(text).rule == done.classifier.rule
    table = mlflow.load_table("classes.json", run_ids=[done.run_id])
    assert table["class"].tolist() == list(CLASSES)


def test_certify_rows_are_measured_under_plain_names(base):
    done = scrib_mlflow.calibrate(base, "fit.parquet", "label", certify_data="other.csv")
    table = pd.read_csv("other.csv")
    inside = raw_scores(table) >= np.array(done.classifier.rule.thresholds)
    own = (table["label"] == "hard").to_numpy()
    certain = own & (inside.sum(axis=1) == 1)
    risk = 1 - inside[certain, CLASSES.index("hard")].mean()
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["risk/hard"] == pytest.approx(risk)
    assert metrics["n_certain/hard"] == certain.sum()
    assert metrics["risk_upper/hard"] > metrics["risk/hard"]
    assert done.classifier.certified is False
    assert metrics["certified"] == 0


def test_certify_rows_that_were_fitted_are_refused(base):
    draw_table(600, seed=2).head(300).to_csv("again.csv", index=False)
    with pytest.raises(ScribError, match="300 of the 300 rows of certify_data stand in data"):
        scrib_mlflow.calibrate(base, "fit.parquet", "label", certify_data="again.csv")


def test_an_alias_is_resolved_to_the_version_it_means_now(base):
    mlflow.MlflowClient().set_registered_model_alias("base", "prod", "1")
    done = scrib_mlflow.calibrate("models:/base@prod", "fit.parquet", "label")
    assert done.classifier.base.uri == "models:/base/1"


def test_a_logged_model_that_is_not_registered_can_be_calibrated(base):
    model_id = mlflow.models.get_model_info(base).model_id
    done = scrib_mlflow.calibrate(f"models:/{model_id}", "fit.parquet", "label")
    assert done.name == "model-scrib"
    assert done.classifier.base.model_id == model_id


def test_calibrate_logs_to_the_run_that_is_open_and_leaves_it_open(base):
    with mlflow.start_run() as run:
        done = scrib_mlflow.calibrate(base, "fit.parquet", "label")
        assert mlflow.active_run().info.run_id == run.info.run_id == done.run_id


def test_the_served_model_outlives_its_base(base, tmp_path):
    done = scrib_mlflow.calibrate(base, "fit.parquet", "label")
    before = mlflow.pyfunc.load_model(done.model_uri).predict(draw_table(20)[FEATURES])
    client = mlflow.MlflowClient()
    source = mlflow.models.get_model_info(base)
    client.delete_registered_model("base")
    client.delete_logged_model(source.model_id)
    folder = tmp_path / "mlruns" / "0" / "models" / source.model_id
    folder.rename(tmp_path / "gone")
    after = mlflow.pyfunc.load_model(done.model_uri).predict(draw_table(20)[FEATURES])
    assert after.equals(before)


def test_two_versions_in_one_process_each_run_their_own_rule_and_code(base):
    loose = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.3)
    strict = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.02)
    models = [mlflow.pyfunc.load_model(done.model_uri) for done in (loose, strict)]
    rows = draw_table(300, seed=5)[FEATURES]
    sizes = [model.predict(rows)["abstain"].mean() for model in models]
    assert sizes[0] < sizes[1]
    kinds = {type(model.unwrap_python_model()) for model in models}
    assert len(kinds) == 2


def test_rows_that_the_base_cannot_score_abstain_and_the_others_are_served(calibrated):
    done = calibrated
    model = mlflow.pyfunc.load_model(done.model_uri)
    rows = draw_table(40)[FEATURES]
    broken = rows.copy()
    broken.iloc[[3, 17], 1] = np.nan
    answers, whole = model.predict(broken), model.predict(rows)
    assert answers.loc[[3, 17], "reason"].tolist() == ["invalid_scores"] * 2
    others = [i for i in range(40) if i not in {3, 17}]
    assert answers.iloc[others].equals(whole.iloc[others])
    with pytest.raises(MlflowException, match="can score none of these rows") as error:
        model.predict(broken.iloc[[3]])
    assert error.value.error_code == "INVALID_PARAMETER_VALUE"


def test_explain_adds_scores_thresholds_and_miscoverages(calibrated):
    done = calibrated
    table = draw_table(5)
    model = mlflow.pyfunc.load_model(done.model_uri)
    answers = model.predict(table[FEATURES], params={"explain": True})
    assert list(answers.columns) == [*SERVED, "scores", "thresholds", "class_miscoverage"]
    assert np.allclose(np.array(answers["scores"].tolist()), raw_scores(table))
    missed = [done.classifier.fit_report.by_class[name].miscoverage for name in CLASSES]
    assert answers["class_miscoverage"][0] == missed


def test_no_rows_are_answered_with_no_rows(calibrated):
    done = calibrated
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(draw_table(5)[FEATURES].head(0))
    assert list(answers.columns) == SERVED
    assert len(answers) == 0


def test_requirements_are_the_base_s_and_what_the_served_file_needs(calibrated):
    done = calibrated
    path = mlflow.pyfunc.get_model_dependencies(done.model_uri)
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    names = [line.split("==")[0] for line in lines]
    assert names == ["mlflow", "scikit-learn", "skops", "numpy", "pandas"]


def test_the_signature_is_the_base_s_with_served_columns(calibrated):
    done = calibrated
    info = mlflow.models.get_model_info(done.model_uri)
    assert info.signature.inputs == mlflow.models.get_model_info("models:/base/1").signature.inputs
    assert info.signature.outputs.input_names() == SERVED
    assert info.saved_input_example_info is not None


# What goes wrong leaves nothing behind.


def versions():
    """Return every registered version."""
    return {
        (item.name, str(item.version)) for item in mlflow.MlflowClient().search_model_versions()
    }


def no_alias(*_):
    msg = "Permission denied"
    raise MlflowException(msg)


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
    log_model = registration.log_model

    def spoilt(record, *rest):
        rule = type(record.rule)(thresholds=(0.99, 0.99, 0.99))
        other = type(record)(**{**{n: getattr(record, n) for n in record.__slots__}, "rule": rule})
        return log_model(other, *rest)

    monkeypatch.setattr(registration, "log_model", spoilt)
    with pytest.raises(ScribError, match="when served, but"):
        scrib_mlflow.calibrate(base, "fit.parquet", "label")
    assert versions() == {("base", "1")}
    found = mlflow.search_logged_models(output_format="list")
    assert [model.name for model in found] == ["model"]


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
    with pytest.raises(ScribError, match="cannot score row 41 of data"):
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
    with pytest.raises(ScribError, match="300 of the 300 rows of certify_data stand in data"):
        scrib_mlflow.calibrate(base, "numbers.parquet", "label", certify_data="numbers.csv")


def test_a_few_equal_certify_rows_are_said_with_the_bounds(base):
    fitted, other = draw_table(600, seed=2), draw_table(500, seed=3)
    known = set(fitted["x0"])
    fresh = other[~other["x0"].isin(known)]
    pd.concat([fresh, fitted.head(7)]).to_csv("mixed.csv", index=False)
    done = scrib_mlflow.calibrate(base, "fit.parquet", "label", certify_data="mixed.csv")
    assert done.classifier.n_shared == 7
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert "7 of them equal a row of the fit" in version.description


def test_a_second_calibration_in_an_open_run_gets_a_run_of_its_own(base):
    with mlflow.start_run() as run:
        first = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.2)
        second = scrib_mlflow.calibrate(base, "fit.parquet", "label", risk_targets=0.05)
    assert first.run_id == run.info.run_id != second.run_id
    inner = mlflow.get_run(second.run_id)
    assert inner.data.params["risk_targets"] == "0.05"
    assert inner.data.tags["mlflow.parentRunId"] == run.info.run_id


# Evaluate.


def test_evaluate_measures_what_the_model_serves(calibrated):
    done = calibrated
    looked = scrib_mlflow.evaluate("models:/base-scrib@candidate", "other.csv", "label")
    table = pd.read_csv("other.csv")
    expected = scrib_mlflow.evaluate_sets(
        raw_scores(table), table["label"], done.classifier.rule, classes=CLASSES
    )
    assert looked.report == expected
    assert looked.model_uri == "models:/base-scrib/1"
    metrics = mlflow.get_run(looked.run_id).data.metrics
    assert metrics["risk_upper/easy"] == expected.by_class["easy"].risk_upper
    assert metrics["n_invalid"] == 0
    assert metrics["n_shared"] == looked.n_shared < 250


def test_evaluate_on_the_rows_of_the_fit_says_so(calibrated):
    done = calibrated
    looked = scrib_mlflow.evaluate(done.model_uri, "fit.parquet", "label")
    assert looked.fitted
    assert looked.report == done.classifier.fit_report
    metrics = mlflow.get_run(looked.run_id).data.metrics
    assert all(name.startswith("fit_") for name in metrics)


@pytest.mark.parametrize("change", ["fewer", "more columns", "another label", "csv"])
def test_evaluate_knows_the_rows_of_the_fit_in_any_dress(calibrated, change, tmp_path):
    table = draw_table(600, seed=2)
    if change == "fewer":
        table = table.head(100)
    if change == "more columns":
        table = table.assign(id=range(600))
    if change == "another label":
        table = table.assign(label=table["label"].map(CLASSES.index)).rename(
            columns={"label": "truth"}
        )
    table.to_csv(tmp_path / "again.csv", index=False)
    label = "truth" if change == "another label" else "label"
    looked = scrib_mlflow.evaluate(calibrated.model_uri, str(tmp_path / "again.csv"), label)
    assert looked.fitted
    assert looked.n_shared == len(table)


def test_evaluate_counts_rows_that_cannot_be_scored_as_abstentions(calibrated):
    done = calibrated
    table = draw_table(100, seed=4)
    table.loc[:9, "x0"] = math.nan
    table.to_csv("holes.csv", index=False)
    for batch_rows in (1, 30):
        looked = scrib_mlflow.evaluate(done.model_uri, "holes.csv", "label", batch_rows=batch_rows)
        assert looked.n_invalid == 10
    assert looked.report.n == 100
    assert looked.report.empty_rate >= 0.1


@pytest.mark.usefixtures("calibrated")
def test_evaluate_refuses_a_model_that_serves_no_sets():
    with pytest.raises(ScribError, match="is no set classifier"):
        scrib_mlflow.evaluate("models:/base/1", "other.csv", "label")
