"""Which targets a frontier sweeps: all of them together, and one class at a time.

All risk targets are multiplied by the same factor, so that unequal ones keep their proportions;
the target that most classes have stands for all of them. One class at a time is swept over the
same factors, the others staying at the targets that were chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.checks import as_number
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidTargetsError, ScribError

LEAST_POINTS, MOST_POINTS = 5, 200
LOWEST = 0.1  # of the chosen target
HIGHEST = 0.5  # a target, where classes would be wrong more often still
LEAST_RANGE = 2.0  # times the chosen target, at least
MOST_TARGET = 0.999
MANY_CLASSES = 20  # with more classes only
MOST_SWEPT = 12  # are swept one at a time
DIGITS = (2, 3, 4)  # significant ones of a target, as few as keep them apart


class Asked(NamedTuple):
    """Targets of one point of a sweep."""

    swept: str | None  # the class whose target moves, None where all do
    target: float  # of that class, or of the one that stands for all
    constraints: tuple[Constraint, ...]


class Sweeps(NamedTuple):
    """The points of all sweeps; the first sweep moves all targets together."""

    reference: float  # the chosen target that stands for all
    chosen: int  # where in a sweep the targets are those chosen
    sweeps: tuple[tuple[Asked, ...], ...]


def make_sweeps(
    rows: Labelled,
    constraints: tuple[Constraint, ...],
    *,
    points: int,
    lowest: float | None,
    highest: float | None,
) -> Sweeps:
    """Return the sweeps around the targets of the constraints."""
    if not LEAST_POINTS <= points <= MOST_POINTS:
        msg = f"points is {points}, but must be from {LEAST_POINTS} to {MOST_POINTS}"
        raise ScribError(msg)
    own = [c for c in constraints if c.kind == "risk"]
    if not own:
        msg = "every class is waived, so there is no target to sweep; leave one enforced"
        raise InvalidTargetsError(msg)
    single = [c for c in own if len(c.classes) == 1]
    reference = Counter(c.target for c in single or own).most_common(1)[0][0]
    top_risk = _top_risks(rows, own)
    grid = _grid(reference, own, top_risk, points, lowest, highest)
    factors = grid / reference
    joint = tuple(
        Asked(None, float(target), scale(constraints, float(factor), None))
        for target, factor in zip(grid, factors, strict=True)
    )
    by_class = tuple(
        tuple(
            Asked(one.name, _scaled(one, float(f)), scale(constraints, float(f), one.name))
            for f in factors
        )
        for one in _swept(single, top_risk, rows)
    )
    return Sweeps(reference, int(np.argmin(np.abs(grid - reference))), (joint, *by_class))


def scale(
    constraints: tuple[Constraint, ...], factor: float, name: str | None
) -> tuple[Constraint, ...]:
    """Return the constraints with the target of one class, or all risk targets, multiplied."""
    return tuple(
        replace(c, target=_scaled(c, factor)) if c.kind == "risk" and name in {None, c.name} else c
        for c in constraints
    )


def _scaled(constraint: Constraint, factor: float) -> float:
    return constraint.target if factor == 1.0 else min(constraint.target * factor, MOST_TARGET)


def _top_risks(rows: Labelled, risks: Sequence[Constraint]) -> dict[str, float]:
    """Return how often the top class is wrong, for each risk."""
    wrong = rows.scores.argmax(axis=1) != rows.labels
    found = {}
    for constraint in risks:
        own = np.isin(rows.labels, constraint.classes)
        found[constraint.name] = float(wrong[own].mean()) if own.any() else 0.0
    return found


def _grid(
    reference: float,
    risks: Sequence[Constraint],
    top_risk: dict[str, float],
    points: int,
    lowest: float | None,
    highest: float | None,
) -> NDArray[np.float64]:
    """Return targets in even proportions, the chosen one among them."""
    if highest is None:
        free = max(reference * top_risk[c.name] / c.target for c in risks)
        highest = max(min(free, HIGHEST), min(LEAST_RANGE * reference, (1 + reference) / 2))
    if lowest is None:
        lowest = LOWEST * min(reference, highest)
    as_number("lowest", lowest, low=0, high=1)
    as_number("highest", highest, low=0, high=1)
    if not lowest < reference < highest:
        msg = (
            f"targets are swept from lowest {lowest:g} to highest {highest:g}, but the chosen one, "
            f"{reference:g}, must lie between them"
        )
        raise InvalidTargetsError(msg)
    if reference < MOST_TARGET:
        highest = min(highest, MOST_TARGET)
    exact = np.geomspace(lowest, highest, points)
    exact[1 + np.argmin(np.abs(np.log(exact[1:-1] / reference)))] = reference
    for digits in DIGITS:
        rounded = np.array([float(f"{target:.{digits}g}") for target in exact])
        rounded = np.minimum(rounded, MOST_TARGET)  # what is rounded up may be 1
        rounded[exact == reference] = reference
        if (np.diff(rounded) > 0).all():
            return rounded
    return exact


def _swept(
    single: Sequence[Constraint], top_risk: dict[str, float], rows: Labelled
) -> list[Constraint]:
    """Return the classes to sweep: of many those with the most wrong top classes to avoid."""
    if len(rows.classes) <= MANY_CLASSES:
        return list(single)
    sizes = rows.class_weight()

    def burden(constraint: Constraint) -> float:
        return float(sizes[constraint.classes[0]] * (top_risk[constraint.name] - constraint.target))

    chosen = sorted(single, key=burden, reverse=True)[:MOST_SWEPT]
    return [constraint for constraint in single if constraint in chosen]
