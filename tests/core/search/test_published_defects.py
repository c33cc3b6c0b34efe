"""What the published code gets wrong, each on its own input."""

import numpy as np
import pytest

from scrib_mlflow import ScribError, evaluate_sets, fit_thresholds
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_loss

SCORES, LABELS = draw_scores(2_000)
RISKS = [("risk", (j,), 0.1) for j in range(5)]


@pytest.mark.parametrize("decimals", [2, 1])
def test_rounded_scores_get_the_loss_that_thresholds_attain(decimals):
    scores = np.round(SCORES, decimals)
    fit = fit_thresholds(scores, LABELS)
    assert fit.loss == pytest.approx(naive_loss(scores, LABELS, fit.thresholds, groups=RISKS))
    assert fit.loss < 0.5


def test_votes_of_a_committee_get_the_loss_that_thresholds_attain():
    rng = np.random.default_rng(0)
    votes = np.array([rng.multinomial(10, row) for row in SCORES]) / 10
    fit = fit_thresholds(votes, LABELS)
    assert fit.loss == pytest.approx(naive_loss(votes, LABELS, fit.thresholds, groups=RISKS))


def test_thresholds_lie_strictly_between_scores():
    scores = np.round(SCORES, 2)
    fit = fit_thresholds(scores, LABELS)
    for column, threshold in zip(scores.T, fit.thresholds, strict=True):
        assert threshold not in column
        below, above = column[column < threshold].max(), column[column >= threshold].min()
        assert threshold == pytest.approx((below + above) / 2, abs=1e-15)


def test_adjacent_numbers_have_no_midpoint_and_still_part():
    low = 0.5
    high = np.nextafter(low, 1)
    scores = np.array([[low, 0.1], [high, 0.1]] * 20)
    labels = np.array([1, 0] * 20)
    fit = fit_thresholds(scores, labels, waive=["1"])
    assert fit.thresholds[0] == high or fit.thresholds[0] == -np.inf
    extreme = np.where(scores == high, 1.7e308, -1.7e308)
    assert np.isfinite(fit_thresholds(extreme, labels, waive=["1"]).loss)


def test_a_class_absent_from_the_rows_is_named_or_waived():
    present = LABELS != 3
    with pytest.raises(ScribError, match="no row has class '3'"):
        fit_thresholds(SCORES[present], LABELS[present])
    fit = fit_thresholds(SCORES[present], LABELS[present], waive=["3"])
    assert len(fit.thresholds) == 5
    report = evaluate_sets(SCORES[present], LABELS[present], fit)
    assert np.isnan(report.by_class["3"].risk)
    assert report.by_class["3"].risk_upper == 1


def test_labels_from_one_are_refused_not_misread():
    with pytest.raises(ScribError, match="is 5, which is no class"):
        fit_thresholds(SCORES, LABELS + 1)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_rows_work(n):
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])[:n]
    fit = fit_thresholds(scores, np.arange(n) % 2)
    assert fit.loss == 0.0


def test_targets_of_single_precision_work():
    target = np.float32(0.1)
    assert fit_thresholds(SCORES, LABELS, target).constraints[0].target == float(target)
    assert fit_thresholds(SCORES, LABELS, {"default": np.float32(0.1)}).loss > 0
