"""Rows that come in groups, such as the epochs of one patient: counted, capped, and tested.

Rows of a group resemble each other, and large groups may be the risky ones. So a claim about groups
is a claim about capped rows: a group with n_i certain rows of a class counts for min(n_i, cap) of
them, its errors in proportion. Without a cap a few huge groups, which the certify rows may not even
hold, would decide the risk, and no test could be right about it.

The design effect compares the variance of the risk between groups with that of independent rows;
the counts shrunk by it go into the binomial formulas. That is approximate. The exact test bets
against the claim's opposite, group by group, and holds for any sizes and any likeness of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core import inputs
from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labels
from scrib_mlflow.core.targets import Constraint, claimed
from scrib_mlflow.errors import InvalidDataError, ScribError

MANY_ROWS = 2**24  # counted at once
LEAST_GROUPS = 30  # with fewer, the design effect is hardly better than a guess
# Shares of the highest bet, and the part of the capital that is staked on each. The highest wins
# where groups are few and mostly right; the others survive groups that are wrong altogether.
BETS = ((0.99, 0.7), (0.6, 0.2), (0.3, 0.1))
BISECTIONS = 50

TestName = Literal["approximate", "exact"]


class GroupTest(NamedTuple):
    """How groups are counted and tested, fixed before the certify rows are looked at."""

    cap: float = np.inf  # rows of a claim that a group counts for at most
    exact: bool = False  # by bets; else by the design effect
    declared: bool = False  # the cap is the most rows that any group has, by declaration


def make_group_test(name: TestName, cap: int | None, most_rows: int | None) -> GroupTest:
    """Return the test that options ask for, or say what is missing."""
    if name not in get_args(TestName):
        raise ScribError(f"group_test is {name!r}, but must be approximate or exact")
    if cap is not None and most_rows is not None:
        raise ScribError("group_cap and max_group_rows exclude each other; leave one of them out")
    if most_rows is not None:
        if name != "exact":
            raise ScribError(
                "max_group_rows claims the risk of rows without a cap, which only the exact test "
                "can prove; add group_test=exact, or give group_cap in its place"
            )
        most = inputs.as_number("max_group_rows", most_rows, low=0, high=np.inf)
        return GroupTest(most, exact=True, declared=True)
    if cap is None:
        raise ScribError(
            "groups need group_cap, the rows of a class that one group counts for at most, fixed "
            "before these rows were looked at; the median of other rows is a good one"
        )
    number = inputs.as_number("group_cap", cap, low=0, high=np.inf)
    if number != int(number):
        raise ScribError(f"group_cap is {number:g}, but rows are whole; give 1 or more")
    return GroupTest(number, exact=name == "exact")


def choose_group_test(
    groups: Ints | None,  # (n,) codes of the fit rows
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    name: TestName,
    cap: int | None,
    most_rows: int | None,
) -> GroupTest | None:
    """Return how groups are tested; a cap that is not given is typical of the fit rows' groups."""
    if groups is None:
        return None
    if cap is None and most_rows is None:
        cap = typical_rows(groups, labels, constraints)
    return make_group_test(name, cap, most_rows)


class GroupCounts(NamedTuple):
    """What the groups with certain rows of one claim count for, in an order like chance."""

    certain: Floats  # (m,)
    wrong: Floats  # (m,)
    sampled: tuple[float, float] = (0.0, 0.0)  # what sampling rows adds to the squares of both


class GroupSums(NamedTuple):
    """Sums over the groups of each claim, from which its design effect follows."""

    groups: Ints  # (c,) with certain rows
    certain: Floats  # (c,) sum of n_i
    wrong: Floats  # (c,) sum of e_i
    certain_squared: Floats  # (c,) sum of n_i^2
    wrong_squared: Floats  # (c,) sum of e_i^2
    product: Floats  # (c,) sum of n_i e_i


