"""The rows that select has drawn, come back with labels: checked, and ready for their test.

The test is exact for the rows that were drawn and for no others. So every one of them must be
there, as it was handed out; a row without a label stays, and counts against every class that it
could be.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.core.certificate.overlap import count_shared
from scrib_mlflow.core.certificate.selection import answered_rows, resample
from scrib_mlflow.core.certificate.split import order_rows
from scrib_mlflow.core.inputs import mix
from scrib_mlflow.engines.base import CalibrationRows, SelectedRows, SmokeTest, Tables
from scrib_mlflow.engines.local import TRIED_ROWS
from scrib_mlflow.errors import (
    InvalidDataError,
    InvalidLabelsError,
    InvalidSettingsError,
    ScribError,
)
from scrib_mlflow.messages import nearest
from scrib_mlflow.options import Calibrate, Select
from scrib_mlflow.records import Base, SelectionRecord, seal
from scrib_mlflow.registry import runs
from scrib_mlflow.report import selection as selection_words
from scrib_mlflow.results import Selection, from_json
from scrib_mlflow.rows import hashes, labelling
from scrib_mlflow.rows.scored import Scored, Unscored
from scrib_mlflow.rows.tables import UNLABELLED, Source, Table, as_typed, label_indices, read_rows

LOGGER = logging.getLogger(__name__)

SELECTION, ROWS = "selection.json", "selection.parquet"  # artifacts of a run of select
OWN = {"selection", "certify_data", "label", "registered_model_name", "alias"}
OWN |= {"require_certificate", "ledger", "candidate_coverage", "max_candidates"}
MOST_NAMED = 5  # rows that an error names


class Drawn(NamedTuple):
    """A selection as its run holds it."""

    run_id: str
    selection: Selection
    digest: str  # of selection.json
    rows: pd.DataFrame  # scored, by what they are for


def read_selection(run_id: str) -> Drawn:
    """Return what a run of select has fixed."""
    noted = (runs.read_tags(run_id) or {}).get(runs.SELECTION_DIGEST, "")
    if not noted:
        raise InvalidSettingsError(
            f"selection is {run_id!r}, but must be a run of select; it prints its id at the end"
        )
    with runs.read_artifacts(run_id, SELECTION, ROWS) as (text, table):
        written, content = text.read_text(encoding="utf-8"), table.read_bytes()
        selection = from_json(written)
        if not isinstance(selection, Selection):
            raise ScribError(f"{SELECTION} of run {run_id} holds a {type(selection).__name__}")
        if noted != seal(written) or selection.rows_digest != labelling.digest(content):
            raise ScribError(
                f"run {run_id} does not hold the selection that it has made: {SELECTION} or {ROWS} "
                "was changed, so nothing can be certified with it; select anew"
            )
        return Drawn(run_id, selection, seal(written), pd.read_parquet(table))


def with_selected(settings: Calibrate, drawn: Drawn) -> Calibrate:
    """Return the options that were fixed when the rows were drawn, with this command's own."""
    fixed = Calibrate.model_validate(drawn.selection.settings)
    # an alias may have moved since; scores and path are those of the version that it meant
    fixed = fixed.model_copy(update={"model_uri": drawn.selection.base.uri or None})
    given = settings.model_dump(exclude_defaults=True)
    known = fixed.model_dump()
    if settings.certify_data is None:
        raise InvalidSettingsError(
            "certify_data is missing; with selection it is the rows that were drawn, with labels"
        )
    for name in sorted(given.keys() - OWN - {"batch_rows"}):
        if name not in Select.model_fields or name == "data":
            raise InvalidSettingsError(
                f"{name} does not go with selection, which says what each row is for; leave it out"
            )
        if given[name] != known[name]:
            raise InvalidSettingsError(
                f"{name} was fixed when the rows were drawn, as {known[name]!r}; leave it out, or "
                "select anew with another"
            )
    own = {name: getattr(settings, name) for name in OWN}
    return fixed.model_copy(update=own)


def check_base(base: Base, drawn: Drawn) -> None:
    """Raise where the name of the model that scored the pool means another one now."""
    if base != drawn.selection.base:
        raise InvalidSettingsError(
            f"{base.uri} is not the model that scored the pool: it was registered anew since, so "
            "the path is not about its scores; select anew"
        )


def read_labelled(settings: Calibrate, drawn: Drawn) -> Tables[Table]:
    """Return the table that came back."""
    table = read_rows(
        "certify_data",
        settings.certify_data or "",
        settings.label,
        drawn=True,
        key=settings.key,
        group=settings.group,
    )
    missing = [name for name in drawn.selection.inputs if name not in table.source.columns]
    if missing:
        raise InvalidDataError(
            f"certify_data has no column {missing[0]!r}, which the rows had when they were drawn; "
            f"{nearest(missing[0], table.source.columns)}"
        )
    return Tables(data=table, certify=None, path=None)


