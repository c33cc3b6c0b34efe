"""The optimal rule at its edges: bad input, ties, many small classes, targets out of reach."""

import numpy as np
import pytest
from scipy import special

from scrib_mlflow import OptimalRule, evaluate_sets, fit_optimal, predict_sets
from scrib_mlflow.core.inputs import are_probabilities
from scrib_mlflow.core.optimal import recalibrate
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError, InvalidTargetsError
from scrib_mlflow.synthetic import draw_scores

NOISE = 3**0.5
NAMES = tuple("01234")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[2.0, -1.0], [0.5, 0.5]], "row 0 leaves"),
        ([[0.5, 0.5], [0.4, 0.5]], "row 1 sums to 0.9"),
        ([[1.5, 2.5], [3.0, 1.0]], "score_transform=softmax"),
    ],
)
@pytest.mark.parametrize("labels", [None, [0, 1]])
def test_scores_that_cannot_be_probabilities_are_refused_with_advice(scores, message, labels):
    with pytest.raises(InvalidScoresError, match=message):
        fit_optimal(scores, labels)


def test_targets_that_are_loose_are_answered_by_the_highest_probability():
    scores, _ = draw_scores(500, noise=NOISE, seed=2)
    sets = predict_sets(scores, fit_optimal(scores, None, 0.95).rule)
    np.testing.assert_array_equal(sets.argmax(axis=1), scores.argmax(axis=1))
    assert (sets.sum(axis=1) == 1).all()


def test_targets_out_of_reach_end_in_abstention_and_finite_numbers():
    scores = np.tile([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3]], (50, 1))
    fit = fit_optimal(scores, None, 0.01)
    assert fit.abstention_bound > 0.9
    assert np.isfinite(fit.rule.multipliers).all()
    assert np.isfinite(fit.rule.charges).all()
    assert (predict_sets(scores, fit.rule).sum(axis=1) == 2).all()


def test_tied_scores_keep_the_targets_on_their_own_rows():
    random = np.random.default_rng(0)
    true, labels = draw_scores(4_000, noise=NOISE, seed=4)
    votes = np.array([random.multinomial(10, p / p.sum()) for p in true]) / 10
    fit = fit_optimal(votes, labels, 0.1)
    assert max(constraint.excess for constraint in fit.constraints) < 0.01
    free = fit_optimal(votes, None, 0.1)
    assert max(constraint.excess for constraint in free.constraints) < 0.02


def test_many_small_classes_share_a_multiplier_unless_their_target_is_their_own():
    random = np.random.default_rng(0)
    scores = special.softmax(random.normal(size=(600, 30)) * 3, axis=1)
    classes = [f"c{j}" for j in range(30)]
    targets = {"c4": 0.05, "default": 0.2}
    shared = np.array(fit_optimal(scores, None, targets, classes=classes).rule.multipliers)
    assert len(set(np.delete(shared, 4).round(9))) == 1
    assert shared[4] != shared[0]
    own = fit_optimal(scores, None, targets, classes=classes, share_multipliers=False).rule
    assert len(set(np.round(own.multipliers, 9))) == 30
    few = fit_optimal(scores[:, :3] / scores[:, :3].sum(axis=1, keepdims=True), None, 0.2).rule
    assert len(set(np.round(few.multipliers, 6))) == 3


def test_caps_keep_a_class_from_falling_silent():
    scores, labels = draw_scores(5_000, noise=NOISE, seed=1)
    free = evaluate_sets(scores, labels, fit_optimal(scores, labels, 0.1))
    capped = evaluate_sets(
        scores, labels, fit_optimal(scores, labels, 0.25, max_class_abstention={"1": 0.3})
    )
    assert free.by_class["1"].abstention_rate > 0.5
    assert capped.by_class["1"].abstention_rate <= 0.32


