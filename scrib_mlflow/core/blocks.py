"""Blocks of rows: work on many of them that needs memory for few, and is quicker for it."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_ROWS = 65_536


def row_blocks(n: int) -> Iterator[slice]:
    """Yield slices that cover n rows in order."""
    for start in range(0, n, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n))
