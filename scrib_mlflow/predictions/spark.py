"""Folders of answers on file systems that only Spark knows: HDFS, S3 and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from scrib_mlflow import serving
from scrib_mlflow.engines.spark.scoring import quietly
from scrib_mlflow.engines.spark.session import settings
from scrib_mlflow.engines.spark.tables import column, spark_path, sum_over
from scrib_mlflow.errors import InvalidDataError, OutputError, ScribError
from scrib_mlflow.predictions.answers import (
    NUMBERS,
    SERVED,
    PredictRequest,
    refusal,
    whole_rows,
    without_gaps,
)
from scrib_mlflow.predictions.files import MANIFEST, delete, n_rows_of, write_text
from scrib_mlflow.records import seal
from scrib_mlflow.results import Predictions, from_json, to_json
from scrib_mlflow.rows import hashes, tables

LONGEST_ROW = 200
ANSWER = "scrib answer"
AS_SPARK = {str(NUMBERS): "array<double>"} | {
    str(kind): name
    for kind, name in zip(
        SERVED.values(),
        ("string", "boolean", "string", "array<string>", "bigint", "array<string>"),
        strict=True,
    )
}
MOST_SLICES = 20


def served_function(session: SparkSession, uri: str, asked: PredictRequest) -> Any:
    """Return the function of a struct of columns that the served model answers with a struct."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    options: dict[str, Any] = {}
    if asked.explain:  # the signature says nothing of the columns that this adds
        fields = (f"{name} {AS_SPARK[str(kind)]}" for name, kind in asked.columns().items())
        options = {"result_type": ", ".join(fields), "params": {"explain": True}}
    with quietly():
        served = mlflow.pyfunc.spark_udf(session, uri, env_manager="local", **options)
    return F.pandas_udf(_every_row(served.func, asked), served.returnType)


def with_answers(
    frame: DataFrame,
    function: Any,
    names: Sequence[str],
    kept: Sequence[str],
    asked: PredictRequest,
) -> DataFrame:
    """Return the columns kept, and the answers to what stands in the columns named."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    given = F.struct(*(column(name) for name in names))
    answered = frame.withColumn(ANSWER, function(given))
    answers = column(ANSWER)
    return answered.select(
        *(column(name) for name in kept),
        *(answers.getField(name).alias(name) for name in asked.columns()),
    )


def _every_row(served: Any, asked: PredictRequest) -> Any:
    """Return MLflow's function of batches with an answer also to what it would refuse.

    It ends with the first batch of which no row can be scored; then it is begun again.
    """

    def every_row(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        waiting: list[pd.DataFrame] = []
        answering: Any = None
        for rows in batches:
            whole = whole_rows(rows, asked.inputs)
            given = tables.as_typed(rows.reset_index(drop=True), asked.inputs)
            if not whole.all():
                given = without_gaps(rows[whole], asked.inputs)
            answers = None
            if len(given):
                waiting.append(given)
                answering = answering or served(_taken(waiting))
                try:
                    answers = next(answering)
                except MlflowException as error:
                    answering = None
                    if serving.NONE_SCORED not in str(error):
                        raise _refused(error, given) from None
            yield _complete(answers, whole, asked)

    return every_row


def _taken(waiting: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    while waiting:
        yield waiting.pop()


def _refused(error: Exception, rows: pd.DataFrame) -> InvalidDataError:
    first = str(rows.iloc[0].to_dict())[:LONGEST_ROW]
    return InvalidDataError(
        f"the model refuses {len(rows):,} rows of data that begin with {first}: {refusal(error)}"
    )


def _complete(answers: Any, whole: NDArray[np.bool_], asked: PredictRequest) -> pd.DataFrame:
    """Return an answer a row: those given, and abstentions in the other rows."""
    if answers is not None and len(answers) == len(whole):
        return answers
    columns = {}
    for name, values in asked.invalid(len(whole)).items():
        cells = pd.Series(values, dtype=np.object_)
        if answers is not None:
            cells[whole] = pd.Series(answers[name].tolist(), index=cells.index[whole], dtype=object)
        columns[name] = cells
    return pd.DataFrame(columns).astype({"abstain": np.bool_, "set_size": np.int64})


def digest(frame: DataFrame) -> tuple[str, int]:
    """Return the digest of a table, and the number of its rows."""

    def measure(batch: Any) -> NDArray[np.uint64]:
        return hashes.digest_sums(hashes.row_hashes(batch.to_pandas()))

    sums = sum_over(frame, measure, np.zeros(5, dtype=np.uint64))
    return hashes.digest_of(frame.columns, sums), int(sums[0])


class Slice(NamedTuple):
    """Some rows of a table, and what tells them from others."""

    frame: DataFrame
    seal: str


class Written(NamedTuple):
    """What files hold."""

    parts: dict[str, int]  # rows by the name of the file
    reasons: Counter[str]


@contextmanager
def writes(session: SparkSession, batch_rows: int) -> Iterator[None]:
    """Have Spark hand over so many rows at a time, and write times as other readers know them."""
    wanted = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_rows),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    with settings(session, wanted):
        yield


def slices(frame: DataFrame, place: str, digest: str, plan: Mapping[str, Any]) -> list[Slice]:
    """Return the rows in slices of whole files, as many as keep all workers busy; or all in one.

    A file is known again by its path, its length and the time of its last change; all rows
    together by their digest.
    """
    files = _files(frame) if _is_path(place) else []
    at_once = frame.sparkSession.sparkContext.defaultParallelism
    n = min(MOST_SLICES, len(files) // at_once)
    if n < 2:
        return [Slice(frame, seal(json.dumps([plan, digest])))]
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    shares = [files[i * len(files) // n : (i + 1) * len(files) // n] for i in range(n)]
    path = F.col("_metadata.file_path")
    return [
        Slice(frame.where(path.isin([each[0] for each in share])), seal(json.dumps([plan, share])))
        for share in shares
    ]


def _is_path(place: str) -> bool:
    """Return whether a table is files by its name, and not one of the catalog."""
    named = place.lower().endswith((".csv", ".csv.gz", ".parquet", ".pq"))
    return named or bool(urlsplit(place).scheme) or Path(place).exists()


def _files(frame: DataFrame) -> list[list[Any]]:
    """Return path, length and time of the files that rows are read from, in order."""
    told = frame.selectExpr(
        "_metadata.file_path",
        "_metadata.file_size",
        "unix_micros(_metadata.file_modification_time)",
    )
    return sorted(list(row) for row in told.distinct().collect())


def write_slice(frame: DataFrame, folder: Path, number: int, sealed: str) -> Written:
    """Write a slice to a folder of its own, and move its files; what is told of them comes last."""
    place = folder / f"slice-{number:05d}"
    for path in [*folder.glob(f"part-{number:05d}-*"), place]:
        delete(path)
    frame.write.mode("overwrite").parquet(f"file://{place.absolute().as_posix()}")
    found = count_files(frame.sparkSession.read.parquet(spark_path(place)))
    parts = {}
    for i, name in enumerate(sorted(found.parts)):
        new = f"part-{number:05d}-{i:05d}.parquet"
        (place / name).rename(folder / new)
        parts[new] = found.parts[name]
    told = {"seal": sealed, "parts": parts, "reasons": dict(found.reasons)}
    write_text(folder / _marker(number), json.dumps(told))
    delete(place)
    return Written(parts, found.reasons)


def read_slice(folder: Path, number: int, sealed: str) -> Written | None:
    """Return what is told of a whole slice, None where it must be made anew."""
    try:
        told = json.loads((folder / _marker(number)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    parts = told["parts"]
    if told["seal"] != sealed or any(n_rows_of(folder / name) != n for name, n in parts.items()):
        return None
    return Written(parts, Counter(told["reasons"]))


def _marker(number: int) -> str:
    return f"_slice-{number:05d}.json"


def count_files(frame: DataFrame) -> Written:
    """Count the rows of written answers, by file and by reason."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    path = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    rows = frame.groupBy(path.alias("name"), "reason").count().collect()
    parts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in rows:
        parts[row["name"]] += row["count"]
        reasons[row["reason"]] += row["count"]
    return Written(dict(parts), reasons)


