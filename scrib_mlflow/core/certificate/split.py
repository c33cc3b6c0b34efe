"""Which rows certify, and samples: bounded, with all rows of rare classes, the others weighted.

Both follow from `order_rows` alone, so that every engine takes the same rows: certify rows are the
lowest of each class, a sample of the others are the highest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core import inputs
from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labels
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

CERTIFY, CERTIFY_WITH_PATH = 0.7, 0.9  # share of the rows, alone and where others draw the path


def certify_share(fraction: float | None, *, with_path: bool) -> float:
    """Return the share of the rows that certify; what is usual where nothing is asked for."""
    usual = CERTIFY_WITH_PATH if with_path else CERTIFY
    return usual if fraction is None else fraction


def split_rows(
    hashes: NDArray[np.uint64],  # (n,) of what identifies a row
    labels: Labels,  # (n,)
    fraction: float,
    seed: int,
    groups: NDArray[np.uint64] | None = None,  # (n,) hashes of the groups' names
    names: Sequence[object] = (),  # of the classes, by default their numbers
    waived: Sequence[str] = (),
) -> Bools:
    """Return which rows certify: a fraction of each class, or of the groups.

    Every class must have rows to fit and to certify, except those that are waived.
    """
    inputs.as_number("certify_fraction", fraction, low=0, high=1)
    names = names or range(int(labels.max(initial=-1)) + 1)
    sizes = inputs.class_sizes(labels, len(names))
    needed = np.array([name not in waived for name in names], dtype=np.bool_)
    single = np.flatnonzero((sizes == 1) & needed)
    if len(single):
        raise InvalidLabelsError(
            f"class {names[single[0]]!r} has 1 row, but needs one to fit and one to certify; "
            "add rows of it, or waive it by name"
        )
    if groups is not None:
        certify = _split_groups(groups, fraction, seed)
        certifying = inputs.class_sizes(labels, len(names), certify)
        for part, n_rows in (("certify", certifying), ("fit", sizes - certifying)):
            lacking = np.flatnonzero(needed & (sizes > 0) & (n_rows == 0))
            if len(lacking):
                having = len(np.unique(groups[labels == lacking[0]]))
                raise InvalidDataError(
                    f"no group with rows of class {names[lacking[0]]!r} is among those to {part}, "
                    f"of {having} that have it; add groups, change certify_fraction or seed, or "
                    "waive the class by name"
                )
        return certify
    order = order_rows(hashes, labels, seed)
    certify = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(sizes):
        certify |= lowest(order, labels == label, share(int(sizes[label]), fraction))
    return certify


def order_rows(
    hashes: NDArray[np.uint64],  # (n,)
    labels: Labels,  # (n,)
    seed: int,
) -> NDArray[np.uint64]:
    """Return numbers whose order is that of the rows: certify rows are the lowest of each class."""
    order = inputs.new_array((len(hashes),), np.uint64)
    for of, occurrences in _occurrences(hashes, labels):
        order[of] = _order_of(hashes[of], occurrences, seed)
    return order


def testing_order(order: NDArray[np.uint64], labels: Labels) -> Ints:
    """Return row numbers in the order in which an acceptance plan tests them.

    Rows that are equal in both are equal to a rule too, so their order does not matter.
    """
    n = len(labels)
    mixed = inputs.fill_rows(
        n, np.uint64, lambda of: inputs.mix(order[of] + inputs.mix(labels[of]))
    )
    return np.argsort(mixed, kind="stable")


def share(n: int, fraction: float) -> int:
    """Return how many of n rows (or groups) certify; both parts get one at least."""
    return min(max(math.floor(fraction * n + 0.5), 1), n - 1)


def _split_groups(groups: NDArray[np.uint64], fraction: float, seed: int) -> Bools:
    """Return the rows of the groups that certify."""
    distinct = inputs.distinct_values(groups)
    n = len(distinct)
    if n < 2:
        raise InvalidDataError(
            f"all {len(groups)} rows are of one group, but groups are split whole; add groups"
        )
    chosen = lowest(order_groups(distinct, seed), np.ones(n, dtype=np.bool_), share(n, fraction))
    return inputs.fill_rows(
        len(groups), np.bool_, lambda of: chosen[np.searchsorted(distinct, groups[of])]
    )


def order_groups(distinct: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return numbers whose order is that in which groups are taken."""
    return _order_of(distinct, np.zeros_like(distinct), seed)


