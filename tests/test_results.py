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
    predict_sets,
    to_json,
)
from scrib_mlflow.serving import rule_sets
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
    assert fields["schema_version"] == 8
    assert fields["by_class"]["0"]["risk"] == "NaN"
    rule = json.loads(to_json(ThresholdRule(thresholds=(-np.inf, 0.5))), parse_constant=refuse)
    assert rule["thresholds"] == ["-Infinity", 0.5]


STORED = """{
  "schema_version": 8,
  "type": "threshold_rule",
  "thresholds": [
    1e-07,
    1e+16,
    0.30000000000000004,
    -0.0,
    "-Infinity"
  ],
  "answers": "top",
  "recalibration": null,
  "candidate_thresholds": null,
  "max_candidates": null,
  "kind": "thresholds"
}"""


def test_the_text_is_that_of_files_already_stored_byte_for_byte():
    assert to_json(from_json(STORED)) == STORED


OLDER = {
    "thresholds": """{"schema_version": 4, "type": "threshold_rule", "thresholds": [0.5, 0.1],
        "kind": "thresholds"}""",
    "optimal": """{"schema_version": 4, "type": "optimal_rule", "multipliers": [1.0, 8.0],
        "charges": [0.0, 0.0], "recalibration": null, "candidate_thresholds": ["Infinity", 0.5],
        "kind": "optimal"}""",
}


@pytest.mark.parametrize("kind", OLDER)
def test_rules_stored_before_there_were_answers_may_still_answer_any_class(kind):
    rule = from_json(OLDER[kind])
    assert rule.answers == "any"
    scores = [[0.4, 0.6], [0.6, 0.4], [0.45, 0.55]]
    assert predict_sets(scores, rule).tolist()[0] == [False, True]
    served = rule_sets(json.loads(OLDER[kind]), scores)  # as the served file reads it
    assert served.tolist() == predict_sets(scores, rule).tolist()
    if kind == "optimal":  # worth 0.6 and 3.2: not the top class
        assert served.tolist()[1] == [False, True]


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
        (STORED.replace("top", "all"), "damaged at 'answers'"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(ScribError, match=message):
        from_json(text)


def test_other_values_are_refused():
    with pytest.raises(ScribError, match="a float has no JSON form"):
        to_json(0.5)
