"""Accuracy-ambiguity curves, against scikit-learn, counts by hand and the best possible curve."""

import numpy as np
import pytest
from sklearn import metrics

from scrib_mlflow import (
    ScribError,
    evaluate_sets,
    fit_optimal,
    fit_sgr,
    fit_thresholds,
    predict_sets,
)
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.studies import draw_curves
from scrib_mlflow.core.studies.curves import anchored, area, spread_targets
from scrib_mlflow.synthetic import draw_scores

N = 2000
SCORES, LABELS = draw_scores(2 * N, noise=3**0.5, seed=8)
FIT, TEST = (SCORES[:N], LABELS[:N]), (SCORES[N:], LABELS[N:])
ASKED = {"penalty": 1e4, "two_sided_penalty": 1.0}


@pytest.fixture(scope="module")
def drawn():
    curves = draw_curves(*FIT, *TEST, stride=0.03, trust={"same": (FIT[0].max(1), TEST[0].max(1))})
    return {curve.method: curve for curve in curves}


def best_accuracies():
    """Return the accuracy among the 1, 2, ... rows of the test with the highest probability."""
    order = np.argsort(-TEST[0].max(axis=1))
    right = (TEST[0].argmax(axis=1) == TEST[1])[order]
    return np.cumsum(right) / np.arange(1, N + 1)


def test_the_area_is_that_of_scikit_learn():
    random = np.random.default_rng(0)
    ambiguity, risk = random.random(30), random.random(30)
    order = np.argsort(ambiguity)
    across = [0, *ambiguity[order], 1]
    up = [0.7, *(1 - risk[order]), 1]
    expected = metrics.auc(across, up)
    assert area(*anchored(ambiguity, risk, 0.3)) == pytest.approx(expected, abs=1e-12)


def test_points_are_sorted_ties_averaged_and_what_is_undefined_left_out():
    across, up = anchored([0.6, 0.2, 0.2, 0.9, 0], [0.1, 0.4, 0.2, np.nan, 0.4], 0.5)
    assert across == (0, 0.2, 0.6, 1)
    assert up == pytest.approx((0.5, 0.7, 0.9, 1.0))
    assert area(across, up) == pytest.approx(0.2 * 0.6 + 0.4 * 0.8 + 0.4 * 0.95)


def test_every_method_has_the_same_two_end_points(drawn):
    assert [*drawn] == ["SCRIB", "optimal", "SCRIB-", "SGR", "SGR on same"]
    top = (TEST[0].argmax(axis=1) == TEST[1]).mean()
    for curve in drawn.values():
        across, up = curve.points()
        assert (across[0], across[-1]) == (0, 1)
        assert (up[0], up[-1]) == pytest.approx((top, 1))
        assert curve.auc == pytest.approx(metrics.auc(across, up))
        assert curve.targets == spread_targets((FIT[0].argmax(1) != FIT[1]).mean(), 0.03)


def test_points_are_what_the_fitted_rules_do_on_the_measured_rows(drawn):
    curve = drawn["SGR"]
    first = fit_thresholds(*FIT, None, overall_target=0.03, effort=0.1, **ASKED)
    reports = [evaluate_sets(*TEST, fit_sgr(*FIT, r, delta=0.8)) for r in curve.targets]
    assert curve.ambiguity == pytest.approx([report.abstention_rate for report in reports])
    risks = [report.overall_risk for report in reports]
    assert curve.risk == pytest.approx(risks)
    off = np.array(risks) - curve.targets
    assert curve.rmse == pytest.approx(np.sqrt((off**2).mean()))
    assert drawn["SGR on same"].auc == curve.auc
    scrib = evaluate_sets(*TEST, first)
    assert drawn["SCRIB"].ambiguity[0] == pytest.approx(scrib.abstention_rate)
    assert drawn["SCRIB"].risk[0] == pytest.approx(scrib.overall_risk)


def test_methods_come_close_to_the_best_curve_where_scores_are_the_true_probabilities(drawn):
    best = best_accuracies()
    whole = best.mean()  # over all rates of abstention
    for method, most in {"SGR": 0.004, "optimal": 0.004, "SCRIB-": 0.006, "SCRIB": 0.012}.items():
        curve = drawn[method]
        assert whole - most < curve.auc < whole + 0.002
        for ambiguity, risk in zip(curve.ambiguity, curve.risk, strict=True):
            n_certain = round((1 - ambiguity) * N)
            assert 1 - risk < best[n_certain - 1] + 0.02
    assert drawn["SGR"].auc >= drawn["SCRIB"].auc


