"""What is fitted: the paper's generator in both readings of its noise, and saved model outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores

NOISES = {"sd 3": 3.0, "variance 3": 3.0**0.5}


class Outputs(NamedTuple):
    """A model's scores of labelled rows."""

    name: str
    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int64]  # (n,)
    groups: NDArray[np.str_] | None = None  # (n,) rows that belong together


def read_outputs(folder: Path | None) -> Iterator[Outputs]:
    """Yield the saved outputs of a folder: `probs` and `y` of every npz file."""
    for path in sorted(folder.glob("*.npz")) if folder else ():
        with np.load(path, allow_pickle=False) as saved:
            scores, labels = saved["probs"].astype(np.float64), saved["y"].astype(np.int64)
            groups = saved["groups"].astype(str) if "groups" in saved else None
        yield Outputs(path.stem, scores, labels, groups)


def load_kernels() -> None:
    """Fit once with enough rows for every step, so that later fits compile and load nothing."""
    fit_thresholds(*draw_scores(20_000))
