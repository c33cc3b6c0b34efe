"""A set classifier that answers every row, also those that MLflow would refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.results import SetClassifier
from scrib_mlflow.rows import hashes, tables

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
    """Which set classifier answers, and which columns the output has."""

    record: SetClassifier
    inputs: Schema | None
    key: tuple[str, ...]
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


class Answers(NamedTuple):
    """The answers to a batch of rows."""

    table: pa.Table  # key columns, and answers
    digest_sums: NDArray[np.uint64]  # (5,) of the rows that were answered


class Written(NamedTuple):
    """What an output holds."""

    digest: str  # of the rows that were answered
    columns: dict[str, str]  # types by name
    parts: dict[str, int]  # rows by the name of the file
    reasons: Counter[str]  # rows by why they abstain, "" where they do not

    @property
    def n_rows(self) -> int:
        """Return the number of answers."""
        return sum(self.parts.values())


def check_columns(request: PredictRequest, data: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that the model takes; raise where one is missing, or names an answer."""
    for name in request.key:
        if name not in columns:
            raise InvalidDataError(
                f"data {data} has no column {name!r}, which key names; "
                f"{messages.nearest(name, columns)}"
            )
        if name in request.columns():
            raise InvalidSettingsError(
                f"key names {name!r}, which is also a column of the answers; rename that column of "
                "the data, or leave it out of key"
            )
    twice = [name for name, n in Counter(request.key).items() if n > 1]
    if twice:
        raise InvalidSettingsError(f"key names {twice[0]!r} more than once")
    empty = pd.DataFrame(columns=list(columns))
    features = tables.features(empty, request.inputs, request.key)
    if features is None:
        missing = tables.missing_features(empty, request.inputs)
        raise InvalidDataError(f"data {data} cannot be scored: {missing}")
    return [str(name) for name in features.columns]


def answer_table(
    model: PyFuncModel,
    source: tables.Source,
    features: list[str],
    request: PredictRequest,
    batch_rows: int,
) -> Iterator[Answers]:
    """Yield the answers to all rows in order, so many at a time."""
    start = 0
    with messages.progress(what="answering data", unit="rows", total=source.n_rows) as bar:
        for rows, key in _batches(source, batch_rows, list(request.key)):
            table = answer(model, rows[features], request, start)
            for i, name in enumerate(request.key):
                table = table.add_column(i, key.schema.field(name), key.column(name))
            yield Answers(table, hashes.digest_sums(hashes.row_hashes(rows)))
            start += len(rows)
            bar.update(len(rows))
    source.check_unchanged()


def _batches(
    source: tables.Source, most: int, key: list[str]
) -> Iterator[tuple[pd.DataFrame, pa.Table]]:
    """Yield rows in pandas, and their key columns in Arrow.

    pandas makes whole numbers with gaps floats, which cannot hold every one of them.
    """
    if isinstance(source.held, pd.DataFrame):
        columns = _plain(pa.Table.from_pandas(source.held[key], preserve_index=False))
        for i, rows in enumerate(source.batches(most)):
            yield rows, columns.slice(i * most, most)
        return
    for batch in source.record_batches(most, source.columns):
        columns = pa.Table.from_batches([batch]).select(key)
        yield batch.to_pandas(ignore_metadata=True), _plain(columns)


def _plain(table: pa.Table) -> pa.Table:
    """Return columns as parquet has them, without what pandas made of texts and categories."""
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_large_string(kind) else kind))
    return table.cast(pa.schema(fields))


def answer(model: PyFuncModel, rows: pd.DataFrame, request: PredictRequest, start: int) -> pa.Table:
    """Return one answer per row of features; a row that cannot be scored abstains.

    `start` is the number of the first row in its table, for errors.
    """
    whole = whole_rows(rows, request.inputs)
    # also where this batch has no gaps: one elsewhere may have made floats of whole numbers
    typed = without_gaps(rows[whole], request.inputs)
    answers = None
    try:
        if len(typed):
            answers = model.predict(typed, params={"explain": request.explain})
    except MlflowException as error:
        if serving.NONE_SCORED not in str(error):
            raise InvalidDataError(
                f"the model refuses rows {start} to {start + len(rows) - 1} of data: "
                f"{refusal(error)}"
            ) from error
    return complete(answers, whole, request)


def complete(answers: Any, whole: NDArray[np.bool_], request: PredictRequest) -> pa.Table:
    """Return one answer per row: those of whole rows, None if there are none; others abstain."""
    table = _as_table(request.invalid(0) if answers is None else answers, request)
    if table.num_rows == len(whole):
        return table
    padded = pa.concat_tables([table, _as_table(request.invalid(1), request)])
    row_numbers = np.full(len(whole), table.num_rows)  # of the abstention at the end
    if table.num_rows:
        row_numbers[whole] = np.arange(table.num_rows)
    return padded.take(pa.array(row_numbers))


def count_reasons(table: pa.Table) -> Counter[str]:
    """Return how many rows have which reason; it is "" where a label is given."""
    counted = table.column("reason").value_counts().to_pylist()
    return Counter({pair["values"]: pair["counts"] for pair in counted})


def none_scored(
    model: PyFuncModel, row: pd.DataFrame, inputs: Schema | None, data: str
) -> InvalidDataError:
    """Return the error of a table that the model cannot score, with what it says of a row."""
    why = "it gives no finite scores"
    try:
        model.predict(tables.as_typed(row, inputs))
    except Exception as error:  # whatever it is, the user wants to know
        why = messages.reason(error)
    return InvalidDataError(
        f"not one row of data {data} can be scored, so no output was made; the model says of the "
        f"first row: {why}"
    )


def refusal(error: Exception) -> str:
    """Return why MLflow refuses rows, without the rows and the schema that it repeats before."""
    _, marker, why = str(error).rpartition("Error: ")
    return messages.reason(ValueError(why) if marker else error)


def _as_table(answers: Any, request: PredictRequest) -> pa.Table:
    """Return answers, a frame or a mapping of columns, with the types that they must have."""
    kinds = request.columns().items()
    return pa.table({name: pa.array(answers[name], type=kind) for name, kind in kinds})


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
