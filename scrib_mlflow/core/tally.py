"""Rows of a fixed rule, counted claim by claim, and what the counts prove or refute.

A claim is "the risk of some classes is at most its target". Given the number of certain rows, the
wrong ones of a rule that was fixed before these rows are binomial.

Shapes: c claims, in the order of the constraints of kind "risk"; other constraints are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.betting import bet_p_values, log_winnings
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.groups import GroupSums, add_group_sums, effective_counts, sum_groups
from scrib_mlflow.core.targets import Constraint

LEAST_GROUPS = 30  # with fewer, the design effect is hardly better than a guess

Labels = NDArray[np.int32] | NDArray[np.int64]


class Bets(NamedTuple):
    """Weighted rows: what bets against each claim's opposite have won, and its weighted risk."""

    winnings: NDArray[np.float64]  # (c, bets) logarithms
    risk: NDArray[np.float64]  # (c,) NaN without certain rows


class Tally(NamedTuple):
    """Rows of each claim, counted; with sums over groups, or with bets where rows are weighted."""

    n: NDArray[np.int64]  # (c,)
    n_certain: NDArray[np.int64]  # (c,)
    n_wrong: NDArray[np.int64]  # (c,) certain rows whose member is another class
    groups: GroupSums | None = None
    bets: Bets | None = None


class Refutation(NamedTuple):
    """What rows say against the claims."""

    p_values: NDArray[np.float64]  # (c,) of "the risk is at most its target"
    refuted: NDArray[np.bool_]  # (c,)


def tally_sets(
    sets: NDArray[np.bool_],  # (n, k)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    groups: NDArray[np.int64] | None = None,  # (n,) codes from 0
    weights: NDArray[np.float64] | None = None,  # (n,) shares of the highest possible weight
) -> Tally:
    """Count the rows of each claim."""
    n, k = sets.shape
    members = _members(constraints, k)
    certain = np.count_nonzero(sets, axis=1) == 1
    wrong = certain & ~sets[np.arange(n), labels]
    tally = Tally(
        n=members @ np.bincount(labels, minlength=k),
        n_certain=members @ np.bincount(labels[certain], minlength=k),
        n_wrong=members @ np.bincount(labels[wrong], minlength=k),
    )
    rows = (member[labels] & certain for member in members.astype(np.bool_))
    if groups is not None:
        return tally._replace(groups=sum_groups(groups, wrong, rows))
    if weights is not None:
        return tally._replace(bets=_bet(rows, wrong, weights, claim_targets(constraints)))
    return tally


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of all rows from those of their parts, in which no group may be divided."""
    parts = list(tallies)
    if not parts or any(part.bets is not None for part in parts):
        msg = "tallies add up where there is one at least, and where rows have no weights"
        raise ValueError(msg)
    sums = [part.groups for part in parts if part.groups is not None]
    if sums and len(sums) < len(parts):
        msg = "some tallies have groups and others have none; count all parts the same way"
        raise ValueError(msg)
    return Tally(
        n=np.sum([part.n for part in parts], axis=0),
        n_certain=np.sum([part.n_certain for part in parts], axis=0),
        n_wrong=np.sum([part.n_wrong for part in parts], axis=0),
        groups=add_group_sums(sums) if sums else None,
    )


def p_values(
    tally: Tally, constraints: Sequence[Constraint], *, level: float
) -> NDArray[np.float64]:
    """Return the p-value of "the risk is above its target" for each claim; 1 without certain rows.

    The level matters only where rows are grouped, and then slightly.
    """
    if tally.bets is not None:
        return bet_p_values(tally.bets.winnings)
    targets = claim_targets(constraints)
    p = binomial_tail(*independent_counts(tally, level), targets)
    if tally.groups is not None:
        p = np.maximum(p, binomial_tail(*counts_without_errors(tally, level), targets))
    return p


def passes(tally: Tally, p: NDArray[np.float64], level: float) -> bool:
    """Return whether the p-values prove all claims at once.

    A rule with any risk above its target passes with a probability of at most `level`: that of the
    claim which is false. So there is no factor for the number of claims. Claims with too few groups
    never pass, nor does a rule of which nothing is claimed.
    """
    enough = tally.groups is None or bool((tally.groups.counts >= LEAST_GROUPS).all())
    return enough and highest(p) <= level


def refuted(tally: Tally, constraints: Sequence[Constraint], level: float) -> Refutation:
    """Return which claims the rows refute; true claims survive with probability 1 - level.

    One claim is enough to refute a rule, so each is tested at level / claims.
    """
    each = level / max(len(tally.n), 1)
    certain, wrong = independent_counts(tally, each)
    if tally.groups is not None:  # one group says nothing of groups; better refute too much then
        known = tally.groups.counts >= 2
        certain = np.where(known, certain, tally.n_certain)
        wrong = np.where(known, wrong, tally.n_wrong)
    some = wrong > 0
    right = np.where(some, certain - wrong, 0.0)
    tail = special.betainc(np.where(some, wrong, 1.0), right + 1, claim_targets(constraints))
    p = np.where(some, tail, 1.0)
    return Refutation(p, p <= each)


def independent_counts(
    tally: Tally, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return certain and wrong rows of each claim, as many as they are worth if independent."""
    if tally.groups is not None:
        return effective_counts(tally.n_certain, tally.n_wrong, tally.groups, level)
    return tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)


def counts_without_errors(
    tally: Tally, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the groups of each claim would be worth if no row were wrong.

    A few scattered errors make the rows of a group look independent, which they may not be: more
    errors must never prove more than none would.
    """
    assert tally.groups is not None  # noqa: S101  # for mypy; only groups have such counts
    none = np.zeros_like(tally.groups.product)
    sums = tally.groups._replace(wrong_squared=none, product=none)
    return effective_counts(tally.n_certain, np.zeros_like(tally.n_wrong), sums, level)


def binomial_tail(
    n: NDArray[np.float64], wrong: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P(Binomial(n, target) <= wrong), also for counts that are not whole."""
    inside = wrong < n
    right = np.where(inside, n - wrong, 1.0)
    return np.where(inside, special.betaincc(wrong + 1, right, targets), 1.0)


def highest(p: NDArray[np.float64]) -> float:
    """Return the highest p-value, 1 where nothing is claimed."""
    return float(p.max()) if len(p) else 1.0


def claimed(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Return the constraints that are claims."""
    return [constraint for constraint in constraints if constraint.kind == "risk"]


def claim_targets(constraints: Sequence[Constraint]) -> NDArray[np.float64]:
    """Return the target of each claim."""
    return np.array([constraint.target for constraint in claimed(constraints)])


def _members(constraints: Sequence[Constraint], k: int) -> NDArray[np.int64]:
    """Return 1 where a class (k) belongs to a claim (c)."""
    claims = claimed(constraints)
    members = np.zeros((len(claims), k), dtype=np.int64)
    for c, constraint in enumerate(claims):
        members[c, list(constraint.classes)] = 1
    return members


def _bet(
    certain: Iterable[NDArray[np.bool_]],
    wrong: NDArray[np.bool_],
    weights: NDArray[np.float64],
    targets: NDArray[np.float64],
) -> Bets:
    """Bet on the certain rows of each claim."""
    winnings, risks = [], []
    for rows, target in zip(certain, targets, strict=True):
        winnings.append(log_winnings(weights[rows], wrong[rows], target))
        risks.append(np.average(wrong[rows], weights=weights[rows]) if rows.any() else NAN)
    return Bets(np.array(winnings), np.array(risks))
