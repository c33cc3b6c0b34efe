"""Scores of rows: of the model, batch by batch, or those that stand in the table already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel
from mlflow.types import Schema
from numpy.typing import NDArray

from scrib_mlflow import errors, serving
from scrib_mlflow.core.certificate.split import order_rows
from scrib_mlflow.core.inputs import check_classes, fill_rows, new_array, take_rows
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.messages import nearest, reason
from scrib_mlflow.parameters import read_value
from scrib_mlflow.records import Base, ScoreSource
from scrib_mlflow.registry.stores import model_info
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.outputs import Transform, find_source, input_columns
from scrib_mlflow.rows.scored import Scored, Unscored, row_numbers
from scrib_mlflow.rows.tables import Table, TableLike, counted

COLUMNS = "columns"  # scores_from: the data hold the scores already
TRIED = 50  # rows on which the place of the scores is found
ALONE = 5  # of these are scored one by one as well
TOLERANCE = 1e-3  # of the highest score; a GPU gives single rows slightly other scores
OF_EACH_BATCH = 5  # rows whose scores in the data are compared with the model's
SAME_SCORES = 1e-4  # of the highest score, between scores in the data and those of the model
MOST_NAMED = 5  # rows that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """How the tables of a calibration are scored."""

    label: str
    classes: tuple[str, ...] | None = None  # in the order of the scores, for a model without names
    scores_from: str = "auto"
    score_transform: Transform = "none"
    targets: Targets = field(default_factory=Targets)  # which must fit the classes
    batch_rows: int = 10_000
    seed: int = 0
    columns: tuple[str, ...] = ()  # that hold the scores, where scores_from does not name them
    max_invalid: float = 0.0  # share of a table's rows that may have no scores, and abstain


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A loaded model, where its scores are, and what its classes are called."""

    model: Any  # a PyFuncModel; None where the data hold the scores of a model that MLflow lacks
    source: ScoreSource
    classes: tuple[str, ...]

    def input_schema(self) -> Schema | None:
        """Return what the model takes, None where it does not say so."""
        return None if self.model is None else self.model.metadata.get_input_schema()

    def predict(self, rows: Any) -> Any:
        """Return the scores of rows and the errors by row; MLflow calls this with checked rows."""
        native, source, k = serving.native_model(self.model), asdict(self.source), len(self.classes)

        def score(part: Any) -> NDArray[np.float64]:
            output = serving.call_model(self.model, native, source, part)
            return serving.read_scores(output, source, k)

        return serving.score_rows(score, rows, k)


class ScoringPlan(NamedTuple):
    """How the rows of a table are scored."""

    scorer: Scorer
    inputs: tuple[str, ...]  # columns that the model takes; none where the table has scores only
    columns: tuple[str, ...]  # that hold the scores; none where the model gives them

    def features(self, rows: pd.DataFrame) -> pd.DataFrame | None:
        """Return what the model takes of rows, None where the table has scores only."""
        if not self.inputs:
            return None
        return tables.as_typed(rows[list(self.inputs)], self.scorer.input_schema())


class Prepared(NamedTuple):
    """A table that is ready to be scored."""

    table: Table
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    plan: ScoringPlan


def check_is_base(base: Base) -> None:
    """Raise unless MLflow can call the model, and it is no set classifier already."""
    info = model_info(base.uri)
    if "python_function" not in info.flavors:
        raise errors.ModelError(
            f"{base.uri} has no python_function flavour, so MLflow cannot call it; log it again"
        )
    if (info.metadata or {}).get("scrib_schema_version"):
        raise errors.ModelError(
            f"{base.uri} is a set classifier already; calibrate the model inside it, which its "
            "tag scrib.base_model names"
        )


def input_example(uri: str) -> Any:
    """Return the rows that a model was logged with, None where there are none."""
    with suppress(MlflowException, OSError):
        return Model.load(uri).load_input_example(uri)
    return None


