"""Baselines against their closed forms."""

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow import (
    ScribError,
    evaluate_sets,
    fit_label,
    fit_sgr,
    fit_shared_threshold,
    fit_thresholds,
    fit_top1,
    predict_sets,
)
from scrib_mlflow.synthetic import draw_scores

SCORES, LABELS = draw_scores(3_000, seed=6)


def test_top1_never_abstains_and_errs_like_argmax():
    fit = fit_top1(SCORES, LABELS)
    report = evaluate_sets(SCORES, LABELS, fit)
    assert report.abstention_rate == 0
    assert report.overall_risk == (SCORES.argmax(axis=1) != LABELS).mean()
    with pytest.raises(AttributeError, match="'top1' has no thresholds"):
        _ = fit.thresholds


def test_ties_of_top1_go_to_the_first_class():
    assert predict_sets([[0.4, 0.4, 0.2]], fit_top1(SCORES, LABELS).rule).tolist() == [
        [True, False, False]
    ]


@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_sgr_keeps_its_exact_bound_and_abstains_with_all_classes(decimals):
    scores = np.round(SCORES, decimals)
    fit = fit_sgr(scores, LABELS, 0.1, delta=0.05)
    report = evaluate_sets(scores, LABELS, fit)
    steps = int(np.ceil(np.log2(len(scores))))
    wrong, n = report.n_wrong, report.n_certain
    assert 0 < n < len(scores)
    assert stats.beta.ppf(1 - 0.05 / steps, wrong + 1, n - wrong) < 0.1
    assert report.chance_ambiguity == report.abstention_rate
    assert report.empty_rate == 0
    sets = predict_sets(scores, fit.rule)
    assert set(sets.sum(axis=1)) == {1, 5}


def test_sgr_on_a_confidence_of_its_own_keeps_the_surest_rows():
    trust = -np.abs(np.arange(3_000.0) - 500)
    fit = fit_sgr(SCORES, LABELS, 0.25, trust=trust)
    certain = predict_sets(SCORES, fit.rule, trust=trust).sum(axis=1) == 1
    assert (certain == (trust >= fit.rule.threshold)).all()
    assert certain.any()
    assert evaluate_sets(SCORES, LABELS, fit, trust=trust).n_certain == certain.sum()
    weights = np.arange(3_000) % 2
    some = evaluate_sets(SCORES, LABELS, fit, trust=trust, sample_weight=weights)
    assert some.n_certain == certain[1::2].sum()
    with pytest.raises(ScribError, match="fitted on trust; pass"):
        predict_sets(SCORES, fit)
    with pytest.raises(ScribError, match="does not use it"):
        predict_sets(SCORES, fit_sgr(SCORES, LABELS), trust=trust)
    with pytest.raises(ScribError, match="one a row"):
        evaluate_sets(SCORES, LABELS, fit, trust=trust[:5], sample_weight=weights)


def test_sgr_abstains_always_where_nothing_passes():
    labels = (SCORES.argmax(axis=1) + 1) % 5
    fit = fit_sgr(SCORES, labels)
    assert fit.rule.threshold == np.inf
    assert evaluate_sets(SCORES, labels, fit).abstention_rate == 1


@pytest.mark.slow
def test_sgr_exceeds_its_target_no_more_often_than_delta():
    exceeded = 0
    for seed in range(200):
        scores, labels = draw_scores(1_000, seed=seed)
        rule = fit_sgr(scores, labels, 0.1, delta=0.2).rule
        fresh, truth = draw_scores(20_000, seed=10_000 + seed)
        exceeded += evaluate_sets(fresh, truth, rule).overall_risk > 0.1
    assert exceeded / 200 <= 0.2


@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_label_is_the_highest_threshold_within_each_target(decimals):
    scores = np.round(SCORES, decimals)
    targets = {"1": 0.3, "default": 0.1}
    fit = fit_label(scores, LABELS, targets)
    for k, threshold in enumerate(fit.thresholds):
        own = scores[k == LABELS, k]
        target = targets.get(str(k), 0.1)
        assert (own < threshold).mean() <= target
        higher = np.unique(own[own >= threshold])
        assert (own < higher[1]).mean() > target


def test_label_needs_targets():
    with pytest.raises(ScribError, match="no target covers class '0'"):
        fit_label(SCORES, LABELS, None)


def test_conformal_label_keeps_a_rank_more():
    own = np.sort(SCORES[LABELS == 1, 1])
    target = 0.1
    threshold = fit_label(SCORES, LABELS, target, conformal=True).thresholds[1]
    rank = int(target * (len(own) + 1))
    assert (own < threshold).sum() == rank - 1
    few = fit_label(SCORES[:400], LABELS[:400], 0.001, conformal=True)
    assert set(few.thresholds) == {-np.inf}


@pytest.mark.slow
def test_conformal_label_covers_new_rows_on_average():
    missed = []
    for seed in range(300):
        scores, labels = draw_scores(200, seed=seed)
        rule = fit_label(scores, labels, 0.1, conformal=True, waive=["1"]).rule
        fresh, truth = draw_scores(2_000, seed=5_000 + seed)
        missed.append(evaluate_sets(fresh, truth, rule).by_class["0"].miscoverage)
    assert np.mean(missed) <= 0.1 + 3 * np.std(missed) / np.sqrt(len(missed))


def test_one_threshold_is_never_better_than_one_for_each_class():
    shared = fit_shared_threshold(SCORES, LABELS)
    assert shared.method == "scrib-"
    assert len(set(shared.thresholds)) == 1
    assert shared.loss >= fit_thresholds(SCORES, LABELS).loss
