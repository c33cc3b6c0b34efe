"""Rows that this process reads and scores; and those of any engine, split and compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import messages, serving
from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.core.inputs import NAN, distinct_values, is_among, new_array, take_rows
from scrib_mlflow.engines.base import (
    CERTIFY,
    CERTIFY_WITH_PATH,
    CalibrationRows,
    RowsRequest,
    SmokeTest,
    Tables,
    without_missing,
)
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.records import Base, DataRecord
from scrib_mlflow.registry import models
from scrib_mlflow.rows import hashes, scoring, tables
from scrib_mlflow.rows.hashes import Hashes
from scrib_mlflow.rows.scored import Answered, Scored
from scrib_mlflow.rows.scoring import Prepared, prepare, score
from scrib_mlflow.rows.tables import Table, counted, read_rows, read_source

TRIED_ROWS = 200  # answered by the logged model before it is registered


def read_tables(request: RowsRequest) -> Tables[Table]:
    """Read every table."""
    columns = {"key": request.key, "group": request.group}
    certify = path = None
    data = read_rows("data", request.data, request.scoring.label, **columns)
    if request.certify_data is not None:
        certify = read_rows("certify_data", request.certify_data, request.scoring.label, **columns)
    if request.path_data is not None:
        path = read_rows("path_data", request.path_data, None, **columns)
    return Tables(data=data, certify=certify, path=path)


def choose(tables: Tables[Table], data: Prepared, request: RowsRequest) -> NDArray[np.bool_] | None:
    """Return which rows of `data` certify: by a seeded hash of the row, or of its group.

    None where a table of its own certifies, or nothing does.
    """
    chosen = None
    if request.certify and tables.certify is None:
        usual = CERTIFY if request.path_data is None else CERTIFY_WITH_PATH
        chosen = split_rows(
            data.table.identities(),
            data.labels,
            usual if request.certify_fraction is None else request.certify_fraction,
            request.scoring.seed,
            groups=data.table.groups,
            names=data.scorer.classes,
            waived=request.waive,
        )
    _check_groups(tables, chosen, request.group)
    return chosen


def choose_as_calibrate(
    base: Base, tables: Tables[Table], request: RowsRequest
) -> tuple[Prepared, NDArray[np.bool_]]:
    """Return the rows of data, not yet scored, and which of them calibrate would certify on."""
    model = models.load_model(base.uri)
    (ready,) = prepare(model, scoring.input_example(base.uri), tables.all(), request.scoring)
    chosen = choose(tables, ready, request)
    assert chosen is not None  # noqa: S101  # for mypy; mode=certified has rows to certify
    return ready, chosen


def used_rows(scored: Scored) -> DataRecord:
    """Return the record of rows that are a part of their table."""
    return replace(scored.table.record, n_used=scored.n_rows)


def _check_groups(
    tables: Tables[Table], chosen: NDArray[np.bool_] | None, group: str | None
) -> None:
    """Raise where a group stands among the certify rows and among others."""
    if group is None:
        return
    data, other = tables.data, tables.certify
    assert data.groups is not None  # noqa: S101  # for mypy; the option is set
    certifying = data.groups
    if chosen is not None:
        certifying = take_rows(data.groups, chosen)
    elif other is not None and other.groups is not None:
        certifying = other.groups
    others = [data] if other is not None else []
    others += [tables.path] if tables.path is not None else []
    known = distinct_values(certifying)
    for table in others:
        assert table.groups is not None  # noqa: S101
        both = is_among(table.groups, known)
        if both.any():
            value = table.source.take(np.flatnonzero(both)[:1], [group])[group].tolist()[0]
            raise InvalidDataError(
                f"{group} {value!r} has rows among those that certify and in {table.what}, so they "
                "would not be independent; give every group to one of them"
            )


def make_parts(
    tables: Tables[Table], model: PyFuncModel, example: Any, request: RowsRequest
) -> CalibrationRows:
    """Score the rows of all tables, and return them by what they are for."""
    ready = prepare(model, example, tables.all(), request.scoring)
    chosen = choose(tables, ready[0], request)
    rows = {each.table.what: score(each, request.scoring) for each in ready}
    return join_parts(tables, ready, rows, chosen, lambda fit: _tried(ready[0], fit))


def join_parts(
    tables: Tables[Table],
    ready: Sequence[Prepared],
    rows: dict[str, Scored],
    chosen: NDArray[np.bool_] | None,
    tried: Callable[[Scored], SmokeTest | None],
) -> CalibrationRows:
    """Return scored rows by what they are for, which `tried` finds some to try the model on of."""
    fit, certify, path = rows["data"], rows.get("certify_data"), rows.get("path_data")
    fit_data = tables.data.record
    certify_data = None if tables.certify is None else tables.certify.record
    if chosen is not None:
        fit, certify = fit.take(~chosen), fit.take(chosen)
        fit_data = replace(fit_data, n_used=fit.n_rows)
        certify_data = replace(tables.data.record, n_used=certify.n_rows)
    if certify is not None:
        _check_overlap(fit, certify, path, own_table=tables.certify is not None)
    scorer = ready[0].scorer
    return CalibrationRows(
        classes=scorer.classes,
        scores=scorer.source,
        fit=fit,
        certify=certify,
        path=path,
        fit_data=fit_data,
        certify_data=certify_data,
        path_data=None if tables.path is None else tables.path.record,
        n_shared=0 if certify is None else hashes.count_shared(fit.cases(), certify.cases()),
        cases=_cases(ready, {"fit": fit, "certify": certify, "path": path}),
        tried=tried(fit),
    )


def _tried(ready: Prepared, fit: Scored) -> SmokeTest | None:
    """Return the first fit rows."""
    places = fit.places[:TRIED_ROWS]
    features = ready.features(ready.table.source.take(places))
    return None if features is None else SmokeTest(features, fit.scores[: len(places)])


def _cases(ready: Sequence[Prepared], used: dict[str, Scored | None]) -> dict[str, Hashes]:
    """Return hashes of all rows that were used, by what for.

    Scores do not tell rows apart when they come again as inputs.
    """
    inputs = {each.table.what: each.inputs for each in ready}
    found = {}
    for part, rows in used.items():
        if rows is not None and inputs[rows.table.what]:
            found[part] = Hashes(*hashes.thin(rows.cases(labelled=part != "path")))
        if rows is not None and rows.keys is not None:
            found[f"{part} keys"] = Hashes(*hashes.thin(rows.keys))
    return found


def _check_overlap(fit: Scored, certify: Scored, path: Scored | None, *, own_table: bool) -> None:
    """Raise where rows that certify were fitted, beyond what chance explains."""
    others = [("data", fit)] if own_table else []
    others += [("path_data", path)] if path is not None else []
    compared = [
        (what, r.cases(labelled=False), certify.cases(labelled=False)) for what, r in others
    ]
    compared += [
        (what, rows.keys, certify.keys)
        for what, rows in others
        if rows.keys is not None and certify.keys is not None
    ]
    for what, seen, certifying in compared:
        refuse_overlap(what, hashes.compare_rows(seen, certifying))


def refuse_overlap(what: str, found: hashes.Overlap) -> None:
    """Raise where more of the rows that certify stand in another table than chance explains."""
    if found.excessive:
        raise InvalidDataError(
            f"{found.n_shared:,} of the {found.n_rows:,} rows that certify stand in {what} as "
            f"well, where about {found.expected * found.n_rows:,.0f} would by chance, so they "
            "would prove nothing; give rows that nothing else has seen"
        )


def answer_table(uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> Answered:
    """Let a registered set classifier answer the rows of a table."""
    labels = table.indices(classes)
    model = models.load_model(uri)
    batches = counted(table.source, batch_rows, f"scoring {table.what}")
    n, k = table.source.n_rows, len(classes)
    scores, sets = new_array((n, k), np.float64), new_array((n, k), np.bool_)
    sums = new_array((n,), np.uint64)
    n_invalid = 0
    for start, rows in batches:
        features = _features(model, table, rows)
        part = slice(start, start + len(rows))
        sums[part] = hashes.feature_sums(features)
        scores[part], sets[part], invalid = answer(
            model, features, classes, start, table.what, alone=len(rows) == n
        )
        n_invalid += invalid
    if n_invalid == n:
        raise InvalidDataError(
            f"{uri} can score none of the {n:,} rows of {table.what}; are they of another kind?"
        )
    return Answered(
        table=table, scores=scores, sets=sets, labels=labels, sums=sums, n_invalid=n_invalid
    )


def _features(model: PyFuncModel, table: Table, rows: pd.DataFrame) -> pd.DataFrame:
    """Return what the model takes of rows."""
    inputs = model.metadata.get_input_schema()
    features = tables.features(rows, inputs, [str(table.label), *table.beside])
    if features is None:
        raise InvalidDataError(
            f"{table.what} cannot be scored: {tables.missing_features(rows, inputs)}"
        )
    return features


def answer(
    model: PyFuncModel,
    features: pd.DataFrame,
    classes: tuple[str, ...],
    start: int,
    what: str,
    *,
    alone: bool,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Return scores and sets that the model serves for rows, and how many it could not score.

    `start` is the number of the first row in its table; rows that are `alone` are all of it.
    """
    index = {name: j for j, name in enumerate(classes)}
    sets = np.zeros((len(features), len(index)), dtype=np.bool_)
    scores = np.full(sets.shape, NAN)
    try:
        answers: Any = model.predict(features, params={"explain": True})
    except MlflowException as error:
        if serving.NONE_SCORED in str(error) and not alone:
            return scores, sets, len(features)
        msg = f"the model refuses rows {start} to {start + len(features) - 1} of {what}: "
        raise InvalidDataError(msg + messages.reason(error)) from error
    scored = np.flatnonzero(answers["reason"] != "invalid_scores")
    if len(scored):
        scores[scored] = answers["scores"].to_numpy()[scored].tolist()
    for row, members in enumerate(answers["prediction_set"]):
        sets[row, [index[name] for name in members]] = True
    return scores, sets, len(features) - len(scored)


class LocalEngine:
    """Rows in this process: inputs batch by batch, large arrays on the disk."""

    def read_tables(self, request: RowsRequest) -> Tables[Table]:
        """Read what a calibration is given."""
        return read_tables(request)

    def make_parts(
        self,
        tables: Tables[Table],
        model: PyFuncModel,
        uri: str,  # other processes would load it from there
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables, and return them by what they are for."""
        return make_parts(tables, model, example, request)

    def read_fresh(
        self,
        place: str,
        label: str,
        *,
        key: str | None,
        group: str | None,
        optional: Collection[str] = (),
    ) -> Table:
        """Read labelled rows; a column that key or group names may be missing if `optional`."""
        source = tables.open_table("data", place, label)
        named = without_missing({"key": key, "group": group}, source.columns, optional)
        return read_source("data", place, source, label, **named)

    def answer(self, uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""
        return answer_table(uri, table, classes, batch_rows)
