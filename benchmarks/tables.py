"""Tables as aligned plain text, and progress."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a title, the machine's facts, and rows with the first column to the left."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}\n{machine()}")
    for line in lines:
        first, *others = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join([first.strip().ljust(widths[0]), *others]))
    sys.stdout.flush()


def machine() -> str:
    """Return what the figures depend on: versions and cores."""
    versions = [f"{name} {version(name)}" for name in ("numpy", "numba")]
    return ", ".join([f"python {platform.python_version()}", *versions, f"{_cores()} cores"])


def progress(text: str) -> None:
    """Say on standard error what runs now."""
    print(f"... {text}", file=sys.stderr, flush=True)


def _cores() -> int | None:
    """Return how many cores this process may use."""
    usable = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if usable else os.cpu_count()
