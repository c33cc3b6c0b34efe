"""Results through JSON and back, bit for bit."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from scrib_mlflow import (
    ScribError,
    SelectiveRule,
    ThresholdRule,
    TopRule,
    evaluate_sets,
    fit_sgr,
    fit_thresholds,
    fit_top1,
    from_json,
    to_json,
)
from scrib_mlflow.synthetic import draw_scores

SCORES, LABELS = draw_scores(400)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_thresholds_come_back_bit_for_bit(thresholds):
    rule = ThresholdRule(thresholds=tuple(thresholds))
    back = from_json(to_json(rule))
    assert back == rule
    assert np.array(back.thresholds).tobytes() == np.array(thresholds).tobytes()


@pytest.mark.parametrize(
    "rule", [SelectiveRule(threshold=0.1 + 0.2), TopRule()], ids=lambda r: r.kind
)
def test_other_rules_come_back(rule):
    assert from_json(to_json(rule)) == rule


def test_fits_and_reports_come_back_equal():
    for fit in (
        fit_thresholds(SCORES, LABELS, overall_target=0.1, effort=0.1),
        fit_thresholds(np.log(SCORES), LABELS, effort=0.1),
        fit_sgr(SCORES, LABELS),
        fit_top1(SCORES, LABELS),
    ):
        report = evaluate_sets(SCORES, LABELS, fit.rule)
        weighted = evaluate_sets(SCORES, LABELS, fit.rule, sample_weight=SCORES[:, 0])
        for value in (fit, report, weighted):
            text = to_json(value)
            assert to_json(from_json(text)) == text
            assert type(from_json(text)) is type(value)
            if "NaN" not in text:
                assert from_json(text) == value


def test_text_is_json_for_every_reader():
    def refuse(name):
        raise AssertionError(name)

    report = evaluate_sets(SCORES[:1], LABELS[:1], [-np.inf] * 5)
    fields = json.loads(to_json(report), parse_constant=refuse)
    assert fields["schema_version"] == 4
    assert fields["by_class"]["0"]["risk"] == "NaN"
    rule = json.loads(to_json(ThresholdRule(thresholds=(-np.inf, 0.5))), parse_constant=refuse)
    assert rule["thresholds"] == ["-Infinity", 0.5]


STORED = """{
  "schema_version": 4,
  "type": "threshold_rule",
  "thresholds": [
    1e-07,
    1e+16,
    0.30000000000000004,
    -0.0,
    "-Infinity"
  ],
  "kind": "thresholds"
}"""


def test_the_text_is_that_of_files_already_stored_byte_for_byte():
    assert to_json(from_json(STORED)) == STORED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a result"),
        ("[]", "not a result"),
        ("{}", "not a result"),
        ('{"schema_version": 9, "type": "fit"}', "version 9 of 'fit' is unknown"),
        ('{"schema_version": 3, "type": "tree"}', "of 'tree' is unknown"),
        ('{"schema_version": 3, "type": ["fit"]}', "is unknown"),
        ('{"schema_version": 3, "type": "threshold_rule", "thresholds": ["x"]}', "damaged at"),
        ('{"schema_version": 3, "type": "top_rule", "more": 1}', "damaged: it has"),
        ('{"schema_version": 3, "type": "fit", "rule": {}}', "damaged: it has"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(ScribError, match=message):
        from_json(text)


def test_other_values_are_refused():
    with pytest.raises(ScribError, match="a float has no JSON form"):
        to_json(0.5)
