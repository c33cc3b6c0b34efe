"""Gate: move a registry alias to a set classifier, if the evidence meets the policy."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import mlflow
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.core import targets
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.certificate.claims import group_test_of, refuted as refute
from scrib_mlflow.core.groups import GroupTest, make_group_test, typical_rows
from scrib_mlflow.core.targets import Constraint, Targets, make_constraints
from scrib_mlflow.engines import open_engine
from scrib_mlflow.engines.base import report_answers
from scrib_mlflow.errors import InvalidSettingsError, ModelError, StoreError, UnknownOutcomeError
from scrib_mlflow.options import Gate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import Base, group_targets, risk_groups, seal
from scrib_mlflow.registry import alias, ledger, models, runs, stores
from scrib_mlflow.report import page, words
from scrib_mlflow.results import Check, Decision, Fresh, Policy, SetClassifier, to_json
from scrib_mlflow.rows import leakage
from scrib_mlflow.rows.scored import Answered
from scrib_mlflow.workflows.evaluate import FreshRows
from scrib_mlflow.workflows.intact import Looked, look_for_damage
from scrib_mlflow.workflows.policy import decide

LOGGER = logging.getLogger(__name__)

POLICY_OPTIONS = {"alias", "evidence", "max_abstention", "max_abstention_increase", "allow_overlap"}
POLICY_OPTIONS |= {"min_candidate_coverage"}


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


def gate(model_uri: str, **parameters: Any) -> Gated:
    """Move a registry alias to a set classifier if the evidence meets the policy.

    Parameters
    ----------
    model_uri : str
        ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
    **parameters
        Those of ``python -m scrib_mlflow gate --help``, for example ``alias="champion"``,
        ``risk_targets={"N1": 0.2, "default": 0.1}``, ``data="test.parquet"`` or a pandas frame,
        ``label="stage"``.

    Returns
    -------
    Gated
        With the decision, check by check; ``decision.passed`` says whether the alias is on it.
    """
    return run(read_settings(Gate, {"model_uri": model_uri, **parameters}))


MoreChecks = Callable[[str], tuple[Check, ...]]  # of whoever has the alias


def run(settings: Gate, more: MoreChecks | None = None) -> Gated:
    """Do what `gate` does; a caller may ask for more checks."""
    _check_options(settings)
    with stores.short_waits():
        stores.check_stores()
        candidate = _find(settings)
    base, record = candidate.base, candidate.stored.record
    if record.weight is not None and settings.data is not None:
        raise InvalidSettingsError(
            f"the version was certified for rows weighted by {record.weight!r}, which rows of data "
            "can neither refute nor prove here; leave data and label out"
        )
    policy = make_policy(settings, record)
    group = _group(settings, record)
    how = None if group is None else _group_test(settings, record)
    with ExitStack() as stack:
        rows = fresh = answered = None
        if settings.data is not None and settings.label is not None:
            engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
            columns = {"key": record.key, "group": group}
            table = engine.read_table("data", settings.data, settings.label, **columns)
            allowed = settings.allow_overlap
            leakage.check_untrained(record.base.uri, [table], allowed=allowed)
            rows = FreshRows(engine, settings.engine, table, settings.batch_rows)
        run_id = stack.enter_context(runs.open_run(f"gate {base.name}", record.base.name))
        runs.log_parameters(run_id, settings.model_dump())
        mlflow.set_tag(runs.MODEL_URI, base.uri)
        if rows is not None and not candidate.looked.damage:
            fresh, answered = _measure(rows, candidate, policy, how, run_id)
        review = Review(candidate, policy, rows, answered, settings, run_id, more)
        decision, moved = _decide_and_move(review, fresh)
    return Gated(
        name=base.name,
        version=base.version,
        alias=settings.alias,
        run_id=run_id,
        moved=moved,
        decision=decision,
        classifier=record,
    )


def exit_code(done: Gated) -> int:
    """Return 0 where the alias is on the version, 1 where it was refused."""
    return 0 if done.decision.passed else 1


def _check_options(settings: Gate) -> None:
    models.check_alias(settings.alias)
    if (settings.data is None) != (settings.label is None):
        missing = "data" if settings.data is None else "label"
        raise InvalidSettingsError(f"{missing} is missing; fresh rows need data and label")
    changed = settings.model_dump(exclude_defaults=True)
    for name in ("group_cap", "group_test"):
        if name in changed and settings.evidence != "fresh":
            raise InvalidSettingsError(
                f"{name} is for evidence=fresh: what is certified already says how groups count"
            )
    for name in ("group", "engine", "spark_options", "evidence", "max_abstention_increase"):
        if name in changed and settings.data is None:
            option = f"{name}={changed[name]}" if name in {"engine", "evidence"} else name
            raise InvalidSettingsError(f"{option} needs fresh rows; give data and label")


class Candidate(NamedTuple):
    """The version to promote, as it is stored."""

    base: Base
    stored: models.Stored
    looked: Looked  # at its files


class Review(NamedTuple):
    """What is decided about: a version, what is asked of it, and fresh rows if there are any."""

    candidate: Candidate
    policy: Policy
    rows: FreshRows | None
    answered: Answered | None  # what the version answers to them
    settings: Gate
    run_id: str
    more: MoreChecks | None


def _find(settings: Gate) -> Candidate:
    """Return the version, and what is wrong with its files."""
    base = stores.find_model(settings.model_uri)
    if not base.version:
        raise ModelError(
            f"{settings.model_uri} is no registered version; give models:/NAME/VERSION"
        )
    stored = models.read_stored(base.uri)
    return Candidate(base, stored, look_for_damage(base, stored))


def _group(settings: Gate, record: SetClassifier) -> str | None:
    """Return the column that groups fresh rows: the one of the calibration, if it had any."""
    if record.group is not None and settings.group not in {None, record.group}:
        raise InvalidSettingsError(
            f"group is {settings.group!r}, but the version was certified by {record.group!r}; "
            "leave group out"
        )
    return settings.group or record.group


def _group_test(settings: Gate, record: SetClassifier) -> GroupTest | None:
    """Return how groups of fresh rows are tested: as the version was, unless options say more.

    None where they prove nothing and no cap is known.
    """
    own = group_test_of(record.certificate)
    name, cap = settings.group_test, settings.group_cap
    if own is not None:
        name = name or ("exact" if own.exact else "approximate")
        if cap is None and own.declared:
            return make_group_test(name, None, int(own.cap))
        cap = int(own.cap) if cap is None else cap
    if cap is None and settings.evidence == "certificate":
        return None
    return make_group_test(name or "approximate", cap, None)


def make_policy(settings: Gate, record: SetClassifier) -> Policy:
    """Return what is asked for, class by class; what is not said is as the version was made for."""
    classes, waive, overall = record.classes, settings.waive, settings.overall_target
    targets.known_classes("waive", waive, classes)
    groups = risk_groups(settings.risk_groups)
    wanted = Targets(
        risk_targets=settings.risk_targets,
        overall_target=overall,
        risk_groups=group_targets(groups),
        waive=classes if settings.risk_targets is None else waive,
    )
    make_constraints(wanted, classes)  # refuses what is unknown, or leaves a class out silently
    if settings.risk_targets is None:
        limits = {n: t for n, t in record.risk_targets.items() if n not in waive}
        overall = record.overall_target if overall is None else overall
        groups = record.risk_groups if settings.risk_groups is None else groups
    else:
        limits = targets.enforced(settings.risk_targets, classes, waive)
    if not limits and overall is None and not groups:
        raise InvalidSettingsError(
            "the policy asks about no risk at all; give risk_targets or overall_target"
        )
    caps = targets.by_name("max_class_abstention", settings.max_class_abstention, classes)
    named = targets.own_targets(settings.max_class_abstention)
    return Policy(
        **settings.model_dump(include=POLICY_OPTIONS),
        ledger=settings.ledger,
        risk_targets=limits,
        overall_target=overall,
        risk_groups=groups,
        confidence=settings.confidence or record.confidence,
        max_class_abstention={
            classes[j]: cap
            for j, cap in caps.items()
            if classes[j] in named or classes[j] not in waive
        },
    )


def _measure(
    rows: FreshRows,
    candidate: Candidate,
    policy: Policy,
    how: GroupTest | None,
    run_id: str,
) -> tuple[Fresh, Answered]:
    """Let the version answer the rows, and count; the policy's targets are what is claimed."""
    record, uri = candidate.stored.record, candidate.base.uri
    answered, overlap = rows.compare(uri, record, candidate.looked.made_by, "gate")
    use, level = None, 1 - policy.confidence
    if policy.evidence == "fresh":
        limits: list[Any] = [sorted(policy.risk_targets.items()), policy.overall_target]
        limits += [sorted(group_targets(policy.risk_groups).items())] if policy.risk_groups else []
        tested = json.dumps([uri, seal(candidate.stored.text), limits, how, rows.table.beside])
        use = ledger.enter(run_id, rows.table.record.digest, tested, level, policy.ledger)
        level = use.level
    refuted: tuple[str, ...] = ()
    if record.named_targets or record.overall_target is not None:
        claims, _ = _claims(record, record)
        tally = answered.tally(claims, level, group_test_of(record.certificate))
        verdicts = refute(tally, claims, 1 - policy.confidence).refuted
        refuted = tuple(claim.name for claim, bad in zip(claims, verdicts, strict=True) if bad)
    claims, waived = _claims(policy, record)
    groups = answered.rows.group_codes()
    if groups is not None and how is None:  # these rows are not what proves anything
        how = GroupTest(typical_rows(groups, answered.rows.labels, claims))
    tally = answered.tally(claims, level, how)
    fresh = Fresh(
        data=rows.table.record,
        report=report_answers(answered, record.classes, policy.confidence, how, record.risk_groups),
        certificate=make_certificate(tally, claims, record.classes, level=level, waived=waived),
        refuted=refuted,
        n_shared=overlap.n_shared if overlap else None,
        n_compared=overlap.n_rows if overlap else 0,
        n_expected=overlap.expected * overlap.n_rows if overlap else 0.0,
        overlapping=bool(overlap and overlap.excessive),
        use=use,
        champion_abstention=None,
    )
    return fresh, answered


