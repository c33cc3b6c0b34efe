"""Evaluate: measure a registered set classifier on labelled rows."""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from scrib_mlflow import errors, messages
from scrib_mlflow.core.certificate.claims import group_test_of
from scrib_mlflow.core.certificate.overlap import Overlap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.engines import doing, open_engine
from scrib_mlflow.engines.base import (
    Engine,
    answer_scores,
    compare_with_calibration,
    report_answers,
)
from scrib_mlflow.options import EngineName, Evaluate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import models, runs, stores
from scrib_mlflow.report import words
from scrib_mlflow.report.facts import Facts
from scrib_mlflow.report.page import Report, answers_report, page_files
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.rows import scored, tables
from scrib_mlflow.rows.tables import GivenRows
from scrib_mlflow.workflows import intact

LOGGER = logging.getLogger(__name__)

RUN_URI = re.compile(r"runs:/(?P<id>[0-9a-f]{32})(/scrib\.json)?")
MOST_SHARED = 0.5  # of rows that are called unseen: more than that are not equal by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a set classifier did on labelled rows."""

    model_uri: str
    run_id: str
    classifier: SetClassifier
    report: SetReport
    n_invalid: int  # rows that the model could not score; they abstain
    n_shared: int | None  # rows that its calibration used; None where that cannot be told
    fitted: bool  # whether most are, so that bounds prove nothing
    grouped: bool  # False where its rows came in groups, and nothing says which here


def evaluate(model_uri: str, data: GivenRows, label: str, **parameters: Any) -> Evaluation:
    """Measure a registered set classifier on labelled rows.

    Parameters
    ----------
    model_uri : str
        A set classifier that `calibrate` registered: ``models:/NAME/VERSION``,
        ``models:/NAME@ALIAS`` or ``models:/m-ID``; or ``runs:/RUN_ID`` of a calibration without a
        model, for rows with scores in the same columns.
    data : str, Path or DataFrame
        Labelled rows: a parquet or csv file, by path or URI, or a pandas frame.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow evaluate --help``.

    Returns
    -------
    Evaluation
        The report, with exact upper bounds; they hold for rows that the fit has not seen.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Evaluate, values))


def run(settings: Evaluate) -> Evaluation:
    """Do what `evaluate` does."""
    with stores.short_waits():
        stores.check_stores()
        found = _find(settings)
    uri, record, calibrated_by = found.uri, found.record, found.calibrated_by
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
        table = engine.read_table(
            "data",
            settings.data,
            settings.label,
            key=record.key,
            group=settings.group or record.group,
            weight=record.weight if settings.engine == "local" else None,  # is no input
            optional=["key", "weight"] if settings.group else ["key", "group", "weight"],
        )
        rows = FreshRows(engine, settings.engine, table, settings.batch_rows)
        run_id = stack.enter_context(runs.open_run(f"evaluate {found.name}", record.base.name))
        runs.log_parameters(run_id, settings.model_dump())
        answered, overlap = rows.compare(uri, record, calibrated_by, "evaluate")
        done = Evaluation(
            model_uri=uri,
            run_id=run_id,
            classifier=record,
            report=report_answers(
                answered,
                record.classes,
                settings.confidence,
                group_test_of(record.certificate),
                record.risk_groups,
            ),
            n_invalid=answered.n_invalid,
            n_shared=None if overlap is None else overlap.n_shared,
            fitted=overlap is not None and overlap.n_shared > MOST_SHARED * overlap.n_rows,
            grouped=record.group is None or answered.rows.groups is not None,
        )
        facts = _facts(done, overlapping=overlap is not None and overlap.excessive)
        which = f"{facts.which} of {messages.shown(table.record.source)}"
        page = answers_report(
            f"evaluate: {uri}",
            uri,
            record,
            replace(facts, which=which),
            (table, answered),
            calibrated_by,
            settings.model_dump(),
            run_id,
        )
        _log(done, page)
    return done


class Found(NamedTuple):
    """A set classifier as it is stored: with a model, or in the run of a calibration of scores."""

    uri: str
    name: str
    record: SetClassifier
    calibrated_by: str  # the run that made it, "" for none


def _find(settings: Evaluate) -> Found:
    """Return the set classifier that a URI means."""
    model_uri = settings.model_uri
    of_run = RUN_URI.fullmatch(model_uri)
    if of_run is None:
        base = stores.find_model(model_uri)
        stored = models.read_stored(base.uri)
        record = stored.record
        if settings.verify:
            intact.check_intact(base, stored)
        return Found(base.uri, base.name, record, stores.model_info(base.uri).run_id or "")
    run_id = of_run["id"]
    record = models.read_run(run_id).record
    if record.base.uri:
        raise errors.ModelError(
            f"run {run_id} made a set classifier over {record.base.uri}; give its model as "
            "models:/NAME/VERSION. runs:/RUN_ID is for calibrations without a model"
        )
    return Found(f"runs:/{run_id}", record.base.name, record, run_id)


class FreshRows(NamedTuple):
    """Labelled rows as an engine has read them, for a set classifier to answer."""

    engine: Engine[Any]
    engine_name: EngineName
    table: tables.TableLike
    batch_rows: int

    def answer(self, uri: str, record: SetClassifier) -> scored.Answered:
        """Let a set classifier answer them, or its rule where only scores are given."""
        if not record.base.uri:
            columns = tuple(map(str, record.scores.columns or ()))
            how = str(self.table.label), record.classes, columns, record.rule, self.batch_rows
            return answer_scores(self.engine, self.table, *how)
        return self.engine.answer(uri, self.table, record.classes, self.batch_rows)

    def compare(
        self, uri: str, record: SetClassifier, calibrated_by: str, context: str
    ) -> tuple[scored.Answered, Overlap | None]:
        """Log them, let a set classifier answer them, and compare them with its calibration's."""
        table = self.table
        runs.log_table_input(table.some_rows(), table.record, table.label, context)
        LOGGER.info(f"loading {uri}, and {doing(self.engine_name, table.record.n_rows)}")
        answered = self.answer(uri, record)
        return answered, compare_with_calibration(calibrated_by, answered.rows)


