"""Losses of the default fit beside the published method's and those of a long run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import NOISES, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores

SIZES = (2_000, 10_000, 42_000, 100_000)
# Quoted, not computed here: the published method (10 starts and 1,000 probes) on the data of
# generator seed 0, with 10 % targets and a penalty of 1e4; and the best that was known besides.
PUBLISHED = {
    "sd 3": ("0.2830", "0.3460", "0.3035", "0.3046"),
    "variance 3": ("0.4600", "0.4696", "0.4549", "0.4681"),
}
KNOWN = {
    "sd 3": ("0.2820", "0.3362", "0.3000", "0.3045"),
    "variance 3": ("0.4570", "0.4650", "-", "-"),
}
FIT_SEEDS = range(5)
LONG_EFFORT, LONG_SEEDS = 20.0, range(3)  # hundreds of starts each
QUICK_EFFORT, QUICK_SEEDS = 4.0, range(1)
MEASURED = ("loss", "mean", "worst")
COMPARED = ("long run", "best", "excess %", "worst %")


class Losses(NamedTuple):
    """Losses of default fits, by seed, and the best of a long run."""

    default: list[float]
    long: float

    def measured(self) -> list[str]:
        """Return the cells of seed 0, of the mean and of the worst."""
        return [f"{x:.5f}" for x in (self.default[0], np.mean(self.default), max(self.default))]

    def compared(self) -> list[str]:
        """Return the cells of the long run and of what default fits are above the best of all."""
        best = min(self.long, *self.default)
        excess = [100 * (x / best - 1) for x in (self.default[0], max(self.default))]
        return [f"{x:.5f}" for x in (self.long, best)] + [f"{x:.2f}" for x in excess]


def run(data: Path | None, *, quick: bool) -> None:
    """Print the losses on the published data, then those on other seeds and saved outputs."""
    effort, seeds = _long(quick=quick)
    note = (
        f"mean and worst of fit seeds 0..{max(FIT_SEEDS)}; "
        f"long run: effort {effort:g}, seeds 0..{max(seeds)}; excess over the best of all these"
    )
    print_table(
        f"Losses at 10 % targets, generator seed 0 ({note})",
        ["noise", "N", *MEASURED, "published", "known", *COMPARED],
        _published_rows(quick=quick),
    )
    print_table(
        f"Losses at 10 % targets, other data ({note})",
        ["data", "N", "K", *MEASURED, *COMPARED],
        [*_generated_rows(quick=quick), *_saved_rows(data, quick=quick)],
    )


def _published_rows(*, quick: bool) -> list[list[str]]:
    """Return a row for every noise and size with published losses."""
    rows = []
    for noise, sd in NOISES.items():
        for n, published, known in zip(SIZES, PUBLISHED[noise], KNOWN[noise], strict=True):
            progress(f"losses: {noise}, N = {n:,}")
            found = _losses(*draw_scores(n, noise=sd), quick=quick)
            quoted = [published, known]
            rows.append([noise, f"{n:,}", *found.measured(), *quoted, *found.compared()])
    return rows


def _generated_rows(*, quick: bool) -> list[list[str]]:
    """Return a row for every noise and size of generator seeds that have no published loss."""
    rows = []
    for seed in (1, 2):
        for noise, sd in NOISES.items():
            for n in SIZES:
                name = f"{noise}, seed {seed}"
                rows.append(_row(name, *draw_scores(n, noise=sd, seed=seed), quick=quick))
    return rows


def _saved_rows(data: Path | None, *, quick: bool) -> list[list[str]]:
    """Return a row for every saved output."""
    return [_row(*outputs[:3], quick=quick) for outputs in read_outputs(data)]


def _row(
    name: str, scores: NDArray[np.float64], labels: NDArray[np.int64], *, quick: bool
) -> list[str]:
    """Return the cells of data without a published loss."""
    n, k = scores.shape
    progress(f"losses: {name}, N = {n:,}")
    found = _losses(scores, labels, quick=quick)
    return [name, f"{n:,}", str(k), *found.measured(), *found.compared()]


def _losses(scores: NDArray[np.float64], labels: NDArray[np.int64], *, quick: bool) -> Losses:
    """Fit with every seed as users do, and at length."""
    effort, seeds = _long(quick=quick)
    return Losses(
        [fit_thresholds(scores, labels, seed=seed).loss for seed in FIT_SEEDS],
        min(fit_thresholds(scores, labels, effort=effort, seed=seed).loss for seed in seeds),
    )


def _long(*, quick: bool) -> tuple[float, range]:
    """Return effort and seeds of a long run."""
    return (QUICK_EFFORT, QUICK_SEEDS) if quick else (LONG_EFFORT, LONG_SEEDS)