def count_groups(
    groups: Ints,  # (n,) codes from 0
    wrong: Bools,  # (n,)
    certain: Iterable[Bools],  # (c,) of (n,), for each claim its certain rows
    cap: float = np.inf,
    weights: Floats | None = None,  # (n,) rows that each one stands for
) -> tuple[GroupCounts, ...]:
    """Count certain and wrong rows group by group, for each claim.

    Rows that stand for others are a sample, whose groups vary more in size than those of all rows:
    a row of weight w adds w^2 to the squares but w, on average, to what it stands for, hence w (w -
    1) is to be taken off.
    """
    n_groups = int(groups.max(initial=-1)) + 1
    order = np.argsort(inputs.mix(np.arange(n_groups)))
    found = []
    for rows in certain:
        both = rows & wrong
        if weights is None:
            size, errors = (_rows_of_each(groups, some, n_groups) for some in (rows, both))
        else:
            size, errors = (
                np.bincount(groups[some], weights[some], n_groups).astype(np.float64)
                for some in (rows, both)
            )
        share = np.minimum(1.0, cap / np.maximum(size, 1e-300))
        sampled = (0.0, 0.0)
        if weights is not None:
            more = weights * (weights - 1) * share[groups] ** 2
            sampled = float(more[rows].sum()), float(more[both].sum())
        have = order[size[order] > 0]
        found.append(GroupCounts((share * size)[have], (share * errors)[have], sampled))
    return tuple(found)


def _rows_of_each(groups: Ints, rows: Bools, n_groups: int) -> Floats:
    """Return how many of some rows each group has."""
    sizes = np.zeros(n_groups)
    for start in range(0, len(groups), MANY_ROWS):
        of = slice(start, start + MANY_ROWS)
        sizes += np.bincount(groups[of][rows[of]], minlength=n_groups)
    return sizes


def sum_groups(by_claim: Sequence[GroupCounts]) -> GroupSums:
    """Return sums over the groups of each claim."""
    sums = [
        (
            len(n),
            n.sum(),
            e.sum(),
            n @ n - sampled,
            e @ e - sampled_errors,
            n @ e - sampled_errors,
        )
        for n, e, (sampled, sampled_errors) in by_claim
    ]
    table = np.array(sums, dtype=np.float64).reshape(-1, 6)
    return GroupSums(table[:, 0].astype(np.int64), *table[:, 1:].T)


def typical_rows(groups: Ints, labels: Labels, constraints: Sequence[Constraint]) -> int:
    """Return a cap for rows like these: the median rows of a group, of the claim with the fewest.

    So in every claim half of the groups count in full, and no group for more than they do.
    """
    k = int(labels.max()) + 1
    cells, sizes = np.unique(groups * k + labels, return_counts=True)
    group, label = np.divmod(cells, k)
    medians = []
    for claim in claimed(constraints):
        of = np.isin(label, claim.classes)
        if of.any():
            rows = np.bincount(group[of], sizes[of])
            medians.append(np.median(rows[rows > 0]))
    return max(int(min(medians, default=1)), 1)


