"""Evidence that may be looked at after every batch: the wealth of gamblers.

Shapes: c claims, b bets on each.

A gambler begins with 1 and bets against a hypothesis. If it is true and the odds are no better than
fair, the wealth ever reaches 1 / a with a probability of at most a (Ville's inequality), however
often one looks. Different bets are different gamblers, who share the 1.

Who bets through a long quiet time has little left when something happens. So only a part is staked
at first: batch t is given 1 / (t (t + 1)) of the money to begin anew, and what later batches will
be given waits. The wealth after t batches is never below 1 / (t + 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Bools, Floats, Ints

# Risks, as multiples of a target, against which the bets are best: the next ones to notice first.
MULTIPLES = np.array([1.05, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0, 8.0])
HIGHEST = 0.9  # of these risks, as a share of the way from the target to 1
POWERS = np.array([0.1, 0.25, 0.5, 0.75])  # bets on small p-values: power * p ** (power - 1)
LEAST_P = 1e-300
JUMP = 0.01  # share of the wealth that changes sides after each p-value
SIDES = np.array([-1.0, 0.0, 1.0])  # bets on p-values below and above one half, and none
BISECTIONS = 60


class Wealth(NamedTuple):
    """What the gamblers have."""

    accounts: Floats  # (c, b) logarithms; -inf before the first batch
    batches: Ints  # (c,) that had observations


def begin(claims: int, bets: int) -> Wealth:
    """Return the wealth before anything was observed."""
    return Wealth(np.full((claims, bets), -np.inf), np.zeros(claims, dtype=np.int64))


def new_batch(wealth: Wealth, observed: Bools) -> Wealth:
    """Give the bets on the claims that a batch tells about their share to begin anew."""
    t = wealth.batches + 1
    share = -np.log(t * (t + 1.0) * wealth.accounts.shape[1])
    grown = np.logaddexp(wealth.accounts, share[:, None])
    accounts = np.where(observed[:, None], grown, wealth.accounts)
    return Wealth(accounts, wealth.batches + observed)


def log_evidence(wealth: Wealth) -> Floats:
    """Return (c,) the logarithm of all the money against each claim."""
    waiting = -np.log(wealth.batches + 1.0)
    return np.logaddexp(waiting, np.logaddexp.reduce(wealth.accounts, axis=1))


def error_stakes(target: float) -> Floats:
    """Return (b,) the stakes against "the risk is at most its target", each best for one risk."""
    risks = np.minimum(target * MULTIPLES, target + HIGHEST * (1 - target))
    return (risks - target) / (target * (1 - target))


def error_growth(
    target: float,
    wrong: Floats,  # (m,) wrong rows of each observation: a row, or a group
    certain: Floats,  # (m,) rows that it counts for
    most: float,  # that an observation can count for
    times: ArrayLike = 1.0,  # (m,) how often there is one like it
) -> Floats:
    """Return (b,) by how much the logarithm of each bet grows.

    For single rows these are likelihood ratios of one risk against the target. Where the mean of
    `wrong - target * certain` is at most 0, as the claim says, no bet can be expected to grow.
    """
    excess = np.asarray((wrong - target * certain) / most, dtype=np.float64)
    growth = np.log1p(np.multiply.outer(excess, error_stakes(target)))
    return np.asarray((np.broadcast_to(times, excess.shape)[:, None] * growth).sum(axis=0))


def risk_interval(wrong: float, n: float, level: float) -> tuple[float, float]:
    """Return between which risks the true one lies at all times, but for a chance of `level`.

    All risks against which a mixture of bets (Beta(1/2, 1/2) over the true risk) has not won.
    """
    if n == 0:
        return 0.0, 1.0
    mixed = special.betaln(wrong + 0.5, n - wrong + 0.5) - special.betaln(0.5, 0.5)
    limit = -np.log(level)

    def refuted(risk: float) -> bool:
        return bool(mixed - special.xlogy(wrong, risk) - special.xlog1py(n - wrong, -risk) >= limit)

    def edge(outside: float) -> float:
        inside = wrong / n
        if not refuted(outside):
            return outside
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if refuted(middle) else (middle, outside)
        return outside

    return edge(0.0), edge(1.0)


def rows_to_notice(target: float, risk: float, alarm: float, batches: int) -> float:
    """Return about how many rows it takes until the evidence of a risk reaches an alarm.

    The bets that grow fastest decide; they are one of many, and one of many beginnings.
    """
    stakes = error_stakes(target)
    growth = risk * np.log1p(stakes * (1 - target)) + (1 - risk) * np.log1p(-stakes * target)
    start = np.log(len(stakes) * (batches + 1.0) * (batches + 2.0))
    return float((np.log(alarm) + start) / growth.max()) if growth.max() > 0 else np.inf


def p_growth(p_values: Floats) -> Floats:
    """Return (..., b) by how much bets on small p-values grow, fair ones if these are uniform."""
    logs = np.log(np.maximum(p_values, LEAST_P))
    return np.asarray(np.log(POWERS) + np.multiply.outer(logs, POWERS - 1))


def jump(accounts: Floats, p_values: Floats) -> Floats:
    """Return the accounts (3,) of the simple jumper after it has bet on p-values one by one.

    It bets on small ones, on large ones or on none, and moves a part of the money all the time, so
    that it follows a change.
    """
    highest = accounts.max()
    if not len(p_values) or highest == -np.inf:
        return accounts
    return highest + _jump(np.exp(accounts - highest), p_values)


@kernel
def _jump(money: Floats, p_values: Floats) -> Floats:
    """Bet `money` (3,) on p-values; return logarithms."""
    scale = 0.0
    for p in p_values:
        total = money.sum()
        for side in range(3):
            kept = (1.0 - JUMP) * money[side] + JUMP / 3.0 * total
            money[side] = kept * (1.0 + (side - 1.0) * (p - 0.5))
        total = money.sum()
        scale += np.log(total)
        money /= total
    return np.log(money) + scale
