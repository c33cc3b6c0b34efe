"""The rules that a path may hold, margin by margin, and how likely each is to be certified.

Threshold rules are followed along chains of margins. Optimal rules come one from another: at margin
z a claim with n certain rows may have T(n) wrong ones, as many as pass with probability Phi(z). T
is convex, so the line that touches it at the present n lies below it: a rule that keeps to the line
keeps to T. A line is a requirement that the dual can price, and the n of its solution is where the
next line touches; after a few lines n stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core import counts
from scrib_mlflow.core.bounds import ErrorTable, smooth_errors, soft_errors
from scrib_mlflow.core.certificate.chances import (
    FitRows,
    claim_chances,
    error_ratios,
    measure,
    steady_worth,
)
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.dual import Requirements, minimise, out_of_reach, solve_dual
from scrib_mlflow.core.groups import count_groups, design_effects, sum_groups
from scrib_mlflow.core.inputs import Floats, Ints, Labelled, Progress, are_tied
from scrib_mlflow.core.loss import Margin, Objective, Problem, make_objective
from scrib_mlflow.core.optimal import fit
from scrib_mlflow.core.rules import OptimalRule, Recalibration, ThresholdRule, make_sets
from scrib_mlflow.core.search.fit import make_task, served_rule
from scrib_mlflow.core.search.search import Task, follow, search
from scrib_mlflow.core.targets import claimed

# Margins, in standard errors of certify rows. At -1.645 risks are the targets, as in a plain fit;
# what lies below is for soft counts that are too high.
MARGINS = (*(z / 4 for z in range(14, -7, -1)), -1.645, -2.0, -2.5, -3.0, -4.0)  # 3.5 ... -4
CAREFUL = (12.0, 10.0, 8.5, 7.0, 6.0, 5.0, 4.25)  # further ones, where fit rows are few beside them
LEAST_CHANCE = 1e-6  # of a claim, where some rule must be chosen although none can pass

ANCHORS = (1.0, 2.5)  # margins of the searches that chains of thresholds start from: basins differ
EFFORT = 0.25  # of a fit, for each search
FEW_CLASSES = 10  # more get less effort each: with soft labels a descent costs classes squared
MANY_CLASSES = 20  # more get half the margins and one search

MOST_LINES = 6  # of optimal rules at a margin
STEADY = 0.005  # a change in certain rows, beyond one row, that ends the lines
SMOOTHINGS = (0.01, 0.003)
ERRORS_APART = 1.0  # errors between the rows that give a slope


PathRule = ThresholdRule | OptimalRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProblem(Problem):
    """What all steps of a path share; `rows` are blurred, with soft labels."""

    fit: FitRows
    weights: Floats  # (m,) how many rows each of `rows` stands for
    margin: Margin
    seed: int
    soft_rows: float  # labelled rows that a soft rate is worth
    recalibration: Recalibration | None = None  # of optimal rules; None for thresholds
    named: frozenset[str] = frozenset()  # classes whose target is given by name
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule of a path."""

    rule: PathRule
    margin: float  # z
    power: float  # predicted chance that every claim passes
    abstention_rate: float  # on the rows that drew the path
    chances: tuple[float, ...] = ()  # predicted, of each claim by itself


class HopefulStep(NamedTuple):
    """A step with what orders a path."""

    rank: float  # chance that every claim passes, with more trust in soft rates
    hope: float  # sum of the claims' log chances, none of them taken for impossible
    step: Step


class Pilot(NamedTuple):
    """A rule of middling margin, by which labels correct what soft counts get wrong."""

    rule: PathRule
    at: Floats  # its thresholds, or its multipliers


def find_pilot(problem: PathProblem) -> Pilot:
    """Return the rule that shows design effects and errors of soft counts."""
    if problem.recalibration is None:
        task = _task(problem, ANCHORS[0])
        best = search(task, None, problem.threads)
        return Pilot(served_rule(best, task, problem)[0], best.thresholds)
    chances, share = _chances(problem)
    needs = fit.make_requirements(problem.constraints, share @ chances)
    needs = needs.shared(fit.shared_multipliers(problem, problem.named))
    multipliers = solve_dual(
        chances,
        share,
        needs,
        seed=problem.seed,
        error_weight=problem.error_weight,
        tops=problem.tops(),
    )
    solved = needs, multipliers, problem.recalibration, problem.error_weight, problem.answers
    return Pilot(fit.make_rule(*solved), multipliers)


