"""Rules along sweeps of targets, each fit starting from its neighbours.

What sets do does not depend on the targets, so the loss of a rule under other targets is one
evaluation of its counts. A rule of one point is therefore tried at all others: no point keeps a
rule while another point knows a better one, and losses never rise with the targets.
"""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.counts import constraint_counts, count_rows
from scrib_mlflow.core.inputs import Floats, Labelled, Progress, as_number, check_probabilities
from scrib_mlflow.core.loss import Problem, loss_of, make_objective
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.optimal.fit import Aimed, aim, shared_multipliers
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule, make_sets
from scrib_mlflow.core.search.fit import make_task, served_rule
from scrib_mlflow.core.search.search import Best, Task, follow, plan_effort, search
from scrib_mlflow.core.targets import Constraint, claimed
from scrib_mlflow.errors import InvalidTargetsError, ScribError

LEAST_POINTS, MOST_POINTS = 5, 200
LOWEST = 0.1  # of the chosen target
HIGHEST = 0.5  # a target, where classes would be wrong more often still
LEAST_RANGE = 2.0  # times the chosen target, at least
MOST_TARGET = 0.999
DIGITS = (2, 3, 4)  # significant ones of a target, as few as keep them apart
FEW_CLASSES = 10  # with more, searches are fewer
MANY_CLASSES = 20  # with more, few are swept alone, and only the joint sweep is searched
MOST_SWEPT = 12  # of many classes
EVERY = 2  # points: a search starts from each of these, or from fewer
MOST_SEARCHES = 90  # in all, about
EFFORT = 0.1  # of a fit, for each search
REACH = 4  # times the distance to the next search: how far its rule is followed, both ways


class SweepPoint(NamedTuple):
    """Targets of one point of a sweep."""

    swept: str | None  # the class whose target moves, None where all do
    target: float  # of that class, or of the one that stands for all
    constraints: tuple[Constraint, ...]


