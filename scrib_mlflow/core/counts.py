"""Counts of what sets do, class by class: the only thing that risks and losses are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.targets import Constraint


class Counts(NamedTuple):
    """Weights of rows, by true class and in all."""

    members: NDArray[np.float64]  # (k,) rows
    certain: NDArray[np.float64]  # (k,) rows with one member
    wrong: NDArray[np.float64]  # (k,) certain rows whose member is another class
    missed: NDArray[np.float64]  # (k,) rows whose set lacks the class
    all_certain: float
    all_empty: float
    all_size: float  # members of all sets


def count_sets(
    sets: NDArray[np.bool_],
    labels: NDArray[np.int32],
    soft: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> Counts:
    """Count sets against labels, or against soft labels where `labels` is empty."""
    n, k = sets.shape
    sizes = np.count_nonzero(sets, axis=1)
    certain = sizes == 1
    totals = (
        float(weights[certain].sum()),
        float(weights[sizes == 0].sum()),
        float(weights @ sizes),
    )
    if len(labels):
        held = sets[np.arange(n), labels]
        code = 4 * labels + 2 * certain + held
        table = np.bincount(code, weights, 4 * k).reshape(k, 2, 2)  # class, certain, held
        missed = table[:, :, 0]
        by_class = [
            table.sum(axis=(1, 2)),
            table[:, 1].sum(axis=1),
            missed[:, 1],
            missed.sum(axis=1),
        ]
    else:
        missed_weight = np.where(sets, 0.0, soft)
        by_class = [
            soft.sum(axis=0),
            soft[certain].sum(axis=0),
            missed_weight[certain].sum(axis=0),
            missed_weight.sum(axis=0),
        ]
    members, in_certain, in_wrong, in_missed = by_class
    return Counts(members, in_certain, in_wrong, in_missed, *totals)


def add_counts(parts: Iterable[Counts]) -> Counts:
    """Return the counts of all rows from those of their parts."""
    return Counts(*(sum(values[1:], start=values[0]) for values in zip(*parts, strict=True)))


def constraint_counts(
    counts: Counts, constraints: Sequence[Constraint]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the counters of each constraint (c, 3) and the totals (3,), as kernels hold them."""
    by_constraint = np.zeros((len(constraints), 3))
    for c, constraint in enumerate(constraints):
        of = list(constraint.classes)
        certain = counts.certain[of].sum()
        by_constraint[c] = certain, certain - counts.wrong[of].sum(), counts.missed[of].sum()
    return by_constraint, np.array([counts.all_certain, counts.all_empty, counts.all_size])
