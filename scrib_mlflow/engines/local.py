"""Labelled rows with the sets that a set classifier serves for them, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import messages, serving
from scrib_mlflow.core.certificate import Sample, Tally, split_rows, tally_sets
from scrib_mlflow.core.certificate.split import keep_rows
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.engines.base import (
    CERTIFY,
    CERTIFY_WITH_PATH,
    CalibrationRows,
    SmokeTest,
    Tables,
    score_options,
)
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.options import Calibrate, Settings
from scrib_mlflow.records import Base, DataRecord
from scrib_mlflow.rows import hashes, scoring, tables
from scrib_mlflow.rows.hashes import Hashes
from scrib_mlflow.rows.scored import Scored, count_answers
from scrib_mlflow.rows.scoring import Prepared, prepare, score
from scrib_mlflow.rows.tables import UNLABELLED, Table, counted, read_rows

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
    (ready,) = prepare(model, scoring.input_example(base.uri), tables.all(), score_options(alike))
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
            raise InvalidDataError(
                f"{group} {value!r} has rows among those that certify and in {other.what}, so they "
                "would not be independent; give every group to one of them"
            )


def make_parts(
    tables: Tables[Table], model: PyFuncModel, example: Any, settings: Calibrate
) -> CalibrationRows:
    """Score the rows of all tables, and return them by what they are for."""
    ready = prepare(model, example, tables.all(), score_options(settings))
    chosen = choose(tables, ready[0], settings)
    rows = {each.table.what: score(each, score_options(settings)) for each in ready}
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
        tried=_tried(ready[0], fit),
    )


def _tried(ready: Prepared, fit: Scored) -> SmokeTest | None:
    """Return the first fit rows."""
    places = fit.places[:TRIED_ROWS]
    features = ready.features(ready.table.source.take(places))
    return None if features is None else SmokeTest(features, fit.scores[: len(places)])


def _cases(ready: list[Prepared], used: dict[str, Scored | None]) -> dict[str, Hashes]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRows:
    """Rows of a table, with what a set classifier answers to each."""

    table: Table
    scores: NDArray[np.float64]  # (n, k) NaN in rows that it could not score
    sets: NDArray[np.bool_]  # (n, k)
    labels: NDArray[np.int32]  # (n,)
    sums: NDArray[np.uint64]  # (n,) of what the model is given
    n_invalid: int  # rows that it could not score

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    @property
    def grouped(self) -> bool:
        """Whether they come in groups."""
        return self.table.groups is not None

    def tally(self, constraints: Sequence[Constraint]) -> Tally:
        """Return the counts of the sets, claim by claim."""
        return tally_sets(self.sets, self.labels, constraints, self.table.group_codes())

    def count(self) -> Counts:
        """Return the counts of the sets, class by class."""
        return count_answers(self.sets, self.labels)

    def cases(self, *, labelled: bool) -> Hashes:
        """Return hashes of what the model is given, and of classes where asked for."""
        labels = self.labels if labelled else np.full_like(self.labels, UNLABELLED)
        return Hashes(*hashes.thin(hashes.hash_cases(self.sums, labels)))

    def keys(self) -> Hashes | None:
        """Return hashes of what identifies the rows, None where no column does."""
        return None if self.table.keys is None else Hashes(*hashes.thin(self.table.keys))

    def sample(self, most: int) -> tuple[Sample, NDArray[np.bool_]]:
        """Return all rows or at most so many, and their sets."""
        places = np.arange(self.n_rows)
        if self.n_rows > most:
            same = np.zeros_like(self.labels)
            places = np.flatnonzero(keep_rows(self.table.hashes, same, np.array([most])))
        codes = self.table.group_codes()
        labels = self.labels[places]
        sample = Sample(
            scores=self.scores[places],
            labels=labels,
            weights=None,
            groups=None if codes is None else codes[places],
            cases=hashes.hash_cases(self.sums[places], labels),
            places=places,
            keys=self.table.key_values(places),
        )
        return sample, self.sets[places]


def answer_table(uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> AnsweredRows:
    """Let a registered set classifier answer the rows of a table."""
    labels = table.indices(classes)
    model = scoring.load_model(uri)
    batches = counted(table.source, batch_rows, f"scoring {table.what}")
    n, k = table.source.n_rows, len(classes)
    scores, sets = np.full((n, k), NAN), np.zeros((n, k), dtype=np.bool_)
    sums = np.empty(n, dtype=np.uint64)
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
    return AnsweredRows(
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
