"""Candidates for a path of thresholds: searches at two margins, followed up and down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scrib_mlflow.core.chains import Chain, Progress, follow
from scrib_mlflow.core.fit import make_task, serve
from scrib_mlflow.core.kernels import Objective
from scrib_mlflow.core.levels import Track
from scrib_mlflow.core.objective import make_objective
from scrib_mlflow.core.rules import ThresholdRule
from scrib_mlflow.core.search import Task, search
from scrib_mlflow.core.steps import (
    PILOT,
    Candidate,
    Problem,
    error_tables,
    forecast,
    margins_of,
)

ANCHORS = (1.0, 2.5)  # margins of the searches that chains start from: basins differ
EFFORT = 0.25  # of a fit, for each search
FEW_CLASSES = 10  # more get less effort each: with soft labels a descent costs classes squared,
MANY_CLASSES = 20  # and from here on half the margins and one search


def find_candidates(
    problem: Problem, threads: int, progress: Progress | None
) -> tuple[Candidate, ...]:
    """Return the rules of chains that start from searches at two margins and go both ways."""
    many = len(problem.rows.classes) > MANY_CLASSES
    every = margins_of(problem)
    all_margins, anchors = (every[::2], ANCHORS[:1]) if many else (every, ANCHORS)
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
    tables = error_tables(problem)
    return tuple(
        forecast(problem, rule, z, counts, tables)
        for part, chain in zip(margins, found, strict=True)
        for z, best in zip(part, chain, strict=True)
        for rule, counts in [serve(best, tasks[z], problem.rows, problem.constraints)]
    )


def find_pilot(problem: Problem, threads: int) -> ThresholdRule:
    """Return the rule at which design effects are estimated."""
    task = _task(problem, PILOT)
    rule, _ = serve(search(task, None, threads), task, problem.rows, problem.constraints)
    return rule


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
