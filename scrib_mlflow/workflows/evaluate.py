"""Evaluate: measure a registered set classifier on labelled rows."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.engines.base import Answered, Engine, compare_with_calibration, report_answers
from scrib_mlflow.engines.opening import doing, open_engine
from scrib_mlflow.options import EngineName, Evaluate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.registry.models import read_stored
from scrib_mlflow.registry.runs import report_metrics
from scrib_mlflow.report import facts, words
from scrib_mlflow.report.page import Report, evaluation_report, page_files
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.rows.hashes import Overlap
from scrib_mlflow.rows.scored import TableLike

LOGGER = logging.getLogger(__name__)

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


def evaluate(model_uri: str, data: str, label: str, **parameters: Any) -> Evaluation:
    """Measure a registered set classifier on labelled rows.

    Parameters
    ----------
    model_uri : str
        A set classifier that `calibrate` registered: ``models:/NAME/VERSION``,
        ``models:/NAME@ALIAS`` or ``models:/m-ID``.
    data : str
        Labelled rows: a parquet or csv file, by path or URI.
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
        base = stores.find_model(settings.model_uri)
        uri, record = base.uri, read_stored(base.uri).record
        calibrated_by = stores.model_info(uri).run_id or ""
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
        table = engine.read_fresh(
            settings.data,
            settings.label,
            key=record.key,
            group=settings.group or record.group,
            optional=["key"] if settings.group else ["key", "group"],
        )
        rows = FreshRows(engine, settings.engine, table, settings.batch_rows)
        run_id = stack.enter_context(runs.open_run(f"evaluate {base.name}"))
        runs.log_parameters(run_id, settings.model_dump())
        answered, overlap = rows.compare(uri, record, calibrated_by, "evaluate")
        done = Evaluation(
            model_uri=uri,
            run_id=run_id,
            classifier=record,
            report=report_answers(answered, record.classes, settings.confidence),
            n_invalid=answered.n_invalid,
            n_shared=None if overlap is None else overlap.n_shared,
            fitted=overlap is not None and overlap.n_shared > MOST_SHARED * overlap.n_rows,
            grouped=record.group is None or answered.grouped,
        )
        page = evaluation_report(
            uri,
            record,
            table,
            answered,
            done.report,
            _meaning(done),
            fitted=done.fitted,
            proves=not done.fitted and done.grouped and not (overlap and overlap.excessive),
            calibrated_by=calibrated_by,
            settings=settings,
            run_id=run_id,
        )
        _log(done, page)
    return done


class FreshRows(NamedTuple):
    """Labelled rows as an engine has read them, for a set classifier to answer."""

    engine: Engine
    engine_name: EngineName
    table: TableLike
    batch_rows: int

    def answer(self, uri: str, record: SetClassifier) -> Answered:
        """Let a set classifier answer them."""
        return self.engine.answer(uri, self.table, record.classes, self.batch_rows)

    def compare(
        self, uri: str, record: SetClassifier, calibrated_by: str, context: str
    ) -> tuple[Answered, Overlap | None]:
        """Log them, let a set classifier answer them, and compare them with its calibration's."""
        table = self.table
        runs.log_table_input(table.some_rows(), table.record, table.label, context)
        LOGGER.info(f"loading {uri}, and {doing(self.engine_name, table.record.n_rows)}")
        answered = self.answer(uri, record)
        return answered, compare_with_calibration(calibrated_by, answered)


def _meaning(done: Evaluation) -> list[str]:
    """Return what the bounds mean."""
    return facts.measured_meaning(
        done.report,
        fitted=done.fitted,
        n_shared=done.n_shared,
        group=None if done.grouped else done.classifier.group,
        n_invalid=done.n_invalid,
    )


def _log(done: Evaluation, page: Report) -> None:
    record, report = done.classifier, done.report
    prefix = "fit_" if done.fitted else ""
    counts = {"n_invalid": done.n_invalid, "n_shared": done.n_shared}
    metrics = {f"{prefix}{name}": float(n) for name, n in counts.items() if n is not None}
    runs.log_metrics(metrics | report_metrics(report, prefix=prefix))
    runs.set_tags(
        {runs.MODEL_URI: done.model_uri, "scrib.base_model": record.base.name},
        "\n\n".join(
            [
                page.verdict,
                f"{done.model_uri} on {report.n:,} rows. "
                + " ".join([words.abstentions(report), *page.rule_sentences]),
                " ".join([*_meaning(done), "More is in the artifact report.html."]),
                words.class_markdown(report, record.risk_targets, bounds=not done.fitted),
            ]
        ),
    )
    runs.log_class_table(report, record.risk_targets, "classes.json")
    documents, drawn = page_files(page)
    runs.log_texts_and_figures({"report.json": to_json(report), **documents}, drawn)


def summary(done: Evaluation) -> str:
    """Return what a person wants to see at the end."""
    report, targets = done.report, done.classifier.risk_targets
    table = words.class_rows(report, targets, bounds=not done.fitted, most=words.MOST_PRINTED)
    told = [
        f"{done.model_uri} on {report.n:,} rows:",
        "",
        words.plain_table(table),
        *words.folded(report, words.MOST_PRINTED),
        "",
        words.abstentions(report),
        *words.measured_candidates(done.classifier, report),
        *_meaning(done),
        f"logged to run {done.run_id}; its artifact report.html shows more",
    ]
    return "\n".join(told)
