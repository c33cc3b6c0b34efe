"""Scores of a model that is not in MLflow: fitted, certified and evaluated; nothing is served."""

import mlflow
import numpy as np
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.workflows import calibrate as calibrating
from tests.models import CLASSES, FEATURES, draw_mixture, fit_pipeline

COLUMNS = [f"p_{name}" for name in CLASSES]
NAMED = {"scores_from": f"columns:[{', '.join(COLUMNS)}]", "classes": CLASSES}


def draw_scores(n, seed, names=COLUMNS):
    """Return rows with a label and the scores of scikit-learn, and nothing that a model takes."""
    table = draw_mixture(n, seed=seed)
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(table[FEATURES])
    return pd.DataFrame(scores, columns=list(names)).assign(label=table["label"])


def test_scores_alone_are_certified_as_those_of_the_model_are_and_nothing_is_registered(mixture):
    options = {"risk_targets": 0.1, "rule": "thresholds", "certify_data": draw_scores(2000, 2)}
    data = draw_scores(1500, 1)
    done = scrib_mlflow.calibrate(data=data, label="label", **NAMED, **options)
    record = done.classifier
    assert record.certified
    assert (done.name, done.version, done.alias) == ("", "", "")
    assert done.model_uri == f"runs:/{done.run_id}"
    assert record.base.uri == ""
    assert (record.scores.call, record.scores.columns) == ("columns", tuple(COLUMNS))
    of_model = scrib_mlflow.calibrate(
        mixture,
        draw_mixture(1500, seed=1),
        "label",
        **options | {"certify_data": draw_mixture(2000, seed=2)},
    ).classifier
    assert {(c.n_certain, c.n_wrong) for c in record.certificate.claims} == {
        (c.n_certain, c.n_wrong) for c in of_model.certificate.claims
    }
    names = [model.name for model in mlflow.MlflowClient().search_registered_models()]
    assert sorted(names) == ["base", "base-scrib"]  # of the model
    found = {item.path for item in mlflow.MlflowClient().list_artifacts(done.run_id)}
    assert found >= {"scrib.json", "certificate.json", "report.html", "rows.parquet"}
    run = mlflow.get_run(done.run_id)
    assert run.data.metrics["certified"] == 1
    assert not run.outputs.model_outputs
    text = calibrating.summary(done)
    assert "nothing: no model was given" in text
    assert f"evaluate --model_uri runs:/{done.run_id} --data" in text
    assert "mlflow models serve" not in text
    assert "-scrib" not in text


def test_evaluate_measures_other_scores_and_knows_those_of_the_calibration(store):
    done = scrib_mlflow.calibrate(
        data=draw_scores(1500, 1), label="label", rule="thresholds", **NAMED
    )
    fresh = draw_scores(800, 5)
    fresh.loc[3, "p_easy"] = np.nan
    for uri in (done.model_uri, f"{done.model_uri}/scrib.json"):
        looked = scrib_mlflow.evaluate(uri, fresh, "label")
        assert looked.model_uri == done.model_uri
        assert looked.n_invalid == 1
        assert looked.report.n == 800
        known = fresh.dropna()
        expected = scrib_mlflow.evaluate_sets(
            known[COLUMNS].to_numpy(), known["label"], done.classifier.rule, classes=CLASSES
        )
        assert looked.report.n_certain == expected.n_certain
        assert looked.report.overall_risk == expected.overall_risk
        assert not looked.fitted
    again = scrib_mlflow.evaluate(done.model_uri, draw_scores(1500, 1), "label")
    assert again.fitted
    with pytest.raises(ScribError, match="data has no column 'p_hard' of scores"):
        scrib_mlflow.evaluate(done.model_uri, fresh.drop(columns="p_hard"), "label")


def test_nothing_can_be_gated_answered_or_registered_and_it_says_so(mixture):
    scores = draw_scores(300, 1)
    done = scrib_mlflow.calibrate(data=scores, label="label", mode="paper", **NAMED)
    for call in (
        lambda: scrib_mlflow.gate(done.model_uri),
        lambda: scrib_mlflow.predict(done.model_uri, scores),
    ):
        with pytest.raises(ScribError, match="only evaluate takes runs:/RUN_ID"):
            call()
    with pytest.raises(ScribError, match="there is nothing to serve; evaluate takes it as runs:"):
        scrib_mlflow.register(done.run_id)
    served = scrib_mlflow.calibrate(mixture, "rows.parquet", "label", mode="paper")
    with pytest.raises(ScribError, match="made a set classifier over models:/base/1; give its"):
        scrib_mlflow.evaluate(f"runs:/{served.run_id}", scores, "label")


def test_columns_are_classes_unless_others_are_named(store):
    data = draw_scores(300, 1, names=CLASSES)
    named = "columns:[easy, hard, middle]"
    options = {"mode": "paper", "data": data, "label": "label"}
    first = scrib_mlflow.calibrate(scores_from=named, **options).classifier
    second = scrib_mlflow.calibrate(scores_from="columns", classes=CLASSES, **options).classifier
    assert first.rule == second.rule
    assert first.classes == second.classes == CLASSES


def test_frontier_and_compare_take_scores_alone(store):
    data = draw_scores(1500, 1)
    seen = scrib_mlflow.frontier(data=data, label="label", points=5, rule="thresholds", **NAMED)
    compared = scrib_mlflow.compare(data=data, label="label", repeats=1, curves=0, **NAMED)
    assert seen.model_uri == compared.model_uri == "scores of the data"
    assert seen.data.digest == compared.data.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores_from": "auto"}, "model_uri is missing; give the classifier as models:"),
        ({"classes": None, "scores_from": "columns"}, "nothing says which columns hold the scores"),
        ({"classes": ["a", "b"]}, "classes"),
        ({"scores_from": "columns:[p_easy, p_hard, p_mid]"}, "has no column 'p_mid' of scores"),
        ({"scores_from": "columns:[p_easy, p_hard, label]"}, "scores_from names the label 'label'"),
        ({"classes": None}, "if the model's own names are others"),
        ({"alias": "champion"}, "without model_uri there is nothing to serve"),
        ({"registered_model_name": "mine"}, "without model_uri there is nothing to serve"),
        ({"score_transform": "softmax"}, "transform the columns in the data"),
        ({"data": None}, "data is missing"),
    ],
)
def test_what_is_missing_or_too_much_is_told_in_a_sentence(store, change, words):
    given = {"data": draw_scores(100, 1), "label": "label", **NAMED, **change}
    with pytest.raises(ScribError) as told:
        scrib_mlflow.calibrate(**given)
    assert words in str(told.value)
    assert "\n" not in str(told.value)
