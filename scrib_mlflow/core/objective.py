"""The loss, as the arrays that kernels read and as a function of counts.

loss = ambiguity + sum over constraints of penalty * (rate - target)+ ^ 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.bounds import allowed_errors
from scrib_mlflow.core.error_tables import ErrorTable, smooth_errors, soft_errors
from scrib_mlflow.core.kernels import ABSTENTION, MISCOVERAGE, RATIO, RISK, Objective
from scrib_mlflow.core.targets import Constraint, Targets
from scrib_mlflow.errors import InvalidLabelsError, InvalidTargetsError

KINDS = {"risk": RISK, "miscoverage": MISCOVERAGE, "abstention": ABSTENTION}
NO_TABLE = -1
LEAST_SHARE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguity:
    """What the three kinds of ambiguity cost."""

    chance_weight: float = 1.0
    size_weight: float = 0.0
    empty_weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Targets apply to the upper confidence bound that `certify_rows` further rows would give.

    With `z` they apply to the risk at which that bound meets the target with probability Phi(z).
    """

    confidence: float
    certify_rows: float
    z: float | None = None
    design_effects: tuple[float, ...] = ()  # by constraint: certify rows that count as one
    biases: tuple[float, ...] = ()  # by constraint: errors to expect for each soft one
    doubts: tuple[float, ...] = ()  # by constraint: standard error of these, as a share

    def ratio(self, c: int, total: float) -> float:
        """Return the certify rows of constraint c for each unit of row weight."""
        ratio = self.certify_rows / total
        return ratio / self.design_effects[c] if self.design_effects else ratio

    def bias(self, c: int) -> float:
        """Return the errors to expect of constraint c for each soft one."""
        return self.biases[c] if self.biases else 1.0

    def table(self, c: int, target: float, most_rows: int) -> ErrorTable:
        """Return the errors that constraint c allows among 0 ... most_rows certify rows.

        They are soft ones, where what labels say of these is known.
        """
        if self.z is None:
            return ErrorTable(allowed_errors(target, most_rows, self.confidence))
        return soft_errors(smooth_errors(target, most_rows, self.confidence, self.z), self.bias(c))


def check_ambiguity(ambiguity: Ambiguity, constraints: Sequence[Constraint]) -> None:
    """Refuse weights that are no numbers, or under which answering never pays."""
    chance, size, empty = ambiguity.chance_weight, ambiguity.size_weight, ambiguity.empty_weight
    for name, value in (("chance", chance), ("size", size), ("empty", empty)):
        if not (isinstance(value, int | float | np.number) and 0 <= value < np.inf):
            msg = f"{name}_weight is {value!r}, but must be a finite number, 0 or more"
            raise InvalidTargetsError(msg)
    if not chance + size + empty > 0:
        msg = "chance_weight, size_weight and empty_weight are all 0: every rule would be as good"
        raise InvalidTargetsError(msg)
    risks = any(constraint.kind == "risk" for constraint in constraints)
    if risks and (empty == 0 or empty < size):
        msg = (
            f"empty_weight is {empty:g} with size_weight {size:g}: an empty set would cost less "
            "than a certain one, so the best rule would hardly ever answer; "
            "set empty_weight to size_weight or more, and above 0"
        )
        raise InvalidTargetsError(msg)


def check_members(
    targets: Targets, class_weight: NDArray[np.float64], classes: tuple[str, ...]
) -> None:
    """Refuse classes that no row has, unless they are waived."""
    for name, weight in zip(classes, class_weight, strict=True):
        if not weight > 0 and name not in map(str, targets.waive):
            msg = (
                f"no row has class {name!r}, so nothing can be said about it; "
                "add rows of that class, or waive it by name"
            )
            raise InvalidLabelsError(msg)


def make_objective(
    constraints: Sequence[Constraint],
    class_weight: NDArray[np.float64],
    ambiguity: Ambiguity,
    margin: Margin | None,
    *,
    counted: bool,
) -> Objective:
    """Return the loss as arrays.

    `class_weight` (k,) is the weight of each class's rows; `counted` says that every row has the
    weight 1, so that counters are whole numbers.
    """
    total = float(class_weight.sum())
    members = np.array([class_weight[list(c.classes)].sum() for c in constraints])
    terms = np.zeros((len(constraints), 8))
    spans = np.full((len(constraints), 2), NO_TABLE, dtype=np.int64)
    tables: dict[tuple[float, int, float], tuple[int, ErrorTable]] = {}
    for c, constraint in enumerate(constraints):
        ratio = 1.0 if margin is None else margin.ratio(c, total)
        silent = 0.5 if counted else LEAST_SHARE * members[c]
        terms[c] = (
            KINDS[constraint.kind],
            constraint.target,
            constraint.penalty,
            constraint.two_sided_penalty,
            members[c],
            silent,
            ratio,
            float(counted),
        )
        if margin is not None and constraint.kind != "abstention":
            last = int(np.ceil(ratio * members[c])) + 1
            key = (constraint.target, last, margin.bias(c))
            if key not in tables:
                start = sum(len(table.errors) for _, table in tables.values())
                tables[key] = start, margin.table(c, constraint.target, last)
            start, table = tables[key]
            spans[c] = start, len(table.errors) - 1
            terms[c, RATIO] /= table.stride  # kernels count rows and errors in strides
    by_class = [
        [c for c, constraint in enumerate(constraints) if k in constraint.classes]
        for k in range(len(class_weight))
    ]
    several = np.array([len(c.classes) > 1 for c in constraints], dtype=bool)
    return Objective(
        costs=np.array(
            [
                ambiguity.chance_weight / total,
                ambiguity.size_weight / total,
                ambiguity.empty_weight / total,
                total,
            ]
        ),
        terms=terms,
        spans=spans,
        tables=np.concatenate([t.errors / t.stride for _, t in tables.values()])
        if tables
        else np.zeros(1),
        class_terms=np.cumsum([0, *map(len, by_class)]),
        term_of=np.array([c for found in by_class for c in found], dtype=np.int64),
        slots=np.where(several, np.cumsum(several) - 1, -1),
    )
