"""Select: choose the rows to label, by a path that is fixed before their labels are known."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mlflow.types import Schema

import scrib_mlflow
from scrib_mlflow.core.certificate import Path as RulePath, Sample, draw_path, expected_rows
from scrib_mlflow.core.certificate.overlap import compare_rows, count_shared
from scrib_mlflow.core.certificate.selection import answered_rows, draw_rows, split_pool
from scrib_mlflow.core.groups import GroupTest, first_rows
from scrib_mlflow.core.inputs import Bools, labels_for
from scrib_mlflow.core.targets import claimed, make_constraints
from scrib_mlflow.engines import base as engines, doing, open_engine
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.messages import progress
from scrib_mlflow.options import Calibrate, Select
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.predictions import answers
from scrib_mlflow.records import Base, Unscored, seal
from scrib_mlflow.registry import runs
from scrib_mlflow.report import selection as report, words
from scrib_mlflow.results import LabelPoint, Selection, to_json
from scrib_mlflow.rows import hashes, labelling, leakage
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.rows.tables import GivenRows, TableLike
from scrib_mlflow.workflows import calibrate, fitting
from scrib_mlflow.workflows.selected import ROWS, SELECTION

LOGGER = logging.getLogger(__name__)

FACTORS = (0.25, 0.5, 2.0, 4.0)  # of the rows asked for, that are predicted as well
CURVE_ROWS = 5_000  # that these predictions are drawn from
KEPT_ROWS = 1_000_000  # scores of open rows that are kept, by which abstention is measured
ADVICE_ROWS = fitting.ADVICE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Which rows to label, and where they are."""

    run_id: str  # for calibrate, as its `selection`
    output: str  # the folder that holds the rows, and a sheet that says what to do
    labelled: str  # the file that calibrate will be given: the rows with labels
    selection: Selection


