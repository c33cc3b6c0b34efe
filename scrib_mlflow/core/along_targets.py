"""Rules along sweeps of targets, each fit starting from its neighbours.

What sets do does not depend on the targets, so the loss of a rule under other targets is one
evaluation of its counts. Whatever is found at one point is therefore tried at all others: no point
keeps a rule while another point knows a better one, and losses never rise with the targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.chains import Chain, Progress, follow
from scrib_mlflow.core.counts import constraint_counts, count_sets
from scrib_mlflow.core.fit import make_task, serve
from scrib_mlflow.core.kernels import Objective, loss_of
from scrib_mlflow.core.levels import Track
from scrib_mlflow.core.objective import Ambiguity, make_objective
from scrib_mlflow.core.optimal import aim
from scrib_mlflow.core.pricing import check_probabilities, shared_multipliers
from scrib_mlflow.core.recalibrate import fit_recalibration, recalibrate
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule
from scrib_mlflow.core.search import Best, Task, search
from scrib_mlflow.core.target_grid import Asked, Sweeps
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.serving import rule_sets

EVERY = 2  # points: from each of these a search starts,
MOST_SEARCHES = 90  # but not many more in all,
FEW_CLASSES = 10  # fewer where classes are more, and from
MANY_CLASSES = 20  # on only where all targets move,
EFFORT = 0.1  # each of so much of a fit's work;
REACH = 4  # times the distance to the next search is what it finds followed, both ways


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
    searched = tasks if k <= MANY_CLASSES else tasks[:1]
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
        each: Asked, start: NDArray[np.float64] | None
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
