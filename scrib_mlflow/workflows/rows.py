"""Labelled rows of a table, scored by the model, or with scores of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, scoring, tables
from scrib_mlflow.adapters.parameters import read_value
from scrib_mlflow.core.checks import check_classes, check_scores, nearest
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.errors import InvalidDataError, InvalidScoresError, InvalidSettingsError
from scrib_mlflow.results import DataRecord
from scrib_mlflow.settings import Calibrate

COLUMNS = "columns"  # scores_from: the data hold the scores already
MOST_SHARED = 0.5  # of rows that are called unseen: more than that are not equal by chance
TOLERANCE = 1e-4  # of the highest score, between scores in the data and those of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as it was read, and how it is recorded."""

    what: str  # the parameter that names it
    rows: pd.DataFrame
    record: DataRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows with their scores and labels; without features where only scores were given."""

    scorer: scoring.Scorer
    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,)
    features: pd.DataFrame | None

    def cases(self) -> NDArray[np.uint64]:
        """Return a hash of each row, by what the model is given for it, and its class."""
        given = pd.DataFrame(self.scores) if self.features is None else self.features
        return digests.case_hashes(given, self.labels)


def read_rows(what: str, place: str, label: str) -> Table:
    """Return the rows of a file, digested."""
    rows = tables.read_table(what, place, label)
    record = DataRecord(source=place, digest=digests.digest(rows), n_rows=len(rows))
    return Table(what=what, rows=rows, record=record)


def score_tables(
    model: PyFuncModel, example: Any, read: Sequence[Table], settings: Calibrate
) -> list[Scored]:
    """Return the rows of tables with labels and scores, all scored in the way of the first."""
    if settings.label in tables.input_names(model.metadata.get_input_schema()):
        msg = f"the label {settings.label!r} is an input of the model, which must not see it"
        raise InvalidDataError(msg)
    if _score_columns(settings)[0] == COLUMNS and settings.score_transform != "none":
        msg = (
            "score_transform is for scores that the model gives, but scores_from takes them from "
            "the data; leave one of them out"
        )
        raise InvalidSettingsError(msg)
    scored: list[Scored] = []
    for table in read:
        scored.append(score_rows(model, example, table, settings, like=next(iter(scored), None)))
    return scored


def score_rows(
    model: PyFuncModel, example: Any, table: Table, settings: Calibrate, like: Scored | None = None
) -> Scored:
    """Return a table's rows with labels and scores, found as in the rows of `like` if given.

    The example is what the model was logged with; it tells where a model's scores are when the
    data hold scores and nothing else.
    """
    wanted, columns = _score_columns(settings)
    features = _features(model, table, settings, columns, like)
    if wanted != COLUMNS and features is None:
        inputs = model.metadata.get_input_schema()
        msg = f"{table.what} cannot be scored: {tables.missing_features(table.rows, inputs)}"
        raise InvalidDataError(msg)
    scorer = like.scorer if like else _find_scorer(model, example, features, table, settings)
    _check_targets(settings, scorer.classes)
    place = f"column {settings.label!r} of {table.what}"
    labels = tables.label_indices(table.rows[settings.label], scorer.classes, place=place)
    if wanted == COLUMNS:
        named = columns or list(scorer.classes)
        scores = _given_scores(table, named, scorer, features, example)
    else:
        assert features is not None  # noqa: S101  # for mypy; told above
        scores = scoring.score_table(
            scorer, features, batch_rows=settings.batch_rows, what=table.what
        )
    return Scored(scorer=scorer, scores=scores, labels=labels, features=features)


def _check_targets(settings: Calibrate, classes: tuple[str, ...]) -> None:
    """Raise for targets of classes that the model has not, before rows are scored."""
    check_classes(classes, len(classes))
    targets = Targets(
        risk_targets=settings.risk_targets,
        overall_target=settings.overall_target,
        max_class_abstention=settings.max_class_abstention,
        waive=settings.waive,
    )
    make_constraints(targets, classes)


def _features(
    model: PyFuncModel, table: Table, settings: Calibrate, columns: list[str], like: Scored | None
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
    found = tables.features(table.rows, inputs, [settings.label, *columns])
    if found is None or like is None or like.features is None or tables.input_names(inputs):
        return found
    missing = [str(name) for name in like.features.columns if name not in found.columns]
    if missing:
        msg = f"{table.what} has no column {missing[0]!r}; {nearest(missing[0], found.columns)}"
        raise InvalidDataError(msg)
    return found[like.features.columns]


def _find_scorer(
    model: PyFuncModel,
    example: Any,
    features: pd.DataFrame | None,
    table: Table,
    settings: Calibrate,
) -> scoring.Scorer:
    """Find where the model's scores are, on rows of the data or else on the example."""
    tried = example if features is None else features.iloc[_tried(features)]
    if tried is None:
        msg = (
            f"{table.what} holds scores but not the model's inputs, and the model was logged "
            "without an input example, so it cannot be seen how it gives its scores; add the "
            "inputs to some rows, or log the model with an example"
        )
        raise InvalidDataError(msg)
    wanted, _ = _score_columns(settings)
    return scoring.make_scorer(
        model,
        tried,
        wanted="auto" if wanted == COLUMNS else wanted,
        classes=settings.classes,
        transform=settings.score_transform,
    )


