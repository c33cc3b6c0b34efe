"""One size of the growth benchmark: draw its rows, or fit them and measure."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.datasets import load_kernels
from benchmarks.times import time_pairs
from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores

REPEATS = 3


def draw(folder: str, n: str) -> dict[str, float]:
    """Save scores and labels of n rows."""
    scores, labels = draw_scores(int(n))
    np.save(Path(folder) / "scores.npy", scores)
    np.save(Path(folder) / "labels.npy", labels)
    return {}


def measure(folder: str) -> dict[str, float]:
    """Return median seconds of sort and fit, and peak memory before and after a first fit."""
    load_kernels()
    scores = np.load(Path(folder) / "scores.npy")
    labels = np.load(Path(folder) / "labels.npy")
    before = peak_memory()
    fit_thresholds(scores, labels)
    peak = peak_memory()  # the sorts come later: their memory is not the fit's
    pairs = time_pairs(scores, labels, REPEATS)
    return {
        "sort": median(p.sort for p in pairs),
        "fit": median(p.fit for p in pairs),
        "before": before,
        "peak": peak,
    }


def peak_memory() -> float:
    """Return the peak resident memory of this process in MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    print(json.dumps({"draw": draw, "measure": measure}[step](*arguments)))
