"""Upper bounds on risks, and the errors that certify rows may hold.

Bounds and `allowed_errors` are exact. Where rows are millions, a table with an entry for every
number of rows costs too much: beyond `EXACT_ROWS` an `ErrorTable` has entries at even distances,
and what lies between is interpolated. That is good enough to draw a path, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Floats, Ints, as_number
from scrib_mlflow.errors import ScribError

BISECTIONS = 64
ROUNDING = 1e-6  # of errors and rows that should be whole
ANCHOR_EVERY = 4096  # rows: from there the recursion starts anew, so that rounding does not grow
EXACT_ROWS = 16_384  # a table with more rows has entries at even distances
COARSE_ENTRIES = 4_096  # entries of such a table


def risk_upper(wrong: ArrayLike, n: ArrayLike, confidence: float) -> Floats:
    """Return the exact (Clopper-Pearson) upper bound; 1 without rows."""
    wrong, n = _checked(wrong, n, confidence)
    inside = wrong < n
    bound = special.betaincinv(
        np.where(inside, wrong + 1, 1.0), np.where(inside, n - wrong, 1.0), confidence
    )
    return np.where(inside, bound, 1.0)


def risk_upper_kl(wrong: ArrayLike, n: ArrayLike, confidence: float) -> Floats:
    """Return the paper's Theorem 4.2 turned into an upper bound; 1 without rows.

    The largest q with n KL(risk || q) <= ln(1 / (1 - confidence)). The theorem as printed bounds
    how far the estimate lies above the risk; a guarantee needs how far it lies below.
    """
    wrong, n = _checked(wrong, n, confidence)
    inside = wrong < n
    rows = np.where(inside, n, 1.0)
    risk = np.where(inside, wrong / rows, 0.0)
    budget = -np.log1p(-confidence) / rows
    low, high = risk, np.ones_like(risk)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        kl = special.rel_entr(risk, middle) + special.rel_entr(1 - risk, 1 - middle)
        fits = kl <= budget
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(inside, high, 1.0)


def binomial_tail(n: ArrayLike, wrong: ArrayLike, risk: ArrayLike) -> Floats:
    """Return P(Binomial(n, risk) <= wrong), also for counts that are not whole; 1 without rows."""
    n, wrong = np.asarray(n), np.asarray(wrong)
    inside = wrong < n
    right = np.where(inside, n - wrong, 1.0)
    return np.where(inside, special.betaincc(wrong + 1, right, risk), 1.0)


def chance_within(n: ArrayLike, allowed: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the chance of at most the allowed errors among n rows; 0 where not even 0 are."""
    n, allowed = np.asarray(n), np.asarray(allowed)
    possible = (allowed >= 0) & (allowed < n)
    return np.where(possible, binomial_tail(n, np.maximum(allowed, 0), risk), 0.0)