def make_parts(
    settings: Calibrate, drawn: Drawn, table: Table, model: PyFuncModel | None
) -> CalibrationRows:
    """Return the rows by what they are for; raise unless those drawn came back, and no others."""
    selection = drawn.selection
    labels = _known_labels(table, selection.classes, settings)
    features = _features(table, selection, model)
    places = _match(drawn, table, features)
    fit, path, open_rows, chosen = (
        _stored(drawn, part, name)
        for part, name in (("fit", "data"), ("path", "pool"), ("open", "pool"), ("drawn", "pool"))
    )
    chosen = chosen.at(places)
    names = chosen.sums if chosen.keys is None else chosen.keys
    certify = replace(
        chosen,
        table=table,
        labels=labels,
        places=np.arange(len(labels)),
        order=order_rows(names, np.maximum(labels, 0), settings.seed),
    )
    tried = None
    if features is not None:
        tried = SmokeTest(features.iloc[:TRIED_ROWS], certify.scores[:TRIED_ROWS])
    kept = runs.read_row_hashes(drawn.run_id)
    known = {name: hashes.Hashes(*each) for name, each in kept.items()}
    known["certify"] = hashes.thin(certify.cases())
    if certify.keys is not None:
        known["certify keys"] = hashes.thin(certify.keys)
    return CalibrationRows(
        classes=selection.classes,
        scores=selection.scores,
        fit=fit,
        certify=certify,
        path=None,
        fit_data=selection.fit_data,
        certify_data=table.record,
        path_data=replace(selection.pool_data, n_used=selection.n_path),
        n_shared=count_shared(fit.cases(), certify.cases()),
        cases=known,
        tried=tried,
        n_repeated=certify.count_repeated(),
        selected=_selected(drawn, fit, path, open_rows, certify),
    )


def _selected(
    drawn: Drawn, fit: Scored, path: Scored, open_rows: Scored, certify: Scored
) -> SelectedRows:
    """Return what stands for the pool: labelled rows, weighted, and the rows without labels."""
    selection = drawn.selection
    rules = [step.rule for step in selection.path.steps]
    labelled = certify.labelled()
    beyond = fit.take(~answered_rows(rules, fit.scores))
    share = selection.n_answered / selection.n_open
    weights = np.full(labelled.n_rows, share / labelled.n_rows)
    weights = np.r_[weights, np.full(beyond.n_rows, (1 - share) / max(beyond.n_rows, 1))]
    stand_ins = _joined(labelled, beyond, weights / weights.max())
    numbers = resample(weights, len(weights))
    return SelectedRows(
        record=SelectionRecord(
            run_id=drawn.run_id,
            digest=drawn.digest,
            n_pool=selection.pool_data.n_rows,
            n_path=selection.n_path,
            n_open=selection.n_open,
            n_answered=selection.n_answered,
            n_drawn=selection.n_drawn,
            n_unlabelled=certify.n_rows - labelled.n_rows,
            n_groups=selection.n_groups,
            n_beyond=beyond.n_rows,
        ),
        path=selection.path,
        group_test=selection.group_test,
        path_rows=path,
        open_rows=open_rows,
        drawn=certify,
        stand_ins=stand_ins,
        shown=replace(stand_ins.at(numbers), weights=None),
        unscored=selection.unscored,
    )


def _joined(first: Scored, second: Scored, weights: NDArray[np.float64]) -> Scored:
    """Return the rows of both, which have no place in one table."""
    both: dict[str, Any] = {}
    for name in ("scores", "labels", "places", "sums", "order", "groups"):
        pair = getattr(first, name), getattr(second, name)
        both[name] = None if pair[0] is None else np.concatenate(pair)
    table = replace(first.table, numbered=False, key=None)
    return replace(first, **both, keys=None, table=table, weights=weights)


def _stored(drawn: Drawn, part: str, what: str) -> Scored:
    """Return the rows of a part, of which the selection has kept all but their inputs."""
    selection = drawn.selection
    rows = drawn.rows[drawn.rows["part"] == part]
    scores = rows[[f"score {j}" for j in range(len(selection.classes))]].to_numpy(np.float64)
    named = {"key": part != "fit" and selection.settings["key"] is not None}
    named["group"] = selection.settings["group"] is not None
    keys, groups = (
        rows[name].to_numpy(np.uint64) if known else None for name, known in named.items()
    )
    order = rows["order"].to_numpy(np.uint64)
    record = selection.fit_data if part == "fit" else selection.pool_data
    source = Source(name=what, columns=(), n_rows=len(rows), held=pd.DataFrame())
    table = Table(what=what, source=source, record=record, label=None, hashes=order, numbered=False)
    return Scored(
        classes=selection.classes,
        table=table,
        scores=scores,
        labels=rows["label"].to_numpy(np.int32),
        places=np.arange(len(rows)),
        sums=rows["sums"].to_numpy(np.uint64),
        order=order,
        keys=keys,
        groups=groups,
        unscored=Unscored("", "") if np.isnan(scores).any() else None,
    )


