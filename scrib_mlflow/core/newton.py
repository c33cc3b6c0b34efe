"""The least of a smooth convex function of few variables within bounds, by Newton steps.

By hand, because importing scipy.optimize takes longer than most fits, and because its methods do
not use that the second derivative comes with the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.inputs import Floats

TINY = 1e-12
DAMPING = 1e-6  # of the second derivative, in its own mean, so that it can be inverted
FIRST_REACH, LEAST_REACH, MOST_REACH = 1.0, 1e-4, 1e3  # of a step, in units of 1 + |x|
GOOD, POOR, LEAST = 0.75, 0.25, 1e-4  # falls, as shares of what the second-order model predicts


class Point(NamedTuple):
    """A function and its derivatives at x."""

    x: Floats  # (c,)
    value: float
    gradient: Floats  # (c,)
    second: Floats  # (c, c)


def minimise(
    function: Callable[[Floats], Point],
    start: Floats,
    low: Floats,
    high: Floats,
    *,
    least_fall: float,
    most_steps: int,
) -> Point:
    """Return where the function is least, but for falls below `least_fall`.

    A step goes to the least of the second-order model within reach; the reach shrinks where the
    model predicts badly, and grows where it predicts well.
    """
    now = function(np.clip(start, low, high))
    reach = FIRST_REACH
    for _ in range(most_steps):
        within = reach * (1.0 + np.abs(now.x))
        step = _bounded_step(now, np.maximum(low, now.x - within), np.minimum(high, now.x + within))
        predicted = _predicted_fall(now.gradient, now.second, step)
        if not predicted > least_fall or reach < LEAST_REACH:
            break
        after = function(np.clip(now.x + step, low, high))
        fall = now.value - after.value
        if fall >= GOOD * predicted:
            reach = min(2.0 * reach, MOST_REACH)
        elif fall < POOR * predicted:
            reach /= 4.0
        if fall >= LEAST * predicted:
            now = after
    return now


def _bounded_step(at: Point, low: Floats, high: Floats) -> Floats:
    """Return the step to the least of the second-order model that stays within the bounds.

    Variables that would leave stop at the bound, and the others move on without them.
    """
    x, gradient, second = at.x, at.gradient, at.second.copy()
    diagonal = np.diag_indices_from(second)
    second[diagonal] += TINY + DAMPING * np.trace(second) / len(second)
    inside = ((x > low) | (gradient < 0)) & ((x < high) | (gradient > 0))
    step = np.zeros(len(x))
    while inside.any():
        pull = gradient + second[:, ~inside] @ step[~inside]
        step[inside] = np.linalg.solve(second[np.ix_(inside, inside)], -pull[inside])
        outside = inside & ((x + step < low) | (x + step > high))
        if not outside.any():
            break
        step = np.clip(x + step, low, high) - x
        inside &= ~outside
    if not _predicted_fall(gradient, second, step) > 0:
        # what stopped at bounds has spoilt the rest
        step = np.clip(x - 0.5 * gradient / second[diagonal], low, high) - x
    return step


def _predicted_fall(gradient: Floats, second: Floats, step: Floats) -> float:
    return -float(gradient @ step + 0.5 * step @ second @ step)
