"""Tables that Spark reads, with the columns and types that the local engine would see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.adapters.csv_files import NOTHING
from scrib_mlflow.adapters.spark_columns import column
from scrib_mlflow.adapters.spark_session import reason
from scrib_mlflow.adapters.tables import UNNAMED
from scrib_mlflow.core.checks import nearest
from scrib_mlflow.errors import InvalidDataError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OF_MLFLOW = {"runs", "models", "mlflow-artifacts", "http", "https", "databricks", "dbfs-artifacts"}
CSV = {  # as pandas reads it: quotes are doubled, lines of other lengths are errors
    "header": True,
    "mode": "FAILFAST",
    "escape": '"',
    "enforceSchema": False,
}
WHOLE = r"^\s*[+-]?[0-9]{1,19}\s*$"
LONGEST_WHOLE = 2**63  # first that is no 64-bit integer
NUMBER = (
    r"^\s*[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|(?i:inf(inity)?))\s*$"
)
TRUTHS = ("True", "TRUE", "true", "False", "FALSE", "false")

Kind = Literal["long", "double", "boolean", "string"]


def read(session: SparkSession, name: str, place: str, label: str | None) -> DataFrame:
    """Return the table at a path, or in the catalog, which must have the label column if named."""
    told = f"{name} {place}"
    try:
        frame = _read(session, told, place, label)
    except InvalidDataError:
        raise
    except Exception as error:  # Spark and its file systems have errors of many kinds
        msg = f"{told} cannot be read: {_why(error)}"
        raise InvalidDataError(msg) from error
    unnamed = [each for each in frame.columns if UNNAMED.fullmatch(each)]
    frame = frame.drop(*unnamed)
    if label is not None and label not in frame.columns:
        msg = f"{told} has no column {label!r} for the labels; {nearest(label, frame.columns)}"
        raise InvalidDataError(msg)
    if frame.isEmpty():
        msg = f"{told} has no rows"
        raise InvalidDataError(msg)
    return frame


def _why(error: Exception) -> str:
    if "PATH_NOT_FOUND" in str(error):
        return f"it does not exist; a relative path is looked up in {Path.cwd()}"
    return reason(error)


def _read(session: SparkSession, told: str, place: str, label: str | None) -> DataFrame:
    scheme = urlsplit(place).scheme
    if scheme in OF_MLFLOW:
        msg = (
            f"{told} cannot be read: Spark knows no {scheme}: addresses; download it to where all "
            "of Spark's workers can read it, or use engine=local"
        )
        raise InvalidDataError(msg)
    path = place
    if len(scheme) <= 1 and Path(place).exists():  # one letter is a Windows drive
        path = spark_path(Path(place))
    lower = place.lower()
    if lower.endswith((".csv", ".csv.gz")):
        return _typed(session.read.csv(path, **CSV), label)
    if lower.endswith((".parquet", ".pq")) or scheme or Path(place).is_dir():
        return session.read.parquet(path)
    if session.catalog.tableExists(place):
        return session.table(place)
    msg = (
        f"{told} cannot be read: it is no table in Spark's catalog, and its ending is none of "
        ".parquet, .pq, .csv and .csv.gz"
    )
    raise InvalidDataError(msg)


def spark_path(path: Path) -> str:
    """Return a path of this machine as Spark reads it: as a pattern, without percent codes."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", path.absolute().as_posix())


def _typed(texts: DataFrame, label: str | None) -> DataFrame:
    """Return a table of texts with numbers and truths where a whole column holds nothing else."""
    others = [name for name in texts.columns if name != label]
    there = {name: F.nullif(column(name), F.lit("")) for name in others}
    columns = [there[name].alias(name) for name in others]
    if label in texts.columns:
        columns.append(F.coalesce(column(str(label)), F.lit("")).alias(str(label)))
    rows = texts.select(*columns)
    kinds = _kinds(rows, others)
    return rows.select(
        *(
            _as(column(name), kinds[name]).alias(name) if name in kinds else column(name)
            for name in texts.columns
        )
    )


def _kinds(rows: DataFrame, names: list[str]) -> dict[str, Kind]:
    """Return what columns of texts hold, in one pass."""
    if not names:
        return {}
    sums = [F.count("*")]
    for name in names:
        values = column(name)
        sums += [
            F.count(values),
            F.count_if(_is_long(values)),
            F.count_if(values.rlike(NUMBER)),
            F.count_if(values.isin(*TRUTHS)),
            F.count_if(values.isin(*NOTHING)),
        ]
    n, *found = rows.agg(*(each.alias(f"c{i}") for i, each in enumerate(sums))).collect()[0]
    return {name: _kind(n, *found[5 * place : 5 * place + 5]) for place, name in enumerate(names)}


def _is_long(values: Column) -> Column:
    """Return whether texts are 64-bit integers."""
    whole = F.when(values.rlike(WHOLE), F.trim(values)).cast("decimal(20,0)")
    low, high = (F.lit(str(end)).cast("decimal(20,0)") for end in (-LONGEST_WHOLE, LONGEST_WHOLE))
    inside = (whole >= low) & (whole < high)
    return F.coalesce(inside, F.lit(False))


def _kind(n: int, there: int, whole: int, number: int, truth: int, nothing: int) -> Kind:
    """Return the kind of a column from how many of its values look like what."""
    full = there == n
    if full and there == whole:
        return "long"
    if full and there == truth:
        return "boolean"
    if there in {number + nothing, truth}:
        return "double"
    return "string"


def _as(values: Column, kind: Kind) -> Column:
    if kind == "string":
        return values
    if kind == "double":
        truth = F.when(values.isin(*TRUTHS), F.lower(values).cast("boolean").cast("double"))
        number = F.trim(F.when(~values.isin(*NOTHING) & ~values.isin(*TRUTHS), values))
        return F.coalesce(truth, number.cast("double"))
    return F.trim(values).cast(kind)
