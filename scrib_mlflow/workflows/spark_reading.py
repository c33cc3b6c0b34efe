"""Tables that Spark has read, digested where their rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from scrib_mlflow.adapters import digests, spark_columns, spark_scoring
from scrib_mlflow.results import DataRecord
from scrib_mlflow.workflows.reading import SOME_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """A table whose rows stay in Spark."""

    frame: DataFrame
    record: DataRecord
    roles: spark_columns.Roles

    @property
    def what(self) -> str:
        """The parameter that names it."""
        return self.roles.what

    @property
    def label(self) -> str | None:
        """Its column of true classes."""
        return self.roles.label

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are no inputs: those that identify and group rows."""
        return tuple(name for name in (self.roles.key, self.roles.group) if name is not None)

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""
        return spark_scoring.first_rows(self.frame, None, SOME_ROWS)


def read_frame(frame: DataFrame, place: str, roles: spark_columns.Roles) -> SparkTable:
    """Return an open table, digested."""
    spark_columns.check_roles(frame, roles)
    sums = spark_columns.digest_sums(frame, roles)
    n = int(sums[0])
    record = DataRecord(
        source=place, digest=digests.digest_of(frame.columns, sums), n_rows=n, n_used=n
    )
    return SparkTable(frame=frame, record=record, roles=roles)