def prepare(
    model: PyFuncModel | None, example: Any, read: Sequence[Table], options: ScoreOptions
) -> list[Prepared]:
    """Return tables with labels and inputs, all to be scored in the way of the first."""
    first_rows = ((table, next(table.source.batches())) for table in read)
    plans = (
        plan_scores(first_rows, options)
        if model is None
        else plan_tables(model, example, first_rows, options)
    )
    return [
        Prepared(table, table.indices(plan.scorer.classes), plan)
        for table, plan in zip(read, plans, strict=True)
    ]


def plan_scores(
    read: Iterable[tuple[TableLike, pd.DataFrame]], options: ScoreOptions
) -> Iterator[ScoringPlan]:
    """Yield how each table is scored where no model is given: by the columns that hold scores."""
    _, columns = score_columns(options)
    given = tuple(columns or options.classes or ())
    classes = check_classes(options.classes or given, len(given)) if given else ()
    if not given:
        raise errors.InvalidSettingsError(
            "without model_uri nothing says which columns hold the scores; name them with "
            "scores_from='columns:[p_a, p_b]', and the classes with classes if they have other "
            "names"
        )
    if options.score_transform != "none":
        raise errors.InvalidSettingsError(
            "score_transform is for scores that a model gives; transform the columns in the data, "
            "or leave it out"
        )
    make_constraints(options.targets, classes)
    scorer = Scorer(model=None, source=ScoreSource(call=COLUMNS, columns=given), classes=classes)
    for table, rows in read:
        if table.label in given:
            raise errors.InvalidSettingsError(
                f"scores_from names the label {table.label!r}; name the columns of scores only"
            )
        _check_columns(table.what, rows, given)
        _given_scores(table.what, rows, given)
        yield ScoringPlan(scorer, (), given)


def plan_tables(
    model: PyFuncModel,
    example: Any,
    read: Iterable[tuple[TableLike, pd.DataFrame]],
    options: ScoreOptions,
) -> Iterator[ScoringPlan]:
    """Yield how each table, some rows of which are at hand, is scored: all as the first.

    The example is what the model was logged with; it shows where a model's scores are when the
    table has scores and no inputs.
    """
    inputs = model.metadata.get_input_schema()
    if options.label in tables.input_names(inputs):
        raise errors.InvalidDataError(
            f"the label {options.label!r} is an input of the model, which must not see it"
        )
    wanted, columns = score_columns(options)
    if wanted == COLUMNS and options.score_transform != "none":
        raise errors.InvalidSettingsError(
            "score_transform is for scores that the model gives, but scores_from takes them from "
            "the data; leave one of them out"
        )
    first: ScoringPlan | None = None
    for table, rows in read:
        features = _features(model, table, rows, options, columns, first)
        if wanted != COLUMNS and features is None:
            raise tables.no_features(table.what, rows, inputs)
        scorer = first.scorer if first else _find(model, example, features, rows, table, options)
        make_constraints(options.targets, check_classes(scorer.classes, len(scorer.classes)))
        given: tuple[str, ...] = ()
        if wanted == COLUMNS:
            given = tuple(columns or scorer.classes)
            _check_given(table.what, rows, given, scorer, features, example)
        plan = ScoringPlan(scorer, () if features is None else tuple(features.columns), given)
        first = first or plan
        yield plan


