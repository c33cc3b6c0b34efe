"""Rows as users give them, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.checks import (
    are_soft,
    check_classes,
    check_labels,
    check_scores,
    check_soft_labels,
    check_weights,
)
from scrib_mlflow.errors import InvalidWeightsError


class Labelled(NamedTuple):
    """Checked rows; `labels` are hard, or empty where they are soft."""

    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,) or (0,)
    soft: NDArray[np.float64]  # (0, k) or (n, k)
    weights: NDArray[np.float64]  # (n,)
    classes: tuple[str, ...]
    kept: NDArray[np.bool_]  # (rows given,) those with a weight above 0

    @property
    def counted(self) -> bool:
        """Whether every row counts as one."""
        return len(self.soft) == 0 and bool((self.weights == 1.0).all())

    def class_weight(self) -> NDArray[np.float64]:
        """Return the weight of each class's rows."""
        if len(self.soft):
            return self.soft.sum(axis=0)
        return np.bincount(self.labels, self.weights, len(self.classes)).astype(np.float64)


def check_rows(
    scores: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[object] | None,
    sample_weight: ArrayLike | None,
    *,
    least_rows: int = 2,
) -> Labelled:
    """Return checked rows, without those of weight 0."""
    checked = check_scores(scores, least_rows=least_rows)
    n, k = checked.shape
    names = check_classes(classes, k)
    weights = check_weights(sample_weight, n)
    hard, soft = np.zeros(0, dtype=np.int32), np.zeros((0, k))
    if are_soft(labels):
        soft = check_soft_labels(labels, (n, k)) * weights[:, None]
        weights = soft.sum(axis=1)
    else:
        hard = check_labels(labels, names, n)
    used = weights > 0
    if used.all():
        return Labelled(checked, hard, soft, weights, names, used)
    if np.count_nonzero(used) < least_rows:
        msg = (
            f"only {np.count_nonzero(used)} rows have a weight above 0, "
            f"but at least {least_rows} are needed"
        )
        raise InvalidWeightsError(msg)
    return Labelled(
        checked[used],
        hard[used] if len(hard) else hard,
        soft[used] if len(soft) else soft,
        weights[used],
        names,
        used,
    )
