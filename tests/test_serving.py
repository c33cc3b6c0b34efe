"""The served file's pure part: sets to columns, outputs to scores, bad rows apart from good."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
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


def test_an_empty_row_names_the_two_classes_nearest_their_thresholds():
    expected = ["", True, "empty", [], 0, ["c", "a"]]
    assert list(one([0.30, 0.1, 0.25]).values()) == expected


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
        ([0.3, 0.1, 0.3], ["c", "a"], "ambiguous"),  # of equal scores the first is the top
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
    assert found["candidates"][0] == ["b", "a"]  # those worth most, as without


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
        limits = RULE["thresholds"]  # of equal scores, the one further above its threshold first
        ordered = [CLASSES[j] for j in sorted(members, key=lambda j: (-row[j], limits[j], j))]
        assert columns["prediction_set"][i] == ordered
        assert columns["set_size"][i] == len(members)
        assert columns["abstain"][i] == (len(members) != 1)
        assert columns["prediction"][i] == (ordered[0] if len(members) == 1 else "")
        assert len(columns["candidates"][i]) == (
            max(len(members), 2 * (not members)) if good else 0
        )


def test_explained_columns_are_json_even_for_rules_without_limits():
    rule = {"kind": "thresholds", "thresholds": [-np.inf, 0.5, np.inf]}
    scores = np.array([[0.1, 0.2, 0.3], [np.nan, 0.2, 0.3]])
    columns = serving.explained_columns(rule, scores, [0.1, float("nan"), 0.2])
    assert json.loads(json.dumps(columns, allow_nan=False)) == columns
    assert columns["scores"] == [[0.1, 0.2, 0.3], []]
    assert columns["class_miscoverage"][1] == [0.1, None, 0.2]
    lowest, middle, highest = columns["thresholds"][0]
    assert (lowest, middle, highest) == (-np.finfo(float).max, 0.5, np.finfo(float).max)


def doubled(rows):
    """Score like a model that cannot take numbers below 0."""
    rows = np.asarray(rows)
    if (rows < 0).any():
        raise ValueError("negative")
    return 2.0 * rows


@pytest.mark.parametrize("bad", [[], [0], [6], [2, 3], [0, 1, 2, 3, 4, 5, 6]])
def test_rows_that_a_model_cannot_score_are_found_and_the_others_scored(bad):
    data = np.arange(1.0, 15.0).reshape(7, 2)
    data[bad] *= -1
    scores, failed = serving.score_rows(doubled, data, 2)
    assert sorted(failed) == bad
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
    scores, failed = serving.score_rows(lambda part: doubled(part["x"]), data, 2)
    assert list(failed) == [1]
    assert scores[2].tolist() == [6.0, 8.0]