class Sweeps(NamedTuple):
    """The points of all sweeps; the first sweep moves all targets together."""

    reference: float  # the chosen target that stands for all
    chosen: int  # where in a sweep the targets are those chosen
    sweeps: tuple[tuple[SweepPoint, ...], ...]


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
        raise ScribError(f"points is {points}, but must be from {LEAST_POINTS} to {MOST_POINTS}")
    risks = claimed(constraints)
    if not risks:
        raise InvalidTargetsError(
            "every class is waived, so there is no target to sweep; leave one enforced"
        )
    single = [c for c in risks if len(c.classes) == 1]
    reference = Counter(c.target for c in single or risks).most_common(1)[0][0]
    wrong = rows.scores.argmax(axis=1) != rows.labels
    top_risk = {}  # how often the top class is wrong
    for c in risks:
        inside = np.isin(rows.labels, c.classes)
        top_risk[c.name] = float(wrong[inside].mean()) if inside.any() else 0.0
    free = max(reference * top_risk[c.name] / c.target for c in risks)
    grid = _grid(reference, free, points, lowest, highest)
    factors = (grid / reference).tolist()
    swept = single
    if len(rows.classes) > MANY_CLASSES:  # those with the most wrong top classes to avoid
        sizes = rows.class_weight()
        burden = {c.name: sizes[c.classes[0]] * (top_risk[c.name] - c.target) for c in single}
        chosen = sorted(burden, key=lambda name: burden[name], reverse=True)[:MOST_SWEPT]
        swept = [c for c in single if c.name in chosen]
    joint = tuple(
        SweepPoint(None, target, scale(constraints, factor, None))
        for target, factor in zip(grid.tolist(), factors, strict=True)
    )
    by_class = (
        tuple(SweepPoint(c.name, _scaled(c, f), scale(constraints, f, c.name)) for f in factors)
        for c in swept
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


def _grid(
    reference: float, free: float, points: int, lowest: float | None, highest: float | None
) -> Floats:
    """Return targets in even proportions, the chosen one among them."""
    if highest is None:  # at `free` the top class alone keeps all targets
        highest = max(min(free, HIGHEST), min(LEAST_RANGE * reference, (1 + reference) / 2))
    if lowest is None:
        lowest = LOWEST * min(reference, highest)
    as_number("lowest", lowest, low=0, high=1)
    as_number("highest", highest, low=0, high=1)
    if not lowest < reference < highest:
        raise InvalidTargetsError(
            f"targets are swept from lowest {lowest:g} to highest {highest:g}, but the chosen one, "
            f"{reference:g}, must lie between them"
        )
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


class SweepRule(NamedTuple):
    """A rule, and its loss at the targets of a point."""

    rule: ThresholdRule | OptimalRule
    loss: float


def fit_thresholds_along(
    problem: Problem,
    sweeps: Sweeps,
    seed: int,
    threads: int,
    progress: Progress | None,
) -> list[list[SweepRule]]:
    """Return the best thresholds for each point of each sweep, the rest being as in the problem."""
    problems = [
        [replace(problem, constraints=point.constraints) for point in sweep]
        for sweep in sweeps.sweeps
    ]
    chosen = problems[0][sweeps.chosen]
    task = make_task(chosen, make_objective(chosen), seed=seed)
    first = search(task, None, threads)
    n, k = problem.rows.scores.shape
    hasty = task._replace(effort=plan_effort(n, k, k, EFFORT))
    tasks = [[hasty._replace(objective=make_objective(p)) for p in row] for row in problems]
    tried = [first]

    def follow_both_ways(row: list[Task], at: int, best: Best, reach: int) -> None:
        parts = [row[at : at + reach], row[: at + 1][::-1][:reach]]
        for chain in follow([(part, best.thresholds) for part in parts], threads, None):
            tried.extend(chain)

    def best_at(point: Task) -> tuple[float, Best]:
        losses = [float(loss_of(each.counts, each.totals, point.objective)) for each in tried]
        least = int(np.argmin(losses))
        return losses[least], tried[least]

    for row in tasks:
        follow_both_ways(row, sweeps.chosen, first, len(row))
    searched = tasks if k <= MANY_CLASSES else tasks[:1]
    most = MOST_SEARCHES * min(1.0, FEW_CLASSES / k)
    every = max(EVERY, math.ceil(sum(map(len, searched)) / most))
    starts = [(row, at) for row in searched for at in range(0, len(row), every)]
    turns = range(len(starts))
    for turn in progress(turns) if progress else turns:
        row, at = starts[turn]
        tried.append(search(row[at], None, threads))
        follow_both_ways(row, at, tried[-1], REACH * every)
    again = [([t], best_at(t)[1].thresholds) for row in tasks for t in row]
    tried += [best for (best,) in follow(again, threads, None)]
    return [
        [SweepRule(served_rule(best, task, chosen)[0], loss) for loss, best in map(best_at, row)]
        for row in tasks
    ]


def fit_optimal_along(
    problem: Problem,
    sweeps: Sweeps,
    named: frozenset[str],
    seed: int,
    threads: int,
    progress: Progress | None,
) -> list[list[SweepRule]]:
    """Return the best prices for each point of each sweep, the rest being as in the problem.

    Classes that are `named` with their target have a multiplier of their own.
    """
    rows = problem.rows
    recalibration = fit_recalibration(check_probabilities(rows.scores), rows.labels)
    chances = recalibrate(recalibration, rows.scores)

    def solve(point: SweepPoint, start: Floats | None) -> Aimed:
        posed = replace(problem, constraints=point.constraints)
        together = shared_multipliers(posed, named)
        usable = start if start is not None and len(start) == len(together) else None
        return aim(posed, chances, recalibration, together, seed, usable)

    first = solve(sweeps.sweeps[0][sweeps.chosen], None)

    def chain(turn: int) -> list[OptimalRule]:
        sweep, aimed = sweeps.sweeps[turn // 2], first
        part = sweep[sweeps.chosen + 1 :] if turn % 2 else sweep[: sweeps.chosen][::-1]
        rules = []
        for point in part:
            aimed = solve(point, aimed.multipliers)
            rules.append(aimed.rule)
        return rules

    rules = [first.rule]
    turns = range(len(sweeps.sweeps) * 2)
    with ThreadPoolExecutor(threads) as pool:
        chains = pool.map(chain, turns)
        for _ in progress(turns) if progress else turns:
            rules += next(chains)
    risks = sweeps.sweeps[0][0].constraints  # the classes of constraints are the same everywhere
    counted = [
        constraint_counts(count_rows(make_sets(rule, rows.scores), rows), risks) for rule in rules
    ]

    def best(point: SweepPoint) -> SweepRule:
        objective = make_objective(replace(problem, constraints=point.constraints))
        losses = [float(loss_of(*counts, objective)) for counts in counted]
        least = int(np.argmin(losses))
        return SweepRule(rules[least], losses[least])

    return [[best(point) for point in sweep] for sweep in sweeps.sweeps]
