"""The Spark engine: Spark reads and scores, and the local engine's lines do the rest."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

from scrib_mlflow import messages, serving
from scrib_mlflow.core.inputs import fill_rows, is_among
from scrib_mlflow.engines import local
from scrib_mlflow.engines.base import CalibrationRows, RowsRequest, SmokeTest, Tables
from scrib_mlflow.engines.spark.scoring import ServedModel, feature_names, score_table
from scrib_mlflow.engines.spark.tables import SparkTable, first_rows, read_table
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.registry import models
from scrib_mlflow.rows import hashes, scoring
from scrib_mlflow.rows.scored import Answered, Scored
from scrib_mlflow.rows.scoring import Prepared, ScoreOptions, ScoringPlan
from scrib_mlflow.rows.tables import as_typed, label_indices, missing_features

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKED_AT = 10 * local.TRIED_ROWS  # rows among which some to fit are found, to try the model on


class SparkEngine:
    """Rows that Spark reads and scores."""

    def __init__(self, spark: SparkSession) -> None:
        """Work in a session, which outlives the engine."""
        self._spark = spark

    def read_tables(self, request: RowsRequest) -> Tables[SparkTable]:
        """Read what a calibration is given."""

        def read(what: str, place: str | None, label: str | None) -> SparkTable | None:
            if place is None:
                return None
            key, group = request.key, request.group
            return read_table(self._spark, what, place, label, key=key, group=group)

        data = read("data", request.data, request.scoring.label)
        assert data is not None  # noqa: S101  # for mypy; data is always given
        return Tables(
            data=data,
            certify=read("certify_data", request.certify_data, request.scoring.label),
            path=read("path_data", request.path_data, None),
        )

    def make_parts(
        self,
        tables: Tables[SparkTable],
        model: PyFuncModel,
        uri: str,
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables with a model, and return them by what they are for."""
        scoring.check_asked(model, request.scoring)
        ready: dict[str, Prepared] = {}
        rows: dict[str, Scored] = {}
        plan: ScoringPlan | None = None
        for read in tables.all():
            found = scoring.ask(model, example, read, read.some_rows(), request.scoring, plan)
            plan = plan or found
            _check_labels(read, found.scorer.classes)
            each, rows[read.what] = _score(read, found, uri, example, request.scoring)
            ready[read.what] = each
        certify, path = ready.get("certify_data"), ready.get("path_data")
        known = Tables(
            data=ready["data"].table,
            certify=certify and certify.table,
            path=path and path.table,
        )
        chosen = local.choose(known, ready["data"], request)
        return local.join_parts(
            known,
            [*ready.values()],
            rows,
            chosen,
            lambda fit: _tried(tables.data, ready["data"], [fit, rows["data"]]),
        )

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
        return read_table(
            self._spark, "data", place, label, key=key, group=group, optional=optional
        )

    def answer(
        self, uri: str, table: SparkTable, classes: tuple[str, ...], batch_rows: int
    ) -> Answered:
        """Let a registered set classifier answer the rows of a table."""
        _check_labels(table, classes)
        model = models.load_model(uri)
        schema = model.metadata.get_input_schema()
        names = feature_names(table.frame, schema, [str(table.label), *table.beside])
        if names is None:
            missing = missing_features(first_rows(table.frame, None, 0), schema)
            raise InvalidDataError(f"{table.what} cannot be scored: {missing}")
        some = as_typed(first_rows(table.frame, names, scoring.TRIED), schema)
        _try(model, some, table.what)
        served = ServedModel(
            uri=uri, inputs=tuple(names), schema=schema, classes=classes, source=None
        )
        found = score_table(table, served, (), batch_rows)
        n = table.record.n_rows
        invalid = fill_rows(n, np.bool_, lambda of: np.isnan(found.scores[of]).all(axis=1))
        n_invalid = int(np.count_nonzero(invalid))
        if n_invalid == n:
            raise InvalidDataError(
                f"{uri} can score none of the {n:,} rows of {table.what}; are they of another kind?"
            )
        return Answered(
            table=found.table,
            scores=found.scores,
            sets=found.sets,
            labels=found.table.indices(classes),
            sums=found.sums,
            n_invalid=n_invalid,
        )


def _check_labels(table: SparkTable, classes: tuple[str, ...]) -> None:
    """Raise for labels that are no classes, before rows are scored."""
    if table.labels is not None:
        place = f"column {table.label!r} of {table.what}, of its different values"
        label_indices(table.labels, classes, place=place)


def _score(
    read: SparkTable, plan: ScoringPlan, uri: str, example: Any, options: ScoreOptions
) -> tuple[Prepared, Scored]:
    """Return a table as the local engine prepares it, and its rows with their scores."""
    scorer = plan.scorer
    wanted, named = scoring.score_columns(options)
    columns = (named or scorer.classes) if wanted == scoring.COLUMNS else ()
    served = ServedModel(
        uri=uri,
        inputs=plan.inputs,
        schema=scorer.model.metadata.get_input_schema(),
        classes=scorer.classes,
        source=scorer.source,
    )
    table, sums, scores, _ = score_table(read, served, columns, options.batch_rows)
    labels = table.indices(scorer.classes)
    rows = scoring.scored_rows(table, scorer.classes, labels, options.seed, scores, sums)
    return Prepared(table, scorer, labels, plan.inputs), rows


def _tried(read: SparkTable, ready: Prepared, parts: list[Scored]) -> SmokeTest | None:
    """Return some rows as the local engine reads them, with the scores found in Spark.

    They are fit rows, but a sorted table may begin with others only.
    """
    some = first_rows(read.frame, ready.inputs, LOOKED_AT) if ready.inputs else None
    features = None if some is None else ready.features(some)
    if features is None:
        return None
    sums = hashes.feature_sums(features)
    ordered = np.sort(sums)
    for rows in parts:
        alike = np.flatnonzero(is_among(rows.sums, ordered))
        places = {int(rows.sums[place]): place for place in alike}
        found = [row for row, each in enumerate(sums.tolist()) if each in places]
        found = found[: local.TRIED_ROWS]
        if found:
            scores = rows.scores[[places[int(sums[row])] for row in found]]
            return SmokeTest(features.iloc[found].reset_index(drop=True), scores)
    return None


def _try(model: PyFuncModel, rows: Any, what: str) -> None:
    """Raise where the model refuses rows altogether: their columns are not what it takes."""
    try:
        model.predict(rows, params={"explain": True})
    except MlflowException as error:
        if serving.NONE_SCORED not in str(error):
            raise InvalidDataError(
                f"the model refuses rows of {what}: {messages.reason(error)}"
            ) from error
