"""Random halves of rows: one to fit, the other to measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

TRIES = 100  # to halve groups so that every class is in both halves


def group_codes(groups: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return the group of each row as a number from 0."""
    names = np.asarray(groups)
    if names.shape != (n,):
        msg = f"groups must be one for each of the {n} rows of scores, got shape {names.shape}"
        raise InvalidDataError(msg)
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def halve(
    rows: Labelled,
    groups: NDArray[np.int64] | None,  # (n,) from 0
    needed: Sequence[int],  # classes that must be in both halves
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return which rows are fitted: half of each class, or half of the groups."""
    _check_classes(rows, groups, needed)
    if groups is not None:
        return _halve_groups(rows, groups, needed, random)
    fitted = np.zeros(len(rows.labels), dtype=np.bool_)
    for j in np.unique(rows.labels):
        own = random.permutation(np.flatnonzero(rows.labels == j))
        fitted[own[: (len(own) + 1) // 2]] = True
    return fitted


def _check_classes(rows: Labelled, groups: NDArray[np.int64] | None, needed: Sequence[int]) -> None:
    """Raise for a class that cannot be in both halves."""
    what = "row" if groups is None else "group"
    for j in needed:
        own = rows.labels == j
        count = len(np.unique(np.flatnonzero(own) if groups is None else groups[own]))
        if count < 2:
            msg = (
                f"class {rows.classes[j]!r} has {count} {what}{'s' * (count != 1)} among the "
                "fit rows, but needs one to fit and one to measure; add rows of it, or waive it by "
                "name"
            )
            raise InvalidLabelsError(msg)


def _halve_groups(
    rows: Labelled,
    groups: NDArray[np.int64],
    needed: Sequence[int],
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return the rows of half of the groups, drawn until each class is in both halves."""
    n_groups, lacking = int(groups.max()) + 1, 0
    for _ in range(TRIES):
        fitted = (random.permutation(n_groups) < (n_groups + 1) // 2)[groups]
        parts = (set(rows.labels[part].tolist()) for part in (fitted, ~fitted))
        both = set.intersection(*parts)
        if both.issuperset(needed):
            return fitted
        lacking = next(j for j in needed if j not in both)
    msg = (
        f"of {TRIES} random splits of the {n_groups} groups none has class "
        f"{rows.classes[lacking]!r} in both halves; add groups with rows of it, or waive it by name"
    )
    raise InvalidDataError(msg)
