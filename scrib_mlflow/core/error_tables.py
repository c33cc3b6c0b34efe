"""Errors that certify rows may hold, as tables that a search looks up.

One entry for every number of rows costs too much where rows are millions. Beyond `EXACT_ROWS` a
table has entries at even distances, and what lies between is interpolated: good enough to draw a
path, which proves nothing. What is claimed is computed by `core.bounds` and `core.tally`, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.bounds import allowed_errors, passing_errors, smooth_table

EXACT_ROWS = 16_384
COARSE_ENTRIES = 4_096


class ErrorTable(NamedTuple):
    """Errors among 0, stride, 2 stride, ... rows."""

    errors: NDArray[np.float64]
    stride: int = 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each entry."""
        return self.stride * np.arange(len(self.errors))

    def at(self, n: float) -> float:
        """Return the errors among n rows, those of the last entry beyond it."""
        return float(np.interp(n, self.rows, self.errors))


def smooth_errors(
    target: float, most_rows: int, confidence: float, z: float | None = None
) -> ErrorTable:
    """Return the errors that pass among at least 0 ... most_rows rows, smoothed.

    Without z those that are allowed; with it those to expect at the risk that passes with
    probability Phi(z).
    """
    if most_rows > EXACT_ROWS:
        return _coarse_errors(target, most_rows, confidence, z)
    if z is None:
        return ErrorTable(smooth_table(allowed_errors(target, most_rows, confidence)))
    return ErrorTable(smooth_table(passing_errors(target, most_rows, confidence, z)))


def soft_errors(table: ErrorTable, bias: float) -> ErrorTable:
    """Return a table in soft errors, of which each stands for `bias` of those to come."""
    if bias == 1.0:
        return table
    errors = table.errors
    return table._replace(errors=np.where(errors >= 0, errors / bias, errors))


def _coarse_errors(target: float, most_rows: int, confidence: float, z: float | None) -> ErrorTable:
    """Return a table with few entries: allowed errors are smoothed first, then passed on."""
    stride = -(-most_rows // COARSE_ENTRIES)
    rows = stride * np.arange(COARSE_ENTRIES + 1)
    half = np.ceil(np.sqrt(rows)).astype(np.int64)
    allowed = allowed_errors(target, int(rows[-1] + half[-1]), confidence)
    whole = allowed[rows - half] >= 0
    errors = allowed[rows]
    sums = np.cumsum(allowed, out=allowed)
    mean = (sums[rows + half] - sums[np.maximum(rows - half - 1, 0)]) / (2 * half + 1)
    errors = np.where(whole, mean, errors)
    if z is None:
        return ErrorTable(errors, stride)
    passes = errors >= 0
    risk = special.betaincinv(
        np.where(passes, errors + 1, 1.0),
        np.where(passes, rows - errors, 1.0),
        special.ndtr(-z),
    )
    return ErrorTable(np.where(passes, rows * risk, -1.0), stride)