def _checked(wrong: ArrayLike, n: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    as_number("confidence", confidence, low=0, high=1)
    counts = np.broadcast_arrays(np.asarray(wrong, dtype=np.float64), np.asarray(n, np.float64))
    if not ((counts[0] >= 0) & (counts[0] <= counts[1])).all():
        raise ScribError("wrong rows must be between 0 and n")
    return counts[0], counts[1]


def allowed_errors(target: float, most_rows: int, confidence: float) -> Floats:
    """Return e[n] for n = 0 ... most_rows: the most errors whose bound meets the target.

    ``risk_upper(e, n, confidence) <= target`` exactly when ``e <= e[n]``; -1 where not even 0
    errors do.
    """
    table = np.empty(most_rows + 1)
    level = 1.0 - confidence
    errors = -1
    for first in range(0, most_rows + 1, ANCHOR_EVERY):
        following = errors + 1
        below = special.bdtr(following - 1, first, target) if following > 0 else 0.0
        cdf = special.bdtr(following, first, target) if following <= first else 1.0
        last = min(first + ANCHOR_EVERY, most_rows + 1)
        errors = _fill_allowed(table, first, last, following, cdf, cdf - below, target, level)
    return table


@kernel
def _fill_allowed(
    table: Floats,
    first: int,
    last: int,
    following: int,
    cdf: float,
    pmf: float,
    target: float,
    level: float,
) -> int:
    """Fill table[first:last] by the recursion of binomial probabilities in n and in errors.

    `following` errors are one more than allowed so far; `cdf` and `pmf` are theirs at n = first.
    """
    for n in range(first, last):
        while cdf <= level and following < n:
            pmf *= (n - following) / (following + 1.0) * (target / (1.0 - target))
            following += 1
            cdf += pmf
        table[n] = following - 1
        cdf -= target * pmf
        pmf *= (n + 1.0) / (n + 1.0 - following) * (1.0 - target)
    return following - 1


def acceptance_rows(n: int, target: float, level: float) -> int:
    """Return how many of n rows to test: the fewest that allow as many errors as all n do.

    The acceptance plan of quality control: 100 rows allow 4 errors at a target of 10 %, and so do
    89, so the other 11 could only add errors. All n where not even 0 errors pass.
    """
    allowed = _largest(lambda errors: binomial_tail(n, errors, target) <= level, n)
    if allowed < 0:
        return n
    return 1 + _largest(lambda rows: not binomial_tail(rows, allowed, target) <= level, n)


def _largest(holds: Callable[[int], Any], below: int) -> int:
    """Return the last of 0 ... below - 1 for which something holds that ends once; -1 if none."""
    low, high = -1, below
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def planned_tests(n: Floats, target: ArrayLike, level: float) -> tuple[Floats, Floats]:
    """Return the rows to test of n, which need not be whole, and the errors that they allow.

    As `acceptance_rows`, but of many and up to rounding only.
    """
    errors = np.floor(_real_errors(n, target, level) + ROUNDING)
    rows = np.ceil(special.bdtrin(np.maximum(errors, 0.0), level, target) - ROUNDING)
    return np.where(errors >= 0, rows, n), errors


def smooth_tests(n: Floats, target: ArrayLike, level: float) -> tuple[Floats, Floats]:
    """Return n as it is, and the errors that about so many rows allow on average."""
    errors = _real_errors(n, target, level)
    return n, np.where(errors >= 0, np.maximum(errors - 0.5, 0.0), errors)


def _real_errors(n: Floats, target: ArrayLike, level: float) -> Floats:
    """Return the real number of errors at which the test of n rows is exact; -1 below 0."""
    possible = n * np.log1p(-np.asarray(target)) <= np.log(level)
    errors = special.bdtrik(level, np.where(possible, n, 1.0), target)
    return np.where(possible, errors, -1.0)


def passing_errors(rows: Floats | Ints, allowed: Floats, z: float) -> Floats:
    """Return the errors to expect among so many rows at the risk that passes at z.

    At that risk at most those allowed happen with probability Phi(z); -1 where no number is.
    """
    passes = allowed >= 0
    risk = special.betaincinv(
        np.where(passes, allowed + 1, 1.0), np.where(passes, rows - allowed, 1.0), special.ndtr(-z)
    )
    return np.where(passes, rows * risk, -1.0)


class ErrorTable(NamedTuple):
    """Errors among 0, stride, 2 stride, ... rows."""

    errors: Floats
    stride: int = 1

    @property
    def rows(self) -> Ints:
        """The rows of each entry."""
        return self.stride * np.arange(len(self.errors))

    def at(self, n: float) -> float:
        """Return the errors among n rows, those of the last entry beyond it."""
        return float(np.interp(n, self.rows, self.errors))


def smooth_errors(
    target: float, most_rows: int, confidence: float, z: float | None = None
) -> ErrorTable:
    """Return the errors that pass among at least 0 ... most_rows rows, smoothed.

    Without z those that are allowed; with it those to expect at the risk that passes with
    probability Phi(z).
    """
    if most_rows > EXACT_ROWS:
        return _coarse_errors(target, most_rows, confidence, z)
    errors = allowed_errors(target, most_rows, confidence)
    if z is not None:
        errors = passing_errors(np.arange(most_rows + 1.0), errors, z)
    return ErrorTable(smooth_table(errors))


def smooth_table(table: Floats) -> Floats:
    """Return the mean of a table over n - sqrt(n) ... n + sqrt(n), where all of that passes.

    Allowed errors jump, and which side of a jump further rows will fall on cannot be known.
    """
    rows = np.arange(len(table))
    half = np.minimum(np.ceil(np.sqrt(rows)).astype(np.int64), len(table) - 1 - rows)
    sums = np.concatenate([[0.0], np.cumsum(table)])
    mean = (sums[rows + half + 1] - sums[rows - half]) / (2 * half + 1)
    return np.where(table[rows - half] >= 0, mean, table)


def _coarse_errors(target: float, most_rows: int, confidence: float, z: float | None) -> ErrorTable:
    """Return a table with few entries: allowed errors are smoothed first, then passed on."""
    stride = -(-most_rows // COARSE_ENTRIES)
    rows = stride * np.arange(COARSE_ENTRIES + 1)
    half = np.ceil(np.sqrt(rows)).astype(np.int64)
    allowed = allowed_errors(target, int(rows[-1] + half[-1]), confidence)
    whole = allowed[rows - half] >= 0
    errors = allowed[rows]
    sums = np.cumsum(allowed, out=allowed)
    mean = (sums[rows + half] - sums[np.maximum(rows - half - 1, 0)]) / (2 * half + 1)
    errors = np.where(whole, mean, errors)
    return ErrorTable(errors if z is None else passing_errors(rows, errors, z), stride)


def soft_errors(table: ErrorTable, bias: float) -> ErrorTable:
    """Return a table in soft errors, of which each stands for `bias` of those to come."""
    errors = np.where(table.errors >= 0, table.errors / bias, table.errors)
    return table._replace(errors=errors)
