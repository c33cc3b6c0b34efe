"""A Spark session: the one that is there, or one of our own that ends with the command."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import scrib_mlflow
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, ScribError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "spark.master"
LOCAL = {  # nothing outside this machine has to reach the driver
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
AS_PANDAS = {"spark.sql.caseSensitive": "true", "spark.sql.session.timeZone": "UTC"}
INSTALL = "install it with: pip install 'scrib_mlflow[spark]', and Java 17"
OF_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Warning)): (.+)$")
SPARKS_CLASS = re.compile(r"^\[[A-Z_]+(\.[A-Z_]+)*\]\s*")
CALLING = "An error occurred while calling"
OF_JAVA = re.compile(r"^Caused by: (?:[\w.$]+: )?")
LONGEST = 300
MOST_TASKS = 64  # that ask workers for their version


@contextmanager
def session(options: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield the active session, or a new one with these options, which is stopped at the end.

    Errors of Spark become errors of ours, without the stack of the JVM.
    """
    sql = _import_spark()
    with ExitStack() as stack:
        active = _running(sql)
        if active is None:
            active = _start(sql, options)
            stack.callback(active.stop)
            active.sparkContext.setLogLevel("ERROR")
        stack.enter_context(plain_errors())
        stack.enter_context(settings(active, AS_PANDAS))
        check_workers(active)
        yield active


def _running(sql: Any) -> SparkSession | None:
    """Return the session of this process, also where another thread has started it."""
    from pyspark import SparkContext  # noqa: PLC0415

    active: SparkSession | None = sql.SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        active = sql.SparkSession.builder.getOrCreate()
    return active


@contextmanager
def settings(active: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set something in a session, and put it back."""
    before = {name: active.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        active.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                active.conf.unset(name)
            else:
                active.conf.set(name, old)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what Spark raises as an error of ours, in a sentence."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    kinds: list[type[Exception]] = [PySparkException]
    with suppress(ImportError):  # Spark Connect has no JVM at hand
        from py4j.protocol import Py4JError  # noqa: PLC0415

        kinds.append(Py4JError)
    try:
        yield
    except tuple(kinds) as error:
        raise InvalidDataError(f"Spark could not finish: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return the first useful sentence of an error: what Python said, or else what Spark says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [match for line in lines if (match := OF_PYTHON.match(line))]
    kinds: list[type] = [ScribError, *ScribError.__subclasses__()]
    names = {kind.__name__ for kind in kinds}
    ours = [match[2] for match in raised if match[1] in names]
    if ours:
        return ours[-1]
    of_python = [match for match in raised if not match[0].startswith(("java.", "org.", "py4j."))]
    if of_python:
        return _short(f"{of_python[-1][1]}: {of_python[-1][2]}")
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes and lines[0].startswith(CALLING):  # py4j's first line says nothing
        return _short(SPARKS_CLASS.sub("", OF_JAVA.sub("", causes[-1])))
    if lines:
        return _short(SPARKS_CLASS.sub("", lines[0]))
    return type(error).__name__


def _short(text: str) -> str:
    text = text.partition(" SQLSTATE: ")[0]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _import_spark() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of pandas 3, which works
            from pyspark import sql  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSettingsError(f"engine=spark needs pyspark: {error}; {INSTALL}") from error
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    return sql


def _start(sql: Any, options: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return _build(sql, options)
    except Exception as error:
        raise InvalidSettingsError(
            f"Spark does not start: {reason(error)}; {INSTALL}, and check spark_options"
        ) from error


def _build(sql: Any, options: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    # the JVM reads spark-defaults.conf, and some options only when it starts
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(options.items())))
    known = SparkConf()  # what spark-submit and the environment say
    master = options.get(MASTER) or known.get(MASTER) or os.environ.get("MASTER") or "local[*]"
    builder = sql.SparkSession.builder.appName("scrib_mlflow").master(master)
    if master.startswith("local"):
        for name, value in LOCAL.items():
            builder = builder.config(name, known.get(name) or value)
    shown = str(sys.stderr.isatty()).lower()
    builder = builder.config("spark.ui.showConsoleProgress", shown)
    for name, value in options.items():
        if name != MASTER:
            builder = builder.config(name, value)
    return builder.getOrCreate()


def check_workers(active: SparkSession) -> None:
    """Raise unless Spark's Python workers have this very version of the package."""
    try:
        context = getattr(active, "sparkContext", None)  # Spark Connect has none
        tasks = 1 if context is None else min(2 * context.defaultParallelism, MOST_TASKS)
        answers = active.range(0, tasks, numPartitions=tasks).mapInArrow(_say, "version string")
        versions = {row["version"] for row in answers.collect()}
    except Exception as error:
        raise InvalidSettingsError(
            f"Spark's workers cannot run scrib_mlflow: {reason(error)}; give them an environment "
            "with the packages that this one has, and name its Python in PYSPARK_PYTHON"
        ) from error
    here = scrib_mlflow.__version__
    other = versions - {here}
    if other:
        raise InvalidSettingsError(
            f"Spark's workers have scrib_mlflow {min(other)}, but here it is "
            f"{here}; install the same version in their environment"
        )


def _say(batches: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"version": [scrib_mlflow.__version__]})
