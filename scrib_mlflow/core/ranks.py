"""Ranks of thresholds among the scores of a sample: how near two are, and windows around them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.levels import Window
from scrib_mlflow.core.problem import Data

HALF_WINDOW = 3.0  # in standard errors of a rank
LEAST_HALF_WINDOW = 30


class Ranks(NamedTuple):
    """The sorted scores of a sample, by threshold."""

    scores: NDArray[np.float64]  # (g, n)

    def window(self, thresholds: NDArray[np.float64], width: float) -> Window:
        """Return the window around thresholds, `width` times the usual."""
        g, n = self.scores.shape
        half = int(width * max(LEAST_HALF_WINDOW, HALF_WINDOW * np.sqrt(n)))
        at = self.of(thresholds)
        low = np.where(at > half, self.scores[np.arange(g), np.maximum(at - half, 0)], -np.inf)
        high = np.where(
            at + half < n, self.scores[np.arange(g), np.minimum(at + half, n - 1)], np.inf
        )
        tied = low >= high
        return Window(np.where(tied, -np.inf, low), np.where(tied, np.inf, high))

    def of(self, thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the ranks of thresholds."""
        found = [np.searchsorted(s, t) for s, t in zip(self.scores, thresholds, strict=True)]
        return np.array(found, dtype=np.int64)


def rank_scores(sample: Data) -> Ranks:
    """Return the sorted scores of a sample."""
    columns = [np.sort(sample.column(g)) for g in range(len(sample.thresholds))]
    return Ranks(np.stack(columns))
