"""Scores that stand in the data: they must be those that the model gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scrib_mlflow.adapters import scoring
from scrib_mlflow.core.checks import check_scores, nearest
from scrib_mlflow.errors import InvalidDataError, InvalidScoresError

TOLERANCE = 1e-4  # of the highest score, between scores in the data and those of the model


def given_scores(
    what: str,
    rows: pd.DataFrame,
    columns: list[str],
    scorer: scoring.Scorer,
    features: pd.DataFrame | None,
    example: Any,
) -> NDArray[np.float64]:
    """Return the scores that stand in the data, which must be those that the model serves."""
    if len(columns) != len(scorer.classes):
        msg = f"scores_from names {len(columns)} columns for the classes {[*scorer.classes]}"
        raise InvalidDataError(msg)
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        hint = nearest(missing[0], map(str, rows.columns))
        msg = f"{what} has no column {missing[0]!r} of scores; {hint}"
        raise InvalidDataError(msg)
    scores = check_scores(rows[columns].to_numpy(dtype=np.float64), least_rows=1)
    if features is None:
        _check_alike(what, scores, scorer, example)
    else:
        tried = scoring.spread(len(features), scoring.TRIED)
        own = scoring.score_table(
            scorer, features.iloc[tried], batch_rows=len(tried), what=f"some of {what}"
        )
        gap = np.abs(own - scores[tried]).max()
        if not gap <= TOLERANCE * np.abs(own).max():
            msg = (
                f"the scores in {what} differ by up to {gap:.3g} from those that the model "
                "gives for the same rows, so thresholds for them would not be the model's; leave "
                "scores_from out, or name the columns in the order of the model's classes, "
                f"{[*scorer.classes]}"
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