def select(
    model_uri: str | None = None,
    data: GivenRows | None = None,
    label: str | None = None,
    pool: GivenRows | None = None,
    **parameters: Any,
) -> Selected:
    """Choose the rows to label: those whose labels can prove most.

    Draws a path of set classifiers and fixes it. Then draws rows at random from those that some of
    them answer, because labels of other rows prove nothing, and writes them to a folder. With their
    labels, ``calibrate(selection=..., certify_data=..., label=...)`` tests the path.

    Parameters
    ----------
    model_uri : str, optional
        ``models:/NAME/VERSION``, ``models:/NAME@ALIAS`` or ``models:/m-ID``. Without one,
        ``scores_from="columns:[p_a, p_b]"`` names the columns that hold scores.
    data : str, Path or DataFrame
        A few labelled rows, a parquet or csv file, by path or URI, or a pandas frame.
    label : str
        Column of the true class.
    pool : str, Path or DataFrame
        Rows without labels, other ones, from where new rows will come.
    **parameters
        Those of ``python -m scrib_mlflow select --help``, for example ``rows=3000``,
        ``output="to_label"``, ``key="epoch"``.

    Returns
    -------
    Selected
        With the run's id, which calibrate asks for, and the curve of labels against what they are
        predicted to prove.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, "pool": pool, **parameters}
    return run(read_settings(Select, values))


def run(settings: Select) -> Selected:
    """Do what `select` does."""
    alike = calibrate.as_calibrate(settings)
    calibrate.check_options(alike)
    _check_label(settings, _named(settings))
    output = _check_output(settings)
    base = calibrate.find_base(settings.model_uri)
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
        data_table, pool_table = _read(engine, settings)
        tables = engines.Tables(data=data_table, certify=None, path=pool_table)
        if base.uri:
            read = tables.all()
            leakage.check_untrained(base.uri, read, allowed=settings.allow_overlap)
        run_id = stack.enter_context(runs.open_run(f"select {base.name}", base.name))
        runs.log_parameters(run_id, settings.model_dump())
        for table, context in zip(tables.all(), ("fit", "path"), strict=True):
            runs.log_table_input(table.some_rows(), table.record, table.label, context)
        model, example = calibrate.load_base(base)
        schema = None if model is None else model.metadata.get_input_schema()
        LOGGER.info(doing(settings.engine, sum(table.record.n_rows for table in tables.all())))
        request = replace(calibrate.rows_request(alike), certify=False)
        parts = engine.make_parts(tables, model, base.uri, example, request)
        pool = _pool(parts, settings)
        parts = replace(parts, path=pool)
        _check_apart(parts.fit, pool)
        inputs = () if parts.tried is None else tuple(map(str, parts.tried.features.columns))
        _check_columns(settings, inputs, pool_table, schema)
        unscored = fitting.find_unscored(parts)
        if unscored is not None:
            LOGGER.warning(words.unscored_sentence(unscored))
        drawn = _draw(settings, alike, parts, pool)
        selection, kept = _fix(drawn, settings, base, parts, inputs, unscored)
        columns = [*dict.fromkeys([*_named(settings), *inputs])]
        name = labelling.RETURNED.get(settings.format, labelling.FILES[settings.format])
        rows = engine.read_again(pool_table, drawn.open_rows.take(drawn.chosen), columns)
        with answers.new_folder(output, overwrite=False) as folder:
            labelling.check_format(rows, inputs, schema, _named(settings), settings.format)
            labelling.write(
                folder,
                _in_order(rows, settings),
                settings.format,
                label=settings.label,
                run_id=run_id,
                shown=inputs or columns,
                classes=parts.classes,
            )
            sheet = report.sheet(selection, settings.format, run_id, str(output / name))
            (folder / labelling.SHEET).write_text(sheet, encoding="utf-8")
            _log(selection, kept, parts, drawn, base)
    labelled = str(Path(settings.output) / name)
    return Selected(run_id=run_id, output=settings.output, labelled=labelled, selection=selection)


def _check_output(settings: Select) -> Path:
    """Return the folder to make; raise where it cannot be one, before any work is done."""
    output = answers.local_path(settings.output)
    if output is None:
        raise InvalidSettingsError(
            f"output is {settings.output!r}, but must be a folder of this machine"
        )
    answers.check_apart(output, settings.data)
    answers.check_apart(output, settings.pool)
    answers.check_kept(output)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise InvalidSettingsError(f"output {output} is there and not empty; name a new folder")
    return output


def _read(engine: engines.Engine[Any], settings: Select) -> tuple[Any, Any]:
    """Read the labelled rows, which may have keys as well, and the pool."""
    named = {"key": settings.key, "group": settings.group}
    data = engine.read_table("data", settings.data, settings.label, optional=("key",), **named)
    return data, engine.read_table("pool", settings.pool, None, **named)


def _pool(parts: engines.CalibrationRows, settings: Select) -> Scored:
    """Return the rows of the pool, one of each where others are copies.

    A copy of a row that is drawn would count its errors twice, or have a part in the path.
    """
    pool = parts.path
    if pool is None:
        raise InvalidDataError("pool has no rows")
    n_repeated = pool.count_repeated()
    if n_repeated and settings.duplicates == "drop":
        return pool.take(pool.distinct())
    if n_repeated:
        LOGGER.warning(report.repeated(n_repeated, pool.n_rows))
    return pool


def _check_apart(fit: Scored, pool: Scored) -> None:
    """Raise where labelled rows, or rows of their groups, stand in the pool.

    They would be left out of what can be drawn. Were they labelled for being hard, the others would
    be too easy, and nothing here can tell.
    """
    advice = (
        "leave them out of the pool. If they were not labelled at random, the rest of the pool is "
        "no fair sample either: take a pool that they are no part of"
    )
    overlap = compare_rows(fit.cases(labelled=False), pool.cases(labelled=False))
    if overlap.excessive:
        raise InvalidDataError(
            f"{overlap.n_shared:,} of the {overlap.n_rows:,} rows of pool stand in data as well, "
            f"where about {overlap.expected * overlap.n_rows:,.0f} would by chance; {advice}"
        )
    if fit.keys is not None and pool.keys is not None:
        shared = count_shared(fit.keys, pool.keys)
        if shared:
            raise InvalidDataError(
                f"{shared:,} rows of pool have the key of a row in data, so they are the same "
                f"rows; {advice}. If the keys of data mean other rows, drop that column there"
            )
    if fit.groups is None or pool.groups is None:
        return
    shared = count_shared(fit.groups, pool.groups)
    if shared:
        raise InvalidDataError(
            f"{shared:,} rows of pool are of groups that have rows in data as well, so they would "
            f"not be independent of the path; {advice}"
        )


def _named(settings: Select) -> list[str]:
    """Return the columns that go with the inputs."""
    return [name for name in (settings.key, settings.group) if name is not None]


def _check_label(settings: Select, columns: Sequence[str]) -> None:
    """Raise where a column that is handed out has the name of the one to fill in."""
    if settings.label in columns:
        raise InvalidSettingsError(
            f"label is {settings.label!r}, which is a column of pool that is handed out"
        )


def _check_columns(
    settings: Select, inputs: Sequence[str], pool: TableLike, schema: Schema | None
) -> None:
    """Raise where the rows could not be written, or not be known again; before the long work."""
    if not inputs and settings.key is None:
        raise InvalidSettingsError(
            "key is missing: rows that hold only scores are known again by a column that "
            "identifies them, as the scores are not handed out"
        )
    _check_label(settings, inputs)
    some = pool.some_rows()
    wanted = [*dict.fromkeys([*_named(settings), *inputs])]
    labelling.check_format(some[wanted], inputs, schema, _named(settings), settings.format)


class Drawn(NamedTuple):
    """Which rows of the pool are for what."""

    path: RulePath
    group_test: GroupTest | None
    path_rows: Scored  # of the pool
    open_rows: Scored  # the others
    answered: Bools  # (n,) of the open rows, by some rule of the path
    chosen: Bools  # (n,) of these, to be labelled
    curve: tuple[LabelPoint, ...]
    settings: Calibrate  # as they will be used, with the rule that auto means


def _draw(
    settings: Select, alike: Calibrate, parts: engines.CalibrationRows, pool: Scored
) -> Drawn:
    """Draw the path on a part of the pool, and then rows of the other part."""
    classes = parts.classes
    sample = engines.sorted_sample(parts.fit, settings.max_fit_rows, by_class=True)
    alike = fitting.with_rule(alike, sample.scores)
    names = pool.table.identities()[pool.places]
    draws = split_pool(names, settings.path_fraction, settings.seed, pool.groups)
    path_rows, open_rows = pool.take(draws), pool.take(~draws)
    if path_rows.scorable().n_rows < 2:
        raise InvalidDataError(
            f"only {path_rows.n_rows:,} of the {pool.n_rows:,} rows of pool would draw the path; "
            "give a larger pool, or raise path_fraction"
        )
    constraints = make_constraints(fitting.targets_of(alike), classes)
    top = path_rows.scorable()
    guessed = top.scores.argmax(axis=1).astype(np.int32)  # no row of the pool has a label
    how = fitting.group_test(alike, top, guessed, constraints)
    level = 1 - alike.confidence
    options = fitting.drawing_options(alike, classes, how, level)
    shown = engines.sorted_sample(path_rows, settings.max_fit_rows, by_class=False)

    def draw(rows: int, fit: Sample, shape: Sample, what: str) -> RulePath:
        return draw_path(
            fit.scores,
            labels_for(fit.labels, classes),
            **options,
            certify_rows=expected_rows(rows, level, None, how),
            answered_only=True,
            path_scores=shape.scores,
            groups=fit.groups,
            sample_weight=fit.weights,
            progress=lambda steps: progress(steps, what=what, unit="steps"),
        )

    n, m = len(sample.labels), len(shown.scores)
    LOGGER.info(f"drawing the path, with {n:,} labelled rows and {m:,} of pool")
    path = draw(settings.rows, sample, shown, "drawing the path")
    answered = answered_rows([step.rule for step in path.steps], open_rows.scores)
    chosen = draw_rows(answered, open_rows.order, settings.rows, settings.seed, open_rows.groups)
    few = _first(sample, CURVE_ROWS), _first(shown, CURVE_ROWS)
    named = [claim.name for claim in claimed(constraints)]
    points = [_point(settings.rows, path, named)]
    LOGGER.info("predicting what fewer and more labels would prove")
    for factor in FACTORS:
        rows = max(round(factor * settings.rows), 1)
        points.append(_point(rows, draw(rows, *few, f"{rows:,} labels"), named))
    curve = tuple(sorted(points, key=lambda point: point.labels))
    return Drawn(path, how, path_rows, open_rows, answered, chosen, curve, alike)


def _first(sample: Sample, most: int) -> Sample:
    """Return the first rows of a sample, which is in an order like chance; groups stay whole."""
    if len(sample.labels) <= most:
        return sample
    some = first_rows(sample.labels, sample.groups, most)
    parts: list[Any] = [None if values is None else values[some] for values in sample]
    return Sample(*parts)


def _point(labels: int, path: RulePath, names: Sequence[str]) -> LabelPoint:
    """Return what a path predicts for so many labels."""
    power = path.power
    return LabelPoint(
        labels=labels,
        chance=power,
        expected_abstention=power * path.expected_abstention + (1 - power),
        answered_rate=path.answered_rate or 0.0,
        chances=dict(zip(names, path.steps[0].chances, strict=True)),
    )


def _fix(
    drawn: Drawn,
    settings: Select,
    base: Base,
    parts: engines.CalibrationRows,
    inputs: tuple[str, ...],
    unscored: Unscored | None,
) -> tuple[Selection, bytes]:
    """Return all that the test needs, and the rows that it is about as a parquet file."""
    open_rows, chosen = drawn.open_rows, drawn.chosen
    picked = open_rows.take(chosen)
    frames = [
        _frame("fit", parts.fit.scorable()),
        _frame("path", _some(drawn.path_rows, ADVICE_ROWS)),
        _frame("open", _some(open_rows, KEPT_ROWS)),
        _frame("drawn", picked),
    ]
    texts = picked.table.key_values(picked.places)
    if texts is not None:
        frames[-1] = frames[-1].assign(**{"key text": [str(text) for text in texts]})
    file = io.BytesIO()
    pd.concat(frames, ignore_index=True).to_parquet(file, index=False)
    groups = picked.groups
    fixed = drawn.settings.model_dump(mode="json", exclude={"engine", "spark_options", "data"})
    selection = Selection(
        classes=parts.classes,
        base=base,
        scores=parts.scores,
        inputs=inputs,
        settings=fixed,
        path=drawn.path,
        group_test=drawn.group_test,
        fit_data=parts.fit_data,
        pool_data=replace(open_rows.record, n_used=drawn.path_rows.n_rows + open_rows.n_rows),
        rows_digest=labelling.digest(file.getvalue()),
        n_path=drawn.path_rows.n_rows,
        n_open=open_rows.n_rows,
        n_answered=int(np.count_nonzero(drawn.answered)),
        n_drawn=picked.n_rows,
        n_groups=None if groups is None else len(np.unique(groups)),
        curve=drawn.curve,
        unscored=unscored,
        package_version=scrib_mlflow.__version__,
    )
    return selection, file.getvalue()


def _some(rows: Scored, most: int) -> Scored:
    """Return at most so many rows, in an order like chance."""
    return rows.at(np.argsort(rows.order, kind="stable")[:most])


def _frame(part: str, rows: Scored) -> pd.DataFrame:
    """Return rows as the selection keeps them: all but their inputs."""
    none = np.zeros(rows.n_rows, dtype=np.uint64)  # not missing: that would make hashes floats
    arrays = {"label": rows.labels, "sums": rows.sums, "order": rows.order}
    arrays |= {"key": none if rows.keys is None else rows.keys}
    arrays |= {"group": none if rows.groups is None else rows.groups}
    scores = {f"score {j}": rows.scores[:, j] for j in range(len(rows.classes))}
    return pd.DataFrame({"part": part, **arrays, **scores})


def _in_order(rows: pd.DataFrame, settings: Select) -> pd.DataFrame:
    """Return rows of a group together; else they stay in an order like chance."""
    if settings.group is None:
        return rows
    return rows.sort_values(_named(settings)[::-1], kind="stable", ignore_index=True)


def _log(
    selection: Selection,
    kept: bytes,
    parts: engines.CalibrationRows,
    drawn: Drawn,
    base: Base,
) -> None:
    """Log what is fixed, and what labels are predicted to prove."""
    text = to_json(selection)
    part = {"fit": parts.fit, "path": drawn.path_rows}
    known = {name: hashes.thin(rows.cases()) for name, rows in part.items()}
    for name, rows in part.items():
        if rows.keys is not None:
            known[f"{name} keys"] = hashes.thin(rows.keys)
    runs.log_row_hashes(known)
    runs.log_bytes(kept, ROWS)
    figures = {"figures/labels.png": report.curve_figure(selection)}
    runs.log_texts_and_figures({SELECTION: text}, figures)
    runs.log_metrics(report.metrics(selection))
    note = words.note(report.select_summary(selection, "More is in selection.json."))
    tags: dict[str, Any] = runs.base_tags(base, selection.fit_data)
    runs.set_tags({**tags, runs.SELECTION_DIGEST: seal(text)}, note)


def summary(done: Selected) -> str:
    """Return what a person wants to see at the end."""
    where = f"Logged to run {done.run_id}."
    files = done.output, done.labelled
    return words.terminal(report.select_summary(done.selection, where, *files, done.run_id))
