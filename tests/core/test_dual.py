"""The Lagrangian bound against linear programs on the same rows."""

import numpy as np
import pytest
from scipy import special
from scipy.optimize import linprog

from scrib_mlflow.core import dual
from scrib_mlflow.core.dual import abstention_bound
from scrib_mlflow.core.inputs import are_probabilities
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.serving import answer_values
from scrib_mlflow.synthetic import draw_scores

NAMES = ("0", "1", "2", "3", "4")
TARGETS = {
    "classes": Targets(),
    "overall": Targets(risk_targets=None, overall_target=0.05),
    "both": Targets(risk_targets={"1": 0.2}, overall_target=0.08),
}
OTHERS, _ = draw_scores(300, seed=12)  # whose top classes are often not the most probable ones


def least_cost(scores, constraints, error_weight=0.0, tops=dual.ANY):
    """Solve for the randomised rule whose abstentions and errors cost least within constraints."""
    n, k = scores.shape
    rows = []
    for constraint in constraints:
        of = list(constraint.classes)
        held = scores[:, of].sum(axis=1, keepdims=True)
        right = np.where(np.isin(np.arange(k), of), scores, 0.0)
        rows.append((held * (1 - constraint.target) - right).ravel() / n)
    once = np.kron(np.eye(n), np.ones(k))
    solved = linprog(
        (error_weight * (1 - scores) - 1).ravel() / n,
        A_ub=np.vstack([np.array(rows), once]),
        b_ub=np.concatenate([np.zeros(len(rows)), np.ones(n)]),
        bounds=[(0, float(len(tops) == 0 or tops[i] == j)) for i in range(n) for j in range(k)],
        method="highs",
    )
    return 1 + solved.fun


@pytest.mark.parametrize("answers", ["any", "top"])
@pytest.mark.parametrize("weight", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("case", TARGETS)
def test_bound_is_the_linear_programs_value(case, weight, answers):
    scores, _ = draw_scores(300, seed=2)
    tops = {"any": dual.ANY, "top": OTHERS.argmax(axis=1)}[answers]
    constraints = make_constraints(TARGETS[case], NAMES)
    wanted = least_cost(scores, constraints, weight, tops)
    bound = abstention_bound(
        scores, np.ones(len(scores)), constraints, 0, error_weight=weight, tops=tops
    )
    assert wanted - 0.003 <= bound <= wanted + 1e-9
    if answers == "top" and weight < 4:
        assert bound > abstention_bound(
            scores, np.ones(len(scores)), constraints, 0, error_weight=weight
        )


def test_weights_count_like_repeated_rows():
    scores, _ = draw_scores(200, seed=4)
    weights = np.random.default_rng(0).integers(1, 4, 200)
    constraints = make_constraints(Targets(), NAMES)
    repeated = np.repeat(scores, weights, axis=0)
    assert abstention_bound(scores, weights * 1.0, constraints, 0) == pytest.approx(
        abstention_bound(repeated, np.ones(len(repeated)), constraints, 0), abs=1e-3
    )


def test_targets_out_of_reach_force_abstention():
    scores = np.full((50, 2), 0.5)
    constraints = make_constraints(Targets(risk_targets=0.01), ("a", "b"))
    assert abstention_bound(scores, np.ones(50), constraints, 0) > 0.95


@pytest.mark.parametrize("answers", ["any", "top"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("width", [0.3, 0.02])
def test_derivatives_of_the_smoothed_dual_are_those_of_its_values(
    width, compiled, answers, monkeypatch
):
    if not compiled:
        monkeypatch.setattr(dual, "sum_smoothed", dual.sum_smoothed.py_func)
    rows, _ = draw_scores(60, seed=3)
    share = np.random.default_rng(0).dirichlet(np.ones(60))
    right = np.array([[1.0, 0, 0, 0, 0], [0, 1.0, 1.0, 0, 0], [1.0] * 5, [0] * 5])
    due = right * [[0.9], [0.8], [0.7], [0.0]] - [[0], [0], [0], [1.0]]
    needs = dual.Requirements(right, due, np.array([0.0, 0.0, 0.0, 0.3]))
    tops = {"any": dual.ANY, "top": OTHERS.argmax(axis=1)[:60]}[answers]
    common = {"rows": rows, "share": share, "needs": needs, "width": width, "tops": tops}

    def at(x):
        return dual._smoothed(x, entries=dual._entries(needs), **common)

    x = np.array([1.0, 0.5, 2.0, 0.4])
    worth, charge = dual.prices(needs, x)
    values = 1.0 + rows * worth - (rows @ charge)[:, None]
    if answers == "top":
        values[np.arange(5) != tops[:, None]] = -np.inf
    values = np.column_stack([np.zeros(60), values])
    wanted = share @ (width * special.logsumexp(values / width, axis=1)) - 0.4 * 0.3
    assert at(x).value == pytest.approx(wanted, rel=1e-12)
    step = 1e-5 * np.eye(4)
    slopes = [(at(x + d).value - at(x - d).value) / 2e-5 for d in step]
    np.testing.assert_allclose(at(x).gradient, slopes, atol=1e-8)
    bends = [(at(x + d).gradient - at(x - d).gradient) / 2e-5 for d in step]
    np.testing.assert_allclose(at(x).second, bends, atol=1e-5 / width)


@pytest.mark.parametrize("answers", ["any", "top"])
def test_answers_are_counted_as_the_served_rule_gives_them(answers):
    rows, labels = draw_scores(500, seed=6)
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, 500).astype(float)
    rule = {
        "multipliers": rng.uniform(1, 4, 5),
        "charges": rng.uniform(1, 3, 5),
        "recalibration": None,
        "answers": answers,
    }
    _, worth, value = answer_values(rule, rows)
    certain, best = value >= 0, (rows if answers == "top" else worth).argmax(axis=1)
    tops = rows.argmax(axis=1) if answers == "top" else dual.ANY
    prices = rule["multipliers"], rule["charges"]
    counted = dual.count_answers(rows, *prices, labels, np.zeros((0, 5)), weights, tops)
    hit = certain & (best == labels)
    assert counted[0].tolist() == np.bincount(labels[certain], weights[certain], 5).tolist()
    assert counted[1].tolist() == np.bincount(labels[hit], weights[hit], 5).tolist()
    assert counted[2] == weights[certain].sum()
    soft = rows * weights[:, None]
    counted = dual.count_answers(rows, *prices, labels[:0], soft, weights, tops)
    np.testing.assert_allclose(counted[0], soft[certain].sum(axis=0))
    right = np.where(best[:, None] == np.arange(5), soft, 0.0)[certain]
    np.testing.assert_allclose(counted[1], right.sum(axis=0))


def test_probabilities_are_told_from_other_scores():
    scores, _ = draw_scores(20)
    assert are_probabilities(scores)
    assert are_probabilities(scores.astype(np.float32).astype(np.float64))
    assert not are_probabilities(2 * scores)
    assert not are_probabilities(np.log(scores))
    assert not are_probabilities(scores + np.array([-0.2, 0.2, 0, 0, 0]))
