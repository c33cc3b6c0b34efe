"""The least abstention that any rule of some scores can reach: a bound from the dual."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.dual import certain_bound, minimise, risk_requirements
from scrib_mlflow.core.targets import Constraint

Floats = NDArray[np.float64]

BOUND_ROWS = 2_000  # that a bound beside a fit takes its prices from
BOUND_PRODUCTS = 5_000_000
BOUND_FALL = 1e-5
BOUND_SMOOTHINGS = (0.03, 0.003)
SHRINKS = (1.0, 0.5, 0.25, 0.1)  # prices of many classes fit their few rows too well


def abstention_bound(
    probabilities: Floats,
    weights: Floats,
    constraints: Sequence[Constraint],
    seed: int,
    *,
    priced_by: Floats | None = None,
    price_weights: Floats | None = None,
    most_rows: int = BOUND_ROWS,
) -> float:
    """Return a lower bound on abstention under these risk constraints, for calibrated scores.

    The bound holds for any multipliers. They come from a sample of the rows, or of other rows that
    are given, so that they do not flatter; the bound is evaluated on all rows.
    """
    needs = risk_requirements(constraints, probabilities.shape[1])
    if not len(needs.right):
        return 0.0  # nothing is asked for
    rows = probabilities if priced_by is None else priced_by
    most = max(200, min(most_rows, BOUND_PRODUCTS // needs.right.size))
    rng = np.random.default_rng([seed, len(rows)])
    chosen = rng.choice(len(rows), min(most, len(rows)), replace=False, shuffle=False)
    given = weights if priced_by is None else price_weights
    part = np.ones(len(chosen)) if given is None else given[chosen]
    multipliers = minimise(
        rows[chosen], part / part.sum(), needs, BOUND_SMOOTHINGS, least_fall=BOUND_FALL
    )
    share = weights / weights.sum()
    shrinks = (1.0,) if most == most_rows else SHRINKS
    found = [certain_bound(probabilities, share, needs, f * multipliers) for f in shrinks]
    return 1.0 - min(found)
