"""Which rows are fitted, which draw the path and which certify."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, scoring
from scrib_mlflow.core.split import split_rows
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.options import Settings
from scrib_mlflow.results import Base, DataRecord
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.rows import Prepared, Scored, Table, prepare, read_rows

CERTIFY, CERTIFY_WITH_PATH = 0.7, 0.9  # share of the rows, alone and with path_data


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a calibration."""

    data: Table
    certify: Table | None  # of its own; None where rows of `data` certify, or none do
    path: Table | None

    def all(self) -> list[Table]:
        """Return every table that there is."""
        return [each for each in (self.data, self.certify, self.path) if each is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Scored rows by what they are for."""

    fit: Scored  # in mode=certified: what recalibrates, and draws the path where nothing else does
    certify: Scored | None
    path: Scored | None
    fit_data: DataRecord
    certify_data: DataRecord | None
    path_data: DataRecord | None
    n_shared: int  # certify rows that equal a fit row


def check_options(settings: Calibrate) -> None:
    """Raise for options that exclude each other."""
    if settings.certify_fraction is not None and settings.certify_data is not None:
        msg = "certify_fraction and certify_data exclude each other; leave one of them out"
        raise InvalidSettingsError(msg)
    _check_rule(settings)
    if settings.mode == "certified":
        return
    for name in ("certify_fraction", "path_data", "group"):
        if getattr(settings, name) is not None:
            msg = f"{name} is for mode=certified; mode=paper fits all rows and certifies none"
            raise InvalidSettingsError(msg)
    if settings.require_certificate:
        msg = "require_certificate needs mode=certified; mode=paper certifies nothing"
        raise InvalidSettingsError(msg)


def _check_rule(settings: Calibrate) -> None:
    """Raise for options of the other rule."""
    if settings.rule == "thresholds":
        if settings.candidate_coverage is not None:
            msg = (
                "candidate_coverage is for rule=optimal; under rule=thresholds the candidates are "
                "the members of the set, or the nearest two"
            )
            raise InvalidSettingsError(msg)
        return
    for name in ("penalty", "chance_weight", "size_weight", "empty_weight"):
        if getattr(settings, name) != Calibrate.model_fields[name].default:
            msg = (
                f"{name} is for rule=thresholds; rule=optimal has no such weight, it keeps the "
                "targets with the least abstention, and its abstentions always name candidates"
            )
            raise InvalidSettingsError(msg)


def read_tables(settings: Calibrate) -> Tables:
    """Read every table."""
    columns = {"key": settings.key, "group": settings.group}
    certify = path = None
    data = read_rows("data", settings.data, settings.label, **columns)
    if settings.certify_data is not None:
        certify = read_rows("certify_data", settings.certify_data, settings.label, **columns)
    if settings.path_data is not None:
        path = read_rows("path_data", settings.path_data, None, **columns)
    return Tables(data=data, certify=certify, path=path)


def choose(tables: Tables, data: Prepared, settings: Calibrate) -> NDArray[np.bool_] | None:
    """Return which rows of `data` certify: by a seeded hash of the row, or of its group.

    None where a table of its own certifies, or nothing does.
    """
    chosen = None
    if settings.mode == "certified" and tables.certify is None:
        usual = CERTIFY if settings.path_data is None else CERTIFY_WITH_PATH
        keys, classes = data.table.keys, data.scorer.classes
        chosen = split_rows(
            digests.row_hashes(data.table.rows) if keys is None else keys,
            data.labels,
            usual if settings.certify_fraction is None else settings.certify_fraction,
            settings.seed,
            groups=data.table.groups,
            names=classes,
            waived=settings.waive,
        )
    _check_groups(tables, chosen, settings.group)
    return chosen


def as_calibrate(settings: Settings) -> Calibrate:
    """Return the options of a calibration of the same rows, which is why they are split alike."""
    return Calibrate(**settings.model_dump(include=set(Calibrate.model_fields)))


def choose_as_calibrate(
    base: Base, tables: Tables, alike: Calibrate
) -> tuple[Prepared, NDArray[np.bool_]]:
    """Return the rows of data, not yet scored, and which of them calibrate would certify on."""
    model = scoring.load_model(base.uri)
    (ready,) = prepare(model, scoring.input_example(base.uri), tables.all(), alike)
    chosen = choose(tables, ready, alike)
    assert chosen is not None  # noqa: S101  # for mypy; mode=certified has rows to certify
    return ready, chosen


def without(data: Prepared, chosen: NDArray[np.bool_]) -> Prepared:
    """Return the rows of `data` that are not chosen to certify, before they are scored."""
    table, kept = data.table, ~chosen
    fit = replace(
        table,
        what=f"the fit rows of {table.what}",
        rows=table.rows[kept],
        record=replace(table.record, n_used=int(np.count_nonzero(kept))),
        keys=None if table.keys is None else table.keys[kept],
        groups=None if table.groups is None else table.groups[kept],
    )
    features = None if data.features is None else data.features[kept]
    return data._replace(table=fit, labels=data.labels[kept], features=features)


def _check_groups(tables: Tables, chosen: NDArray[np.bool_] | None, group: str | None) -> None:
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
            value = other.rows[group].iloc[int(np.argmax(both))]
            msg = (
                f"{group} {value!r} has rows among those that certify and in {other.what}, so they "
                "would not be independent; give every group to one of them"
            )
            raise InvalidDataError(msg)


def make_parts(tables: Tables, chosen: NDArray[np.bool_] | None, scored: list[Scored]) -> Parts:
    """Return scored rows by what they are for; `scored` are those of `tables.all()`."""
    rows = dict(zip((table.what for table in tables.all()), scored, strict=True))
    fit, certify = rows["data"], rows.get("certify_data")
    fit_data = tables.data.record
    certify_data = None if tables.certify is None else tables.certify.record
    if chosen is not None:
        fit, certify = fit.take(~chosen), fit.take(chosen)
        fit_data = replace(tables.data.record, n_used=len(fit.labels))
        certify_data = replace(tables.data.record, n_used=len(certify.labels))
    parts = Parts(
        fit=fit,
        certify=certify,
        path=rows.get("path_data"),
        fit_data=fit_data,
        certify_data=certify_data,
        path_data=None if tables.path is None else tables.path.record,
        n_shared=0 if certify is None else digests.count_shared(fit.cases(), certify.cases()),
    )
    _check_overlap(parts, own_table=tables.certify is not None)
    return parts


def _check_overlap(parts: Parts, *, own_table: bool) -> None:
    """Raise where rows that certify were fitted, beyond what chance explains."""
    if parts.certify is None:
        return
    certify = parts.certify
    others = [("data", parts.fit)] if own_table else []
    others += [("path_data", parts.path)] if parts.path is not None else []
    compared = [
        (what, r.cases(labelled=False), certify.cases(labelled=False)) for what, r in others
    ]
    compared += [
        (what, rows.keys, certify.keys)
        for what, rows in others
        if rows.keys is not None and certify.keys is not None
    ]
    for what, seen, certifying in compared:
        found = digests.compare_rows(seen, certifying)
        if found.excessive:
            msg = (
                f"{found.n_shared:,} of the {found.n_rows:,} rows that certify stand in {what} as "
                f"well, where about {found.expected * found.n_rows:,.0f} would by chance, so they "
                "would prove nothing; give rows that nothing else has seen"
            )
            raise InvalidDataError(msg)
