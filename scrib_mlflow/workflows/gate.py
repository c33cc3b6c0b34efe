"""Gate: move a registry alias to a set classifier, if the evidence meets the policy."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import mlflow
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.certificate.claims import refuted
from scrib_mlflow.core.targets import Constraint, Targets, by_name, known_classes, make_constraints
from scrib_mlflow.engines.base import Engine, compare_with_calibration, report_answers
from scrib_mlflow.engines.opening import doing, open_engine
from scrib_mlflow.errors import InvalidSettingsError, ModelError, StoreError
from scrib_mlflow.options import Gate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import Base, seal
from scrib_mlflow.registry import alias, ledger, models, runs, stores
from scrib_mlflow.registry.models import Stored, read_stored
from scrib_mlflow.registry.runs import certificate_metrics, report_metrics
from scrib_mlflow.report import page, words
from scrib_mlflow.report.page import gate_report
from scrib_mlflow.results import Decision, Fresh, Policy, SetClassifier, to_json
from scrib_mlflow.rows.scored import Answered, TableLike
from scrib_mlflow.rows.scoring import enforced
from scrib_mlflow.workflows.policy import decide, find_damage

LOGGER = logging.getLogger(__name__)

MOST_TRIES = 5  # others may move the alias meanwhile


class FreshRows(NamedTuple):
    """Fresh rows as an engine has read them."""

    engine: Engine
    table: TableLike
    batch_rows: int

    def answer(self, uri: str, record: SetClassifier) -> Answered:
        """Let a set classifier answer them."""
        return self.engine.answer(uri, self.table, record.classes, self.batch_rows)


class Measured(NamedTuple):
    """What a version does on fresh rows, as it is judged and row by row."""

    fresh: Fresh
    answered: Answered


def read_fresh(engine: Engine, settings: Gate, record: SetClassifier) -> TableLike:
    """Read the rows; what identified and grouped those of the calibration does so here."""
    assert settings.data is not None  # noqa: S101  # for mypy; told by the caller
    assert settings.label is not None  # noqa: S101
    group = settings.group or record.group
    if record.group is not None and settings.group not in {None, record.group}:
        raise InvalidSettingsError(
            f"group is {settings.group!r}, but the version was certified by {record.group!r}; "
            "leave group out"
        )
    return engine.read_fresh(settings.data, settings.label, key=record.key, group=group)


def measure_fresh(
    rows: FreshRows, uri: str, stored: Stored, calibrated_by: str, policy: Policy, run_id: str
) -> Measured:
    """Let the version answer the rows, and count; the policy's targets are what is claimed."""
    record = stored.record
    answered = rows.answer(uri, record)
    overlap = compare_with_calibration(calibrated_by, answered)
    asked = _claims(policy.risk_targets, policy.overall_target, record)
    use, level = None, 1 - policy.confidence
    if policy.evidence == "fresh":
        targets = [sorted(policy.risk_targets.items()), policy.overall_target]
        tested = json.dumps([uri, seal(stored.text), targets, rows.table.beside])
        use = ledger.enter(run_id, rows.table.record.digest, tested, level, policy.ledger)
        level = use.level
    certificate = make_certificate(
        answered.tally(asked), asked, record.classes, level=level, waived=_waived(asked, record)
    )
    fresh = Fresh(
        data=rows.table.record,
        report=report_answers(answered, record.classes, policy.confidence),
        certificate=certificate,
        refuted=_refuted(record, answered, 1 - policy.confidence),
        n_shared=overlap.n_shared if overlap else None,
        n_compared=overlap.n_rows if overlap else 0,
        n_expected=overlap.expected * overlap.n_rows if overlap else 0.0,
        overlapping=bool(overlap and overlap.excessive),
        use=use,
        champion_abstention=None,
    )
    return Measured(fresh, answered)


