"""Files that Spark writes, in slices each of which is whole or not there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from scrib_mlflow.adapters.prediction_files import delete, n_rows_of, write_text
from scrib_mlflow.adapters.spark_session import settings
from scrib_mlflow.adapters.spark_tables import spark_path
from scrib_mlflow.results import seal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SLICES = 20


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
