"""What a fit is: a rule, and what it reached on the rows it was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scrib_mlflow.core.counts import Counts, constraint_counts, count_sets
from scrib_mlflow.core.kernels import (
    CERTAIN,
    MEMBERS,
    MISSED,
    RIGHT,
    SILENT,
    Objective,
    loss_of,
    term_excess,
)
from scrib_mlflow.core.objective import Ambiguity, make_objective
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.rules import Rule, ThresholdRule, predict_sets
from scrib_mlflow.core.targets import Constraint, Kind, Targets, make_constraints

NAN = float("nan")  # one object, so that results with undefined numbers equal themselves
LEAST_EXCESS = 1e-12  # less is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintFit:
    """How a fit keeps one constraint on its own rows."""

    name: str
    kind: Kind
    classes: tuple[str, ...]
    target: float
    rate: float  # NaN for the risk of classes that are never certain
    excess: float  # what the loss charges: above the target, or above what the margin allows

    @property
    def met(self) -> bool:
        """Whether the rows of the fit keep the constraint."""
        return self.excess <= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A rule and what it reached on the rows it was fitted on."""

    method: str
    rule: Rule
    classes: tuple[str, ...]
    loss: float
    constraints: tuple[ConstraintFit, ...]
    n_rows: int
    start_losses: tuple[float, ...] = ()  # of the starts followed to all rows, ascending
    abstention_bound: float = NAN  # least abstention of any rule, for calibrated scores
    primal_gap: float = NAN  # of an optimal rule: its abstention above the bound, on soft counts
    seed: int | None = None

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of a threshold rule, one a class."""
        if isinstance(self.rule, ThresholdRule):
            return self.rule.thresholds
        msg = f"a rule of kind {self.rule.kind!r} has no thresholds; see fit.rule"
        raise AttributeError(msg)


def describe_fit(
    method: str,
    rule: Rule,
    rows: Labelled,
    constraints: Sequence[Constraint],
    objective: Objective,
    counts: Counts,
) -> Fit:
    """Return the fit of a rule from the counts of its sets."""
    by_constraint, totals = constraint_counts(counts, constraints)
    return Fit(
        method=method,
        rule=rule,
        classes=rows.classes,
        loss=float(loss_of(by_constraint, totals, objective)),
        constraints=tuple(
            ConstraintFit(
                name=constraint.name,
                kind=constraint.kind,
                classes=tuple(rows.classes[j] for j in constraint.classes),
                target=constraint.target,
                rate=_rate(constraint, objective, c, by_constraint[c]),
                excess=_excess(objective, c, by_constraint[c]),
            )
            for c, constraint in enumerate(constraints)
        ),
        n_rows=len(rows.scores),
    )


def describe_rule(
    method: str, rule: Rule, rows: Labelled, targets: Targets, ambiguity: Ambiguity
) -> Fit:
    """Return how a rule from elsewhere keeps targets on these rows."""
    constraints = make_constraints(targets, rows.classes)
    objective = make_objective(
        constraints, rows.class_weight(), ambiguity, None, counted=rows.counted
    )
    counts = count_sets(predict_sets(rows.scores, rule), *rows[1:4])
    return describe_fit(method, rule, rows, constraints, objective, counts)


def _rate(constraint: Constraint, objective: Objective, c: int, counts: np.ndarray) -> float:
    members = objective.terms[c, MEMBERS]
    if constraint.kind == "miscoverage":
        return float(counts[MISSED] / members)
    if constraint.kind == "abstention":
        return float(1.0 - counts[CERTAIN] / members)
    if counts[CERTAIN] <= objective.terms[c, SILENT]:
        return NAN
    return float((counts[CERTAIN] - counts[RIGHT]) / counts[CERTAIN])


def _excess(objective: Objective, c: int, counts: np.ndarray) -> float:
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    above = float(term_excess(c, *counts, terms, spans, tables))
    return above if above > LEAST_EXCESS else 0.0