def _claims(
    source: Policy | SetClassifier, record: SetClassifier
) -> tuple[tuple[Constraint, ...], list[str]]:
    """Return what a policy or a version claims, and the classes of which it claims nothing."""
    limits, overall = source.risk_targets, source.overall_target
    waived = [name for name in record.classes if name not in limits]
    claimed = Targets(
        risk_targets=targets.as_written(limits) or None,
        overall_target=overall,
        risk_groups=group_targets(source.risk_groups),
        waive=waived,
    )
    return make_constraints(claimed, record.classes), waived


def _champion_abstention(rows: FreshRows, name: str, champion: str) -> float | None:
    """Return how often whoever has the alias abstains on the rows, None where nobody has it."""
    if not champion:
        return None
    uri = f"models:/{name}/{champion}"
    try:
        record = models.read_stored(uri).record
    except ModelError as error:
        raise ModelError(f"max_abstention_increase cannot be judged: {error}") from error
    answered = rows.answer(uri, record)
    return float(1 - answered.count().all_certain / answered.n_rows)


def _decide_and_move(review: Review, fresh: Fresh | None) -> tuple[Decision, bool]:
    """Decide against whoever has the alias, and move it; decide again where that has changed."""
    policy, base = review.policy, review.candidate.base
    decisions: list[Decision] = []

    def decide_against(champion: str) -> Decision:
        decisions.append(_decide(review, fresh, champion))
        _log(review, decisions[-1])
        return decisions[-1]

    client = mlflow.MlflowClient()
    try:
        return alias.settle(client, base, policy.alias, decide_against, review.run_id)
    except StoreError as error:
        if decisions and decisions[-1].passed:
            _mark_failed(client, review, decisions[-1], error)
        raise