def score(ready: Prepared, options: ScoreOptions, kept: NDArray[np.bool_] | None = None) -> Scored:
    """Return a table's rows with their scores, or those of them that are kept.

    Those that cannot be scored have NaN, unless they are too many.
    """
    table, plan = ready.table, ready.plan
    numbers = row_numbers(len(ready.labels))
    if kept is not None:
        numbers = take_rows(numbers, kept)
    scores = new_array((len(numbers), len(plan.scorer.classes)), np.float64)
    sums = new_array((len(numbers),), np.uint64)
    done, n_bad = 0, 0
    first_bad: dict[int, str] = {}  # why the first rows cannot be scored, by their numbers
    for start, rows in counted(table.source, options.batch_rows, f"scoring {table.what}", kept):
        end = int(np.searchsorted(numbers, start + len(rows)))
        these = numbers[done:end]
        if not len(these):
            continue
        chosen = rows if len(these) == len(rows) else rows.iloc[these - start]
        features = plan.features(chosen)
        found, bad = _score(table.what, plan, chosen, features)
        sums[done:end] = hashes.feature_sums(pd.DataFrame(found) if features is None else features)
        found[[*bad]] = np.nan
        scores[done:end] = found
        n_bad += len(bad)
        for row in sorted(bad)[: MOST_NAMED - len(first_bad)]:
            first_bad[int(these[row])] = bad[row]
        if n_bad > options.max_invalid * len(numbers):
            told = _unscored(first_bad, n_bad, table.what)
            raise cannot_be_scored(*told, options.max_invalid)
        done = end
    unscored = _unscored(first_bad, n_bad, table.what) if n_bad else None
    return scored_rows(ready, options.seed, scores, sums, kept, unscored)


def _unscored(first: Mapping[int, str], n: int, what: str) -> Unscored:
    """Return the first of n rows of a table in words, and why the very first has no scores."""
    some = ", ".join(map(str, first)) + " …" * (n > len(first))
    return Unscored(f"row{'s' * (n > 1)} {some} of {what}", next(iter(first.values())))


def cannot_be_scored(first: str, why: str, most: float) -> errors.ModelError:
    """Return the error of rows, the first of them named, that are more than may abstain."""
    return errors.ModelError(
        f"{first} cannot be scored: {why}; drop or repair such rows, or raise max_invalid, the "
        f"share of the rows of a table that may abstain for it, from {most:g}"
    )


def scored_rows(
    ready: Prepared,
    seed: int,
    scores: NDArray[np.float64],
    sums: NDArray[np.uint64],
    kept: NDArray[np.bool_] | None = None,
    unscored: Unscored | None = None,
) -> Scored:
    """Return a table's rows, or those kept, with scores and sums, and with the order of a split."""
    table, labels = ready.table, ready.labels
    n = len(labels)
    classed = fill_rows(n, np.int32, lambda of: np.maximum(labels[of], 0))

    def some(values: NDArray[Any]) -> NDArray[Any]:
        return values if kept is None else take_rows(values, kept)

    return Scored(
        classes=ready.plan.scorer.classes,
        table=table,
        scores=scores,
        labels=some(labels),
        places=some(row_numbers(n)),
        sums=sums,
        order=some(order_rows(table.identities(), classed, seed)),
        keys=None if table.keys is None else some(table.keys),
        groups=None if table.groups is None else some(table.groups),
        weights=None if table.weights is None else some(table.weights),
        unscored=unscored,
    )


