"""Candidates for a path of optimal rules: margin by margin, each from the one before.

At margin z a claim with n certain rows may have T(n) wrong ones, as many as pass with probability
Phi(z). T is convex, so the line that touches it at the present n lies below it: a rule that keeps
to the line keeps to T. A line is a requirement that the dual can price, and the n of its solution
is where the next line touches; after a few lines n stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.blur import are_tied
from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.dual import Requirements, minimise, out_of_reach, solve_dual
from scrib_mlflow.core.error_tables import ErrorTable
from scrib_mlflow.core.pricing import make_requirements, make_rule, make_rules, shared_multipliers
from scrib_mlflow.core.recalibrate import Recalibration
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.steps import (
    PILOT,
    Candidate,
    Problem,
    error_tables,
    forecast,
    margins_of,
)
from scrib_mlflow.serving import answer_values

Floats = NDArray[np.float64]

MOST_LINES = 6  # at a margin
STEADY = 0.005  # of the certain rows, beyond one
SMOOTHINGS = (0.01, 0.003)
ERRORS_APART = 1.0  # errors, between the rows that give a slope


def find_candidates(
    problem: Problem,
    recalibration: Recalibration,
    own: frozenset[str],
    progress: Progress | None,
    margins: Sequence[float] | None = None,
) -> tuple[Candidate, ...]:
    """Return a rule for each margin, from the lowest to the highest that is within reach."""
    chances = problem.rows.soft / problem.weights[:, None]
    share = problem.weights / problem.weights.sum()
    together = shared_multipliers(problem.constraints, problem.rows.class_weight(), own)
    points = make_requirements(problem.constraints, share @ chances)
    start = points.shared(together)
    multipliers = solve_dual(chances, share, start, seed=problem.seed)
    counts = _count(make_rule(start, multipliers, recalibration), chances, problem)
    tables = error_tables(problem)
    tied = are_tied(problem.scores)
    found = []
    rising = sorted(margins_of(problem) if margins is None else margins)
    turns: Iterable[int] = range(len(rising))
    for turn in progress(turns) if progress else turns:
        allowed = error_tables(problem, rising[turn])
        for _ in range(MOST_LINES):
            before = counts.certain
            needs = _touching(problem, points, allowed, counts).shared(together)
            multipliers = minimise(chances, share, needs, SMOOTHINGS, multipliers)
            rule = make_rule(needs, multipliers, recalibration)
            counts = _count(rule, chances, problem)
            lost = bool(out_of_reach(chances, share, needs, multipliers).any())
            if lost or _steady(problem, before, counts):
                break
        found += [
            forecast(problem, rule, rising[turn], _count(rule, chances, problem), tables)
            for rule in make_rules(needs, multipliers, recalibration, tied=tied)
        ]
        if lost:  # and higher margins are further still
            break
    return tuple(found)


def find_pilot(problem: Problem, recalibration: Recalibration, own: frozenset[str]) -> OptimalRule:
    """Return the rule at which design effects are estimated."""
    candidate = find_candidates(problem, recalibration, own, None, margins=(PILOT,))[0]
    assert isinstance(candidate.rule, OptimalRule)  # noqa: S101  # for mypy
    return candidate.rule


def _touching(
    problem: Problem, points: Requirements, allowed: Sequence[ErrorTable], counts: Counts
) -> Requirements:
    """Return the requirements whose lines touch the allowed errors at these counts.

    Where no number of rows passes the target itself stands, and so do caps on abstention.
    """
    due, floor = points.due.copy(), points.floor.copy()
    total = float(counts.members.sum())
    for c, constraint in enumerate(problem.constraints):
        if constraint.kind != "risk" or not (allowed[c].errors >= 0).any():
            continue
        rows = problem.margin.ratio(c, total)  # certify rows for each row here
        certain = rows * counts.certain[list(constraint.classes)].sum()
        slope, at_zero = _line(allowed[c], certain, constraint.target)
        due[c, list(constraint.classes)] = 1.0 - slope
        floor[c] = -at_zero / (rows * total)
    return Requirements(points.right, due, floor)


def _line(allowed: ErrorTable, n: float, target: float) -> tuple[float, float]:
    """Return slope and height at 0 of the line that touches allowed errors at n, or where they
    begin. They come one by one, so the slope is that between rows where they differ; and as fewer
    rows than the first do not pass, a line there falls as the target does.
    """  # noqa: D205  # one sentence
    rows, errors = allowed.rows, allowed.errors
    begins = int(np.argmax(errors >= 0))
    first, last = rows[begins], float(rows[-1])
    falling = errors[begins] - target * (first - rows)
    begun = np.where(rows < first, falling, errors)
    n = min(max(n, float(first + allowed.stride)), last)
    half = max(2.0 * np.sqrt(n), ERRORS_APART / target, allowed.stride)
    low, high = max(n - half, 0.0), min(n + half, last)
    left, middle, right = np.interp([low, n, high], rows, begun)
    slope = (right - left) / max(high - low, 1.0)
    return float(slope), float(middle - slope * n)


def _steady(problem: Problem, before: Floats, counts: Counts) -> bool:
    rows = problem.margin.certify_rows / counts.members.sum()
    moved = rows * np.abs(counts.certain - before)
    return bool((moved <= 1.0 + STEADY * rows * counts.certain).all())


def _count(rule: OptimalRule, chances: Floats, problem: Problem) -> Counts:
    """Return the soft counts of a rule on probabilities."""
    soft = problem.rows.soft
    worth, value = answer_values(asdict(replace(rule, recalibration=None)), chances)
    certain = value >= 0
    answered = soft[certain]
    best = worth[certain].argmax(axis=1)
    right = np.bincount(best, answered[np.arange(len(best)), best], chances.shape[1])
    in_certain = answered.sum(axis=0)
    return Counts(
        members=soft.sum(axis=0),
        certain=in_certain,
        wrong=in_certain - right,
        missed=np.zeros(len(right)),  # of sets, which nobody asks for here
        all_certain=float(problem.weights[certain].sum()),
        all_empty=0.0,
        all_size=0.0,
    )
