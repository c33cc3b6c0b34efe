"""Rows that Spark's workers score, and hand back slim: hashes, label and scores of each.

A worker packs the slim rows of a batch into one binary value. Spark keeps these on its disks until
all are scored; the driver then takes a few at a time into arrays, large ones on its own disk.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark import StorageLevel

from scrib_mlflow.core.inputs import new_array
from scrib_mlflow.engines.spark import worker
from scrib_mlflow.engines.spark.session import settings
from scrib_mlflow.engines.spark.tables import SparkTable, packed, rows_of, shorten, structure
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.records import ScoreSource
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.scored import Unscored
from scrib_mlflow.rows.scoring import cannot_be_scored

if TYPE_CHECKING:
    from mlflow.types import Schema
    from pyspark.sql import DataFrame

# struct of s0, s1, …, of m0, m1, … for sets and c0, c1, … for candidates, and of error
SCORES = "scrib scores"
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
PART_BYTES = 16 * 2**20  # that Spark hands to the driver at a time; its memory is often 1 GiB
ROW_BYTES = 80  # of a slim row, without scores
LOUD = ("mlflow.pyfunc", "mlflow.models.model", "mlflow.models.flavor_backend_registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A registered model as Spark's workers call it."""

    uri: str
    inputs: tuple[str, ...]  # columns that it takes; none where only scores are given
    schema: Schema | None
    classes: tuple[str, ...]
    source: ScoreSource | None = None  # None for a set classifier
    score_columns: tuple[str, ...] = ()  # that hold the scores; none where the model gives them


class ScoredTable(NamedTuple):
    """A table as the local engine knows it, with what a model gives for its rows."""

    table: tables.Table
    sums: NDArray[np.uint64]  # (n,) of what the model is given, or of scores where there is no more
    scores: NDArray[np.float64]  # (n, k) NaN in rows that could not be scored
    sets: NDArray[np.bool_]  # (n, k) of a set classifier, (n, 0) of others
    named: NDArray[np.bool_]  # (n, k) classes that are named as candidates; likewise
    unscored: Unscored | None


def score_table(
    read: SparkTable, model: ServedModel, batch_rows: int, max_invalid: float = 0.0
) -> ScoredTable:
    """Let Spark score a table, or take the scores in its columns.

    Raise where more than the share `max_invalid` of its rows have no scores.
    """
    known = None if read.labels is None else pd.Index(read.labels)
    slimmer = Slimmer(label=read.label, known=known, named=read.named, model=model)
    spark = read.frame.sparkSession
    with settings(spark, {BATCH: str(batch_rows)}):
        wanted = [packed(read.frame)]
        if not model.score_columns:
            wanted.append(_udf(spark, model)(structure(model.inputs)).alias(SCORES))
        width = ROW_BYTES + 10 * len(model.classes)
        n_rows = read.record.n_rows
        with slim_chunks(read.frame.select(*wanted), slimmer.slim, n_rows * width) as chunks:
            return _collect(read, chunks, model, max_invalid)


