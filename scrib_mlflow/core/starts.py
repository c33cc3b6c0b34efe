"""Where descents start: families of thresholds, each of which wins on some data."""

from __future__ import annotations

import numpy as np

from scrib_mlflow.core.kernels import HIGHEST
from scrib_mlflow.core.levels import Level
from scrib_mlflow.core.problem import SHARED, Data

FAMILIES = ("own", "other", "rank", "equal", "high", "other", "equal", "rank", "own", "high")
EQUAL_SHARES = (0.3, 0.6, 0.1, 0.9, 0.2, 0.45, 0.75, 0.05)


def start_cuts(level: Level, data: Data, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return start number `number`; the first ten are of ten kinds, then they come again."""
    highest = level.rows.groups[:, HIGHEST]
    draw = rng.random(len(highest))
    family = FAMILIES[number % len(FAMILIES)]
    if family == "rank":
        return (highest * draw).astype(np.int64)
    if family == "high":
        return (highest * (0.5 + 0.5 * draw)).astype(np.int64)
    if family == "equal":
        share = EQUAL_SHARES[(number // 3) % len(EQUAL_SHARES)]
        low, high = data.scores.min(), data.scores.max()
        return level.cuts(np.full(len(highest), (1 - share) * low + share * high))
    own = family == "own"
    quantiles = 0.5 * draw if own else 0.6 + 0.4 * draw
    if number == 0:
        quantiles = np.full(len(highest), 0.1)
    thresholds = [_quantile(data, g, q, own=own) for g, q in enumerate(quantiles)]
    return level.cuts(np.array(thresholds))


def _quantile(data: Data, g: int, q: float, *, own: bool) -> float:
    """Return a quantile of the scores at threshold g, over rows of its classes or the others."""
    column = data.column(g)
    served = data.thresholds[g]
    if len(data.labels) == 0:
        inside = column >= np.quantile(column, 0.8)
    elif served == SHARED:
        inside = np.isin(data.labels, data.sharing)
    else:
        inside = data.labels == served
    part = column[inside == own]
    return float(np.quantile(part if len(part) else column, q))
