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
from collections.abc import Iterable, Iterator, Sequence
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
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.core.inputs import new_array
from scrib_mlflow.engines.spark import worker
from scrib_mlflow.engines.spark.session import settings
from scrib_mlflow.engines.spark.tables import SparkTable, column, packed, rows_of, shorten
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.records import ScoreSource
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.tables import LabelColumn, Source, Table

if TYPE_CHECKING:
    from mlflow.types import Schema
    from pyspark.sql import DataFrame

SCORES = "scrib scores"  # struct of s0, s1, …, of m0, m1, … for sets, and of error
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_EACH = 500_000  # that Spark hands to the driver at a time
LOUD = ("mlflow.pyfunc", "mlflow.models.model", "mlflow.models.flavor_backend_registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A registered model as Spark's workers call it."""

    uri: str
    inputs: tuple[str, ...]  # columns that it takes; none where only scores are given
    schema: Schema | None
    classes: tuple[str, ...]
    source: ScoreSource | None  # None for a set classifier


class ScoredTable(NamedTuple):
    """A table as the local engine knows it, with what a model gives for its rows."""

    table: Table
    sums: NDArray[np.uint64]  # (n,) of what the model is given, or of scores where there is no more
    scores: NDArray[np.float64]  # (n, k) NaN in rows that a set classifier could not score
    sets: NDArray[np.bool_]  # (n, k) of a set classifier, (n, 0) of others


def score_table(
    read: SparkTable, model: ServedModel, score_columns: Sequence[str], batch_rows: int
) -> ScoredTable:
    """Let Spark score a table, or take the scores in its columns; raise for rows without scores."""
    frame = read.frame
    slimmer = Slimmer(
        label=read.label,
        known=None if read.labels is None else pd.Index(read.labels),
        what=read.what,
        key=read.key,
        group=read.group,
        inputs=model.inputs,
        schema=model.schema,
        score_columns=tuple(score_columns),
        k=len(model.classes),
    )
    spark = frame.sparkSession
    with settings(spark, {BATCH: str(batch_rows)}):
        wanted = [packed(frame)]
        if not score_columns:
            given = F.struct(*(column(name) for name in model.inputs))
            wanted.append(_udf(spark, model)(given).alias(SCORES))
        chunks = frame.select(*wanted).mapInArrow(slimmer.chunks, "chunk binary")
        chunks = chunks.repartition(math.ceil(read.record.n_rows / ROWS_EACH))
        chunks.persist(StorageLevel.DISK_ONLY)
        try:
            chunks.count()  # all workers at once; the next line asks one part after the other
            rows = chunks.toLocalIterator(prefetchPartitions=True)
            k = len(model.classes)
            members = k if model.source is None else 0
            return _collect(read, (_unpacked(row["chunk"]) for row in rows), k, members)
        finally:
            chunks.unpersist()


def _udf(spark: Any, model: ServedModel) -> Any:
    """Return the function of columns that runs a model in Spark's workers."""
    k = len(model.classes)
    fields = [f"s{j} double" for j in range(k)]
    if model.source is None:
        fields += [f"m{j} boolean" for j in range(k)]
    plan = {
        "classes": model.classes,
        "source": None if model.source is None else asdict(model.source),
    }
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


def feature_names(
    frame: DataFrame, inputs: Schema | None, leave_out: Sequence[str]
) -> list[str] | None:
    """Return the columns that the model takes, None where the table lacks them."""
    found = tables.features(frame.limit(0).toArrow().to_pandas(), inputs, leave_out)
    return None if found is None else [str(name) for name in found.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slimmer:
    """What a worker makes of scored rows: it is sent to all of them."""

    what: str  # the parameter that names the table
    label: str | None
    known: pd.Index | None  # the labels that the table has
    key: str | None
    group: str | None
    inputs: tuple[str, ...]
    schema: Schema | None
    score_columns: tuple[str, ...]  # that hold the scores; none where a model gives them
    k: int

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the slim rows of each batch, packed."""
        for batch in batches:
            if batch.num_rows:
                slim = pa.RecordBatch.from_pydict(self.slim(batch))
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, slim.schema) as writer:
                    writer.write_batch(slim)
                yield pa.RecordBatch.from_pydict({"chunk": [sink.getvalue().to_pybytes()]})

    def slim(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return the columns that the driver needs of a batch."""
        rows = rows_of(batch)
        found: dict[str, Any] = {
            "row": hashes.row_hashes(rows, text=[] if self.label is None else [self.label])
        }
        if self.known is not None:
            found["code"] = self._codes(rows[self.label])
        for option, name in (("key", self.key), ("group", self.group)):
            if name is not None:
                found[option] = hashes.key_hashes(rows[name])
                found[f"value of {option}"] = batch.column(0).field(name)
        if self.score_columns:
            scores = rows[list(self.score_columns)].to_numpy(dtype=np.float64, na_value=np.nan)
            found |= {f"s{j}": scores[:, j] for j in range(self.k)}
            errors = [self._bad_column(row) for row in scores]
        else:
            answers = batch.column(SCORES)
            fields = [field.name for field in answers.type if field.name != "error"]
            found |= {name: answers.field(name) for name in fields}
            columns = [answers.field(f"s{j}") for j in range(self.k)]
            scores = np.column_stack([each.to_numpy(zero_copy_only=False) for each in columns])
            errors = answers.field("error").to_pylist()
        given = pd.DataFrame(scores)
        if self.inputs:
            given = tables.as_typed(rows[list(self.inputs)], self.schema)
        found["sums"] = hashes.feature_sums(given)
        found["error"] = pa.array([error or None for error in errors], pa.string())
        found["name"] = pa.array(
            [self._name(rows, row) if error else None for row, error in enumerate(errors)],
            pa.string(),
        )
        return found

    def _codes(self, labels: pd.Series) -> NDArray[np.int32]:
        assert self.known is not None  # noqa: S101  # for mypy; told by callers
        codes = self.known.get_indexer(pd.Index(labels)).astype(np.int32)
        if (codes < 0).any():
            value = labels.iloc[int(np.argmin(codes))]
            raise InvalidDataError(
                f"{self.what} changed while it was read: the label {value!r} is new; run it again"
            )
        return codes

    def _bad_column(self, scores: NDArray[np.float64]) -> str:
        bad = np.flatnonzero(~np.isfinite(scores))
        return f"it has no finite score in column {self.score_columns[bad[0]]}" if len(bad) else ""

    def _name(self, rows: pd.DataFrame, row: int) -> str:
        """Return what a row is called: its key, or else its contents."""
        if self.key is not None:
            return str(rows[self.key].iloc[row])
        return shorten(str(rows.iloc[row].to_dict()))


def _unpacked(chunk: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(bytes(chunk))).read_all()


def _collect(read: SparkTable, chunks: Iterable[pa.Table], k: int, members: int) -> ScoredTable:
    """Return the rows of all chunks, with the values of key and group in a temporary file."""
    folder = tempfile.mkdtemp()
    try:
        found = _fill(read, chunks, k, members, Path(folder) / "values.parquet")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found.table.source, shutil.rmtree, folder, ignore_errors=True)
    tables.check_keys(found.table)
    return found


def _fill(
    read: SparkTable, chunks: Iterable[pa.Table], k: int, members: int, path: Path
) -> ScoredTable:
    """Return arrays of all rows; raise where these are not those of the table, or lack scores."""
    n = read.record.n_rows
    kinds = {"row": np.uint64, "code": np.int32, "key": np.uint64, "group": np.uint64}
    absent = {"code": read.label, "key": read.key, "group": read.group}
    arrays = {
        name: new_array((n,), kind)
        for name, kind in (kinds | {"sums": np.uint64}).items()
        if absent.get(name, name) is not None
    }
    scores, sets = new_array((n, k), np.float64), new_array((n, members), np.bool_)
    digest = hashes.digest_sums(arrays["row"][:0])
    done, bad = 0, BadRows(0, ("", ""))
    with ExitStack() as stack:
        writer = None
        for chunk in chunks:
            part = slice(done, done + chunk.num_rows)
            done = part.stop
            if done > n:
                break
            for name, array in arrays.items():
                array[part] = chunk.column(name).to_numpy()
            for letter, into in (("s", scores), ("m", sets)):
                for j in range(into.shape[1]):
                    into[part, j] = chunk.column(f"{letter}{j}").to_numpy()
            digest = digest + hashes.digest_sums(arrays["row"][part])
            bad = bad.and_those_of(chunk)
            if read.beside:
                values = _values(read, chunk)
                writer = writer or stack.enter_context(pq.ParquetWriter(path, values.schema))
                writer.write_table(values)
    if done != n or hashes.digest_of(read.frame.columns, digest) != read.record.digest:
        raise InvalidDataError(
            f"{read.what} changed while it was read; run it again when nothing writes to it"
        )
    bad.check(read)
    source = Source(
        name=f"{read.what} {read.record.source}",
        columns=tuple(dict.fromkeys(read.beside)),
        n_rows=n,
        held=ds.dataset(path, format="parquet") if read.beside else pd.DataFrame(),
    )
    table = Table(
        what=read.what,
        source=source,
        record=read.record,
        label=read.label,
        labels=_label_column(read, arrays),
        hashes=arrays["row"],
        key=read.key,
        keys=arrays.get("key"),
        groups=arrays.get("group"),
        beside=read.beside,
        numbered=False,
    )
    return ScoredTable(table, arrays["sums"], scores, sets)


def _label_column(read: SparkTable, arrays: dict[str, NDArray[Any]]) -> LabelColumn:
    """Return the labels of a table; of one without labels none."""
    if read.labels is None:
        return LabelColumn(pd.Series(dtype=np.object_), np.empty(0, dtype=np.int32))
    return LabelColumn(read.labels, arrays["code"])


def _values(read: SparkTable, chunk: pa.Table) -> pa.Table:
    """Return the columns that identify and group rows, as the table has them."""
    named = {"key": read.key, "group": read.group}
    return pa.table(
        {name: chunk.column(f"value of {option}") for option, name in named.items() if name}
    )


class BadRows(NamedTuple):
    """Rows without scores: how many, and the name and the error of the first by name."""

    n: int
    first: tuple[str, str]

    def and_those_of(self, chunk: pa.Table) -> BadRows:
        """Return these and the bad rows of a chunk."""
        bad = chunk.filter(chunk.column("error").is_valid())
        if not bad.num_rows:
            return self
        pairs = zip(bad.column("name").to_pylist(), bad.column("error").to_pylist(), strict=True)
        known = [self.first] if self.n else []
        return BadRows(self.n + bad.num_rows, min([*known, *pairs]))

    def check(self, read: SparkTable) -> None:
        """Raise where there are any."""
        if not self.n:
            return
        name, error = self.first
        called = f"the row with {read.key} {name!r}" if read.key is not None else f"the row {name}"
        others = f" and {self.n - 1:,} more" if self.n > 1 else ""
        raise ModelError(
            f"the model cannot score {called} of {read.what}{others}: {error}; "
            "drop or repair such rows"
        )
