"""Folders of answers on file systems that only Spark knows: HDFS, S3 and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrib_mlflow.adapters.prediction_files import MANIFEST
from scrib_mlflow.errors import OutputError, ScribError
from scrib_mlflow.results import Predictions, from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_apart(output: str, data: str) -> None:
    """Raise where the output would lie among the data, or the data in the output."""
    written, read = (f"{place.rstrip('/')}/" for place in (output, data))
    if written.startswith(read) or read.startswith(written):
        msg = f"output {output} and the data {data} lie in each other; choose another folder"
        raise OutputError(msg)


def exists(session: SparkSession, place: str) -> bool:
    """Return whether anything is at a place."""
    system, path = _at(session, place)
    return bool(system.exists(path))


def move(session: SparkSession, old: str, new: str) -> None:
    """Give a folder another name; nothing may have it."""
    system, path = _at(session, old)
    if not system.rename(path, _at(session, new)[1]):
        msg = f"{old} cannot be renamed to {new}; is there something, or may you not write there?"
        raise OutputError(msg)


def remove(session: SparkSession, place: str) -> None:
    """Delete a folder, if it is there."""
    system, path = _at(session, place)
    system.delete(path, True)  # all that is in it


def _at(session: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a place, and its path."""
    context = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path


def write_manifest(session: SparkSession, output: str, record: Predictions) -> None:
    """Write what is told of an output on a file system that only Spark knows."""
    frame = session.createDataFrame([(to_json(record),)], "value string")
    frame.coalesce(1).write.mode("overwrite").text(f"{output.rstrip('/')}/{MANIFEST}")


def read_manifest(session: SparkSession, output: str) -> Predictions | None:
    """Return what such an output says of itself, None where it says nothing."""
    try:
        rows = session.read.text(f"{output.rstrip('/')}/{MANIFEST}", wholetext=True).collect()
        found = from_json(rows[0]["value"])
    except (ScribError, IndexError):
        return None
    except Exception as error:  # Spark has one kind of error for all that is wrong with a path
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise
    return found if isinstance(found, Predictions) else None
