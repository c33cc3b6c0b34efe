"""The served file's pure part: sets to columns, outputs to scores, bad rows apart from good."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from scrib_mlflow import serving

CLASSES = ("a", "b", "c")
RULE = {"kind": "thresholds", "thresholds": [0.5, 0.5, 0.3]}
COLUMNS = ["prediction", "abstain", "reason", "prediction_set", "set_size", "candidates"]


def serve(*rows, rule=RULE):
    """Return the columns of rows of scores."""
    return serving.served_columns(rule, np.array(rows, dtype=np.float64), CLASSES)


def one(row, rule=RULE):
    """Return what one row of scores is answered with."""
    columns = serve(row, rule=rule)
    assert list(columns) == COLUMNS
    return {name: values[0] for name, values in columns.items()}


def test_a_certain_row_is_answered_with_its_label():
    expected = ["a", False, "", ["a"], 1, ["a"]]
    assert list(one([0.9, 0.1, 0.1]).values()) == expected


def test_an_ambiguous_row_names_its_members_highest_score_first():
    expected = ["", True, "ambiguous", ["b", "a"], 2, ["b", "a"]]
    assert list(one([0.6, 0.7, 0.1]).values()) == expected


def test_an_empty_row_names_the_two_classes_with_the_highest_scores():
    expected = ["", True, "empty", [], 0, ["a", "c"]]  # c is nearer its threshold
    assert list(one([0.30, 0.1, 0.25]).values()) == expected


CALIBRATED = {**RULE, "candidate_thresholds": [0.3, 0.1, 0.2], "max_candidates": 10}


@pytest.mark.parametrize(
    ("row", "members", "candidates"),
    [
        ([0.3, 0.05, 0.25], [], ["a", "c"]),
        ([0.3, 0.1, 0.25], [], ["a", "c", "b"]),  # b reaches its candidate threshold
        ([0.4, 0.2, 0.1], [], ["a", "b"]),  # the two highest, also where only one reaches
        ([0.05, 0.6, 0.55], ["b", "c"], ["b", "c"]),
        ([0.9, 0.2, 0.2], ["a"], ["a"]),  # certain
    ],
)
def test_candidates_are_the_two_most_probable_classes_and_those_that_reach_a_threshold(
    row, members, candidates
):
    found = one(row, rule=CALIBRATED)
    assert found["prediction_set"] == members
    assert found["candidates"] == candidates


def test_a_class_is_no_candidate_for_being_in_the_set():
    rule = {**CALIBRATED, "thresholds": [0.5, 0.5, 0.005], "candidate_thresholds": [0.1, 0.1, 0.1]}
    found = one([0.6, 0.39, 0.01], rule=rule)
    assert found["prediction_set"] == ["a", "c"]
    assert found["candidates"] == ["a", "b"]


def test_candidates_are_ranked_by_recalibrated_probabilities_where_there_is_a_map():
    bent = {"of": "log", "slopes": [1.0] * 3, "offsets": [0.0, 0.0, 2.0], "least_score": 1e-6}
    rule = {**CALIBRATED, "recalibration": bent, "candidate_thresholds": [np.inf] * 3}
    found = one([0.4, 0.35, 0.25], rule=rule)  # exp(2) 0.25 is more than the others
    assert found["candidates"] == ["c", "a"]


def test_of_more_candidates_than_a_row_may_name_the_others_are_counted():
    rule = {**CALIBRATED, "max_candidates": 2, "candidate_thresholds": [-np.inf] * 3}
    columns = serve([0.2, 0.1, 0.25], [0.9, 0.0, 0.0], [np.nan, 0.1, 0.1], rule=rule)
    assert list(columns["candidates"]) == [["c", "a"], ["a"], []]
    assert list(columns["more_candidates"]) == [1, 0, 0]
    assert serving.candidate_sets(rule, [[0.2, 0.1, 0.25]]).tolist() == [[True, False, True]]


def test_of_many_classes_the_most_probable_are_named_in_their_order():
    k, generator = 300, np.random.default_rng(0)
    scores = generator.dirichlet(np.full(k, 0.2), size=40)
    rule = {
        "kind": "thresholds",
        "thresholds": [np.inf] * k,
        "candidate_thresholds": [0.01] * k,
        "max_candidates": 7,
    }
    columns = serving.served_columns(rule, scores, [str(j) for j in range(k)])
    for row, names, more in zip(
        scores, columns["candidates"], columns["more_candidates"], strict=True
    ):
        wanted = max(np.count_nonzero(row >= 0.01), 2)
        assert [int(name) for name in names] == np.argsort(-row)[: min(wanted, 7)].tolist()
        assert more == max(wanted - 7, 0)


def test_the_set_of_an_optimal_rule_is_its_candidates_where_it_abstains():
    rule = {
        "kind": "optimal",
        "multipliers": [1.0, 9.0, 1.0],
        "charges": [2.0, 2.0, 2.0],
        "recalibration": None,
        "candidate_thresholds": [np.inf, np.inf, 0.2],
        "max_candidates": 10,
        "answers": "top",
    }
    found = one([0.5, 0.2, 0.3], rule=rule)
    assert found["prediction_set"] == found["candidates"] == ["a", "c"]  # b is worth more than c
    older = one([0.5, 0.2, 0.3], rule={**rule, "max_candidates": None})
    assert sorted(older["prediction_set"]) == ["a", "b", "c"]  # worth most: b and a


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_bad_score_abstains_and_the_others_are_served(bad):
    columns = serve([0.9, 0.1, 0.1], [0.9, bad, 0.1], [0.1, 0.9, 0.1])
    assert columns["prediction"].tolist() == ["a", "", "b"]
    assert columns["reason"].tolist() == ["", "invalid_scores", ""]
    assert columns["candidates"][1] == []
    assert columns["set_size"].tolist() == [1, 0, 1]


def test_no_rows_give_empty_columns():
    columns = serving.served_columns(RULE, np.empty((0, 3)), CLASSES)
    assert [len(values) for values in columns.values()] == [0] * 6


def test_a_top_rule_is_always_certain():
    assert one([0.2, 0.1, 0.3], rule={"kind": "top1"})["prediction"] == "c"


def test_a_selective_rule_abstains_with_all_classes():
    found = one([0.2, 0.1, 0.3], rule={"kind": "selective", "threshold": 0.5, "on": "score"})
    assert found["prediction_set"] == ["c", "a", "b"]
    assert found["reason"] == "ambiguous"


TOP_ONLY = {**RULE, "answers": "top"}


@pytest.mark.parametrize(
    ("row", "members", "reason"),
    [
        ([0.9, 0.1, 0.1], ["a"], ""),  # certain of the top class
        ([0.45, 0.1, 0.4], ["a", "c"], "ambiguous"),  # certain of another
        ([0.3, 0.1, 0.3], ["a", "c"], "ambiguous"),  # of equal scores the first is the top
        ([0.4, 0.1, 0.2], [], "empty"),
        ([0.7, 0.6, 0.1], ["a", "b"], "ambiguous"),
        ([0.7, 0.6, 0.3], ["a", "b", "c"], "ambiguous"),
        ([0.9, np.nan, 0.1], [], "invalid_scores"),
    ],
)
def test_thresholds_of_the_top_class_give_no_other_answer(row, members, reason):
    found = one(row, rule=TOP_ONLY)
    assert found["prediction_set"] == members
    assert found["reason"] == reason
    assert found["prediction"] == ("".join(members) if not reason else "")


def test_an_optimal_rule_of_the_top_class_abstains_where_that_class_does_not_pay():
    rule = {
        "kind": "optimal",
        "multipliers": [1.0, 9.0, 1.0],
        "charges": [2.0, 2.0, 0.0],
        "recalibration": None,
        "candidate_thresholds": [np.inf] * 3,
    }
    rows = [0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.3, 0.6, 0.1]
    assert serve(*rows, rule=rule)["prediction"].tolist() == ["b", "b", "b"]
    found = serve(*rows, rule={**rule, "answers": "top"})
    # 1 + 0.6 - 1.8 is negative; 1 + 0.5 - 1.0 is not; b is the top class of the third
    assert found["prediction"].tolist() == ["", "c", "b"]
    assert found["candidates"][0] == ["a", "b"]  # the most probable first


def test_the_top_class_is_that_of_the_scores_and_not_of_recalibrated_ones():
    rule = {
        "kind": "optimal",
        "multipliers": [1.0, 1.0, 1.0],
        "charges": [0.0, 0.0, 0.0],
        "recalibration": {
            "of": "log",
            "slopes": [1.0] * 3,
            "offsets": [0.0, 3.0, 0.0],
            "least_score": 1e-6,
        },
        "candidate_thresholds": [np.inf] * 3,
    }
    row = [0.5, 0.4, 0.1]
    assert one(row, rule=rule)["prediction"] == "b"
    assert one(row, rule={**rule, "answers": "top"})["prediction"] == "a"


def test_lists_of_different_rows_and_columns_are_different_objects():
    columns = serve([0.9, 0.1, 0.1], [0.9, 0.1, 0.1], [0.6, 0.7, 0.1], [0.6, 0.7, 0.1])
    lists = columns["prediction_set"], columns["candidates"]
    assert len({id(members) for column in lists for members in column}) == 8


numbers = st.one_of(st.floats(-1, 2, width=32), st.sampled_from([np.nan, np.inf, -np.inf, 0.5]))


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 6), st.just(3)), elements=numbers))
def test_columns_agree_with_a_loop_over_rows(scores):
    columns = serving.served_columns(RULE, scores, CLASSES)
    for i, row in enumerate(scores):
        good = all(np.isfinite(row))
        members = [j for j in range(3) if good and row[j] >= RULE["thresholds"][j]]
        ordered = [CLASSES[j] for j in sorted(members, key=lambda j: (-row[j], j))]
        assert columns["prediction_set"][i] == ordered
        assert columns["set_size"][i] == len(members)
        assert columns["abstain"][i] == (len(members) != 1)
        assert columns["prediction"][i] == (ordered[0] if len(members) == 1 else "")
        ranked = [CLASSES[j] for j in sorted(range(3), key=lambda j: (-row[j], j))]
        wanted = ordered if len(members) == 1 else ranked[:2] if good else []
        assert columns["candidates"][i] == wanted


def test_explained_columns_are_json_even_for_rules_without_limits():
    rule = {"kind": "thresholds", "thresholds": [-np.inf, 0.5, np.inf]}
    scores = np.array([[0.1, 0.2, 0.3], [np.nan, 0.2, 0.3]])
    columns = serving.explained_columns(rule, scores, [0.1, float("nan"), 0.2], CLASSES)
    assert columns["classes"] == [["a", "b", "c"]] * 2
    assert json.loads(json.dumps(columns, allow_nan=False)) == columns
    assert columns["scores"] == [[0.1, 0.2, 0.3], []]
    assert columns["class_miscoverage"][1] == [0.1, None, 0.2]
    lowest, middle, highest = columns["thresholds"][0]
    assert (lowest, middle, highest) == (-np.finfo(float).max, 0.5, np.finfo(float).max)


class Model:
    """Scores rows of two numbers unless one is refused, and counts how often it is asked."""

    def __init__(self, refuses=lambda rows: (rows < 0).any()):
        self.refuses, self.calls, self.most = refuses, 0, 0

    def __call__(self, rows):
        rows = np.asarray(rows)
        self.calls += 1
        self.most += len(rows)
        if self.refuses(rows):
            raise ValueError("refused")
        return 2.0 * rows


def numbered(n):
    return np.arange(1.0, 2 * n + 1).reshape(n, 2)


@pytest.mark.parametrize("bad", [[], [0], [6], [2, 3], [0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("most", [np.inf, serving.call_limit(7)])
def test_rows_that_a_model_cannot_score_are_found_and_the_others_scored(bad, most):
    data = numbered(7)
    data[bad] *= -1
    scores, failed = serving.score_rows(Model(), data, 2, most)
    assert sorted(failed) == bad
    assert {str(error) for error in failed.values()} <= {"refused"}
    good = [i for i in range(7) if i not in bad]
    assert (scores[good] == 2 * data[good]).all()
    assert np.isnan(scores[bad]).all()


def test_a_model_that_loses_rows_is_asked_for_each_alone():
    data = np.arange(8.0).reshape(4, 2)
    scores, failed = serving.score_rows(lambda rows: np.asarray(rows)[:1], data, 2)
    assert not failed
    assert scores.tolist() == data.tolist()


def test_rows_of_dictionaries_of_arrays_can_be_scored_apart():
    data = {"x": np.array([[1.0, 2.0], [-1.0, 0.0], [3.0, 4.0]])}
    model = Model()
    scores, failed = serving.score_rows(lambda part: model(part["x"]), data, 2)
    assert list(failed) == [1]
    assert scores[2].tolist() == [6.0, 8.0]


def refuses_gaps(rows):
    return not np.isfinite(rows.astype(float)).all()


GAPS = [(k, gap) for k in ("frame", "array", "dictionary", "pictures") for gap in (np.nan, np.inf)]


@pytest.mark.parametrize(("kind", "gap"), [*GAPS, ("objects", np.nan)])
def test_rows_with_gaps_that_a_model_refuses_are_known_from_a_few_of_them(kind, gap):
    n = 5_000
    data = numbered(n)
    data[::2, 1] = gap
    model = Model(refuses_gaps)
    made = {
        "frame": lambda: pd.DataFrame(data),
        "array": lambda: data,
        "dictionary": lambda: {"x": data},
        "objects": lambda: np.where(np.isnan(data), None, data.astype(object)),
        "pictures": lambda: data.reshape(n, 1, 2),
    }[kind]()

    def score(part):
        rows = part["x"] if kind == "dictionary" else np.asarray(part)
        return model(np.array(rows, dtype=float).reshape(-1, 2))

    scores, failed = serving.score_rows(score, made, 2, serving.call_limit(n))
    assert sorted(failed) == list(range(0, n, 2))
    assert (scores[1::2] == 2 * data[1::2]).all()
    assert model.calls <= 4
    assert model.most <= 1.5 * n + 2


def test_gaps_that_a_model_takes_are_no_reason_to_leave_rows_out():
    data = numbered(4_000)
    data[::2, 1] = np.nan
    data[17, 0] = -1.0
    data[0, 0] = -2.0  # the first row that has a gap is bad for another reason
    model = Model(lambda rows: (rows[:, 0] < 0).any())
    scores, failed = serving.score_rows(model, data, 2, serving.call_limit(len(data)))
    assert {0, 17} <= set(failed)
    assert len(failed) < 100
    left = [row for row, error in failed.items() if isinstance(error, serving.NotTriedError)]
    assert set(failed) - set(left) <= {0, 17}
    assert np.isfinite(scores[:, 0]).sum() == 4_000 - len(failed)


def test_of_two_gaps_only_the_refused_one_sets_rows_apart():
    data = numbered(3_000)
    data[::3, 0] = np.nan  # taken
    data[1::3, 1] = np.nan  # refused
    data[9, 1] = np.nan  # both
    model = Model(lambda rows: np.isnan(rows[:, 1]).any())
    scores, failed = serving.score_rows(model, data, 2, serving.call_limit(len(data)))
    assert sorted(failed) == sorted([*range(1, 3_000, 3), 9])
    assert np.isnan(scores[0, 0])
    assert scores[0, 1] == 4.0
    assert model.calls <= 8


bad_rows = st.one_of(
    st.sets(st.integers(0, 299)),
    st.integers(1, 40).map(lambda step: set(range(0, 300, step))),
    st.tuples(st.integers(0, 299), st.integers(0, 299)).map(lambda ends: set(range(*sorted(ends)))),
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), bad_rows, bad_rows, st.booleans())
def test_the_calls_are_bounded_and_no_bad_row_is_answered(n, refused, missing, takes_gaps):
    data = numbered(n)
    refused, missing = ({row for row in rows if row < n} for rows in (refused, missing))
    data[sorted(refused), 0] *= -1
    data[sorted(missing), 1] = np.nan
    model = Model(lambda rows: (rows < 0).any() or (not takes_gaps and np.isnan(rows).any()))
    scores, failed = serving.score_rows(model, data, 2, serving.call_limit(len(data)))
    assert model.calls <= serving.call_limit(n)
    bad = refused if takes_gaps else refused | missing
    assert bad <= set(failed)
    for row, error in failed.items():
        assert row in bad or isinstance(error, serving.NotTriedError) or row in missing
        assert np.isnan(scores[row]).all()
    found = [row for row in range(n) if row not in failed]
    assert (scores[found, 0] == 2 * data[found, 0]).all()
    scores, failed = serving.score_rows(model, data, 2)
    assert bad <= set(failed)
    assert not any(isinstance(error, serving.NotTriedError) for error in failed.values())


def test_rows_that_the_calls_did_not_reach_say_so():
    scores = np.full((3, 3), np.nan)
    scores[0] = [0.9, 0.1, 0.1]
    columns = serving.served_columns(RULE, scores, CLASSES, not_tried=[2])
    assert columns["reason"].tolist() == ["", "invalid_scores", "not_scored"]
    assert [len(names) for names in columns["candidates"]] == [1, 0, 0]
