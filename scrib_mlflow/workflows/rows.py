"""Labelled rows of a table, scored by the model, or with scores of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, scoring, tables
from scrib_mlflow.adapters.parameters import read_value
from scrib_mlflow.core.checks import check_classes, nearest
from scrib_mlflow.core.targets import Targets, by_name, make_constraints
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.results import DataRecord
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.given import given_scores

UNLABELLED = -1
COLUMNS = "columns"  # scores_from: the data hold the scores already
MOST_SHARED = 0.5  # of rows that are called unseen: more than that are not equal by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as it was read, and how it is recorded."""

    what: str  # the parameter that names it
    rows: pd.DataFrame
    record: DataRecord
    label: str | None  # its column of true classes, None for rows without
    keys: NDArray[np.uint64] | None = None  # (n,) hashes of a column that identifies rows
    groups: NDArray[np.uint64] | None = None  # (n,) hashes of what rows belong together by
    beside: tuple[str, ...] = ()  # columns that are no inputs: those of both, and others

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)


def group_codes(groups: NDArray[np.uint64] | None) -> NDArray[np.int64] | None:
    """Return hashes of groups as numbers from 0."""
    return None if groups is None else np.unique(groups, return_inverse=True)[1].astype(np.int64)


class Prepared(NamedTuple):
    """A table that is ready to be scored."""

    table: Table
    scorer: scoring.Scorer
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    features: pd.DataFrame | None
    example: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows with their scores and labels; without features where only scores were given."""

    scorer: scoring.Scorer
    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    places: NDArray[np.int64]  # (n,) the number of each row in its table
    features: pd.DataFrame | None
    keys: NDArray[np.uint64] | None  # (n,) as in the table
    groups: NDArray[np.uint64] | None  # (n,)

    def cases(self, *, labelled: bool = True) -> NDArray[np.uint64]:
        """Return a hash of each row: of what the model is given, and of its class."""
        labels = self.labels if labelled else np.full(len(self.labels), UNLABELLED)
        given = pd.DataFrame(self.scores) if self.features is None else self.features
        return digests.case_hashes(given, labels)

    def take(self, chosen: NDArray[np.bool_]) -> Scored:
        """Return these rows."""
        return replace(
            self,
            scores=self.scores[chosen],
            labels=self.labels[chosen],
            places=self.places[chosen],
            features=None if self.features is None else self.features[chosen],
            keys=None if self.keys is None else self.keys[chosen],
            groups=None if self.groups is None else self.groups[chosen],
        )

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)


def read_rows(
    what: str, place: str, label: str | None, *, key: str | None = None, group: str | None = None
) -> Table:
    """Return the rows of a file, digested; key and group name columns."""
    rows = tables.read_table(what, place, label)
    # Labels of a csv are text, those of other files may be numbers.
    told = rows if label is None else rows.assign(**{label: rows[label].astype(str)})
    record = DataRecord(
        source=place, digest=digests.digest(told), n_rows=len(rows), n_used=len(rows)
    )
    table = Table(what=what, rows=rows, record=record, label=label)
    return identify(table, key=key, group=group)


def identify(table: Table, *, key: str | None = None, group: str | None = None) -> Table:
    """Return a table whose rows are identified and grouped by columns, where these are named."""
    return replace(
        table,
        keys=_key_hashes(table.what, table.rows, key),
        groups=_column_hashes(table.what, table.rows, "group", group),
        beside=tuple(name for name in (key, group) if name is not None),
    )


def _column_hashes(
    what: str, rows: pd.DataFrame, option: str, name: str | None
) -> NDArray[np.uint64] | None:
    """Return hashes of the values in a column that an option names, None where it names none."""
    if name is None:
        return None
    if name not in rows.columns:
        hint = nearest(name, map(str, rows.columns))
        msg = f"{what} has no column {name!r}, which {option} names; {hint}"
        raise InvalidDataError(msg)
    missing = rows[name].isna().to_numpy()
    if missing.any():
        msg = f"{what} has no {option} in row {np.argmax(missing)}; fill column {name!r}"
        raise InvalidDataError(msg)
    return digests.key_hashes(rows[name])


def _key_hashes(what: str, rows: pd.DataFrame, name: str | None) -> NDArray[np.uint64] | None:
    """Return hashes of what identifies each row, which no two rows may share."""
    hashes = _column_hashes(what, rows, "key", name)
    if hashes is None:
        return None
    _, first, count = np.unique(hashes, return_index=True, return_counts=True)
    if (count > 1).any():
        value = rows[name].iloc[[first[np.argmax(count > 1)]]].tolist()[0]
        msg = (
            f"key {name!r} does not identify the rows of {what}: {value!r} stands more than once; "
            "name another column, or use group for rows that belong together"
        )
        raise InvalidDataError(msg)
    return hashes


def prepare(
    model: PyFuncModel, example: Any, read: Sequence[Table], settings: Calibrate
) -> list[Prepared]:
    """Return tables with labels and inputs, before they are scored in the way of the first."""
    if settings.label in tables.input_names(model.metadata.get_input_schema()):
        msg = f"the label {settings.label!r} is an input of the model, which must not see it"
        raise InvalidDataError(msg)
    if _score_columns(settings)[0] == COLUMNS and settings.score_transform != "none":
        msg = (
            "score_transform is for scores that the model gives, but scores_from takes them from "
            "the data; leave one of them out"
        )
        raise InvalidSettingsError(msg)
    found: list[Prepared] = []
    for table in read:
        found.append(_prepare(model, example, table, settings, like=next(iter(found), None)))
    return found


def _prepare(
    model: PyFuncModel, example: Any, table: Table, settings: Calibrate, like: Prepared | None
) -> Prepared:
    """Return a table with labels and inputs, its scores found as in `like` if given.

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
    make_constraints(targets_of(settings), check_classes(scorer.classes, len(scorer.classes)))
    return Prepared(table, scorer, _labels(table, scorer.classes), features, example)


def score(ready: Prepared, settings: Calibrate) -> Scored:
    """Return a table's rows with their scores."""
    table, scorer, features = ready.table, ready.scorer, ready.features
    wanted, columns = _score_columns(settings)
    if wanted == COLUMNS:
        named = columns or list(scorer.classes)
        scores = given_scores(table.what, table.rows, named, scorer, features, ready.example)
    else:
        assert features is not None  # noqa: S101  # for mypy; told before
        scores = scoring.score_table(
            scorer, features, batch_rows=settings.batch_rows, what=table.what
        )
    return Scored(
        scorer=scorer,
        scores=scores,
        labels=ready.labels,
        places=np.arange(len(scores)),
        features=features,
        keys=table.keys,
        groups=table.groups,
    )


def _labels(table: Table, classes: tuple[str, ...]) -> NDArray[np.int32]:
    if table.label is None:
        return np.full(len(table.rows), UNLABELLED, dtype=np.int32)
    place = f"column {table.label!r} of {table.what}"
    return tables.label_indices(table.rows[table.label], classes, place=place)


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
    model: PyFuncModel, table: Table, settings: Calibrate, columns: list[str], like: Prepared | None
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
    found = tables.features(table.rows, inputs, [settings.label, *table.beside, *columns])
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
