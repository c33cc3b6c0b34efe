"""How chance and size ambiguity go together over random set classifiers (the paper's appendix).

"We randomly pick K thresholds on the validation set" is taken to mean: each threshold on its own
is the score of its class in a row drawn at random from one half; the ambiguities are those of the
other half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.checks import check_scores
from scrib_mlflow.core.fit import check_seed
from scrib_mlflow.errors import ScribError


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguityCorrelation:
    """Correlations of chance and size ambiguity, one each for every random split."""

    classifiers: int  # random set classifiers in each
    pearson: tuple[float, ...]
    spearman: tuple[float, ...]


def correlate_ambiguities(
    scores: ArrayLike, *, classifiers: int = 1000, repeats: int = 20, seed: int = 0
) -> AmbiguityCorrelation:
    """Return the correlations over random thresholds, on random halves of the rows.

    NaN where an ambiguity is the same for all of them.
    """
    checked = check_scores(scores, least_rows=4)
    if classifiers < 2 or repeats < 1:
        msg = (
            f"classifiers is {classifiers} and repeats {repeats}, "
            "but a correlation needs 2 or more, 1 or more times"
        )
        raise ScribError(msg)
    check_seed(seed)
    found = [_correlate(checked, classifiers, [seed, repeat]) for repeat in range(repeats)]
    pearson, spearman = zip(*found, strict=True)
    return AmbiguityCorrelation(classifiers=classifiers, pearson=pearson, spearman=spearman)


def measure_ambiguities(
    scores: NDArray[np.float64], thresholds: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return chance and size ambiguity of (m, k) thresholds on (n, k) scores, (m,) each."""
    by_class = np.ascontiguousarray(scores.T)
    sizes = np.empty(len(scores), dtype=np.int32)
    inside = np.empty(len(scores), dtype=np.bool_)
    chance, size = np.empty(len(thresholds)), np.empty(len(thresholds))
    for m, row in enumerate(thresholds):
        sizes[:] = 0
        for column, threshold in zip(by_class, row, strict=True):
            np.greater_equal(column, threshold, out=inside)
            sizes += inside
        chance[m] = np.count_nonzero(sizes > 1) / len(scores)
        size[m] = sizes.mean()
    return chance, size


def _correlate(
    scores: NDArray[np.float64], classifiers: int, seed: list[int]
) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation on one random split."""
    from scipy import stats  # noqa: PLC0415  # takes a while

    n, k = scores.shape
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    drawn, measured = order[: n // 2], order[n // 2 :]
    picked = drawn[random.integers(len(drawn), size=(classifiers, k))]
    chance, size = measure_ambiguities(scores[measured], scores[picked, np.arange(k)])
    if np.ptp(chance) == 0 or np.ptp(size) == 0:
        return float("nan"), float("nan")
    return (
        float(stats.pearsonr(chance, size).statistic),
        float(stats.spearmanr(chance, size).statistic),
    )
