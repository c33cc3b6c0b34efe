"""Progress of long work: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

IN_LOGS = "{desc}: {n:,} of {total:,}{unit}, {elapsed} gone, {remaining} to go\n"


def progress(items: Any = None, *, what: str, unit: str, total: int | None = None) -> Any:
    """Return a bar over items, or one that is told how far the work is."""
    moving = sys.stderr.isatty()
    return tqdm(
        items,
        total=total,
        desc=what,
        unit=f" {unit}",
        unit_scale=True,
        mininterval=0.1 if moving else 10,
        bar_format=None if moving else IN_LOGS,
    )
