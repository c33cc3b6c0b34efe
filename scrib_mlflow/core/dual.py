"""The dual: prices of requirements, and the least abstention that any rule can reach.

n rows, k classes, c requirements. Multipliers nu (c,) are prices; for any of them the dual bounds
how often a rule that meets the requirements can be certain, and the best ones make the optimal
rule. Where a wrong answer costs w abstentions (`error_weight`), an answer counts 1 and a wrong one
1 - w: the bound is then on that sum, and one minus it on abstention + w times the wrong answers.
Where a row may be answered with one class only, `tops` (n,) holds these classes; it is empty where
any class may be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core import newton
from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labels
from scrib_mlflow.core.targets import Constraint, claim_members, claim_targets

BONUS = 1e-3  # for a right answer: of rules that are equally certain, the one more often right
MOST_PRICE = 1e4  # of a requirement, in units of 1 / its share of the rows
OUT_OF_REACH = 1e3  # a price from which on a requirement is taken for impossible
FIRST_PRICES = 5.0  # of all requirements together, where nothing better is known
TINY = 1e-12

ANY = np.zeros(0, dtype=np.int32)  # tops, where any class may be answered

SAMPLE_ENTRIES = 50_000  # rows times classes with which a long problem begins
SAMPLE_ROWS = 100  # at least, for each requirement
SMOOTHINGS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
NEARBY = SMOOTHINGS[-2:]  # where prices start near the best ones
FINEST = 0.0003  # a last smoothing, where rows are few
LEAST_FALL = 1e-7  # of the dual, in a step that is still worth it
SETTLED = 1.0 - 1e-6  # a row that chooses as surely as this adds nothing to the curvature
NEGLIGIBLE = (
    36.0  # an answer that falls behind by so many widths is not chosen: exp(-36) is nothing
)
MOST_STEPS = 25

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


def certain_bound(
    probabilities: Floats,
    share: Floats,
    needs: Requirements,
    multipliers: Floats,
    error_weight: float = 0.0,
    tops: Labels = ANY,
) -> float:
    """Return how often a rule that meets the requirements can be certain at most.

    With an error weight: certain less so many times the wrong answers.
    """
    worth, charge = prices(needs, multipliers, error_weight, bonus=0.0)
    paid = sum_values(np.ascontiguousarray(probabilities), share, worth, charge, tops)
    certain = paid - multipliers @ needs.floor
    return float(np.clip(certain, 0.0, 1.0))  # below 0 where requirements exclude each other


def prices(
    needs: Requirements, multipliers: Floats, error_weight: float = 0.0, *, bonus: float = BONUS
) -> tuple[Floats, Floats]:
    """Return (k,) what a right answer of each class earns, and what any answer to it costs.

    A price of errors is paid for every answer and given back for a right one.
    """
    worth = bonus + error_weight + multipliers @ needs.right
    return worth, error_weight + multipliers @ needs.due


def solve_dual(
    probabilities: Floats,
    share: Floats,
    needs: Requirements,
    *,
    start: Floats | None = None,
    seed: int = 0,
    error_weight: float = 0.0,
    tops: Labels = ANY,
) -> Floats:
    """Return (c,) the multipliers that make the bound tightest.

    Where rows are many, a sample of them comes first. `start` are multipliers nearby.
    """
    n, k = probabilities.shape
    if not len(needs.right):
        return np.zeros(0)
    rows = max(SAMPLE_ENTRIES // k, SAMPLE_ROWS * len(needs.right))
    smoothings: Sequence[float] = SMOOTHINGS if start is None else NEARBY
    if start is None and n > 2 * rows:
        chosen = np.random.default_rng([seed, n]).choice(n, rows, replace=False, shuffle=False)
        start = minimise(
            probabilities[chosen],
            share[chosen] / share[chosen].sum(),
            needs,
            SMOOTHINGS,
            error_weight=error_weight,
            tops=_some(tops, chosen),
        )
        smoothings = NEARBY
    if n * k <= SAMPLE_ENTRIES:
        smoothings = (*smoothings, FINEST)
    return minimise(
        probabilities, share, needs, smoothings, start, error_weight=error_weight, tops=tops
    )


def _some(tops: Labels, chosen: Ints) -> Labels:
    return tops[chosen] if len(tops) else tops


def minimise(
    probabilities: Floats,
    share: Floats,
    needs: Requirements,
    smoothings: Sequence[float],
    start: Floats | None = None,
    *,
    least_fall: float = LEAST_FALL,
    error_weight: float = 0.0,
    tops: Labels = ANY,
) -> Floats:
    """Minimise the dual, less and less smoothed, within 0 <= nu <= most."""
    scale = _scale(probabilities, share, needs)
    scaled = Requirements(
        needs.right / scale[:, None], needs.due / scale[:, None], needs.floor / scale
    )
    price = np.full(len(scale), min(1.0, FIRST_PRICES / len(scale)))
    if start is not None:
        price = start * scale
    rows = np.ascontiguousarray(probabilities)
    smoothed = partial(
        _smoothed,
        rows=rows,
        share=share,
        needs=scaled,
        entries=_entries(scaled),
        error_weight=error_weight,
        tops=tops,
    )
    for width in smoothings:
        price = newton.minimise(
            partial(smoothed, width=width),
            price,
            np.zeros(len(scale)),
            np.full(len(scale), MOST_PRICE),
            least_fall=least_fall,
            most_steps=MOST_STEPS,
        ).x
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


class Entries(NamedTuple):
    """The entries of requirements that are not 0, requirement by requirement."""

    starts: Ints  # (c + 1,)
    classes: Ints
    right: Floats
    due: Floats


def _entries(needs: Requirements) -> Entries:
    used = (needs.right != 0) | (needs.due != 0)
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(used, axis=1))])
    return Entries(starts, np.nonzero(used)[1], needs.right[used], needs.due[used])


def _smoothed(
    multipliers: Floats,
    *,
    rows: Floats,
    share: Floats,
    needs: Requirements,
    entries: Entries,
    width: float,
    error_weight: float = 0.0,
    tops: Labels = ANY,
) -> newton.Point:
    """Return mean(width * log(1 + sum_j exp(value_j / width))) - nu @ floor and its derivatives."""
    worth, charge = prices(needs, multipliers, error_weight)
    sums = sum_smoothed(rows, share, worth, charge, width, *entries, tops)
    value, right, answers, squares, lower = sums
    second = lower + np.tril(lower, -1).T + (needs.right * squares) @ needs.right.T
    return newton.Point(
        multipliers,
        value - float(multipliers @ needs.floor),
        needs.right @ right - needs.due @ answers - needs.floor,
        second / width,
    )


@kernel
def sum_values(chances, share, worth, charge, tops):
    """Return the mean value of the best answer, 0 where it is best to abstain."""
    total = 0.0
    for i in range(len(chances)):
        best, value = -np.inf, 1.0
        top = tops[i] if len(tops) > 0 else -1
        for j in range(chances.shape[1]):
            value -= charge[j] * chances[i, j]
            if top < 0 or top == j:
                best = max(best, worth[j] * chances[i, j])
        total += share[i] * max(value + best, 0.0)
    return total


@kernel
def count_answers(chances, worth, charge, labels, soft, weights, tops):
    """Return (k,) certain and (k,) right rows by class, and the weight of all certain ones.

    Labels are one class a row, or soft where `labels` is empty.
    """
    n, k = chances.shape
    certain, right, all_certain = np.zeros(k), np.zeros(k), 0.0
    for i in range(n):
        who, best, value = 0, -np.inf, 1.0
        top = tops[i] if len(tops) > 0 else -1
        for j in range(k):
            value -= charge[j] * chances[i, j]
            if (top < 0 or top == j) and worth[j] * chances[i, j] > best:
                who, best = j, worth[j] * chances[i, j]
        if not value + best >= 0.0:
            continue
        all_certain += weights[i]
        if len(labels) > 0:
            certain[labels[i]] += weights[i]
            if who == labels[i]:
                right[who] += weights[i]
        else:
            right[who] += soft[i, who]
            for j in range(k):
                certain[j] += soft[i, j]
    return certain, right, all_certain


@kernel
def sum_smoothed(chances, share, worth, charge, width, starts, classes, right, due, tops):
    """Return the smoothed values of all rows in sum, and the sums that give their derivatives.

    With q_j how much class j is answered and q_0 how much none is: q_j p_j and (1 - q_0) p_j, the
    right answers and all answers by class; q_j p_j^2; and the (c, c) lower triangle of what
    requirements add to the second derivative beyond that.
    """
    n, k = chances.shape
    c = len(starts) - 1
    value, by_right, by_answer, by_square = 0.0, np.zeros(k), np.zeros(k), np.zeros(k)
    second = np.zeros((c, c))
    chosen, owed, mixed = np.empty(k), np.empty(c), np.empty(c)
    far = NEGLIGIBLE * width
    for i in range(n):
        base, best = 1.0, -np.inf
        first, last = 0, k
        if len(tops) > 0:
            first, last = tops[i], tops[i] + 1
        for j in range(k):
            base -= charge[j] * chances[i, j]
            chosen[j] = 0.0
        for j in range(first, last):
            best = max(best, worth[j] * chances[i, j])
        if best + base < -far:
            continue
        highest = max(best + base, 0.0)
        silent = np.exp(-highest / width) if highest < far else 0.0
        answered = 0.0
        for j in range(first, last):
            away = worth[j] * chances[i, j] + base - highest
            if away > -far:
                chosen[j] = np.exp(away / width)
                answered += chosen[j]
        total = silent + answered
        value += share[i] * (highest + width * np.log(total))
        silent /= total
        answered /= total
        surest = silent
        for j in range(k):
            surest = max(surest, chosen[j] / total)
            chosen[j] *= chances[i, j] / total
            by_right[j] += share[i] * chosen[j]
            by_answer[j] += share[i] * answered * chances[i, j]
        if surest > SETTLED:
            continue
        for j in range(k):
            by_square[j] += share[i] * chosen[j] * chances[i, j]
        for r in range(c):
            owed[r], mixed[r] = 0.0, 0.0
            for a in range(starts[r], starts[r + 1]):
                owed[r] += due[a] * chances[i, classes[a]]
                mixed[r] += right[a] * chosen[classes[a]]
            mixed[r] += silent * owed[r]
        for r in range(c):
            add, take = share[i] * silent * owed[r], share[i] * mixed[r]
            for other in range(r + 1):
                second[r, other] += add * owed[other] - take * mixed[other]
    return value, by_right, by_answer, by_square, second


def abstention_bound(
    probabilities: Floats,
    weights: Floats,
    constraints: Sequence[Constraint],
    seed: int,
    *,
    priced_by: Floats | None = None,
    price_weights: Floats | None = None,
    most_rows: int = BOUND_ROWS,
    error_weight: float = 0.0,
    tops: Labels = ANY,
    price_tops: Labels = ANY,
) -> float:
    """Return a lower bound on abstention under these risk constraints, for calibrated scores.

    With an error weight it is on abstention plus so many times the wrong answers.

    The bound holds for any multipliers. They come from a sample of the rows, or of
    the rows `priced_by` with `price_tops`, so that they do not flatter; the bound is evaluated on
    all rows.
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
        rows[chosen],
        part / part.sum(),
        needs,
        BOUND_SMOOTHINGS,
        least_fall=BOUND_FALL,
        error_weight=error_weight,
        tops=_some(tops if priced_by is None else price_tops, chosen),
    )
    share = weights / weights.sum()
    shrinks = (1.0,) if most == most_rows else SHRINKS
    return 1.0 - min(
        certain_bound(probabilities, share, needs, f * multipliers, error_weight, tops)
        for f in shrinks
    )
