"""Calibrate on a real store: what it registers, logs and serves."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from tests.models import CLASSES, FEATURES, draw_table, raw_scores

SERVED = ["prediction", "abstain", "reason", "prediction_set", "set_size", "candidates"]


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
    tags = mlflow.get_run(done.run_id).data.tags
    assert tags["scrib.data_digest"] == done.classifier.fit_data.digest
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
        "rows.parquet",
    }
    folder = Path(mlflow.artifacts.download_artifacts(run_id=done.run_id))
    assert (folder / "figures" / "classes.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "scrib.json").read_text(encoding="utf-8")
    assert scrib_mlflow.from_json(text).rule == done.classifier.rule
    place = mlflow.get_run(done.run_id).info.experiment_id
    table = mlflow.MlflowClient().load_table(place, "classes.json", [done.run_id])
    assert table["class"].tolist() == list(CLASSES)


def test_certify_rows_are_measured_under_plain_names(base):
    done = scrib_mlflow.calibrate(
        base, "fit.parquet", "label", certify_data="other.csv", mode="paper"
    )
    table = pd.read_csv("other.csv")
    inside = raw_scores(table) >= np.array(done.classifier.rule.thresholds)
    own = (table["label"] == "hard").to_numpy()
    certain = own & (inside.sum(axis=1) == 1)
    risk = 1 - inside[certain, CLASSES.index("hard")].mean()
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["risk/hard"] == pytest.approx(risk)
    assert done.classifier.certify_report.by_class["hard"].n_certain == certain.sum()
    assert metrics["risk_upper/hard"] > metrics["risk/hard"]
    assert done.classifier.certified is False
    assert metrics["certified"] == 0


def test_certify_rows_that_were_fitted_are_refused(base):
    draw_table(600, seed=2).head(300).to_csv("again.csv", index=False)
    with pytest.raises(ScribError, match="300 of the 300 rows that certify stand in data"):
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
    assert list(answers.columns) == [
        *SERVED,
        "classes",
        "scores",
        "thresholds",
        "class_miscoverage",
    ]
    assert answers["classes"].tolist() == [[*CLASSES]] * 5
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
