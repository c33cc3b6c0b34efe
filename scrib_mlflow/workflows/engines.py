"""Where rows are read, scored and counted: in this process, or by Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import numpy as np
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters import tables
from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.sample import Sample
from scrib_mlflow.core.tally import Tally
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.options import EngineName, SparkOptions
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows import local_parts
from scrib_mlflow.workflows.answered import answer_table
from scrib_mlflow.workflows.parts import Parts, TableLike, Tables, without_missing
from scrib_mlflow.workflows.reading import Table, read_source


class Answered(Protocol):
    """Labelled rows, wherever they are, with the sets that a set classifier serves for them."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_invalid(self) -> int:
        """How many of them it could not score."""

    @property
    def grouped(self) -> bool:
        """Whether they come in groups."""

    def tally(self, constraints: Sequence[Constraint]) -> Tally:
        """Return the counts of the sets of all rows, claim by claim."""

    def count(self) -> Counts:
        """Return the counts of the sets of all rows, class by class."""

    def cases(self, *, labelled: bool) -> Hashes:
        """Return hashes of what the model is given, and of classes where asked for."""

    def keys(self) -> Hashes | None:
        """Return hashes of what identifies the rows, None where no column does."""

    def sample(self, most: int) -> tuple[Sample, NDArray[np.bool_]]:
        """Return all rows or at most so many, and their sets."""


class Engine(Protocol):
    """What reads, scores and counts rows; its tables are its own."""

    def read_tables(self, settings: Calibrate) -> Tables[Any]:
        """Read what a calibration is given."""

    def make_parts(
        self, tables: Tables[Any], model: PyFuncModel, uri: str, example: Any, settings: Calibrate
    ) -> Parts:
        """Score the rows of all tables with a model, and return them by what they are for."""

    def read_fresh(
        self,
        place: str,
        label: str,
        *,
        key: str | None,
        group: str | None,
        optional: Collection[str] = (),
    ) -> TableLike:
        """Read labelled rows; a column that key or group names may be missing if `optional`."""

    def answer(self, uri: str, table: Any, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""


class LocalEngine:
    """Rows in this process: inputs batch by batch, scores all in memory."""

    def read_tables(self, settings: Calibrate) -> Tables[Table]:
        """Read what a calibration is given."""
        return local_parts.read_tables(settings)

    def make_parts(
        self,
        tables: Tables[Table],
        model: PyFuncModel,
        uri: str,  # other processes would load it from there
        example: Any,
        settings: Calibrate,
    ) -> Parts:
        """Score the rows of all tables, and return them by what they are for."""
        return local_parts.make_parts(tables, model, example, settings)

    def read_fresh(
        self,
        place: str,
        label: str,
        *,
        key: str | None,
        group: str | None,
        optional: Collection[str] = (),
    ) -> Table:
        """Read labelled rows; a column that key or group names may be missing if `optional`."""
        source = tables.open_table("data", place, label)
        named = without_missing({"key": key, "group": group}, source.columns, optional)
        return read_source("data", place, source, label, **named)

    def answer(self, uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""
        return answer_table(uri, table, classes, batch_rows)


def doing(name: EngineName, n_rows: int) -> str:
    """Return what an engine is about to do, which its own bars or Spark's say how far it is."""
    where = " in Spark, which takes a minute to start" if name == "spark" else ""
    return f"scoring {n_rows:,} rows{where}"


@contextmanager
def open_engine(name: EngineName, spark_options: SparkOptions | None) -> Iterator[Engine]:
    """Yield the engine that is asked for, and close what it had to open."""
    options = session_options(name, spark_options)
    if name == "local":
        yield LocalEngine()
        return
    from scrib_mlflow.adapters.spark_session import session  # noqa: PLC0415  # an extra
    from scrib_mlflow.workflows.spark_engine import SparkEngine  # noqa: PLC0415

    with session(options) as spark, closing(SparkEngine(spark)) as engine:
        yield engine


def session_options(name: EngineName, given: SparkOptions | None) -> dict[str, str]:
    """Return settings of a session as Spark writes them: true, not True."""
    if name == "local" and given is not None:
        msg = "spark_options are for engine=spark; leave them out, or name that engine"
        raise InvalidSettingsError(msg)
    return {
        option: str(value).lower() if isinstance(value, bool) else str(value)
        for option, value in (given or {}).items()
    }
