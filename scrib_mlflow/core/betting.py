"""Weighted rows: evidence against "the risk is above its target" as the winnings of fair bets.

Weighted errors are not binomial. With weights w <= b, where b was fixed before the weights were
seen, every certain row of a claim has Z = w / b (wrong - target), whose mean is above 0 where the
weighted risk is above the target. Betting a share on Z being negative then loses on average, so
large winnings are evidence (an e-value E, with P(E >= 1 / level) <= level); 1 / E is a p-value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.checks import as_number
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.errors import InvalidLabelsError, InvalidWeightsError

SHARES = np.linspace(0.05, 0.99, 20)  # of the highest bet; each is best for another true risk


def log_winnings(
    weights: NDArray[np.float64],  # (n,) of certain rows, at most 1
    wrong: NDArray[np.bool_],  # (n,)
    target: float,
) -> NDArray[np.float64]:
    """Return the logarithm of what each bet of `SHARES` has made of 1 after these rows."""
    z = weights * (wrong - target)
    return np.array([np.log1p(-share / (1 - target) * z).sum() for share in SHARES])


def bet_p_values(winnings: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values from the log winnings (c, bets) of each claim."""
    evidence = special.logsumexp(winnings, axis=1) - np.log(winnings.shape[1])
    return np.exp(-np.maximum(evidence, 0.0))


def check_shares(
    rows: Labelled, max_weight: float | None, *, grouped: bool
) -> NDArray[np.float64] | None:
    """Return weights as shares of the highest possible one; None where each row counts as one."""
    if len(rows.soft):
        msg = "labels are a matrix, but a certificate needs the one true class of each row"
        raise InvalidLabelsError(msg)
    if rows.counted and max_weight is None:
        return None
    if grouped:
        msg = "rows have groups and weights, which no certificate covers; leave one of them out"
        raise InvalidWeightsError(msg)
    if max_weight is None:
        msg = (
            "sample_weight has other weights than 0 and 1: weighted errors are not binomial, so "
            "the exact certificate does not hold. Pass max_weight, the highest weight a row can "
            "have, fixed before looking at the weights; or keep each row with probability "
            "weight / max_weight and certify the kept ones without weights"
        )
        raise InvalidWeightsError(msg)
    most = as_number("max_weight", max_weight, low=0, high=np.inf)
    if rows.weights.max() > most:
        msg = (
            f"a row weighs {rows.weights.max():g}, more than max_weight = {most:g}; "
            "find a bound that no row can exceed, and certify on rows not looked at before"
        )
        raise InvalidWeightsError(msg)
    return rows.weights / most
