"""The frontier: how often a set classifier abstains at which targets.

Rules are fitted to a part of the rows at each of many targets, and measured on the part held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate import tally_sets
from scrib_mlflow.core.certificate.plan import chance_of_passing, least_target
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.counts import certain_and_wrong
from scrib_mlflow.core.groups import (
    LEAST_GROUPS,
    GroupTest,
    design_effects,
    sum_groups,
    typical_rows,
)
from scrib_mlflow.core.inputs import MOST_CERTIFY_ROWS, NAN, Bools, Floats, Ints, Progress
from scrib_mlflow.core.loss import Ambiguity, check_rule, make_problem
from scrib_mlflow.core.reports import PartRates, measure_part
from scrib_mlflow.core.rules import make_sets
from scrib_mlflow.core.studies import sweeps
from scrib_mlflow.core.studies.compare import group_codes, halve
from scrib_mlflow.core.targets import (
    AnswerName,
    Constraint,
    RuleName,
    Target,
    Targets,
    claimed,
    own_targets,
)
from scrib_mlflow.errors import InvalidDataError

WANTED = 0.8  # chance that all claims pass together
BISECTIONS = 14  # for the least factor of the targets


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """A rule fitted to some targets, on the rows of its fit and on those held out."""

    swept: str | None  # the class whose target moves, None where all do
    target: float  # of that class, or of the one that stands for all
    loss: float  # on the rows of the fit
    fitted: PartRates
    held_out: PartRates  # of one class at a time: by_class holds that class alone
    silent: tuple[str, ...]  # classes with a target and no certain row among those held out
    certifiable_target: float  # lowest that this rule is predicted to certify; NaN for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifiable:
    """Whether a target is predicted to be certifiable, and with how much abstention."""

    target: float  # of the class that stands for all
    chance: float  # of the most hopeful rule, or of the one that abstains least among those likely
    abstention_rate: float  # of the rule that abstains least among those likely; NaN without one
    fitted_target: float  # that this rule was fitted to


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFrontier:
    """Abstention against targets: all together, and one class at a time."""

    classes: tuple[str, ...]
    targets: dict[str, float]  # chosen, of the classes that have one enforced
    overall_target: float | None
    reference: float  # the chosen target that stands for all, which are swept in proportion to it
    rule_kind: str  # thresholds or optimal
    confidence: float
    wanted: float  # chance that a prediction asks for
    n_fitted: int
    n_held_out: int
    n_groups: int | None  # that the rows come in
    certify_rows: int
    certify_groups: int | None
    swept: tuple[str, ...]  # the classes that are swept one at a time
    points: tuple[FrontierPoint, ...]
    certifiable: tuple[Certifiable, ...]  # by target, all of them together

    @property
    def joint(self) -> tuple[FrontierPoint, ...]:
        """The points at which all targets move together."""
        return tuple(point for point in self.points if point.swept is None)

    @property
    def chosen(self) -> FrontierPoint:
        """The point at the chosen targets."""
        return next(point for point in self.joint if point.target == self.reference)

    def of(self, name: str) -> tuple[FrontierPoint, ...]:
        """Return the points at which the target of one class moves."""
        return tuple(point for point in self.points if point.swept == name)


@one_blas_thread()
def draw_frontier(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target = 0.1,
    *,
    rule: RuleName = "thresholds",
    certify_rows: int,
    certify_groups: int | None = None,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    chance_weight: float = 1.0,
    size_weight: float = 0.0,
    empty_weight: float = 1.0,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    confidence: float = 0.95,
    points: int = 30,
    lowest: float | None = None,
    highest: float | None = None,
    groups: ArrayLike | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TargetFrontier:
    """Fit rules at many targets on half of the rows, and measure them on the other half.

    Parameters
    ----------
    scores, labels, risk_targets, classes, overall_target, max_class_abstention, waive, penalty
        As for `draw_path`; labels are hard.
    rule, chance_weight, size_weight, empty_weight, error_weight, answers
        As for `draw_path`.
    certify_rows, certify_groups : int
        How many rows, and groups of rows, a certificate will be computed on; the groups if and
        only if `groups` are given.
    confidence : float
        Of the certificate that is predicted, and of each band.
    points : int
        Targets in a sweep.
    lowest, highest : float, optional
        Of all targets together. By default from a tenth of the chosen one to where the top class
        alone keeps all targets, at most one half.
    groups : (n,) array, optional
        What rows belong together; a group is never split.
    seed : int
        Of the halves and of the searches.
    threads : int, optional
        Threads to use; they never change the result.
    progress : callable, optional
        Wraps an iterable and yields the same, such as ``tqdm.tqdm``.

    Returns
    -------
    TargetFrontier
    """
    rows = inputs.check_rows(scores, labels, classes, hard=True)
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        max_class_abstention=max_class_abstention,
        waive=waive,
        penalty=penalty,
    )
    ambiguity = Ambiguity(
        chance_weight=chance_weight,
        size_weight=size_weight,
        empty_weight=empty_weight,
        error_weight=error_weight,
    )
    problem = make_problem(rows, targets, ambiguity, answers)
    constraints = problem.constraints
    check_rule(rule, ambiguity, penalty)
    level = 1 - inputs.as_number("confidence", confidence, low=0, high=1)
    inputs.as_number("certify_rows", certify_rows, low=0, high=MOST_CERTIFY_ROWS)
    codes = None if groups is None else group_codes(groups, len(rows.scores))
    if certify_groups is not None:
        inputs.as_number("certify_groups", certify_groups, low=0, high=MOST_CERTIFY_ROWS)
    if (codes is None) != (certify_groups is None):
        names = ["groups", "certify_groups"]
        present, missing = names if certify_groups is None else reversed(names)
        raise InvalidDataError(
            f"{present} is given without {missing}, so what is predicted to be certifiable would "
            "not heed groups; give both or neither"
        )
    needed = [j for j, name in enumerate(rows.classes) if name not in map(str, waive)]
    random = np.random.default_rng([inputs.check_seed(seed), 0])
    inside = halve(rows, codes, needed, random)
    fitted = rows.take(inside)
    grid = sweeps.make_sweeps(fitted, constraints, points=points, lowest=lowest, highest=highest)
    used = inputs.count_threads(threads)
    posed = replace(problem, rows=fitted)
    if rule == "optimal":
        named = own_targets(risk_targets)
        rules = sweeps.fit_optimal_along(posed, grid, named, seed, used, progress)
    else:
        rules = sweeps.fit_thresholds_along(posed, grid, seed, used, progress)
    expected = Expected(certify_rows, certify_groups, rows.class_weight() / len(rows.scores), level)
    held_out, held_groups = rows.take(~inside), None if codes is None else codes[~inside]
    singles = [c for c in claimed(constraints) if len(c.classes) == 1]

    def measure(
        point: sweeps.SweepPoint, fit: sweeps.SweepRule
    ) -> tuple[FrontierPoint, list[ExpectedClaim]]:
        """Return a point and, where all targets move, what certify rows would say of its rule."""
        names, labels = rows.classes, held_out.labels
        named = range(len(names)) if point.swept is None else [names.index(point.swept)]
        fit_sets, sets = (make_sets(fit.rule, part.scores) for part in (fitted, held_out))
        claims, certifiable = [], NAN
        if point.swept is None:
            claims = expect_claims(sets, labels, held_groups, constraints, expected)
            certifiable = least_factor(claims, level) * grid.reference
        certain, _ = certain_and_wrong(sets, labels)
        answered = np.bincount(labels[certain], minlength=len(names))
        return FrontierPoint(
            swept=point.swept,
            target=point.target,
            loss=fit.loss,
            fitted=measure_part(fit_sets, fitted.labels, names, named, confidence=None),
            held_out=measure_part(
                sets, labels, names, named, confidence=confidence, groups=held_groups
            ),
            silent=tuple(c.name for c in singles if not answered[c.classes[0]]),
            certifiable_target=certifiable,
        ), claims

    measured = [
        measure(*each)
        for sweep, row in zip(grid.sweeps, rules, strict=True)
        for each in zip(sweep, row, strict=True)
    ]
    joint = [(point, claims) for point, claims in measured if point.swept is None]
    return TargetFrontier(
        classes=rows.classes,
        targets={c.name: c.target for c in singles},
        overall_target=overall_target,
        reference=grid.reference,
        rule_kind=rule,
        confidence=float(confidence),
        wanted=WANTED,
        n_fitted=int(np.count_nonzero(inside)),
        n_held_out=int(np.count_nonzero(~inside)),
        n_groups=None if codes is None else int(codes.max()) + 1,
        certify_rows=int(certify_rows),
        certify_groups=certify_groups,
        swept=tuple(str(sweep[0].swept) for sweep in grid.sweeps[1:]),
        points=tuple(point for point, _ in measured),
        certifiable=tuple(
            _certifiable(point.target, point.target / grid.reference, joint, level)
            for point, _ in joint
        ),
    )


class ExpectedClaim(NamedTuple):
    """What the certify rows are expected to hold for one claim."""

    target: float  # the chosen one
    n_certain: int  # rows, or as many as they are worth if independent
    risk: float
    least_target: float  # that can pass at all


class Expected(NamedTuple):
    """The certify rows, as far as they may be known."""

    rows: int
    groups: int | None  # that they come in
    class_share: Floats  # (k,) of each class, judging by rows that may be looked at
    level: float


def expect_claims(
    sets: Bools,  # (n, k)
    labels: NDArray[np.int32],  # (n,)
    groups: Ints | None,  # (n,)
    constraints: Sequence[Constraint],  # with the chosen targets
    expected: Expected,
) -> list[ExpectedClaim]:
    """Return what to expect of each claim, from what the sets do on held-out rows."""
    how = None if groups is None else GroupTest(typical_rows(groups, labels, constraints))
    tally = tally_sets(sets, labels, constraints, groups, group_test=how)
    effects, least = np.ones(len(tally.n)), np.zeros(len(tally.n))
    if tally.groups is not None and expected.groups is not None:
        more = expected.groups / max(tally.groups.total, 1)
        sums = sum_groups(tally.groups.by_claim)
        effects = design_effects(tally.n_certain, sums, more, expected.level)
        n_groups = np.floor(more * sums.groups).astype(np.int64).tolist()
        some = [least_target(m, expected.level) if m >= LEAST_GROUPS else 1.0 for m in n_groups]
        least = np.array(some)
    claims = []
    for c, claim in enumerate(claimed(constraints)):
        rows = expected.rows * expected.class_share[list(claim.classes)].sum()
        certain, wrong, n = tally.n_certain[c], tally.n_wrong[c], tally.n[c]
        n_certain = math.floor(rows * certain / n / effects[c]) if n else 0
        risk = (wrong + 0.5) / (certain + 1)  # so that few rows without an error are not proof
        claims.append(ExpectedClaim(claim.target, n_certain, float(risk), float(least[c])))
    return claims


def chance_of_all(claims: Sequence[ExpectedClaim], factor: float, level: float) -> float:
    """Return the chance that all claims pass, their targets multiplied by a factor."""
    chance = 1.0
    for claim in claims:
        target = min(claim.target * factor, sweeps.MOST_TARGET)
        if target < claim.least_target or claim.n_certain < 1:
            return 0.0
        chance *= chance_of_passing(claim.n_certain, target, claim.risk, level)
        if chance < 1e-9:
            return 0.0
    return chance


def least_factor(claims: Sequence[ExpectedClaim], level: float) -> float:
    """Return the lowest factor of the targets at which all claims pass with the chance wanted."""
    low, high = 0.0, max(sweeps.MOST_TARGET / claim.target for claim in claims)
    if not chance_of_all(claims, high, level) >= WANTED:
        return NAN
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if chance_of_all(claims, middle, level) >= WANTED:
            high = middle
        else:
            low = middle
    return high


def _certifiable(
    target: float,
    factor: float,  # of all targets
    fits: Sequence[tuple[FrontierPoint, Sequence[ExpectedClaim]]],
    level: float,
) -> Certifiable:
    """Return with how much abstention a target is predicted to be certifiable."""
    chances = [chance_of_all(claims, factor, level) for _, claims in fits]
    rates = [point.held_out.abstention_rate for point, _ in fits]
    likely = [j for j, chance in enumerate(chances) if chance >= WANTED]
    best = min(likely, key=lambda j: rates[j]) if likely else int(np.argmax(chances))
    return Certifiable(
        target=target,
        chance=chances[best],
        abstention_rate=rates[best] if likely else NAN,
        fitted_target=fits[best][0].target,
    )
