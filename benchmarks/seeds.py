"""How much losses depend on the seed of the fit, where targets are hard to keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_thresholds

TARGETS = (0.2, 0.1)
SEEDS, QUICK_SEEDS = range(10), range(3)
SHAPES = (  # rows, classes, signal, rarest class
    (100_000, 8, 0.6, 1e-4),
    (30_000, 6, 0.9, 1e-3),
    (7_000, 8, 0.6, 1e-4),
    (5_000, 7, 0.9, 1e-3),
    (1_500, 6, 0.6, 1e-2),
)
GENERATOR_SEEDS = range(3, 6)  # settings were chosen on lower ones
FEATURES = 6
LEAST_ROWS = 9  # of a class


def run(data: Path | None, *, quick: bool) -> None:
    """Print losses over seeds on classes of very different size, and on saved outputs."""
    seeds = QUICK_SEEDS if quick else SEEDS
    rows = []
    for n, k, signal, rarest in SHAPES:
        for seed in GENERATOR_SEEDS:
            name = f"rarest class {rarest:g}, seed {seed}"
            rows += _rows(name, *draw_rare(n, k, signal, rarest, seed), seeds)
    for outputs in read_outputs(data):
        rows += _rows(*outputs, seeds)
    print_table(
        f"Losses over fit seeds 0..{max(seeds)}, the smallest class waived or not",
        ["data", "N", "K", "target", "waived", "best", "median", "worst", "worst / best"],
        rows,
    )


def draw_rare(
    n: int, k: int, signal: float, rarest: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw classes from common to rare, and what a weak model says of them: (n, k), (n,)."""
    rng = np.random.default_rng(seed)
    share = np.geomspace(0.4, rarest, k)
    share /= share.sum()
    labels = rng.choice(k, n, p=share)
    labels[: LEAST_ROWS * k] = np.repeat(np.arange(k), LEAST_ROWS)
    means = rng.normal(size=(k, FEATURES)) * signal * rng.uniform(0.3, 1.7, (k, 1))
    features = means[labels] + rng.normal(size=(n, FEATURES))
    logits = features @ means.T - 0.5 * (means**2).sum(axis=1) + np.log(share)
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True), labels


def _rows(
    name: str, scores: NDArray[np.float64], labels: NDArray[np.int64], seeds: range
) -> list[list[str]]:
    """Return a row for every target, with the smallest class waived and without."""
    n, k = scores.shape
    smallest = str(np.bincount(labels, minlength=k).argmin())
    rows = []
    for target in TARGETS:
        for waive in ((smallest,), ()):
            progress(f"seeds: {name}, target {target:g}, {len(waive)} waived")
            losses = [
                fit_thresholds(scores, labels, target, waive=waive, seed=seed).loss
                for seed in seeds
            ]
            best, worst = min(losses), max(losses)
            cells = [f"{x:.4f}" for x in (best, np.median(losses), worst, worst / best)]
            waived = ", ".join(waive) or "-"
            rows.append([name, f"{n:,}", str(k), f"{target:g}", waived, *cells])
    return rows
