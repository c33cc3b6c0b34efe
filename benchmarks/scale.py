"""A whole calibration as the rows grow: rows a second of each part, and memory, by engine."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.tables import print_table, progress

SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = SIZES[:1]
PARTS = ("reading", "scoring", "fitting", "certifying")


def run(*, quick: bool) -> None:
    """Print a table of the local engine, and one of Spark on this machine where it is installed."""
    sizes = QUICK_SIZES if quick else SIZES
    with tempfile.TemporaryDirectory() as folder:
        run_fresh("one_scale", "register", folder)
        for rule in ("thresholds", "optimal"):
            _print(folder, "local", rule, sizes)
        if importlib.util.find_spec("pyspark") is not None:
            _print(folder, "spark", "thresholds", sizes)


def _print(folder: str, engine: str, rule: str, sizes: Sequence[int]) -> None:
    measured = {n: _measure(folder, engine, rule, n) for n in sizes}
    parts = [part for part in PARTS if any(part in seen for seen in measured.values())]
    print_table(
        f"calibrate, engine={engine}, rule={rule}: rows a second, K = 5, 10 inputs, parquet; the "
        "fit rows are 30 %, at most a million of them searched, the others certify; the peak is of "
        "this Python, without and with the temporary files that the system holds in memory",
        ["N", *parts, "whole s", "whole rows/s", "peak GiB", "with files"],
        [_row(n, seen, parts) for n, seen in measured.items()],
    )


def _measure(folder: str, engine: str, rule: str, n: int) -> dict[str, Any]:
    progress(f"scale: engine={engine}, rule={rule}, N = {n:,}")
    run_fresh("one_scale", "draw", folder, str(n))
    return run_fresh("one_scale", "measure", folder, str(n), engine, rule)


def _row(n: int, seen: dict[str, Any], parts: Sequence[str]) -> list[str]:
    """Return the cells of one size."""
    speeds = [f"{seen['rows'][part] / seen[part]:,.0f}" if part in seen else "" for part in parts]
    whole = [f"{seen['whole']:.0f}", f"{n / seen['whole']:,.0f}"]
    memory = [f"{seen[name]:.2f}" for name in ("peak", "with files")]
    return [f"{n:,}", *speeds, *whole, *memory]
