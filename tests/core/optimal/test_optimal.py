"""The optimal rule against linear programs, brute force, the population, and thresholds."""

import numpy as np
import pytest
from scipy import special
from scipy.optimize import linprog

from scrib_mlflow import fit_optimal, fit_thresholds, predict_sets
from scrib_mlflow.core.dual import BONUS, certain_bound, solve_dual
from scrib_mlflow.core.optimal import recalibrate
from scrib_mlflow.core.optimal.fit import make_requirements
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.errors import InvalidTargetsError
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import all_answers, optimal_answer

NOISE = 3**0.5
NAMES = tuple("01234")
CASES = {
    "classes": Targets(),
    "strict": Targets(risk_targets=0.03),
    "overall": Targets(risk_targets={"1": 0.2}, overall_target=0.06),
    "groups": Targets(risk_targets=0.15, risk_groups={"pair": (["2", "3"], 0.05)}),
    "far apart": Targets(
        risk_targets={"0": 0.99, "1": 0.9, "2": 0.01, "default": 0.1}, overall_target=0.3
    ),
    "capped": Targets(risk_targets=0.15, max_class_abstention={"1": 0.6}),
}


def least_abstention(scores, constraints):
    """Solve for the randomised rule that answers most often within the constraints."""
    n, k = scores.shape
    rows, limits = [], []
    for constraint in constraints:
        of = list(constraint.classes)
        held = scores[:, of].sum(axis=1, keepdims=True)
        right = np.where(np.isin(np.arange(k), of), scores, 0.0)
        if constraint.kind == "risk":
            rows.append((held * (1 - constraint.target) - right).ravel() / n)
            limits.append(0.0)
        else:
            rows.append((-held * np.ones(k)).ravel() / n)
            limits.append(-(1 - constraint.target) * held.sum() / n)
    solved = linprog(
        -np.ones(n * k) / n,
        A_ub=np.vstack([np.array(rows), np.kron(np.eye(n), np.ones(k))]),
        b_ub=np.concatenate([limits, np.ones(n)]),
        method="highs",
    )
    assert solved.success
    return 1 + solved.fun


def soft_risks(scores, sets, chances=None):
    chances = scores if chances is None else chances
    certain = sets.sum(axis=1) == 1
    wrong = np.where(sets[certain], 0.0, chances[certain]).sum(axis=0)
    rows = chances[certain].sum(axis=0)
    return np.divide(wrong, rows, out=np.zeros(len(rows)), where=rows > 0), 1 - certain.mean()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_dual_value_is_the_linear_programs(case, seed):
    scores, _ = draw_scores(400, noise=NOISE, seed=seed)
    constraints = make_constraints(CASES[case], NAMES)
    wanted = 1 - least_abstention(scores, constraints)
    share = np.full(400, 1 / 400)
    needs = make_requirements(constraints, scores.mean(axis=0))
    found = certain_bound(scores, share, needs, solve_dual(scores, share, needs))
    assert wanted * (1 - 1e-9) <= found <= wanted * 1.001


@pytest.mark.parametrize("case", CASES)
def test_rule_misses_the_bound_and_the_targets_by_a_few_rows(case):
    n = 2_000
    scores, _ = draw_scores(n, noise=NOISE, seed=5)
    targets = CASES[case]
    fit = fit_optimal(
        scores,
        None,
        targets.risk_targets,
        overall_target=targets.overall_target,
        risk_groups=targets.risk_groups,
        max_class_abstention=targets.max_class_abstention,
    )
    assert abs(fit.primal_gap) * n <= len(fit.constraints) + 1
    for constraint in fit.constraints:
        assert constraint.rate <= constraint.target + 0.003
    _, rate = soft_risks(scores, predict_sets(scores, fit.rule))
    assert fit.abstention_bound - 0.003 <= rate <= fit.abstention_bound + 0.003


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_at_all_answers_more_rows_of_a_tiny_problem(seed):
    # none within the targets beats the bound, and none that is as good in all that the rule
    # prices beats the rule
    scores, _ = draw_scores(7, noise=2.0, signal=(4.0, 1.0, 2.0), seed=seed)
    fit = fit_optimal(scores, None, 0.15)
    prices = np.array(fit.rule.multipliers) - BONUS
    priced = prices > 1e-9
    keep = np.array(fit.rule.charges)[priced] / prices[priced]
    sets = predict_sets(scores, fit.rule)
    certain = sets.sum(axis=1) == 1
    kept = np.where(sets & certain[:, None], scores, 0.0).sum(axis=0)[priced]
    kept -= keep * scores[certain].sum(axis=0)[priced]
    most_within = most_as_good = 0
    for count, answers, right in all_answers(scores):
        if (answers - right <= 0.15 * answers + 1e-12).all():
            most_within = max(most_within, count)
        if (right[priced] - keep * answers[priced] >= kept - 1e-9).all():
            most_as_good = max(most_as_good, count)
    assert 1 - most_within / 7 >= fit.abstention_bound - 1e-9
    assert most_as_good == certain.sum()


def test_few_rows_come_to_the_optimum_of_the_population():
    scores, labels = draw_scores(20_000, noise=NOISE, seed=1)
    chances, _ = draw_scores(300_000, noise=NOISE, seed=99)
    constraints = make_constraints(Targets(), NAMES)
    share = np.full(len(chances), 1 / len(chances))
    needs = make_requirements(constraints, chances.mean(axis=0))
    least = 1 - certain_bound(chances, share, needs, solve_dual(chances, share, needs))
    assert least == pytest.approx(0.430, abs=0.003)  # the study's figure for this generator
    for given in (None, labels):
        fit = fit_optimal(scores, given, 0.1)
        risks, rate = soft_risks(chances, predict_sets(chances, fit.rule))
        np.testing.assert_allclose(risks, 0.1, atol=0.015)
        assert rate == pytest.approx(least, abs=0.012)
    thresholds = fit_thresholds(scores, labels, 0.1)
    assert soft_risks(chances, predict_sets(chances, thresholds.rule))[1] > least + 0.015


