"""Candidates of abstentions: the order statistic, and the coverage that it promises."""

import itertools

import numpy as np
import pytest

from scrib_mlflow import (
    OptimalRule,
    ThresholdRule,
    evaluate_sets,
    predict_candidates,
    predict_sets,
    with_candidates,
)
from scrib_mlflow.core.rules import own_probabilities, threshold_between, threshold_rank
from scrib_mlflow.errors import InvalidLabelsError, ScribError
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import optimal_answer

NOISE = 3**0.5
RULE = OptimalRule(
    multipliers=(1.0, 12.0, 6.0, 6.0, 6.0),
    charges=(1.5, 11.0, 5.5, 5.5, 5.5),
    recalibration=None,
    candidate_thresholds=(np.inf,) * 5,
)
THRESHOLDS = ThresholdRule(thresholds=(0.5, 0.45, 0.5, 0.55, 0.6), answers="top")


def test_threshold_is_the_order_statistic_of_abstained_rows_of_the_class():
    scores, labels = draw_scores(3_000, noise=NOISE, seed=1)
    abstains = predict_sets(scores, RULE).sum(axis=1) != 1
    found = with_candidates(RULE, scores, labels, 0.9)
    assert found.multipliers == RULE.multipliers
    for j in range(5):
        own = np.sort(scores[abstains & (labels == j), j])
        m = int(0.1 * (len(own) + 1))
        assert own[m - 2] < found.candidate_thresholds[j] < own[m - 1]
        assert (own >= found.candidate_thresholds[j]).sum() == len(own) - m + 1


both_rules = pytest.mark.parametrize("rule", [RULE, THRESHOLDS], ids=["optimal", "thresholds"])


@both_rules
def test_certain_rows_stay_and_abstentions_name_the_two_most_probable_and_more(rule):
    scores, labels = draw_scores(3_000, noise=NOISE, seed=2)
    found = with_candidates(rule, scores, labels, 0.9)
    certain = predict_sets(scores, rule).sum(axis=1) == 1
    np.testing.assert_array_equal(
        predict_sets(scores, rule)[certain], predict_candidates(scores, found)[certain]
    )
    np.testing.assert_array_equal(certain, predict_sets(scores, found).sum(axis=1) == 1)
    for row, named in zip(
        scores[~certain], predict_candidates(scores, found)[~certain], strict=True
    ):
        reached = row >= found.candidate_thresholds
        wanted = {*np.argsort(-row)[:2].tolist(), *np.flatnonzero(reached).tolist()}
        assert set(np.flatnonzero(named).tolist()) == wanted


def test_the_sets_of_thresholds_do_not_depend_on_candidates():
    scores, labels = draw_scores(3_000, noise=NOISE, seed=2)
    found = with_candidates(THRESHOLDS, scores, labels, 0.9)
    assert found.thresholds == THRESHOLDS.thresholds
    np.testing.assert_array_equal(predict_sets(scores, found), predict_sets(scores, THRESHOLDS))


@both_rules
def test_where_too_few_rows_abstain_every_class_is_a_candidate(rule):
    scores, labels = draw_scores(200, noise=NOISE, seed=3)
    few = with_candidates(rule, scores, labels, 0.999)
    assert few.candidate_thresholds == (-np.inf,) * 5
    assert set(predict_candidates(scores, few).sum(axis=1).tolist()) == {1, 5}


def test_classes_with_too_few_abstained_rows_share_a_threshold():
    generator = np.random.default_rng(5)
    labels = np.repeat(np.arange(5), [200, 200, 8, 8, 8])
    scores = generator.dirichlet(np.ones(5), len(labels))
    never = ThresholdRule(thresholds=(np.inf,) * 5)  # every row abstains
    own = scores[np.arange(len(labels)), labels]

    def limit(rows):
        ordered = np.sort(own[rows])
        m = threshold_rank(len(ordered), 0.9)
        return threshold_between(ordered[m - 1], ordered[m - 2] if m > 1 else None)

    together = limit(labels >= 2)  # 24 rows, where 9 are enough
    found = with_candidates(never, scores, labels, 0.9).candidate_thresholds
    assert found == (limit(labels == 0), limit(labels == 1), together, together, together)
    some = labels < 3  # the few are 8 rows of class 2 alone: not enough, so all rows tell
    found = with_candidates(never, scores[some], labels[some], 0.9).candidate_thresholds
    assert found[:2] == (limit(labels == 0), limit(labels == 1))
    assert found[2:] == (limit(some),) * 3


@pytest.mark.parametrize("most", [2, 3])
def test_no_row_names_more_than_the_most_and_these_are_the_most_probable(most):
    scores, labels = draw_scores(200, noise=NOISE, seed=3)
    found = with_candidates(THRESHOLDS, scores, labels, 0.999, max_candidates=most)
    named = predict_candidates(scores, found)
    for row, names in zip(scores, named, strict=True):
        if names.sum() != 1:
            assert set(np.flatnonzero(names)) == set(np.argsort(-row)[:most])