def test_a_search_from_the_target_before_loses_nothing_that_shows():
    (quick,) = draw_curves(*FIT, *TEST, stride=0.06, methods=["SCRIB"])
    cold = [
        evaluate_sets(*TEST, fit_thresholds(*FIT, None, overall_target=r, **ASKED))
        for r in quick.targets
    ]
    ambiguity = [report.abstention_rate for report in cold]
    risks = [report.overall_risk for report in cold]
    slow = area(*anchored(ambiguity, risks, quick.top_risk))
    assert quick.auc == pytest.approx(slow, abs=0.002)


def test_the_optimal_rule_of_one_target_is_a_threshold_on_the_highest_probability():
    fit = fit_optimal(*FIT, None, overall_target=0.1)
    highest = recalibrate(fit.rule.recalibration, FIT[0]).max(axis=1)
    certain = predict_sets(FIT[0], fit).sum(axis=1) == 1
    assert highest[certain].min() >= highest[~certain].max()


def test_of_all_such_thresholds_it_takes_the_one_with_the_least_loss():
    (curve,) = draw_curves(*FIT, *FIT, stride=0.05, methods=["optimal"])
    chances = recalibrate(fit_recalibration(*FIT), FIT[0])
    order = np.argsort(-chances.max(axis=1))
    wrong = (chances.argmax(axis=1) != FIT[1])[order]
    n_certain = np.arange(1, N + 1)
    risks = np.cumsum(wrong) / n_certain
    for target, ambiguity, risk in zip(curve.targets, curve.ambiguity, curve.risk, strict=True):
        off = np.append(risks, risk) - target
        rates = np.append(1 - n_certain / N, ambiguity)
        losses = rates + 1e4 * np.maximum(off, 0) ** 2 + off**2
        assert losses[-1] == pytest.approx(losses[:-1].min(), abs=1e-12)


def test_targets_are_a_stride_apart_up_to_the_risk_of_the_top_class():
    assert spread_targets(0.2557) == pytest.approx([i / 100 for i in range(1, 26)])
    assert spread_targets(0.07) == pytest.approx([i / 100 for i in range(1, 8)])
    assert spread_targets(0.01) == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01])
    assert spread_targets(0.0) == ()


def test_a_method_that_is_never_certain_has_no_area():
    flat = {"flat": (np.zeros(N), np.zeros(N))}
    (curve,) = draw_curves(*FIT, *TEST, stride=0.1, methods=[], trust=flat)
    assert curve.method == "SGR on flat"
    assert set(curve.ambiguity) == {1.0}
    assert np.isnan(curve.risk).all()
    assert np.isnan(curve.auc)
    assert np.isnan(curve.rmse)


def test_scores_that_are_never_wrong_give_no_target():
    right = np.eye(5)[LABELS[:100]]
    for curve in draw_curves(right, LABELS[:100], right, LABELS[:100]):
        assert curve.targets == ()
        assert np.isnan(curve.auc)


def test_scores_that_are_no_probabilities_have_no_curve_of_the_optimal_rule():
    logits = np.log(SCORES[: 2 * 300])
    given = (logits[:300], LABELS[:300], logits[300:], LABELS[300:600])
    names = [curve.method for curve in draw_curves(*given, stride=0.1)]
    assert names == ["SCRIB", "SCRIB-", "SGR"]
    with pytest.raises(ScribError, match="no probabilities"):
        draw_curves(*given, methods=["optimal"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"methods": ["LABEL"]}, "methods has 'LABEL'; known are SCRIB, optimal, SCRIB-, SGR"),
        ({"fit_labels": FIT[0]}, "not soft labels"),
        ({"test_scores": TEST[0][:, :3], "test_labels": TEST[1] % 3}, "5 columns, those to meas"),
        ({"stride": 0}, "stride must lie between 0 and 1"),
        ({"delta": 1}, "delta must lie between 0 and 1"),
        ({"trust": {"short": ([1.0], [1.0])}}, "trust must be 2000 numbers"),
    ],
)
def test_what_cannot_be_drawn_is_told(changed, message):
    given = {"fit_scores": FIT[0], "fit_labels": FIT[1], "test_scores": TEST[0]}
    given |= {"test_labels": TEST[1], "methods": ["SGR"], **changed}
    with pytest.raises(ScribError, match=message):
        draw_curves(**given)


def test_many_classes_get_few_targets():
    random = np.random.default_rng(0)
    scores = random.dirichlet(np.full(25, 0.1), 400)
    labels = np.array([random.choice(25, p=row) for row in scores])
    (curve,) = draw_curves(scores, labels, scores, labels, methods=["SGR"])
    assert len(curve.targets) == 8
    assert curve.targets[-1] == pytest.approx((scores.argmax(axis=1) != labels).mean())
