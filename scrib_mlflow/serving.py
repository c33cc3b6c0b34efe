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
    scores: ArrayLike, threshold: float, confidence: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the top class where the confidence reaches the threshold, all classes elsewhere.

    The confidence is the highest score unless given.
    """
    scores = np.asarray(scores, dtype=np.float64)
    trust = scores.max(axis=1) if confidence is None else np.asarray(confidence, dtype=np.float64)
    return top_sets(scores) | (trust < threshold)[:, None]


def rule_sets(
    rule: Mapping[str, Any], scores: ArrayLike, confidence: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the sets of a rule given as plain values, the way JSON holds it."""
    kind = rule["kind"]
    if kind == "thresholds":
        return threshold_sets(scores, rule["thresholds"])
    if kind == "selective":
        return selective_sets(scores, rule["threshold"], confidence)
    if kind == "top1":
        return top_sets(scores)
    msg = f"unknown kind of rule {kind!r}; known are 'thresholds', 'selective' and 'top1'"
    raise ValueError(msg)