@contextmanager
def slim_chunks(
    frame: DataFrame, slim: Callable[[pa.RecordBatch], dict[str, Any]], size: int
) -> Iterator[Iterator[pa.Table]]:
    """Yield the slim rows that workers make of batches, about so many bytes in all."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                columns = pa.RecordBatch.from_pydict(slim(batch))
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, columns.schema) as writer:
                    writer.write_batch(columns)
                yield pa.RecordBatch.from_pydict({"chunk": [sink.getvalue().to_pybytes()]})

    chunks = frame.mapInArrow(pack, "chunk binary").repartition(math.ceil(size / PART_BYTES))
    chunks.persist(StorageLevel.DISK_ONLY)
    try:
        chunks.count()  # all workers at once; what follows asks for one part after the other
        yield map(_unpacked, _part_by_part(chunks))
    finally:
        chunks.unpersist()


def _part_by_part(chunks: Any) -> Iterator[bytes]:
    """Yield all chunks, one part in the driver at a time.

    `toLocalIterator` would keep what it has handed over: a gigabyte of it fills Spark's memory.
    """
    parts = chunks.rdd.map(lambda row: bytes(row["chunk"]))
    for part in range(parts.getNumPartitions()):
        yield from parts.context.runJob(parts, lambda rows: rows, [part])


def _udf(spark: Any, model: ServedModel) -> Any:
    """Return the function of columns that runs a model in Spark's workers."""
    k = len(model.classes)
    fields = [f"s{j} double" for j in range(k)]
    if model.source is None:
        fields += [f"{letter}{j} boolean" for letter in "mc" for j in range(k)]
    plan = {"classes": model.classes, "source": model.source and asdict(model.source)}
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder)
        (path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        mlflow.pyfunc.save_model(
            path / "model",
            python_model=worker.__file__,
            artifacts={"model": model.uri, "plan": str(path / "plan.json")},
            pip_requirements=[f"mlflow=={installed('mlflow')}"],
        )
        return mlflow.pyfunc.spark_udf(
            spark,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Slimmer:
    """What a worker makes of scored rows: it is sent to all of them."""

    label: str | None
    known: pd.Index | None  # the labels that the table has
    named: dict[str, str]  # columns by "key" and "group"
    model: ServedModel

    def slim(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return the columns that the driver needs of a batch."""
        rows, model = rows_of(batch), self.model
        texts = [] if self.label is None else [self.label]
        slim: dict[str, Any] = {"row": hashes.row_hashes(rows, text=texts)}
        if self.known is not None:
            # -1 for a label that is new; then the digest says that the table changed
            slim["code"] = self.known.get_indexer(pd.Index(rows[self.label])).astype(np.int32)
        for option, name in self.named.items():
            slim[option] = hashes.key_hashes(rows[name])
            slim[f"value of {option}"] = batch.column(0).field(name)
        if model.score_columns:
            scores = rows[list(model.score_columns)].to_numpy(dtype=np.float64, na_value=np.nan)
            slim |= {f"s{j}": scores[:, j] for j in range(scores.shape[1])}
            errors = [self._bad_column(row) for row in scores]
        else:
            scores, answers = np.empty((len(rows), 0)), batch.column(SCORES)
            slim |= {field.name: answers.field(field.name) for field in answers.type}
            errors = slim["error"].to_pylist()
        given = pd.DataFrame(scores)
        if model.inputs:
            given = tables.as_typed(rows[list(model.inputs)], model.schema)
        slim["sums"] = hashes.feature_sums(given)
        names = [self._name(rows, row) if error else None for row, error in enumerate(errors)]
        slim["error"] = pa.array([error or None for error in errors], pa.string())
        slim["name"] = pa.array(names, pa.string())
        return slim

    def _bad_column(self, scores: NDArray[np.float64]) -> str:
        bad = np.flatnonzero(~np.isfinite(scores))
        columns = [self.model.score_columns[j] for j in bad[:1]]
        return f"it has no finite score in column {columns[0]}" if columns else ""

    def _name(self, rows: pd.DataFrame, row: int) -> str:
        """Return what a row is called: its key, or else its contents."""
        if "key" in self.named:
            return str(rows[self.named["key"]].iloc[row])
        return shorten(str(rows.iloc[row].to_dict()))


def _unpacked(chunk: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(chunk)).read_all()


def _collect(
    read: SparkTable, chunks: Iterable[pa.Table], model: ServedModel, max_invalid: float
) -> ScoredTable:
    """Return the rows of all chunks, with the values of key and group in a temporary file."""
    folder = tempfile.mkdtemp()
    path = Path(folder) / "values.parquet"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        arrays, scores, sets, named, unscored = _fill(read, chunks, model, path, max_invalid)
        source = tables.Source(
            name=f"{read.what} {read.record.source}",
            columns=tuple(dict.fromkeys(read.beside)),
            n_rows=read.record.n_rows,
            held=ds.dataset(path, format="parquet") if read.named else pd.DataFrame(),
        )
        weakref.finalize(source, stack.pop_all().close)
    table = tables.Table(
        what=read.what,
        source=source,
        record=read.record,
        label=read.label,
        labels=tables.NO_LABELS
        if read.labels is None
        else tables.LabelColumn(read.labels, arrays["code"]),
        hashes=arrays["row"],
        key=read.key,
        keys=arrays.get("key"),
        groups=arrays.get("group"),
        beside=read.beside,
        numbered=False,
    )
    tables.check_keys(table)
    return ScoredTable(table, arrays["sums"], scores, sets, named, unscored)


def _fill(
    read: SparkTable,
    chunks: Iterable[pa.Table],
    model: ServedModel,
    path: Path,
    max_invalid: float,
) -> tuple[
    dict[str, NDArray[Any]],
    NDArray[np.float64],
    NDArray[np.bool_],
    NDArray[np.bool_],
    Unscored | None,
]:
    """Return arrays by name, scores, sets and candidates, and write values of key and group.

    Raise where these are not the rows of the table, or too many lack scores; those get NaN.
    """
    n, k = read.record.n_rows, len(model.classes)
    arrays = {name: new_array((n,), np.uint64) for name in ("row", "sums", *read.named)}
    if read.labels is not None:
        arrays["code"] = new_array((n,), np.int32)
    scores = new_array((n, k), np.float64)
    served = (n, k if model.source is None else 0)
    sets, named = (new_array(served, np.bool_) for _ in range(2))
    matrices = [(f"s{j}", scores[:, j]) for j in range(k)]
    for letter, members in (("m", sets), ("c", named)):
        matrices += [(f"{letter}{j}", members[:, j]) for j in range(members.shape[1])]
    digest = hashes.digest_sums(arrays["row"][:0])
    done, n_bad = 0, 0
    first_bad: list[tuple[str, str]] = []  # name and error, the first by name
    with ExitStack() as stack:
        writer = None
        for chunk in chunks:
            part = slice(done, done + chunk.num_rows)
            done = part.stop
            if done > n:
                break
            for name, into in [*arrays.items(), *matrices]:
                into[part] = chunk.column(name).to_numpy()
            scores[part][~np.isfinite(scores[part]).all(axis=1)] = np.nan
            digest = digest + hashes.digest_sums(arrays["row"][part])
            bad = chunk.filter(chunk.column("error").is_valid()).select(["name", "error"])
            n_bad += bad.num_rows
            first_bad = sorted([*first_bad, *zip(*bad.to_pydict().values(), strict=True)])[:1]
            if read.named:
                columns = {name: f"value of {option}" for option, name in read.named.items()}
                values = chunk.select([*columns.values()]).rename_columns([*columns])
                writer = writer or stack.enter_context(pq.ParquetWriter(path, values.schema))
                writer.write_table(values)
    if done != n or hashes.digest_of(read.frame.columns, digest) != read.record.digest:
        raise InvalidDataError(
            f"{read.what} changed while it was read; run it again when nothing writes to it"
        )
    return arrays, scores, sets, named, _unscored(read, n_bad, first_bad, max_invalid)


def _unscored(
    read: SparkTable, n: int, first: Sequence[tuple[str, str]], max_invalid: float
) -> Unscored | None:
    """Return the first of n rows without scores, None without any; raise where n is too high."""
    if not n:
        return None
    name, error = first[0]
    row = f"the row {name}" if read.key is None else f"the row with {read.key} {name!r}"
    which = f"{row} of {read.what}" + f" and {n - 1:,} more" * (n > 1)
    if n > max_invalid * read.record.n_rows:
        raise cannot_be_scored(which, error, max_invalid)
    return Unscored("" if read.key is None else which, error)
