"""The Spark engine: which rows are fitted, which draw the path and which certify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.pyfunc import PyFuncModel

from scrib_mlflow.adapters import (
    digests,
    spark_columns,
    spark_overlap,
    spark_scoring,
    spark_split,
    tables,
)
from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.adapters.spark_rows import SparkRows, keep, thinned
from scrib_mlflow.adapters.spark_sums import as_signed
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.local_parts import TRIED_ROWS, refuse_overlap
from scrib_mlflow.workflows.parts import (
    CERTIFY,
    CERTIFY_WITH_PATH,
    Parts,
    Tables,
    Tried,
)
from scrib_mlflow.workflows.rows import COLUMNS, Asked, ask, check_asked, score_columns
from scrib_mlflow.workflows.spark_reading import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOKED_AT = 10 * TRIED_ROWS  # rows among which some to fit are found, to try the model on

Keep = Callable[["DataFrame"], "DataFrame"]  # until the engine is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The rows of a table, scored, and how."""

    table: SparkTable
    asked: Asked
    rows: SparkRows


def make_parts(
    read: Tables[SparkTable],
    model: PyFuncModel,
    uri: str,
    example: Any,
    settings: Calibrate,
    held: Keep,
) -> Parts:
    """Score the rows of all tables, and return them by what they are for."""
    check_asked(model, settings)
    scored: dict[str, Scored] = {}
    for table in read.all():
        like = scored["data"].asked if scored else None
        asked = ask(model, example, table, table.some_rows(), settings, like)
        scored[table.what] = Scored(
            table=table, asked=asked, rows=_score(table, asked, uri, settings, held)
        )
    data = scored["data"]
    fit, certify = data.rows, None
    fit_data = read.data.record
    certify_data = None if read.certify is None else read.certify.record
    path = scored["path_data"].rows if "path_data" in scored else None
    if read.certify is not None:
        certify = scored["certify_data"].rows
    elif settings.mode == "certified":
        fit, certify = _split(data, settings)
        fit_data = replace(fit_data, n_used=fit.n_rows)
        certify_data = replace(fit_data, n_used=certify.n_rows)
    _check_groups(scored, certify, settings.group)
    if certify is not None:
        _check_overlap(fit, certify, path, own_table=read.certify is not None)
    n_shared = 0
    if certify is not None:
        n_shared = spark_overlap.count_shared(fit.frame, certify.frame, "case")
    return Parts(
        classes=data.asked.scorer.classes,
        scores=data.asked.scorer.source,
        fit=fit,
        certify=certify,
        path=path,
        fit_data=fit_data,
        certify_data=certify_data,
        path_data=None if read.path is None else read.path.record,
        n_shared=n_shared,
        cases=_cases(scored, {"fit": fit, "certify": certify, "path": path}),
        tried=_tried(data, fit),
    )


def _score(table: SparkTable, asked: Asked, uri: str, settings: Calibrate, held: Keep) -> SparkRows:
    """Return the rows of a table with scores, kept in Spark."""
    scorer, names, roles = asked.scorer, list(asked.inputs) or None, table.roles
    inputs, k = scorer.model.metadata.get_input_schema(), len(scorer.classes)
    labels = spark_columns.find_labels(table.frame, roles, scorer.classes)
    wanted, columns = score_columns(settings)
    if wanted == COLUMNS:
        scored = spark_scoring.given_scores(table.frame, columns or scorer.classes)
    else:
        scored = spark_scoring.with_scores(
            table.frame, uri, names or [], inputs, scorer.classes, scorer.source
        )
    slim = spark_columns.identify(scored, roles, labels, names, inputs, k)
    keyed, grouped = roles.key is not None, roles.group is not None
    ordered = spark_columns.with_order(slim, settings.seed, keyed=keyed)
    frame = held(keep(ordered, grouped=grouped))
    spark_columns.check_unchanged(frame, table.frame.columns, table.record.digest, table.what)
    spark_scoring.check_scored(frame, table.what, roles.key)
    spark_split.check_keys(frame, roles)
    return SparkRows(
        frame=frame, k=k, grouped=grouped, keyed=keyed, labelled=roles.label is not None
    )


