"""Rows that hold scores already, and tables that are scored alike."""

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import infer_signature
from sklearn.linear_model import LogisticRegression

from scrib_mlflow.errors import InvalidDataError, InvalidScoresError, InvalidSettingsError
from scrib_mlflow.registry.models import load_model
from scrib_mlflow.rows import scoring, tables
from scrib_mlflow.rows.scoring import input_example
from tests.flavours import NEW, TABLE, TRAINED, binary, calibrated, check_served, register
from tests.models import CLASSES, FEATURES

X = TRAINED[FEATURES]
MODEL = LogisticRegression().fit(X, TRAINED["label"])
SCORES = pd.DataFrame(MODEL.predict_proba(TABLE[FEATURES]), columns=[*CLASSES])
SIGNATURE = infer_signature(X)


def scored(**others):
    """Return the table with the model's scores in columns of the classes' names."""
    return pd.concat([TABLE.drop(columns="label"), SCORES, TABLE["label"]], axis=1).assign(**others)


def registered(**options):
    return register(mlflow.sklearn.log_model, MODEL, **options)


def test_scores_in_columns_named_by_the_classes_are_taken_as_they_are(store):
    done = calibrated(registered(signature=SIGNATURE), scored(), scores_from="columns")
    check_served(done, MODEL.predict_proba(NEW))


@pytest.mark.parametrize("options", [{}, {"signature": SIGNATURE}])
def test_scores_in_named_columns_are_those_of_the_classes_in_order(store, options):
    table = scored().rename(columns={name: f"p_{name}" for name in CLASSES})
    done = calibrated(
        registered(**options), table, scores_from="columns:[p_easy, p_hard, p_middle]"
    )
    check_served(done, MODEL.predict_proba(NEW))


def test_scores_rounded_in_a_file_are_still_the_models(store):
    rounded = SCORES.round(6)
    table = scored(**{name: rounded[name] for name in CLASSES})
    done = calibrated(registered(signature=SIGNATURE), table, scores_from="columns")
    check_served(done, MODEL.predict_proba(NEW))


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(scored(easy=SCORES["hard"], hard=SCORES["easy"]), id="classes swapped"),
        pytest.param(scored(**np.log(SCORES)), id="logarithms"),
        pytest.param(scored(**(SCORES / 2)), id="another scale"),
        pytest.param(
            scored(**{name: np.r_[SCORES[name][:200], SCORES[name][:100]] for name in CLASSES}),
            id="other rows at the end",
        ),
    ],
)
def test_scores_that_are_not_the_models_are_refused(store, table):
    with pytest.raises(InvalidScoresError, match="differ by up to"):
        calibrated(registered(signature=SIGNATURE), table, scores_from="columns")


def test_small_scores_that_are_not_the_models_are_refused(store):
    class Small(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input: pd.DataFrame, params=None):
            return MODEL.predict_proba(model_input) * 1e-6

    uri = register(
        lambda model, **options: mlflow.pyfunc.log_model(python_model=model, **options),
        Small(),
        signature=SIGNATURE,
    )
    table = scored(**(SCORES[[*CLASSES[::-1]]] * 1e-6).set_axis([*CLASSES], axis=1))
    with pytest.raises(InvalidScoresError, match="differ by up to"):
        calibrated(uri, table, scores_from="columns", classes=CLASSES)


def test_scores_without_inputs_need_an_example_of_them(store):
    table = scored().drop(columns=FEATURES)
    with pytest.raises(InvalidDataError, match="log the model with an example"):
        calibrated(registered(signature=SIGNATURE), table, scores_from="columns")
    done = calibrated(registered(input_example=X.head(3)), table, scores_from="columns")
    check_served(done, MODEL.predict_proba(NEW))


def test_scores_and_inputs_that_have_no_names_are_not_told_apart(store):
    with pytest.raises(InvalidDataError, match=r"scores_from='columns:\[p_a, p_b\]'"):
        calibrated(registered(), scored(), scores_from="columns")
    done = calibrated(registered(), scored(), scores_from="columns", classes=CLASSES)
    check_served(done, MODEL.predict_proba(NEW))


@pytest.mark.parametrize(
    ("scores_from", "message"),
    [
        ("columns:[easy, hard]", "names 2 columns for the classes"),
        ("columns:[easy, hard, midle]", "no column 'midle' of scores; did you mean 'middle'"),
    ],
)
def test_columns_that_are_not_one_for_each_class_are_refused(store, scores_from, message):
    with pytest.raises(InvalidDataError, match=message):
        calibrated(registered(signature=SIGNATURE), scored(), scores_from=scores_from)


def test_a_table_without_the_models_inputs_is_refused(store):
    with pytest.raises(InvalidDataError, match="lacks the model's inputs 'x3'"):
        calibrated(registered(signature=SIGNATURE), TABLE.drop(columns="x3"))


# Several tables.


def score(uri, *frames, **parameters):
    read = []
    for i, table in enumerate(frames):
        table.to_parquet(f"{i}.parquet")
        read.append(tables.read_rows(f"table {i}", f"{i}.parquet", "label"))
    options = scoring.ScoreOptions(label="label", **parameters)
    ready = scoring.prepare(load_model(uri), input_example(uri), read, options)
    return [scoring.score(each, options) for each in ready]


def test_a_second_table_is_scored_with_its_columns_in_the_order_of_the_first(store):
    model = LogisticRegression().fit(X.to_numpy(), TRAINED["label"])  # which knows no names
    uri = register(mlflow.sklearn.log_model, model)
    first, second = score(uri, TABLE, TABLE[["label", *FEATURES[::-1]]].assign(id=1))
    np.testing.assert_array_equal(first.scores, second.scores)
    with pytest.raises(InvalidDataError, match="table 1 has no column 'x3'"):
        score(uri, TABLE, TABLE.drop(columns="x3"))


def test_a_second_table_is_read_the_same_way_whatever_its_first_rows_are(store):
    two = binary(TRAINED)
    model = LogisticRegression().fit(two[FEATURES], two["label"])
    margins = model.decision_function(binary(TABLE)[FEATURES])
    small = binary(TABLE)[(margins > 0) & (margins < 1)]  # like probabilities
    uri = register(mlflow.sklearn.log_model, model)
    _, second = score(uri, binary(TABLE), small, scores_from="decision_function")
    np.testing.assert_array_equal(second.scores[:, 0], -second.scores[:, 1])


def test_a_transform_is_not_asked_of_scores_that_stand_in_the_data(store):
    with pytest.raises(InvalidSettingsError, match="leave one of them out"):
        calibrated(
            registered(signature=SIGNATURE),
            scored(),
            scores_from="columns",
            score_transform="softmax",
        )


def test_scores_alone_must_be_probabilities_where_the_model_s_are(store):
    table = pd.concat([np.log(SCORES), TABLE["label"]], axis=1)
    base = registered(signature=SIGNATURE, input_example=X.head(2))
    with pytest.raises(InvalidScoresError, match="the model gives probabilities"):
        calibrated(base, table, scores_from="columns")


def test_constraints_of_the_base_come_with_its_requirements(store):
    Path("constraints.txt").write_text("scikit-learn<99\n", encoding="utf-8")
    base = registered(signature=SIGNATURE, pip_requirements=["-c constraints.txt", "mlflow"])
    done = calibrated(base)
    check_served(done, MODEL.predict_proba(NEW))
    folder = Path(mlflow.artifacts.download_artifacts(done.model_uri))
    assert "scikit-learn<99" in (folder / "constraints.txt").read_text(encoding="utf-8")
