"""Many classes: where the published method ends far off, or at infinity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import load_kernels, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores

ROWS = 10_000
MANY = 10  # saved outputs with more classes are fitted too


class Case(NamedTuple):
    """A number of classes, how far their signal is raised, and losses quoted from elsewhere."""

    k: int
    raised: float
    published: str  # 10 starts and 1,000 probes
    reachable: str


CASES = (
    Case(10, 2.0, "0.468", "0.398"),
    Case(50, 6.5, "0.809", "0.302"),
    Case(100, 8.0, "infinity", "0.234"),
)


def run(data: Path | None) -> None:
    """Print loss and seconds for growing numbers of classes."""
    load_kernels()
    rows = [_row("sd 3", *_draw(case), case.published, case.reachable) for case in CASES]
    saved = [outputs for outputs in read_outputs(data) if outputs.scores.shape[1] > MANY]
    print_table(
        "Many classes, 10 % targets",
        ["data", "N", "K", "loss", "seconds", "published", "reachable"],
        [*rows, *(_row(*outputs[:3], "-", "-") for outputs in saved)],
    )


def _draw(case: Case) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw rows of an easy class, a hard one, and middling ones, all raised."""
    signal = case.raised + np.array([9.0, 1.0] + [3.0] * (case.k - 2))
    return draw_scores(ROWS, signal=signal.tolist())


def _row(
    name: str, scores: NDArray[np.float64], labels: NDArray[np.int64], *quoted: str
) -> list[str]:
    """Fit once and return the cells."""
    n, k = scores.shape
    progress(f"classes: {name}, K = {k}")
    start = time.perf_counter()
    loss = fit_thresholds(scores, labels).loss
    seconds = time.perf_counter() - start
    return [name, f"{n:,}", str(k), f"{loss:.4f}", f"{seconds:.2f}", *quoted]
