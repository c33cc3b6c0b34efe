"""Counts of certain and wrong rows: by class, and by constraint.

A row is certain where its set has one member, and wrong where that member is another class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.inputs import Bools, Floats, Labelled, Labels
from scrib_mlflow.core.targets import Constraint


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
