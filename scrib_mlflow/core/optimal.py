"""Fit the optimal rule: of all rules that keep the risks, the one that abstains least.

Its multipliers are the prices that solve the dual (`core.dual`). They need calibrated
probabilities, so labels first recalibrate the scores; without labels the scores are taken as they
are. The rule as it is served is then counted on its own rows, and where labels, or scores with
ties, say that it misses a target, the solver aims a little elsewhere and the best round is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.candidates import with_candidates
from scrib_mlflow.core.checks import check_scores
from scrib_mlflow.core.counts import Counts, count_sets
from scrib_mlflow.core.dual import (
    Requirements,
    are_probabilities,
    certain_bound,
    prices,
    risk_requirements,
    solve_dual,
)
from scrib_mlflow.core.fit import check_seed
from scrib_mlflow.core.fits import Fit, describe_fit
from scrib_mlflow.core.objective import Ambiguity, check_members, make_objective
from scrib_mlflow.core.recalibrate import Recalibration, fit_recalibration, recalibrate
from scrib_mlflow.core.rows import Labelled, check_rows
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.targets import Constraint, Target, Targets, make_constraints
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError
from scrib_mlflow.serving import rule_sets

Floats = NDArray[np.float64]

MANY_CLASSES = 20  # from here on classes with
FEW_ROWS = 30   # fewer rows than this share a multiplier, unless their target is their own
ROUNDS = 8  # of aiming;
MANY_ROUNDS = 3  # where multipliers are many
CLOSE = 1e-3  # of a target, between what is aimed at and what comes out
STRIDE = 0.7  # of the way, in a round


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
    share_multipliers: bool | None = None,
    candidate_coverage: float = 0.95,
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
        What a squared excess counts in the loss; the multipliers do not depend on it.
    share_multipliers : bool, optional
        Whether classes without a target of their own share one multiplier; by default where
        classes are many and rows of theirs are few.
    candidate_coverage : float
        How often the candidates of an abstention shall hold the true class, by class. Proved by
        nothing here: these rows have been fitted.
    seed : int
        Of the sample with which many rows begin.

    Returns
    -------
    Fit
        With an `OptimalRule`; `abstention_bound` is what no rule of the recalibrated scores can
        fall below, and `primal_gap` how far the rule of the same multipliers stays above.
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
        chances = check_probabilities(check_scores(scores, least_rows=2))
        rows = check_rows(chances, chances, classes, None)
    else:
        rows = check_rows(scores, labels, classes, None)
        if len(rows.soft):
            msg = "labels must be one class a row; without labels scores are counted softly"
            raise InvalidLabelsError(msg)
        recalibration = fit_recalibration(check_probabilities(rows.scores), rows.labels)
        chances = recalibrate(recalibration, rows.scores)
    constraints = make_constraints(targets, rows.classes)
    check_members(targets, rows.class_weight(), rows.classes)
    together = shared_multipliers(
        constraints, rows.class_weight(), own_targets(risk_targets), share=share_multipliers
    )
    fit = _aim(rows, chances, recalibration, constraints, together, check_seed(seed))
    if labels is None:
        return fit
    assert isinstance(fit.rule, OptimalRule)  # noqa: S101  # for mypy
    rule = with_candidates(fit.rule, rows.scores, rows.labels, candidate_coverage)
    return replace(fit, rule=rule)


def check_probabilities(scores: Floats) -> Floats:
    """Return the scores, or say why they cannot be probabilities."""
    if are_probabilities(scores):
        return scores
    inside = ((scores >= 0) & (scores <= 1)).all(axis=1)
    worst = int(np.argmin(inside)) if not inside.all() else int(
        np.argmax(np.abs(scores.sum(axis=1) - 1))
    )
    what = f"sums to {scores[worst].sum():g}" if inside.all() else "leaves [0, 1]"
    msg = (
        f"the scores are no probabilities, which the optimal rule needs: row {worst} {what}; make "
        "probabilities of logits by softmax (score_transform=softmax), or fit thresholds, which "
        "take any scores"
    )
    raise InvalidScoresError(msg)


def own_targets(risk_targets: Target | None) -> frozenset[str]:
    """Return the classes whose target is given by name."""
    return frozenset(map(str, risk_targets)) if isinstance(risk_targets, Mapping) else frozenset()


def shared_multipliers(
    constraints: Sequence[Constraint],
    class_weight: Floats,
    own: frozenset[str],
    *,
    share: bool | None = None,
) -> Floats:
    """Return (g, c) which constraints have one multiplier together; mostly each has its own.

    The risks of few rows are noise, and prices made for each of them fit that noise.
    """
    many = len(class_weight) >= MANY_CLASSES
    together: dict[object, list[int]] = {}
    for c, constraint in enumerate(constraints):
        rows = class_weight[list(constraint.classes)].sum()
        joins = len(constraint.classes) == 1 and constraint.name not in own
        joins &= (many and rows < FEW_ROWS) if share is None else share
        key = (constraint.kind, constraint.target) if joins else c
        together.setdefault(key, []).append(c)
    found = np.zeros((len(together), len(constraints)))
    for g, members in enumerate(together.values()):
        found[g, members] = 1.0
    return found


def make_requirements(
    constraints: Sequence[Constraint], class_share: Floats, aims: Floats | None = None
) -> Requirements:
    """Return what constraints ask of a rule, in their order, with other targets where given."""
    k = len(class_share)
    aimed = constraints
    if aims is not None:
        aimed = [replace(c, target=float(t)) for c, t in zip(constraints, aims, strict=True)]
    needs = [np.zeros((len(aimed), k)), np.zeros((len(aimed), k)), np.zeros(len(aimed))]
    risks = [c for c, constraint in enumerate(aimed) if constraint.kind == "risk"]
    for part, found in zip(needs, risk_requirements(aimed, k), strict=True):
        part[risks] = found
    for c, constraint in enumerate(aimed):
        if constraint.kind == "abstention":  # answers, of the rows of these classes
            classes = list(constraint.classes)
            needs[1][c, classes] = -1.0
            needs[2][c] = (1.0 - constraint.target) * class_share[classes].sum()
    return Requirements(*needs)


def make_rule(
    needs: Requirements, multipliers: Floats, recalibration: Recalibration | None
) -> OptimalRule:
    """Return the rule of solved multipliers; its candidates are two until they are calibrated."""
    worth, charge = prices(needs, multipliers)
    return OptimalRule(
        multipliers=tuple(worth.tolist()),
        charges=tuple(charge.tolist()),
        recalibration=recalibration,
        candidate_thresholds=(float("inf"),) * len(worth),
    )


def _aim(
    rows: Labelled,
    chances: Floats,
    recalibration: Recalibration | None,
    constraints: tuple[Constraint, ...],
    together: Floats,
    seed: int,
) -> Fit:
    """Return the best of rounds that aim where the targets come out as asked for."""
    share = np.full(len(chances), 1.0 / len(chances))
    class_share = share @ chances
    objective = make_objective(
        constraints, rows.class_weight(), Ambiguity(), None, counted=rows.counted
    )
    targets = np.array([constraint.target for constraint in constraints])
    risky = np.array([constraint.kind == "risk" for constraint in constraints])
    aims = targets.copy()
    best: Fit | None = None
    multipliers, bound, gap = None, 0.0, 0.0
    for turn in range(ROUNDS if len(together) < MANY_CLASSES else MANY_ROUNDS):
        needs = make_requirements(constraints, class_share, aims).shared(together)
        multipliers = solve_dual(chances, share, needs, start=multipliers, seed=seed)
        rule = make_rule(needs, multipliers, recalibration)
        counts = _count(rule, rows)
        fit = describe_fit("optimal", rule, rows, constraints, objective, counts)
        if turn == 0:
            bound = 1.0 - certain_bound(chances, share, needs, multipliers)
            gap = float(1.0 - counts.all_certain / rows.weights.sum()) - bound
        if best is None or fit.loss < best.loss:
            best = fit
        rates = np.array([constraint.rate for constraint in fit.constraints])
        priced = (multipliers @ together > 0) | (rates > targets)
        off = np.where(risky & priced & (rates > 0), rates / targets, 1.0)
        if np.abs(off - 1.0).max() <= CLOSE:
            break
        aims = np.minimum(aims * np.clip(off, 0.5, 2.0) ** -STRIDE, 0.999)
    assert best is not None  # noqa: S101  # for mypy; there is a first round
    return replace(best, abstention_bound=bound, primal_gap=gap, seed=seed)


def _count(rule: OptimalRule, rows: Labelled) -> Counts:
    return count_sets(rule_sets(asdict(rule), rows.scores), *rows[1:4])
