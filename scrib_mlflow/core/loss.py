"""The loss that a fit minimises, and how a rule fares under it.

The loss is the cost of ambiguity and of wrong answers plus a penalty for every constraint that is
exceeded. Kernels see it as arrays: an `Objective` with one term a constraint, counters (c, 3) of
each term, and totals (4,) of all rows. `Problem` is the same for readers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.bounds import ErrorTable, allowed_errors, smooth_errors, soft_errors
from scrib_mlflow.core.compiling import inner, kernel
from scrib_mlflow.core.counts import Counts, constraint_counts, count_rows
from scrib_mlflow.core.inputs import NAN, SLACK, Floats, Labelled, are_probabilities
from scrib_mlflow.core.rules import ConstraintFit, Fit, Rule, answerable, predict_sets
from scrib_mlflow.core.targets import (
    AnswerName,
    Constraint,
    RuleName,
    Target,
    Targets,
    claimed,
    make_constraints,
)
from scrib_mlflow.errors import InvalidLabelsError, InvalidTargetsError

RISK, MISCOVERAGE, ABSTENTION = 0.0, 1.0, 2.0
KINDS = {"risk": RISK, "miscoverage": MISCOVERAGE, "abstention": ABSTENTION}
KIND, TARGET, PENALTY, TWO_SIDED, MEMBERS, SILENT, RATIO, WHOLE = range(8)  # columns of terms
CERTAIN, RIGHT, MISSED = range(3)  # columns of counters
ALL_CERTAIN, ALL_EMPTY, ALL_SIZE, ALL_WRONG = range(4)  # totals
CHANCE_COST, SIZE_COST, EMPTY_COST, ERROR_COST, ALL_WEIGHT = range(5)  # costs
LEAST_SHARE = 1e-9  # of the rows of a constraint; with fewer that are certain it is silent
LEAST_EXCESS = 1e-12  # less is rounding


class Objective(NamedTuple):
    """The loss: costs of the ambiguities and one penalty term per constraint."""

    costs: np.ndarray  # (5,) CHANCE_COST, ... per unit of row weight; ALL_WEIGHT of the rows
    terms: np.ndarray  # (c, 8) KIND, TARGET, ...; RATIO: table entries per unit of weight
    spans: np.ndarray  # (c, 2) int64: start and last index of the term's table, -1 without
    tables: np.ndarray  # allowed errors by number of rows, one table after another
    class_terms: np.ndarray  # (k + 1,) int64: where each class starts in `term_of`
    term_of: np.ndarray  # int64: terms that count a class, class by class
    slots: np.ndarray  # (c,) int64: -1 when one class has the term, else a number of its own


@inner
def allowed(c, n, terms, spans, tables):
    """Return how many errors term c allows among n rows."""
    start, last = spans[c, 0], spans[c, 1]
    if start < 0:
        return terms[c, TARGET] * n
    ratio = terms[c, RATIO]
    low = np.int64(n * ratio + SLACK)
    if low >= last:
        return tables[start + last] / ratio
    limit = tables[start + low]
    if terms[c, WHOLE] == 0.0:
        limit += (n * ratio - low) * (tables[start + low + 1] - limit)
    return limit / ratio


@inner
def excess(over, n, silent, worst):
    """Return how far a rate is above its target, from the errors over those allowed."""
    return worst if n <= silent else min(over / n, worst)


@inner
def cost(above, one_sided, two_sided):
    """Return the penalty of an excess, which is negative below the target."""
    weight = two_sided + one_sided if above > 0.0 else two_sided
    return weight * above * above


@kernel
def term_excess(c, certain, right, missed, terms, spans, tables):
    """Return the excess of term c at these counters."""
    n = certain
    errors = certain - right
    if terms[c, KIND] != RISK:
        n = terms[c, MEMBERS]
        errors = missed if terms[c, KIND] == MISCOVERAGE else n - certain
    over = errors - allowed(c, n, terms, spans, tables)
    return excess(over, n, terms[c, SILENT], 1.0 - terms[c, TARGET])


@inner
def penalty(c, certain, right, missed, terms, spans, tables):
    """Return the penalty of term c at these counters."""
    above = term_excess(c, certain, right, missed, terms, spans, tables)
    return cost(above, terms[c, PENALTY], terms[c, TWO_SIDED])


@inner
def ambiguity(totals, costs):
    """Return the weighted ambiguity and wrong answers at these totals."""
    chance = costs[ALL_WEIGHT] - totals[ALL_CERTAIN] - totals[ALL_EMPTY]
    loss = costs[CHANCE_COST] * chance + costs[SIZE_COST] * totals[ALL_SIZE]
    return loss + costs[EMPTY_COST] * totals[ALL_EMPTY] + costs[ERROR_COST] * totals[ALL_WRONG]


@kernel
def loss_of(counts, totals, objective):
    """Return ambiguity plus penalties."""
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    loss = ambiguity(totals, objective.costs)
    for c in range(len(terms)):
        loss += penalty(c, counts[c, CERTAIN], counts[c, RIGHT], counts[c, MISSED],
                        terms, spans, tables)  # fmt: skip
    return loss


def choose_rule(scores: Floats) -> RuleName:
    """Return the rule that mostly abstains less: optimal for probabilities of three classes on."""
    return "optimal" if scores.shape[1] >= 3 and are_probabilities(scores) else "thresholds"


def check_rule(rule: str, weights: Ambiguity, penalty: Target) -> None:
    """Refuse unknown rules, and what the optimal one would not heed."""
    if rule not in {"thresholds", "optimal"}:
        raise InvalidTargetsError(f"rule is {rule!r}; use 'thresholds' or 'optimal'")
    usual = replace(USUAL, error_weight=weights.error_weight)
    if rule == "optimal" and (weights != usual or penalty != Targets().penalty):
        raise InvalidTargetsError(
            "ambiguity weights and penalties are for thresholds; the optimal rule has none"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguity:
    """What the three kinds of ambiguity cost, and a wrong answer."""

    chance_weight: float = 1.0
    size_weight: float = 0.0
    empty_weight: float = 1.0
    error_weight: float = 0.0


USUAL = Ambiguity()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Labelled rows, what a rule shall keep to on them, and what its ambiguity costs."""

    rows: Labelled
    constraints: tuple[Constraint, ...]
    ambiguity: Ambiguity = USUAL
    answers: AnswerName = "any"

    @property
    def error_weight(self) -> float:
        """What a wrong answer costs, in abstentions."""
        return self.ambiguity.error_weight

    def tops(self) -> NDArray[np.int32]:
        """Return (n,) the one class that each row may be answered with; (0,) where any may."""
        return answerable(self.rows.scores, self.answers)


