"""The least abstention that any rule of these scores can reach: a Lagrangian bound.

For calibrated probabilities p, multipliers nu >= 0 and constraints "wrong among the certain of the
classes g at most rho_g", answering j is worth 1 + w_j p_j - sum_k c_k p_k, where w and c sum nu and
nu (1 - rho) over the constraints that hold a class. No rule that keeps the constraints is certain
more often than the mean of (max_j value_j)+, whatever nu; the tightest nu solve a convex problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.targets import Constraint

MOST_ROWS = 2_000
MOST_PRODUCTS = 5_000_000
SMOOTHINGS = (0.03, 0.003)
SUM_TOLERANCE = 1e-4
SHRINKS = (1.0, 0.5, 0.25, 0.1)  # multipliers of many classes fit their few rows too well
TINY = 1e-12
LEAST_SLOPE = 1e-5
MOST_STEPS = 15
MOST_HALVINGS = 20


def are_probabilities(scores: NDArray[np.float64]) -> bool:
    """Return whether scores lie in [0, 1] and every row sums to one."""
    if scores.min() < 0 or scores.max() > 1:
        return False
    sums = scores @ np.ones(scores.shape[1])
    return bool(np.abs(sums - 1).max() <= SUM_TOLERANCE)


def abstention_bound(
    scores: NDArray[np.float64],
    weights: NDArray[np.float64],
    constraints: Sequence[Constraint],
    seed: int,
) -> float:
    """Return a lower bound on abstention under these risk constraints, for calibrated scores.

    Multipliers come from a sample of the rows; the bound they give holds for any multipliers and
    is evaluated on all rows.
    """
    members = np.zeros((len(constraints), scores.shape[1]))
    for c, constraint in enumerate(constraints):
        members[c, list(constraint.classes)] = 1.0
    keep = 1.0 - np.array([constraint.target for constraint in constraints])
    rng = np.random.default_rng([seed, len(scores)])
    most = max(200, min(MOST_ROWS, MOST_PRODUCTS // members.size))
    chosen = rng.choice(len(scores), min(most, len(scores)), replace=False, shuffle=False)
    multipliers = _multipliers(scores[chosen], weights[chosen], members, keep)
    least = 1.0  # what multipliers of 0 say: nothing
    for shrink in (1.0,) if most == MOST_ROWS else SHRINKS:
        answered = _gains(scores, members, keep, shrink * multipliers).max(axis=1)
        least = min(least, float(np.average(np.maximum(answered, 0.0), weights=weights)))
    return 1.0 - least


def _gains(
    scores: NDArray[np.float64],
    members: NDArray[np.float64],
    keep: NDArray[np.float64],
    multipliers: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return (n, k) what answering each class is worth."""
    gain = scores * (members.T @ multipliers)
    gain += (1.0 - scores @ (members.T @ (multipliers * keep)))[:, None]
    return gain


class Smoothed(NamedTuple):
    """The smoothed dual at some multipliers."""

    value: float
    gradient: NDArray[np.float64]  # (c,)
    hessian: NDArray[np.float64]  # (c, c)


def _multipliers(
    scores: NDArray[np.float64],
    weights: NDArray[np.float64],
    members: NDArray[np.float64],
    keep: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise the dual, less and less smoothed, by Newton steps within nu >= 0.

    By hand, because importing scipy.optimize takes longer than a fit.
    """
    share = weights / weights.sum()
    scale = np.maximum(share @ (scores @ members.T), TINY)
    theta = np.ones(len(members))  # multipliers in units of 1 / scale
    for width in SMOOTHINGS:
        now = _smoothed(theta, width, scores, share, members / scale[:, None], keep)
        for _ in range(MOST_STEPS):
            free = (theta > 0) | (now.gradient < 0)
            if not np.abs(now.gradient[free]).max(initial=0.0) > LEAST_SLOPE:
                break
            step = np.zeros(len(theta))
            part = now.hessian[np.ix_(free, free)]
            ridge = TINY + 1e-6 * np.trace(part) / len(part)
            step[free] = np.linalg.solve(part + ridge * np.eye(len(part)), -now.gradient[free])
            for halving in range(MOST_HALVINGS):
                trial = np.maximum(theta + 0.5**halving * step, 0.0)
                after = _smoothed(trial, width, scores, share, members / scale[:, None], keep)
                if after.value < now.value + 1e-4 * now.gradient @ (trial - theta):
                    break
            else:
                break
            theta, now = trial, after
    return theta / scale


def _smoothed(
    theta: NDArray[np.float64],
    width: float,
    scores: NDArray[np.float64],
    share: NDArray[np.float64],
    members: NDArray[np.float64],
    keep: NDArray[np.float64],
) -> Smoothed:
    """Return mean(width * log(1 + sum_j exp(gain_j / width))) and its derivatives."""
    gain = _gains(scores, members, keep, theta) / width
    highest = np.maximum(gain.max(axis=1), 0.0)
    chosen = np.exp(gain - highest[:, None])
    total = chosen.sum(axis=1) + np.exp(-highest)
    chosen /= total[:, None]  # (n, k) how much each class is chosen
    answered = chosen.sum(axis=1)
    right = (chosen * scores) @ members.T  # (n, c)
    allowed = (scores @ members.T) * keep
    slope = right - answered[:, None] * allowed
    cross = (share[:, None] * right).T @ allowed
    hessian = (members * (share @ (chosen * scores**2))) @ members.T - cross - cross.T
    hessian += (allowed * (share * answered)[:, None]).T @ allowed
    hessian -= (slope * share[:, None]).T @ slope
    value = width * (share @ (highest + np.log(total)))
    return Smoothed(float(value), share @ slope, hessian / width)
