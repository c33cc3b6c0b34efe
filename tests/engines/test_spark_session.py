"""A Spark session: what it says, what it leaves behind, and what it needs."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from scrib_mlflow.engines.spark import session
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from tests.engines.spark import OPTIONS, small_session

PYTHON_ERROR = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 3, in f
    raise InvalidDataError(msg)
{name}: row 7 has no stage; fill it in

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
java.lang.RuntimeException: something else
"""
JAVA_ERROR = """[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.dataPathNotExistError
"""


PY4J_ERROR = """
An error occurred while calling o78.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
	at org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: java.lang.IllegalArgumentException: CSV header does not conform to the schema.
	at org.apache.spark.sql.catalyst.csv.CSVHeaderChecker.check(CSVHeaderChecker.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            PYTHON_ERROR.format(name="scrib_mlflow.errors.InvalidDataError"),
            "row 7 has no stage; fill it in",
        ),
        (PYTHON_ERROR.format(name="ValueError"), "ValueError: row 7 has no stage; fill it in"),
        (JAVA_ERROR, "Path does not exist: file:/nowhere."),
        (PY4J_ERROR, "CSV header does not conform to the schema."),
        ("", "PySparkException"),
    ],
)
def test_an_error_is_told_in_a_sentence_and_without_a_stack(text, told):
    assert session.reason(PySparkException(text)) == told


def _open_and_close():
    with session.session({}):
        pass


@pytest.mark.slow
def test_a_session_of_our_own_ends_and_one_that_is_there_stays_as_it_was():
    with small_session() as own:
        assert own.conf.get("spark.sql.caseSensitive") == "true"
        own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with session.session({}) as same:
            assert same is own
            assert same.conf.get("spark.sql.session.timeZone") == "UTC"
        assert own.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(_open_and_close).result()
        assert own.range(3).count() == 3
        with (
            pytest.raises(InvalidDataError, match="Spark could not finish: ") as caught,
            session.plain_errors(),
        ):
            own.range(3).selectExpr("assert_true(id < 2)").collect()
        assert "org.apache" not in str(caught.value)
    assert SparkSession.getActiveSession() is None


def test_options_that_spark_does_not_take_are_told():
    with (
        pytest.raises(InvalidSettingsError, match=r"Spark does not start: .*check spark_options"),
        session.session({"spark.master": "nonsense"}),
    ):
        pass


@pytest.mark.slow
def test_workers_without_the_package_are_told(tmp_path):
    """A worker's Python that has pyspark and pyarrow, but not scrib_mlflow."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import sys, importlib.abc
        class Hide(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "scrib_mlflow":
                    raise ModuleNotFoundError("No module named 'scrib_mlflow'")
        if "pyspark.daemon" in " ".join(sys.orig_argv):
            sys.meta_path.insert(0, Hide())
        """)
    )
    code = f"""
from scrib_mlflow.engines.spark import session as spark_session
with spark_session.session({OPTIONS!r}):
    pass
"""
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert "InvalidSettingsError: Spark's workers cannot run scrib_mlflow" in told
    assert "No module named 'scrib_mlflow'" in told.splitlines()[-1]


def test_without_pyspark_it_is_told_what_to_install():
    code = """
import sys
sys.modules["pyspark"] = None
from scrib_mlflow.engines.spark import session as spark_session
with spark_session.session({}):
    pass
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    ).stderr
    assert "InvalidSettingsError: engine=spark needs pyspark" in told
    assert "pip install 'scrib_mlflow[spark]', and Java 17" in told


def test_without_java_it_is_told_what_to_install(tmp_path):
    code = f"""
from scrib_mlflow.engines.spark import session as spark_session
with spark_session.session({OPTIONS!r}):
    pass
"""
    env = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": "/nonexistent"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    ).stderr
    assert "InvalidSettingsError: Spark does not start: " in told
    assert "and Java 17" in told


@pytest.mark.slow
def test_options_and_defaults_reach_the_jvm(tmp_path):
    """In a Python of its own, because a process has one JVM."""
    (tmp_path / "spark-defaults.conf").write_text("spark.master local[3]\n")
    asked = """
from scrib_mlflow.engines.spark.session import session
with session({"spark.driver.memory": "600m"}) as spark:
    print(spark.sparkContext.master, spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    master, memory = done.stdout.split()[-2:]
    assert master == "local[3]"
    assert int(memory) <= 600
