"""Fresh rows for a gate: unseen by the version, answered by it as it is served."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.adapters import ledger, scoring
from scrib_mlflow.core.answers import Answers
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.tally import refuted, tally_sets
from scrib_mlflow.core.targets import Constraint, Targets, make_constraints
from scrib_mlflow.errors import InvalidSettingsError, ModelError
from scrib_mlflow.results import Fresh, Policy, SetClassifier, seal
from scrib_mlflow.settings import Gate
from scrib_mlflow.workflows.rows import Table, read_rows
from scrib_mlflow.workflows.served import (
    Stored,
    answer,
    compare_with_calibration,
    label_indices,
    model_features,
    read_stored,
    report_sets,
)


class Measured(NamedTuple):
    """What a version does on fresh rows, as it is judged and row by row."""

    fresh: Fresh
    answers: Answers


class FreshRows(NamedTuple):
    """Fresh rows as they were read."""

    table: Table
    labels: NDArray[np.int32]
    groups: NDArray[np.int64] | None
    batch_rows: int


def read_fresh(settings: Gate, record: SetClassifier) -> FreshRows:
    """Read the rows; what identified and grouped those of the calibration does so here."""
    assert settings.data is not None  # noqa: S101  # for mypy; told by the caller
    group = settings.group or record.group
    if record.group is not None and settings.group not in {None, record.group}:
        msg = (
            f"group is {settings.group!r}, but the version was certified by {record.group!r}; "
            "leave group out"
        )
        raise InvalidSettingsError(msg)
    table = read_rows("data", settings.data, settings.label, key=record.key, group=group)
    labels = label_indices(table, record.classes)
    return FreshRows(table, labels, table.group_codes(), settings.batch_rows)


def measure_fresh(
    uri: str, stored: Stored, calibrated_by: str, rows: FreshRows, policy: Policy, run_id: str
) -> Measured:
    """Let the version answer the rows, and count; the policy's targets are what is claimed."""
    record = stored.record
    model = scoring.load_model(uri)
    features = model_features(model, rows.table)
    overlap = compare_with_calibration(calibrated_by, rows.table, rows.labels, features)
    scores, sets, _ = answer(model, features, record.classes, rows.batch_rows)
    asked = _claims(policy.risk_targets, policy.overall_target, record)
    use, level = None, 1 - policy.confidence
    if policy.evidence == "fresh":
        targets = [sorted(policy.risk_targets.items()), policy.overall_target]
        tested = json.dumps([uri, seal(stored.text), targets, rows.table.beside])
        use = ledger.enter(run_id, rows.table.record.digest, tested, level, policy.ledger)
        level = use.level
    certificate = make_certificate(
        tally_sets(sets, rows.labels, asked, rows.groups),
        asked,
        record.classes,
        level=level,
        waived=_waived(asked, record),
    )
    fresh = Fresh(
        data=rows.table.record,
        report=report_sets(sets, rows.labels, record.classes, policy.confidence, rows.groups),
        certificate=certificate,
        refuted=_refuted(record, sets, rows, 1 - policy.confidence),
        n_shared=overlap.n_shared if overlap else None,
        n_compared=overlap.n_rows if overlap else 0,
        n_expected=overlap.expected * overlap.n_rows if overlap else 0.0,
        overlapping=bool(overlap and overlap.excessive),
        use=use,
        champion_abstention=None,
    )
    return Measured(fresh, Answers(scores, rows.labels, sets))


def measure_abstention(fresh: Fresh, champion_uri: str, rows: FreshRows) -> Fresh:
    """Return fresh rows with how often whoever has the alias abstains on them."""
    if not champion_uri:
        return replace(fresh, champion_abstention=None)
    try:
        record = read_stored(champion_uri).record
    except ModelError as error:
        msg = f"max_abstention_increase cannot be judged: {error}"
        raise ModelError(msg) from error
    model = scoring.load_model(champion_uri)
    features = model_features(model, rows.table)
    sets = answer(model, features, record.classes, rows.batch_rows).sets
    certain = np.count_nonzero(sets, axis=1) == 1
    return replace(fresh, champion_abstention=float(1 - certain.mean()))


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


def _refuted(
    record: SetClassifier, sets: NDArray[np.bool_], rows: FreshRows, level: float
) -> tuple[str, ...]:
    """Return what the version claims and these rows disprove."""
    if not record.risk_targets and record.overall_target is None:
        return ()
    claims = _claims(record.risk_targets, record.overall_target, record)
    found = refuted(tally_sets(sets, rows.labels, claims, rows.groups), claims, level)
    return tuple(claim.name for claim, bad in zip(claims, found.refuted, strict=True) if bad)