@both_rules
def test_coverage_holds_on_average_for_every_class_where_it_abstains(rule):
    missed, rows = np.zeros(5), np.zeros(5)
    fresh, truth = draw_scores(100_000, noise=NOISE, seed=500)
    for seed in range(30):
        scores, labels = draw_scores(1_500, noise=NOISE, seed=seed)
        sets = predict_candidates(fresh, with_candidates(rule, scores, labels, 0.9))
        abstains = predict_sets(fresh, rule).sum(axis=1) != 1
        held = sets[np.arange(len(truth)), truth]
        missed += np.bincount(truth[abstains & ~held], minlength=5)
        rows += np.bincount(truth[abstains], minlength=5)
    assert (missed / rows <= 0.105).all()
    assert (missed / rows >= 0.02).all()  # and not because everything is a candidate


def test_rows_that_are_just_enough_are_enough():
    scores = np.column_stack([np.linspace(0.1, 0.3, 9), np.full(9, 0.3), np.zeros(9)])
    scores[:, 2] = 1 - scores.sum(axis=1)
    rule = OptimalRule(
        multipliers=(1.0, 1.0, 1.0),
        charges=(9.0, 9.0, 9.0),
        recalibration=None,
        candidate_thresholds=(np.inf,) * 3,
    )
    found = with_candidates(rule, scores, np.zeros(9, dtype=int), 0.9)
    assert found.candidate_thresholds == (0.1,) * 3  # 0.1 * (9 + 1) is one row
    fewer = with_candidates(rule, scores[1:], np.zeros(8, dtype=int), 0.9)
    assert fewer.candidate_thresholds == (-np.inf,) * 3


def test_tied_probabilities_stand_on_one_side():
    scores = np.tile([[0.4, 0.35, 0.25], [0.3, 0.3, 0.4]], (30, 1))
    rule = OptimalRule(
        multipliers=(1.0, 1.0, 1.0),
        charges=(9.0, 9.0, 9.0),
        recalibration=None,
        candidate_thresholds=(np.inf,) * 3,
    )
    labels = np.zeros(60, dtype=int)
    found = with_candidates(rule, scores, labels, 0.9).candidate_thresholds
    assert found[0] == 0.3  # the lowest: nothing lies below it
    found = with_candidates(rule, scores, labels, 0.4).candidate_thresholds
    assert 0.3 < found[0] < 0.4


def test_what_cannot_calibrate_is_refused():
    scores, labels = draw_scores(50, seed=1)
    with pytest.raises(InvalidLabelsError, match="one class a row"):
        with_candidates(RULE, scores, scores, 0.9)
    with pytest.raises(ScribError, match="candidate_coverage"):
        with_candidates(RULE, scores, labels, 1.0)
    with pytest.raises(ScribError, match="max_candidates must be at least 2"):
        with_candidates(RULE, scores, labels, 0.9, max_candidates=1)


def test_a_report_says_how_often_candidates_hold_the_true_class():
    scores, labels = draw_scores(2_000, noise=NOISE, seed=9)
    rule = with_candidates(THRESHOLDS, scores, labels, 0.8, max_candidates=3)
    report = evaluate_sets(scores, labels, rule)
    named = predict_candidates(scores, rule)
    abstains = predict_sets(scores, rule).sum(axis=1) != 1
    held = named[np.arange(2_000), labels]
    for j, each in enumerate(report.by_class.values()):
        own = abstains & (labels == j)
        assert each.n_named == own.sum()
        assert each.candidate_coverage == pytest.approx(held[own].mean())
    assert report.candidate_coverage == pytest.approx(held[abstains].mean())
    assert report.mean_candidates == pytest.approx(named[abstains].sum(axis=1).mean())


def test_rank_is_that_of_split_conformal_with_one_more_row():
    for n, missed in itertools.product(range(60), (1, 5, 10, 25)):  # in percent: whole numbers
        assert threshold_rank(n, 1 - missed / 100) == missed * (n + 1) // 100


def test_thresholds_are_made_of_ranks_and_neighbours_of_what_abstained():
    scores, labels = draw_scores(2_000, noise=NOISE, seed=7)
    own = own_probabilities(RULE, scores, labels)
    for row, label, value in zip(scores, labels, own, strict=True):
        abstains = optimal_answer(row, RULE.multipliers, RULE.charges) is None
        assert value == row[label] if abstains else np.isnan(value)
    wanted = []
    for j in range(5):
        ordered = sorted(value for value in own[labels == j] if not np.isnan(value))
        m = threshold_rank(len(ordered), 0.95)
        wanted.append(threshold_between(ordered[m - 1], ordered[m - 2] if m > 1 else None))
    assert with_candidates(RULE, scores, labels, 0.95).candidate_thresholds == tuple(wanted)
    assert threshold_between(0.25, None) == 0.25
    assert threshold_between(0.5, 0.25) == 0.375
