"""The rows of a search, and which of their scores each threshold sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.compiling import kernel

SHARED = -1


class Data(NamedTuple):
    """What a search sees, checked and without rows of weight 0."""

    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,); empty where labels are soft
    soft: NDArray[np.float64]  # (n, k) label weights; (0, k) where labels are hard
    weights: NDArray[np.float64]  # (n,) row weights
    thresholds: NDArray[np.int64]  # (g,) the class that a threshold serves, or SHARED
    sharing: NDArray[np.int64]  # the classes that share the last threshold
    heads: NDArray[np.float64]  # (n, 2) their two highest scores in each row; (0, 2) without
    head_classes: NDArray[np.int32]  # (n, 2)

    @property
    def hard(self) -> bool:
        """Whether labels are classes, not weights over classes."""
        return len(self.soft) == 0

    def column(self, g: int) -> NDArray[np.float64]:
        """Return the scores that decide whether threshold g admits anything."""
        served = self.thresholds[g]
        return self.heads[:, 0] if served == SHARED else self.scores[:, served]

    def served(self, g: int) -> NDArray[np.int64]:
        """Return the classes that threshold g serves."""
        return self.sharing if self.thresholds[g] == SHARED else self.thresholds[g : g + 1]

    def take(self, rows: NDArray[np.int64], scale: NDArray[np.float64] | None = None) -> Data:
        """Return these rows, with their weights scaled."""
        by = np.ones(len(rows)) if scale is None else scale
        shared = len(self.heads) > 0
        return self._replace(
            scores=self.scores[rows],
            labels=self.labels[rows] if self.hard else self.labels,
            soft=self.soft if self.hard else self.soft[rows] * by[:, None],
            weights=self.weights[rows] * by,
            heads=self.heads[rows] if shared else self.heads,
            head_classes=self.head_classes[rows] if shared else self.head_classes,
        )

    def by_class(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (k,) thresholds from (g,) ones."""
        result = np.empty(self.scores.shape[1])
        for g, threshold in enumerate(thresholds):
            result[self.served(g)] = threshold
        return result


def make_data(
    scores: NDArray[np.float64],
    labels: NDArray[np.int32],
    soft: NDArray[np.float64],
    weights: NDArray[np.float64],
    own: NDArray[np.int64],
) -> Data:
    """Return the data of a search where the classes `own` have a threshold each, the rest one."""
    n, k = scores.shape
    sharing = np.setdiff1d(np.arange(k), own)
    shared = len(sharing) > 1
    heads = np.empty((n if shared else 0, 2))
    head_classes = np.empty((len(heads), 2), dtype=np.int32)
    if shared:
        two_highest(scores, sharing, heads, head_classes)
    last = [SHARED] if shared else sharing
    thresholds = np.concatenate([own, last]).astype(np.int64)
    return Data(scores, labels, soft, weights, thresholds, sharing, heads, head_classes)


def between(below: float, above: float) -> float:
    """Return a threshold that `above` reaches and `below` does not: the midpoint where it can."""
    middle = below / 2 + above / 2
    return float(middle) if below < middle <= above else float(above)


def centre(data: Data, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (k,) thresholds midway between the adjacent scores, admitting the same."""
    k = data.scores.shape[1]
    below, above = np.full(k, -np.inf), np.full(k, np.inf)
    neighbours(data.scores, data.by_class(thresholds), below, above)
    for g in range(len(thresholds)):
        served = data.served(g)
        below[served], above[served] = below[served].max(), above[served].min()
    return np.array(
        [
            low if np.isinf(low) else high if np.isinf(high) else between(low, high)
            for low, high in zip(below, above, strict=True)
        ]
    )


@kernel
def neighbours(scores, thresholds, below, above):
    """Raise `below` to each class's highest score under its threshold, lower `above` likewise."""
    for i in range(len(scores)):
        for k in range(scores.shape[1]):
            score = scores[i, k]
            if score >= thresholds[k]:
                above[k] = min(above[k], score)
            else:
                below[k] = max(below[k], score)


@kernel
def two_highest(scores, classes, heads, head_classes):
    """Fill the two highest scores among these classes, and which classes they are of."""
    for i in range(len(scores)):
        first = -np.inf
        second = -np.inf
        a = classes[0]
        b = classes[0]
        for j in range(len(classes)):
            score = scores[i, classes[j]]
            if score > first:
                second, b = first, a
                first, a = score, classes[j]
            elif score > second:
                second, b = score, classes[j]
        heads[i, 0] = first
        heads[i, 1] = second
        head_classes[i, 0] = a
        head_classes[i, 1] = b
