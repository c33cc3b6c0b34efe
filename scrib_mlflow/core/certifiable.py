"""What a rule is predicted to certify, judging by rows held out from its fit.

A rule that is fitted to a target has about that risk, and then an even chance at best; to certify a
target takes a more careful rule. Here the counts of the held-out rows stand for the certify rows,
which are not looked at: as many as there will be, abstaining and wrong as often. The chance that a
claim passes is then binomial. A prediction, no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.plan import chance_of_passing, least_target
from scrib_mlflow.core.steps import design_effects
from scrib_mlflow.core.tally import LEAST_GROUPS, Tally, tally_sets
from scrib_mlflow.core.target_grid import MOST_TARGET
from scrib_mlflow.core.targets import Constraint

WANTED = 0.8  # chance that all claims pass together
BISECTIONS = 14
NEVER = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifiable:
    """Whether a target is predicted to be certifiable, and with how much abstention."""

    target: float  # of the class that stands for all
    chance: float  # of the most hopeful rule, or of the one that abstains least among those likely
    abstention_rate: float  # of the rule that abstains least among those likely; NaN without one
    fitted_target: float  # that this rule was fitted to


class Claimed(NamedTuple):
    """What the certify rows are expected to hold for one claim."""

    target: float  # the chosen one
    n_certain: int  # rows, or as many as they are worth if independent
    risk: float
    least_target: float  # that can pass at all


class Expected(NamedTuple):
    """The certify rows, as far as they may be known."""

    rows: int
    groups: int | None  # that they come in
    class_share: NDArray[np.float64]  # (k,) of each class, judging by rows that may be looked at
    level: float


def expect_claims(
    sets: NDArray[np.bool_],  # (n, k)
    labels: NDArray[np.int32],  # (n,)
    groups: NDArray[np.int64] | None,  # (n,)
    constraints: Sequence[Constraint],  # with the chosen targets
    expected: Expected,
) -> list[Claimed]:
    """Return what to expect of each claim, from what the sets do on held-out rows."""
    tally = tally_sets(sets, labels, constraints, groups)
    claims = [constraint for constraint in constraints if constraint.kind == "risk"]
    effects, least = _heed_groups(tally, expected, len(sets))
    found = []
    for c, claim in enumerate(claims):
        rows = expected.rows * expected.class_share[list(claim.classes)].sum()
        certain, wrong, n = tally.n_certain[c], tally.n_wrong[c], tally.n[c]
        n_certain = math.floor(rows * certain / n / effects[c]) if n else 0
        risk = (wrong + 0.5) / (certain + 1)  # so that few rows without an error are not proof
        found.append(Claimed(claim.target, n_certain, float(risk), float(least[c])))
    return found


def _heed_groups(
    tally: Tally, expected: Expected, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many rows of each claim count as one, and the least target that can pass."""
    if tally.groups is None or expected.groups is None:
        return np.ones(len(tally.n)), np.zeros(len(tally.n))
    more = expected.groups / max(tally.groups.total, 1)
    effects = design_effects(tally.n_certain, tally.n_wrong, tally.groups, more, expected.level)
    counts = np.floor(more * tally.groups.counts)
    least = [least_target(int(m), expected.level) if m >= LEAST_GROUPS else 1.0 for m in counts]
    return effects, np.array(least)


def chance_of_all(claims: Sequence[Claimed], factor: float, level: float) -> float:
    """Return the chance that all claims pass, their targets multiplied by a factor."""
    chance = 1.0
    for claim in claims:
        target = min(claim.target * factor, MOST_TARGET)
        if target < claim.least_target or claim.n_certain < 1:
            return 0.0
        chance *= chance_of_passing(claim.n_certain, target, claim.risk, level)
        if chance < 1e-9:
            return 0.0
    return chance


def least_factor(claims: Sequence[Claimed], level: float, wanted: float = WANTED) -> float:
    """Return the lowest factor of the targets at which all claims pass with the chance wanted."""
    low, high = 0.0, max(MOST_TARGET / claim.target for claim in claims)
    if not chance_of_all(claims, high, level) >= wanted:
        return NEVER
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if chance_of_all(claims, middle, level) >= wanted:
            high = middle
        else:
            low = middle
    return high


def certifiable_at(
    target: float,
    factor: float,
    rules: Sequence[tuple[float, float, Sequence[Claimed]]],
    level: float,
    wanted: float = WANTED,
) -> Certifiable:
    """Return with how much abstention a target is predicted to be certifiable.

    `rules` are (target fitted to, held-out abstention, claims).
    """
    chances = [chance_of_all(claims, factor, level) for _, _, claims in rules]
    likely = [j for j, chance in enumerate(chances) if chance >= wanted]
    if not likely:
        best = int(np.argmax(chances))
        return Certifiable(
            target=target,
            chance=chances[best],
            abstention_rate=NEVER,
            fitted_target=rules[best][0],
        )
    best = min(likely, key=lambda j: rules[j][1])
    fitted, abstention, _ = rules[best]
    return Certifiable(
        target=target, chance=chances[best], abstention_rate=abstention, fitted_target=fitted
    )