def measure_abstention(fresh: Fresh, champion_uri: str, rows: FreshRows) -> Fresh:
    """Return fresh rows with how often whoever has the alias abstains on them."""
    if not champion_uri:
        return replace(fresh, champion_abstention=None)
    try:
        record = read_stored(champion_uri).record
    except ModelError as error:
        raise ModelError(f"max_abstention_increase cannot be judged: {error}") from error
    answered = rows.answer(champion_uri, record)
    abstention = 1 - answered.count().all_certain / answered.n_rows
    return replace(fresh, champion_abstention=float(abstention))


def _claims(
    targets: dict[str, float], overall: float | None, record: SetClassifier
) -> tuple[Constraint, ...]:
    """Return claims from targets by name; classes without one are waived."""
    waived = [name for name in record.classes if name not in targets]
    asked = Targets(risk_targets=targets or None, overall_target=overall, waive=waived)
    return make_constraints(asked, record.classes)


def _waived(claims: tuple[Constraint, ...], record: SetClassifier) -> tuple[str, ...]:
    claimed = {claim.name for claim in claims}
    return tuple(name for name in record.classes if name not in claimed)


def _refuted(record: SetClassifier, answered: Answered, level: float) -> tuple[str, ...]:
    """Return what the version claims and these rows disprove."""
    if not record.risk_targets and record.overall_target is None:
        return ()
    claims = _claims(record.risk_targets, record.overall_target, record)
    found = refuted(answered.tally(claims), claims, level)
    return tuple(claim.name for claim, bad in zip(claims, found.refuted, strict=True) if bad)


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
    made = _page(log, decision, "")
    documents, drawn = page.page_files(made)
    runs.log_texts_and_figures({"decision.json": to_json(decision), **documents}, drawn)
    _describe({alias.GATE: alias.word(decision)}, made)


def log_not_moved(log: GateLog, decision: Decision) -> None:
    """Say in the note and in the report that the alias is not on a version that passed."""
    version, alias = decision.model_uri.rpartition("/")[2], decision.policy.alias
    failure = (
        f"Not moved: version {version} passed every check, but the alias {alias} could not be "
        "moved to it."
    )
    made = _page(log, decision, failure)
    documents, _ = page.page_files(made)
    runs.log_texts_and_figures(documents, {})
    _describe({}, made)


def _page(log: GateLog, decision: Decision, failure: str) -> page.Report:
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