def _split(data: Scored, settings: Calibrate) -> tuple[SparkRows, SparkRows]:
    """Return the rows that fit and those that certify."""
    usual = CERTIFY if settings.path_data is None else CERTIFY_WITH_PATH
    rows = data.rows
    certifies = spark_split.certifies(
        rows.frame,
        rows.sizes,
        usual if settings.certify_fraction is None else settings.certify_fraction,
        grouped=rows.grouped,
        names=data.asked.scorer.classes,
        waived=settings.waive,
    )
    fit, certify = rows.frame.filter(~certifies), rows.frame.filter(certifies)
    return replace(rows, frame=fit), replace(rows, frame=certify)


def _check_groups(scored: dict[str, Scored], certify: SparkRows | None, group: str | None) -> None:
    """Raise where a group stands among the certify rows and among others."""
    if group is None or certify is None:
        return
    own = "certify_data" in scored
    for what, other in scored.items():
        if what == "certify_data" or (what == "data" and not own):
            continue
        hashed = spark_overlap.shared_group(certify.frame, other.rows.frame)
        if hashed is not None:
            value = spark_overlap.value_with(other.table.frame, group, hashed)
            msg = (
                f"{group} {value!r} has rows among those that certify and in {what}, so they "
                "would not be independent; give every group to one of them"
            )
            raise InvalidDataError(msg)


def _check_overlap(
    fit: SparkRows, certify: SparkRows, path: SparkRows | None, *, own_table: bool
) -> None:
    """Raise where rows that certify were fitted, beyond what chance explains."""
    others = [("data", fit)] if own_table else []
    others += [("path_data", path)] if path is not None else []
    for what, rows in others:
        modulus = max(digests.thinning(rows.n_rows), digests.thinning(certify.n_rows))
        for name in ("unlabelled", "key") if certify.keyed else ("unlabelled",):
            seen, new = (thinned(each.frame, name, modulus).values for each in (rows, certify))
            refuse_overlap(what, digests.compare_rows(seen, new, modulus))


def _cases(scored: dict[str, Scored], used: dict[str, SparkRows | None]) -> dict[str, Hashes]:
    """Return hashes of all rows that were used, by what for.

    Scores do not tell rows apart when they come again as inputs.
    """
    found = {}
    for part, rows in used.items():
        if rows is None:
            continue
        own = scored.get(f"{part}_data", scored["data"])
        modulus = digests.thinning(rows.n_rows)
        if own.asked.inputs:
            name = "unlabelled" if part == "path" else "case"
            found[part] = thinned(rows.frame, name, modulus)
        if rows.keyed:
            found[f"{part} keys"] = thinned(rows.frame, "key", modulus)
    return found


def _tried(data: Scored, fit: SparkRows) -> Tried | None:
    """Return some fit rows as the local engine would read them, with the scores found in Spark."""
    names, scorer = data.asked.inputs, data.asked.scorer
    if not names:
        return None
    rows = spark_scoring.first_rows(data.table.frame, names, LOOKED_AT)
    features = tables.as_typed(rows, scorer.model.metadata.get_input_schema())
    nothing = np.full(len(features), spark_columns.UNLABELLED)
    hashes = as_signed(digests.case_hashes(features, nothing)).tolist()
    for frame in (fit.frame, data.rows.frame):  # a sorted table may begin with certify rows only
        scores = spark_scoring.scores_of(frame, hashes)
        places = [place for place, each in enumerate(hashes) if each in scores][:TRIED_ROWS]
        if places:
            found = np.array([scores[hashes[place]] for place in places])
            return Tried(features.iloc[places].reset_index(drop=True), found)
    return None
