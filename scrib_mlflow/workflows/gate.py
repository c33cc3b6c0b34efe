"""Gate: move a registry alias to a set classifier, if the evidence meets the policy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

import mlflow
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.adapters import promotion, registration, runs, stores, texts, verdicts
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.core.targets import Targets, by_name, known_classes, make_constraints
from scrib_mlflow.decisions import decide, find_damage
from scrib_mlflow.errors import InvalidSettingsError, ModelError, StoreError
from scrib_mlflow.results import Base, Decision, Fresh, Policy, SetClassifier
from scrib_mlflow.settings import Gate
from scrib_mlflow.workflows.engines import doing, open_engine
from scrib_mlflow.workflows.fresh import FreshRows, measure_abstention, measure_fresh, read_fresh
from scrib_mlflow.workflows.gate_log import GateLog, log_decision, log_not_moved
from scrib_mlflow.workflows.rows import enforced
from scrib_mlflow.workflows.served import Stored, read_stored

MOST_TRIES = 5  # others may move the alias meanwhile


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
    return run(read_settings(Gate, {"model_uri": model_uri, **parameters}), say=lambda _: None)


def run(settings: Gate, say: Callable[[str], None]) -> Gated:
    """Do what `gate` does, saying what it is at."""
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
            say(f"loading {candidate.found.uri}, and {doing(settings.engine, n_rows)}")
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
        decision, moved = _decide_and_move(candidate, policy, rows, fresh, log, say)
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
    registration.check_alias(settings.alias)
    if (settings.data is None) != (settings.label is None):
        missing = "data" if settings.data is None else "label"
        msg = f"{missing} is missing; fresh rows need data and label"
        raise InvalidSettingsError(msg)
    for name, wants in (
        ("group", settings.group is not None),
        ("engine=spark", settings.engine == "spark"),
        ("spark_options", settings.spark_options is not None),
        ("evidence=fresh", settings.evidence == "fresh"),
        ("max_abstention_increase", settings.max_abstention_increase is not None),
    ):
        if wants and settings.data is None:
            msg = f"{name} needs fresh rows; give data and label"
            raise InvalidSettingsError(msg)


def _find(settings: Gate) -> Candidate:
    """Return the version, and what is wrong with its files."""
    found = stores.find_model(settings.model_uri)
    if not found.version:
        msg = f"{settings.model_uri} is no registered version; give models:/NAME/VERSION"
        raise ModelError(msg)
    stored = read_stored(found.uri)
    tags = mlflow.MlflowClient().get_model_version(found.name, found.version).tags
    noted = {"the version's tag": tags.get(promotion.CERTIFICATE_DIGEST, "")}
    calibrated_by = stores.model_info(found.uri).run_id or ""
    of_run = runs.read_tags(calibrated_by)
    if of_run is not None:
        noted["the run that made it"] = of_run.get(promotion.CERTIFICATE_DIGEST, "")
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
        msg = "the policy asks about no risk at all; give risk_targets or overall_target"
        raise InvalidSettingsError(msg)
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
    say: Callable[[str], None],
) -> tuple[Decision, bool]:
    """Decide against whoever has the alias, and move it; decide again where that has changed."""
    found, client, run_id = candidate.found, mlflow.MlflowClient(), log.run_id
    for _ in range(MOST_TRIES):
        champion = promotion.holder(client, found.name, policy.alias)
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
            promotion.refuse(client, found, decision, run_id)
            return decision, False
        try:
            lost = promotion.promote(client, found, decision, run_id)
        except StoreError:
            _mark_failed(client, found, log, decision)
            raise
        if not lost:
            return decision, champion != found.version
        say(f"{lost}; deciding again")
    _mark_failed(client, found, log, decision)
    msg = (
        f"the alias {policy.alias!r} of {found.name} keeps moving: {MOST_TRIES} times another "
        "gate or user was faster; run this gate again when they are done"
    )
    raise StoreError(msg)


def _mark_failed(
    client: mlflow.MlflowClient, found: Base, log: GateLog, decision: Decision
) -> None:
    """Take back that the version passed: it does not have the alias."""
    promotion.mark_failed(client, found)
    with suppress(MlflowException, OSError):
        mlflow.set_tag(promotion.GATE, promotion.ERROR)
        mlflow.log_metric("gate", 0.0)
        log_not_moved(log, decision)


def summary(done: Gated) -> str:
    """Return what a person wants to see at the end."""
    decision = done.decision
    lines = [
        f"{decision.model_uri} for the alias {done.alias}:",
        "",
        texts.plain_list(verdicts.check_rows(decision)),
        "",
    ]
    if decision.fresh is not None:
        fresh, report = decision.fresh, decision.fresh.report
        table = verdicts.fresh_rows(
            fresh, done.classifier, decision.policy.evidence, texts.MOST_PRINTED
        )
        lines += [
            texts.plain_table(table),
            "",
            f"On {report.n:,} fresh rows: {texts.abstentions(report)}",
        ]
        if fresh.use is not None:
            lines.append(verdicts.ledger_sentence(fresh.use))
    lines.append(verdicts.decision_sentence(decision))
    if decision.passed and decision.champion not in {"", done.version}:
        lines.append(
            f'go back       python -c "import mlflow; mlflow.MlflowClient().'
            f"set_registered_model_alias('{done.name}', '{done.alias}', '{decision.champion}')\""
        )
    return "\n".join([*lines, f"logged to run {done.run_id}; its artifact report.html shows more"])
