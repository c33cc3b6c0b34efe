"""Answers that were given, read back: as `predict` writes them, from a log of requests, or anew.

Of each row only what a monitor counts is kept, some 60 bytes. The same lines make it here and in
Spark's workers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from scrib_mlflow import messages, preflight
from scrib_mlflow.core.inputs import is_blank, mix
from scrib_mlflow.core.monitoring import Served
from scrib_mlflow.core.monitoring.baseline import set_hashes
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, ScribError
from scrib_mlflow.predictions.answers import MANIFEST, PredictRequest, answer
from scrib_mlflow.records import Frame
from scrib_mlflow.results import Predictions, from_json
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.tables import UNLABELLED

LOGGER = logging.getLogger(__name__)

NEEDED = ("prediction", "reason", "prediction_set")  # what a row was answered
LISTS = {"prediction_set", "candidates", "classes", "scores", "thresholds", "multipliers"}
LISTS |= {"class_miscoverage"}
ROW_BYTES = 80  # of a slim row
NOT_SCORED = ("invalid_scores", "not_scored")  # reasons
REASONS = ("", "ambiguous", "empty", *NOT_SCORED)
TEXTS = ("prediction", "reason", "prediction_set", "candidates", "scores")  # of a csv
MEMBER = pa.string()
KINDS = {  # of what is kept of each row
    "rows": np.uint64,  # hash of what identifies it
    "contents": np.uint64,  # hash of all of it but its label
    "answers": np.int32,
    "sets": np.uint64,
    "sizes": np.int32,
    "scored": np.bool_,
    "top": np.float64,
    "labels": np.int32,
    "named": np.bool_,
    "groups": np.uint64,
    "audit": np.float64,
    "time": np.float64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slimmer:
    """What makes slim rows of answered ones; it is sent to Spark's workers."""

    what: str  # what errors call the table
    classes: tuple[str, ...]
    label: str | None = None
    key: str | None = None
    group: str | None = None
    time: str | None = None
    audit: str | None = None
    identity: tuple[str, ...] = ()  # columns by which a row is known again

    def slim(self, batch: pa.RecordBatch | pa.Table) -> dict[str, Any]:
        """Return arrays by name."""
        try:
            return self._slim(batch)
        except ScribError:
            raise
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(
                f"{self.what} cannot be read as answers: {messages.reason(error)}"
            ) from error

    def _slim(self, batch: pa.RecordBatch | pa.Table) -> dict[str, Any]:
        columns = {name: batch.column(name) for name in batch.schema.names}
        n = batch.num_rows
        reasons = _texts(columns["reason"])
        predictions = _texts(columns["prediction"])
        failed = (reasons == "") & (predictions == "")  # there was no answer at all
        scored = ~np.isin(reasons, NOT_SCORED) & ~failed
        rows, members = self._members(columns["prediction_set"], "prediction_set")
        plain = [name for name in self.identity if name not in LISTS]
        beside = [name for name in (self.key, self.group, self.time) if name is not None]
        frame = batch.select([*dict.fromkeys([*plain, *beside])]).to_pandas()
        sets = set_hashes(rows, members, n)
        answered = mix(sets) if LISTS & {*self.identity} else np.uint64(0)
        found: dict[str, Any] = {
            "contents": hashes.row_hashes(frame[plain]) + answered,
            "answers": self._answers(predictions, scored),
            "sets": sets,
            "sizes": np.bincount(rows, minlength=n),
            "scored": scored,
            "top": self._highest(columns.get("scores"), n),
        }
        self._check(reasons, found)
        found["rows"] = found["contents"]
        for option, name in (("rows", self.key), ("groups", self.group)):
            if name is not None:
                found[option] = self._hashes(frame[name], option)
        if self.label is not None:
            labels = self._labels(columns[self.label])
            found["labels"] = labels
            if "candidates" in columns:
                found["named"] = self._named(columns["candidates"], labels)
        if self.audit is not None:
            found["audit"] = _numbers(columns[self.audit], self.audit)
        if self.time is not None:
            found["time"] = self._seconds(frame[self.time])
        return {name: np.asarray(values, dtype=KINDS[name]) for name, values in found.items()}

    def _check(self, reasons: NDArray[Any], found: dict[str, Any]) -> None:
        """Raise for a row whose answer contradicts its reason or its set."""
        known = np.isin(reasons, REASONS)
        answered = found["answers"] >= 0
        fits = ((reasons == "") == answered) & (~answered | (found["sizes"] == 1))
        bad = np.flatnonzero(~known | (found["scored"] & ~fits))
        if len(bad):
            raise InvalidDataError(
                f"{self.what} has a row with the reason {reasons[bad[0]]!r} that its prediction "
                "or its prediction_set contradicts; are these the columns that the model served?"
            )

    def _answers(self, predictions: NDArray[Any], scored: NDArray[np.bool_]) -> NDArray[np.intp]:
        codes, distinct = pd.factorize(predictions)
        known = {name: j for j, name in enumerate(self.classes)} | {"": -1}
        unknown = [name for name in distinct if name not in known]
        if unknown:
            raise InvalidDataError(
                f"{self.what} has the prediction {unknown[0]!r}, no class of this version, whose "
                f"classes are {', '.join(self.classes[:10])}; were these rows answered by it?"
            )
        numbers = np.array([known[name] for name in distinct], dtype=np.int64)
        return np.where(scored, numbers[codes], -1)

    def _members(self, column: Any, name: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return row and class of each member of lists of class names."""
        lists = self._as_lists(column, name)
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        members = _texts(pc.list_flatten(lists))
        codes, distinct = pd.factorize(members)
        known = {name: j for j, name in enumerate(self.classes)}
        numbers = np.array([known.get(name, -1) for name in distinct], dtype=np.int64)
        if (numbers < 0).any():
            raise InvalidDataError(
                f"{self.what} names {distinct[int(np.argmin(numbers))]!r} in {name}, no class of "
                "this version; were these rows answered by it?"
            )
        return rows.astype(np.int64), numbers[codes]

    def _as_lists(self, column: Any, name: str, kind: pa.DataType = MEMBER) -> Any:
        """Return a column of lists, also where text holds them as JSON, as a csv does."""
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            if not _is_list(column.type):
                raise InvalidDataError(
                    f"column {name!r} of {self.what} holds {column.type}, but must hold lists of "
                    "class names, or JSON text of such lists"
                )
            return column
        codes, distinct = pd.factorize(_texts(column))
        try:
            lists = [json.loads(text or "[]") for text in distinct]
            parsed = pa.array(lists, pa.list_(kind))
        except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
            raise InvalidDataError(
                f"column {name!r} of {self.what} holds text that is no JSON list: "
                f"{messages.reason(error)}"
            ) from error
        return parsed.take(pa.array(codes))

    def _highest(self, column: Any, n: int) -> NDArray[np.float64]:
        """Return the highest score of each row, NaN without any."""
        top = np.full(n, -np.inf)
        if column is not None:
            lists = self._as_lists(column, "scores", pa.float64())
            rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
            values = pc.list_flatten(lists).cast(pa.float64()).to_numpy(zero_copy_only=False)
            np.maximum.at(top, rows.astype(np.int64), values)
        return np.where(np.isfinite(top), top, np.nan)

    def _labels(self, column: Any) -> NDArray[np.int32]:
        """Return labels as class indices, UNLABELLED where a row has none."""
        values = column.to_pandas()
        codes, distinct = pd.factorize(values, use_na_sentinel=False)
        listed = pd.Series(distinct)
        blank = np.array([is_blank(value) for value in listed.tolist()], dtype=np.bool_)
        numbers = np.full(len(listed), UNLABELLED, dtype=np.int32)
        if not blank.all():
            place = f"column {self.label!r} of {self.what}"
            numbers[~blank] = tables.label_indices(
                listed[~blank].reset_index(drop=True), self.classes, place=place
            )
        return numbers[codes]

    def _named(self, column: Any, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether the candidates of each row hold its label."""
        rows, members = self._members(column, "candidates")
        named = np.zeros(len(labels), dtype=np.bool_)
        named[rows[members == labels[rows]]] = True
        return named

    def _hashes(self, values: pd.Series, option: str) -> NDArray[np.uint64]:
        if values.isna().any():
            option = "key" if option == "rows" else "group"
            raise InvalidDataError(
                f"{self.what} has rows without a {option}; fill column {str(values.name)!r}"
            )
        return hashes.key_hashes(values)

    def _seconds(self, values: pd.Series) -> NDArray[Any]:
        """Return times in seconds since 1970; those without a zone are UTC."""
        if pd.api.types.is_numeric_dtype(values):
            raise InvalidDataError(
                f"column {str(values.name)!r} of {self.what} holds numbers; time names a column of "
                "dates or times"
            )
        try:
            times = pd.to_datetime(values, utc=True)
        except (ValueError, TypeError) as error:
            raise InvalidDataError(
                f"column {str(values.name)!r} of {self.what} holds no times: "
                f"{messages.reason(error)}"
            ) from error
        seconds = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
        return seconds.to_numpy(dtype=np.float64)


def _texts(column: Any) -> NDArray[Any]:
    """Return texts, "" where one is missing."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    values = column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.object_)


def _numbers(column: Any, name: str) -> NDArray[np.float64]:
    values = column.to_pandas()
    try:
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    except (ValueError, TypeError) as error:
        raise InvalidDataError(f"column {name!r} holds no numbers: {error}") from error


def _is_list(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind))


def identity(
    columns: Sequence[str], inputs: Sequence[str], beside: Sequence[str | None]
) -> tuple[str, ...]:
    """Return the columns by which rows are known again, whatever labels come to stand beside them.

    `inputs` are the model's, `beside` those that options name but for labels. Where there are none
    of these, all columns are.
    """
    known = [name for name in columns if name in {*inputs, *beside}]
    if {*inputs} & {*columns}:
        return tuple(known)
    return tuple(name for name in columns if not known or name in {*known, *NEEDED})


def has_answers(columns: Iterable[str]) -> bool:
    """Return whether a table says what its rows were answered."""
    return {*NEEDED} <= {*columns}


def read_local(
    source: tables.Source,
    slimmer: Slimmer,
    request: PredictRequest,
    load: Any,  # returns the model, where rows have to be answered
    batch_rows: int,
) -> dict[str, NDArray[Any]]:
    """Return the slim rows of a table."""
    parts, answered = [], has_answers(source.columns)
    model = None if answered else load()
    features = [] if answered else features_of(source.columns, slimmer, request)
    with messages.progress(what="reading data", unit="rows", total=source.n_rows) as bar:
        start = 0
        for batch in _record_batches(source, tables.BATCH_ROWS if answered else batch_rows):
            table = pa.Table.from_batches([batch])
            if model is not None:
                predict = partial(model.predict, params=request.parameters)
                table = with_answers(table, predict, features, request, start)
            parts.append(slimmer.slim(table))
            start += batch.num_rows
            bar.update(batch.num_rows)
    source.check_unchanged()
    return joined(parts)


def with_answers(
    table: pa.Table, predict: Any, features: list[str], request: PredictRequest, start: int | None
) -> pa.Table:
    """Return rows with what the model answers, in place of columns of the same names."""
    rows = table.select(features).to_pandas(ignore_metadata=True)
    answers = answer(predict, rows, request, start)
    kept = table.select([name for name in table.column_names if name not in answers.column_names])
    for name in answers.column_names:
        kept = kept.append_column(name, answers.column(name))
    return kept


def features_of(columns: Sequence[str], slimmer: Slimmer, request: PredictRequest) -> list[str]:
    """Return the columns that the model takes, where rows have to be answered."""
    beside = [slimmer.label, slimmer.key, slimmer.group, slimmer.time, slimmer.audit]
    leave_out = [name for name in beside if name is not None]
    taken = [name for name in leave_out if name in request.columns()]
    if taken:
        raise InvalidSettingsError(
            f"{taken[0]!r} is also a column of the answers, which {slimmer.what} gets now; rename "
            "that column of the data"
        )
    try:
        return tables.feature_names(slimmer.what, columns, request.inputs, leave_out)
    except InvalidDataError as error:
        raise InvalidDataError(
            f"{slimmer.what} holds no answers, which have the columns {', '.join(NEEDED)}, and "
            f"cannot be answered either: {error}"
        ) from error


def _record_batches(source: tables.Source, most: int) -> Iterator[pa.RecordBatch]:
    if not isinstance(source.held, pd.DataFrame):
        yield from source.record_batches(most, source.columns)
        return
    for rows in source.batches(most):
        yield pa.RecordBatch.from_pandas(rows, preserve_index=False)


def joined(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return slim rows of all parts."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def served_of(rows: Mapping[str, NDArray[Any]]) -> Served:
    """Return what slim rows were answered."""
    top = rows["top"]
    some = np.isfinite(top[rows["scored"]])
    known = bool(some.all())
    if some.any() and not known:
        LOGGER.warning("Only some answers have scores, so scores are not compared.")
    return Served(
        rows["answers"].astype(np.int64),
        rows["sets"],
        rows["sizes"].astype(np.int64),
        rows["scored"],
        np.where(rows["scored"], top, np.nan) if known else None,
    )


def check_made_by(data: str, uri: str, certificate_digest: str) -> None:
    """Raise where a folder of `predict` holds the answers of another version."""
    path = None if isinstance(data, Frame) else preflight.local_path(data)
    manifest = None if path is None else Path(path) / MANIFEST
    if manifest is None or not manifest.is_file():
        return
    with tables.readable(f"data {messages.shown(data)}"):
        record = from_json(manifest.read_text(encoding="utf-8"))
    if isinstance(record, Predictions) and record.certificate_digest != certificate_digest:
        raise InvalidDataError(
            f"the answers in {data} are of {record.model_uri}, not of {uri}; each version has a "
            "monitor of its own: name that version"
        )
