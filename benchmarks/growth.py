"""Time and memory of a fit as the rows grow; every size in a fresh process."""

from __future__ import annotations

import math
import tempfile
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.tables import print_table, progress

SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = SIZES[:2]


def run(*, quick: bool) -> None:
    """Print seconds and peak memory for growing sizes."""
    run_fresh("one_start")  # kernels are on disk from here on
    measured = {n: _measure(n) for n in (QUICK_SIZES if quick else SIZES)}
    first = _unit(*next(iter(measured.items())))
    print_table(
        "Growth, K = 5, sd 3, a fresh process each; peak MiB before the fit (data, libraries) and "
        "after",
        ["N", "argsort s", "fit s", "ratio", "per N log N", "before MiB", "peak MiB"],
        [_row(n, seen, _unit(n, seen) / first) for n, seen in measured.items()],
    )


def _measure(n: int) -> dict[str, Any]:
    """Draw rows in one process and fit them in another, whose memory holds nothing else."""
    progress(f"growth: N = {n:,}")
    with tempfile.TemporaryDirectory() as folder:
        run_fresh("one_size", "draw", folder, str(n))
        return run_fresh("one_size", "measure", folder)


def _unit(n: int, seen: dict[str, Any]) -> float:
    """Return the seconds of the fit for each N log N."""
    return seen["fit"] / (n * math.log2(n))


def _row(n: int, seen: dict[str, Any], growth: float) -> list[str]:
    """Return the cells of one size."""
    times = [f"{seen['sort']:.3f}", f"{seen['fit']:.3f}", f"{seen['fit'] / seen['sort']:.1f}"]
    memory = [f"{seen['before']:,.0f}", f"{seen['peak']:,.0f}"]
    return [f"{n:,}", *times, f"{growth:.2f}", *memory]
