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

from scrib_mlflow.core.blocks import row_blocks
from scrib_mlflow.core.checks import as_number
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.tally import Labels
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
    as_number("candidate_coverage", coverage, low=0, high=1)
    rows = check_rows(scores, labels, classes, None, least_rows=1)
    if len(rows.soft):
        msg = "labels that calibrate candidates must be one class a row"
        raise InvalidLabelsError(msg)
    own = own_probabilities(rule, rows.scores, rows.labels)
    asked = ~np.isnan(own)
    thresholds = [
        _threshold(own[asked & (rows.labels == j)], coverage) for j in range(len(rule.multipliers))
    ]
    return replace(rule, candidate_thresholds=tuple(thresholds))


def own_probabilities(
    rule: OptimalRule,
    scores: NDArray[np.float64],  # (n, k)
    labels: Labels,  # (n,)
) -> NDArray[np.float64]:
    """Return (n,) the probability of the true class where the rule abstains, NaN elsewhere."""
    plain = asdict(rule)
    own = np.empty(len(labels))
    for of in row_blocks(len(labels)):
        probabilities = recalibrated(plain["recalibration"], scores[of])
        _, value = answer_values(plain, probabilities)
        true = probabilities[np.arange(len(value)), labels[of]]
        own[of] = np.where(value < 0, true, np.nan)
    return own


def threshold_rank(n: int, coverage: float) -> int:
    """Return which of n ascending probabilities, from 1, is the threshold; 0: always a candidate.

    That is floor((1 - coverage) (n + 1)); below 1 the rows are too few for any threshold.
    """
    return int(np.floor((1.0 - coverage) * (n + 1) + SLACK))


def threshold_between(at: float, below: float | None) -> float:
    """Return the middle between a probability and the next lower one, or itself where none is.

    So the last bit of a probability does not matter.
    """
    return at if below is None else below + (at - below) / 2


def _threshold(own: NDArray[np.float64], coverage: float) -> float:
    """Return the threshold that the probabilities of a class give, -inf where they are too few."""
    m = threshold_rank(len(own), coverage)
    if m < 1:
        return float("-inf")
    lowest = np.partition(own, m - 1)[:m]
    lower = lowest[lowest < lowest[-1]]
    return threshold_between(float(lowest[-1]), float(lower.max()) if len(lower) else None)