def _decide(review: Review, fresh: Fresh | None, champion: str) -> Decision:
    """Return what the policy says of the version, next to the version that has the alias."""
    candidate, policy, rows = review.candidate, review.policy, review.rows
    base = candidate.base
    if fresh is not None and rows is not None and policy.max_abstention_increase is not None:
        abstention = _champion_abstention(rows, base.name, champion)
        fresh = replace(fresh, champion_abstention=abstention)
    checks = decide(
        candidate.stored.record, candidate.looked.damage, policy, fresh, candidate.looked.signature
    )
    checks += () if review.more is None else review.more(champion)
    return Decision(
        model_uri=base.uri,
        passed=all(check.passed for check in checks),
        checks=checks,
        policy=policy,
        champion=champion,
        fresh=fresh,
        decided_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        package_version=scrib_mlflow.__version__,
    )


def _log(review: Review, decision: Decision) -> None:
    """Log a decision and what it rests on; a later decision of the same run replaces it."""
    record, fresh = review.candidate.stored.record, decision.fresh
    measured = fresh.report if fresh is not None else record.certify_report or record.fit_report
    certificate = fresh.certificate if fresh is not None else record.certificate
    prefix = "" if fresh is not None or record.certify_report is not None else "fit_"
    metrics = {"gate": float(decision.passed)} | runs.report_metrics(measured, prefix=prefix)
    if certificate is not None:
        metrics |= runs.certificate_metrics(certificate, record.classes)
    runs.log_metrics(metrics)
    report = _log_page(review, decision, {alias.GATE: alias.word(decision)})
    runs.log_rows(report.facts.asked.records(), "classes.json")
    runs.log_texts_and_figures({"decision.json": to_json(decision)}, {})


