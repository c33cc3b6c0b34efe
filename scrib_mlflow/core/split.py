"""The split into fit rows and certify rows, by contents and seed alone.

Another engine repeats it so, with `mix` of `core.mixing` and arithmetic modulo 2^64::

    occurrence = row_number() over (partition by label, hash) - 1
    order      = mix(mix(hash ^ mix(seed)) + occurrence)
    certify    = row_number() over (partition by label order by order) <= share(rows of the label)
    share(n)   = floor(fraction * n + 0.5), at least 1 and at most n - 1

Equal rows are interchangeable, so it does not matter how they are numbered; without the number all
copies of a row would go the same way. With groups the distinct groups are ordered so, all together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.checks import as_number
from scrib_mlflow.core.mixing import mix
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError


def split_rows(
    hashes: NDArray[np.uint64],  # (n,) of what identifies a row
    labels: NDArray[np.int32] | NDArray[np.int64],  # (n,)
    fraction: float,
    seed: int,
    groups: NDArray[np.uint64] | None = None,  # (n,) hashes of the groups' names
    names: Sequence[str] = (),
    waived: Sequence[str] = (),
) -> NDArray[np.bool_]:
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


def check_sizes(
    sizes: NDArray[np.int64], names: Sequence[str], waived: Sequence[str]
) -> NDArray[np.bool_]:
    """Return which classes must have rows in both parts; one row is too few for that."""
    needed = np.array([name not in waived for name in names] or [True] * len(sizes))
    single = (sizes == 1) & needed
    if single.any():
        name = _name(int(np.argmax(single)), names)
        msg = (
            f"class {name} has 1 row, but needs one to fit and one to certify; "
            "add rows of it, or waive it by name"
        )
        raise InvalidLabelsError(msg)
    return needed


def order_rows(
    hashes: NDArray[np.uint64],  # (n,)
    labels: NDArray[np.int32] | NDArray[np.int64],  # (n,)
    seed: int,
) -> NDArray[np.uint64]:
    """Return numbers whose order is that of the rows: certify rows are the lowest of each class."""
    return order_of(hashes, _occurrences(hashes, labels), seed)


def share(n: int, fraction: float) -> int:
    """Return how many of n rows (or groups) certify; both parts get one at least."""
    return min(max(math.floor(fraction * n + 0.5), 1), n - 1)


def _split_groups(groups: NDArray[np.uint64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return the rows of the groups that certify."""
    distinct, codes = np.unique(groups, return_inverse=True)
    check_groups_suffice(len(distinct), len(groups))
    chosen = np.zeros(len(distinct), dtype=np.bool_)
    chosen[_first(order_of(distinct, np.zeros_like(distinct), seed), fraction)] = True
    return chosen[codes]


def check_groups_suffice(n_groups: int, n_rows: int) -> None:
    """Raise where there is nothing to split."""
    if n_groups < 2:
        msg = f"all {n_rows} rows are of one group, but groups are split whole; add groups"
        raise InvalidDataError(msg)


def _check_parts(
    groups: NDArray[np.uint64],
    labels: NDArray[np.int32] | NDArray[np.int64],  # -1 where the class does not matter
    certify: NDArray[np.bool_],
    names: Sequence[str],
) -> None:
    """Raise for a class that a part has no rows of."""
    for part, inside in (("certify", certify), ("fit", ~certify)):
        lacking = np.setdiff1d(labels[labels >= 0], labels[inside])
        if len(lacking):
            own = len(np.unique(groups[labels == lacking[0]]))
            raise no_group_with(int(lacking[0]), part, own, names)


def no_group_with(label: int, part: str, own: int, names: Sequence[str]) -> InvalidDataError:
    """Return the error for a class that none of a part's groups have, of `own` that do."""
    return InvalidDataError(
        f"no group with rows of class {_name(label, names)} is among those to {part}, of {own} "
        "that have it; add groups, change certify_fraction or seed, or waive the class by name"
    )


def order_of(
    hashes: NDArray[np.uint64], occurrences: NDArray[np.uint64], seed: int
) -> NDArray[np.uint64]:
    """Return the order of rows that are numbered, from 0, among those with their hash and label."""
    return mix(mix(hashes ^ mix(seed % 2**64)) + occurrences)


def _occurrences(
    hashes: NDArray[np.uint64], labels: NDArray[np.int32] | NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the number, from 0, of each row among those with its hash and label."""
    keys = hashes ^ mix(labels)
    by_key = np.argsort(keys)
    sorted_keys = keys[by_key]
    first = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]]
    places = np.arange(len(keys))
    numbers = np.empty(len(keys), dtype=np.uint64)
    numbers[by_key] = places - np.maximum.accumulate(np.where(first, places, 0))
    return numbers


def _first(order: NDArray[np.uint64], fraction: float) -> NDArray[np.int64]:
    """Return the places of the first share of the rows."""
    count = share(len(order), fraction)
    return np.argpartition(order, count)[:count]


def _name(label: int, names: Sequence[str]) -> str:
    return repr(names[label]) if label < len(names) else str(label)
