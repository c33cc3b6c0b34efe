"""The dual: prices of requirements, and the least abstention that any rule can reach.

n rows, k classes, c requirements. Multipliers nu (c,) are prices; for any of them the dual bounds
how often a rule that meets the requirements can be certain, and the best ones make the optimal
rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.inputs import Bools, Floats, row_blocks
from scrib_mlflow.core.targets import Constraint, claim_members, claim_targets

BONUS = 1e-3  # for a right answer: of rules that are equally certain, the one more often right
MOST_PRICE = 1e4  # of a requirement, in units of 1 / its share of the rows
OUT_OF_REACH = 1e3  # a price from which on a requirement is taken for impossible
FIRST_PRICES = 5.0  # of all requirements together, where nothing better is known
TINY = 1e-12

SAMPLE_ENTRIES = 50_000  # rows times classes with which a long problem begins
SAMPLE_ROWS = 100  # at least, for each requirement
SMOOTHINGS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
FINEST = 0.0003  # a last smoothing, where rows are few
LEAST_FALL = 1e-7  # of the dual, in a step that is still worth it
SETTLED = 1.0 - 1e-6  # a row that chooses as surely as this adds nothing to the curvature
LEAST_DAMPING, MOST_DAMPING = 1e-6, 1e4  # of the curvature, in its own mean
MOST_STEPS = 25
MOST_HALVINGS = 8

BOUND_ROWS = 2_000  # rows that give a bound its prices
BOUND_PRODUCTS = 5_000_000  # rows times entries of the requirements, at most
BOUND_SMOOTHINGS = (0.03, 0.003)
BOUND_FALL = 1e-5
SHRINKS = (1.0, 0.5, 0.25, 0.1)  # prices of many classes fit their few rows too well


class Requirements(NamedTuple):
    """Linear requirements on a rule: right @ right answers - due @ answers >= floor.

    Answers and right answers are (k,) shares of all rows, by true class.
    """

    right: Floats  # (c, k)
    due: Floats  # (c, k)
    floor: Floats  # (c,)

    def shared(self, together: Floats) -> Requirements:
        """Return sums of requirements, which then have one multiplier; `together` is (g, c)."""
        return Requirements(*(together @ part for part in self))

    def only(self, which: Bools) -> Requirements:
        """Return some of the requirements."""
        return Requirements(*(part[which] for part in self))


class Smoothed(NamedTuple):
    """The smoothed dual at some prices, with what its second derivative needs."""

    value: float
    gradient: Floats  # (c,)
    chosen: Floats  # (k, n) how much each class is answered
    width: float


def certain_bound(
    probabilities: Floats, share: Floats, needs: Requirements, multipliers: Floats
) -> float:
    """Return how often a rule that meets the requirements can be certain at most."""
    worth, charge = prices(needs, multipliers, bonus=0.0)
    values = np.empty(len(probabilities))
    for of in row_blocks(len(values)):
        part = probabilities[of]
        values[of] = (part * worth).max(axis=1) + (1.0 - part @ charge)
    certain = share @ np.maximum(values, 0.0) - multipliers @ needs.floor
    return float(np.clip(certain, 0.0, 1.0))  # below 0 where requirements exclude each other


def prices(
    needs: Requirements, multipliers: Floats, *, bonus: float = BONUS
) -> tuple[Floats, Floats]:
    """Return (k,) what a right answer of each class earns, and what any answer to it costs."""
    return bonus + multipliers @ needs.right, multipliers @ needs.due


def solve_dual(
    probabilities: Floats,
    share: Floats,
    needs: Requirements,
    *,
    start: Floats | None = None,
    seed: int = 0,
) -> Floats:
    """Return (c,) the multipliers that make the bound tightest.

    Where rows are many, a sample of them comes first. `start` are multipliers nearby.
    """
    n, k = probabilities.shape
    if not len(needs.right):
        return np.zeros(0)
    rows = max(SAMPLE_ENTRIES // k, SAMPLE_ROWS * len(needs.right))
    smoothings: Sequence[float] = SMOOTHINGS if start is None else SMOOTHINGS[-1:]
    if start is None and n > 2 * rows:
        chosen = np.random.default_rng([seed, n]).choice(n, rows, replace=False, shuffle=False)
        part = share[chosen] / share[chosen].sum()
        start = minimise(probabilities[chosen], part, needs, SMOOTHINGS)
        smoothings = SMOOTHINGS[-2:]
    if n * k <= SAMPLE_ENTRIES:
        smoothings = (*smoothings, FINEST)
    return minimise(probabilities, share, needs, smoothings, start)


def minimise(
    probabilities: Floats,
    share: Floats,
    needs: Requirements,
    smoothings: Sequence[float],
    start: Floats | None = None,
    least_fall: float = LEAST_FALL,
) -> Floats:
    """Minimise the dual, less and less smoothed, by Newton steps within 0 <= nu <= most.

    By hand, because importing scipy.optimize takes longer than a fit, and because a general method
    does not use that the second derivative is at hand.
    """
    scale = _scale(probabilities, share, needs)
    scaled = Requirements(
        needs.right / scale[:, None], needs.due / scale[:, None], needs.floor / scale
    )
    price = np.full(len(scale), min(1.0, FIRST_PRICES / len(scale)))
    if start is not None:
        price = np.clip(start * scale, 0.0, MOST_PRICE)
    columns = np.ascontiguousarray(probabilities.T)  # sums over few classes are quick this way
    for width in smoothings:
        now = _smoothed(price, width, columns, share, scaled)
        damping = LEAST_DAMPING
        for _ in range(MOST_STEPS):
            step = _newton_step(now, price, columns, share, scaled, damping)
            fall = float(now.gradient @ step)
            if not -fall > least_fall:
                break
            for halving in range(MOST_HALVINGS):
                trial = price + 0.5**halving * step
                after = _smoothed(trial, width, columns, share, scaled)
                if after.value <= now.value + 1e-4 * 0.5**halving * fall:
                    price, now = np.clip(trial, 0.0, MOST_PRICE), after
                    damping = max(damping / 10.0, LEAST_DAMPING)
                    break
            else:  # the second-order model does not hold so far: shorter steps, more downhill
                damping *= 1e3
                if damping > MOST_DAMPING:
                    break
    return price / scale


def out_of_reach(
    probabilities: Floats, share: Floats, needs: Requirements, multipliers: Floats
) -> Bools:
    """Return (c,) which requirements cannot be met together with the others."""
    scale = _scale(probabilities, share, needs)
    return np.asarray(multipliers * scale >= OUT_OF_REACH)


def _scale(probabilities: Floats, share: Floats, needs: Requirements) -> Floats:
    """Return (c,) the rows that a requirement is about, as shares of all; its price is per row."""
    size = np.maximum(np.abs(needs.due), needs.right)
    return np.maximum((share @ probabilities) @ size.T, TINY)


def _smoothed(
    multipliers: Floats, width: float, columns: Floats, share: Floats, needs: Requirements
) -> Smoothed:
    """Return mean(width * log(1 + sum_j exp(value_j / width))) - nu @ floor, and its derivative."""
    worth, charge = prices(needs, multipliers)
    chosen = columns * (worth / width)[:, None]
    chosen += (1.0 - charge @ columns) / width
    highest = np.maximum(chosen.max(axis=0), 0.0)
    chosen -= highest
    np.exp(chosen, out=chosen)
    total = chosen.sum(axis=0) + np.exp(-highest)
    chosen /= total
    answers = columns @ (share * chosen.sum(axis=0))
    right = np.einsum("n,kn,kn->k", share, chosen, columns)
    value = width * (share @ (highest + np.log(total))) - multipliers @ needs.floor
    gradient = needs.right @ right - needs.due @ answers - needs.floor
    return Smoothed(float(value), gradient, chosen, width)


def _newton_step(
    at: Smoothed, price: Floats, columns: Floats, share: Floats, needs: Requirements, damping: float
) -> Floats:
    """Return the step to the least of the second-order model that stays within the bounds.

    Prices that would leave stop at the bound, and the others move on without them.
    """
    free = (price > 0) | (at.gradient < 0)
    free &= (price < MOST_PRICE) | (at.gradient > 0)
    step = np.zeros(len(price))
    moving = np.flatnonzero(free)
    if not len(moving):
        return step
    second = _curvature(at, columns, share, needs.only(free))
    second[np.diag_indices_from(second)] += TINY + damping * np.trace(second) / len(second)
    inside = np.ones(len(moving), dtype=np.bool_)
    moves = np.zeros(len(moving))
    while inside.any():
        pull = at.gradient[moving] + second[:, ~inside] @ moves[~inside]
        moves[inside] = np.linalg.solve(second[np.ix_(inside, inside)], -pull[inside])
        outside = inside & ((price[moving] + moves < 0) | (price[moving] + moves > MOST_PRICE))
        if not outside.any():
            break
        moves = np.clip(price[moving] + moves, 0.0, MOST_PRICE) - price[moving]
        inside &= ~outside
    if not at.gradient[moving] @ moves < 0:  # what stopped at bounds has spoilt the rest
        downhill = price[moving] - at.gradient[moving] / np.diag(second)
        moves = np.clip(downhill, 0.0, MOST_PRICE) - price[moving]
    step[moving] = moves
    return step


def _curvature(at: Smoothed, columns: Floats, share: Floats, needs: Requirements) -> Floats:
    """Return the second derivative by the multipliers of these requirements."""
    answered = at.chosen.sum(axis=0)
    open_rows = np.maximum(at.chosen.max(axis=0), 1.0 - answered) < SETTLED
    share, columns, answered = share[open_rows], columns[:, open_rows], answered[open_rows]
    earned = at.chosen[:, open_rows] * columns
    by_class = (earned * columns) @ share
    gained = needs.right @ earned  # (c, n)
    owed = needs.due @ columns
    slope = gained - answered * owed
    cross = (gained * share) @ owed.T
    second = (needs.right * by_class) @ needs.right.T - cross - cross.T
    second += (owed * (share * answered)) @ owed.T
    second -= (slope * share) @ slope.T
    return np.asarray(second / at.width)


def abstention_bound(
    probabilities: Floats,
    weights: Floats,
    constraints: Sequence[Constraint],
    seed: int,
    *,
    priced_by: Floats | None = None,
    price_weights: Floats | None = None,
    most_rows: int = BOUND_ROWS,
) -> float:
    """Return a lower bound on abstention under these risk constraints, for calibrated scores.

    The bound holds for any multipliers. They come from a sample of the rows, or of
    the rows `priced_by`, so that they do not flatter; the bound is evaluated on all rows.
    """
    members = claim_members(constraints, probabilities.shape[1]).astype(np.float64)
    if not len(members):
        return 0.0
    due = members * (1.0 - claim_targets(constraints))[:, None]
    needs = Requirements(members, due, np.zeros(len(members)))
    rows = probabilities if priced_by is None else priced_by
    most = max(200, min(most_rows, BOUND_PRODUCTS // needs.right.size))
    rng = np.random.default_rng([seed, len(rows)])
    chosen = rng.choice(len(rows), min(most, len(rows)), replace=False, shuffle=False)
    counted = weights if priced_by is None else price_weights
    part = np.ones(len(chosen)) if counted is None else counted[chosen]
    multipliers = minimise(
        rows[chosen], part / part.sum(), needs, BOUND_SMOOTHINGS, least_fall=BOUND_FALL
    )
    share = weights / weights.sum()
    shrinks = (1.0,) if most == most_rows else SHRINKS
    return 1.0 - min(certain_bound(probabilities, share, needs, f * multipliers) for f in shrinks)
