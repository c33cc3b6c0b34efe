"""Tables that Spark reads: parquet files and tables of the catalog, digested by its workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.engines.spark.session import reason
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError, UnreadableDataError
from scrib_mlflow.messages import nearest, shown
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.tables import (
    SOME_ROWS,
    UNNAMED,
    TableLike,
    check_not_drawn,
    named_columns,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, SparkSession

MOST_LABELS = 10_000
LONGEST_TEXT = 200  # of a row that is named by its contents
ROW = "scrib row"  # struct of the columns of a table
OF_MLFLOW = {"runs", "models", "mlflow-artifacts", "http", "https", "databricks", "dbfs-artifacts"}


def read(spark: SparkSession, what: str, place: str) -> DataFrame:
    """Return the table at a path, or in the catalog; `what` is the option that names it."""
    called = f"{what} {place}"
    try:
        frame = _read(spark, place)
    except Exception as error:  # Spark and its file systems have errors of many kinds
        why = str(error) if type(error) is ValueError else reason(error)
        if "PATH_NOT_FOUND" in str(error):
            why = f"it does not exist; a relative path is looked up in {Path.cwd()}"
        raise UnreadableDataError(f"{called} cannot be read: {why}") from error
    frame = frame.drop(*filter(UNNAMED.fullmatch, frame.columns))
    if frame.isEmpty():
        raise InvalidDataError(f"{called} has no rows")
    return frame


def _read(spark: SparkSession, place: str) -> DataFrame:
    scheme = urlsplit(place).scheme
    if scheme in OF_MLFLOW:
        raise ValueError(
            f"Spark knows no {scheme}: addresses; download it to where all of Spark's workers can "
            "read it, or use engine=local"
        )
    if place.lower().endswith((".csv", ".csv.gz")):
        raise ValueError(
            "engine=spark reads parquet and tables of the catalog, because only a whole csv tells "
            "what its columns hold; use engine=local, or write it as parquet"
        )
    path = place
    if len(scheme) <= 1 and Path(place).exists():  # one letter is a Windows drive
        path = f"file://{as_pattern(Path(place).absolute().as_posix())}"
    if place.lower().endswith((".parquet", ".pq")) or scheme or Path(place).is_dir():
        return spark.read.parquet(path)
    if spark.catalog.tableExists(place):
        return spark.table(place)
    raise ValueError(
        "it is no table in Spark's catalog, and its ending is neither .parquet nor .pq"
    )


def as_pattern(path: str) -> str:
    """Return a path as Spark reads it, which is as a pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def column(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(f"`{name.replace('`', '``')}`")


def structure(names: Iterable[str]) -> Column:
    """Return a struct of columns."""
    return F.struct(*map(column, names))


def first_rows(frame: DataFrame, n: int) -> pd.DataFrame:
    """Return a few rows as the local engine would read them."""
    return frame.limit(n).toArrow().to_pandas()


def packed(frame: DataFrame) -> Column:
    """Return all columns of a table in one struct, because not all names reach workers."""
    return structure(frame.columns).alias(ROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable(TableLike):
    """A table whose rows stay in Spark."""

    frame: DataFrame
    labels: pd.Series | None  # the distinct values of its column of labels
    named: dict[str, str]  # its columns that identify and group rows, by "key" and "group"

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""
        return first_rows(self.frame, SOME_ROWS)


def read_table(
    spark: SparkSession,
    what: str,
    place: str,
    label: str | None,
    optional: Collection[str] = (),
    **options: str | None,
) -> SparkTable:
    """Return a table, digested; the options are those of `rows.tables.read_rows`."""
    frame = read(spark, what, place)
    check_not_drawn(what, frame.columns)
    if label is not None and label not in frame.columns:
        raise InvalidDataError(
            f"{what} {place} has no column {label!r} for the labels; "
            f"{nearest(label, frame.columns)}"
        )
    named = named_columns(what, options, frame.columns, optional)
    check_columns(frame, what, {"label": label, **named})
    digest, n = digest_rows(frame, label)
    return SparkTable(
        what=what,
        frame=frame,
        record=DataRecord(source=shown(place), digest=digest, n_rows=n, n_used=n),
        label=label,
        labels=None if label is None else _distinct_labels(frame, what, label),
        key=named.get("key"),
        beside=tuple(named.values()),
        named=named,
    )


def check_columns(frame: DataFrame, what: str, named: Mapping[str, str | None]) -> None:
    """Raise where a column that an option names is missing, or a value of it."""
    wanted = named_columns(what, named, frame.columns)
    if not wanted:
        return
    missing = {option: _is_missing(frame, name) for option, name in wanted.items()}
    counts = frame.agg(*(F.count_if(each).alias(option) for option, each in missing.items()))
    for option, n in counts.collect()[0].asDict().items():
        if n:
            text = F.to_json(structure(frame.columns))
            first = frame.filter(missing[option]).agg(F.min(text)).collect()[0][0]
            raise InvalidDataError(
                f"{n:,} rows of {what} have no {option}, the first of them {shorten(first)}; "
                f"fill column {wanted[option]!r}"
            )


def _is_missing(frame: DataFrame, name: str) -> Column:
    values = column(name)
    if frame.schema[name].dataType.simpleString() in {"float", "double"}:
        return values.isNull() | F.isnan(values)
    return values.isNull()


def shorten(text: str) -> str:
    """Return a text that a message can hold."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def digest_rows(frame: DataFrame, label: str | None = None) -> tuple[str, int]:
    """Return the digest of a table, and the number of its rows; labels count as text."""
    texts = [] if label is None else [label]

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = np.zeros(5, dtype=np.uint64)
        for batch in batches:
            sums += hashes.digest_sums(hashes.row_hashes(rows_of(batch), text=texts))
        yield pa.RecordBatch.from_pydict({"sums": [sums.tobytes()]})

    parts = frame.select(packed(frame)).mapInArrow(add, "sums binary").collect()
    sums = sum((np.frombuffer(part["sums"], np.uint64) for part in parts), np.zeros(5, np.uint64))
    return hashes.digest_of(frame.columns, sums), int(sums[0])


def rows_of(batch: pa.RecordBatch) -> pd.DataFrame:
    """Return rows that were packed, as the local engine would read them."""
    return pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()


def rows_with_hashes(frame: DataFrame, wanted: NDArray[np.uint64]) -> pd.DataFrame:
    """Return the rows whose contents have these hashes, which are the index."""
    known = np.unique(wanted)

    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = np.isin(hashes.row_hashes(rows_of(batch)), known)
            yield batch.filter(pa.array(found))

    rows = frame.select(packed(frame))
    kept = rows.mapInArrow(keep, rows.schema).toArrow()
    found = pa.Table.from_struct_array(kept.column(ROW)).to_pandas()
    return found.set_index(pd.Index(hashes.row_hashes(found)))


def _distinct_labels(frame: DataFrame, what: str, label: str) -> pd.Series:
    distinct = frame.select(column(label).alias("label")).distinct().limit(MOST_LABELS + 1)
    values = distinct.toArrow().column("label").to_pandas()
    if len(values) > MOST_LABELS:
        raise InvalidLabelsError(
            f"column {label!r} of {what} has more than {MOST_LABELS:,} different values, so it is "
            "no column of classes; name another with label"
        )
    return values.sort_values(ignore_index=True)
