"""Tables that Spark reads: parquet files and tables of the catalog, digested by its workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.engines.base import without_missing
from scrib_mlflow.engines.spark.session import reason
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.messages import nearest
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.tables import SOME_ROWS, UNNAMED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

MOST_LABELS = 10_000
LONGEST_TEXT = 200  # of a row that is named by its contents
ROW = "scrib row"  # struct of the columns of a table
OF_MLFLOW = {"runs", "models", "mlflow-artifacts", "http", "https", "databricks", "dbfs-artifacts"}


def read(spark: SparkSession, what: str, place: str) -> DataFrame:
    """Return the table at a path, or in the catalog; `what` is the option that names it."""
    called = f"{what} {place}"
    try:
        frame = _read(spark, called, place)
    except InvalidDataError:
        raise
    except Exception as error:  # Spark and its file systems have errors of many kinds
        raise InvalidDataError(f"{called} cannot be read: {_why(error)}") from error
    frame = frame.drop(*(name for name in frame.columns if UNNAMED.fullmatch(name)))
    if frame.isEmpty():
        raise InvalidDataError(f"{called} has no rows")
    return frame


def _why(error: Exception) -> str:
    if "PATH_NOT_FOUND" in str(error):
        return f"it does not exist; a relative path is looked up in {Path.cwd()}"
    return reason(error)


def _read(spark: SparkSession, called: str, place: str) -> DataFrame:
    scheme = urlsplit(place).scheme
    if scheme in OF_MLFLOW:
        raise InvalidDataError(
            f"{called} cannot be read: Spark knows no {scheme}: addresses; download it to where "
            "all of Spark's workers can read it, or use engine=local"
        )
    if place.lower().endswith((".csv", ".csv.gz")):
        raise InvalidDataError(
            f"{called} cannot be read: engine=spark reads parquet and tables of the catalog, "
            "because only a whole csv tells what its columns hold; use engine=local, or write it "
            "as parquet"
        )
    path = place
    if len(scheme) <= 1 and Path(place).exists():  # one letter is a Windows drive
        path = spark_path(Path(place))
    if place.lower().endswith((".parquet", ".pq")) or scheme or Path(place).is_dir():
        return spark.read.parquet(path)
    if spark.catalog.tableExists(place):
        return spark.table(place)
    raise InvalidDataError(
        f"{called} cannot be read: it is no table in Spark's catalog, and its ending is neither "
        ".parquet nor .pq"
    )


def spark_path(path: Path) -> str:
    """Return a path of this machine as Spark reads it: as a pattern, without percent codes."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", path.absolute().as_posix())


def column(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(f"`{name.replace('`', '``')}`")


def first_rows(frame: DataFrame, names: Sequence[str] | None, n: int) -> pd.DataFrame:
    """Return a few rows as the local engine would read them."""
    wanted = frame.columns if names is None else names
    return frame.select(*(column(name) for name in wanted)).limit(n).toArrow().to_pandas()


def packed(frame: DataFrame) -> Column:
    """Return all columns of a table in one struct, because not all names reach workers."""
    return F.struct(*(column(name) for name in frame.columns)).alias(ROW)


def sum_over(
    frame: DataFrame, measure: Callable[[pa.RecordBatch], NDArray[Any]], start: NDArray[Any]
) -> NDArray[Any]:
    """Return the sum over all rows of an array that is measured batch by batch.

    `start` is what no rows give: zeros of the shape and the type of the sum.
    """

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = start.copy()
        for batch in batches:
            if batch.num_rows:
                total += measure(batch)
        yield pa.RecordBatch.from_pydict({"sums": [total.tobytes()]})

    total = start.copy()
    for row in frame.mapInArrow(add, "sums binary").collect():
        total += np.frombuffer(row["sums"], dtype=start.dtype).reshape(start.shape)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """A table whose rows stay in Spark."""

    what: str  # the parameter that names it
    frame: DataFrame
    record: DataRecord
    label: str | None
    labels: pd.Series | None  # the distinct values of that column
    key: str | None
    group: str | None

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are no inputs: those that identify and group rows."""
        return tuple(name for name in (self.key, self.group) if name is not None)

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""
        return first_rows(self.frame, None, SOME_ROWS)


def read_table(
    spark: SparkSession,
    what: str,
    place: str,
    label: str | None,
    *,
    key: str | None,
    group: str | None,
    optional: Collection[str] = (),
) -> SparkTable:
    """Return a table, digested; a column that key or group names may be missing if `optional`."""
    frame = read(spark, what, place)
    if label is not None and label not in frame.columns:
        raise InvalidDataError(
            f"{what} {place} has no column {label!r} for the labels; "
            f"{nearest(label, frame.columns)}"
        )
    named = without_missing({"key": key, "group": group}, frame.columns, optional)
    check_columns(frame, what, {"label": label, **named})
    sums = digest_sums(frame, label)
    n = int(sums[0])
    digest = hashes.digest_of(frame.columns, sums)
    return SparkTable(
        what=what,
        frame=frame,
        record=DataRecord(source=place, digest=digest, n_rows=n, n_used=n),
        label=label,
        labels=None if label is None else _distinct_labels(frame, what, label),
        **named,
    )


def check_columns(frame: DataFrame, what: str, named: dict[str, str | None]) -> None:
    """Raise where a column that an option names is missing, or a value of it."""
    wanted = {option: name for option, name in named.items() if name is not None}
    for option, name in wanted.items():
        if name not in frame.columns:
            hint = nearest(name, frame.columns)
            raise InvalidDataError(f"{what} has no column {name!r}, which {option} names; {hint}")
    if not wanted:
        return
    missing = {option: _is_missing(frame, name) for option, name in wanted.items()}
    counts = frame.agg(*(F.count_if(each).alias(option) for option, each in missing.items()))
    for option, n in counts.collect()[0].asDict().items():
        if n:
            text = F.to_json(F.struct(*(column(each) for each in frame.columns)))
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


def digest_sums(frame: DataFrame, label: str | None) -> NDArray[np.uint64]:
    """Return (5,) the sums that a digest of the table is made of."""
    texts = [] if label is None else [label]

    def measure(batch: pa.RecordBatch) -> NDArray[np.uint64]:
        return hashes.digest_sums(hashes.row_hashes(rows_of(batch), text=texts))

    return sum_over(frame.select(packed(frame)), measure, np.zeros(5, dtype=np.uint64))


def rows_of(batch: pa.RecordBatch) -> pd.DataFrame:
    """Return rows that were packed, as the local engine would read them."""
    return pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()


def _distinct_labels(frame: DataFrame, what: str, label: str) -> pd.Series:
    distinct = frame.select(column(label).alias("label")).distinct().limit(MOST_LABELS + 1)
    values = distinct.toArrow().column("label").to_pandas()
    if len(values) > MOST_LABELS:
        raise InvalidLabelsError(
            f"column {label!r} of {what} has more than {MOST_LABELS:,} different values, so it is "
            "no column of classes; name another with label"
        )
    return values.sort_values(ignore_index=True)
