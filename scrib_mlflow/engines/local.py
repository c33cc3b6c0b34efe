"""Rows that this process reads and scores; and those of any engine, split and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import errors, messages, serving
from scrib_mlflow.core.certificate.overlap import compare_rows, count_shared
from scrib_mlflow.core.certificate.split import certify_share, split_rows
from scrib_mlflow.core.inputs import NAN, distinct_values, is_among, new_array, take_rows
from scrib_mlflow.engines.base import CalibrationRows, Engine, RowsRequest, SmokeTest, Tables
from scrib_mlflow.records import Base
from scrib_mlflow.registry import models
from scrib_mlflow.rows import hashes, scoring
from scrib_mlflow.rows.scored import Answered, Scored, make_answered
from scrib_mlflow.rows.tables import Table, as_typed, counted, feature_names, read_rows

TRIED_ROWS = 200  # answered by the logged model before it is registered


def choose(ready: Sequence[scoring.Prepared], request: RowsRequest) -> NDArray[np.bool_] | None:
    """Return which rows of `data`, the first table, certify.

    None where a table of its own certifies, or nothing does.
    """
    chosen = None
    if request.certify and request.certify_data is None:
        chosen = _split(ready[0], request)
    if request.group is not None and request.certify:
        _check_groups([each.table for each in ready], chosen, request.group)
    return chosen


def _split(data: scoring.Prepared, request: RowsRequest) -> NDArray[np.bool_]:
    """Return which rows certify: by a seeded hash of the row, or of its group."""
    return split_rows(
        data.table.identities(),
        data.labels,
        certify_share(request.certify_fraction, with_path=request.path_data is not None),
        request.scoring.seed,
        groups=data.table.groups,
        names=data.plan.scorer.classes,
        waived=request.waive,
    )


def choose_as_calibrate(
    base: Base, table: Table, request: RowsRequest
) -> tuple[scoring.Prepared, NDArray[np.bool_]]:
    """Return the rows of data, not yet scored, and which of them calibrate would certify on."""
    model = models.load_model(base.uri) if base.uri else None
    example = scoring.input_example(base.uri) if base.uri else None
    (ready,) = scoring.prepare(model, example, [table], request.scoring)
    return ready, _split(ready, request)


def _check_groups(tables: Sequence[Table], chosen: NDArray[np.bool_] | None, group: str) -> None:
    """Raise where a group stands among the certify rows and among others."""
    grouped = {table.what: (table, table.groups) for table in tables if table.groups is not None}
    _, certifying = grouped.pop("certify_data" if "certify_data" in grouped else "data")
    known = distinct_values(certifying if chosen is None else take_rows(certifying, chosen))
    for table, groups in grouped.values():
        both = is_among(groups, known)
        if both.any():
            value = table.source.take(np.flatnonzero(both)[:1], [group])[group].tolist()[0]
            raise errors.InvalidDataError(
                f"{group} {value!r} has rows among those that certify and in {table.what}, so they "
                "would not be independent; give every group to one of them"
            )


def join_parts(
    ready: Sequence[scoring.Prepared],
    rows: dict[str, Scored],
    chosen: NDArray[np.bool_] | None,
    tried: Callable[[Scored], SmokeTest | None],
    *,
    drop_repeated: bool,
) -> CalibrationRows:
    """Return scored rows, which come by table, by what they are for.

    `tried` finds some fit rows to try the model on. Certify rows that equal another one are counted
    or left out, by their contents alone.
    """
    fit, certify, path = rows["data"], rows.get("certify_data"), rows.get("path_data")
    path = rows.get("pool", path)
    if chosen is not None:
        fit, certify = fit.take(~chosen), fit.take(chosen)
    n_repeated = n_dropped = 0
    if certify is not None:
        n_repeated = certify.count_repeated()
        if n_repeated and drop_repeated:
            certify, n_repeated, n_dropped = certify.take(certify.distinct()), 0, n_repeated
        _check_overlap(fit, certify, path, own_table=chosen is None)
    scorer = ready[0].plan.scorer
    return CalibrationRows(
        classes=scorer.classes,
        scores=scorer.source,
        fit=fit,
        certify=certify,
        path=path,
        fit_data=fit.record,
        certify_data=None if certify is None else certify.record,
        path_data=None if path is None else path.record,
        n_shared=0 if certify is None else count_shared(fit.cases(), certify.cases()),
        cases=_cases(ready, {"fit": fit, "certify": certify, "path": path}),
        tried=tried(fit.scorable()),
        n_repeated=n_repeated,
        n_dropped=n_dropped,
    )


def _cases(
    ready: Sequence[scoring.Prepared], used: dict[str, Scored | None]
) -> dict[str, hashes.Hashes]:
    """Return hashes of all rows that were used, by what for.

    Scores do not tell rows apart when they come again as inputs, which they cannot without a model.
    """
    scores_only = ready[0].plan.scorer.model is None
    with_inputs = {each.table.what for each in ready if each.plan.inputs or scores_only}
    cases = {}
    for part, rows in used.items():
        if rows is not None and rows.table.what in with_inputs:
            cases[part] = hashes.thin(rows.cases())
        if rows is not None and rows.keys is not None:
            cases[f"{part} keys"] = hashes.thin(rows.keys)
    return cases


def _check_overlap(fit: Scored, certify: Scored, path: Scored | None, *, own_table: bool) -> None:
    """Raise where rows that certify were fitted, beyond what chance explains."""
    others = [fit] if own_table else []
    others += [path] if path is not None else []
    compared = [
        (rows, rows.cases(labelled=False), certify.cases(labelled=False)) for rows in others
    ]
    if certify.keys is not None:
        compared += [(r, r.keys, certify.keys) for r in others if r.keys is not None]
    for rows, seen, certifying in compared:
        overlap = compare_rows(seen, certifying)
        if overlap.excessive:
            raise errors.InvalidDataError(
                f"{overlap.n_shared:,} of the {overlap.n_rows:,} rows that certify stand in "
                f"{rows.table.what} as well, where about "
                f"{overlap.expected * overlap.n_rows:,.0f} would by chance, so they would prove "
                "nothing; give rows that nothing else has seen"
            )


def answer(
    model: PyFuncModel,
    features: pd.DataFrame,
    classes: tuple[str, ...],
    start: int,
    what: str,
    *,
    alone: bool,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return scores, sets and candidates that the model serves, NaN for scores where it has none.

    `start` is the number of the first row in its table; rows that are `alone` are all of it.
    """
    index = {name: j for j, name in enumerate(classes)}
    sets, named = np.zeros((2, len(features), len(index)), dtype=np.bool_)
    scores = np.full(sets.shape, NAN)
    params = models.served_parameters(model.metadata.get_params_schema(), explain=True)
    try:
        answers: Any = model.predict(features, params=params)
    except MlflowException as error:
        if serving.NONE_SCORED in str(error) and not alone:
            return scores, sets, named
        msg = f"the model refuses rows {start} to {start + len(features) - 1} of {what}: "
        raise errors.InvalidDataError(msg + messages.reason(error)) from error
    scored = np.flatnonzero(answers["reason"] != "invalid_scores")
    if len(scored):
        scores[scored] = answers["scores"].to_numpy()[scored].tolist()
    for column, members_of in (("prediction_set", sets), ("candidates", named)):
        for row, members in enumerate(answers[column]):
            members_of[row, [index[name] for name in members]] = True
    return scores, sets, named


