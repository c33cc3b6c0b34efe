"""Rows of a table, scored batch by batch by the model, or with scores of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, scoring, tables
from scrib_mlflow.adapters.parameters import read_value
from scrib_mlflow.core.checks import check_classes, nearest
from scrib_mlflow.core.split import order_rows
from scrib_mlflow.core.targets import Targets, by_name, make_constraints
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.given import check_given, check_same, given_scores
from scrib_mlflow.workflows.parts import TableLike
from scrib_mlflow.workflows.reading import Table, counted
from scrib_mlflow.workflows.scored import Scored

COLUMNS = "columns"  # scores_from: the data hold the scores already
OF_EACH_BATCH = 5  # rows whose scores are held against the model's


class Asked(NamedTuple):
    """How the rows of a table are scored."""

    scorer: scoring.Scorer
    inputs: tuple[str, ...]  # columns that the model takes; none where only scores are given


class Prepared(NamedTuple):
    """A table that is ready to be scored."""

    table: Table
    scorer: scoring.Scorer
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    inputs: tuple[str, ...]  # columns that the model takes; none where only scores are given
    example: Any

    def features(self, rows: pd.DataFrame) -> pd.DataFrame | None:
        """Return what the model takes of rows of the table, None where only scores are given."""
        if not self.inputs:
            return None
        schema = self.scorer.model.metadata.get_input_schema()
        return tables.as_typed(rows[list(self.inputs)], schema)


def prepare(
    model: PyFuncModel, example: Any, read: Sequence[Table], settings: Calibrate
) -> list[Prepared]:
    """Return tables with labels and inputs, before they are scored in the way of the first."""
    check_asked(model, settings)
    found: list[Prepared] = []
    first: Asked | None = None
    for table in read:
        asked = ask(model, example, table, next(table.source.batches()), settings, first)
        first = first or asked
        labels = table.indices(asked.scorer.classes)
        found.append(Prepared(table, asked.scorer, labels, asked.inputs, example))
    return found


def check_asked(model: PyFuncModel, settings: Calibrate) -> None:
    """Raise for options that the model, or others, exclude."""
    if settings.label in tables.input_names(model.metadata.get_input_schema()):
        msg = f"the label {settings.label!r} is an input of the model, which must not see it"
        raise InvalidDataError(msg)
    if score_columns(settings)[0] == COLUMNS and settings.score_transform != "none":
        msg = (
            "score_transform is for scores that the model gives, but scores_from takes them from "
            "the data; leave one of them out"
        )
        raise InvalidSettingsError(msg)


def ask(
    model: PyFuncModel,
    example: Any,
    table: TableLike,
    rows: pd.DataFrame,
    settings: Calibrate,
    like: Asked | None,
) -> Asked:
    """Return how a table, some rows of which are at hand, is scored: as `like` if given.

    The example is what the model was logged with; it tells where a model's scores are when the
    data hold scores and nothing else.
    """
    wanted, columns = score_columns(settings)
    features = _features(model, table, rows, settings, columns, like)
    if wanted != COLUMNS and features is None:
        inputs = model.metadata.get_input_schema()
        msg = f"{table.what} cannot be scored: {tables.missing_features(rows, inputs)}"
        raise InvalidDataError(msg)
    if like is not None:
        scorer = like.scorer
    else:
        scorer = find_scorer(model, example, features, table.what, settings)
    make_constraints(targets_of(settings), check_classes(scorer.classes, len(scorer.classes)))
    if wanted == COLUMNS:
        check_given(table.what, rows, columns or scorer.classes, scorer, features, example)
    return Asked(scorer, () if features is None else tuple(features.columns))


def score(ready: Prepared, settings: Calibrate, kept: NDArray[np.bool_] | None = None) -> Scored:
    """Return a table's rows with their scores, or those of them that are kept."""
    table, scorer = ready.table, ready.scorer
    places = np.arange(len(ready.labels)) if kept is None else np.flatnonzero(kept)
    scores = np.empty((len(places), len(scorer.classes)))
    sums = np.empty(len(places), dtype=np.uint64)
    done = 0
    for start, rows in counted(table.source, settings.batch_rows, f"scoring {table.what}"):
        wanted = places[done : done + np.searchsorted(places[done:], start + len(rows))]
        if not len(wanted):
            continue
        chosen = rows if len(wanted) == len(rows) else rows.iloc[wanted - start]
        features = ready.features(chosen)
        part = slice(done, done + len(wanted))
        scores[part] = _score(ready, settings, chosen, features, wanted)
        given = pd.DataFrame(scores[part]) if features is None else features
        sums[part] = digests.feature_sums(given)
        done += len(wanted)
    labels = ready.labels[places]
    order = order_rows(table.identities(), np.maximum(ready.labels, 0), settings.seed)
    return Scored(
        classes=scorer.classes,
        table=table,
        scores=scores,
        labels=labels,
        places=places,
        sums=sums,
        order=order[places],
        keys=None if table.keys is None else table.keys[places],
        groups=None if table.groups is None else table.groups[places],
    )


