"""The split into fit rows and certify rows, and bounded samples of either.

Both follow from one order of the rows by their hashes (`order_rows`), so that every engine takes
the same ones: certify rows are the lowest of each class, a sample of the others are the highest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labels, as_number
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError


def split_rows(
    hashes: NDArray[np.uint64],  # (n,) of what identifies a row
    labels: Labels,  # (n,)
    fraction: float,
    seed: int,
    groups: NDArray[np.uint64] | None = None,  # (n,) hashes of the groups' names
    names: Sequence[str] = (),
    waived: Sequence[str] = (),
) -> Bools:
    """Return which rows certify: a fraction of each class, or of the groups.

    Every class must have rows to fit and to certify, except those that are waived.
    """
    as_number("certify_fraction", fraction, low=0, high=1)
    sizes = np.bincount(labels, minlength=len(names))
    needed = check_sizes(sizes, names, waived)
    if groups is not None:
        certify = _split_groups(groups, fraction, seed)
        _check_parts(groups, np.where(needed[labels], labels, -1), certify, names)
        return certify
    order = order_rows(hashes, labels, seed)
    certify = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(sizes):
        rows = np.flatnonzero(labels == label)
        certify[rows[_first(order[rows], fraction)]] = True
    return certify


def check_sizes(sizes: Ints, names: Sequence[str], waived: Sequence[str]) -> Bools:
    """Return which classes must have rows in both parts; one row is too few for that."""
    needed = np.array([name not in waived for name in names] or [True] * len(sizes))
    single = (sizes == 1) & needed
    if single.any():
        name = _name(int(np.argmax(single)), names)
        raise InvalidLabelsError(
            f"class {name} has 1 row, but needs one to fit and one to certify; "
            "add rows of it, or waive it by name"
        )
    return needed


def _split_groups(groups: NDArray[np.uint64], fraction: float, seed: int) -> Bools:
    """Return the rows of the groups that certify."""
    distinct, codes = np.unique(groups, return_inverse=True)
    check_groups_suffice(len(distinct), len(groups))
    chosen = np.zeros(len(distinct), dtype=np.bool_)
    chosen[_first(order_of(distinct, np.zeros_like(distinct), seed), fraction)] = True
    return chosen[codes]


def check_groups_suffice(n_groups: int, n_rows: int) -> None:
    """Raise where there is nothing to split."""
    if n_groups < 2:
        raise InvalidDataError(
            f"all {n_rows} rows are of one group, but groups are split whole; add groups"
        )


def _check_parts(
    groups: NDArray[np.uint64],
    labels: Labels,  # -1 where the class does not matter
    certify: Bools,
    names: Sequence[str],
) -> None:
    """Raise for a class that a part has no rows of."""
    for part, inside in (("certify", certify), ("fit", ~certify)):
        lacking = np.setdiff1d(labels[labels >= 0], labels[inside])
        if len(lacking):
            n_groups = len(np.unique(groups[labels == lacking[0]]))
            raise no_group_with(int(lacking[0]), part, n_groups, names)


def no_group_with(label: int, part: str, n_groups: int, names: Sequence[str]) -> InvalidDataError:
    """Return the error for a class that none of a part's groups have, of `n_groups` that do."""
    return InvalidDataError(
        f"no group with rows of class {_name(label, names)} is among those to {part}, of "
        f"{n_groups} that have it; add groups, change certify_fraction or seed, or waive the class "
        "by name"
    )


def _name(label: int, names: Sequence[str]) -> str:
    return repr(names[label]) if label < len(names) else str(label)


def share(n: int, fraction: float) -> int:
    """Return how many of n rows (or groups) certify; both parts get one at least."""
    return min(max(math.floor(fraction * n + 0.5), 1), n - 1)


def _first(order: NDArray[np.uint64], fraction: float) -> Ints:
    """Return where the first share of the rows is."""
    count = share(len(order), fraction)
    return np.argpartition(order, count)[:count]


def order_rows(
    hashes: NDArray[np.uint64],  # (n,)
    labels: Labels,  # (n,)
    seed: int,
) -> NDArray[np.uint64]:
    """Return numbers whose order is that of the rows: certify rows are the lowest of each class."""
    return order_of(hashes, _occurrences(hashes, labels), seed)


def order_of(
    hashes: NDArray[np.uint64], occurrences: NDArray[np.uint64], seed: int
) -> NDArray[np.uint64]:
    """Return the order of rows that are numbered, from 0, among those with their hash and label."""
    return mix(mix(hashes ^ mix(seed % 2**64)) + occurrences)


def mix(values: ArrayLike) -> NDArray[np.uint64]:
    """Return one step of splitmix64 from each value: a permutation that looks like chance."""
    mixed = np.atleast_1d(np.asarray(values, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _occurrences(hashes: NDArray[np.uint64], labels: Labels) -> NDArray[np.uint64]:
    """Return the number, from 0, of each row among those with its hash and label."""
    keys = hashes ^ mix(labels)
    by_key = np.argsort(keys)
    sorted_keys = keys[by_key]
    first = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]]
    positions = np.arange(len(keys))
    numbers = np.empty(len(keys), dtype=np.uint64)
    numbers[by_key] = positions - np.maximum.accumulate(np.where(first, positions, 0))
    return numbers


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
    left, cut = most, 0
    for passed, count in enumerate(np.sort(counts).tolist()):
        cut = left // (len(counts) - passed)
        if count > cut:
            break
        left -= count
    else:
        return counts.copy()
    return np.minimum(counts, cut)


def class_weights(sizes: ArrayLike, quotas: ArrayLike) -> Floats:
    """Return how many rows of its class each kept row stands for; 1 where all or none are kept."""
    counts, quota = (np.asarray(values, dtype=np.int64) for values in (sizes, quotas))
    return np.where(quota > 0, counts / np.maximum(quota, 1), 1.0)


def keep_rows(
    order: NDArray[np.uint64],  # (n,)
    labels: Labels,  # (n,)
    quotas: Ints,  # (k,)
) -> Bools:
    """Return which rows to keep: of each class as many as its quota, those of the highest order."""
    keep = np.zeros(len(labels), dtype=np.bool_)
    for label, quota in enumerate(quotas.tolist()):
        rows = np.flatnonzero(labels == label)
        left_out = len(rows) - quota
        if left_out <= 0:
            keep[rows] = True
        elif quota > 0:
            keep[rows[np.argpartition(order[rows], left_out)[left_out:]]] = True
    return keep