def _shares(rows: Scored, most: float | None) -> Scored:
    """Return rows with weights as shares of the highest that one can have."""
    if rows.weights is None or most is None:
        return rows
    if rows.weights.max(initial=0.0) > most:
        raise errors.InvalidWeightsError(
            f"a row of {rows.table.what} weighs {rows.weights.max():g}, more than max_weight = "
            f"{most:g}; find a bound that no row can exceed, and certify on rows not looked at "
            "before"
        )
    return replace(rows, weights=rows.weights / most)


class LocalEngine(Engine[Table]):
    """Rows in this process: inputs batch by batch, large arrays on the disk."""

    def read_table(self, what: str, place: str, label: str | None, **named: Any) -> Table:
        """Read rows."""
        return read_rows(what, place, label, **named)

    def make_parts(
        self,
        tables: Tables[Table],
        model: PyFuncModel | None,
        uri: str,  # other processes would load it from there
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables, and return them by what they are for."""
        ready = scoring.prepare(model, example, tables.all(), request.scoring)
        chosen = choose(ready, request)
        rows = {
            each.table.what: _shares(scoring.score(each, request.scoring), request.max_weight)
            for each in ready
        }

        def first_rows(fit: Scored) -> SmokeTest | None:
            numbers = fit.places[:TRIED_ROWS]
            features = ready[0].plan.features(fit.table.source.take(numbers))
            return None if features is None else SmokeTest(features, fit.scores[: len(numbers)])

        return join_parts(ready, rows, chosen, first_rows, drop_repeated=request.drop_repeated)

    def read_again(self, table: Table, rows: Scored, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of some rows of a table, for people; in the order of their hashes."""
        found = table.source.take(rows.places, list(columns))
        return found.iloc[np.argsort(rows.order, kind="stable")].reset_index(drop=True)

    def answer(self, uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""
        labels = table.indices(classes)
        model = models.load_model(uri)
        schema = model.metadata.get_input_schema()
        leave_out = [str(table.label), *table.beside]
        names = feature_names(table.what, table.source.columns, schema, leave_out)
        n, k = table.source.n_rows, len(classes)
        scores = new_array((n, k), np.float64)
        sets, named = (new_array((n, k), np.bool_) for _ in range(2))
        sums = new_array((n,), np.uint64)
        for start, rows in counted(table.source, batch_rows, f"scoring {table.what}"):
            features = as_typed(rows[names], schema)
            part = slice(start, start + len(rows))
            sums[part] = hashes.feature_sums(features)
            alone = len(rows) == n
            scores[part], sets[part], named[part] = answer(
                model, features, classes, start, table.what, alone=alone
            )
        return make_answered(uri, table, classes, labels, sums, scores, sets, named)
