"""Rows of a Spark table with what identifies them: hashes, class, group and order.

Hashes are those of `adapters.digests`, computed by the same lines in Spark's workers, where rows
arrive as the local engine reads them. They travel as the signed numbers of the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.adapters import digests, tables
from scrib_mlflow.adapters.spark_sums import as_signed, hashes, numbers, sum_over
from scrib_mlflow.core import split
from scrib_mlflow.core.checks import nearest
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

if TYPE_CHECKING:
    from mlflow.types import Schema
    from pyspark.sql import Column, DataFrame

UNLABELLED = -1
MOST_LABELS = 10_000
LONGEST_TEXT = 200  # of a row that is named by its contents
ROW = "scrib row"  # struct of the columns of a table
SCORES = "scrib scores"  # struct of s0, s1, … and error, beside the columns of a table
SLIM = {
    "label": "int",
    "row": "long",  # hash of all columns
    "key": "long",  # hash of what identifies the row; of its contents without such a column
    "grouped": "long",  # hash of the group
    "case": "long",  # hash of what the model is given, and of the class
    "unlabelled": "long",  # the same without the class
    "scores": "array<double>",
    "sets": "array<boolean>",  # empty where rows have scores only
    "error": "string",  # why the model gave no scores, "" where it did
    "name": "string",  # the key; without one the contents of rows with an error
}
AS_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "array<double>": pa.list_(pa.float64()),
    "array<boolean>": pa.list_(pa.bool_()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What the columns of a table are for."""

    what: str  # the parameter that names the table
    label: str | None
    key: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels that a table has, and their classes."""

    known: pd.Index
    indices: NDArray[np.int32]


def column(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(f"`{name.replace('`', '``')}`")


def check_roles(frame: DataFrame, roles: Roles) -> None:
    """Raise where a column is missing, or a value of it."""
    named = {"label": roles.label, "key": roles.key, "group": roles.group}
    asked = {option: name for option, name in named.items() if name is not None}
    for option, name in asked.items():
        if name not in frame.columns:
            hint = nearest(name, frame.columns)
            msg = f"{roles.what} has no column {name!r}, which {option} names; {hint}"
            raise InvalidDataError(msg)
    if not asked:
        return
    missing = {option: _is_missing(frame, name) for option, name in asked.items()}
    counts = frame.agg(*(F.count_if(each).alias(option) for option, each in missing.items()))
    for option, n in counts.collect()[0].asDict().items():
        if n:
            text = F.to_json(F.struct(*(column(each) for each in frame.columns)))
            first = frame.filter(missing[option]).agg(F.min(text)).collect()[0][0]
            msg = (
                f"{n:,} rows of {roles.what} have no {option}, the first of them "
                f"{_cut(first)}; fill column {asked[option]!r}"
            )
            raise InvalidDataError(msg)


def _is_missing(frame: DataFrame, name: str) -> Column:
    values = column(name)
    if frame.schema[name].dataType.simpleString() in {"float", "double"}:
        return values.isNull() | F.isnan(values)
    return values.isNull()


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def find_labels(frame: DataFrame, roles: Roles, classes: tuple[str, ...]) -> Labels | None:
    """Return the distinct labels of a table and their classes, None where it has no labels."""
    if roles.label is None:
        return None
    distinct = frame.select(column(roles.label).alias("label")).distinct().limit(MOST_LABELS + 1)
    values = distinct.toArrow().column("label").to_pandas()
    if len(values) > MOST_LABELS:
        msg = (
            f"column {roles.label!r} of {roles.what} has more than {MOST_LABELS:,} different "
            "values, so it is no column of classes; name another with label"
        )
        raise InvalidLabelsError(msg)
    values = values.sort_values(ignore_index=True)
    place = f"column {roles.label!r} of {roles.what}, of its different values"
    return Labels(
        known=pd.Index(values), indices=tables.label_indices(values, classes, place=place)
    )


def identify(
    frame: DataFrame,
    roles: Roles,
    labels: Labels | None,
    features: Sequence[str] | None,
    inputs: Schema | None,
    k: int,
) -> DataFrame:
    """Return slim rows: hashes, class and scores in place of the columns of a table.

    `frame` has the scores in the struct `SCORES`; without features they are what a case is.
    """

    def slim(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()
            given = None if features is None else tables.as_typed(rows[list(features)], inputs)
            yield _slim(rows, batch.column(SCORES), roles, labels, given, k)

    kinds = ", ".join(f"{name} {kind}" for name, kind in SLIM.items())
    return packed(frame).mapInArrow(slim, kinds)


def packed(frame: DataFrame) -> DataFrame:
    """Return a table with its own columns in one struct, because not all names reach workers."""
    own = [column(name) for name in frame.columns if name != SCORES]
    rest = [column(SCORES)] if SCORES in frame.columns else []
    return frame.select(F.struct(*own).alias(ROW), *rest)


def _slim(
    rows: pd.DataFrame,
    answers: pa.StructArray,
    roles: Roles,
    labels: Labels | None,
    features: pd.DataFrame | None,
    k: int,
) -> pa.RecordBatch:
    """Return the slim rows of a batch."""
    n = len(rows)
    index = np.full(n, UNLABELLED, dtype=np.int32)
    if labels is not None:
        places = labels.known.get_indexer(pd.Index(rows[roles.label]))
        if (places < 0).any():
            value = rows[roles.label].iloc[int(np.argmin(places))]
            msg = (
                f"{roles.what} changed while it was read: the label {value!r} is new; run it again"
            )
            raise InvalidDataError(msg)
        index = labels.indices[places]
    row = digests.row_hashes(rows, text=[] if roles.label is None else [roles.label])
    key = row if roles.key is None else digests.key_hashes(rows[roles.key])
    group = np.zeros(n, dtype=np.uint64)
    if roles.group is not None:
        group = digests.key_hashes(rows[roles.group])
    scores = _flat(answers, "s", k)
    errors = answers.field("error").to_pylist()
    given = pd.DataFrame(scores) if features is None else features
    columns = {
        "label": index,
        "row": as_signed(row),
        "key": as_signed(key),
        "grouped": as_signed(group),
        "case": as_signed(digests.case_hashes(given, index)),
        "unlabelled": as_signed(digests.case_hashes(given, np.full_like(index, UNLABELLED))),
        "scores": _lists(scores),
        "sets": _lists(_flat(answers, "m", k)),
        "error": errors,
        "name": _names(rows, roles.key, errors),
    }
    types = [AS_ARROW[kind] for kind in SLIM.values()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(SLIM))


def _flat(answers: pa.StructArray, letter: str, k: int) -> NDArray[Any]:
    """Return (n, k) the fields of a struct that a letter and a number name; (n, 0) without."""
    names = {field.name for field in answers.type}
    fields = [answers.field(f"{letter}{j}") for j in range(k) if f"{letter}{j}" in names]
    if not fields:
        return np.zeros((len(answers), 0), dtype=np.bool_)
    return np.column_stack([field.to_numpy(zero_copy_only=False) for field in fields])


def _lists(values: NDArray[Any]) -> pa.ListArray:
    """Return rows of equal length as Arrow's lists."""
    n, k = values.shape
    ends = np.arange(n + 1, dtype=np.int32) * k
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.ascontiguousarray(values).ravel()))


