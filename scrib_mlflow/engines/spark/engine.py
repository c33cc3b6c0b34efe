"""The Spark engine: Spark reads and scores, and the local engine's lines do the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

from scrib_mlflow import errors, messages, serving
from scrib_mlflow.core.inputs import WITHOUT_LABEL, is_among
from scrib_mlflow.engines import local
from scrib_mlflow.engines.base import CalibrationRows, Engine, RowsRequest, SmokeTest, Tables
from scrib_mlflow.engines.spark.scoring import ServedModel, score_table
from scrib_mlflow.engines.spark.tables import (
    SparkTable,
    column,
    first_rows,
    read_table,
    rows_with_hashes,
)
from scrib_mlflow.registry import models
from scrib_mlflow.rows import hashes, scoring
from scrib_mlflow.rows.scored import Answered, Scored, make_answered
from scrib_mlflow.rows.tables import as_typed, feature_names, label_indices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKED_AT = 10 * local.TRIED_ROWS  # rows among which some to fit are found, to try the model on


class SparkEngine(Engine[SparkTable]):
    """Rows that Spark reads and scores."""

    def __init__(self, spark: SparkSession) -> None:
        """Work in a session, which outlives the engine."""
        self._spark = spark

    def read_table(self, what: str, place: str, label: str | None, **named: Any) -> SparkTable:
        """Read rows."""
        return read_table(self._spark, what, place, label, **named)

    def make_parts(
        self,
        tables: Tables[SparkTable],
        model: PyFuncModel | None,
        uri: str,
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables with a model, and return them by what they are for."""
        some_rows = ((table, table.some_rows()) for table in tables.all())
        plans = (
            scoring.plan_scores(some_rows, request.scoring)
            if model is None
            else scoring.plan_tables(model, example, some_rows, request.scoring)
        )
        ready: list[scoring.Prepared] = []
        rows: dict[str, Scored] = {}
        for read, plan in zip(tables.all(), plans, strict=True):
            scorer = plan.scorer
            _check_labels(read, scorer.classes)
            served = ServedModel(
                uri=uri,
                inputs=plan.inputs,
                schema=scorer.input_schema(),
                classes=scorer.classes,
                source=scorer.source,
                score_columns=plan.columns,
            )
            options = request.scoring
            table, sums, scores, _, _, unscored = score_table(
                read, served, options.batch_rows, options.max_invalid
            )
            ready.append(scoring.Prepared(table, table.indices(scorer.classes), plan))
            rows[read.what] = scoring.scored_rows(
                ready[-1], options.seed, scores, sums, unscored=unscored
            )
        chosen = local.choose(ready, request)

        def some_to_try(fit: Scored) -> SmokeTest | None:
            return _find_rows(tables.data, ready[0].plan, [fit, rows["data"].scorable()])

        return local.join_parts(
            ready, rows, chosen, some_to_try, drop_repeated=request.drop_repeated
        )

    def read_again(self, table: SparkTable, rows: Scored, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of some rows of a table, for people; in the order of their hashes."""
        wanted = rows.table.hashes[rows.places]
        found = rows_with_hashes(table.frame, wanted)
        # of equal rows as many as were drawn, each in the place of one of them
        there = np.argsort(wanted, kind="stable")
        here = np.argsort(found.index.to_numpy(), kind="stable")
        found = found.iloc[here]
        of_equal = found.groupby(level=0).cumcount().to_numpy()
        drawn = pd.Series(wanted).value_counts().reindex(found.index).to_numpy()
        chosen = found[of_equal < drawn].iloc[np.argsort(rows.order[there], kind="stable")]
        return chosen[list(columns)].reset_index(drop=True)

    def answer(
        self, uri: str, table: SparkTable, classes: tuple[str, ...], batch_rows: int
    ) -> Answered:
        """Let a registered set classifier answer the rows of a table."""
        _check_labels(table, classes)
        model = models.load_model(uri)
        schema = model.metadata.get_input_schema()
        leave_out = [str(table.label), *table.beside]
        names = feature_names(table.what, table.frame.columns, schema, leave_out)
        some = first_rows(table.frame.select(*map(column, names)), scoring.TRIED)
        params = models.served_parameters(model.metadata.get_params_schema(), explain=True)
        try:
            model.predict(as_typed(some, schema), params=params)
        except MlflowException as error:
            if serving.NONE_SCORED not in str(error):  # the columns are not what it takes
                raise errors.InvalidDataError(
                    f"the model refuses rows of {table.what}: {messages.reason(error)}"
                ) from error
        served = ServedModel(uri=uri, inputs=tuple(names), schema=schema, classes=classes)
        slim, sums, scores, sets, named, _ = score_table(table, served, batch_rows)
        labels = slim.indices(classes)
        return make_answered(uri, slim, classes, labels, sums, scores, sets, named)


def _check_labels(table: SparkTable, classes: tuple[str, ...]) -> None:
    """Raise for labels that are no classes, before rows are scored."""
    if table.labels is not None:
        place = f"column {table.label!r} of {table.what}, of its different values"
        try:
            label_indices(table.labels, classes, place=place)
        except errors.MissingLabelsError as error:  # only another pass would count
            text = f"{place}: some are empty, so their rows have no label; {WITHOUT_LABEL}"
            raise errors.MissingLabelsError(text) from error


def _find_rows(
    read: SparkTable, plan: scoring.ScoringPlan, parts: list[Scored]
) -> SmokeTest | None:
    """Return some rows as the local engine reads them, with the scores found in Spark.

    They are fit rows, but a sorted table may begin with others only.
    """
    selected = read.frame.select(*map(column, plan.inputs))
    features = plan.features(first_rows(selected, LOOKED_AT)) if plan.inputs else None
    if features is None:
        return None
    sums = hashes.feature_sums(features)
    ordered = np.sort(sums)
    for rows in parts:
        alike = np.flatnonzero(is_among(rows.sums, ordered))
        numbers = {int(rows.sums[number]): number for number in alike}
        some = [i for i, each in enumerate(sums.tolist()) if each in numbers][: local.TRIED_ROWS]
        if some:
            scores = rows.scores[[numbers[int(sums[i])] for i in some]]
            return SmokeTest(features.iloc[some].reset_index(drop=True), scores)
    return None