def test_of_two_classes_it_is_a_pair_of_thresholds():
    scores, _ = draw_scores(3_000, noise=NOISE, signal=(2.0, 1.0), seed=3)
    optimal = fit_optimal(scores, None, 0.1)
    thresholds = fit_thresholds(scores, scores, 0.1, effort=2.0)
    _, rate = soft_risks(scores, predict_sets(scores, optimal.rule))
    _, other = soft_risks(scores, predict_sets(scores, thresholds.rule))
    assert rate == pytest.approx(other, abs=0.003)
    certain = predict_sets(scores, optimal.rule)
    first = scores[(certain == [True, False]).all(axis=1), 0]
    second = scores[(certain == [False, True]).all(axis=1), 0]
    rest = scores[certain.all(axis=1), 0]
    assert second.max() < rest.min() <= rest.max() < first.min()


def test_sets_are_what_the_formula_says_row_by_row():
    scores, labels = draw_scores(400, noise=NOISE, seed=8)
    rule = fit_optimal(scores, labels, 0.1, candidate_coverage=0.8).rule
    probabilities = recalibrate(rule.recalibration, scores)
    sets = predict_sets(scores, rule)
    n_certain = 0
    for row, members in zip(range(400), sets, strict=True):
        answer = optimal_answer(probabilities[row], rule.multipliers, rule.charges)
        if answer is not None:
            n_certain += 1
            assert members.nonzero()[0].tolist() == [answer]
            continue
        wanted = set(np.argsort(-probabilities[row])[:2].tolist())
        wanted |= {j for j in range(5) if probabilities[row, j] >= rule.candidate_thresholds[j]}
        assert set(members.nonzero()[0].tolist()) == wanted
    assert 50 < n_certain < 350


def test_labels_set_miscalibrated_scores_right():
    true, labels = draw_scores(20_000, noise=NOISE, seed=1)
    chances, _ = draw_scores(200_000, noise=NOISE, seed=99)

    def distort(p):
        return special.softmax(1.6 * np.log(p) + [0.8, -0.6, 0.0, 0.3, -0.3], axis=1)

    heeded = fit_optimal(distort(true), labels, 0.1)
    believed = fit_optimal(distort(true), None, 0.1)
    for fit, most in ((heeded, 0.115), (believed, 1.0)):
        sets = predict_sets(distort(chances), fit.rule)
        risks, _ = soft_risks(chances, sets, chances)
        assert risks.max() <= most
    assert risks.max() > 0.13  # what believing the scores costs


def test_where_targets_leave_room_an_error_weight_makes_chows_rule():
    # an answer is worth 1 - w (1 - p), so it pays from p = 1 - 1 / w on
    scores, _ = draw_scores(3_000, noise=NOISE, seed=4)
    sets = predict_sets(scores, fit_optimal(scores, None, 0.95, error_weight=4.0).rule)
    top = scores.max(axis=1)
    clear = np.abs(top - 0.75) > 1e-3
    assert ((sets.sum(axis=1) == 1) == (top >= 0.75))[clear].all()
    certain = sets.sum(axis=1) == 1
    assert (sets.argmax(axis=1) == scores.argmax(axis=1))[certain].all()


def test_errors_cost_what_they_are_said_to():
    scores, labels = draw_scores(20_000, noise=NOISE, seed=6)
    wrong, costs = [], []
    for weight in (0.0, 1.0, 20.0):  # while all targets bind, a small weight changes nothing
        fit = fit_optimal(scores, None, 0.15, error_weight=weight)
        sets = predict_sets(scores, fit.rule)
        certain = sets.sum(axis=1) == 1
        risk = np.where(sets[certain], 0.0, scores[certain]).sum() / len(scores)
        wrong.append(risk / certain.mean())
        costs.append(1 - certain.mean() + weight * risk)
        assert costs[-1] == pytest.approx(fit.abstention_bound, abs=0.003)
        assert fit.loss == pytest.approx(costs[-1], abs=0.005)
        assert abs(fit.primal_gap) < 0.002
        assert all(each.rate <= each.target + 0.002 for each in fit.constraints)
    assert wrong[0] >= wrong[1] > wrong[2] + 0.05
    assert fit_optimal(scores, labels, 0.15, error_weight=5.0).loss > wrong[2]
    with pytest.raises(InvalidTargetsError, match="error_weight is -1"):
        fit_optimal(scores, labels, error_weight=-1)


def test_rules_of_the_top_class_give_no_other_answer_and_reach_their_bound():
    scores, labels = draw_scores(4_000, noise=NOISE, seed=3)
    tilted = scores * [1.0, 3.0, 1.0, 1.0, 0.4]  # so that recalibration changes the top class
    tilted /= tilted.sum(axis=1, keepdims=True)
    for given, shown in ((None, scores), (labels, scores), (labels, tilted)):
        fit, free = (fit_optimal(shown, given, 0.15, answers=each) for each in ("top", "any"))
        sets = predict_sets(shown, fit)
        certain = sets.sum(axis=1) == 1
        assert fit.rule.answers == "top"
        assert (sets[certain].argmax(axis=1) == shown[certain].argmax(axis=1)).all()
        assert fit.abstention_bound > free.abstention_bound
        if given is None:
            assert abs(fit.primal_gap) < 0.003
    others = predict_sets(tilted, free)
    answered = others.sum(axis=1) == 1
    assert (others[answered].argmax(axis=1) != tilted[answered].argmax(axis=1)).any()
