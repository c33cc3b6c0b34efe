"""The gap to the best possible: never negative at a rule's own risks, nil for the best rule."""

from dataclasses import replace

import numpy as np
import pytest

from scrib_mlflow import ThresholdRule, fit_optimal, fit_thresholds
from scrib_mlflow.core.optimal import fit_recalibration, measure_gap
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

NOISE = 3**0.5
SCORES, LABELS = draw_scores(8_000, noise=NOISE, seed=1)
FRESH, _ = draw_scores(8_000, noise=NOISE, seed=2)
MAP = fit_recalibration(SCORES, LABELS)
ASKED = make_constraints(Targets(), tuple("01234"))


def gap_of(rule, scores=FRESH, constraints=ASKED):
    return measure_gap(rule, scores, constraints, MAP, SCORES, 0)


@pytest.mark.parametrize("target", [0.05, 0.1, 0.2])
def test_optimal_rules_leave_no_gap_at_their_own_risks(target):
    gap = gap_of(fit_optimal(SCORES, LABELS, target).rule)
    assert -1e-9 <= gap.abstention_rate - gap.bound_at_risks <= 0.006
    assert gap.bound == pytest.approx(0.430, abs=0.012)
    assert gap.n_rows == 8_000


def test_thresholds_leave_one_and_no_rule_undercuts_its_own_risks():
    random = np.random.default_rng(0)
    gap = gap_of(fit_thresholds(SCORES, LABELS, 0.1).rule)
    assert gap.abstention_rate - gap.bound_at_risks > 0.02
    for _ in range(20):
        found = gap_of(ThresholdRule(thresholds=tuple(random.uniform(0.05, 0.9, 5))))
        assert found.abstention_rate >= found.bound_at_risks - 1e-9


def test_rules_that_never_answer_have_no_risk_to_compare_at():
    gap = gap_of(ThresholdRule(thresholds=(-np.inf,) * 5))
    assert gap.abstention_rate == 1.0
    assert gap.bound_at_risks == gap.bound


def test_scores_that_are_no_probabilities_are_recalibrated_as_well():
    logits = np.log(SCORES)
    gap = measure_gap(
        fit_thresholds(logits, LABELS, 0.1).rule,
        np.log(FRESH),
        ASKED,
        fit_recalibration(logits, LABELS),
        logits,
        0,
    )
    assert gap.bound == pytest.approx(0.430, abs=0.012)
    assert gap.abstention_rate > gap.bound_at_risks


def test_prices_come_from_other_rows_so_that_the_bound_does_not_flatter():
    rule = fit_thresholds(SCORES, LABELS, 0.1).rule
    own = measure_gap(rule, FRESH, ASKED, MAP, FRESH, 0)
    other = measure_gap(rule, FRESH, ASKED, MAP, SCORES, 0)
    assert other.bound < own.bound
    assert other.bound == pytest.approx(own.bound, abs=0.003)


def test_without_targets_nothing_bounds():
    gap = gap_of(fit_thresholds(SCORES, LABELS, 0.1).rule, constraints=())
    assert gap.bound == gap.bound_at_risks == 0.0


def test_gap_is_in_the_unit_of_the_objective():
    rule = fit_optimal(SCORES, LABELS, 0.1, error_weight=3.0).rule
    gap = measure_gap(rule, FRESH, ASKED, MAP, SCORES, 0, error_weight=3.0)
    assert gap.cost_rate == gap.abstention_rate + 3 * gap.wrong_rate
    assert gap.bound - 0.01 < gap.cost_rate < gap.bound + 0.02
    free = measure_gap(rule, FRESH, ASKED, MAP, SCORES, 0)
    assert free.cost_rate == free.abstention_rate > free.bound + 0.02


@pytest.mark.parametrize("fit", [fit_optimal, fit_thresholds])
def test_rules_of_the_top_class_are_held_against_such_rules(fit):
    rule = fit(SCORES, LABELS, 0.2, answers="top").rule
    gap, free = gap_of(rule), gap_of(replace(rule, answers="any"))
    assert gap.bound > free.bound
    assert gap.abstention_rate >= gap.bound_at_risks - 1e-9
    if fit is fit_optimal:
        assert gap.abstention_rate - gap.bound_at_risks <= 0.006
