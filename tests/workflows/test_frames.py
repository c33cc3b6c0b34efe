"""Frames in place of files: the same rows give the same results, and no message shows them."""

import json
from pathlib import Path

import mlflow
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from tests.models import FEATURES, draw_mixture


def test_a_frame_and_a_file_of_the_same_rows_give_one_split_digest_and_certificate(mixture):
    frame = draw_mixture(3000, seed=1)
    before = frame.copy(deep=True)
    options = {"risk_targets": 0.1, "rule": "thresholds"}
    of_file = scrib_mlflow.calibrate(mixture, Path("rows.parquet"), "label", **options).classifier
    done = scrib_mlflow.calibrate(mixture, frame, "label", **options)
    of_frame = done.classifier
    assert of_frame.certified
    assert of_frame.certificate == of_file.certificate
    assert of_frame.rule == of_file.rule
    assert of_frame.certify_data.digest == of_file.certify_data.digest
    assert of_frame.certify_data.n_used == of_file.certify_data.n_used
    assert of_frame.use.key == of_file.use.key  # the same test again is no new use
    assert of_frame.fit_data.source == "a frame of 3,000 rows"
    pd.testing.assert_frame_equal(frame, before)


def test_the_run_of_a_frame_names_it_and_shows_no_rows(mixture):
    frame = draw_mixture(3000, seed=1)
    certify, path = draw_mixture(1500, seed=2), draw_mixture(1000, seed=3)[FEATURES]
    done = scrib_mlflow.calibrate(
        mixture, frame, "label", certify_data=certify, path_data=path, rule="thresholds"
    )
    run = mlflow.get_run(done.run_id)
    names = {name: run.data.params[name] for name in ("data", "certify_data", "path_data")}
    assert names == {
        "data": "a frame of 3,000 rows",
        "certify_data": "a frame of 1,500 rows",
        "path_data": "a frame of 1,000 rows",
    }
    sources = [json.loads(each.dataset.source) for each in run.inputs.dataset_inputs]
    assert len(sources) == 3
    assert not any("uri" in source for source in sources)
    assert done.classifier.path_data.source == "a frame of 1,000 rows"
    page = mlflow.artifacts.load_text(f"runs:/{done.run_id}/report.html")
    assert "a frame of 1,500 rows" in page


def test_evaluate_and_gate_measure_a_frame_as_its_file(certified):
    uri, frame = "models:/base-scrib/1", pd.read_parquet("fresh.parquet")
    of_file = scrib_mlflow.evaluate(uri, "fresh.parquet", "label")
    of_frame = scrib_mlflow.evaluate(uri, frame, "label")
    assert of_frame.report == of_file.report
    gated = scrib_mlflow.gate(uri, data=frame, label="label")
    assert gated.decision.passed
    assert gated.decision.fresh.data.source == "a frame of 2,000 rows"


def test_answers_to_a_frame_are_returned_by_its_index_or_written(certified):
    uri = "models:/base-scrib/1"
    frame = pd.read_parquet("fresh.parquet").head(50).drop(columns="label")
    frame.index = [f"row {i}" for i in range(50)]
    frame.loc["row 3", "x1"] = float("nan")
    done = scrib_mlflow.predict(uri, frame)
    expected = mlflow.pyfunc.load_model(uri).predict(frame)
    assert done.answers.index.equals(frame.index)
    assert done.answers.to_dict("records") == expected.to_dict("records")
    assert done.answers.loc["row 3", "reason"] == "invalid_scores"
    assert done.predictions.data.source == "a frame of 50 rows"
    written = scrib_mlflow.predict(uri, frame, Path("out"))
    assert written.answers is None
    assert pd.read_parquet("out")["reason"].tolist() == done.answers["reason"].tolist()
    with pytest.raises(ScribError, match="output is missing"):
        scrib_mlflow.predict(uri, "fresh.parquet")


def test_plan_frontier_and_compare_take_frames(mixture):
    frame = draw_mixture(3000, seed=1)
    of_file = scrib_mlflow.plan("rows.parquet", "label").plan
    assert scrib_mlflow.plan(frame, "label").plan == of_file
    seen = scrib_mlflow.frontier(mixture, frame, "label", points=5, rule="thresholds")
    assert seen.data.source == "a frame of 3,000 rows"
    compared = scrib_mlflow.compare(mixture, frame, "label", repeats=1, curves=0)
    assert compared.data.digest == seen.data.digest


def test_what_is_wrong_with_a_frame_is_said_without_its_rows(mixture):
    frame = draw_mixture(300, seed=1)
    with pytest.raises(ScribError) as missing:
        scrib_mlflow.calibrate(mixture, frame, "lable")
    assert str(missing.value) == (
        "data, a frame of 300 rows, has no column 'lable' for the labels; did you mean 'label'?"
    )
    with pytest.raises(ScribError) as given:
        scrib_mlflow.calibrate(mixture, frame[FEATURES], frame["label"])
    assert str(given.value).startswith("label is a pandas.Series, but")
    assert "easy" not in str(given.value)