def test_waived_classes_are_not_heeded_and_absent_ones_are_refused():
    scores, labels = draw_scores(3_000, noise=NOISE, seed=1)
    rule = fit_optimal(scores, labels, 0.1, waive=["1"]).rule
    assert rule.charges[1] == 0.0
    with pytest.raises(InvalidLabelsError, match="no row has class '1'"):
        fit_optimal(scores[labels != 1], labels[labels != 1], 0.1)
    with pytest.raises(InvalidTargetsError, match="no target covers"):
        fit_optimal(scores, labels, {"1": 0.1})
    with pytest.raises(InvalidLabelsError, match="one class a row"):
        fit_optimal(scores, scores, 0.1)
    with pytest.raises(InvalidTargetsError, match="nothing to fit"):
        fit_optimal(scores, labels, 0.1, waive=list(NAMES))


def test_fit_is_the_same_again_and_on_a_sample_nearly_so():
    scores, labels = draw_scores(60_000, noise=NOISE, seed=6)
    assert fit_optimal(scores, labels) == fit_optimal(scores, labels)
    other = fit_optimal(scores, None, seed=1).rule.multipliers
    np.testing.assert_allclose(fit_optimal(scores, None).rule.multipliers, other, rtol=0.02)


def test_an_answer_that_is_worth_nothing_and_costs_nothing_is_given():
    rule = OptimalRule(
        multipliers=(1.0, 1.0),
        charges=(1.5, 1.5),
        recalibration=None,
        candidate_thresholds=(np.inf, np.inf),
    )
    assert predict_sets([[0.5, 0.5]], rule).tolist() == [[True, False]]  # 1 + 0.5 - 1.5 = 0
    assert predict_sets([[0.49, 0.51]], rule).tolist() == [[False, True]]


def test_rows_that_are_no_probabilities_are_never_certain():
    scores, labels = draw_scores(500, noise=NOISE, seed=2)
    rule = fit_optimal(scores, labels, 0.1).rule
    bad = np.array([[0.0] * 5, [-1.0, 2.0, 0, 0, 0], [5.0, 1, 1, 1, 1], [0.5, 0, 0, 0, 0]])
    assert not predict_sets(bad, rule).any()
    near = np.array([[0.996, 0.001, 0.001, 0.001, 0.003], [1.0000001, 0, 0, 0, -1e-9]])
    assert predict_sets(near, rule).any(axis=1).all()


def test_caps_that_exclude_the_risks_leave_finite_numbers():
    scores, labels = draw_scores(400, noise=NOISE, seed=2)
    fit = fit_optimal(scores, labels, 0.01, max_class_abstention=0.05)
    assert 0 <= fit.abstention_bound <= 1
    assert -1 <= fit.primal_gap <= 1
    assert any(not constraint.met for constraint in fit.constraints)


def test_probabilities_may_be_rounded():
    scores, labels = draw_scores(500, noise=NOISE, seed=2)
    fit_optimal(scores.astype(np.float16), labels, 0.1)
    scores[0] = [1.0 + 1e-7, -1e-12, 0, 0, 0]
    fit_optimal(scores, labels, 0.1)


def test_rules_are_checked_where_sets_are_asked_for():
    rule = OptimalRule(
        multipliers=(1.0, 2.0),
        charges=(0.5, np.nan),
        recalibration=None,
        candidate_thresholds=(0.1, 0.1),
    )
    with pytest.raises(Exception, match="NaN"):
        predict_sets([[0.5, 0.5]], rule)
    with pytest.raises(Exception, match="2 multipliers but scores have 3 columns"):
        predict_sets([[0.5, 0.3, 0.2]], rule)
    bent = Recalibration(slopes=(1.0,), offsets=(0.0,), of="log")
    short = OptimalRule(
        multipliers=(1.0, 2.0), charges=(0.5, 0.5), recalibration=bent, candidate_thresholds=(1, 1)
    )
    with pytest.raises(Exception, match="1 slopes"):
        predict_sets([[0.5, 0.5]], short)


def test_probabilities_are_what_the_recalibration_makes_of_scores():
    scores, labels = draw_scores(500, noise=NOISE, seed=2)
    rule = fit_optimal(scores, labels, 0.1).rule
    assert are_probabilities(recalibrate(rule.recalibration, scores))
