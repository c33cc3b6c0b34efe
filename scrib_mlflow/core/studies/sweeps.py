"""Rules along sweeps of targets, each fit starting from its neighbours.

What sets do does not depend on the targets, so the loss of a rule under other targets is one
evaluation of its counts. Whatever is found at one point is therefore tried at all others: no point
keeps a rule while another point knows a better one, and losses never rise with the targets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.counts import constraint_counts, count_sets
from scrib_mlflow.core.inputs import Labelled, Progress, as_number, check_probabilities
from scrib_mlflow.core.loss import Ambiguity, Objective, loss_of, make_objective
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.optimal.fit import aim, shared_multipliers
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule
from scrib_mlflow.core.search.fit import make_task, serve
from scrib_mlflow.core.search.levels import Track
from scrib_mlflow.core.search.search import Best, Chain, Task, follow, search
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidTargetsError, ScribError
from scrib_mlflow.serving import rule_sets

LEAST_POINTS, MOST_POINTS = 5, 200
LOWEST = 0.1  # of the chosen target
HIGHEST = 0.5  # a target, where classes would be wrong more often still
LEAST_RANGE = 2.0  # times the chosen target, at least
MOST_TARGET = 0.999
MANY_CLASSES = 20  # with more classes only
MOST_SWEPT = 12  # are swept one at a time
DIGITS = (2, 3, 4)  # significant ones of a target, as few as keep them apart
EVERY = 2  # points: from each of these a search starts,
MOST_SEARCHES = 90  # but not many more in all,
FEW_CLASSES = 10  # fewer where classes are more, and from
MANY_CLASSES_HERE = 20  # on only where all targets move,
EFFORT = 0.1  # each of so much of a fit's work;
REACH = 4  # times the distance to the next search is what it finds followed, both ways


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
    own = [c for c in constraints if c.kind == "risk"]
    if not own:
        raise InvalidTargetsError(
            "every class is waived, so there is no target to sweep; leave one enforced"
        )
    single = [c for c in own if len(c.classes) == 1]
    reference = Counter(c.target for c in single or own).most_common(1)[0][0]
    top_risk = _top_risks(rows, own)
    grid = _grid(reference, own, top_risk, points, lowest, highest)
    factors = grid / reference
    joint = tuple(
        SweepPoint(None, float(target), scale(constraints, float(factor), None))
        for target, factor in zip(grid, factors, strict=True)
    )
    by_class = tuple(
        tuple(
            SweepPoint(one.name, _scaled(one, float(f)), scale(constraints, float(f), one.name))
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


class Placed(NamedTuple):
    """A rule, and its loss at the targets it is for."""

    rule: ThresholdRule | OptimalRule
    loss: float


def fit_thresholds_along(
    rows: Labelled,
    asked: Sweeps,
    ambiguity: Ambiguity,
    seed: int,
    threads: int,
    progress: Progress | None,
) -> list[list[Placed]]:
    """Return the best thresholds found for each point of each sweep."""
    k = len(rows.classes)
    joint = asked.sweeps[0]
    objectives = [
        [_objective(rows, each.constraints, ambiguity) for each in sweep] for sweep in asked.sweeps
    ]
    task = make_task(
        rows,
        np.arange(k),
        objectives[0][asked.chosen],
        track=Track(ambiguity.size_weight > 0, False),
        allow_never=False,
        effort=1.0,
        seed=seed,
    )
    first = search(task, None, threads)
    hasty = make_task(
        rows,
        np.arange(k),
        task.objective,
        track=task.track,
        allow_never=False,
        effort=EFFORT,
        seed=seed,
    )._replace(data=task.data)
    tasks = [[hasty._replace(objective=objective) for objective in row] for row in objectives]
    found = _search_along(tasks, asked.chosen, first, threads, progress)
    best = _best_of(tasks, found)
    again = [Chain([t], b.thresholds) for t, b in zip(_flat(tasks), best, strict=True)]
    found += [chain[0] for chain in follow(again, threads, None)]
    placed = iter(
        Placed(serve(b, task, rows, joint[0].constraints)[0], _loss(b, t.objective))
        for t, b in zip(_flat(tasks), _best_of(tasks, found), strict=True)
    )
    return [[next(placed) for _ in row] for row in tasks]


def _search_along(
    tasks: list[list[Task]], chosen: int, first: Best, threads: int, progress: Progress | None
) -> list[Best]:
    """Search at some points and follow what is found to the points around."""
    k = len(first.thresholds)
    searched = tasks if k <= MANY_CLASSES_HERE else tasks[:1]
    most = MOST_SEARCHES * min(1.0, FEW_CLASSES / k)
    every = max(EVERY, math.ceil(sum(map(len, searched)) / most))
    places = [(s, at) for s, sweep in enumerate(searched) for at in range(0, len(sweep), every)]
    found = [first]
    for row in tasks:
        found += _both_ways(row, chosen, first, len(row), threads)
    turns = range(len(places))
    for turn in progress(turns) if progress else turns:
        s, at = places[turn]
        best = search(tasks[s][at], None, threads)
        found += [best, *_both_ways(tasks[s], at, best, REACH * every, threads)]
    return found


def _both_ways(row: list[Task], at: int, best: Best, reach: int, threads: int) -> list[Best]:
    """Follow thresholds from a point of a sweep to higher and to lower targets."""
    parts = [row[at : at + reach], row[: at + 1][::-1][:reach]]
    chains = [Chain(part, best.thresholds) for part in parts]
    return [each for chain in follow(chains, threads, None) for each in chain]


def _best_of(tasks: list[list[Task]], found: Sequence[Best]) -> list[Best]:
    """Return for each task the best of all that was found."""
    return [
        min(found, key=lambda each: _loss(each, task.objective))  # called at once
        for task in _flat(tasks)
    ]


def _loss(best: Best, objective: Objective) -> float:
    return float(loss_of(best.counts, best.totals, objective))


def _flat(tasks: list[list[Task]]) -> list[Task]:
    return [task for row in tasks for task in row]


def fit_optimal_along(
    rows: Labelled,
    asked: Sweeps,
    own: frozenset[str],
    seed: int,
    threads: int,
    progress: Progress | None,
) -> list[list[Placed]]:
    """Return the best prices found for each point of each sweep.

    `own` are the classes whose target was given by name.
    """
    recalibration = fit_recalibration(check_probabilities(rows.scores), rows.labels)
    chances = recalibrate(recalibration, rows.scores)
    sizes = rows.class_weight()

    def solve(
        each: SweepPoint, start: NDArray[np.float64] | None
    ) -> tuple[OptimalRule, NDArray[np.float64]]:
        together = shared_multipliers(each.constraints, sizes, own)
        usable = start if start is not None and len(start) == len(together) else None
        fit, prices = aim(rows, chances, recalibration, each.constraints, together, seed, usable)
        assert isinstance(fit.rule, OptimalRule)  # noqa: S101  # for mypy
        return fit.rule, prices

    first, first_prices = solve(asked.sweeps[0][asked.chosen], None)

    def chain(turn: int) -> list[OptimalRule]:
        sweep, prices = asked.sweeps[turn // 2], first_prices
        part = sweep[asked.chosen + 1 :] if turn % 2 else sweep[: asked.chosen][::-1]
        rules = []
        for each in part:
            rule, prices = solve(each, prices)
            rules.append(rule)
        return rules

    found = [first]
    turns = range(len(asked.sweeps) * 2)
    with ThreadPoolExecutor(threads) as pool:
        chains = pool.map(chain, turns)
        for _ in progress(turns) if progress else turns:
            found += next(chains)
    return _placed(rows, asked, found)


def _placed(rows: Labelled, asked: Sweeps, found: Sequence[OptimalRule]) -> list[list[Placed]]:
    """Return for each point the best of all rules that were found."""
    risks = asked.sweeps[0][0].constraints
    counted = [
        constraint_counts(count_sets(rule_sets(asdict(rule), rows.scores), *rows[1:4]), risks)
        for rule in found
    ]
    placed: list[list[Placed]] = []
    for sweep in asked.sweeps:
        placed.append([])
        for each in sweep:
            objective = _objective(rows, each.constraints, Ambiguity())
            losses = [float(loss_of(*counts, objective)) for counts in counted]
            best = int(np.argmin(losses))
            placed[-1].append(Placed(found[best], losses[best]))
    return placed


def _objective(
    rows: Labelled, constraints: Sequence[Constraint], ambiguity: Ambiguity
) -> Objective:
    return make_objective(constraints, rows.class_weight(), ambiguity, None, counted=rows.counted)