def _tried(features: pd.DataFrame) -> list[int]:
    return scoring.spread(len(features), scoring.TRIED)


def _score_columns(settings: Calibrate) -> tuple[str, list[str]]:
    """Return where scores come from, and the columns of the data that hold them if named."""
    word, colon, names = settings.scores_from.partition(":")
    if word != COLUMNS:
        return settings.scores_from, []
    return COLUMNS, [*read_value("scores_from", names, {list})] if colon else []


def _given_scores(
    table: Table,
    columns: list[str],
    scorer: scoring.Scorer,
    features: pd.DataFrame | None,
    example: Any,
) -> NDArray[np.float64]:
    """Return the scores that stand in the data, which must be those that the model serves."""
    if len(columns) != len(scorer.classes):
        msg = f"scores_from names {len(columns)} columns for the classes {[*scorer.classes]}"
        raise InvalidDataError(msg)
    missing = [name for name in columns if name not in table.rows.columns]
    if missing:
        hint = nearest(missing[0], map(str, table.rows.columns))
        msg = f"{table.what} has no column {missing[0]!r} of scores; {hint}"
        raise InvalidDataError(msg)
    scores = check_scores(table.rows[columns].to_numpy(dtype=np.float64), least_rows=1)
    if features is None:
        _check_alike(table, scores, scorer, example)
    else:
        tried = _tried(features)
        own = scoring.score_table(
            scorer, features.iloc[tried], batch_rows=len(tried), what=f"some of {table.what}"
        )
        gap = np.abs(own - scores[tried]).max()
        if not gap <= TOLERANCE * np.abs(own).max():
            msg = (
                f"the scores in {table.what} differ by up to {gap:.3g} from those that the model "
                "gives for the same rows, so thresholds for them would not be the model's; leave "
                "scores_from out, or name the columns in the order of the model's classes, "
                f"{[*scorer.classes]}"
            )
            raise InvalidScoresError(msg)
    return scores


def _check_alike(
    table: Table, scores: NDArray[np.float64], scorer: scoring.Scorer, example: Any
) -> None:
    """Raise where only one of the scores in the data and those of the model are probabilities."""
    own, _ = scoring.as_served(scorer, example)
    if _sum_to_one(own) != _sum_to_one(scores):
        which = ("probabilities", "none") if _sum_to_one(own) else ("no probabilities", "some")
        msg = (
            f"the model gives {which[0]}, but the scores in {table.what} are {which[1]}; give the "
            "scores as the model does, or rows with its inputs"
        )
        raise InvalidScoresError(msg)


def _sum_to_one(scores: NDArray[np.float64]) -> bool:
    return bool(np.allclose(scores.sum(axis=1), 1, atol=1e-3))
