"""Counts of certain and wrong rows: by class, by constraint, and over groups of rows.

A row is certain where its set has one member, and wrong where that member is another class.

Rows of a group, such as the epochs of one patient, resemble each other, so counting them as
independent certifies too much. The design effect compares the variance of the risk between groups
with that of independent rows; the counts shrunk by it go into the binomial formulas. The result is
approximate: where rows of a group are much alike and groups few, a nominal error probability of 5 %
was 7 to 10 % in simulations, and 14 % where most rows are of a few large groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labelled, Labels
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidDataError

MANY_ROWS = 2**24  # counted at once
LEAST_GROUPS = 30  # with fewer, the design effect is hardly better than a guess


class Counts(NamedTuple):
    """Weights of rows, by true class and in all."""

    members: Floats  # (k,) rows
    certain: Floats  # (k,) rows with one member
    wrong: Floats  # (k,) certain rows whose member is another class
    missed: Floats  # (k,) rows whose set lacks the class
    all_certain: float
    all_empty: float
    all_size: float  # members of all sets


def certain_and_wrong(sets: Bools, labels: Labels) -> tuple[Bools, Bools]:
    """Return (n,) which rows are certain, and which of them wrong."""
    certain = np.count_nonzero(sets, axis=1) == 1
    return certain, certain & ~sets[np.arange(len(sets)), labels]


def count_rows(sets: Bools, rows: Labelled) -> Counts:
    """Count the sets of labelled rows."""
    return count_sets(sets, rows.labels, rows.soft, rows.weights)


def count_sets(sets: Bools, labels: Labels, soft: Floats, weights: Floats) -> Counts:
    """Count sets against labels, or against soft labels where `labels` is empty."""
    n, k = sets.shape
    sizes = np.count_nonzero(sets, axis=1)
    certain = sizes == 1
    totals = [float(weights[of].sum()) for of in (certain, sizes == 0)]
    totals.append(float(weights @ sizes))
    if not len(labels):
        missed = np.where(sets, 0.0, soft)
        parts = (soft, soft[certain], missed[certain], missed)
        return Counts(*(part.sum(axis=0) for part in parts), *totals)
    held = sets[np.arange(n), labels]
    code = 4 * labels + 2 * certain + held
    table = np.bincount(code, weights, 4 * k).astype(np.float64)
    table = table.reshape(k, 2, 2)  # class, certain, held
    by_class = table.sum(axis=(1, 2)), table[:, 1].sum(axis=1)
    return Counts(*by_class, table[:, 1, 0], table[:, :, 0].sum(axis=1), *totals)


def add_counts(parts: Iterable[Counts]) -> Counts:
    """Return the counts of all rows from those of their parts."""
    return Counts(*(sum(values[1:], start=values[0]) for values in zip(*parts, strict=True)))


def constraint_counts(counts: Counts, constraints: Sequence[Constraint]) -> tuple[Floats, Floats]:
    """Return the counters of each constraint (c, 3) and the totals (4,), as kernels hold them."""
    by_constraint = np.zeros((len(constraints), 3))
    for c, constraint in enumerate(constraints):
        of = list(constraint.classes)
        certain = counts.certain[of].sum()
        by_constraint[c] = certain, certain - counts.wrong[of].sum(), counts.missed[of].sum()
    totals = counts.all_certain, counts.all_empty, counts.all_size, counts.wrong.sum()
    return by_constraint, np.array(totals)


class GroupSums(NamedTuple):
    """Sums over the groups with certain rows of each claim, from which its design effect follows.

    With n_i certain and e_i wrong rows of a claim in group i.
    """

    total: int  # groups with any row
    counts: Ints  # (c,) groups with n_i > 0
    certain_squared: Floats  # (c,) sum of n_i^2
    wrong_squared: Floats  # (c,) sum of e_i^2
    product: Floats  # (c,) sum of n_i e_i


def sum_groups(
    groups: Ints,  # (n,) codes from 0
    wrong: Bools,  # (n,)
    certain: Iterable[Bools],  # (c,) of (n,), for each claim its certain rows
    weights: Floats | None = None,  # (n,) rows that each one stands for
) -> GroupSums:
    """Sum certain and wrong rows group by group.

    Rows that stand for others are a sample, whose groups vary more in size than those of all rows:
    a row of weight w adds w^2 to the squares but w, on average, to what it stands for, hence w (w -
    1) is taken off.
    """
    rows_of_each = np.bincount(groups)
    sums: list[tuple[Any, ...]] = []
    for rows in certain:
        both = rows & wrong
        if weights is None:
            n, e = (_by_group(groups, some, len(rows_of_each)) for some in (rows, both))
            sums.append((np.count_nonzero(n), n @ n, e @ e, n @ e))
            continue
        size = np.bincount(groups[rows], weights[rows])
        errors = np.bincount(groups[both], weights[both], len(size))
        more, more_errors = ((weights[of] * (weights[of] - 1)).sum() for of in (rows, both))
        squares = size @ size - more, errors @ errors - more_errors, size @ errors - more_errors
        sums.append((np.count_nonzero(size), *squares))
    table = np.array(sums, dtype=np.float64).reshape(-1, 4)
    total = int(np.count_nonzero(rows_of_each))
    return GroupSums(total, table[:, 0].astype(np.int64), *table[:, 1:].T)


def _by_group(groups: Ints, rows: Bools, n_groups: int) -> Ints:
    """Return how many of some rows each group has."""
    sizes = np.zeros(n_groups, dtype=np.int64)
    for start in range(0, len(groups), MANY_ROWS):
        of = slice(start, start + MANY_ROWS)
        sizes += np.bincount(groups[of][rows[of]], minlength=n_groups)
    return sizes


def effective_counts(
    certain: Ints,  # (c,)
    wrong: Ints,  # (c,)
    sums: GroupSums,
    level: float,
) -> tuple[Floats, Floats]:
    """Return certain and wrong rows of each claim, as independent rows; 0 from fewer than 2 groups.

    `level` is the error probability of the test that the counts are for: the variance between few
    groups is itself uncertain, and Student's quantiles pay for that.
    """
    known = sums.counts >= 2
    m, n = np.where(known, sums.counts, 2.0), np.where(known, certain, 2.0)
    risk = np.where(known, wrong / n, 0.0)
    mixed = (risk > 0) & (risk < 1)
    squares = sums.wrong_squared - 2 * risk * sums.product + risk**2 * sums.certain_squared
    between = m / (m - 1) * squares / n**2
    independent = np.where(mixed, risk * (1 - risk) / n, 1.0)
    # All right, or all wrong, says nothing of the variance: then the sizes of the groups count.
    effect = np.where(mixed, np.maximum(between / independent, 1.0), sums.certain_squared / n)
    effect = np.where(known, effect, 1.0)
    students = special.stdtrit(n - 1, 1 - level) / special.stdtrit(m - 1, 1 - level)
    effective = np.where(known, n / effect * students**2, 0.0)
    return effective, risk * effective


def design_effects(
    certain: Floats | Ints,  # (c,)
    wrong: Floats | Ints,  # (c,)
    sums: GroupSums,
    more: float,
    level: float,
) -> Floats:
    """Return (c,) how many certify rows count as one, between 1 and the size of a group.

    Claims share one correlation within groups, the mean over their wrong rows, because each by
    itself has few. The certificate has `more` times the groups.
    """
    n = np.maximum(certain, 1)
    risk = wrong / n
    squares = sums.wrong_squared - 2 * risk * sums.product + risk**2 * sums.certain_squared
    independent = risk * (1 - risk) * n
    mixed = (independent > 0) & (sums.counts >= 2)
    size = np.maximum(sums.certain_squared / n, 1.0)
    m = np.maximum(sums.counts, 2)
    effect = np.where(mixed, m / (m - 1) * squares / np.where(mixed, independent, 1.0), 1.0)
    alike = np.clip((effect - 1) / np.maximum(size - 1, 1e-9), 0.0, 1.0)
    errors = np.where(mixed & (size > 1), wrong, 0)
    shared = np.average(alike, weights=errors) if errors.any() else 0.0
    groups = np.maximum(np.round(more * sums.counts), 2.0)
    students = special.stdtrit(groups - 1, 1 - level) / special.ndtri(1 - level)
    return np.maximum((1 + (size - 1) * shared) * students**2, 1.0)


def check_groups(groups: ArrayLike, n: int) -> Ints:
    """Return the group of each row as a code from 0."""
    values = np.asarray(groups)
    if values.shape != (n,):
        raise InvalidDataError(
            f"groups must be one for each of the {n} rows, got shape {values.shape}"
        )
    missing = [row for row, value in enumerate(values.tolist()) if _is_missing(value)]
    if missing:
        raise InvalidDataError(
            f"groups[{missing[0]}] is missing; name the group of every row, "
            "and give a row that stands alone a group of its own"
        )
    if values.dtype.kind == "O":
        codes: dict[object, int] = {}
        return np.array(
            [codes.setdefault(value, len(codes)) for value in values.tolist()], np.int64
        )
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _is_missing(value: object) -> bool:
    """Return whether a value is None or differs from itself: NaN, NaT, pandas.NA."""
    differs = value != value  # noqa: PLR0124
    return value is None or not isinstance(differs, bool | np.bool_) or bool(differs)
