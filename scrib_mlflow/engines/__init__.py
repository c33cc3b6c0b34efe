"""Engines: where rows are read and scored, in this process or in Spark. One machine counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.options import EngineName, SparkOptions

if TYPE_CHECKING:
    from scrib_mlflow.engines.base import Engine


def doing(name: EngineName, n_rows: int) -> str:
    """Return what an engine is about to do, which its own bars or Spark's say how far it is."""
    where = " in Spark, which takes a minute to start" if name == "spark" else ""
    return f"scoring {n_rows:,} rows{where}"


@contextmanager
def open_engine(name: EngineName, spark_options: SparkOptions | None) -> Iterator[Engine[Any]]:
    """Yield the engine that is asked for, and close what it had to open."""
    options = session_options(name, spark_options)
    if name == "local":
        from scrib_mlflow.engines.local import LocalEngine  # noqa: PLC0415  # only what is used

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