def _score(
    what: str, plan: ScoringPlan, rows: pd.DataFrame, features: pd.DataFrame | None
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return the scores of rows, and by row why some have none."""
    if not plan.columns and features is not None:
        scores, failed = as_served(plan.scorer, features)
        names = [f"for class {name!r}" for name in plan.scorer.classes]
        raised = {row: f"{type(e).__name__}: {reason(e)}" for row, e in failed.items()}
        return scores, not_finite(scores, names) | raised
    scores = _given_scores(what, rows, plan.columns)
    if features is not None:
        _check_same(what, scores, plan.scorer, features, OF_EACH_BATCH)
    return scores, not_finite(scores, [f"in column {name!r}" for name in plan.columns])


def not_finite(scores: NDArray[np.float64], names: Sequence[str]) -> dict[int, str]:
    """Return which rows lack a finite score, and where; names are those of the columns."""
    finite = np.isfinite(scores)
    bad = np.flatnonzero(~finite.all(axis=1)).tolist()
    first = {row: int(np.argmin(finite[row])) for row in bad}
    return {row: f"it has the score {scores[row, j]} {names[j]}" for row, j in first.items()}


def _features(
    model: PyFuncModel,
    table: TableLike,
    rows: pd.DataFrame,
    options: ScoreOptions,
    columns: list[str],
    like: ScoringPlan | None,
) -> pd.DataFrame | None:
    """Return what the model takes, in the order of the rows like it; None where it is missing."""
    inputs = model.metadata.get_input_schema()
    unnamed = not tables.input_names(inputs)
    if options.scores_from == COLUMNS and unnamed:
        if options.classes is None:
            raise errors.InvalidDataError(
                "the model's signature does not name its inputs, so scores and inputs cannot be "
                f"told apart in {table.what}; name the scores with scores_from='columns:[p_a, p_b]'"
            )
        columns = list(options.classes)
    trained = input_columns(serving.native_model(model)) if unnamed else []
    if trained and set(trained) <= set(rows.columns):
        rows = rows[trained]
    features = tables.features(rows, inputs, [options.label, *table.beside, *columns])
    if features is None or like is None or not (like.inputs and unnamed):
        return features
    missing = [name for name in like.inputs if name not in features.columns]
    if missing:
        raise errors.InvalidDataError(
            f"{table.what} has no column {missing[0]!r}; {nearest(missing[0], features.columns)}"
        )
    return features[list(like.inputs)]


def score_columns(options: ScoreOptions) -> tuple[str, list[str]]:
    """Return where scores come from, and the columns of the data that hold them if named."""
    if options.columns:
        return COLUMNS, [*options.columns]
    word, colon, names = options.scores_from.partition(":")
    if word != COLUMNS:
        return options.scores_from, []
    return COLUMNS, [*read_value("scores_from", names, {list})] if colon else []


def _find(
    model: PyFuncModel,
    example: Any,
    features: pd.DataFrame | None,
    read: pd.DataFrame,
    table: TableLike,
    options: ScoreOptions,
) -> Scorer:
    """Find where the model's scores are, on rows as they were read or else on the example."""
    rows = example if features is None else features.iloc[spread(len(features), TRIED)]
    if rows is None:
        raise errors.InvalidDataError(
            f"{table.what} holds scores but not the model's inputs, and the model was logged "
            "without an input example, so it cannot be seen how it gives its scores; add the "
            "inputs to some rows, or log the model with an example"
        )
    wanted, _ = score_columns(options)
    return make_scorer(
        model,
        rows,
        wanted="auto" if wanted == COLUMNS else wanted,
        classes=options.classes,
        transform=options.score_transform,
        categorical=[] if features is None else tables.categoricals(read[[*features.columns]]),
    )


def make_scorer(
    model: PyFuncModel,
    rows: Any,
    *,
    wanted: str,
    classes: tuple[str, ...] | None,
    transform: Transform,
    categorical: Sequence[str] = (),
) -> Scorer:
    """Find where the model's scores are, on a few rows; some columns were categoricals."""
    # MLflow hands the finder the rows as it hands them to a model, after checking them
    finder = SimpleNamespace(
        predict=lambda checked: find_source(
            model,
            checked,
            wanted=wanted,
            classes=classes,
            transform=transform,
            categorical=categorical,
        )
    )
    source, names = _predict(model.metadata, finder, rows)
    scorer = Scorer(model=model, source=source, classes=names)
    _check_alone(scorer, rows)
    return scorer


def _check_alone(scorer: Scorer, rows: Any) -> None:
    """Raise where rows get other scores alone than among others: no threshold would fit both."""
    together, _ = as_served(scorer, rows)
    if not np.isfinite(together).any():
        return
    allowed = TOLERANCE * np.abs(together[np.isfinite(together)]).max()
    for row in spread(serving.row_count(rows), ALONE):
        part = serving.rows_between(rows, row, row + 1)
        alone, failed = as_served(scorer, part)
        if not np.allclose(alone, together[[row]], rtol=0, atol=allowed, equal_nan=True):
            other = failed.get(0, [float(f"{score:.3g}") for score in alone[0]])
            raise errors.ModelError(
                f"row {row} of those tried has the scores "
                f"{[float(f'{score:.3g}') for score in together[row]]} among {len(together)} rows, "
                f"but alone {other}; the model must score each row by itself, and the same each "
                "time (no dropout, no statistics of the batch)"
            )


def spread(n: int, most: int) -> list[int]:
    """Return up to so many row numbers, evenly from the first to the last of n rows."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)).tolist()


def as_served(scorer: Scorer, rows: Any) -> tuple[NDArray[np.float64], dict[int, Exception]]:
    """Return the scores of rows, checked as MLflow does when serving, and the errors by row."""
    return _predict(scorer.model.metadata, scorer, rows)


def _predict(metadata: Model, implementation: Any, rows: Any) -> Any:
    """Call with rows that MLflow has checked against the signature, as it does when serving."""
    if isinstance(rows, pd.DataFrame):
        rows = rows.reset_index(drop=True)  # as in a request; a model may look at it
    try:
        return PyFuncModel(metadata, implementation).predict(rows)
    except MlflowException as error:
        raise errors.InvalidDataError(
            f"the data do not fit the model's signature: {reason(error)}"
        ) from error


def _check_given(
    what: str,
    rows: pd.DataFrame,
    columns: Sequence[str],
    scorer: Scorer,
    features: pd.DataFrame | None,
    example: Any,
) -> None:
    """Raise unless some rows hold the scores that the model serves for them."""
    if len(columns) != len(scorer.classes):
        raise errors.InvalidDataError(
            f"scores_from names {len(columns)} columns for the classes {[*scorer.classes]}"
        )
    _check_columns(what, rows, columns)
    scores = _given_scores(what, rows, columns)
    if features is not None:
        _check_same(what, scores, scorer, features, TRIED)
        return
    served, _ = as_served(scorer, example)
    if _sum_to_one(served) != _sum_to_one(scores):
        which = ("probabilities", "none") if _sum_to_one(served) else ("no probabilities", "some")
        raise errors.InvalidScoresError(
            f"the model gives {which[0]}, but the scores in {what} are {which[1]}; give the "
            "scores as the model does, or rows with its inputs"
        )


def _check_columns(what: str, rows: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise where a column of scores is missing."""
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        hint = nearest(missing[0], map(str, rows.columns))
        raise errors.InvalidDataError(f"{what} has no column {missing[0]!r} of scores; {hint}")


def _check_same(
    what: str,
    scores: NDArray[np.float64],
    scorer: Scorer,
    features: pd.DataFrame,
    most: int,
) -> None:
    """Raise unless the model gives the same scores for so many of the rows that have some."""
    known = np.flatnonzero(np.isfinite(scores).all(axis=1))
    if not len(known):
        return
    tried = known[spread(len(known), most)]
    served, failed = as_served(scorer, features.iloc[tried])
    if failed:
        error = failed[min(failed)]
        raise errors.ModelError(
            f"the model cannot score a row of {what} that has scores there: "
            f"{type(error).__name__}: {reason(error)}; the scores must be those of this model"
        )
    gap = np.abs(served - scores[tried]).max()
    if not gap <= SAME_SCORES * np.abs(served).max():
        raise errors.InvalidScoresError(
            f"the scores in {what} differ by up to {gap:.3g} from those that the model "
            "gives for the same rows, so thresholds for them would not be the model's; leave "
            "scores_from out, or name the columns in the order of the model's classes, "
            f"{[*scorer.classes]}"
        )


def _given_scores(what: str, rows: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the scores that stand in rows."""
    try:
        return rows[list(columns)].to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError) as error:
        raise errors.InvalidScoresError(f"the scores in {what} are not numbers: {error}") from error


def _sum_to_one(scores: NDArray[np.float64]) -> bool:
    finite = scores[np.isfinite(scores).all(axis=1)]
    return bool(np.allclose(finite.sum(axis=1), 1, atol=1e-3))
