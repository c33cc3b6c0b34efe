"""Where rows are read, scored and counted: in this process, or by Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from mlflow.pyfunc import PyFuncModel

from scrib_mlflow.engines import local
from scrib_mlflow.engines.base import CalibrationRows, Engine, RowsRequest, Tables, without_missing
from scrib_mlflow.engines.local import answer_table
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.options import EngineName, SparkOptions
from scrib_mlflow.rows import tables
from scrib_mlflow.rows.scored import Answered
from scrib_mlflow.rows.tables import Table, read_source


class LocalEngine:
    """Rows in this process: inputs batch by batch, scores all in memory."""

    def read_tables(self, request: RowsRequest) -> Tables[Table]:
        """Read what a calibration is given."""
        return local.read_tables(request)

    def make_parts(
        self,
        tables: Tables[Table],
        model: PyFuncModel,
        uri: str,  # other processes would load it from there
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables, and return them by what they are for."""
        return local.make_parts(tables, model, example, request)

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
    from scrib_mlflow.engines.spark.engine import SparkEngine  # noqa: PLC0415
    from scrib_mlflow.engines.spark.session import session  # noqa: PLC0415  # an extra

    with session(options) as spark:
        yield SparkEngine(spark)


def session_options(name: EngineName, given: SparkOptions | None) -> dict[str, str]:
    """Return settings of a session as Spark writes them: true, not True."""
    if name == "local" and given is not None:
        raise InvalidSettingsError(
            "spark_options are for engine=spark; leave them out, or name that engine"
        )
    return {
        option: str(value).lower() if isinstance(value, bool) else str(value)
        for option, value in (given or {}).items()
    }
