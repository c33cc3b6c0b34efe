"""The report of each command: which rows it shows, and what it may say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scrib_mlflow
from scrib_mlflow.adapters import lines, rule_texts, stores, verdicts
from scrib_mlflow.adapters.report import Report
from scrib_mlflow.adapters.report_parts import Rows
from scrib_mlflow.core.answers import Answers
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.rules import predict_sets
from scrib_mlflow.core.sample import Sample
from scrib_mlflow.options import Settings
from scrib_mlflow.results import DataRecord, Decision, SetClassifier
from scrib_mlflow.workflows.engines import Answered
from scrib_mlflow.workflows.parts import Parts, TableLike, Tables, shown_rows

NO_CERTIFICATE = "Risks and targets, measured"


def calibration_report(
    record: SetClassifier,
    tables: Tables[Any],
    parts: Parts,
    settings: Settings,
    name: str,
    run_id: str,
) -> Report:
    """Return the report of a calibration: of the certify rows where there are any."""
    measured, which, bounds = verdicts.shown_report(record)
    verdict = verdicts.headline(record)
    others = [told for told in verdicts.verdict_sentences(record) if told != verdict]
    if record.certificate is not None:
        found = lines.certificate_lines(measured, record.certificate)
    else:
        found = lines.measured_lines(
            measured, record.risk_targets, record.overall_target, proves=bounds
        )
    rows = parts.fit if parts.certify is None else parts.certify
    table = tables.data if parts.certify is None or tables.certify is None else tables.certify
    shown = rows.sample(shown_rows(len(record.classes)), by_class=False)
    sets = predict_sets(shown.scores, record.rule)
    stamp = "certified" if record.certified else "not certified"
    return Report(
        title=f"calibrate: {name}",
        stamp=stamp if record.mode == "certified" else f"{stamp}: mode=paper",
        tone="good" if record.certified else "bad",
        verdict=verdict,
        sentences=(*others, *_some(shown, rows.n_rows)),
        lines=tuple(found),
        lines_title=NO_CERTIFICATE if record.certificate is None else "The certificate",
        measured=measured,
        which=which,
        rule=record.rule,
        rule_sentences=tuple(rule_texts.sentences(record)),
        targets=record.risk_targets,
        rows=_rows(shown, sets, table),
        elsewhere="",
        facts=(*_made_from(record), *_ran(run_id, settings)),
        parameters=_parameters(settings),
    )


def evaluation_report(
    uri: str,
    record: SetClassifier,
    table: TableLike,
    answered: Answered,
    measured: SetReport,
    meaning: Sequence[str],
    *,
    fitted: bool,
    proves: bool,
    calibrated_by: str,
    settings: Settings,
    run_id: str,
) -> Report:
    """Return the report of a measurement; it claims nothing but its bounds."""
    found = lines.measured_lines(
        measured, record.risk_targets, record.overall_target, proves=proves
    )
    above = any(line.tone == "bad" for line in found)
    shown, sets = answered.sample(shown_rows(len(record.classes)))
    return Report(
        title=f"evaluate: {uri}",
        stamp="nothing proved" if fitted else "measured",
        tone="bad" if fitted or above else "plain",
        verdict=lines.measured_sentence(found, fitted=fitted),
        sentences=(
            *meaning,
            f"Its scrib.json says \u201c{_claimed(record)}\u201d; only a gate checks that "
            "this is what was registered.",
            *_some(shown, answered.n_rows),
        ),
        lines=tuple(found),
        lines_title=NO_CERTIFICATE,
        measured=measured,
        which=f"{measured.n:,} rows of {stores.shown(table.record.source)}",
        rule=record.rule,
        rule_sentences=tuple(rule_texts.measured_candidates(record, measured)),
        targets=record.risk_targets,
        rows=_rows(shown, sets, table),
        elsewhere="",
        facts=(
            ("set classifier", uri),
            ("data", _told(table.record)),
            *_made_from(record),
            *_calibrated_by(calibrated_by),
            *_ran(run_id, settings),
        ),
        parameters=_parameters(settings),
    )


def gate_report(
    decision: Decision,
    record: SetClassifier,
    table: TableLike | None,
    answered: Answered | None,
    calibrated_by: str,
    settings: Settings,
    run_id: str,
    failure: str = "",
) -> Report:
    """Return the report of a decision: of the fresh rows, or of the stored certificate alone.

    `failure` says why an alias that may be moved was not.
    """
    fresh, policy = decision.fresh, decision.policy
    sentences = [_own_certificate(record, decision)]
    if fresh is not None and table is not None and answered is not None:
        measured = fresh.report
        which = f"{measured.n:,} fresh rows of {stores.shown(fresh.data.source)}"
        if policy.evidence == "fresh":
            found = lines.certificate_lines(measured, fresh.certificate, without="not asked")
            title = "What fresh rows prove of the policy's targets"
        else:
            found = lines.refuted_lines(
                measured, record.risk_targets, record.overall_target, fresh.refuted
            )
            title = "What fresh rows say of the version's own targets"
        sentences += [verdicts.ledger_sentence(fresh.use)] if fresh.use is not None else []
        shown, sets = answered.sample(shown_rows(len(record.classes)))
        sentences += _some(shown, answered.n_rows)
        rows = _rows(shown, sets, table)
        elsewhere = ""
    else:
        measured, which, bounds = verdicts.shown_report(record)
        title, rows = "The stored certificate", None
        sentences.append("No fresh rows were given: only the stored certificate was asked.")
        where = f"run {calibrated_by}" if calibrated_by else "the calibrate run, which is gone"
        elsewhere = (
            "This gate was given no rows. Sets, scores, confusions and examples of the rows that "
            f"certify the version are in report.html of {where}."
        )
        if record.certificate is not None:
            found = lines.certificate_lines(measured, record.certificate)
        else:
            title = NO_CERTIFICATE
            found = lines.measured_lines(
                measured, record.risk_targets, record.overall_target, proves=bounds
            )
        if not _intact(decision):
            found = [line._replace(status=lines.CHANGED) for line in found]
    return Report(
        title=f"gate: {decision.model_uri} for {policy.alias}",
        stamp="not moved" if failure else "passed" if decision.passed else "refused",
        tone="good" if decision.passed and not failure else "bad",
        verdict=failure or verdicts.decision_sentence(decision),
        sentences=tuple(sentences),
        checks=tuple(verdicts.check_rows(decision)[1:]),
        lines=tuple(found),
        lines_title=title,
        measured=measured,
        which=which,
        rule=record.rule,
        rule_sentences=tuple(rule_texts.measured_candidates(record, measured)),
        targets=policy.risk_targets,
        rows=rows,
        elsewhere=elsewhere,
        facts=(
            ("set classifier", decision.model_uri),
            *((("fresh rows", _told(fresh.data)),) if fresh is not None else ()),
            *_made_from(record),
            *_calibrated_by(calibrated_by),
            *_ran(run_id, settings),
        ),
        parameters=_parameters(settings),
    )


def _rows(shown: Sample, sets: NDArray[np.bool_], table: TableLike) -> Rows:
    return Rows(
        answers=Answers(shown.scores, shown.labels, sets),
        table=stores.shown(table.record.source),
        places=shown.places,
        keys=shown.keys,
    )


def _some(shown: Sample, n_rows: int) -> list[str]:
    """Return that only some rows are shown, where that is so."""
    n = len(shown.labels)
    if n == n_rows:
        return []
    return [
        f"Tables of classes count all {n_rows:,} rows; figures, sets, confusions and examples are "
        f"of {n:,} of them, taken by hash."
    ]


def _intact(decision: Decision) -> bool:
    """Return whether the stored files of a version are those that were registered."""
    return all(check.passed for check in decision.checks if check.name == "intact")


def _own_certificate(record: SetClassifier, decision: Decision) -> str:
    """Return what the version was registered with, where that can be relied on."""
    if not _intact(decision):
        return "What its scrib.json says of a certificate is not to be relied on: see the checks."
    return f"The version was registered with the words \u201c{_claimed(record)}\u201d"


def _claimed(record: SetClassifier) -> str:
    """Return what is claimed of a version, with every proviso where it is certified."""
    return verdicts.verdict(record) if record.certified else verdicts.headline(record)


def _made_from(record: SetClassifier) -> list[tuple[str, str]]:
    """Return what a set classifier was made from, and how."""
    base = record.base
    parts = {
        "fit rows": record.fit_data,
        "certify rows": record.certify_data,
        "path rows": record.path_data,
    }
    named = f"{base.name} version {base.version}".removesuffix(" version ")
    facts = [("classifier", f"{named} ({base.uri})")]
    facts += [(name, _told(data)) for name, data in parts.items() if data is not None]
    facts.append(("rule", f"{record.rule.kind}, mode={record.mode}"))
    facts.append(("confidence", f"{record.confidence:g}"))
    if record.path is not None:
        tested, steps = len(record.path.p_values), record.path.n_steps
        facts.append(("path", f"{tested} of {steps} set classifiers tested in a fixed order"))
    return facts


def _calibrated_by(run_id: str) -> list[tuple[str, str]]:
    return [("calibrated by", f"run {run_id}")] if run_id else []


def _told(data: DataRecord) -> str:
    used = f"{data.n_used:,} of {data.n_rows:,} rows"
    return f"{stores.shown(data.source)}, {used}, digest {data.digest}"


def _ran(run_id: str, settings: Settings) -> list[tuple[str, str]]:
    now = datetime.now(timezone.utc).isoformat(sep=" ", timespec="seconds")
    seed = getattr(settings, "seed", None)
    facts = [] if seed is None else [("seed", str(seed))]
    return [*facts, ("run", run_id), ("scrib_mlflow", scrib_mlflow.__version__), ("made", now)]


def _parameters(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, stores.shown(value) if isinstance(value, str) else json.dumps(value))
        for name, value in settings.model_dump().items()
        if value is not None
    )
