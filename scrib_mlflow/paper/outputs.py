"""What the experiments run on: a classifier's scores of rows that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.rows import Labelled, check_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """Scores of labelled rows, by the name of their data."""

    name: str
    scores: Floats  # (n, k)
    labels: NDArray[np.int64]  # (n,) indices
    classes: tuple[str, ...]
    target: float  # asked of every class
    origin: str  # where the data come from, and under which licence
    groups: NDArray[np.int64] | None = None  # (n,) what rows belong together
    trust: Floats | None = None  # (n,) how sure a row is by Monte-Carlo dropout

    def rows(self) -> Labelled:
        """Return the rows as the core takes them."""
        return check_rows(self.scores, self.named(), self.classes, None)

    def named(self) -> NDArray[np.str_]:
        """Return the label of each row by name, which cannot be mistaken for an index."""
        return np.array(self.classes)[self.labels]

    def top_risk(self) -> float:
        """Return how often the class with the highest score is wrong."""
        return float(np.mean(self.scores.argmax(axis=1) != self.labels))
