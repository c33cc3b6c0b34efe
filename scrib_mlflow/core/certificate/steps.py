"""The rules that a path may hold, margin by margin, and how likely each is to be certified.

Threshold rules are followed along chains of margins. Optimal rules come one from another: at margin
z a claim with n certain rows may have T(n) wrong ones, as many as pass with probability Phi(z). T
is convex, so the line that touches it at the present n lies below it: a rule that keeps to the line
keeps to T. A line is a requirement that the dual can price, and the n of its solution is where the
next line touches; after a few lines n stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.bounds import ErrorTable, binomial_tail, smooth_errors, soft_errors
from scrib_mlflow.core.counts import (
    Counts,
    certain_and_wrong,
    constraint_counts,
    count_rows,
    design_effects,
    sum_groups,
)
from scrib_mlflow.core.dual import Requirements, minimise, out_of_reach, solve_dual
from scrib_mlflow.core.inputs import Floats, Ints, Labelled, Progress, are_tied
from scrib_mlflow.core.loss import CERTAIN, RIGHT, Margin, Objective, Problem, make_objective
from scrib_mlflow.core.optimal import fit
from scrib_mlflow.core.rules import OptimalRule, Recalibration, ThresholdRule, make_sets
from scrib_mlflow.core.search.fit import make_task, served_rule
from scrib_mlflow.core.search.search import Task, follow, search
from scrib_mlflow.core.targets import claimed
from scrib_mlflow.serving import answer_values

MARGINS = tuple(z / 4 for z in range(14, -4, -1))  # 3.5 ... -0.75
CAREFUL = (12.0, 9.0, 7.0, 6.0, 5.0, 4.25)  # further margins, an even number, for doubted counts
PILOT = 0.0  # the margin at which design effects are estimated: with errors enough to tell
LEAST_CHANCE = 1e-6  # of a claim, where some rule must be chosen although none can pass
NORMAL_POINTS, NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)  # to average over doubt

ANCHORS = (1.0, 2.5)  # margins of the searches that chains of thresholds start from: basins differ
EFFORT = 0.25  # of a fit, for each search
FEW_CLASSES = 10  # more get less effort each: with soft labels a descent costs classes squared
MANY_CLASSES = 20  # more get half the margins and one search

MOST_LINES = 6  # of optimal rules at a margin
STEADY = 0.005  # a change in certain rows, beyond one row, that ends the lines
SMOOTHINGS = (0.01, 0.003)
ERRORS_APART = 1.0  # errors between the rows that give a slope


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProblem(Problem):
    """What all steps of a path share; `rows` are blurred, with soft labels."""

    scores: Floats  # (n, k) of the rows that draw it
    weights: Floats  # (m,) how many rows each of `rows` stands for
    margin: Margin
    seed: int


class PathStep(NamedTuple):
    """A rule that a path may hold."""

    rule: ThresholdRule | OptimalRule
    margin: float
    power: float  # chance that all claims pass
    hope: float  # sum of the claims' log chances, none of them taken for impossible
    abstention_rate: float


def expect_groups(
    problem: PathProblem, pilot: ThresholdRule | OptimalRule, rows: Labelled, groups: Ints
) -> PathProblem:
    """Return the problem with the design effects that a pilot rule has on labelled rows."""
    sets = make_sets(pilot, rows.scores)
    counts = count_rows(sets, rows)
    of_claims = [list(claim.classes) for claim in claimed(problem.constraints)]
    certain, wrong = certain_and_wrong(sets, rows.labels)
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
    return replace(problem, margin=replace(problem.margin, design_effects=effects))


def forecast(
    problem: PathProblem,
    rule: ThresholdRule | OptimalRule,
    margin: float,
    counts: Counts,
    tables: Sequence[ErrorTable],
) -> PathStep:
    """Return a rule, given its soft counts on the blurred rows, with what to expect of it."""
    by_constraint, _ = constraint_counts(counts, problem.constraints)
    chances = _chances(problem, by_constraint, tables, float(counts.members.sum()))
    sets = make_sets(rule, problem.scores)
    abstains = np.count_nonzero(sets, axis=1) != 1
    return PathStep(
        rule=rule,
        margin=margin,
        power=float(np.prod(chances)),
        hope=float(np.log(np.maximum(chances, LEAST_CHANCE)).sum()),
        abstention_rate=float(np.average(abstains, weights=problem.weights[: len(sets)])),
    )


def error_tables(problem: PathProblem, z: float | None = None) -> list[ErrorTable]:
    """Return for each constraint the errors that a certificate allows, smoothed.

    With a margin those that pass with probability Phi(z), as soft ones.
    """
    rows = problem.rows.class_weight()
    total = float(rows.sum())
    margin = problem.margin
    tables: dict[tuple[float, int, float], ErrorTable] = {}
    by_constraint = []
    for c, constraint in enumerate(problem.constraints):
        most = margin.ratio(c, total) * rows[list(constraint.classes)].sum()
        target, last = constraint.target, int(np.ceil(most)) + 1
        key = (target, last, 1.0 if z is None else margin.bias(c))
        if key not in tables:
            tables[key] = soft_errors(smooth_errors(target, last, margin.confidence, z), key[2])
        by_constraint.append(tables[key])
    return by_constraint


def _chances(
    problem: PathProblem, counts: Floats, tables: Sequence[ErrorTable], total: float
) -> list[float]:
    """Return the chance of each risk that its certificate passes, at its soft risk."""
    chances = []
    margin = problem.margin
    for c, constraint in enumerate(problem.constraints):
        if constraint.kind != "risk":
            continue
        n = counts[c, CERTAIN]
        rows = n * margin.ratio(c, total)
        allowed = tables[c].at(rows)
        if not (n > 0 and 0 <= allowed < rows):
            chances.append(0.0)
            continue
        risk = margin.bias(c) * (n - counts[c, RIGHT]) / n
        if margin.doubts:
            risk = risk * (1 + margin.doubts[c] * NORMAL_POINTS)
        passes = binomial_tail(rows, allowed, np.clip(risk, 0.0, 1.0))
        weights = NORMAL_WEIGHTS if margin.doubts else None
        chances.append(float(np.average(np.atleast_1d(passes), weights=weights)))
    return chances


def margins_of(problem: PathProblem) -> tuple[float, ...]:
    """Return the margins of a path: more careful ones as well where soft counts are doubted."""
    return (*CAREFUL, *MARGINS) if problem.margin.doubts else MARGINS


def find_threshold_steps(
    problem: PathProblem, threads: int, progress: Progress | None
) -> tuple[PathStep, ...]:
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
        chains += [([tasks[z] for z in part], best.thresholds) for part in (up, down)]
    followed = follow(chains, threads, progress)
    tables = error_tables(problem)
    return tuple(
        forecast(problem, rule, z, counts, tables)
        for part, chain in zip(margins, followed, strict=True)
        for z, best in zip(part, chain, strict=True)
        for rule, counts in [served_rule(best, tasks[z], problem)]
    )


def find_threshold_pilot(problem: PathProblem, threads: int) -> ThresholdRule:
    """Return the rule at which design effects are estimated."""
    task = _task(problem, PILOT)
    return served_rule(search(task, None, threads), task, problem)[0]


def _objective(problem: PathProblem, z: float) -> Objective:
    return make_objective(problem, replace(problem.margin, z=z))


def _task(problem: PathProblem, z: float) -> Task:
    effort = EFFORT * min(1.0, FEW_CLASSES / len(problem.rows.classes))
    return make_task(problem, _objective(problem, z), effort=effort, seed=problem.seed)


def find_optimal_steps(
    problem: PathProblem,
    recalibration: Recalibration,
    named: frozenset[str],
    progress: Progress | None,
    margins: Sequence[float] | None = None,
) -> tuple[PathStep, ...]:
    """Return a rule for each margin, from the lowest to the highest that is within reach."""
    chances = problem.rows.soft / problem.weights[:, None]
    share = problem.weights / problem.weights.sum()
    together = fit.shared_multipliers(problem, named)
    points = fit.make_requirements(problem.constraints, share @ chances)
    start = points.shared(together)
    multipliers = solve_dual(chances, share, start, seed=problem.seed)
    counts = _count(fit.make_rule(start, multipliers, recalibration), chances, problem)
    tables = error_tables(problem)
    tied = are_tied(problem.scores)
    steps = []
    rising = sorted(margins_of(problem) if margins is None else margins)
    turns: Iterable[int] = range(len(rising))
    for turn in progress(turns) if progress else turns:
        allowed = error_tables(problem, rising[turn])
        for _ in range(MOST_LINES):
            before = counts.certain
            needs = _touching(problem, points, allowed, counts).shared(together)
            multipliers = minimise(chances, share, needs, SMOOTHINGS, multipliers)
            rule = fit.make_rule(needs, multipliers, recalibration)
            counts = _count(rule, chances, problem)
            lost = bool(out_of_reach(chances, share, needs, multipliers).any())
            if lost or _steady(problem, before, counts):
                break
        steps += [
            forecast(problem, rule, rising[turn], _count(rule, chances, problem), tables)
            for rule in fit.make_rules(needs, multipliers, recalibration, tied=tied)
        ]
        if lost:  # and higher margins are further still
            break
    return tuple(steps)


def find_optimal_pilot(
    problem: PathProblem, recalibration: Recalibration, named: frozenset[str]
) -> ThresholdRule | OptimalRule:
    """Return the rule at which design effects are estimated."""
    return find_optimal_steps(problem, recalibration, named, None, margins=(PILOT,))[0].rule


def _touching(
    problem: PathProblem, points: Requirements, allowed: Sequence[ErrorTable], counts: Counts
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


def _steady(problem: PathProblem, before: Floats, counts: Counts) -> bool:
    rows = problem.margin.certify_rows / counts.members.sum()
    moved = rows * np.abs(counts.certain - before)
    return bool((moved <= 1.0 + STEADY * rows * counts.certain).all())


def _count(rule: OptimalRule, chances: Floats, problem: PathProblem) -> Counts:
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
        missed=np.zeros(len(right)),  # of sets, which no path needs
        all_certain=float(problem.weights[certain].sum()),
        all_empty=0.0,
        all_size=0.0,
    )
