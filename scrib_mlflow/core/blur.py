"""Blurred copies of few rows, so that a search sees a smooth population and not its sample.

A soft label is a function of the scores alone, so a row with slightly other scores and the label
that goes with them is as good as another row from nearby. Thresholds chosen on both fit the
accidents of the sample less. It costs nothing but work: a path proves nothing by itself.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

WIDTH = 0.2  # of the noise, in standard deviations of a class's scores
MOST_COPIES = 3
MOST_ENTRIES = 75_000  # rows times classes, copies included; more rows are smooth enough
LEAST_DISTINCT = 0.9  # share of distinct scores: saturated ones and votes are no continuum
LEAST_SCORE = 1e-12


def are_tied(scores: NDArray[np.float64]) -> bool:
    """Return whether many scores are equal, as counted votes and saturated ones are."""
    return len(np.unique(scores)) < LEAST_DISTINCT * scores.size


def blur_scores(
    scores: NDArray[np.float64],
    of: Literal["log", "raw"],
    seed: int,
    weights: NDArray[np.float64] | None = None,  # (n,)
) -> NDArray[np.float64]:
    """Return the scores followed by blurred copies, as many as are worth their time."""
    copies = min(MOST_COPIES, MOST_ENTRIES // scores.size - 1)
    if copies < 1 or are_tied(scores):
        return scores
    inputs = scores
    if of == "log":
        inputs = np.log(np.maximum(scores, LEAST_SCORE))
        inputs = inputs - inputs.mean(axis=1, keepdims=True)
    centre = np.average(inputs, axis=0, weights=weights)
    spread = np.sqrt(np.average((inputs - centre) ** 2, axis=0, weights=weights))
    random = np.random.default_rng([seed, len(scores)])
    noise = WIDTH * spread * random.standard_normal((copies, *scores.shape))
    blurred = centre + (inputs - centre + noise) / np.sqrt(1 + WIDTH**2)  # as widespread as before
    if of == "log":
        blurred = special.softmax(blurred, axis=2)
    return np.concatenate([scores, blurred.reshape(-1, scores.shape[1])])