def _score(
    ready: Prepared,
    settings: Calibrate,
    rows: pd.DataFrame,
    features: pd.DataFrame | None,
    places: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the scores of rows, which stand at these places of their table."""
    wanted, columns = score_columns(settings)
    what, scorer = ready.table.what, ready.scorer
    if wanted == COLUMNS:
        given = given_scores(what, rows, columns or scorer.classes, places)
        if features is not None:
            check_same(what, given, scorer, features, OF_EACH_BATCH)
        return given
    assert features is not None  # noqa: S101  # for mypy; told before
    return scoring.score_rows(scorer, features, places, what)


def targets_of(settings: Calibrate) -> Targets:
    """Return the targets that the options ask for."""
    return Targets(
        risk_targets=settings.risk_targets,
        overall_target=settings.overall_target,
        max_class_abstention=settings.max_class_abstention,
        waive=settings.waive,
        penalty=settings.penalty,
    )


def enforced(
    targets: float | Mapping[str, float], classes: tuple[str, ...], waive: Sequence[str]
) -> dict[str, float]:
    """Return the targets of the classes that are not waived, by name."""
    found = by_name("risk_targets", targets, classes)
    return {classes[j]: target for j, target in found.items() if classes[j] not in waive}


def _features(
    model: PyFuncModel,
    table: TableLike,
    rows: pd.DataFrame,
    settings: Calibrate,
    columns: list[str],
    like: Asked | None,
) -> pd.DataFrame | None:
    """Return what the model takes, in the order of the rows like it; None where it is missing."""
    inputs = model.metadata.get_input_schema()
    if settings.scores_from == COLUMNS and not tables.input_names(inputs):
        if settings.classes is None:
            msg = (
                "the model's signature does not name its inputs, so scores and inputs cannot be "
                f"told apart in {table.what}; name the scores with scores_from='columns:[p_a, p_b]'"
            )
            raise InvalidDataError(msg)
        columns = list(settings.classes)
    found = tables.features(rows, inputs, [settings.label, *table.beside, *columns])
    if found is None or like is None or not like.inputs or tables.input_names(inputs):
        return found
    missing = [name for name in like.inputs if name not in found.columns]
    if missing:
        msg = f"{table.what} has no column {missing[0]!r}; {nearest(missing[0], found.columns)}"
        raise InvalidDataError(msg)
    return found[list(like.inputs)]


def find_scorer(
    model: PyFuncModel,
    example: Any,
    features: pd.DataFrame | None,
    what: str,
    settings: Calibrate,
) -> scoring.Scorer:
    """Find where the model's scores are, on rows of the data or else on the example."""
    tried = example if features is None else scoring.some_of(features)
    if tried is None:
        msg = (
            f"{what} holds scores but not the model's inputs, and the model was logged "
            "without an input example, so it cannot be seen how it gives its scores; add the "
            "inputs to some rows, or log the model with an example"
        )
        raise InvalidDataError(msg)
    wanted, _ = score_columns(settings)
    return scoring.make_scorer(
        model,
        tried,
        wanted="auto" if wanted == COLUMNS else wanted,
        classes=settings.classes,
        transform=settings.score_transform,
    )


def score_columns(settings: Calibrate) -> tuple[str, list[str]]:
    """Return where scores come from, and the columns of the data that hold them if named."""
    word, colon, names = settings.scores_from.partition(":")
    if word != COLUMNS:
        return settings.scores_from, []
    return COLUMNS, [*read_value("scores_from", names, {list})] if colon else []