def expect_groups(
    problem: PathProblem, pilot: PathRule, rows: Labelled, groups: Ints, cap: float
) -> PathProblem:
    """Return the problem with the design effects that a pilot rule has on labelled rows."""
    sets = make_sets(pilot, rows.scores)
    by_class = counts.count_rows(sets, rows)
    of_claims = [list(claim.classes) for claim in claimed(problem.constraints)]
    certain, wrong = counts.certain_and_wrong(sets, rows.labels)
    certain_of = (certain & np.isin(rows.labels, of) for of in of_claims)
    sums = sum_groups(count_groups(groups, wrong, certain_of, cap, rows.weights))
    effects = np.ones(len(problem.constraints))
    effects[[c.kind == "risk" for c in problem.constraints]] = design_effects(
        np.array([by_class.certain[of].sum() for of in of_claims]),
        sums,
        more=problem.margin.certify_rows / float(rows.weights.sum()),
        level=1.0 - problem.margin.confidence,
    )
    margin = replace(problem.margin, design_effects=tuple(effects.tolist()))
    return replace(problem, margin=margin)


def expect_errors(problem: PathProblem, pilot: PathRule) -> PathProblem:
    """Return the problem with the errors to expect for each soft one, by the labels of a pilot."""
    constraints, margin = problem.constraints, problem.margin
    ratios = np.ones(len(constraints))
    rates = measure(pilot, problem.fit, constraints)
    ratios[[c.kind == "risk" for c in constraints]] = error_ratios(
        rates, constraints, margin, steady_worth(problem.soft_rows)
    )
    return replace(problem, margin=replace(margin, biases=tuple(ratios.tolist())))


def forecast(problem: PathProblem, rule: PathRule, margin: float) -> HopefulStep:
    """Return a rule with what to expect of it."""
    rates = measure(rule, problem.fit, problem.constraints)
    chances, ranks = (
        claim_chances(rates, problem.constraints, problem.margin, soft_rows=rows)
        for rows in (problem.soft_rows, steady_worth(problem.soft_rows))
    )
    return HopefulStep(
        rank=float(np.prod(ranks)),
        hope=float(np.log(np.maximum(ranks, LEAST_CHANCE)).sum()),
        step=Step(
            rule=rule,
            margin=margin,
            power=float(np.prod(chances)),
            abstention_rate=rates.abstention,
            chances=tuple(chances.tolist()),
        ),
    )


def shorten(
    problem: PathProblem, path: Sequence[Step], labels: float
) -> tuple[tuple[Step, ...], float]:
    """Return the part of a path that answers most by expectation, and the share of rows it answers.

    So many labels are drawn from the rows that some rule of the path answers: each further rule
    answers more rows, and leaves fewer labels for those before it.
    """
    scores, weights = problem.fit.scores, problem.fit.weights
    measured = [measure(step.rule, problem.fit, problem.constraints) for step in path]
    answered = np.zeros(len(scores), dtype=np.bool_)
    best: tuple[float, tuple[Step, ...], float] = (-1.0, (), 1.0)
    for end, step in enumerate(path, start=1):
        answered |= np.count_nonzero(make_sets(step.rule, scores), axis=1) == 1
        share = max(float(np.average(answered, weights=weights)), 1.0 / len(scores))
        margin = replace(problem.margin, certify_rows=labels / share)
        judged: list[Step] = []
        for each, rates in zip(path[:end], measured, strict=False):
            chances = claim_chances(rates, problem.constraints, margin, soft_rows=problem.soft_rows)
            power = min(float(np.prod(chances)), *(before.power for before in judged[-1:]), 1.0)
            judged.append(replace(each, power=power, chances=tuple(chances.tolist())))
        worth = answered_share(judged)
        if worth > best[0]:
            best = worth, tuple(judged), share
    return best[1:]


def answered_share(path: Sequence[Step]) -> float:
    """Return the share of rows that is expected to be answered: none where nothing passes."""
    powers = np.array([step.power for step in path])
    ends = powers - np.append(powers[1:], 0.0)  # chances that a rule is the last that passes
    return float(ends @ [1.0 - step.abstention_rate for step in path])


def find_steps(problem: PathProblem, pilot: Pilot, progress: Progress | None) -> list[HopefulStep]:
    """Return rules at all margins."""
    find = _threshold_steps if problem.recalibration is None else _optimal_steps
    return find(problem, pilot, find_margins(problem), progress)


def find_margins(problem: PathProblem) -> list[float]:
    """Return the margins, falling.

    Risks are known from the labels of no more rows than there are here, so that the highest margin
    allows for the standard error of these as well.
    """
    more = problem.margin.certify_rows / len(problem.fit.labelled.labels)
    return [*(z for z in CAREFUL if z <= MARGINS[0] * np.sqrt(1.0 + more)), *MARGINS]


