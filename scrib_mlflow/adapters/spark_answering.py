"""A served set classifier that answers the rows of a Spark table, through MLflow's `spark_udf`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

from scrib_mlflow import serving
from scrib_mlflow.adapters import digests, tables
from scrib_mlflow.adapters.answering import (
    NUMBERS,
    SERVED,
    Asked,
    refusal,
    whole_rows,
    without_gaps,
)
from scrib_mlflow.adapters.spark_columns import column
from scrib_mlflow.adapters.spark_scoring import quietly
from scrib_mlflow.adapters.spark_sums import sum_over
from scrib_mlflow.errors import InvalidDataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def served_function(session: SparkSession, uri: str, asked: Asked) -> Any:
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
    frame: DataFrame, function: Any, names: Sequence[str], kept: Sequence[str], asked: Asked
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


def _every_row(served: Any, asked: Asked) -> Any:
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


def _complete(answers: Any, whole: NDArray[np.bool_], asked: Asked) -> pd.DataFrame:
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
        return digests.digest_sums(digests.row_hashes(batch.to_pandas()))

    sums = sum_over(frame, measure, np.zeros(5, dtype=np.uint64))
    return digests.digest_of(frame.columns, sums), int(sums[0])
