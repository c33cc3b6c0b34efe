"""Reports against plain counts."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from scrib_mlflow import ScribError, SelectiveRule, evaluate_sets, fit_thresholds, predict_sets
from scrib_mlflow.core.bounds import risk_upper, risk_upper_kl
from scrib_mlflow.serving import rule_sets
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_counts


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 17]), st.booleans())
def test_report_is_what_plain_counts_say(seed, decimals, weighted):
    rng = np.random.default_rng(seed)
    scores, labels = draw_scores(80, seed=seed)
    scores = np.round(scores, decimals)
    thresholds = rng.random(5)
    weights = rng.random(80) if weighted else None
    (n, certain, wrong, missed), empty, size = naive_counts(scores, labels, thresholds, weights)
    report = evaluate_sets(scores, labels, thresholds, sample_weight=weights)
    total = n.sum()
    assert report.abstention_rate == pytest.approx(1 - certain.sum() / total)
    assert report.chance_ambiguity == pytest.approx(1 - (certain.sum() + empty) / total)
    assert report.empty_rate == pytest.approx(empty / total)
    assert report.size_ambiguity == pytest.approx(size / total)
    for k, of_class in enumerate(report.by_class.values()):
        counts = (of_class.n, of_class.n_certain, of_class.n_wrong)
        assert counts == pytest.approx((n[k], certain[k], wrong[k]))
        if certain[k] > 0:
            assert of_class.risk == pytest.approx(wrong[k] / certain[k])
        else:
            assert np.isnan(of_class.risk)
        if n[k] > 0:
            assert of_class.miscoverage == pytest.approx(missed[k] / n[k])
            assert of_class.abstention_rate == pytest.approx(1 - certain[k] / n[k])
        if weighted:
            assert np.isnan(of_class.risk_upper)
            assert np.isnan(of_class.risk_upper_kl)
        else:
            assert of_class.risk_upper == risk_upper(wrong[k], certain[k], 0.95)
            assert of_class.risk_upper_kl == risk_upper_kl(wrong[k], certain[k], 0.95)


def test_bounds_are_at_the_confidence_asked_for():
    scores, labels = draw_scores(300)
    reports = [evaluate_sets(scores, labels, [0.4] * 5, confidence=c) for c in (0.5, 0.99)]
    for report in reports:
        part = report.by_class["2"]
        assert part.risk_upper == risk_upper(part.n_wrong, part.n_certain, report.confidence)
        overall = risk_upper(report.n_wrong, report.n_certain, report.confidence)
        assert report.overall_risk_upper == overall
    assert reports[0].by_class["2"].risk_upper < reports[1].by_class["2"].risk_upper


def test_rows_without_finite_scores_are_never_certain_when_served():
    scores = [[np.nan, 0.9], [0.9, np.inf], [0.9, 0.1]]
    for rule in (
        {"kind": "thresholds", "thresholds": [0.5, 0.5]},
        {"kind": "selective", "threshold": 0.5},
        {"kind": "top1"},
    ):
        assert rule_sets(rule, scores).tolist() == [[False] * 2, [False] * 2, [True, False]]
    with pytest.raises(ScribError, match="NaN"):
        predict_sets([[0.9, 0.1]], SelectiveRule(threshold=float("nan")))


def test_weights_of_0_and_1_leave_rows_out_and_bounds_in():
    scores, labels = draw_scores(200)
    keep = np.arange(200) % 3 > 0
    some = evaluate_sets(scores, labels, [0.4] * 5, sample_weight=keep)
    assert some == evaluate_sets(scores[keep], labels[keep], [0.4] * 5)


def test_a_score_equal_to_its_threshold_is_in():
    assert predict_sets([[0.3, 0.2]], [0.3, 0.3]).tolist() == [[True, False]]
    assert predict_sets([[0.3, 0.2]], [-np.inf, np.inf]).tolist() == [[True, False]]


def test_scores_of_single_precision_are_compared_in_double():
    score = np.float32(0.1)
    assert predict_sets(np.array([[score, 0]], dtype=np.float32), [float(score), 1])[0, 0]
    assert not predict_sets(np.array([[score, 0]], dtype=np.float32), [0.1 + 1e-8, 1])[0, 0]


def test_one_row_can_be_measured_and_none_cannot():
    report = evaluate_sets([[0.9, 0.1]], [0], [0.5, 0.5], classes=["a", "b"])
    assert report.by_class["a"].risk == 0
    assert np.isnan(report.by_class["b"].miscoverage)
    assert report.by_class["b"].risk_upper == 1
    with pytest.raises(ScribError, match="0 rows"):
        evaluate_sets(np.zeros((0, 2)), [], [0.5, 0.5])


def test_a_fit_its_rule_and_its_thresholds_give_the_same_sets():
    scores, labels = draw_scores(100)
    fit = fit_thresholds(scores, labels, effort=0.1)
    sets = [predict_sets(scores, rule) for rule in (fit, fit.rule, fit.thresholds)]
    assert (sets[0] == sets[1]).all()
    assert (sets[0] == sets[2]).all()


@given(st.integers(0, 10_000), st.booleans())
def test_the_baseline_is_how_often_the_highest_score_is_wrong(seed, weighted):
    scores, labels = draw_scores(60, seed=seed)
    thresholds = np.random.default_rng(seed).random(5)
    weights = np.random.default_rng(seed + 1).random(60) if weighted else np.ones(60)
    report = evaluate_sets(scores, labels, thresholds, sample_weight=weights)
    certain = (scores >= thresholds).sum(axis=1) == 1
    wrong = scores.argmax(axis=1) != labels

    def risk(of):
        return np.average(wrong[of], weights=weights[of]) if of.any() else np.nan

    every = np.ones(60, dtype=bool)
    found = report.overall_top1_risk, report.overall_top1_risk_certain
    assert found == pytest.approx((risk(every), risk(certain)), nan_ok=True)
    for j, of_class in enumerate(report.by_class.values()):
        own = labels == j
        found = of_class.top1_risk, of_class.top1_risk_certain
        assert found == pytest.approx((risk(own), risk(own & certain)), nan_ok=True)
    soft = np.eye(5)[labels]
    assert np.isnan(evaluate_sets(scores, soft, thresholds).overall_top1_risk)