def _threshold_steps(
    problem: PathProblem, pilot: Pilot, margins: Sequence[float], progress: Progress | None
) -> list[HopefulStep]:
    """Return the rules of chains that start from searches at two margins and go both ways."""
    many = len(problem.rows.classes) > MANY_CLASSES
    margins, anchors = (margins[::2], ANCHORS[:1]) if many else (margins, ANCHORS)
    first = _task(problem, anchors[0])
    tasks = {z: first._replace(objective=_objective(problem, z)) for z in margins}
    chains, parts = [], []
    for anchor in anchors:
        start = pilot.at
        if anchor != anchors[0]:
            start = search(_task(problem, anchor), None, problem.threads).thresholds
        up = sorted(z for z in margins if z >= anchor)
        down = [z for z in margins if z < anchor]
        parts += [up, down]
        chains += [([tasks[z] for z in part], start) for part in (up, down)]
    followed = follow(chains, problem.threads, progress)
    return [
        forecast(problem, served_rule(best, tasks[z], problem)[0], z)
        for part, chain in zip(parts, followed, strict=True)
        for z, best in zip(part, chain, strict=True)
    ]


def _objective(problem: PathProblem, z: float) -> Objective:
    return make_objective(problem, replace(problem.margin, z=z))


def _task(problem: PathProblem, z: float) -> Task:
    effort = EFFORT * min(1.0, FEW_CLASSES / len(problem.rows.classes))
    return make_task(problem, _objective(problem, z), effort=effort, seed=problem.seed)


def _optimal_steps(
    problem: PathProblem, pilot: Pilot, margins: Sequence[float], progress: Progress | None
) -> list[HopefulStep]:
    """Return a rule for each margin, from the lowest to the highest that is within reach."""
    chances, share = _chances(problem)
    together = fit.shared_multipliers(problem, problem.named)
    points = fit.make_requirements(problem.constraints, share @ chances)
    multipliers, weight, tops = pilot.at, problem.error_weight, problem.tops()

    def count(rule: OptimalRule) -> Counts:
        return fit.count_answers(rule, chances, problem.rows, tops)

    soft = count(fit.make_rule(points.shared(together), multipliers, None, weight))
    ratio = problem.margin.certify_rows / soft.members.sum()
    tied = are_tied(problem.fit.scores)
    ones, zeros = (1.0,) * chances.shape[1], (0.0,) * chances.shape[1]
    steps = []
    rising = sorted(margins)
    turns: Iterable[int] = range(len(rising))
    for turn in progress(turns) if progress else turns:
        allowed = error_tables(problem, rising[turn])
        for _ in range(MOST_LINES):
            before = soft.certain
            needs = _touching(problem, points, allowed, soft).shared(together)
            multipliers = minimise(
                chances, share, needs, SMOOTHINGS, multipliers, error_weight=weight, tops=tops
            )
            soft = count(fit.make_rule(needs, multipliers, None, weight))
            moved = ratio * np.abs(soft.certain - before)
            lost = bool(out_of_reach(chances, share, needs, multipliers).any())
            if lost or (moved <= 1.0 + STEADY * ratio * soft.certain).all():
                break
        solved = needs, multipliers, problem.recalibration, weight, problem.answers
        rules = fit.make_rules(*solved, tied=tied)
        steps += [forecast(problem, rule, rising[turn]) for rule in rules]
        if lost:  # and higher margins are further still
            break
    if weight == 0:  # else an answer more often wrong than right is worse than none
        always = replace(rules[0], multipliers=ones, charges=zeros)  # answers every row
        steps.append(forecast(problem, always, rising[0]))
    return steps


def _chances(problem: PathProblem) -> tuple[Floats, Floats]:
    """Return the probabilities of the blurred rows, and the share of all rows that each one is."""
    return problem.rows.soft / problem.weights[:, None], problem.weights / problem.weights.sum()


def error_tables(problem: PathProblem, z: float) -> list[ErrorTable]:
    """Return for each constraint the soft errors that pass with probability Phi(z), smoothed."""
    rows, margin = problem.rows.class_weight(), problem.margin
    total = float(rows.sum())

    @functools.cache
    def table(target: float, last: int, bias: float) -> ErrorTable:
        return soft_errors(smooth_errors(target, last, margin.confidence, z), bias)

    by_constraint = []
    for c, constraint in enumerate(problem.constraints):
        most = margin.ratio(c, total) * rows[list(constraint.classes)].sum()
        by_constraint.append(table(constraint.target, int(np.ceil(most)) + 1, margin.bias(c)))
    return by_constraint


def _touching(
    problem: PathProblem, points: Requirements, allowed: Sequence[ErrorTable], soft: Counts
) -> Requirements:
    """Return the requirements whose lines touch the allowed errors at these counts.

    Where no number of rows passes the target itself stands, and so do caps on abstention.
    """
    due, floor = points.due.copy(), points.floor.copy()
    total = float(soft.members.sum())
    for c, constraint in enumerate(problem.constraints):
        if constraint.kind != "risk" or not (allowed[c].errors >= 0).any():
            continue
        rows = problem.margin.ratio(c, total)  # certify rows for each row here
        certain = rows * soft.certain[list(constraint.classes)].sum()
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