def _order_of(
    hashes: NDArray[np.uint64], occurrences: NDArray[np.uint64], seed: int
) -> NDArray[np.uint64]:
    """Return the order of rows that are numbered, from 0, among those with their hash and label."""
    return inputs.mix(inputs.mix(hashes ^ inputs.mix(seed % 2**64)) + occurrences)


def _occurrences(
    hashes: NDArray[np.uint64], labels: Labels
) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """Yield blocks, and the number, from 0, of each row among those with its hash and label."""
    n = len(hashes)
    ordered = inputs.fill_rows(n, np.uint64, lambda of: hashes[of] ^ inputs.mix(labels[of]))
    ordered.sort()
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    seen = np.zeros(len(repeated), dtype=np.uint64)
    for of in inputs.row_blocks(n):
        keys = hashes[of] ^ inputs.mix(labels[of])
        numbers = np.zeros(len(keys), dtype=np.uint64)
        alike = np.flatnonzero(inputs.is_among(keys, repeated))
        codes = np.searchsorted(repeated, keys[alike])
        numbers[alike] = seen[codes] + inputs.count_up(codes).astype(np.uint64)
        np.add.at(seen, codes, np.uint64(1))
        yield of, numbers


def lowest(order: NDArray[np.uint64], inside: Bools, count: int) -> Bools:
    """Return which of the rows inside have the lowest numbers; of equal ones the first."""
    values = inputs.take_rows(order, inside)
    if count >= len(values):
        return inside
    values.partition(count)
    cut = values[count]
    lowest = inside & (order < cut)
    left = count - int(np.count_nonzero(lowest))
    if left:
        lowest[np.flatnonzero(inside & (order == cut))[:left]] = True
    return lowest


class Sample(NamedTuple):
    """Scored rows in memory: all rows of a part, or some that stand for all of them."""

    scores: Floats  # (n, k)
    labels: NDArray[np.int32]  # (n,) -1 where rows have none
    weights: Floats | None  # (n,) None where every row is there
    groups: Ints | None  # (n,) codes from 0
    cases: NDArray[np.uint64]  # (n,) hash of what the model is given, and of the class
    places: Ints | None  # (n,) number of each row in its table, where it has one
    keys: NDArray[np.object_] | None  # (n,) what identifies each row


def class_quotas(sizes: ArrayLike, most: int) -> Ints:
    """Return how many rows of each class to keep: at most `most`, no class cut below another's cut.

    A class of n rows keeps min(n, q), with the highest q that the limit allows.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    rising = np.sort(counts)
    left = most - np.cumsum(rising) + rising  # for a class and those that are not smaller
    cuts = left // np.arange(len(counts), 0, -1)
    over = np.flatnonzero(rising > cuts)
    return np.minimum(counts, cuts[over[0]]) if len(over) else counts.copy()


def class_weights(sizes: ArrayLike, quotas: ArrayLike) -> Floats:
    """Return how many rows of its class each kept row stands for; 1 where all or none are kept."""
    counts, kept = (np.asarray(values, dtype=np.int64) for values in (sizes, quotas))
    return np.where(kept > 0, counts / np.maximum(kept, 1), 1.0)


def keep_rows(
    order: NDArray[np.uint64],  # (n,)
    labels: Labels,  # (n,)
    quotas: Ints,  # (k,)
) -> Bools:
    """Return which rows to keep: of each class as many as its quota, those of the highest order."""
    kept = np.zeros(len(labels), dtype=np.bool_)
    for label, quota in enumerate(quotas.tolist()):
        inside = labels == label
        left_out = int(np.count_nonzero(inside)) - quota
        kept |= inside & ~lowest(order, inside, left_out) if left_out > 0 else inside
    return kept