def _describe(tags: dict[str, str], page: page.Report) -> None:
    table = words.markdown_table([("check", "", "found"), *page.checks])
    more = "More is in the artifact report.html."
    note = f"{page.verdict} {more}\n\n{table}"[: words.MOST_CHARACTERS]
    runs.set_tags(tags, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What a gate decided about a version, and whether the alias moved."""

    name: str
    version: str
    alias: str
    run_id: str
    moved: bool  # False where it was refused, or had the alias already
    decision: Decision
    classifier: SetClassifier  # as the version was registered


class Candidate(NamedTuple):
    """The version to promote, as it is stored."""

    found: Base
    stored: Stored
    broken: str  # what is wrong with its files, "" for nothing
    calibrated_by: str  # the run that knows its rows, "" for none


def gate(model_uri: str, **parameters: Any) -> Gated:
    """Move a registry alias to a set classifier if the evidence meets the policy.

    Parameters
    ----------
    model_uri : str
        ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
    **parameters
        Those of ``python -m scrib_mlflow gate --help``, for example ``alias="champion"``,
        ``risk_targets={"N1": 0.2, "default": 0.1}``, ``data="test.parquet"``, ``label="stage"``.

    Returns
    -------
    Gated
        With the decision, check by check; ``decision.passed`` says whether the alias is on it.
    """
    return run(read_settings(Gate, {"model_uri": model_uri, **parameters}))


def run(settings: Gate) -> Gated:
    """Do what `gate` does."""
    _check_options(settings)
    with stores.short_waits():
        stores.check_stores()
        candidate = _find(settings)
        stores.check_may_register(candidate.found.name)
    policy = make_policy(settings, candidate.stored.record)
    with ExitStack() as stack:
        rows = None
        if settings.data is not None:
            engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
            table = read_fresh(engine, settings, candidate.stored.record)
            rows = FreshRows(engine, table, settings.batch_rows)
        run_id = stack.enter_context(runs.open_run(f"gate {candidate.found.name}"))
        runs.log_settings(run_id, settings)
        mlflow.set_tag(runs.MODEL_URI, candidate.found.uri)
        measured = None
        if rows is not None:
            table = rows.table
            runs.log_table_input(table.some_rows(), table.record, table.label, "gate")
            n_rows = table.record.n_rows
            LOGGER.info(f"loading {candidate.found.uri}, and {doing(settings.engine, n_rows)}")
            measured = measure_fresh(
                rows,
                candidate.found.uri,
                candidate.stored,
                candidate.calibrated_by,
                policy,
                run_id,
            )
        log = GateLog(
            record=candidate.stored.record,
            calibrated_by=candidate.calibrated_by,
            table=rows.table if rows is not None else None,
            answered=measured.answered if measured is not None else None,
            settings=settings,
            run_id=run_id,
        )
        fresh = measured.fresh if measured is not None else None
        decision, moved = _decide_and_move(candidate, policy, rows, fresh, log)
    return Gated(
        name=candidate.found.name,
        version=candidate.found.version,
        alias=settings.alias,
        run_id=run_id,
        moved=moved,
        decision=decision,
        classifier=candidate.stored.record,
    )


def exit_code(done: Gated) -> int:
    """Return 0 where the alias is on the version, 1 where it was refused."""
    return 0 if done.decision.passed else 1


def _check_options(settings: Gate) -> None:
    models.check_alias(settings.alias)
    if (settings.data is None) != (settings.label is None):
        missing = "data" if settings.data is None else "label"
        raise InvalidSettingsError(f"{missing} is missing; fresh rows need data and label")
    for name, wants in (
        ("group", settings.group is not None),
        ("engine=spark", settings.engine == "spark"),
        ("spark_options", settings.spark_options is not None),
        ("evidence=fresh", settings.evidence == "fresh"),
        ("max_abstention_increase", settings.max_abstention_increase is not None),
    ):
        if wants and settings.data is None:
            raise InvalidSettingsError(f"{name} needs fresh rows; give data and label")


def _find(settings: Gate) -> Candidate:
    """Return the version, and what is wrong with its files."""
    found = stores.find_model(settings.model_uri)
    if not found.version:
        raise ModelError(
            f"{settings.model_uri} is no registered version; give models:/NAME/VERSION"
        )
    stored = read_stored(found.uri)
    tags = mlflow.MlflowClient().get_model_version(found.name, found.version).tags
    noted = {"the version's tag": tags.get(alias.CERTIFICATE_DIGEST, "")}
    calibrated_by = stores.model_info(found.uri).run_id or ""
    of_run = runs.read_tags(calibrated_by)
    if of_run is not None:
        noted["the run that made it"] = of_run.get(alias.CERTIFICATE_DIGEST, "")
    broken = find_damage(stored.record, stored.text, noted)
    return Candidate(found, stored, broken, calibrated_by if of_run is not None else "")


def make_policy(settings: Gate, record: SetClassifier) -> Policy:
    """Return what is asked for, class by class; what is not said is as the version was made for."""
    classes = record.classes
    known_classes("waive", settings.waive, classes)
    if settings.risk_targets is None:
        targets = {n: t for n, t in record.risk_targets.items() if n not in settings.waive}
    else:
        asked = Targets(
            risk_targets=settings.risk_targets,
            overall_target=settings.overall_target,
            waive=settings.waive,
        )
        make_constraints(asked, classes)  # refuses targets that leave a class out silently
        targets = enforced(settings.risk_targets, classes, settings.waive)
    overall = settings.overall_target
    if overall is None and settings.risk_targets is None:
        overall = record.overall_target
    if not targets and overall is None:
        raise InvalidSettingsError(
            "the policy asks about no risk at all; give risk_targets or overall_target"
        )
    caps = by_name("max_class_abstention", settings.max_class_abstention, classes)
    named = settings.max_class_abstention if isinstance(settings.max_class_abstention, dict) else {}
    return Policy(
        alias=settings.alias,
        evidence=settings.evidence,
        risk_targets=targets,
        overall_target=overall,
        confidence=settings.confidence or record.confidence,
        max_abstention=settings.max_abstention,
        max_class_abstention={
            classes[j]: cap
            for j, cap in caps.items()
            if classes[j] in named or classes[j] not in settings.waive
        },
        max_abstention_increase=settings.max_abstention_increase,
        allow_overlap=settings.allow_overlap,
        ledger=settings.ledger,
    )


def _decide_and_move(
    candidate: Candidate,
    policy: Policy,
    rows: FreshRows | None,
    fresh: Fresh | None,
    log: GateLog,
) -> tuple[Decision, bool]:
    """Decide against whoever has the alias, and move it; decide again where that has changed."""
    found, client, run_id = candidate.found, mlflow.MlflowClient(), log.run_id
    for _ in range(MOST_TRIES):
        champion = alias.holder(client, found.name, policy.alias)
        if fresh is not None and rows is not None and policy.max_abstention_increase is not None:
            other = f"models:/{found.name}/{champion}" if champion else ""
            fresh = measure_abstention(fresh, other, rows)
        checks = decide(candidate.stored.record, candidate.broken, policy, fresh)
        decision = Decision(
            model_uri=found.uri,
            passed=all(check.passed for check in checks),
            checks=checks,
            policy=policy,
            champion=champion,
            fresh=fresh,
            decided_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            package_version=scrib_mlflow.__version__,
        )
        log_decision(log, decision)
        if not decision.passed:
            alias.refuse(client, found, decision, run_id)
            return decision, False
        try:
            lost = alias.promote(client, found, decision, run_id)
        except StoreError:
            _mark_failed(client, found, log, decision)
            raise
        if not lost:
            return decision, champion != found.version
        LOGGER.info(f"{lost}; deciding again")
    _mark_failed(client, found, log, decision)
    raise StoreError(
        f"the alias {policy.alias!r} of {found.name} keeps moving: {MOST_TRIES} times another "
        "gate or user was faster; run this gate again when they are done"
    )


def _mark_failed(
    client: mlflow.MlflowClient, found: Base, log: GateLog, decision: Decision
) -> None:
    """Take back that the version passed: it does not have the alias."""
    alias.mark_failed(client, found)
    with suppress(MlflowException, OSError):
        mlflow.set_tag(alias.GATE, alias.ERROR)
        mlflow.log_metric("gate", 0.0)
        log_not_moved(log, decision)


def summary(done: Gated) -> str:
    """Return what a person wants to see at the end."""
    decision = done.decision
    lines = [
        f"{decision.model_uri} for the alias {done.alias}:",
        "",
        words.plain_list(words.rows_of_checks(decision)),
        "",
    ]
    if decision.fresh is not None:
        fresh, report = decision.fresh, decision.fresh.report
        table = words.fresh_rows(
            fresh, done.classifier, decision.policy.evidence, words.MOST_PRINTED
        )
        lines += [
            words.plain_table(table),
            "",
            f"On {report.n:,} fresh rows: {words.abstentions(report)}",
        ]
        if fresh.use is not None:
            lines.append(words.ledger_sentence(fresh.use))
    lines.append(words.decision_sentence(decision))
    if decision.passed and decision.champion not in {"", done.version}:
        lines.append(
            f'go back       python -c "import mlflow; mlflow.MlflowClient().'
            f"set_registered_model_alias('{done.name}', '{done.alias}', '{decision.champion}')\""
        )
    return "\n".join([*lines, f"logged to run {done.run_id}; its artifact report.html shows more"])
