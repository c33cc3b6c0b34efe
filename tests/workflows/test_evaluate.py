"""Evaluate a registered set classifier on a real store."""

import math

import mlflow
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from tests.models import CLASSES, draw_table, raw_scores


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