def _facts(done: Evaluation, *, overlapping: bool) -> Facts:
    """Return what may be said, less where the calibration used more rows than chance explains."""
    return words.evaluation_facts(
        done.classifier,
        done.report,
        fitted=done.fitted,
        proves=not done.fitted and done.grouped and not overlapping,
        n_shared=done.n_shared,
        grouped=done.grouped,
        n_invalid=done.n_invalid,
    )


def _log(done: Evaluation, page: Report) -> None:
    record, report = done.classifier, done.report
    prefix = "fit_" if done.fitted else ""
    counts = {"n_invalid": done.n_invalid, "n_shared": done.n_shared}
    metrics = {f"{prefix}{name}": float(n) for name, n in counts.items() if n is not None}
    runs.log_metrics(metrics | runs.report_metrics(report, prefix=prefix))
    more = "More is in the artifact report.html."
    runs.set_tags(
        {runs.MODEL_URI: done.model_uri, "scrib.base_model": record.base.name},
        words.note(words.summarize(page.facts, done.model_uri, more)),
    )
    runs.log_rows(page.facts.table.records(), "classes.json")
    documents, drawn = page_files(page)
    runs.log_texts_and_figures({"report.json": to_json(report), **documents}, drawn)


def summary(done: Evaluation) -> str:
    """Return what a person wants to see at the end."""
    where = words.logged(*runs.place_of(done.run_id))
    # an evaluation does not say how many shared rows chance explains: any one proves nothing here
    facts = _facts(done, overlapping=bool(done.n_shared))
    return words.terminal(words.summarize(facts, done.model_uri, where))
