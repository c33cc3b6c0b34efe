"""Which rows to label: some of those that a path answers, because other labels prove nothing.

A class risk is a share of the *answered* rows of a class. So rows that every rule of the path
abstains on take no part in its test, and their labels are wasted. Rows drawn at random from those
that some rule answers are, for each rule, a random sample of the rows that it answers: the test is
as exact as on rows of all kinds. The path must be fixed before, and by other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate.split import lowest, order_groups, split_rows
from scrib_mlflow.core.inputs import Bools, Floats
from scrib_mlflow.core.rules import Rule, make_sets
from scrib_mlflow.errors import InvalidDataError


def split_pool(
    hashes: NDArray[np.uint64],  # (n,) of what identifies a row
    path_fraction: float,
    seed: int,
    groups: NDArray[np.uint64] | None = None,  # (n,)
) -> Bools:
    """Return which rows of a pool draw the path; whole groups. Rows to label come from the others.

    Not even the scores of rows that will be labelled may shape the path.
    """
    inputs.as_number("path_fraction", path_fraction, low=0, high=1)
    unlabelled = np.zeros(len(hashes), dtype=np.int32)
    return ~split_rows(hashes, unlabelled, 1.0 - path_fraction, seed, groups)


def answered_rows(rules: Sequence[Rule], scores: Floats) -> Bools:
    """Return (n,) which rows some rule answers; none without scores."""

    def answered(of: slice) -> Bools:
        some = np.zeros(len(scores[of]), dtype=np.bool_)
        for rule in rules:
            some |= np.count_nonzero(make_sets(rule, scores[of]), axis=1) == 1
        return some

    return inputs.fill_rows(len(scores), np.bool_, answered)


def draw_rows(
    answered: Bools,  # (n,)
    order: NDArray[np.uint64],  # (n,) in which rows are taken, an order like chance
    most: int,
    seed: int = 0,
    groups: NDArray[np.uint64] | None = None,  # (n,)
) -> Bools:
    """Return which of the answered rows to label: so many, or about so many in whole groups.

    The number of groups follows from the mean size of all of them. Were they drawn until there are
    rows enough, or until no further one fits, large groups would come too often, or never.
    """
    n = int(np.count_nonzero(answered))
    if most > n:
        raise InvalidDataError(
            f"rows is {most:,}, but only {n:,} rows that could be labelled are answered by some "
            f"rule of the path; ask for {n:,} at most, give a larger pool, or lower path_fraction"
        )
    if groups is None:
        return lowest(order, answered, most)
    distinct = np.unique(groups[answered])
    ranks = order_groups(distinct, seed)
    wanted = max(most * len(distinct) // n, 1)
    chosen = lowest(ranks, np.ones(len(distinct), dtype=np.bool_), wanted)
    return answered & inputs.is_among(groups, distinct[chosen])


def resample(weights: Floats, n: int) -> NDArray[np.intp]:
    """Return n row numbers, each about as often as its weight says: evenly along their sum."""
    ends = np.cumsum(weights / weights.sum())
    points = (np.arange(n) + 0.5) / n
    return np.minimum(np.searchsorted(ends, points), len(weights) - 1)