def _mark_failed(
    client: mlflow.MlflowClient, review: Review, decision: Decision, error: StoreError
) -> None:
    """Take back, in tags, note and report, that the version passed: it does not have the alias.

    Where nobody knows whether it has, they say so.
    """
    version, name = review.candidate.base, decision.policy.alias
    unknown = isinstance(error, UnknownOutcomeError)
    failure = (
        f"Unknown: version {version.version} passed every check, but the registry does not say "
        f"whether the alias {name} moved to it. Run the gate again."
        if unknown
        else f"Not moved: version {version.version} passed every check, but the alias {name} "
        "could not be moved to it."
    )
    if not unknown:
        alias.mark_failed(client, version)
    with suppress(MlflowException, OSError):
        mlflow.set_tag(alias.GATE, alias.UNKNOWN if unknown else alias.ERROR)
        mlflow.log_metric("gate", 0.0)
        _log_page(review, decision, {}, failure)


def _log_page(
    review: Review, decision: Decision, tags: dict[str, str], failure: str = ""
) -> page.Report:
    """Log the report and the note that sums it up, and return the report."""
    record, rows, answered = review.candidate.stored.record, review.rows, review.answered
    report = page.answers_report(
        f"gate: {decision.model_uri} for {decision.policy.alias}",
        decision.model_uri,
        record,
        words.gate_facts(decision, record, failure),
        None if rows is None or answered is None else (rows.table, answered),
        review.candidate.looked.made_by,
        review.settings.model_dump(),
        review.run_id,
    )
    documents, drawn = page.page_files(report)
    runs.log_texts_and_figures(documents, {} if failure else drawn)
    more = "More is in the artifact report.html."
    runs.set_tags(tags, words.note(words.summarize(report.facts, decision.model_uri, more)))
    return report


def summary(done: Gated) -> str:
    """Return what a person wants to see at the end."""
    facts = words.gate_facts(done.decision, done.classifier)
    where = words.logged(*runs.place_of(done.run_id))
    back = words.way_back(done.decision, done.name)
    return words.terminal(words.summarize(facts, done.decision.model_uri, where, back))
