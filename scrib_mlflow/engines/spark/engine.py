"""The Spark engine: rows stay in Spark, which scores and counts them; few come to the driver."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from scrib_mlflow import messages, serving
from scrib_mlflow.engines.base import CalibrationRows, Tables, without_missing
from scrib_mlflow.engines.spark import columns, rows, udfs
from scrib_mlflow.engines.spark.columns import Roles, check_keys
from scrib_mlflow.engines.spark.rows import SparkAnswered, SparkTable, keep, read_frame
from scrib_mlflow.engines.spark.session import put_back
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.options import Calibrate
from scrib_mlflow.rows import scoring

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITIONS = "spark.sql.shuffle.partitions"
ROWS_EACH = 100_000  # of a partition, where nobody has said how many there are to be


class SparkEngine:
    """Rows in Spark, kept there until the engine is closed."""

    def __init__(self, spark: SparkSession) -> None:
        """Work in a session, which outlives the engine."""
        self._spark = spark
        self._kept: list[DataFrame] = []
        self._before = {name: spark.conf.get(name, None) for name in (BATCH, PARTITIONS)}

    def close(self) -> None:
        """Let go of the rows, and of what was set."""
        for frame in self._kept:
            frame.unpersist()
        put_back(self._spark, self._before)

    def read_tables(self, settings: Calibrate) -> Tables[SparkTable]:
        """Read what a calibration is given."""
        places = {
            "data": settings.data,
            "certify_data": settings.certify_data,
            "path_data": settings.path_data,
        }
        found = {}
        for what, place in places.items():
            label = None if what == "path_data" else settings.label
            roles = Roles(what=what, label=label, key=settings.key, group=settings.group)
            if place is not None:
                found[what] = read_frame(self._open(what, place, label), place, roles)
        return Tables(
            data=found["data"], certify=found.get("certify_data"), path=found.get("path_data")
        )

    def make_parts(
        self,
        tables: Tables[SparkTable],
        model: PyFuncModel,
        uri: str,
        example: Any,
        settings: Calibrate,
    ) -> CalibrationRows:
        """Score the rows of all tables, and return them by what they are for."""
        self._prepare(max(each.record.n_rows for each in tables.all()), settings.batch_rows)
        return rows.make_parts(tables, model, uri, example, settings, self._hold)

    def read_fresh(
        self,
        place: str,
        label: str,
        *,
        key: str | None,
        group: str | None,
        optional: Collection[str] = (),
    ) -> SparkTable:
        """Read labelled rows; a column that key or group names may be missing if `optional`."""
        frame = self._open("data", place, label)
        named = without_missing({"key": key, "group": group}, frame.columns, optional)
        return read_frame(frame, place, Roles(what="data", label=label, **named))

    def answer(
        self, uri: str, table: SparkTable, classes: tuple[str, ...], batch_rows: int
    ) -> SparkAnswered:
        """Let a registered set classifier answer the rows of a table."""
        self._prepare(table.record.n_rows, batch_rows)
        frame, roles = table.frame, table.roles
        labels = columns.find_labels(frame, roles, classes)
        model = scoring.load_model(uri)
        inputs = model.metadata.get_input_schema()
        names = udfs.feature_names(frame, inputs, [str(roles.label), *table.beside])
        if names is None:
            raise udfs.lacking(frame, inputs, table.what)
        _try(model, udfs.first_rows(frame, names, scoring.TRIED), table.what)
        scored = udfs.with_scores(frame, uri, names, inputs, classes, None)
        slim = columns.identify(scored, roles, labels, names, inputs, len(classes))
        grouped = roles.group is not None
        answered = SparkAnswered(
            frame=self._hold(keep(slim, grouped=grouped)),
            k=len(classes),
            grouped=grouped,
            keyed=roles.key is not None,
        )
        record = table.record
        columns.check_unchanged(answered.frame, frame.columns, record.digest, table.what)
        check_keys(answered.frame, roles)
        if answered.n_invalid == answered.n_rows:
            raise InvalidDataError(
                f"{uri} can score none of the {answered.n_rows:,} rows of {table.what}; are they "
                "of another kind?"
            )
        return answered

    def _prepare(self, n_rows: int, batch_rows: int) -> None:
        """Choose batches and partitions: each costs time, and too few leave cores idle."""
        self._spark.conf.set(BATCH, str(batch_rows))
        context = getattr(self._spark, "sparkContext", None)  # Spark Connect has none
        if context is not None and not context.getConf().contains(PARTITIONS):
            wanted = max(context.defaultParallelism, math.ceil(n_rows / ROWS_EACH))
            self._spark.conf.set(PARTITIONS, str(wanted))

    def _open(self, what: str, place: str, label: str | None) -> DataFrame:
        return columns.read(self._spark, what, place, label)

    def _hold(self, frame: DataFrame) -> DataFrame:
        """Return rows that are kept, and remember to let go of them."""
        self._kept.append(frame)
        return frame


def _try(model: PyFuncModel, rows: Any, what: str) -> None:
    """Raise where the model refuses rows altogether: their columns are not what it takes."""
    try:
        model.predict(rows, params={"explain": True})
    except MlflowException as error:
        if serving.NONE_SCORED not in str(error):
            raise InvalidDataError(
                f"the model refuses rows of {what}: {messages.reason(error)}"
            ) from error
