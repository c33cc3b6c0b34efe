"""What a gate leaves in its run, before an alias moves."""

from __future__ import annotations

from dataclasses import dataclass

from scrib_mlflow.adapters import promotion, report, runs, texts
from scrib_mlflow.adapters.metrics import certificate_metrics, report_metrics
from scrib_mlflow.results import Decision, SetClassifier, to_json
from scrib_mlflow.settings import Gate
from scrib_mlflow.workflows.engines import Answered
from scrib_mlflow.workflows.pages import gate_report
from scrib_mlflow.workflows.parts import TableLike


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLog:
    """What the log of a gate needs beside its decision."""

    record: SetClassifier
    calibrated_by: str  # the run that knows the version's rows, "" for none
    table: TableLike | None  # fresh rows, and what the version answers
    answered: Answered | None
    settings: Gate
    run_id: str


def log_decision(log: GateLog, decision: Decision) -> None:
    """Log a decision and what it rests on; a later decision of the same run replaces it."""
    record, fresh = log.record, decision.fresh
    measured = fresh.report if fresh is not None else record.certify_report or record.fit_report
    certificate = fresh.certificate if fresh is not None else record.certificate
    prefix = "" if fresh is not None or record.certify_report is not None else "fit_"
    metrics = {"gate": float(decision.passed)} | report_metrics(measured, prefix=prefix)
    if certificate is not None:
        metrics |= certificate_metrics(certificate, record.classes)
    runs.log_metrics(metrics)
    runs.log_class_table(measured, decision.policy.risk_targets, "classes.json", certificate)
    page = _page(log, decision, "")
    documents, drawn = report.page_files(page)
    runs.log_texts_and_figures({"decision.json": to_json(decision), **documents}, drawn)
    _describe({promotion.GATE: promotion.word(decision)}, page)


def log_not_moved(log: GateLog, decision: Decision) -> None:
    """Say in the note and in the report that the alias is not on a version that passed."""
    version, alias = decision.model_uri.rpartition("/")[2], decision.policy.alias
    failure = (
        f"Not moved: version {version} passed every check, but the alias {alias} could not be "
        "moved to it."
    )
    page = _page(log, decision, failure)
    documents, _ = report.page_files(page)
    runs.log_texts_and_figures(documents, {})
    _describe({}, page)


def _page(log: GateLog, decision: Decision, failure: str) -> report.Report:
    return gate_report(
        decision,
        log.record,
        log.table,
        log.answered,
        log.calibrated_by,
        log.settings,
        log.run_id,
        failure,
    )


def _describe(tags: dict[str, str], page: report.Report) -> None:
    table = texts.markdown_table([("check", "", "found"), *page.checks])
    more = "More is in the artifact report.html."
    note = f"{page.verdict} {more}\n\n{table}"[: texts.MOST_CHARACTERS]
    runs.set_tags(tags, note)
