"""The paper's synthetic data: scores that are the true class probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIGNAL = (9.0, 1.0, 3.0, 3.0, 3.0)


def draw_scores(
    n: int, *, noise: float = 3.0, signal: Sequence[float] = SIGNAL, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores (n, k), the true probabilities, and labels (n,) drawn from them.

    Logits are normal with standard deviation `noise`; one class, drawn at random, has its
    `signal` added. Class 0 is easy and class 1 hard. The paper's "sigma = 3" reads as a standard
    deviation of 3 or as a variance of 3 (``noise=3 ** 0.5``).
    """
    strength = np.asarray(signal, dtype=np.float64)
    k = len(strength)
    random = np.random.RandomState(seed)  # the published figures are of this stream
    logits = noise * random.standard_normal((n, k))
    favoured = random.randint(0, k, n)
    logits[np.arange(n), favoured] += strength[favoured]
    logits -= logits.max(axis=1, keepdims=True)
    scores = np.exp(logits)
    scores /= scores.sum(axis=1, keepdims=True)
    draw = random.random_sample(n)
    labels = (np.cumsum(scores, axis=1) < draw[:, None]).sum(axis=1)
    return scores, np.minimum(labels, k - 1)
