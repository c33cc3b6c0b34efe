"""Score rows with a registered model, as it would when served."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters.sources import Transform, find_source
from scrib_mlflow.adapters.stores import model_info, reason
from scrib_mlflow.errors import InvalidDataError, InvalidScoresError, ModelError
from scrib_mlflow.results import Base, ScoreSource
from scrib_mlflow.serving import (
    call_model,
    native_model,
    read_scores,
    row_count,
    rows_between,
)
from scrib_mlflow.serving import score_rows as score_one_by_one

TRIED = 50  # rows on which the place of the scores is found
ALONE = 5  # of these are scored one by one as well
TOLERANCE = 1e-3  # of the highest score; a GPU gives single rows slightly other scores
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A loaded model, where its scores are, and what its classes are called."""

    model: PyFuncModel
    source: ScoreSource
    classes: tuple[str, ...]

    def predict(self, rows: Any) -> Any:
        """Return the scores of rows and the errors by row; MLflow calls this with checked rows."""
        native, source, k = native_model(self.model), asdict(self.source), len(self.classes)
        return score_one_by_one(
            lambda part: read_scores(call_model(self.model, native, source, part), source, k),
            rows,
            k,
        )


def load_model(uri: str) -> PyFuncModel:
    """Return a registered model, or say what is missing to load it."""
    try:
        return mlflow.pyfunc.load_model(uri)
    except ImportError as error:
        msg = (
            f"{uri} cannot be loaded: {error}; install what it needs with "
            f'pip install -r $(python -c "import mlflow; '
            f"print(mlflow.pyfunc.get_model_dependencies('{uri}'))\")"
        )
        raise ModelError(msg) from error
    except Exception as error:
        msg = f"{uri} cannot be loaded: {type(error).__name__}: {reason(error)}"
        raise ModelError(msg) from error


def check_is_base(base: Base) -> None:
    """Raise unless MLflow can call the model, and it is no set classifier already."""
    info = model_info(base.uri)
    if "python_function" not in info.flavors:
        msg = f"{base.uri} has no python_function flavour, so MLflow cannot call it; log it again"
        raise ModelError(msg)
    if (info.metadata or {}).get("scrib_schema_version"):
        msg = (
            f"{base.uri} is a set classifier already; calibrate the model inside it, which its "
            "tag scrib.base_model names"
        )
        raise ModelError(msg)


def input_example(uri: str) -> Any:
    """Return the rows that a model was logged with, None where there are none."""
    try:
        return Model.load(uri).load_input_example(uri)
    except (MlflowException, OSError):
        return None


def make_scorer(
    model: PyFuncModel,
    rows: Any,
    *,
    wanted: str,
    classes: tuple[str, ...] | None,
    transform: Transform,
) -> Scorer:
    """Find where the model's scores are, on a few rows."""
    found: list[tuple[ScoreSource, tuple[str, ...]]] = []

    class Finder:
        """Takes the rows as MLflow hands them to a model, after checking them."""

        def predict(self, checked: Any) -> None:
            found.append(
                find_source(model, checked, wanted=wanted, classes=classes, transform=transform)
            )

    _as_served(model.metadata, Finder(), rows)
    source, names = found[0]
    scorer = Scorer(model=model, source=source, classes=names)
    _check_alone(scorer, rows)
    return scorer


def _check_alone(scorer: Scorer, rows: Any) -> None:
    """Raise where rows get other scores alone than among others: no threshold would fit both."""
    together, _ = as_served(scorer, rows)
    if not np.isfinite(together).any():
        return
    allowed = TOLERANCE * np.abs(together[np.isfinite(together)]).max()
    for row in spread(row_count(rows), ALONE):
        part = rows_between(rows, row, row + 1)
        alone, failed = as_served(scorer, part)
        if not np.allclose(alone, together[[row]], rtol=0, atol=allowed, equal_nan=True):
            found = failed.get(0, [float(f"{score:.3g}") for score in alone[0]])
            msg = (
                f"row {row} of those tried has the scores "
                f"{[float(f'{score:.3g}') for score in together[row]]} among {len(together)} rows, "
                f"but alone {found}; the model must score each row by itself, and the same each "
                "time (no dropout, no statistics of the batch)"
            )
            raise ModelError(msg)


def spread(n: int, most: int) -> list[int]:
    """Return up to so many row numbers, evenly from the first to the last of n rows."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)).tolist()


def some_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return some rows to try a model on."""
    return rows.iloc[spread(len(rows), TRIED)]


def score_rows(
    scorer: Scorer, rows: pd.DataFrame, places: NDArray[np.int64], what: str
) -> NDArray[np.float64]:
    """Return (n, k) scores; the first rows that cannot be scored are an error.

    `places` are the numbers of the rows in the table `what`.
    """
    scores, failed = as_served(scorer, rows)
    if failed:
        raise _cannot_score(what, places, failed)
    if not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0]
        msg = (
            f"row {places[row]} of {what} has the score {scores[row, column]} for class "
            f"{scorer.classes[column]!r}; drop or repair rows that the model cannot score"
        )
        raise InvalidScoresError(msg)
    return scores


def as_served(scorer: Scorer, rows: Any) -> tuple[NDArray[np.float64], dict[int, Exception]]:
    """Return the scores of rows, checked as MLflow does when serving, and the errors by row."""
    return _as_served(scorer.model.metadata, scorer, rows)


def _as_served(metadata: Model, implementation: Any, rows: Any) -> Any:
    """Call with rows that MLflow has checked against the signature, as it does when serving."""
    if isinstance(rows, pd.DataFrame):
        rows = rows.reset_index(drop=True)  # as in a request; a model may look at it
    try:
        return PyFuncModel(metadata, implementation).predict(rows)
    except MlflowException as error:
        msg = f"the data do not fit the model's signature: {reason(error)}"
        raise InvalidDataError(msg) from error


def _cannot_score(what: str, places: NDArray[np.int64], failed: dict[int, Exception]) -> ModelError:
    first = min(failed)
    error = failed[first]
    others = [places[row] for row in sorted(failed)[1:SHOWN]]
    also = f" (also rows {', '.join(map(str, others))}{' …' if len(failed) > SHOWN else ''})"
    return ModelError(
        f"the model cannot score row {places[first]} of {what}{also if others else ''}: "
        f"{type(error).__name__}: {reason(error)}; drop or repair such rows"
    )
