"""Fit the optimal rule: of all rules that keep the risks, the one that abstains least.

Its multipliers are the prices that solve the dual (`core.dual`). They need calibrated
probabilities, so labels first recalibrate the scores; without labels the scores are taken as they
are. The rule as served is then counted on the same rows. Where it misses a target, for the labels
or for ties, the solver aims lower; where it has room beyond the noise of labels, higher. The round
with the least loss wins. The gap says how much of the abstention the scores make inevitable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import dual, inputs, loss, rules
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.counts import Counts, add_counts, constraint_counts, count_rows, count_sets
from scrib_mlflow.core.dual import Requirements
from scrib_mlflow.core.inputs import Floats, Labelled, Labels
from scrib_mlflow.core.loss import CERTAIN, RIGHT, Ambiguity, Problem
from scrib_mlflow.core.optimal.recalibration import fit_recalibration, recalibrate
from scrib_mlflow.core.rules import Fit, OptimalRule, Recalibration, Rule, answerable, make_sets
from scrib_mlflow.core.targets import (
    AnswerName,
    Constraint,
    Target,
    Targets,
    claimed,
    own_targets,
)
from scrib_mlflow.errors import InvalidTargetsError

MANY_CLASSES = 20  # with so many classes, those with few rows share a multiplier
FEW_ROWS = 30
SHIFTS = (0.0, 0.02, -0.02)  # of all values, for rows that are alike
ROUNDS = 16  # of aiming
MANY_ROUNDS = 3  # the same where multipliers are many
CLOSE = 1e-3  # distance from a target, as a share of it, at which aiming ends
ERRORS = 2.0  # standard errors that the noise of labels explains
STRIDE = 0.7  # of the way, in a round


def shared_multipliers(
    problem: Problem, named: frozenset[str], *, share: bool | None = None
) -> Floats:
    """Return (g, c) which constraints have one multiplier together; mostly each has its own.

    The risks of few rows are noise, and prices made for each of them fit that noise. A class that
    is `named` with its target has a multiplier of its own.
    """
    constraints, class_weight = problem.constraints, problem.rows.class_weight()
    many = len(class_weight) >= MANY_CLASSES
    together: dict[object, list[int]] = {}
    for c, constraint in enumerate(constraints):
        rows = class_weight[list(constraint.classes)].sum()
        joins = len(constraint.classes) == 1 and constraint.name not in named
        joins &= (many and rows < FEW_ROWS) if share is None else share
        key = (constraint.kind, constraint.target) if joins else c
        together.setdefault(key, []).append(c)
    shared = np.zeros((len(together), len(constraints)))
    for g, members in enumerate(together.values()):
        shared[g, members] = 1.0
    return shared


def make_requirements(constraints: Sequence[Constraint], class_share: Floats) -> Requirements:
    """Return what constraints ask of a rule, in their order."""
    right, due = np.zeros((2, len(constraints), len(class_share)))
    floor = np.zeros(len(constraints))
    for c, constraint in enumerate(constraints):
        classes = list(constraint.classes)
        if constraint.kind == "risk":  # right answers, of all answers to the rows of these classes
            right[c, classes] = 1.0
            due[c, classes] = 1.0 - constraint.target
        elif constraint.kind == "abstention":  # answers, of the rows of these classes
            due[c, classes] = -1.0
            floor[c] = (1.0 - constraint.target) * class_share[classes].sum()
    return Requirements(right, due, floor)


def make_rule(
    needs: Requirements,
    multipliers: Floats,
    recalibration: Recalibration | None,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
) -> OptimalRule:
    """Return the rule of solved multipliers; its candidates are two until they are calibrated."""
    worth, charge = dual.prices(needs, multipliers, error_weight)
    return OptimalRule(
        multipliers=tuple(worth.tolist()),
        charges=tuple(charge.tolist()),
        recalibration=recalibration,
        candidate_thresholds=(float("inf"),) * len(worth),
        answers=answers,
    )


def make_rules(
    needs: Requirements,
    multipliers: Floats,
    recalibration: Recalibration | None,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    *,
    tied: bool,
) -> list[OptimalRule]:
    """Return the rule of solved multipliers; where scores are tied, also its neighbours.

    Rows that are alike can all lie where answering neither pays nor costs. The solver answers a
    share of them; a rule must answer all or none, and its neighbours do the one and the other.
    """
    rule = make_rule(needs, multipliers, recalibration, error_weight, answers)
    return [
        replace(
            rule,
            multipliers=tuple(each / (1.0 + shift) for each in rule.multipliers),
            charges=tuple(each / (1.0 + shift) for each in rule.charges),
        )
        for shift in (SHIFTS if tied else SHIFTS[:1])
    ]


@one_blas_thread()
def fit_optimal(
    scores: ArrayLike,
    labels: ArrayLike | None = None,
    risk_targets: Target | None = 0.1,
    *,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    share_multipliers: bool | None = None,
    candidate_coverage: float = 0.95,
    sample_weight: ArrayLike | None = None,
    seed: int = 0,
) -> Fit:
    """Find the multipliers that keep the targets with the least abstention.

    Parameters
    ----------
    scores : (n, k) array
        Probabilities: every row sums to one.
    labels : (n,) array, optional
        Class names or indices. They recalibrate the scores and check the targets. Without them the
        scores are taken for calibrated, and counted softly.
    risk_targets, overall_target, risk_groups, max_class_abstention, waive, classes : optional
        As of `fit_thresholds`.
    penalty : float or mapping
        What a squared excess counts in the loss, by which the solver's rounds are compared.
    error_weight : float
        How many abstentions a wrong answer costs. At 0 the rule answers as often as the targets
        allow, wrongly where they allow that.
    answers : "top" or "any"
        As of `fit_thresholds`; the top class is that of the scores before recalibration.
    share_multipliers : bool, optional
        Whether classes without a target of their own share one multiplier; by default where
        classes are many and rows of theirs are few.
    candidate_coverage : float
        How often the candidates of an abstention shall hold the true class, by class. Proved by
        nothing here: these rows have been fitted.
    sample_weight : (n,) array, optional
        How many rows each one stands for; 0 leaves a row out.
    seed : int
        Of the sample with which many rows begin.

    Returns
    -------
    Fit
        With an `OptimalRule`; `abstention_bound` is what no rule of the recalibrated scores can
        fall below, and `primal_gap` how far above the rule of the same multipliers lies, or by
        parts of rows below. Both are of abstention plus `error_weight` times the wrong answers.
    """
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
        max_class_abstention=max_class_abstention,
        waive=waive,
        penalty=penalty,
    )
    recalibration = None
    if labels is None:
        checked = inputs.check_probabilities(inputs.check_scores(scores, least_rows=2))
        rows = inputs.check_rows(checked, checked, classes, sample_weight)
        chances = rows.scores
    else:
        rows = inputs.check_rows(scores, labels, classes, sample_weight, hard=True)
        recalibration = fit_recalibration(
            inputs.check_probabilities(rows.scores), rows.labels, rows.weights
        )
        chances = recalibrate(recalibration, rows.scores)
    problem = loss.make_problem(rows, targets, Ambiguity(error_weight=error_weight), answers)
    if not problem.constraints:
        raise InvalidTargetsError(
            "no target is enforced, so there is nothing to fit; give risk_targets, or waive less"
        )
    together = shared_multipliers(problem, own_targets(risk_targets), share=share_multipliers)
    aimed = aim(problem, chances, recalibration, together, inputs.check_seed(seed))
    if labels is None:
        return aimed.fit
    known = inputs.labels_for(rows.labels, rows.classes)
    rule = rules.with_candidates(
        aimed.rule, rows.scores, known, candidate_coverage, classes=rows.classes
    )
    return replace(aimed.fit, rule=rule)


class Aimed(NamedTuple):
    """The best rule of several rounds."""

    rule: OptimalRule
    fit: Fit  # of this rule
    multipliers: Floats  # of the last round, from which targets nearby may start


class Tried(NamedTuple):
    """A rule of one round, with what it counts."""

    loss: float
    rule: OptimalRule
    multipliers: Floats
    counts: Counts


def count_answers(rule: OptimalRule, chances: Floats, rows: Labelled, tops: Labels) -> Counts:
    """Count the answers of a rule to recalibrated rows; what sets hold beside them is left out.

    `tops` are the classes that rows may be answered with, as `answerable` gives them.
    """
    certain, right, all_certain = dual.count_answers(
        chances,
        np.array(rule.multipliers),
        np.array(rule.charges),
        rows.labels,
        rows.soft,
        rows.weights,
        tops,
    )
    return Counts(
        rows.class_weight(), certain, certain - right, np.zeros(len(right)), all_certain, 0.0, 0.0
    )


def aim(
    problem: Problem,
    chances: Floats,
    recalibration: Recalibration | None,
    together: Floats,
    seed: int,
    start: Floats | None = None,
) -> Aimed:
    """Return the best of rounds that aim where the targets come out as wanted."""
    rows, constraints = problem.rows, problem.constraints
    soft = len(rows.soft) > 0
    # soft labels carry the weights, but need not sum to exactly one
    weights = rows.weights / chances.sum(axis=1) if soft else rows.weights
    share = weights / weights.sum()
    class_share = share @ chances
    objective = loss.make_objective(problem)
    aims = np.array([constraint.target for constraint in constraints])
    tied = inputs.are_tied(rows.scores)
    weight, tops = problem.error_weight, problem.tops()
    rounds: list[Tried] = []
    multipliers, bound, gap = start, 0.0, 0.0
    for turn in range(ROUNDS if len(together) < MANY_CLASSES else MANY_ROUNDS):
        aimed_at = [replace(c, target=float(t)) for c, t in zip(constraints, aims, strict=True)]
        needs = make_requirements(aimed_at, class_share).shared(together)
        multipliers = dual.solve_dual(
            chances, share, needs, start=multipliers, seed=seed, error_weight=weight, tops=tops
        )
        tried = []
        solved = needs, multipliers, recalibration, weight, problem.answers
        for rule in make_rules(*solved, tied=tied):
            counts = count_answers(rule, chances, rows, tops)
            counters = constraint_counts(counts, constraints)
            reached = float(loss.loss_of(*counters, objective))
            tried.append(Tried(reached, rule, multipliers, counts))
        if turn == 0:
            bound = 1.0 - dual.certain_bound(chances, share, needs, multipliers, weight, tops)
            counts = tried[0].counts
            paid = counts.all_certain - weight * counts.wrong.sum()
            gap = float(1.0 - paid / rows.weights.sum()) - bound
        rounds.append(min(tried, key=lambda each: each.loss))
        off = _off_target(rounds[-1].counts, constraints, together, multipliers, soft=soft)
        if np.abs(off - 1.0).max() <= CLOSE:
            break
        aims = np.minimum(aims * np.clip(off @ together, 0.5, 2.0) ** -STRIDE, 0.999)
    best = min(rounds, key=lambda each: each.loss).rule
    served = count_rows(make_sets(best, rows.scores), rows)
    fit = loss.describe_fit("optimal", best, problem, objective, served)
    fit = replace(fit, abstention_bound=bound, primal_gap=gap, seed=seed)
    return Aimed(best, fit, rounds[-1].multipliers)


def _off_target(
    counts: Counts,
    constraints: Sequence[Constraint],
    together: Floats,
    multipliers: Floats,
    *,
    soft: bool,
) -> Floats:
    """Return (g,) how many times its target each risk is; 1 where there is nothing to correct.

    Risks that share a multiplier count as one. A risk below its target counts only by what the
    noise of labels does not explain, and where the target has a price at all.
    """
    by_constraint, _ = constraint_counts(counts, constraints)
    certain, right = together @ by_constraint[:, CERTAIN], together @ by_constraint[:, RIGHT]
    off = np.ones(len(together))
    for g, members in enumerate(together):
        first = constraints[int(np.argmax(members))]  # the others have the same target
        wrong = certain[g] - right[g]
        if first.kind != "risk" or not wrong > 0:
            continue
        if soft and 0.0 <= first.target * certain[g] - wrong <= 1.0:
            continue  # room for less than a row, which no rule can split
        rate, target = wrong / certain[g], first.target
        if rate > target:
            off[g] = rate / target
        elif multipliers[g] > 0:
            noise = 0.0 if soft else ERRORS * np.sqrt(target * (1 - target) / certain[g])
            off[g] = min((rate + noise) / target, 1.0)
    return off


MOST_ROWS = 20_000  # that prices are taken from
LEAST_RISK = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionGap:
    """A rule's abstention beside the least that any rule of these scores can reach.

    All by soft counts: recalibrated scores take the place of labels. Where wrong answers cost
    something, the bounds are on `cost_rate`.
    """

    abstention_rate: float  # of the rule
    bound: float  # of any rule that keeps the targets
    bound_at_risks: float  # of any rule whose risks are not above this rule's
    n_rows: int
    error_weight: float = 0.0  # abstentions that a wrong answer costs
    wrong_rate: float = 0.0  # wrong answers of the rule, of all rows; 0 in older files

    @property
    def cost_rate(self) -> float:
        """What abstentions and wrong answers of the rule cost, in abstentions a row."""
        return self.abstention_rate + self.error_weight * self.wrong_rate


@one_blas_thread()
def measure_gap(
    rule: Rule,
    scores: Floats,
    constraints: Sequence[Constraint],
    recalibration: Recalibration,
    fit_scores: Floats,
    seed: int,
    fit_weights: Floats | None = None,
    error_weight: float = 0.0,
) -> AbstentionGap:
    """Hold a rule against the best possible on rows whose labels are not looked at.

    Prices come from `fit_scores`, so that on other rows the bounds do not flatter. The weights of
    the fit rows count in the prices, and in all else where they are the rows themselves. Where the
    rule answers top classes only, so do those that it is held against.
    """
    risks = claimed(constraints)
    chances = recalibrate(recalibration, scores)
    same = fit_scores is scores
    weights = np.ones(len(scores)) if fit_weights is None or not same else fit_weights
    no_labels = np.zeros(0, dtype=np.int32)
    counts = add_counts(
        count_sets(
            make_sets(rule, scores[of]), no_labels, chances[of] * weights[of, None], weights[of]
        )
        for of in inputs.row_blocks(len(scores))
    )
    by_risk, _ = constraint_counts(counts, risks)
    reached = []
    for constraint, counters in zip(risks, by_risk, strict=True):
        if counters[CERTAIN] > 0:  # a rule that never answers has no risk
            risk = 1.0 - counters[RIGHT] / counters[CERTAIN]
            reached.append(replace(constraint, target=float(np.clip(risk, LEAST_RISK, 1.0))))
    answers: AnswerName = getattr(rule, "answers", "any")
    bound = partial(
        dual.abstention_bound,
        chances,
        weights,
        seed=seed,
        tops=answerable(scores, answers),
        price_tops=answerable(fit_scores, answers),
        priced_by=chances if same else recalibrate(recalibration, fit_scores),
        price_weights=fit_weights,
        most_rows=MOST_ROWS,
        error_weight=error_weight,
    )
    least = bound(risks)
    return AbstentionGap(
        abstention_rate=float(1.0 - counts.all_certain / weights.sum()),
        bound=least,
        bound_at_risks=bound(reached) if reached else least,
        n_rows=len(scores),
        error_weight=error_weight,
        wrong_rate=float(counts.wrong.sum() / weights.sum()),
    )
