"""The Lagrangian bound against linear programs on the same rows."""

import numpy as np
import pytest
from scipy.optimize import linprog

from scrib_mlflow.core.dual import abstention_bound
from scrib_mlflow.core.inputs import are_probabilities
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

NAMES = ("0", "1", "2", "3", "4")
TARGETS = {
    "classes": Targets(),
    "overall": Targets(risk_targets=None, overall_target=0.05),
    "both": Targets(risk_targets={"1": 0.2}, overall_target=0.08),
}


def least_abstention(scores, constraints):
    """Solve for the randomised rule that answers most often within the constraints."""
    n, k = scores.shape
    rows = []
    for constraint in constraints:
        of = list(constraint.classes)
        held = scores[:, of].sum(axis=1, keepdims=True)
        right = np.where(np.isin(np.arange(k), of), scores, 0.0)
        rows.append((held * (1 - constraint.target) - right).ravel() / n)
    once = np.kron(np.eye(n), np.ones(k))
    solved = linprog(
        -np.ones(n * k) / n,
        A_ub=np.vstack([np.array(rows), once]),
        b_ub=np.concatenate([np.zeros(len(rows)), np.ones(n)]),
        method="highs",
    )
    return 1 + solved.fun


@pytest.mark.parametrize("case", TARGETS)
def test_bound_is_the_linear_programs_value(case):
    scores, _ = draw_scores(300, seed=2)
    constraints = make_constraints(TARGETS[case], NAMES)
    wanted = least_abstention(scores, constraints)
    bound = abstention_bound(scores, np.ones(len(scores)), constraints, 0)
    assert wanted - 0.003 <= bound <= wanted + 1e-9


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


def test_probabilities_are_told_from_other_scores():
    scores, _ = draw_scores(20)
    assert are_probabilities(scores)
    assert are_probabilities(scores.astype(np.float32).astype(np.float64))
    assert not are_probabilities(2 * scores)
    assert not are_probabilities(np.log(scores))
    assert not are_probabilities(scores + np.array([-0.2, 0.2, 0, 0, 0]))
