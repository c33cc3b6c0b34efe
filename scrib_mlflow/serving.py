"""The lines that search, evaluation and serving share: from scores to sets.

This file imports the standard library and NumPy only, so that it can be shipped with a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def threshold_sets(scores: ArrayLike, thresholds: ArrayLike) -> NDArray[np.bool_]:
    """Return (n, k) membership: a class is in when its score reaches its threshold."""
    return np.asarray(scores, dtype=np.float64) >= np.asarray(thresholds, dtype=np.float64)


def top_sets(scores: ArrayLike) -> NDArray[np.bool_]:
    """Return (n, k) membership of the class with the highest score, the first of equal ones."""
    scores = np.asarray(scores, dtype=np.float64)
    sets = np.zeros(scores.shape, dtype=np.bool_)
    sets[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return sets


def selective_sets(
    scores: ArrayLike, threshold: float, trust: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the top class where the trust reaches the threshold, all classes elsewhere.

    The trust is the highest score unless given.
    """
    scores = np.asarray(scores, dtype=np.float64)
    reached = (scores.max(axis=1) if trust is None else np.asarray(trust)) >= threshold
    return top_sets(scores) | ~reached[:, None]


def rule_sets(
    rule: Mapping[str, Any], scores: ArrayLike, trust: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the sets of a rule given as plain values, the way JSON holds it.

    A row without a finite score for every class gets the empty set: it is never certain.
    """
    kind = rule["kind"]
    if kind == "thresholds":
        sets = threshold_sets(scores, rule["thresholds"])
    elif kind == "selective":
        sets = selective_sets(scores, rule["threshold"], trust)
    elif kind == "top1":
        sets = top_sets(scores)
    else:
        msg = f"unknown kind of rule {kind!r}; known are 'thresholds', 'selective' and 'top1'"
        raise ValueError(msg)
    return sets & np.isfinite(scores).all(axis=1, keepdims=True)
