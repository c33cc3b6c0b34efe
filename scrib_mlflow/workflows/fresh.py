"""Fresh rows for a gate: unseen by the version, answered by it as it is served."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from scrib_mlflow.adapters import ledger
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.tally import refuted
from scrib_mlflow.core.targets import Constraint, Targets, make_constraints
from scrib_mlflow.errors import InvalidSettingsError, ModelError
from scrib_mlflow.results import Fresh, Policy, SetClassifier, seal
from scrib_mlflow.settings import Gate
from scrib_mlflow.workflows.engines import Answered, Engine
from scrib_mlflow.workflows.parts import TableLike
from scrib_mlflow.workflows.served import (
    Stored,
    compare_with_calibration,
    read_stored,
    report_answers,
)


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
        msg = (
            f"group is {settings.group!r}, but the version was certified by {record.group!r}; "
            "leave group out"
        )
        raise InvalidSettingsError(msg)
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
        msg = f"max_abstention_increase cannot be judged: {error}"
        raise ModelError(msg) from error
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
