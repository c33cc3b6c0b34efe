"""Tallies and counts of rules over all rows of a Spark table, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scrib_mlflow.adapters.spark_sums import hashes, matrix, numbers, over_partitions, sum_over
from scrib_mlflow.core.counts import Counts, count_sets
from scrib_mlflow.core.groups import GroupSums
from scrib_mlflow.core.tally import Tally, claimed, tally_sets
from scrib_mlflow.core.targets import Constraint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sets = NDArray[np.bool_]
# (n, k) sets of some rules, one after the other, of the rows of a batch
MakeSets = Callable[[pa.RecordBatch], Iterable[Sets]]
PLAIN, GROUPED = 3, 8  # numbers of a tally for each claim
NO_SOFT = np.zeros((0, 0))


def tally_over(
    frame: DataFrame,
    make_sets: MakeSets,
    n_rules: int,
    constraints: Sequence[Constraint],
    *,
    grouped: bool,
) -> list[Tally]:
    """Return the tally of each rule; with groups no group may be in two partitions."""
    shape = (n_rules, GROUPED if grouped else PLAIN, len(claimed(constraints)))

    def measure(batch: Any) -> NDArray[np.float64]:
        labels = numbers(batch, "label")
        codes = _codes(hashes(batch, "grouped")) if grouped else None
        found = [_packed(tally_sets(s, labels, constraints, codes)) for s in make_sets(batch)]
        return np.array(found, dtype=np.float64).reshape(shape)

    zeros = np.zeros(shape)  # counts and sums of squares are whole, and exact below 2^53
    if grouped:
        sums = sum(over_partitions(frame, measure, zeros), zeros)
    else:
        sums = sum_over(frame, measure, zeros)
    return [_unpacked(each) for each in sums]


def count_over(frame: DataFrame, make_sets: MakeSets, k: int) -> Counts:
    """Return what the sets of one rule do, class by class."""

    def measure(batch: pa.RecordBatch) -> NDArray[np.float64]:
        (sets,) = make_sets(batch)
        labels = numbers(batch, "label")
        counts = count_sets(sets, labels, NO_SOFT, np.ones(len(labels)))
        return np.concatenate([np.atleast_1d(value) for value in counts])

    sums = sum_over(frame, measure, np.zeros(4 * k + 3))
    return Counts(*sums[: 4 * k].reshape(4, k), *(float(value) for value in sums[4 * k :]))


def served_sets(k: int) -> MakeSets:
    """Return the function that gives the sets which a served model answered with."""
    return lambda batch: [matrix(batch, "sets", k)]


def _codes(groups: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _packed(tally: Tally) -> NDArray[np.float64]:
    """Return a tally as rows of numbers, one column a claim."""
    rows: list[NDArray[Any]] = [tally.n, tally.n_certain, tally.n_wrong]
    if tally.groups is not None:
        sums = tally.groups
        rows += [sums.counts, sums.certain_squared, sums.wrong_squared, sums.product]
        rows += [np.full(len(tally.n), sums.total)]
    return np.array(rows, dtype=np.float64)


def _unpacked(rows: NDArray[np.float64]) -> Tally:
    n, n_certain, n_wrong = rows[:PLAIN].astype(np.int64)
    tally = Tally(n=n, n_certain=n_certain, n_wrong=n_wrong)
    if len(rows) == PLAIN:
        return tally
    counts, certain_squared, wrong_squared, product, total = rows[PLAIN:]
    return tally._replace(
        groups=GroupSums(
            total=int(total[0]) if len(total) else 0,
            counts=counts.astype(np.int64),
            certain_squared=certain_squared,
            wrong_squared=wrong_squared,
            product=product,
        )
    )
