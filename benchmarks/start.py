"""What the first call costs: imports, kernels from disk or compiled, and whole commands."""

from __future__ import annotations

import tempfile
from statistics import median

from benchmarks import commands
from benchmarks.fresh import run_fresh
from benchmarks.tables import print_table, progress

REPEATS = 3
QUICK_REPEATS = 1
STEPS = {
    "import": "import scrib_mlflow",
    "core": "scrib_mlflow.fit_thresholds (imports the core)",
    "first": "first fit, N = 500, kernels on disk",
    "second": "second fit of the same data",
    "added": "first less second",
    "cold": "first less second, kernels not on disk (cold compile)",
}


def run(*, quick: bool) -> None:
    """Print the seconds of every step in fresh processes."""
    progress("start: kernels to disk")
    run_fresh("one_start")
    runs = [_measure(j) for j in range(QUICK_REPEATS if quick else REPEATS)]
    numbers = [f"run {j + 1}" for j in range(len(runs))]
    print_table(
        "Start, seconds in fresh processes",
        ["step", *numbers, "median"],
        [_row(text, [seen[step] for seen in runs]) for step, text in STEPS.items()],
    )
    commands.run(quick=quick)


def _measure(repeat: int) -> dict[str, float]:
    """Return the seconds of every step, with kernels on disk and without."""
    progress(f"start: run {repeat + 1}")
    warm = run_fresh("one_start")
    with tempfile.TemporaryDirectory() as empty:
        cold = run_fresh("one_start", NUMBA_CACHE_DIR=empty)
    return {
        **warm,
        "added": warm["first"] - warm["second"],
        "cold": cold["first"] - cold["second"],
    }


def _row(text: str, taken: list[float]) -> list[str]:
    """Return the cells of one step."""
    return [text, *(f"{x:.3f}" for x in [*taken, median(taken)])]
