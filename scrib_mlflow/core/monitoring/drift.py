"""Whether rows still come from where the certificate's rows came from, seen without their labels.

Shapes: n rows of a batch in an order like chance, m bins, kinds or features of rows, k classes.

Conformal p-values: how strange a row is among all rows up to it. As long as rows may change places
they are uniform, and independent of each other, whatever the rows look like.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Floats, Ints

MOST_KNOWN = 100_000_000  # rows that new ones are compared with; later ones are not added
LEAST_EXPECTED = 10.0  # rows of a kind; rarer ones are taken together
MOST_CLASSES = 50  # whose frequencies are estimated from unlabelled rows
ROUNDS = 10
SUM_WEIGHT = 1e3  # holds the frequencies to a sum of 1


def score_p_values(
    bins: Ints,  # (n,) of the highest score
    known: Ints,  # (m,) rows seen before, by bin
    chance: Floats,  # (n,) uniform, breaks ties
) -> tuple[Floats, Ints]:
    """Return the p-value of each row, low for a low score, and the rows that are known then."""
    after = known + np.bincount(bins, minlength=len(known))
    if after.sum() <= MOST_KNOWN:
        return _score_p_values(bins, known, chance), after
    total, below = known.sum() + 1.0, np.cumsum(known) - known
    return (below[bins] + chance * (known[bins] + 1)) / total, known


@kernel
def _score_p_values(bins: Ints, known: Ints, chance: Floats) -> Floats:
    """Rank each row among those before it, in a tree of sums (Fenwick's)."""
    m = len(known)
    tree = np.zeros(m + 1, dtype=np.int64)
    counts = known.copy()
    for i in range(m):
        tree[i + 1] += counts[i]
        above = i + 1 + ((i + 1) & -(i + 1))
        if above <= m:
            tree[above] += tree[i + 1]
    total = counts.sum()
    p_values = np.empty(len(bins))
    for row in range(len(bins)):
        own = bins[row]
        below, i = 0, own
        while i > 0:
            below += tree[i]
            i -= i & -i
        counts[own] += 1
        total += 1
        i = own + 1
        while i <= m:
            tree[i] += 1
            i += i & -i
        p_values[row] = (below + chance[row] * counts[own]) / total
    return p_values


def kind_p_values(
    counts: Ints,  # (m,) rows of a batch by feature
    n: int,  # rows of it
    known: Ints,  # (m,) rows seen before, by feature
    total: int,  # rows seen before
    random: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return for each feature a p-value that is low where it is rare, and one where it is frequent.

    All rows up to a batch are one lot, of which the batch is a part like any other: how many of its
    rows have a feature is hypergeometric.
    """
    from scipy import stats  # noqa: PLC0415  # takes a second

    lot = stats.hypergeom(total + n, known + counts, n)
    equal, chance = lot.pmf(counts), random.random(len(counts))
    return lot.cdf(counts - 1) + chance * equal, lot.sf(counts) + (1 - chance) * equal


class Mixture(NamedTuple):
    """Which class frequencies come nearest to rows without labels, and what they leave open."""

    frequencies: Floats  # (k,) NaN for a class that the calibration had no rows of
    p_value: float  # that rows differ so much or more from it by chance alone


def fit_frequencies(
    by_class: ArrayLike,  # (k, m) rows of the calibration by class and kind
    counts: ArrayLike,  # (m,) rows now
) -> Mixture | None:
    """Return the frequencies of classes that would explain how often each kind of row occurs.

    Rows of a class keep their kinds then, as if only the classes' frequencies had changed. The
    chi-square test of what is left allows for the rows from which the kinds are known. None where
    there are too few rows or kinds for a test.
    """
    from scipy import optimize  # noqa: PLC0415  # only where there is a drift to explain

    table, now = np.asarray(by_class, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    present = table.sum(axis=1) > 0
    k, total = int(present.sum()), now.sum()
    if k < 2 or k > MOST_CLASSES or total < LEAST_EXPECTED * k:
        return None
    table, now = _without_rare(table[present], now)
    m = len(now)
    if m <= k:
        return None
    pooled = (table.sum(axis=0) + now + 0.5) / (table.sum() + total + 0.5 * m)
    sizes = table.sum(axis=1)
    kinds = (table + pooled) / (sizes[:, None] + 1.0)  # (k, m), a kind that was not seen is rare
    shares = now / total
    fitted = np.full(k, 1.0 / k)
    for _ in range(ROUNDS):
        white = _whitened(fitted, kinds, sizes, total)
        system = np.vstack([white @ kinds[:, :-1].T, np.full(k, SUM_WEIGHT)])
        fitted = optimize.nnls(system, np.append(white @ shares[:-1], SUM_WEIGHT))[0]
        fitted /= fitted.sum()
    rest = _whitened(fitted, kinds, sizes, total) @ (shares - fitted @ kinds)[:-1]
    free = m - np.count_nonzero(fitted > 0)
    frequencies = np.full(len(present), np.nan)
    frequencies[present] = fitted
    return Mixture(frequencies, float(special.chdtrc(free, rest @ rest)))


def _without_rare(table: Floats, now: Floats) -> tuple[Floats, Floats]:
    """Return the counts with kinds of few rows taken together."""
    both = now * min(1.0, table.sum() / max(now.sum(), 1.0)) + table.sum(axis=0)
    rare = both < 2 * LEAST_EXPECTED
    if not rare.any():
        return table, now
    merged = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    return merged, np.append(now[~rare], now[rare].sum())


def _whitened(frequencies: Floats, kinds: Floats, sizes: Floats, total: float) -> Floats:
    """Return (m - 1, m - 1) what makes the differences of all kinds but the last independent."""
    mean = frequencies @ kinds
    variance = (np.diag(mean) - np.outer(mean, mean)) / total
    for share, size, row in zip(frequencies, sizes, kinds, strict=True):
        variance += share**2 * (np.diag(row) - np.outer(row, row)) / (size + 1.0)
    inner = variance[:-1, :-1]
    inner += np.eye(len(inner)) * 1e-12
    return np.linalg.inv(np.linalg.cholesky(inner))
