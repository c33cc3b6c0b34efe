"""What a calibration leaves in its run, before its model is logged."""

from __future__ import annotations

from typing import Any

from scrib_mlflow.adapters import registration, report, runs, verdicts
from scrib_mlflow.adapters.metrics import certificate_metrics, gap_metrics, report_metrics
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.pages import calibration_report
from scrib_mlflow.workflows.parts import Parts, Tables


def log_calibration(
    record: SetClassifier,
    tables: Tables[Any],
    parts: Parts,
    settings: Calibrate,
    name: str,
    run_id: str,
) -> None:
    """Log everything but the model to the run."""
    metrics = {"certified": float(record.certified), "fit_loss": record.fit.loss}
    metrics |= report_metrics(record.fit_report, prefix="fit_")
    if record.certify_report is not None:
        metrics |= report_metrics(record.certify_report)
    if record.certificate is not None:
        metrics |= certificate_metrics(record.certificate, record.classes)
    metrics |= gap_metrics(record.gap, prefix="fit_" if record.certify_report is None else "")
    runs.log_metrics(metrics)
    note = verdicts.describe(record, "More is in the artifact report.html.")
    text = to_json(record)
    runs.set_tags(registration.version_tags(record, run_id, text), note)
    shown, _, _ = verdicts.shown_report(record)
    runs.log_class_table(shown, record.risk_targets, "classes.json", record.certificate)
    runs.log_cases(parts.cases)
    page = calibration_report(record, tables, parts, settings, name, run_id)
    documents, drawn = report.page_files(page)
    documents |= {"scrib.json": text, "description.md": note}
    if record.certificate is not None:
        documents["certificate.json"] = to_json(record.certificate)
    runs.log_texts_and_figures(documents, drawn)
