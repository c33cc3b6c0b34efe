"""Whether methods differ, as the paper tests it: t-tests of two samples of what splits gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from scrib_mlflow.core.compare import Comparison
from scrib_mlflow.core.methods import LABEL, SGR, SHARED

BASELINES = (SGR, LABEL, SHARED)  # the paper's; the optimal rule came later


class Difference(NamedTuple):
    """A method beside the best of others."""

    other: str
    p_value: float  # two-sided, of equal means; NaN where that cannot be told


def excess_values(found: Comparison, method: str) -> list[float]:
    """Return the excess of every class in every repeat, the sample that the paper tests."""
    return [value for trial in found.of(method) for value in trial.excess.values()]


def excess_difference(found: Comparison, method: str) -> Difference:
    """Hold a method's excess against that of the baseline with the least."""
    best = min(BASELINES, key=lambda name: np.mean(excess_values(found, name)))
    return Difference(best, p_value(excess_values(found, method), excess_values(found, best)))


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the p-value of Welch's t-test, NaN where a sample has fewer than two values."""
    if min(len(one), len(other)) < 2 or (np.ptp(one) == 0 and np.ptp(other) == 0):
        return float("nan")
    return float(stats.ttest_ind(one, other, equal_var=False).pvalue)
