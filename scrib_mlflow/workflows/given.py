"""Scores that stand in the data: they must be those that the model gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scrib_mlflow.adapters import scoring
from scrib_mlflow.core.checks import nearest
from scrib_mlflow.errors import InvalidDataError, InvalidScoresError

TOLERANCE = 1e-4  # of the highest score, between scores in the data and those of the model


def check_given(
    what: str,
    rows: pd.DataFrame,
    columns: Sequence[str],
    scorer: scoring.Scorer,
    features: pd.DataFrame | None,
    example: Any,
) -> None:
    """Raise unless some rows hold the scores that the model serves for them."""
    if len(columns) != len(scorer.classes):
        msg = f"scores_from names {len(columns)} columns for the classes {[*scorer.classes]}"
        raise InvalidDataError(msg)
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        hint = nearest(missing[0], map(str, rows.columns))
        msg = f"{what} has no column {missing[0]!r} of scores; {hint}"
        raise InvalidDataError(msg)
    scores = given_scores(what, rows, columns, np.arange(len(rows)))
    if features is None:
        _check_alike(what, scores, scorer, example)
        return
    check_same(what, scores, scorer, features, scoring.TRIED)


def check_same(
    what: str,
    scores: NDArray[np.float64],
    scorer: scoring.Scorer,
    features: pd.DataFrame,
    most: int,
) -> None:
    """Raise unless the model gives the same scores for so many of these rows."""
    tried = np.array(scoring.spread(len(features), most))
    own = scoring.score_rows(scorer, features.iloc[tried], tried, what)
    gap = np.abs(own - scores[tried]).max()
    if not gap <= TOLERANCE * np.abs(own).max():
        msg = (
            f"the scores in {what} differ by up to {gap:.3g} from those that the model "
            "gives for the same rows, so thresholds for them would not be the model's; leave "
            "scores_from out, or name the columns in the order of the model's classes, "
            f"{[*scorer.classes]}"
        )
        raise InvalidScoresError(msg)


def given_scores(
    what: str, rows: pd.DataFrame, columns: Sequence[str], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the scores that stand in rows, whose numbers in their table are `places`."""
    try:
        scores = rows[list(columns)].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        msg = f"the scores in {what} are not numbers: {error}"
        raise InvalidScoresError(msg) from error
    if not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0]
        msg = (
            f"row {places[row]} of {what} has the score {scores[row, column]} in column "
            f"{columns[column]!r}; drop or repair rows without a finite score for every class"
        )
        raise InvalidScoresError(msg)
    return scores


def _check_alike(
    what: str, scores: NDArray[np.float64], scorer: scoring.Scorer, example: Any
) -> None:
    """Raise where only one of the scores in the data and those of the model are probabilities."""
    own, _ = scoring.as_served(scorer, example)
    if _sum_to_one(own) != _sum_to_one(scores):
        which = ("probabilities", "none") if _sum_to_one(own) else ("no probabilities", "some")
        msg = (
            f"the model gives {which[0]}, but the scores in {what} are {which[1]}; give the "
            "scores as the model does, or rows with its inputs"
        )
        raise InvalidScoresError(msg)


def _sum_to_one(scores: NDArray[np.float64]) -> bool:
    return bool(np.allclose(scores.sum(axis=1), 1, atol=1e-3))