def check_apart(output: str, data: str) -> None:
    """Raise where the output would lie among the data, or the data in the output."""
    written, read = (f"{place.rstrip('/')}/" for place in (output, data))
    if written.startswith(read) or read.startswith(written):
        raise OutputError(
            f"output {output} and the data {data} lie in each other; choose another folder"
        )


def exists(session: SparkSession, place: str) -> bool:
    """Return whether anything is at a place."""
    system, path = _at(session, place)
    return bool(system.exists(path))


def move(session: SparkSession, old: str, new: str) -> None:
    """Give a folder another name; nothing may have it."""
    system, path = _at(session, old)
    if not system.rename(path, _at(session, new)[1]):
        raise OutputError(
            f"{old} cannot be renamed to {new}; is there something, or may you not write there?"
        )


def remove(session: SparkSession, place: str) -> None:
    """Delete a folder, if it is there."""
    system, path = _at(session, place)
    system.delete(path, True)  # all that is in it


def _at(session: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a place, and its path."""
    context = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path


def write_manifest(session: SparkSession, output: str, record: Predictions) -> None:
    """Write what is told of an output on a file system that only Spark knows."""
    frame = session.createDataFrame([(to_json(record),)], "value string")
    frame.coalesce(1).write.mode("overwrite").text(f"{output.rstrip('/')}/{MANIFEST}")


def read_manifest(session: SparkSession, output: str) -> Predictions | None:
    """Return what such an output says of itself, None where it says nothing."""
    try:
        rows = session.read.text(f"{output.rstrip('/')}/{MANIFEST}", wholetext=True).collect()
        found = from_json(rows[0]["value"])
    except (ScribError, IndexError):
        return None
    except Exception as error:  # Spark has one kind of error for all that is wrong with a path
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise
    return found if isinstance(found, Predictions) else None
