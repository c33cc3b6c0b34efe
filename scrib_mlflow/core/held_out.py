"""What sets do on rows, with two-sided bands on those that were held out from the fit.

A band is exact (Clopper-Pearson) and holds at its one point, for the rule that is there. Where rows
come in groups, they count as many as they are worth if independent, and the band is approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.groups import effective_counts, sum_groups

Band = tuple[float, float]
UNKNOWN = (NAN, NAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRates:
    """The rows of one class; bands are NaN on rows of the fit."""

    n: int
    n_certain: int
    n_wrong: int
    abstention_rate: float
    abstention_band: Band
    risk: float  # NaN without certain rows
    risk_band: Band


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRates:
    """All rows of a part, and those of some classes."""

    n: int
    n_certain: int
    n_wrong: int
    abstention_rate: float
    abstention_band: Band
    empty_rate: float
    overall_risk: float  # NaN where nothing is certain
    overall_risk_band: Band
    by_class: dict[str, ClassRates]


def measure_part(
    sets: NDArray[np.bool_],  # (n, k)
    labels: NDArray[np.int32],  # (n,)
    classes: Sequence[str],
    shown: Sequence[int],  # the classes to tell apart
    *,
    confidence: float | None,  # None: no bands
    groups: NDArray[np.int64] | None = None,  # (n,) codes from 0
) -> PartRates:
    """Measure sets on labelled rows."""
    sizes = np.count_nonzero(sets, axis=1)
    certain = sizes == 1
    wrong = certain & ~sets[np.arange(len(sets)), labels]
    members = [labels == j for j in shown] + [np.ones(len(sets), dtype=np.bool_)]
    abstains = _rates(members, ~certain, confidence, groups)
    risks = _rates([own & certain for own in members], wrong, confidence, groups)
    by_class = {
        classes[j]: ClassRates(
            n=of_rows.n,
            n_certain=of_certain.n,
            n_wrong=of_certain.k,
            abstention_rate=of_rows.rate,
            abstention_band=of_rows.band,
            risk=of_certain.rate,
            risk_band=of_certain.band,
        )
        for j, of_rows, of_certain in zip(shown, abstains[:-1], risks[:-1], strict=True)
    }
    return PartRates(
        n=len(sets),
        n_certain=risks[-1].n,
        n_wrong=risks[-1].k,
        abstention_rate=abstains[-1].rate,
        abstention_band=abstains[-1].band,
        empty_rate=float(np.mean(sizes == 0)),
        overall_risk=risks[-1].rate,
        overall_risk_band=risks[-1].band,
        by_class=by_class,
    )


@dataclass(frozen=True, slots=True)
class _Rate:
    n: int
    k: int
    rate: float
    band: Band


def _rates(
    among: Sequence[NDArray[np.bool_]],
    happens: NDArray[np.bool_],
    confidence: float | None,
    groups: NDArray[np.int64] | None,
) -> list[_Rate]:
    """Return how often something happens among rows of several kinds."""
    n = np.array([np.count_nonzero(rows) for rows in among])
    k = np.array([np.count_nonzero(rows & happens) for rows in among])
    bands = [UNKNOWN] * len(n)
    if confidence is not None:
        worth_n, worth_k = n.astype(np.float64), k.astype(np.float64)
        if groups is not None:
            sums = sum_groups(groups, happens, among)
            worth_n, worth_k = effective_counts(n, k, sums, (1 - confidence) / 2)
        bands = two_sided(worth_k, worth_n, confidence)
    return [
        _Rate(int(a), int(b), float(b / a) if a else NAN, band)
        for a, b, band in zip(n, k, bands, strict=True)
    ]


def two_sided(k: NDArray[np.float64], n: NDArray[np.float64], confidence: float) -> list[Band]:
    """Return exact bands of a rate; all of 0 to 1 without rows."""
    tail = (1 - confidence) / 2
    some, less = k > 0, k < n
    safe_k, safe_n = np.where(n > 0, k, 0.0), np.where(n > 0, n, 1.0)
    low = special.betaincinv(np.where(some, safe_k, 1.0), safe_n - safe_k + 1, tail)
    high = special.betaincinv(safe_k + 1, np.where(less, safe_n - safe_k, 1.0), 1 - tail)
    return [
        (float(a) if s else 0.0, float(b) if f else 1.0)
        for a, b, s, f in zip(low, high, some, less, strict=True)
    ]
