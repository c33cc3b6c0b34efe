"""Rows and groups that two Spark tables share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.adapters import digests
from scrib_mlflow.adapters.spark_columns import column
from scrib_mlflow.adapters.spark_sums import as_signed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_shared(seen: DataFrame, rows: DataFrame, name: str) -> int:
    """Return how many rows have a hash, in the column of this name, that rows seen have too."""
    known = seen.select(name).distinct()
    return int(rows.select(name).join(known, name, "left_semi").count())


def shared_group(seen: DataFrame, rows: DataFrame) -> int | None:
    """Return the lowest hash, as Spark holds it, of a group that both have; None without any."""
    both = rows.select("grouped").join(seen.select("grouped").distinct(), "grouped", "left_semi")
    lowest: int | None = both.agg(F.min("grouped")).collect()[0][0]
    return lowest


def value_with(table: DataFrame, name: str, hashed: int) -> str:
    """Return the text of the value in a column that has a hash."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch.column(0).to_pandas()
            found = np.flatnonzero(as_signed(digests.key_hashes(values)) == hashed)
            texts = [str(value) for value in values.iloc[found[:1]].tolist()]
            yield pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})

    values = table.select(column(name).alias("value")).distinct().mapInArrow(find, "value string")
    return str(values.first()["value"])
