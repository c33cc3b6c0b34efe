"""The local engine: which rows are fitted, which draw the path and which certify, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, scoring
from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.core.split import split_rows
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.options import Settings
from scrib_mlflow.results import Base, DataRecord
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.parts import (
    CERTIFY,
    CERTIFY_WITH_PATH,
    Parts,
    Tables,
    Tried,
)
from scrib_mlflow.workflows.reading import Table, read_rows
from scrib_mlflow.workflows.rows import Prepared, prepare, score
from scrib_mlflow.workflows.scored import Scored

TRIED_ROWS = 200  # answered by the logged model before it is registered


def read_tables(settings: Calibrate) -> Tables[Table]:
    """Read every table."""
    columns = {"key": settings.key, "group": settings.group}
    certify = path = None
    data = read_rows("data", settings.data, settings.label, **columns)
    if settings.certify_data is not None:
        certify = read_rows("certify_data", settings.certify_data, settings.label, **columns)
    if settings.path_data is not None:
        path = read_rows("path_data", settings.path_data, None, **columns)
    return Tables(data=data, certify=certify, path=path)


def choose(tables: Tables[Table], data: Prepared, settings: Calibrate) -> NDArray[np.bool_] | None:
    """Return which rows of `data` certify: by a seeded hash of the row, or of its group.

    None where a table of its own certifies, or nothing does.
    """
    chosen = None
    if settings.mode == "certified" and tables.certify is None:
        usual = CERTIFY if settings.path_data is None else CERTIFY_WITH_PATH
        chosen = split_rows(
            data.table.identities(),
            data.labels,
            usual if settings.certify_fraction is None else settings.certify_fraction,
            settings.seed,
            groups=data.table.groups,
            names=data.scorer.classes,
            waived=settings.waive,
        )
    _check_groups(tables, chosen, settings.group)
    return chosen


def as_calibrate(settings: Settings) -> Calibrate:
    """Return the options of a calibration of the same rows, which is why they are split alike."""
    return Calibrate(**settings.model_dump(include=set(Calibrate.model_fields)))


def choose_as_calibrate(
    base: Base, tables: Tables[Table], alike: Calibrate
) -> tuple[Prepared, NDArray[np.bool_]]:
    """Return the rows of data, not yet scored, and which of them calibrate would certify on."""
    model = scoring.load_model(base.uri)
    (ready,) = prepare(model, scoring.input_example(base.uri), tables.all(), alike)
    chosen = choose(tables, ready, alike)
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
    data = tables.data
    assert data.groups is not None  # noqa: S101  # for mypy; the option is set
    own = tables.certify
    certifying = data.groups[chosen] if own is None else own.groups
    assert certifying is not None  # noqa: S101
    others = [data] if own is not None else []
    others += [tables.path] if tables.path is not None else []
    for other in others:
        assert other.groups is not None  # noqa: S101
        both = np.isin(other.groups, certifying)
        if both.any():
            value = other.source.take(np.flatnonzero(both)[:1], [group])[group].tolist()[0]
            msg = (
                f"{group} {value!r} has rows among those that certify and in {other.what}, so they "
                "would not be independent; give every group to one of them"
            )
            raise InvalidDataError(msg)


def make_parts(
    tables: Tables[Table], model: PyFuncModel, example: Any, settings: Calibrate
) -> Parts:
    """Score the rows of all tables, and return them by what they are for."""
    ready = prepare(model, example, tables.all(), settings)
    chosen = choose(tables, ready[0], settings)
    rows = {each.table.what: score(each, settings) for each in ready}
    fit, certify, path = rows.pop("data"), rows.get("certify_data"), rows.get("path_data")
    fit_data = tables.data.record
    certify_data = None if tables.certify is None else tables.certify.record
    if chosen is not None:
        fit, certify = fit.take(~chosen), fit.take(chosen)
        fit_data = replace(fit_data, n_used=fit.n_rows)
        certify_data = replace(tables.data.record, n_used=certify.n_rows)
    if certify is not None:
        _check_overlap(fit, certify, path, own_table=tables.certify is not None)
    scorer = ready[0].scorer
    return Parts(
        classes=scorer.classes,
        scores=scorer.source,
        fit=fit,
        certify=certify,
        path=path,
        fit_data=fit_data,
        certify_data=certify_data,
        path_data=None if tables.path is None else tables.path.record,
        n_shared=0 if certify is None else digests.count_shared(fit.cases(), certify.cases()),
        cases=_cases(ready, {"fit": fit, "certify": certify, "path": path}),
        tried=_tried(ready[0], fit),
    )


def _tried(ready: Prepared, fit: Scored) -> Tried | None:
    """Return the first fit rows."""
    places = fit.places[:TRIED_ROWS]
    features = ready.features(ready.table.source.take(places))
    return None if features is None else Tried(features, fit.scores[: len(places)])


def _cases(ready: list[Prepared], used: dict[str, Scored | None]) -> dict[str, Hashes]:
    """Return hashes of all rows that were used, by what for.

    Scores do not tell rows apart when they come again as inputs.
    """
    inputs = {each.table.what: each.inputs for each in ready}
    found = {}
    for part, rows in used.items():
        if rows is not None and inputs[rows.table.what]:
            found[part] = Hashes(*digests.thin(rows.cases(labelled=part != "path")))
        if rows is not None and rows.keys is not None:
            found[f"{part} keys"] = Hashes(*digests.thin(rows.keys))
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
        refuse_overlap(what, digests.compare_rows(seen, certifying))


def refuse_overlap(what: str, found: digests.Overlap) -> None:
    """Raise where more of the rows that certify stand in another table than chance explains."""
    if found.excessive:
        msg = (
            f"{found.n_shared:,} of the {found.n_rows:,} rows that certify stand in {what} as "
            f"well, where about {found.expected * found.n_rows:,.0f} would by chance, so they "
            "would prove nothing; give rows that nothing else has seen"
        )
        raise InvalidDataError(msg)
