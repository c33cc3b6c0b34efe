"""Candidates of an abstention: the classes that a person should look at, by split conformal.

For a rule that was fixed before these rows, a row of class k that abstains has k among its
candidates with at least the coverage asked for, on average over such rows. Only abstained rows may
say how low the probability of a true class can be: over all rows of a class the claim would not
hold for those that abstain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.checks import as_number
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.errors import InvalidLabelsError
from scrib_mlflow.serving import answer_values, recalibrated

SLACK = 1e-9  # a product that should be a whole number may fall short of it


def with_candidates(
    rule: OptimalRule,
    scores: ArrayLike,
    labels: ArrayLike,
    coverage: float = 0.95,
    *,
    classes: Sequence[object] | None = None,
) -> OptimalRule:
    """Return the rule with the candidate thresholds that labelled rows give.

    Parameters
    ----------
    rule : OptimalRule
        Fixed before these rows; its certain answers stay what they are.
    scores : (n, k) array
    labels : (n,) array
        Class names or indices.
    coverage : float
        How often the candidates of an abstention shall hold the true class, for every class.
    classes : sequence, optional
        Class names in column order; without them the column numbers.

    Returns
    -------
    OptimalRule
    """
    missed = 1.0 - as_number("candidate_coverage", coverage, low=0, high=1)
    rows = check_rows(scores, labels, classes, None, least_rows=1)
    if len(rows.soft):
        msg = "labels that calibrate candidates must be one class a row"
        raise InvalidLabelsError(msg)
    plain = asdict(rule)
    probabilities = recalibrated(plain["recalibration"], rows.scores)
    _, value = answer_values(plain, probabilities)
    asked = value < 0
    thresholds = [
        _threshold(probabilities[asked & (rows.labels == j), j], missed)
        for j in range(len(rule.multipliers))
    ]
    return replace(rule, candidate_thresholds=tuple(thresholds))


def _threshold(own: NDArray[np.float64], missed: float) -> float:
    """Return the m-th lowest probability of the true class, m = floor(missed (n + 1)).

    Or rather the middle between it and the next lower one, so that the last bit of a probability
    does not matter; -inf, so that the class is always a candidate, where rows are too few.
    """
    m = int(np.floor(missed * (len(own) + 1) + SLACK))
    if m < 1:
        return float("-inf")
    ordered = np.sort(own)
    at = ordered[m - 1]
    below = ordered[ordered < at]
    return float(at if not len(below) else below[-1] + (at - below[-1]) / 2)
