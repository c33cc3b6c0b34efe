"""Candidates for the steps of a path: what they share, whatever their rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.counts import Counts, constraint_counts, count_sets
from scrib_mlflow.core.error_tables import ErrorTable, smooth_errors, soft_errors
from scrib_mlflow.core.groups import GroupSums, sum_groups
from scrib_mlflow.core.kernels import CERTAIN, RIGHT
from scrib_mlflow.core.objective import Ambiguity, Margin
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule, make_sets
from scrib_mlflow.core.tally import claimed
from scrib_mlflow.core.targets import Constraint

MARGINS = tuple(z / 4 for z in range(14, -4, -1))  # 3.5 ... -0.75
CAREFUL = (12.0, 9.0, 7.0, 6.0, 5.0, 4.25)  # as many as 2 divides; where soft counts are doubted
NORMAL_POINTS, NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)  # to average over doubt
PILOT = 0.0  # the margin at which design effects are estimated: with errors enough to tell
LEAST_CHANCE = 1e-6  # of a claim, where some rule must be chosen although none can pass


class Problem(NamedTuple):
    """What all steps of a path share."""

    scores: NDArray[np.float64]  # (n, k) of the rows that draw it
    rows: Labelled  # these and their blurred copies, with soft labels
    weights: NDArray[np.float64]  # (m,) how many rows each of `rows` stands for
    constraints: tuple[Constraint, ...]
    ambiguity: Ambiguity
    margin: Margin
    seed: int


class Candidate(NamedTuple):
    """A rule that a path may hold."""

    rule: ThresholdRule | OptimalRule
    margin: float
    power: float  # chance that all claims pass
    hope: float  # sum of the claims' log chances, none of them taken for impossible
    abstention_rate: float


def expect_groups(
    problem: Problem,
    pilot: ThresholdRule | OptimalRule,
    rows: Labelled,
    groups: NDArray[np.int64],
) -> Problem:
    """Return the problem with the design effects that a pilot rule has on labelled rows."""
    sets = make_sets(pilot, rows.scores)
    counts = count_sets(sets, *rows[1:4])
    of_claims = [list(claim.classes) for claim in claimed(problem.constraints)]
    certain = np.count_nonzero(sets, axis=1) == 1
    wrong = certain & ~sets[np.arange(len(sets)), rows.labels]
    sums = sum_groups(
        groups, wrong, (certain & np.isin(rows.labels, of) for of in of_claims), rows.weights
    )
    claims = iter(
        design_effects(
            np.array([counts.certain[of].sum() for of in of_claims]),
            np.array([counts.wrong[of].sum() for of in of_claims]),
            sums,
            more=problem.margin.certify_rows / float(rows.weights.sum()),
            level=1.0 - problem.margin.confidence,
        )
    )
    effects = tuple(float(next(claims)) if c.kind == "risk" else 1.0 for c in problem.constraints)
    return problem._replace(margin=replace(problem.margin, design_effects=effects))


def design_effects(
    certain: NDArray[np.float64] | NDArray[np.int64],
    wrong: NDArray[np.float64] | NDArray[np.int64],
    sums: GroupSums,
    more: float,
    level: float,
) -> NDArray[np.float64]:
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
    told = np.where(mixed & (size > 1), wrong, 0)
    shared = np.average(alike, weights=told) if told.any() else 0.0
    groups = np.maximum(np.round(more * sums.counts), 2.0)
    students = special.stdtrit(groups - 1, 1 - level) / special.ndtri(1 - level)
    return np.maximum((1 + (size - 1) * shared) * students**2, 1.0)


def forecast(
    problem: Problem,
    rule: ThresholdRule | OptimalRule,
    margin: float,
    counts: Counts,
    tables: Sequence[ErrorTable],
) -> Candidate:
    """Return a rule, given its soft counts on the blurred rows, with what to expect of it."""
    by_constraint, _ = constraint_counts(counts, problem.constraints)
    chances = _chances(problem, by_constraint, tables, float(counts.members.sum()))
    sets = make_sets(rule, problem.scores)
    abstains = np.count_nonzero(sets, axis=1) != 1
    return Candidate(
        rule=rule,
        margin=margin,
        power=float(np.prod(chances)),
        hope=float(np.log(np.maximum(chances, LEAST_CHANCE)).sum()),
        abstention_rate=float(np.average(abstains, weights=problem.weights[: len(sets)])),
    )


def error_tables(problem: Problem, z: float | None = None) -> list[ErrorTable]:
    """Return for each constraint the errors that a certificate allows, smoothed.

    With a margin those that pass with probability Phi(z), as soft ones.
    """
    rows = problem.rows.class_weight()
    total = float(rows.sum())
    margin = problem.margin
    tables: dict[tuple[float, int, float], ErrorTable] = {}
    found = []
    for c, constraint in enumerate(problem.constraints):
        most = margin.ratio(c, total) * rows[list(constraint.classes)].sum()
        target, last = constraint.target, int(np.ceil(most)) + 1
        key = (target, last, 1.0 if z is None else margin.bias(c))
        if key not in tables:
            tables[key] = soft_errors(smooth_errors(target, last, margin.confidence, z), key[2])
        found.append(tables[key])
    return found


def _chances(
    problem: Problem,
    counts: NDArray[np.float64],
    tables: Sequence[ErrorTable],
    total: float,
) -> list[float]:
    """Return the chance of each risk that its certificate passes, at its soft risk."""
    chances = []
    weights = NORMAL_WEIGHTS if problem.margin.doubts else None
    for c, constraint in enumerate(problem.constraints):
        n = counts[c, CERTAIN]
        if constraint.kind != "risk":
            continue
        rows = n * problem.margin.ratio(c, total)
        allowed = tables[c].at(rows)
        if not (n > 0 and 0 <= allowed < rows):
            chances.append(0.0)
            continue
        risk = problem.margin.bias(c) * (n - counts[c, RIGHT]) / n
        if problem.margin.doubts:
            risk = risk * (1 + problem.margin.doubts[c] * NORMAL_POINTS)
        passes = special.betaincc(allowed + 1, rows - allowed, np.clip(risk, 0.0, 1.0))
        chances.append(float(np.average(np.atleast_1d(passes), weights=weights)))
    return chances


def margins_of(problem: Problem) -> tuple[float, ...]:
    """Return the margins of a path: more careful ones as well where soft counts are doubted."""
    return (*CAREFUL, *MARGINS) if problem.margin.doubts else MARGINS
