"""Vector scaling: scores into probabilities that agree with labels, by two numbers a class.

probability of class k = softmax over classes of (slope_k * f_k + offset_k), where f is the log of
scores that are probabilities already, and any other scores as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import inputs as checks, newton
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.inputs import Floats, Labelled
from scrib_mlflow.core.rules import LEAST_SCORE, MOST_LEAST_SCORE, Recalibration
from scrib_mlflow.errors import InvalidScoresError
from scrib_mlflow.serving import recalibrated

LEAST_SLOPE, MOST_SLOPE, MOST_OFFSET = 0.02, 50.0, 50.0
WIDEST = 1.0  # variance of slopes around 1 and of offsets around 0 before rows are looked at
VARIANCES = (  # to choose from
    (25.0, 0.25, 1e-2, 1e-4),  # of what all slopes share
    (0.25, 0.05, 1e-2, 1e-3, 1e-4),  # of what each slope has of its own
    (1.0, 0.1, 1e-2, 1e-3, 1e-4),  # of offsets
)
LEAST_FALL = 1e-10  # of the log loss, in a step that is still worth it
MOST_STEPS = 100
BLOCK_ROWS = 2_048


@one_blas_thread()
def fit_recalibration(
    scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None
) -> Recalibration:
    """Return the vector scaling that labelled rows make likely.

    A row with a weight counts as that many rows. How far slopes may leave 1 and offsets 0 is what
    the rows themselves make most likely, so that scores that are calibrated stay nearly as they
    are, and everything is finite where rows are few, a class has none, or classes separate.
    """
    rows = checks.check_rows(scores, labels, None, sample_weight, least_rows=1, hard=True)
    of: Literal["log", "raw"]
    if checks.are_probabilities(rows.scores):
        of, scale = "log", 1.0
        lowest = rows.scores[rows.scores > 0].min()  # a score of 0, as of votes, is half of it
        least = float(np.clip(lowest / 2, LEAST_SCORE, MOST_LEAST_SCORE))
        inputs = np.log(np.maximum(rows.scores, least))
    else:
        of, scale, least = "raw", _spread(rows.scores, rows.weights), 0.0
        inputs = rows.scores / scale
    k = inputs.shape[1]
    columns = np.ascontiguousarray(inputs.T)  # sums over few classes are quick this way
    identity = np.concatenate([np.ones(k), np.zeros(k)])
    ridge = np.eye(2 * k) / WIDEST
    widest = _minimise(identity, columns, rows, ridge)
    precision = widest.second * rows.weights.sum()
    ridge = _likely_ridge(widest.x - identity, precision, k)
    x = _minimise(widest.x, columns, rows, ridge).x
    return Recalibration(
        slopes=tuple((x[:k] / scale).tolist()),
        offsets=tuple(x[k:].tolist()),
        of=of,
        least_score=least,
    )


def recalibrate(recalibration: Recalibration, scores: ArrayLike) -> Floats:
    """Return (n, k) probabilities."""
    checked = checks.check_scores(scores, least_rows=1)
    k = len(recalibration.slopes)
    if checked.shape[1] != k:
        raise InvalidScoresError(
            f"scores have {checked.shape[1]} columns, but the recalibration is of {k} classes"
        )
    plain = asdict(recalibration)
    chances = np.empty(checked.shape)
    for of in checks.row_blocks(len(checked)):
        chances[of] = recalibrated(plain, checked[of])
    return chances


def _spread(scores: Floats, weights: Floats) -> float:
    """Return the typical difference between the scores of a row, 1 where there is none."""
    squares = (scores - scores.mean(axis=1, keepdims=True)) ** 2
    spread = float(np.sqrt(np.mean(squares * weights[:, None]) / weights.mean()))
    return spread if np.isfinite(spread) and spread > 0 else 1.0


def _minimise(start: Floats, columns: Floats, rows: Labelled, ridge: Floats) -> newton.Point:
    """Return the slopes and offsets with the least penalised log loss."""
    k = len(columns)
    return newton.minimise(
        partial(_loss, columns=columns, rows=rows, ridge=ridge),
        start,
        np.repeat([LEAST_SLOPE, -MOST_OFFSET], k),
        np.repeat([MOST_SLOPE, MOST_OFFSET], k),
        least_fall=LEAST_FALL,
        most_steps=MOST_STEPS,
    )


def _loss(x: Floats, *, columns: Floats, rows: Labelled, ridge: Floats) -> newton.Point:
    """Return the log loss a row with its ridge, and the derivatives.

    Block by block: what a block needs stays in the processor's cache.
    """
    k, n = columns.shape
    away = np.concatenate([x[:k] - 1.0, x[k:]])
    gradient = ridge @ away
    loss = 0.5 * float(away @ gradient)
    second = ridge.copy()
    at = np.arange(k)
    for start in range(0, n, BLOCK_ROWS):
        of = slice(start, min(start + BLOCK_ROWS, n))
        features, weights, labels = columns[:, of], rows.weights[of], rows.labels[of]
        chances = features * x[:k, None] + x[k:, None]
        chances -= chances.max(axis=0)
        of_label = chances[labels, np.arange(len(labels))]
        np.exp(chances, out=chances)
        total = chances.sum(axis=0)
        chances /= total
        loss += float((np.log(total) - of_label) @ weights)
        root = np.sqrt(weights)  # a matrix by its own transpose takes half of the products
        pulls = np.concatenate([chances * features, chances]) * root  # by slopes, and by offsets
        second -= pulls @ pulls.T
        sums = pulls @ root
        second[at, at] += np.einsum("kn,kn->k", pulls[:k], features * root)
        second[at, at + k] += sums[:k]
        second[at + k, at] += sums[:k]
        second[at + k, at + k] += sums[k:]
        own = features[labels, np.arange(len(labels))]
        gradient += sums
        gradient[:k] -= np.bincount(labels, own * weights, k)
        gradient[k:] -= np.bincount(labels, weights, k)
    count = rows.weights.sum()
    return newton.Point(x, loss / count, gradient / count, second / count)


def _likely_ridge(away: Floats, precision: Floats, k: int) -> Floats:
    """Return the inverse of the variances under which these numbers are most likely.

    One of the three variances is chosen at a time, twice over.
    """
    error = np.linalg.inv(precision)

    def surprise(variances: Sequence[float]) -> float:
        """Return twice the negative log density of a normal variable, but for a constant."""
        factor = np.linalg.cholesky(_variances(variances, k) + error)
        return float(2 * np.log(np.diag(factor)).sum() + (np.linalg.solve(factor, away) ** 2).sum())

    chosen: Sequence[float] = [choices[0] for choices in VARIANCES]
    for which, choices in [*enumerate(VARIANCES)] * 2:
        tried = [[*chosen[:which], choice, *chosen[which + 1 :]] for choice in choices]
        chosen = min(tried, key=surprise)
    return np.asarray(np.linalg.inv(_variances(chosen, k)), dtype=np.float64)


def _variances(chosen: Sequence[float], k: int) -> Floats:
    """Return the covariance of slopes and offsets."""
    common, apart, offsets = chosen
    variances = np.diag(np.repeat([apart, offsets], k))
    variances[:k, :k] += common
    return variances
