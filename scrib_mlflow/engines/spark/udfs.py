"""Score the rows of a Spark table through `mlflow.pyfunc.spark_udf`."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from mlflow.types import Schema
    from pyspark.sql import Column, DataFrame
from scrib_mlflow.engines.spark import worker
from scrib_mlflow.engines.spark.columns import SCORES, column
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.records import ScoreSource
from scrib_mlflow.rows import tables

LOUD = ("mlflow.pyfunc", "mlflow.models.model", "mlflow.models.flavor_backend_registry")
NARROW = {  # what NumPy calls a type, and Spark
    "float32": "float",
    "float64": "double",
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
}


def first_rows(frame: DataFrame, names: Sequence[str] | None, n: int) -> pd.DataFrame:
    """Return a few rows as the local engine would read them."""
    wanted = frame.columns if names is None else names
    return frame.select(*(column(name) for name in wanted)).limit(n).toArrow().to_pandas()


def feature_names(
    frame: DataFrame, inputs: Schema | None, leave_out: Sequence[str]
) -> list[str] | None:
    """Return the columns that the model takes, None where the table lacks them."""
    found = tables.features(_empty(frame), inputs, leave_out)
    return None if found is None else [str(name) for name in found.columns]


def _empty(frame: DataFrame) -> pd.DataFrame:
    """Return a table without rows, with the columns and types of the Spark table."""
    return frame.limit(0).toArrow().to_pandas()


def with_scores(
    frame: DataFrame,
    uri: str,
    names: Sequence[str],
    inputs: Schema | None,
    classes: Sequence[str],
    source: ScoreSource | None,
) -> DataFrame:
    """Return the table with what the model gives for each row, in the struct `SCORES`.

    That is the scores of a classifier, or scores and sets of a set classifier, which has no source.
    """
    answer = _udf(frame, uri, inputs, classes, source)
    typed = _as_typed(frame, names, inputs)
    return frame.withColumn(SCORES, answer(F.struct(*typed)))


def given_scores(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the table with scores that stand in its columns, in the struct `SCORES`."""
    scores = [column(name).cast("double") for name in columns]
    bad = [
        F.when(score.isNull() | F.isnan(score) | (F.abs(score) == float("inf")), F.lit(name))
        for name, score in zip(columns, scores, strict=True)
    ]
    said = F.concat(F.lit("it has no finite score in column "), F.coalesce(*bad))
    fields = [score.alias(f"s{j}") for j, score in enumerate(scores)]
    return frame.withColumn(SCORES, F.struct(*fields, F.coalesce(said, F.lit("")).alias("error")))


def _udf(
    frame: DataFrame,
    uri: str,
    inputs: Schema | None,
    classes: Sequence[str],
    source: ScoreSource | None,
) -> Any:
    """Return the function of columns that runs a model in Spark's workers."""
    k = len(classes)
    fields = [f"s{j} double" for j in range(k)]
    if source is None:
        fields += [f"m{j} boolean" for j in range(k)]
    asked = {"classes": list(classes), "source": None if source is None else asdict(source)}
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder)
        (path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        mlflow.pyfunc.save_model(
            path / "model",
            python_model=worker.__file__,
            artifacts={"model": uri, "asked": str(path / "asked.json")},
            signature=None if inputs is None else ModelSignature(inputs=inputs),
            pip_requirements=[f"mlflow=={installed('mlflow')}"],
        )
        return mlflow.pyfunc.spark_udf(
            frame.sparkSession,
            str(path / "model"),
            result_type=", ".join([*fields, "error string"]),
            env_manager="local",
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Keep MLflow from advice for models that are kept, and for other environments."""
    loggers = [logging.getLogger(name) for name in LOUD]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _as_typed(frame: DataFrame, names: Sequence[str], inputs: Schema | None) -> list[Column]:
    """Return columns with the narrow numbers of a signature, as `tables.as_typed` makes them."""
    have = _empty(frame.select(*(column(name) for name in names)))
    wanted = tables.as_typed(have, inputs).dtypes
    casts = {name: wanted[name] for name in names if wanted[name] != have.dtypes[name]}
    whole = [name for name, kind in casts.items() if kind.kind in "iu"]
    if whole:
        ends = [end(column(name)) for name in whole for end in (F.min, F.max)]
        gaps = [F.count_if(column(name).isNull()) for name in whole]
        found = frame.agg(*ends, *gaps).collect()[0]
        for place, name in enumerate(whole):
            limits = np.iinfo(casts[name])
            low, high, gap = found[2 * place], found[2 * place + 1], found[2 * len(whole) + place]
            if gap or low is None or low < limits.min or high > limits.max:
                del casts[name]  # MLflow refuses what does not fit, in its own words
    return [
        column(name).cast(NARROW[str(casts[name])]).alias(name)
        if name in casts and str(casts[name]) in NARROW
        else column(name).alias(name)
        for name in names
    ]


def check_scored(slim: DataFrame, what: str, key: str | None) -> None:
    """Raise where rows have no scores: name the first, and say how many there are."""
    bad = slim.filter(F.col("error") != "")
    found = bad.agg(F.count("*").alias("n"), F.min(F.struct("name", "error")).alias("first"))
    row = found.collect()[0]
    if not row["n"]:
        return
    name, error = row["first"]["name"], row["first"]["error"]
    called = f"the row with {key} {name!r}" if key is not None else f"the row {name}"
    others = f" and {row['n'] - 1:,} more" if row["n"] > 1 else ""
    raise ModelError(
        f"the model cannot score {called} of {what}{others}: {error}; drop or repair such rows"
    )


def lacking(frame: DataFrame, inputs: Schema | None, what: str) -> InvalidDataError:
    """Return the error for a table that lacks what the model takes."""
    missing = tables.missing_features(_empty(frame), inputs)
    return InvalidDataError(f"{what} cannot be scored: {missing}")


def scores_of(slim: DataFrame, cases: Sequence[int]) -> dict[int, list[float]]:
    """Return the scores of rows with these hashes of what the model is given."""
    some = slim.filter(F.col("unlabelled").isin(*cases)).select("unlabelled", "scores")
    rows = some.dropDuplicates(["unlabelled"]).collect()
    return {row["unlabelled"]: row["scores"] for row in rows}