def make_problem(
    rows: Labelled, targets: Targets, ambiguity: Ambiguity = USUAL, answers: AnswerName = "any"
) -> Problem:
    """Return the problem that targets pose on these rows, or say what is wrong with it."""
    if answers not in {"top", "any"}:
        raise InvalidTargetsError(f"answers is {answers!r}; use 'top' or 'any'")
    constraints = make_constraints(targets, rows.classes)
    chance, size, empty = ambiguity.chance_weight, ambiguity.size_weight, ambiguity.empty_weight
    weights = {"chance": chance, "size": size, "empty": empty, "error": ambiguity.error_weight}
    for name, value in weights.items():
        if not (isinstance(value, int | float | np.number) and 0 <= value < np.inf):
            raise InvalidTargetsError(
                f"{name}_weight is {value!r}, but must be a finite number, 0 or more"
            )
    if not chance + size + empty > 0:
        raise InvalidTargetsError(
            "chance_weight, size_weight and empty_weight are all 0: every rule would be as good"
        )
    if claimed(constraints) and (empty == 0 or empty < size):
        raise InvalidTargetsError(
            f"empty_weight is {empty:g} with size_weight {size:g}: an empty set would cost less "
            "than a certain one, so the best rule would hardly ever answer; "
            "set empty_weight to size_weight or more, and above 0"
        )
    for name, weight in zip(rows.classes, rows.class_weight(), strict=True):
        if not weight > 0 and name not in map(str, targets.waive):
            raise InvalidLabelsError(
                f"no row has class {name!r}, so nothing can be said about it; "
                "add rows of that class, or waive it by name"
            )
    return Problem(rows=rows, constraints=constraints, ambiguity=ambiguity, answers=answers)