def first_rows(labels: Labels, groups: Ints | None, most: int) -> Bools:
    """Return (n,) about as many first rows as may be, some of every class; groups stay whole."""
    n = len(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    kept = np.zeros(n, dtype=np.bool_)
    if groups is None:
        for label, size in zip(classes, sizes, strict=True):
            kept[np.flatnonzero(labels == label)[: math.ceil(size * min(most / n, 1.0))]] = True
        return kept
    kept = np.cumsum(np.bincount(groups))[groups] <= most
    for label in np.setdiff1d(classes, labels[kept]):
        kept |= groups == groups[labels == label].min()
    return kept


def effective_counts(sums: GroupSums, level: float) -> tuple[Floats, Floats]:
    """Return certain and wrong rows of each claim, as independent rows; 0 from fewer than 2 groups.

    `level` is the error probability of the test that the counts are for: the variance between few
    groups is itself uncertain, and Student's quantiles pay for that.
    """
    known = sums.groups >= 2
    m, n = np.where(known, sums.groups, 2.0), np.where(known, sums.certain, 2.0)
    risk = np.where(known, sums.wrong / n, 0.0)
    mixed = (risk > 0) & (risk < 1)
    squares = sums.wrong_squared - 2 * risk * sums.product + risk**2 * sums.certain_squared
    between = m / (m - 1) * squares / n**2
    independent = np.where(mixed, risk * (1 - risk) / n, 1.0)
    # All right, or all wrong, says nothing of the variance: then the sizes of the groups count.
    effect = np.where(mixed, np.maximum(between / independent, 1.0), sums.certain_squared / n)
    effect = np.where(known, effect, 1.0)
    students = special.stdtrit(n - 1, 1 - level) / special.stdtrit(m - 1, 1 - level)
    effective = np.where(known, n / effect * students**2, 0.0)
    return effective, risk * effective


def without_errors(sums: GroupSums) -> GroupSums:
    """Return the same groups as if every row were right."""
    none = np.zeros_like(sums.product)
    return sums._replace(wrong=none, wrong_squared=none, product=none)


def log_capital(counts: GroupCounts, cap: float, target: float) -> float:
    """Return the logarithm of what bets against "the risk is above its target" made of 1 at best.

    A group's Z = (e_i - target n_i) / cap is at least -target and at most 1 - target. Where the
    risk is above its target the mean of Z is not below 0, so capital that is staked against Z
    cannot be expected to grow, and reaches 1 / level at any time with a probability of at most
    `level`, whatever the groups' sizes and however alike their rows (Ville's inequality).
    """
    z = (counts.wrong - target * counts.certain) / cap
    stakes = [np.log(part) + np.cumsum(np.log1p(-share / (1 - target) * z)) for share, part in BETS]
    return float(np.logaddexp.reduce(stakes).max(initial=0.0))


def exact_upper(counts: GroupCounts, cap: float, level: float) -> float:
    """Return the upper bound of a risk that the bets give: the lowest target that they prove."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if log_capital(counts, cap, middle) >= -np.log(level):
            high = middle
        else:
            low = middle
    return high


def design_effects(
    certain: Floats | Ints,  # (c,) rows, which the sums may have capped
    sums: GroupSums,
    more: float,
    level: float,
) -> Floats:
    """Return (c,) how many certify rows count as one.

    Claims share one correlation within groups, the mean over their wrong rows, because each by
    itself has few. The certificate has `more` times the groups.
    """
    n = np.maximum(sums.certain, 1)
    risk = sums.wrong / n
    squares = sums.wrong_squared - 2 * risk * sums.product + risk**2 * sums.certain_squared
    independent = risk * (1 - risk) * n
    mixed = (independent > 0) & (sums.groups >= 2)
    size = np.maximum(sums.certain_squared / n, 1.0)
    m = np.maximum(sums.groups, 2)
    effect = np.where(mixed, m / (m - 1) * squares / np.where(mixed, independent, 1.0), 1.0)
    alike = np.clip((effect - 1) / np.maximum(size - 1, 1e-9), 0.0, 1.0)
    errors = np.where(mixed & (size > 1), sums.wrong, 0)
    shared = np.average(alike, weights=errors) if errors.any() else 0.0
    groups = np.maximum(np.round(more * sums.groups), 2.0)
    students = special.stdtrit(groups - 1, 1 - level) / special.ndtri(1 - level)
    capped = np.maximum(certain, 1) / n
    return np.maximum(capped * (1 + (size - 1) * shared) * students**2, 1.0)


def check_groups(groups: ArrayLike, n: int) -> Ints:
    """Return the group of each row as a code from 0."""
    values = np.asarray(groups)
    if values.shape != (n,):
        raise InvalidDataError(
            f"groups must be one for each of the {n} rows, got shape {values.shape}"
        )
    missing = [row for row, value in enumerate(values.tolist()) if inputs.is_missing(value)]
    if missing:
        raise InvalidDataError(
            f"groups[{missing[0]}] is missing; name the group of every row, "
            "and give a row that stands alone a group of its own"
        )
    if values.dtype.kind == "O":
        codes: dict[object, int] = {}
        return np.array(
            [codes.setdefault(value, len(codes)) for value in values.tolist()], np.int64
        )
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
