"""The time of a whole fit, measured in sorts of the same array."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import NOISES
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores

ROWS = 100_000
REPEATS = 7


class Pair(NamedTuple):
    """Seconds of a sort, and of the fit right after it."""

    sort: float
    fit: float

    @property
    def ratio(self) -> float:
        """How many sorts the fit takes."""
        return self.fit / self.sort


def run() -> None:
    """Print the time of a fit beside that of a sort, for both readings of the noise."""
    rows = []
    for noise, sd in NOISES.items():
        progress(f"times: {noise}")
        data = draw_scores(ROWS, noise=sd)
        fit_thresholds(*data)  # loads the kernels
        rows.append([noise, *_cells(time_pairs(*data, REPEATS))])
    print_table(
        f"Fit and numpy.argsort(scores, axis=0), N = {ROWS:,}, K = 5, {REPEATS} times in turn",
        ["noise", "argsort ms", "fit ms", "ratio", "least ratio", "largest ratio"],
        rows,
    )


def time_pairs(scores: NDArray[np.float64], labels: NDArray[np.int64], repeats: int) -> list[Pair]:
    """Time sorts and fits in turn, so that a busy machine slows both."""
    return [
        Pair(
            seconds(lambda: np.argsort(scores, axis=0)),
            seconds(lambda: fit_thresholds(scores, labels)),
        )
        for _ in range(repeats)
    ]


def seconds(step: Callable[[], object]) -> float:
    """Return how long a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _cells(pairs: list[Pair]) -> list[str]:
    """Return medians in milliseconds, their ratio, and the range of the ratios."""
    sort, fit = median(p.sort for p in pairs), median(p.fit for p in pairs)
    ratios = [p.ratio for p in pairs]
    figures = [1e3 * sort, 1e3 * fit, fit / sort, min(ratios), max(ratios)]
    return [f"{x:.1f}" for x in figures]
