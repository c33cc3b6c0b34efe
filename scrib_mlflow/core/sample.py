"""Samples of scored rows: bounded, with all rows of rare classes, and weights for the others.

Which rows are kept follows from `order_rows` of `core.split` alone, so that every engine keeps the
same ones: certify rows are the lowest of each class, a sample of the others are the highest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.tally import Labels


class Sample(NamedTuple):
    """Scored rows in memory: all rows of a part, or some that stand for all of them."""

    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,) -1 where rows have none
    weights: NDArray[np.float64] | None  # (n,) None where every row is there
    groups: NDArray[np.int64] | None  # (n,) codes from 0
    cases: NDArray[np.uint64]  # (n,) hash of what the model is given, and of the class
    places: NDArray[np.int64] | None  # (n,) number of each row in its table, where it has one
    keys: NDArray[np.object_] | None  # (n,) what identifies each row


def class_quotas(sizes: ArrayLike, most: int) -> NDArray[np.int64]:
    """Return how many rows of each class to keep: at most `most`, no class cut below another's cut.

    A class of n rows keeps min(n, q), with the highest q that the limit allows.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    left, cut = most, 0
    for place, count in enumerate(np.sort(counts).tolist()):
        cut = left // (len(counts) - place)
        if count > cut:
            break
        left -= count
    else:
        return counts.copy()
    return np.minimum(counts, cut)


def class_weights(sizes: ArrayLike, quotas: ArrayLike) -> NDArray[np.float64]:
    """Return how many rows of its class each kept row stands for; 1 where all or none are kept."""
    counts, kept = (np.asarray(values, dtype=np.int64) for values in (sizes, quotas))
    return np.where(kept > 0, counts / np.maximum(kept, 1), 1.0)


def keep_rows(
    order: NDArray[np.uint64],  # (n,)
    labels: Labels,  # (n,)
    quotas: NDArray[np.int64],  # (k,)
) -> NDArray[np.bool_]:
    """Return which rows to keep: of each class as many as its quota, those of the highest order."""
    kept = np.zeros(len(labels), dtype=np.bool_)
    for label, quota in enumerate(quotas.tolist()):
        rows = np.flatnonzero(labels == label)
        left_out = len(rows) - quota
        if left_out <= 0:
            kept[rows] = True
        elif quota > 0:
            kept[rows[np.argpartition(order[rows], left_out)[left_out:]]] = True
    return kept
