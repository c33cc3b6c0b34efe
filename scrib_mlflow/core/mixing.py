"""A defined mix of 64-bit numbers, which any engine can repeat."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mix(values: ArrayLike) -> NDArray[np.uint64]:
    """Return one step of splitmix64 from each value: a permutation that looks like chance."""
    mixed = np.atleast_1d(np.asarray(values, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
