"""A served set classifier that answers every row, also those that MLflow would not hand to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from mlflow.exceptions import MlflowException
from mlflow.types import DataType
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel
    from mlflow.types import Schema
from scrib_mlflow import messages, serving
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.results import SetClassifier
from scrib_mlflow.rows import tables

INVALID = "invalid_scores"
SERVED = {  # columns and their types, those of the served model's signature
    "prediction": pa.string(),
    "abstain": pa.bool_(),
    "reason": pa.string(),
    "prediction_set": pa.list_(pa.string()),
    "set_size": pa.int64(),
    "candidates": pa.list_(pa.string()),
}
NUMBERS = pa.list_(pa.float64())
GAPLESS = {DataType.integer: np.int64, DataType.long: np.int64, DataType.boolean: np.bool_}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """What is asked of a set classifier, and what it is."""

    record: SetClassifier
    inputs: Schema | None
    explain: bool

    def columns(self) -> dict[str, pa.DataType]:
        """Return the columns of answers, and their types."""
        if not self.explain:
            return dict(SERVED)
        return {**SERVED, **dict.fromkeys(self._explained(1), NUMBERS)}

    def invalid(self, n: int) -> dict[str, Any]:
        """Return the answers to rows that cannot be scored."""
        lists: list[list[str]] = [[] for _ in range(n)]
        answers = {
            "prediction": [""] * n,
            "abstain": [True] * n,
            "reason": [INVALID] * n,
            "prediction_set": lists,
            "set_size": [0] * n,
            "candidates": lists,
        }
        return {**answers, **self._explained(n)} if self.explain else answers

    def _explained(self, n: int) -> dict[str, Any]:
        scores = np.full((n, len(self.record.classes)), np.nan)
        return serving.explained_columns(
            asdict(self.record.rule), scores, self.record.class_miscoverage
        )


def answer(model: PyFuncModel, rows: pd.DataFrame, asked: PredictRequest, first: int) -> pa.Table:
    """Return an answer a row; a row that cannot be scored abstains, and the others are answered.

    `first` is the number of the first row in its table, for errors.
    """
    whole = whole_rows(rows, asked.inputs)
    # of a batch without gaps too: one elsewhere in its column has made floats of whole numbers
    given = without_gaps(rows[whole], asked.inputs)
    answers: Any = None
    try:
        if len(given):
            answers = model.predict(given, params={"explain": asked.explain})
    except MlflowException as error:
        if serving.NONE_SCORED not in str(error):
            msg = f"the model refuses rows {first} to {first + len(rows) - 1} of data: "
            raise InvalidDataError(msg + refusal(error)) from error
    found = as_table(asked.invalid(0) if answers is None else answers, asked)
    if found.num_rows == len(rows):
        return found
    # the answers, and behind them one of an invalid row for all others to point at
    padded = pa.concat_tables([found, as_table(asked.invalid(1), asked)])
    places = np.full(len(rows), found.num_rows)
    if found.num_rows:
        places[whole] = np.arange(found.num_rows)
    return padded.take(pa.array(places))


def refusal(error: Exception) -> str:
    """Return why MLflow refuses rows, without the rows and the schema that it repeats before."""
    _, found, why = str(error).rpartition("Error: ")
    return messages.reason(ValueError(why) if found else error)


def as_table(answers: Any, asked: PredictRequest) -> pa.Table:
    """Return answers, a frame or a mapping of columns, with the types that they must have."""
    arrays = {name: pa.array(answers[name], type=kind) for name, kind in asked.columns().items()}
    return pa.table(arrays)


def whole_rows(rows: pd.DataFrame, inputs: Schema | None) -> NDArray[np.bool_]:
    """Return which rows have a value wherever the signature asks for whole numbers or truths.

    MLflow refuses a batch for one that is missing, because pandas then holds the others as floats.
    """
    missing = np.zeros(len(rows), dtype=np.bool_)
    for name in _gapless(rows, inputs):
        missing |= rows[name].isna().to_numpy()
    return ~missing


def without_gaps(rows: pd.DataFrame, inputs: Schema | None) -> pd.DataFrame:
    """Return rows without missing values with the types that they would have had without gaps."""
    kinds = {
        name: kind for name, kind in _gapless(rows, inputs).items() if _may_be(rows[name], kind)
    }
    return tables.as_typed(rows.astype(kinds).reset_index(drop=True), inputs)


def _may_be(values: pd.Series, kind: Any) -> bool:
    if kind is np.bool_:
        return values.dtype == np.object_ and all(isinstance(value, bool) for value in values)
    exact = (values % 1 == 0) & (values.abs() <= 2**53) if values.dtype.kind == "f" else None
    return exact is not None and bool(exact.all())


def _gapless(rows: pd.DataFrame, inputs: Schema | None) -> dict[str, Any]:
    """Return the columns that hold no missing values by the signature."""
    if inputs is None or inputs.is_tensor_spec():
        return {}
    names = tables.input_names(inputs) or [str(name) for name in rows.columns]
    kinds = zip(names, inputs.input_types(), strict=False)  # MLflow refuses a wrong number of them
    return {
        name: GAPLESS[kind]
        for name, kind in kinds
        if name in rows and isinstance(kind, DataType) and kind in GAPLESS
    }
