"""Candidates for the steps of a path: rules fitted with soft counts, margin by margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.bounds import allowed_errors, smooth_table
from scrib_mlflow.core.chains import Chain, Progress, follow
from scrib_mlflow.core.fit import make_task, serve
from scrib_mlflow.core.groups import GroupSums
from scrib_mlflow.core.kernels import CERTAIN, RIGHT, Objective
from scrib_mlflow.core.levels import Track
from scrib_mlflow.core.objective import Ambiguity, Margin, make_objective
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.rules import ThresholdRule
from scrib_mlflow.core.search import Best, Task, search
from scrib_mlflow.core.tally import tally_sets
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.serving import threshold_sets

MARGINS = tuple(z / 4 for z in range(14, -4, -1))  # 3.5 ... -0.75
ANCHORS = (1.0, 2.5)  # margins of the searches that chains start from: basins differ
PILOT = 0.0  # the margin at which design effects are estimated: with errors enough to tell
EFFORT = 0.25  # of a fit, for each search
LEAST_CHANCE = 1e-6  # of a claim, where some rule must be chosen although none can pass
FEW_CLASSES = 10  # more get less effort each: with soft labels a descent costs classes squared,
MANY_CLASSES = 20  # and from here on half the margins and one search


class Problem(NamedTuple):
    """What all steps of a path share."""

    scores: NDArray[np.float64]  # (n, k) of the rows that draw it
    rows: Labelled  # these and their blurred copies, with soft labels
    constraints: tuple[Constraint, ...]
    ambiguity: Ambiguity
    margin: Margin
    seed: int


class Candidate(NamedTuple):
    """A rule that a path may hold."""

    rule: ThresholdRule
    margin: float
    power: float  # chance that all claims pass
    hope: float  # sum of the claims' log chances, none of them taken for impossible
    abstention_rate: float


def find_candidates(
    problem: Problem, threads: int, progress: Progress | None
) -> tuple[Candidate, ...]:
    """Return the rules of chains that start from searches at two margins and go both ways."""
    many = len(problem.rows.classes) > MANY_CLASSES
    all_margins, anchors = (MARGINS[::2], ANCHORS[:1]) if many else (MARGINS, ANCHORS)
    first = _task(problem, anchors[0])
    tasks = {z: first._replace(objective=_objective(problem, z)) for z in all_margins}
    chains, margins = [], []
    for anchor in anchors:
        best = search(tasks[anchor], None, threads)
        up = sorted(z for z in all_margins if z >= anchor)
        down = [z for z in all_margins if z < anchor]
        margins += [up, down]
        chains += [Chain([tasks[z] for z in part], best.thresholds) for part in (up, down)]
    found = follow(chains, threads, progress)
    tables = _tables(problem)
    return tuple(
        _candidate(problem, z, tasks[z], best, tables)
        for part, chain in zip(margins, found, strict=True)
        for z, best in zip(part, chain, strict=True)
    )


def expect_groups(
    problem: Problem, rows: Labelled, groups: NDArray[np.int64], threads: int
) -> Problem:
    """Return the problem with the design effects that a pilot rule has on labelled rows."""
    task = _task(problem, PILOT)
    rule, _ = serve(search(task, None, threads), task, problem.rows, problem.constraints)
    sets = threshold_sets(rows.scores, np.array(rule.thresholds))
    tally = tally_sets(sets, rows.labels, problem.constraints, groups)
    if tally.groups is None:
        return problem
    more = problem.margin.certify_rows / len(rows.scores)
    level = 1.0 - problem.margin.confidence
    claims = iter(_design_effects(tally.n_certain, tally.n_wrong, tally.groups, more, level))
    effects = tuple(float(next(claims)) if c.kind == "risk" else 1.0 for c in problem.constraints)
    return problem._replace(margin=replace(problem.margin, design_effects=effects))


def _design_effects(
    certain: NDArray[np.int64],
    wrong: NDArray[np.int64],
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


def _objective(problem: Problem, z: float) -> Objective:
    return make_objective(
        problem.constraints,
        problem.rows.class_weight(),
        problem.ambiguity,
        replace(problem.margin, z=z),
        counted=False,
    )


def _task(problem: Problem, z: float) -> Task:
    return make_task(
        problem.rows,
        np.arange(len(problem.rows.classes)),
        _objective(problem, z),
        track=Track(problem.ambiguity.size_weight > 0, False),
        allow_never=False,
        effort=EFFORT * min(1.0, FEW_CLASSES / len(problem.rows.classes)),
        seed=problem.seed,
    )


def _candidate(
    problem: Problem, z: float, task: Task, best: Best, tables: Sequence[NDArray[np.float64]]
) -> Candidate:
    """Return the rule as it is served, and what is to be expected of it."""
    rule, counts = serve(best, task, problem.rows, problem.constraints)
    certain = threshold_sets(problem.scores, np.array(rule.thresholds)).sum(axis=1) == 1
    chances = _chances(problem, best, tables, float(counts.members.sum()))
    return Candidate(
        rule=rule,
        margin=z,
        power=float(np.prod(chances)),
        hope=float(np.log(np.maximum(chances, LEAST_CHANCE)).sum()),
        abstention_rate=float(1.0 - certain.mean()),
    )


def _tables(problem: Problem) -> list[NDArray[np.float64]]:
    """Return for each constraint the errors that a certificate allows, smoothed."""
    rows = problem.rows.class_weight()
    total = float(rows.sum())
    tables = []
    for c, constraint in enumerate(problem.constraints):
        most = problem.margin.ratio(c, total) * rows[list(constraint.classes)].sum()
        last = int(np.ceil(most)) + 1
        allowed = allowed_errors(constraint.target, last, problem.margin.confidence)
        tables.append(smooth_table(allowed))
    return tables


def _chances(
    problem: Problem, best: Best, tables: Sequence[NDArray[np.float64]], total: float
) -> list[float]:
    """Return the chance of each risk that its certificate passes, at its soft risk."""
    chances = []
    for c, constraint in enumerate(problem.constraints):
        n = best.counts[c, CERTAIN]
        if constraint.kind != "risk":
            continue
        rows = n * problem.margin.ratio(c, total)
        allowed = float(np.interp(rows, np.arange(len(tables[c])), tables[c]))
        if not (n > 0 and 0 <= allowed < rows):
            chances.append(0.0)
            continue
        risk = np.clip((n - best.counts[c, RIGHT]) / n, 0.0, 1.0)
        chances.append(float(special.betaincc(allowed + 1, rows - allowed, risk)))
    return chances
