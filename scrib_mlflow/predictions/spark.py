"""Answers that Spark's workers give and write, on any file system that Spark knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import mlflow
import pandas as pd
import pyarrow as pa
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from scrib_mlflow.engines.spark import session
from scrib_mlflow.engines.spark.scoring import quietly, slim_chunks
from scrib_mlflow.engines.spark.tables import (
    ROW,
    as_pattern,
    column,
    digest_rows,
    first_rows,
    packed,
    read,
    structure,
)
from scrib_mlflow.errors import OutputError
from scrib_mlflow.predictions import answers, served
from scrib_mlflow.predictions.answers import MANIFEST, PredictRequest, Written
from scrib_mlflow.results import Predictions, to_json

__all__ = ["digest_rows", "first_rows"]  # of the engine, for workflows, which know no Spark
ANSWER = "scrib answer"
AS_SPARK = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.list_(pa.string()): "array<string>",
    answers.NUMBERS: "array<double>",
}
Mode = Literal["error", "append", "overwrite"]


@contextmanager
def open_table(options: dict[str, str], data: str, batch_rows: int) -> Iterator[DataFrame]:
    """Yield the rows to answer, in a session that hands so many of them to workers at a time."""
    wanted = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_rows),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # which other readers know
    }
    with session.session(options) as spark, session.settings(spark, wanted):
        yield read(spark, "data", data)


def output_place(output: str, data: str) -> str:
    """Return an output as Spark writes it: a path of this machine with its scheme.

    Raise where it would lie among the data, or the data in it.
    """
    path = answers.local_path(output)
    place = output.rstrip("/") if path is None else f"file://{path.absolute().as_posix()}"
    written, read_from = f"{place}/", f"{data.rstrip('/')}/"
    if written.startswith(read_from) or read_from.startswith(written):
        raise OutputError(
            f"output {place} and the data {data} lie in each other; choose another folder"
        )
    return place


def check_free(spark: SparkSession, place: str, *, overwrite: bool) -> Mode:
    """Return how to write to a place; raise where something is there that may not be replaced."""
    system, path = _at(spark, place)
    if not system.exists(path):
        return "error"
    if system.getFileStatus(path).isDirectory() and not system.listStatus(path):
        return "append"  # to an empty folder, which is nothing
    ours = bool(system.exists(_at(spark, f"{place}/{MANIFEST}")[1]))
    answers.check_replaceable(place, ours=ours, overwrite=overwrite)
    return "overwrite"


def with_answers(frame: DataFrame, features: Sequence[str], request: PredictRequest) -> DataFrame:
    """Return the key columns, and the answers to the features."""
    answer = _answer_function(frame.sparkSession, request)
    answered = frame.withColumn(ANSWER, answer(structure(features)))
    return answered.select(
        *map(column, request.key),
        *(column(ANSWER).getField(name).alias(name) for name in request.columns()),
    )


def read_slim(
    frame: DataFrame, slimmer: served.Slimmer, request: PredictRequest, n_rows: int
) -> dict[str, NDArray[Any]]:
    """Return the slim rows of a table, which its workers answer where it holds no answers."""
    given = list(frame.columns)
    if not served.has_answers(given):
        features = served.features_of(given, slimmer, request)
        answer = _answer_function(frame.sparkSession, request)
        names = list(request.columns())
        kept = [name for name in given if name not in names]
        fields = [column(ANSWER).getField(name).alias(name) for name in names]
        frame = frame.withColumn(ANSWER, answer(structure(features)))
        frame = frame.select(*map(column, kept), *fields)

    def slim(batch: pa.RecordBatch) -> dict[str, Any]:
        return slimmer.slim(pa.Table.from_struct_array(batch.column(ROW)))

    with slim_chunks(frame.select(packed(frame)), slim, n_rows * served.ROW_BYTES) as chunks:
        parts = [
            {name: chunk.column(name).to_numpy() for name in chunk.column_names} for chunk in chunks
        ]
    return served.joined(parts)


def read_back(written: DataFrame, place: str, digest: str, request: PredictRequest) -> Written:
    """Return what was written, counted by file and by reason."""
    reader = written.sparkSession.read.schema(written.schema)
    path = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    files = reader.parquet(as_pattern(place))
    parts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in files.groupBy(path.alias("name"), "reason").count().collect():
        parts[row["name"]] += row["count"]
        reasons[row["reason"]] += row["count"]
    key = written.select(*map(column, request.key)).limit(0).toArrow().schema
    kinds = dict(zip(key.names, key.types, strict=True)) | request.columns()
    columns = {name: str(kind) for name, kind in kinds.items()}
    return Written(digest=digest, columns=columns, parts=dict(parts), reasons=reasons)


def delete(spark: SparkSession, place: str) -> None:
    """Delete an output that this run has just written."""
    system, path = _at(spark, place)
    system.delete(path, True)  # and all that is in it


def write_manifest(spark: SparkSession, place: str, record: Predictions) -> None:
    """Write what an output says of itself, which makes it whole."""
    system, path = _at(spark, f"{place}/{MANIFEST}")
    stream = system.create(path)
    stream.write(to_json(record).encode())
    stream.close()


def _at(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a place, and its path."""
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path


def _answer_function(spark: SparkSession, request: PredictRequest) -> Any:
    """Return the function of a struct of columns that the served model answers with a struct."""
    options: dict[str, Any] = {"params": request.parameters}
    if request.explain:  # the signature says nothing of the columns that this adds
        fields = (f"{name} {AS_SPARK[kind]}" for name, kind in request.columns().items())
        options["result_type"] = ", ".join(fields)
    with quietly():
        served = mlflow.pyfunc.spark_udf(spark, request.model.uri, env_manager="local", **options)
    return F.pandas_udf(_every_row(served.func, request), served.returnType)


def _every_row(served: Any, request: PredictRequest) -> Any:
    """Return MLflow's function of batches with an answer also to what it would refuse.

    It ends with the first batch of which no row can be scored; then it is begun again.
    """

    def every_row(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        waiting: list[pd.DataFrame] = []
        answering: Any = None

        def predict(rows: pd.DataFrame) -> Any:
            nonlocal answering
            waiting.append(rows)
            answering = answering or served(_take(waiting))
            try:
                return next(answering)
            except MlflowException:
                answering = None
                raise

        for rows in batches:
            yield answers.answer(predict, rows, request, None).to_pandas()

    return every_row


def _take(waiting: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    while waiting:
        yield waiting.pop()