def make_objective(problem: Problem, margin: Margin | None = None) -> Objective:
    """Return the loss as arrays."""
    constraints, class_weight = problem.constraints, problem.rows.class_weight()
    counted = problem.rows.counted
    total = float(class_weight.sum())
    members = np.array([class_weight[list(c.classes)].sum() for c in constraints])
    terms = np.zeros((len(constraints), 8))
    spans = np.full((len(constraints), 2), -1, dtype=np.int64)
    tables: dict[tuple[float, int, float], tuple[int, ErrorTable]] = {}
    for c, constraint in enumerate(constraints):
        ratio = 1.0 if margin is None else margin.ratio(c, total)
        terms[c] = (
            KINDS[constraint.kind],
            constraint.target,
            constraint.penalty,
            constraint.two_sided_penalty,
            members[c],
            0.5 if counted else LEAST_SHARE * members[c],
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
    weights = problem.ambiguity
    costs = (
        weights.chance_weight,
        weights.size_weight,
        weights.empty_weight,
        weights.error_weight,
    )
    errors = [table.errors / table.stride for _, table in tables.values()]
    return Objective(
        costs=np.array([*(each / total for each in costs), total]),
        terms=terms,
        spans=spans,
        tables=np.concatenate(errors) if errors else np.zeros(1),
        class_terms=np.cumsum([0, *map(len, by_class)]),
        term_of=np.array([c for terms_of in by_class for c in terms_of], dtype=np.int64),
        slots=np.where(several, np.cumsum(several) - 1, -1),
    )


def describe_rule(
    method: str,
    rule: Rule,
    rows: Labelled,
    targets: Targets,
    ambiguity: Ambiguity = USUAL,
    trust: Floats | None = None,
) -> Fit:
    """Return how a rule that needed no search keeps targets on these rows."""
    problem = make_problem(rows, targets, ambiguity)
    counts = count_rows(predict_sets(rows.scores, rule, trust=trust), rows)
    return describe_fit(method, rule, problem, make_objective(problem), counts)


def describe_fit(
    method: str, rule: Rule, problem: Problem, objective: Objective, counts: Counts
) -> Fit:
    """Return the fit of a rule from the counts of its sets."""
    by_constraint, totals = constraint_counts(counts, problem.constraints)
    classes, fits = problem.rows.classes, []
    for c, constraint in enumerate(problem.constraints):
        certain, right, missed = by_constraint[c]
        members = objective.terms[c, MEMBERS]
        if constraint.kind == "miscoverage":
            rate = missed / members
        elif constraint.kind == "abstention":
            rate = 1.0 - certain / members
        else:
            silent = certain <= objective.terms[c, SILENT]
            rate = NAN if silent else (certain - right) / certain
        above = float(
            term_excess(
                c, certain, right, missed, objective.terms, objective.spans, objective.tables
            )
        )
        fits.append(
            ConstraintFit(
                name=constraint.name,
                kind=constraint.kind,
                classes=tuple(classes[j] for j in constraint.classes),
                target=constraint.target,
                rate=float(rate),
                excess=above if above > LEAST_EXCESS else 0.0,
            )
        )
    return Fit(
        method=method,
        rule=rule,
        classes=classes,
        loss=float(loss_of(by_constraint, totals, objective)),
        constraints=tuple(fits),
        n_rows=len(problem.rows.scores),
    )