def _names(rows: pd.DataFrame, key: str | None, errors: list[str]) -> list[str | None]:
    """Return what rows are called: their key, or their contents where something is wrong."""
    if key is not None:
        return [str(value) for value in rows[key].tolist()]
    return [
        _cut(str(rows.iloc[place].to_dict())) if error else None
        for place, error in enumerate(errors)
    ]


def with_order(slim: DataFrame, seed: int, *, keyed: bool) -> DataFrame:
    """Return rows with their order, and that of their groups, as `core.split` defines them."""
    if keyed:  # no two rows have the same key
        numbered = slim.withColumn("occurrence", F.lit(0))
    else:
        alike = Window.partitionBy("label", "key").orderBy("key")
        numbered = slim.withColumn("occurrence", F.row_number().over(alike) - 1)

    def order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            occurrence = numbers(batch, "occurrence").astype(np.uint64)
            grouped = hashes(batch, "grouped")
            found = {
                "order": split.order_of(hashes(batch, "key"), occurrence, seed),
                "group_order": split.order_of(grouped, np.zeros_like(grouped), seed),
            }
            kept = [batch.column(name) for name in SLIM]
            orders = [pa.array(as_signed(values)) for values in found.values()]
            yield pa.RecordBatch.from_arrays([*kept, *orders], names=[*SLIM, *found])

    kinds = SLIM | {"order": "long", "group_order": "long"}
    return numbered.mapInArrow(order, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))


def check_unchanged(slim: DataFrame, columns: Sequence[str], digest: str, what: str) -> None:
    """Raise where rows that were scored are not those that were digested before."""

    def measure(batch: pa.RecordBatch) -> NDArray[np.uint64]:
        return digests.digest_sums(hashes(batch, "row"))

    sums = sum_over(slim.select("row"), measure, np.zeros(5, dtype=np.uint64))
    if digests.digest_of(columns, sums) != digest:
        msg = f"{what} changed while it was read; run it again when nothing writes to it"
        raise InvalidDataError(msg)


def digest_sums(frame: DataFrame, roles: Roles) -> NDArray[np.uint64]:
    """Return (5,) the sums that a digest of the table is made of."""
    texts = [] if roles.label is None else [roles.label]

    def measure(batch: pa.RecordBatch) -> NDArray[np.uint64]:
        rows = pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()
        return digests.digest_sums(digests.row_hashes(rows, text=texts))

    return sum_over(packed(frame), measure, np.zeros(5, dtype=np.uint64))
