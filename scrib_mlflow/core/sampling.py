"""Samples of rows that keep rare classes, with weights that make up for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.problem import Data


class Strata(NamedTuple):
    """Rows by class."""

    order: np.ndarray  # rows, class by class
    start: np.ndarray  # (k + 1,) where each class starts in `order`


def stratify(data: Data) -> Strata:
    """Return the rows by class; soft labels make one stratum."""
    n, k = data.scores.shape
    if len(data.labels) == 0:
        return Strata(np.arange(n), np.array([0, n]))
    narrow = data.labels.astype(np.int16) if k <= np.iinfo(np.int16).max else data.labels
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16 bits
    count = np.bincount(data.labels, minlength=k)
    return Strata(order, np.concatenate([[0], np.cumsum(count)]))


def sample_rows(data: Data, strata: Strata, size: int, rng: np.random.Generator) -> Data:
    """Return about `size` rows: half in proportion, half shared out to the smaller classes."""
    n = len(data.scores)
    if size >= n:
        return data
    counts = np.diff(strata.start)
    least = size // (2 * len(counts))
    takes = np.minimum(counts, np.maximum(np.ceil(size * counts / n).astype(np.int64), least))
    rows = [
        strata.order[start + rng.choice(count, take, replace=False, shuffle=False)]
        for start, count, take in zip(strata.start, counts, takes, strict=False)
    ]
    return data.take(np.concatenate(rows), np.repeat(counts / np.maximum(takes, 1), takes))
