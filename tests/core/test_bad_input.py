"""Bad input: the error names the value, the place and the way out; nothing crashes."""

import numpy as np
import pytest

from scrib_mlflow import ScribError, evaluate_sets, fit_label, fit_sgr, fit_thresholds, predict_sets
from scrib_mlflow.synthetic import draw_scores

SCORES, LABELS = draw_scores(60, seed=1)
LABELS[:5] = np.arange(5)
NAMES = ("W", "N1", "N2", "N3", "REM")


def changed(array, where, value):
    copy = np.array(array, dtype=object if isinstance(value, str) else None)
    copy[where] = value
    return copy


BAD_ROWS = {
    "NaN": (changed(SCORES, (7, 2), np.nan), LABELS, r"scores\[7, 2\] is nan; drop or impute"),
    "infinite": (changed(SCORES, (0, 1), np.inf), LABELS, r"scores\[0, 1\] is inf"),
    "one column": (SCORES[:, 0], LABELS, r"two dimensions.*got shape \(60,\).*column_stack"),
    "one class": (SCORES[:, :1], LABELS, "2 or more classes, got 1"),
    "text": ([["a", "b"], ["c", "d"]], [0, 1], "scores must be numbers"),
    "no rows": (SCORES[:0], LABELS[:0], "0 rows, but at least 2"),
    "one row": (SCORES[:1], LABELS[:1], "1 rows, but at least 2"),
    "short labels": (SCORES, LABELS[:-1], r"each of the 60 rows.*got shape \(59,\)"),
    "label -1": (SCORES, changed(LABELS, 3, -1), r"labels\[3\] is -1, which is no class"),
    "label K": (SCORES, changed(LABELS, 3, 5), r"labels\[3\] is 5.*index from 0 to 4"),
    "huge label": (SCORES, changed(LABELS, 3, 2**62), r"labels\[3\] is 4611686018427387904"),
    "half label": (SCORES, changed(LABELS * 1.0, 3, 0.5), r"labels\[3\] is 0.5"),
    "NaN label": (
        SCORES,
        changed(LABELS * 1.0, 3, np.nan),
        "1 of 60 rows has no label, the first is row 3",
    ),
    "unknown name": (
        SCORES,
        changed(LABELS, 9, "N9"),
        r"labels\[9\] is 'N9'.*classes are '0', '1'",
    ),
    "class without rows": (SCORES, LABELS * (LABELS != 3), "no row has class '3'.*waive it"),
    "soft shape": (SCORES, SCORES[:, :4], r"shape of scores \(60, 5\), got \(60, 4\)"),
    "text as soft": (
        SCORES,
        SCORES.astype(str).astype(object) + "x",
        "soft labels must be numbers",
    ),
    "ragged labels": (SCORES, [[0], [0, 1]] * 30, "one for each of the 60 rows"),
    "complex": (SCORES * 1j, LABELS, "complex"),
    "None label": (
        SCORES,
        changed(LABELS.astype(object), 3, None),
        "has no label, the first is row 3,",
    ),
    "empty labels": (
        SCORES,
        changed(LABELS.astype(str).astype(object), slice(7, 10), " "),
        "3 of 60 rows have no label, the first is row 7, counted from 0; drop them.*path_data",
    ),
    "negative soft": (SCORES, -SCORES, r"soft labels\[0, 0\] is -"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused(case):
    scores, labels, text = BAD_ROWS[case]
    with pytest.raises(ScribError, match=text):
        fit_thresholds(scores, labels)


BAD_OPTIONS = {
    "target 0": ({"risk_targets": 0}, "risk_targets is 0, but a target lies between 0 and 1"),
    "target 1": ({"risk_targets": 1.0}, "risk_targets is 1"),
    "target in percent": (
        {"risk_targets": {"N1": 10, "default": 0.1}},
        r"risk_targets\['N1'\] is 10, .*did you mean 0.1\?",
    ),
    "NaN target": ({"risk_targets": float("nan")}, "risk_targets is nan"),
    "target as text": ({"risk_targets": "high"}, "risk_targets is 'high', but must be a number"),
    "overall": ({"overall_target": -0.1}, "overall_target is -0.1"),
    "misspelt class": (
        {"risk_targets": {"RME": 0.1, "default": 0.2}},
        "risk_targets names the unknown class 'RME'; did you mean 'REM'?",
    ),
    "unlike class": (
        {"waive": ["zzz"]},
        "waive names the unknown class 'zzz'; known are 'W', 'N1'",
    ),
    "class left out": ({"risk_targets": {"N1": 0.1}}, "no target covers class 'W'.*'default'"),
    "no targets": ({"risk_targets": None}, "no target covers class 'W'"),
    "group of none": ({"risk_groups": {"g": ((), 0.1)}}, "risk_groups.*names no class"),
    "group of unknown": ({"risk_groups": {"g": (("N7",), 0.1)}}, "unknown class 'N7'"),
    "cap": ({"max_class_abstention": {"N1": 1.5}}, r"max_class_abstention\['N1'\] is 1.5"),
    "negative error weight": ({"error_weight": -1.0}, "error_weight is -1.0, but must be a finite"),
    "unknown answers": ({"answers": "all"}, "answers is 'all'; use 'top' or 'any'"),
    "weight as text": ({"empty_weight": "much"}, "empty_weight is 'much', but must be a finite"),
    "group without target": ({"risk_groups": {"g": 0.1}}, r"must be \(class names, target\)"),
    "group named like a class": ({"risk_groups": {"N1": (("W",), 0.1)}}, "take another name"),
    "class named twice": ({"risk_targets": {0: 0.1, "0": 0.2}, "classes": None}, "twice"),
    "waive nothing known": ({"waive": None}, "waive is None, but must be a list"),
    "confidence as text": ({"confidence": "high"}, "confidence is 'high', but must be a number"),
    "too many certify rows": ({"confidence": 0.9, "certify_rows": 1e12}, "certify_rows must lie"),
    "no threads": ({"threads": 0}, "threads must lie between"),
    "threads as text": ({"threads": "two"}, "threads is 'two'"),
    "threshold groups missing": (
        {"threshold_groups": None},
        "threshold_groups is None, but must be a list of class names",
    ),
    "initial as text": ({"initial": ["a"] * 5}, "initial must be numbers"),
    "classes as number": ({"classes": 3}, "classes must be a list of names"),
    "huge weights": (
        {"sample_weight": np.full(60, 1e308)},
        r"sample_weight is 1e\+308; scale them",
    ),
    "tiny weights": ({"sample_weight": np.full(60, 1e-320)}, "scale them"),
    "weights as text": ({"sample_weight": ["a"] * 60}, "sample_weight must be numbers"),
    "negative penalty": ({"penalty": -1}, "penalty.*is -1"),
    "penalty of unknown": ({"penalty": {"N8": 1.0, "default": 1.0}}, "'N8', no class and no group"),
    "penalty without default": ({"penalty": {"N1": 1.0}}, "penalty has no 'default'"),
    "free empty sets": ({"empty_weight": 0.0}, "empty_weight is 0.*hardly ever answer"),
    "empty below size": ({"size_weight": 2.0}, "empty_weight is 1 with size_weight 2"),
    "negative weight": ({"chance_weight": -1.0}, "chance_weight is -1"),
    "weights": ({"sample_weight": changed(np.ones(60), 4, -2.0)}, r"sample_weight\[4\] is -2"),
    "NaN weight": (
        {"sample_weight": changed(np.ones(60), 4, np.nan)},
        r"sample_weight\[4\] is nan",
    ),
    "no weight": ({"sample_weight": np.zeros(60)}, "0 in every row"),
    "one weighted row": ({"sample_weight": np.eye(60)[0]}, "only 1 rows have a weight above 0"),
    "weights shape": ({"sample_weight": np.ones(3)}, r"each of the 60 rows, got shape \(3,\)"),
    "confidence": ({"confidence": 95}, "confidence must lie between 0 and 1, got 95"),
    "certify rows alone": ({"certify_rows": 5}, "certify_rows is 5 without a confidence"),
    "certify no rows": ({"confidence": 0.9, "certify_rows": 0}, "certify_rows must lie between"),
    "threshold groups": ({"threshold_groups": "each"}, "threshold_groups is 'each'"),
    "threshold of unknown": (
        {"threshold_groups": ["N5"]},
        "threshold_groups names the unknown class 'N5'",
    ),
    "initial": ({"initial": [0.5]}, "initial must be 5 thresholds"),
    "seed": ({"seed": -1}, "seed is -1"),
    "effort": ({"effort": 0}, "effort must be above 0, got 0"),
    "class names": ({"classes": NAMES[:4]}, "classes names 4 classes but scores have 5"),
    "names twice": ({"classes": ("a", "a", "b", "c", "d")}, "'a' stand more than once"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_refused(case):
    options, text = BAD_OPTIONS[case]
    with pytest.raises(ScribError, match=text):
        fit_thresholds(SCORES, LABELS, **{"classes": NAMES, **options})


def test_bad_rules_are_refused():
    with pytest.raises(ScribError, match="2 thresholds but scores have 5 columns"):
        predict_sets(SCORES, [0.1, 0.2])
    with pytest.raises(ScribError, match="NaN"):
        predict_sets(SCORES, [0.1, np.nan, 0.1, 0.1, 0.1])
    with pytest.raises(ScribError, match="confidence must lie"):
        evaluate_sets(SCORES, LABELS, [0.5] * 5, confidence=1.5)
    with pytest.raises(ScribError, match="delta must lie"):
        fit_sgr(SCORES, LABELS, delta=1)
    with pytest.raises(ScribError, match="not soft labels"):
        fit_label(SCORES, SCORES)


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("a", "b", "c", "d", "e"), LABELS),
        (("a", "b", "c", "d", "e"), np.array(list("abcde"))[LABELS]),
        (("a", "b", "c", "d", "e"), np.array(list("abcde"), dtype=object)[LABELS]),
        (("4", "3", "2", "1", "0"), 4 - LABELS),
        (("1", "2", "3", "4", "5"), LABELS + 1.0),
        (("1.0", "2.0", "3.0", "4.0", "5.0"), LABELS + 1.0),
        (None, LABELS.astype(np.uint8)),
        (None, LABELS.astype(str)),
        (("1.0", "2.0", "3.0", "4.0", "5.0"), LABELS + 1),
        (("a", "b", "c", "d", "e"), LABELS.astype(object)),
    ],
    ids=[
        "indices",
        "names",
        "objects",
        "reversed",
        "floats",
        "float names",
        "bytes",
        "text",
        "float names of whole labels",
        "indices as objects",
    ],
)
def test_labels_mean_names_first_and_indices_where_no_name_is_a_number(names, labels):
    wanted = fit_thresholds(SCORES, LABELS, effort=0.1)
    assert fit_thresholds(SCORES, labels, classes=names, effort=0.1).thresholds == wanted.thresholds


def test_an_absent_class_is_refused_whatever_the_target():
    present = LABELS != 2
    with pytest.raises(ScribError, match="no row has class '2'"):
        fit_thresholds(SCORES[present], LABELS[present], None, overall_target=0.1)
    options = {"waive": ["2"], "max_class_abstention": 0.9, "effort": 0.1}
    assert fit_thresholds(SCORES[present], LABELS[present], **options).loss >= 0


def test_nothing_to_enforce_is_allowed():
    fit = fit_thresholds(SCORES, LABELS, waive=["0", "1", "2", "3", "4"], effort=0.1)
    assert fit.loss == 0
    assert fit.constraints == ()


def test_truth_values_are_names_where_classes_are_named_so():
    scores = np.column_stack([SCORES[:, 0], 1 - SCORES[:, 0]])
    truth = scores[:, 0] > 0.5
    fits = [
        fit_thresholds(scores, truth, classes=names, effort=0.1).loss
        for names in (("True", "False"), ("False", "True"))
    ]
    assert fits[0] == 0
    assert fits[1] > 0
