"""Exact sums and order statistics over all rows of a Spark table.

Only sums, counts and a few values reach the driver. Spark has no unsigned numbers and its integers
must not overflow, so hashes travel as the signed numbers of the same order, and are added in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Measure = Callable[[pa.RecordBatch], NDArray[Any]]
TOP = np.uint64(1 << 63)
BELOW_TOP = np.int64((1 << 63) - 1)
BITS = 12  # of a histogram
MOST_BUCKETS = 1 << 16  # of all groups together
FEW = 20_000  # values that may be collected
PARTIAL = "sums binary"


def as_signed(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return unsigned numbers as signed ones of the same order."""
    return (values ^ TOP).view(np.int64)


def as_unsigned(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the unsigned numbers that `as_signed` was given."""
    return np.asarray(values, dtype=np.int64).view(np.uint64) ^ TOP


def float_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return floats, none of them NaN, as integers of the same order."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return np.where(bits >= 0, bits, bits ^ BELOW_TOP)


def float_of(ordered: int) -> float:
    """Return the float that `float_order` was given."""
    bits = np.array([ordered], dtype=np.int64)
    return float(np.where(bits >= 0, bits, bits ^ BELOW_TOP).view(np.float64)[0])


def numbers(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """Return a column of numbers without gaps as an array."""
    return batch.column(name).to_numpy(zero_copy_only=False)


def hashes(batch: pa.RecordBatch, name: str) -> NDArray[np.uint64]:
    """Return a column of hashes as they were before `as_signed`."""
    return as_unsigned(numbers(batch, name))


def matrix(batch: pa.RecordBatch, name: str, k: int) -> NDArray[Any]:
    """Return a column of k numbers a row as an array (n, k)."""
    return batch.column(name).flatten().to_numpy(zero_copy_only=False).reshape(-1, k)


def sum_over(frame: DataFrame, measure: Measure, start: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over all rows of an array that is measured batch by batch.

    `start` is what no rows give: zeros of the shape and the type of the sum.
    """

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = start.copy()
        for batch in batches:
            if batch.num_rows:
                total += measure(batch)
        yield _packed(total)

    return sum(_unpacked(frame.mapInArrow(add, PARTIAL), start), start.copy())


def over_partitions(frame: DataFrame, measure: Measure, like: NDArray[Any]) -> list[NDArray[Any]]:
    """Return an array that is measured on all rows of each partition at once."""

    def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            (all_rows,) = pa.Table.from_batches(held).combine_chunks().to_batches()
            yield _packed(measure(all_rows))

    return _unpacked(frame.mapInArrow(whole, PARTIAL), like)


def _packed(array: NDArray[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"sums": [array.tobytes()]})


def _unpacked(frame: DataFrame, like: NDArray[Any]) -> list[NDArray[Any]]:
    rows = frame.collect()
    return [np.frombuffer(row["sums"], dtype=like.dtype).reshape(like.shape) for row in rows]


def lowest(frame: DataFrame, group: str, value: str, ranks: Mapping[int, int]) -> dict[int, int]:
    """Return for each group, an integer, the value (int64) of its rank among the group's, from 1.

    Each pass counts values by their next bits and goes on with the bucket that holds the rank,
    until few values are left or no bits are.
    """
    if not ranks:
        return {}
    bits = max(4, min(BITS, int(np.log2(MOST_BUCKETS / len(ranks)))))
    left, shift = dict(ranks), 64 - bits  # ranks within the buckets found so far
    inside = frame.filter(F.col(group).isin(*ranks))
    while True:
        bucket = F.shiftright(value, shift)
        counted = inside.groupBy(F.col(group).alias("g"), bucket.alias("b")).count().collect()
        found = {
            g: _bucket(sorted((row["b"], row["count"]) for row in rows), left[g])
            for g, rows in _by_group(counted).items()
        }
        prefixes = {g: prefix for g, (prefix, _, _) in found.items()}
        if shift == 0:
            return prefixes
        left = {g: rank for g, (_, rank, _) in found.items()}
        inside = frame.filter(bucket == looked_up(prefixes, group))
        if sum(size for _, _, size in found.values()) <= FEW:
            rows = inside.select(F.col(group).alias("g"), value).collect()
            return {
                g: sorted(row[1] for row in own)[left[g] - 1] for g, own in _by_group(rows).items()
            }
        shift = max(shift - bits, 0)


def next_lower(frame: DataFrame, group: str, value: str, than: Mapping[int, int]) -> dict[int, int]:
    """Return for each group its highest value below the one given, where it has one."""
    if not than:
        return {}
    below = frame.filter(F.col(value) < looked_up(than, group))
    rows = below.groupBy(group).agg(F.max(value).alias("below")).collect()
    return {row[group]: row["below"] for row in rows}


def _by_group(rows: Iterable[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row["g"], []).append(row)
    return found


def _bucket(buckets: list[tuple[int, int]], rank: int) -> tuple[int, int, int]:
    """Return the bucket that a rank falls into, the rank within, and the bucket's size."""
    for bucket, size in buckets:
        if rank <= size:
            return bucket, rank, size
        rank -= size
    msg = f"a rank is {rank} beyond the rows of its group"
    raise IndexError(msg)


def looked_up(values: Mapping[int, int], group: str) -> Column:
    """Return the value that belongs to the group of each row, null where none does."""
    pairs = [F.lit(each) for g, value in values.items() for each in (g, value)]
    return F.create_map(*pairs)[F.col(group)]