def _known_labels(table: Table, classes: tuple[str, ...], settings: Calibrate) -> NDArray[np.int32]:
    """Return labels as class indices, UNLABELLED where a row came back without one."""
    values, codes = table.labels
    empty = values.isna() | (values.astype(str).str.strip() == "")
    empty &= ~values.isin(classes)
    indices = np.full(len(values), UNLABELLED, dtype=np.int32)
    known = ~empty.to_numpy()
    if not known.any():
        raise InvalidLabelsError(
            f"column {settings.label!r} of certify_data is empty; label the rows, as the sheet "
            "beside them says"
        )
    place = f"column {settings.label!r} of certify_data"
    indices[known] = label_indices(values[known], classes, place=place)
    labels = indices[codes]
    n = int(np.count_nonzero(labels == UNLABELLED))
    if n and settings.group is not None and settings.group_test != "exact":
        raise InvalidLabelsError(
            f"{n:,} rows of certify_data have no label. With group that is only valid if "
            "group_test=exact was chosen when the rows were drawn: label them, or give this "
            "selection up"
        )
    if n:
        LOGGER.warning(selection_words.without_label(n, len(labels)))
    return labels


def _features(table: Table, selection: Selection, model: PyFuncModel | None) -> pd.DataFrame | None:
    """Return what the model takes of each row, None where only scores were given."""
    if not selection.inputs or model is None:
        return None
    numbers = np.arange(table.source.n_rows)
    rows = table.source.take(numbers, selection.inputs)
    return as_typed(rows, model.metadata.get_input_schema())


def _match(drawn: Drawn, table: Table, features: pd.DataFrame | None) -> NDArray[np.intp]:
    """Return which of the rows that were drawn each row is; raise unless they are the same."""
    rows = drawn.rows[drawn.rows["part"] == "drawn"].reset_index(drop=True)
    sums = None if features is None else hashes.feature_sums(features)
    wanted = rows["sums"].to_numpy(np.uint64)
    if table.keys is None:
        if sums is None:
            raise InvalidSettingsError("rows without inputs come back by key, which is missing")
        names, given = wanted, sums
        if table.groups is not None:  # equal rows of two groups are two rows
            names = mix(names) + rows["group"].to_numpy(np.uint64)
            given = mix(given) + table.groups
    else:
        names, given = rows["key"].to_numpy(np.uint64), table.keys
    # equal rows are told apart by their number among those that are equal
    here, there = (_numbered(each) for each in (given, names))
    both = pd.Index(there).get_indexer(pd.Index(here))
    missing = np.setdiff1d(np.arange(len(names)), both)
    added, edited = np.flatnonzero(both < 0), np.zeros(0, dtype=np.int64)
    if not len(added):
        changed = np.zeros(len(both), dtype=np.bool_)
        if sums is not None:
            changed |= wanted[both] != sums
        if table.groups is not None:
            changed |= rows["group"].to_numpy(np.uint64)[both] != table.groups
        edited = np.flatnonzero(changed)
    if len(missing) or len(added) or len(edited):
        texts = rows["key text"] if table.keys is not None else None
        found = table.key_values(np.arange(len(given)))
        problems = [
            _named(missing, "missing", None if texts is None else texts.to_numpy()),
            _named(added, "added", found),
            _named(edited, "changed", found),
        ]
        raise InvalidDataError(
            f"certify_data are not the {len(names):,} rows that were drawn: "
            + ", ".join(problem for problem in problems if problem)
            + ". The test is exact for those rows only, so all must come back as they were handed "
            "out, and no others, whatever their labels; rows without a label stay in"
        )
    return both


def _numbered(values: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return values with their number among equal ones."""
    numbers = pd.Series(values).groupby(values).cumcount()
    return list(zip(values.tolist(), numbers.tolist(), strict=True))


def _named(row_numbers: NDArray[Any], what: str, keys: NDArray[Any] | None) -> str:
    """Return how many rows are not as they should be, and the first of them by key."""
    n = len(row_numbers)
    if not n:
        return ""
    some = "" if keys is None else ", ".join(map(str, keys[row_numbers[:MOST_NAMED]]))
    more = " …" * (n > MOST_NAMED)
    return f"{n:,} {'is' if n == 1 else 'are'} {what}" + f" ({some}{more})" * bool(some)
