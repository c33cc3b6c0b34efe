"""Where scores are found in what models return, and where a model is refused."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from scrib_mlflow.errors import InvalidSettingsError, ModelError
from scrib_mlflow.rows.outputs import find_source
from scrib_mlflow.serving import call_model, native_model, read_scores

N = 6
ROWS = np.arange(N)[:, None].astype(float)
P = np.random.default_rng(0).dirichlet([1, 1, 1], N)  # (n, 3) probabilities
Q = P[:, 0]  # (n,) probabilities of one class
M = np.random.default_rng(1).normal(0, 3, N)  # (n,) margins
NAMES = ("a", "b", "c")


class Model:
    """A pyfunc model with this output and, maybe, a native model inside."""

    def __init__(self, output, **native):
        self.output = output
        self.native = native

    def predict(self, data):
        return self.output

    def get_raw_model(self):
        if not self.native:
            raise NotImplementedError
        return SimpleNamespace(**self.native)


def method(value):
    return lambda _: value


def find(model, *, wanted="auto", classes=None, transform="none", rows=ROWS):
    """Return the scores as serving reads them, and the class names."""
    model = model if isinstance(model, Model) else Model(model)
    source, names = find_source(model, rows, wanted=wanted, classes=classes, transform=transform)
    plain = asdict(source)
    output = call_model(model, native_model(model), plain, rows)
    return read_scores(output, plain, len(names)), names


def frame(values=P, names=NAMES, **others):
    return pd.DataFrame(values, columns=list(names)).assign(**others)


def rows_of(values=P, names=NAMES):
    return [dict(zip(names, row.tolist(), strict=True)) for row in values]


# Forms that hold one score for each class.


@pytest.mark.parametrize(
    ("output", "names"),
    [
        pytest.param(P, ("0", "1", "2"), id="array"),
        pytest.param(P.tolist(), ("0", "1", "2"), id="lists"),
        pytest.param(list(P), ("0", "1", "2"), id="list of arrays"),
        pytest.param(frame(), NAMES, id="named columns"),
        pytest.param(pd.DataFrame(P), ("0", "1", "2"), id="numbered columns"),
        pytest.param(frame(names=("1", "2", "3")), ("1", "2", "3"), id="columns from 1"),
        pytest.param(
            pd.DataFrame({"p": list(P)}), ("0", "1", "2"), id="one column of arrays"
        ),
        pytest.param(pd.DataFrame({"p": P.tolist()}), ("0", "1", "2"), id="one column of lists"),
        pytest.param(pd.DataFrame({"p": rows_of()}), NAMES, id="one column of mappings"),
        pytest.param(
            {"label": np.zeros(N, int), "p": P}, ("0", "1", "2"), id="a mapping with one table"
        ),
        pytest.param({"label": np.array(["a"] * N), "p": rows_of()}, NAMES, id="a mapping of rows"),
        pytest.param(rows_of(), NAMES, id="rows"),
        pytest.param(rows_of(names=(0, 1, 2)), ("0", "1", "2"), id="rows with numbers as keys"),
        pytest.param(rows_of(names=(1, 2, 3)), ("1", "2", "3"), id="rows with numbers from 1"),
        pytest.param(
            frame().astype("Float64"), NAMES, id="columns of a type that can be missing"
        ),
    ],
)  # fmt: skip
def test_scores_are_read_from_every_form_that_names_or_orders_its_classes(output, names):
    scores, found = find(output)
    np.testing.assert_array_equal(scores, P)
    assert found == names


def test_single_precision_scores_keep_their_bits():
    scores, _ = find(P.astype(np.float32))
    np.testing.assert_array_equal(scores.astype(np.float32), P.astype(np.float32))


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_one_probability_a_row_is_that_of_the_second_class(shape):
    scores, names = find(Q.reshape(shape))
    np.testing.assert_array_equal(scores, np.column_stack([1 - Q, Q]))
    assert names == ("0", "1")


@pytest.mark.parametrize("output", [M, M[:, None], pd.DataFrame({"m": M}), M.tolist()])
def test_one_margin_a_row_is_that_of_the_second_class(output):
    scores, _ = find(output)
    np.testing.assert_array_equal(scores, np.column_stack([-M, M]))


def test_columns_that_are_classes_are_found_among_others_by_the_names_given():
    output = frame(prediction="a", size=4.5)[["size", "c", "prediction", "a", "b"]]
    scores, names = find(output, classes=NAMES)
    np.testing.assert_array_equal(scores, P)
    assert names == NAMES


@pytest.mark.parametrize("output", [frame(), rows_of(), pd.DataFrame({"p": rows_of()})])
def test_names_given_in_another_order_are_looked_up_not_counted_off(output):
    scores, names = find(output, classes=("c", "a", "b"))
    np.testing.assert_array_equal(scores, P[:, [2, 0, 1]])
    assert names == ("c", "a", "b")


def test_keys_are_looked_up_in_every_row_whatever_their_order():
    output = [dict(sorted(row.items(), reverse=i % 2 == 1)) for i, row in enumerate(rows_of())]
    scores, names = find(output)
    np.testing.assert_array_equal(scores, P)
    assert names == NAMES


def test_a_class_that_never_scores_is_a_class():
    never = np.column_stack([Q, 1 - Q, np.zeros(N)])
    assert find(frame(never))[1] == NAMES
    assert find(rows_of(never))[1] == NAMES


# Labels and other outputs that are not scores.


@pytest.mark.parametrize(
    "output",
    [
        np.array(["a", "b"] * 3),
        np.array(["a", "b"] * 3, dtype=object),
        np.array(["1.5", "2.5"] * 3),
        np.array(["1.5", "2.5"] * 3, dtype=object)[:, None],
        np.array([0, 1] * 3),
        np.array([0.0, 2.0] * 3),
        np.array([[0.0], [1.0]] * 3),
        [1, 2] * 3,
        ["a", "b"] * 3,
        pd.Series(["a", "b"] * 3),
        pd.DataFrame({"label": ["a", "b"] * 3}),
        pd.DataFrame({"label": ["1.5", "2.5"] * 3}),
        pd.DataFrame({"label": [0, 1] * 3}),
        np.array([True, False] * 3),
        np.array(["2020-01-01", "2020-01-02"] * 3, dtype="datetime64[D]"),
    ],
)
def test_labels_are_refused_with_advice(output):
    with pytest.raises(ModelError, match=r"pyfunc_predict_fn='predict_proba'.*scores_from"):
        find(output)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (frame(label="a"), "'label' does not look like scores"),
        (frame(label=np.arange(N) % 3), "'label' does not look like scores"),
        (frame(prediction=np.arange(N) % 3.0), "'prediction' does not look like scores"),
        (pd.DataFrame({"label": ["a"] * N, "score": Q}), "'label' does not look like scores"),
        ([{"label": "a", "score": 0.5}] * N, "'label' does not look like scores"),
        ([{"label": 1, "score": 0.5}] * N, "'label' does not look like scores"),
    ],
)
def test_a_column_of_labels_among_scores_is_refused_unless_classes_are_named(output, message):
    with pytest.raises(ModelError, match=message):
        find(output)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"p": P, "q": P}, "2 look like scores"),
        ({"p": Q, "loss": 0.5}, "0 look like scores"),
        ({"a": P[:, 0], "b": P[:, 1], "c": P[:, 2]}, r"0 look like scores.*'\[a, b, c\]'"),
        (np.stack([P, P]), "not one row of scores for each row"),
        ([P, P], "not one row of scores for each row"),
        (P.T, "3 rows of scores for 6 rows"),
        (P[:4], "4 rows of scores for 6 rows"),
        (pd.DataFrame(P[:, :2], columns=["p", "p"]), "more than once"),
        (pd.DataFrame(P[:, :2], columns=["1", 1]), "more than once"),
        (pd.DataFrame(P[:, :2], columns=[0.5, 1.5]), "text or whole numbers"),
        ([*rows_of()[:-1], {"a": 0.5, "b": 0.5}], "for row 5"),
        ([*rows_of()[:-1], {"a": 0.5, "b": 0.2, "c": 0.2, "d": 0.1}], "for row 5"),
        (None, "not one row of scores"),
        ([[0.5, 0.5], [1.0]] * 3, "no scores"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(output, message):
    with pytest.raises(ModelError, match=message):
        find(output)


def test_a_model_that_fails_is_told_with_its_own_words():
    class Broken(Model):
        def predict(self, data):
            return {}["x3"]

    with pytest.raises(ModelError, match="asked for predict: KeyError: 'x3'"):
        find(Broken(P))


def test_rows_that_the_model_cannot_take_do_not_hide_its_scores():
    class Picky(Model):
        def predict(self, data):
            rows = data[:, 0].astype(int)
            return self.output[rows] if not {0, 4} & set(rows.tolist()) else {}["a hole"]

    source, names = find_source(Picky(P), ROWS, wanted="auto", classes=None, transform="none")
    assert source.call == "predict"
    assert names == ("0", "1", "2")


def test_rows_without_scores_do_not_change_what_the_others_are():
    holes = np.where(np.arange(N) == 2, np.nan, Q)
    source, _ = find_source(Model(holes), ROWS, wanted="auto", classes=None, transform="none")
    assert source.single == "probability"
    labels = np.array([0.0, 1.0, np.nan, 1.0, 0.0, 1.0])
    with pytest.raises(ModelError, match="which are labels, not scores"):
        find(labels)


# What is asked for.


def test_probabilities_of_the_native_model_come_before_its_labels():
    model = Model(np.array(["a"] * N), predict_proba=method(P), classes_=np.array(NAMES))
    scores, names = find(model)
    np.testing.assert_array_equal(scores, P)
    assert names == NAMES


def test_a_method_is_called_where_it_is_asked_for():
    margins = np.log(P)
    model = Model(
        P, predict_proba=method(P), decision_function=method(margins), classes_=np.array([1, 2, 3])
    )
    scores, names = find(model, wanted="decision_function")
    np.testing.assert_array_equal(scores, margins)
    assert names == ("1", "2", "3")


def test_classes_of_the_native_model_name_what_predict_returns():
    model = Model(P[:, ::-1], predict_proba=method(P), classes_=np.array(NAMES))
    scores, names = find(model, wanted="predict")
    np.testing.assert_array_equal(scores, P[:, ::-1])
    assert names == NAMES


def test_scores_of_pairs_of_classes_are_refused():
    pairs = Model(
        np.array(["a"] * N),
        decision_function=method(P),
        classes_=np.array(NAMES),
        get_params=lambda: {"svc__decision_function_shape": "ovo"},
    )
    with pytest.raises(ModelError, match="pairs of classes"):
        find(pairs, wanted="decision_function")


def test_an_entry_is_taken_where_it_is_asked_for():
    assert find({"p": P, "q": P[:, ::-1]}, wanted="q")[0].tolist() == P[:, ::-1].tolist()
    by_column = find(pd.DataFrame({"p": Q, "q": Q / 2}), wanted="q")[0]
    assert by_column[:, 1].tolist() == (Q / 2).tolist()
    nested = pd.DataFrame({"label": ["a"] * N, "p": rows_of()})
    assert find(nested, wanted="p")[1] == NAMES


@pytest.mark.parametrize(
    "output",
    [
        frame(label="a", size=4),
        frame(label="a", size=4).to_dict(orient="records"),
        frame(label="a", size=4).to_dict(orient="series"),
    ],
)
def test_columns_are_taken_in_the_order_asked_for(output):
    scores, names = find(output, wanted="[c, a]")
    np.testing.assert_array_equal(scores, P[:, [2, 0]])
    assert names == ("c", "a")
    assert find(output, wanted="[c, a]", classes=("x", "y"))[1] == ("x", "y")


def test_columns_asked_for_by_number_are_classes_of_that_number():
    scores, names = find(pd.DataFrame(P), wanted="[2, 0, 1]")
    np.testing.assert_array_equal(scores, P[:, [2, 0, 1]])
    assert names == ("2", "0", "1")


@pytest.mark.parametrize(
    ("output", "wanted", "message"),
    [
        (P, "proba", r"no method of the model and no entry.*\(6, 3\)"),
        (P, "[a, b]", "no method of the model and no entry"),
        (frame(), "proba", "no column of its output.*'a', 'b', 'c'"),
        (frame(), "[a, d]", "no column 'd'"),
        (rows_of(), "[a, d]", "no column 'd'"),
        ({"p": P}, "proba", r"the model's output has \['p'\]"),
        (frame(label="a"), "label", "no scores"),
        (frame(label="a"), "[a, label]", "no scores"),
    ],
)
def test_what_is_asked_for_and_not_there_is_refused(output, wanted, message):
    with pytest.raises(ModelError, match=message):
        find(output, wanted=wanted)


def test_a_list_that_is_not_yaml_is_refused():
    with pytest.raises(InvalidSettingsError, match="scores_from is not YAML"):
        find(frame(), wanted="[a, b")


# Names of classes.


@pytest.mark.parametrize("output", [P, pd.DataFrame(P), rows_of(names=(0, 1, 2))])
def test_names_given_are_those_of_the_scores_in_order(output):
    assert find(output, classes=NAMES)[1] == NAMES


def test_names_given_replace_the_numbers_of_a_native_model():
    model = Model(P, predict_proba=method(P), classes_=np.arange(3))
    assert find(model, classes=("1", "2", "3"))[1] == ("1", "2", "3")


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (NAMES, ("b", "a", "c")),
        (NAMES, ("x", "y", "z")),
        ((0, 1, 2), ("1", "0", "2")),
        ((1, 2, 3), ("0", "1", "2")),
    ],
)
def test_names_given_against_the_models_own_are_refused(own, given):
    model = Model(P, predict_proba=method(P), classes_=np.array(own))
    with pytest.raises(ModelError, match="the model's own are"):
        find(model, classes=given)


@pytest.mark.parametrize("output", [P, pd.DataFrame(P), rows_of(names=(0, 1, 2))])
def test_a_wrong_number_of_names_is_refused(output):
    with pytest.raises(ModelError, match="names 2 classes, but the model gives 3 scores"):
        find(output, classes=("a", "b"))


def test_names_that_are_no_columns_are_refused():
    with pytest.raises(ModelError, match=r"which column is whose"):
        find(frame(), classes=("x", "y", "z"))


def test_one_score_a_row_of_a_model_with_three_classes_is_refused():
    model = Model(Q, score_samples=method(Q), classes_=np.array(NAMES))
    with pytest.raises(ModelError, match="names 3 classes, but gives 2 scores"):
        find(model, wanted="score_samples")


def test_names_that_the_models_own_labels_contradict_are_refused():
    labels = np.array(NAMES)[P.argmax(axis=1)]
    output = {"label": labels, "p": P}
    assert find(output, classes=NAMES)[1] == NAMES
    with pytest.raises(ModelError, match="'label' is the class with the highest score on few rows"):
        find(output, classes=("b", "c", "a"))


# Transformations, the same when served.


def test_softmax_is_taken_over_the_classes():
    logits = np.array([[900.0, 0.0, -900.0], [1.0, 2.0, 3.0]] * 3)
    scores, _ = find(logits, transform="softmax")
    e = np.exp([1.0, 2.0, 3.0])
    np.testing.assert_allclose(scores[0], [1, 0, 0], atol=1e-300)
    np.testing.assert_allclose(scores[1], e / e.sum(), rtol=1e-14)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_sigmoid_makes_a_logit_the_probability_of_the_second_class(shape):
    logits = np.array([-800.0, -2.0, 0.5, 0.7, 3.0, 800.0])
    scores, _ = find(logits.reshape(shape), transform="sigmoid")
    expected = [0, 1 / (1 + np.e**2), None, None, 1 / (1 + np.e**-3), 1]
    for score, value in zip(scores[:, 1], expected, strict=True):
        assert value is None or score == pytest.approx(value, rel=1e-14)
    np.testing.assert_array_equal(scores.sum(axis=1), 1)


def test_sigmoid_is_taken_of_each_class():
    scores, _ = find(np.log(P / (1 - P)), transform="sigmoid")
    np.testing.assert_allclose(scores, P, rtol=1e-12)


def test_softmax_of_a_single_score_is_refused():
    with pytest.raises(ModelError, match="'sigmoid'"):
        find(M, transform="softmax")


def test_without_a_transformation_logits_stay_as_they_are():
    np.testing.assert_array_equal(find(np.log(P))[0], np.log(P))
