"""The alias of a gate: who has it, and how it moves.

MLflow cannot set an alias only if it is still where it was. Gates take turns; and because people
and programs move aliases as well, it is read just before and just after it is set, and whoever
finds another version there has lost a race and must decide again. Tags are written before the
alias, which moves in one step: a crash leaves it where it was, or moved, with everything that is
said about it.
"""

from __future__ import annotations

from contextlib import suppress

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.adapters.stores import reason
from scrib_mlflow.adapters.turns import turn
from scrib_mlflow.errors import StoreError
from scrib_mlflow.results import Base, Decision

CERTIFICATE_DIGEST = "scrib.certificate_digest"
GATE, RUN_ID, AT = "scrib.gate", "scrib.gate_run_id", "scrib.gate_at"
REASONS, DIGEST = "scrib.gate_reasons", "scrib.gate_data_digest"
CONFIDENCE, OVERLAP = "scrib.gate_confidence", "scrib.gate_allow_overlap"
PREVIOUS = "scrib.previous_champion"
ERROR = "error"  # in place of passed or failed, where the alias could not be moved
MOST_CHARACTERS = 4000  # of a tag


def holder(client: mlflow.MlflowClient, name: str, alias: str) -> str:
    """Return the version that has an alias, "" for none."""
    return str(client.get_registered_model(name).aliases.get(alias, ""))


def word(decision: Decision) -> str:
    """Return a decision in a word."""
    return "passed" if decision.passed else "failed"


def promote(client: mlflow.MlflowClient, found: Base, decision: Decision, run_id: str) -> str:
    """Move the alias to a version; return who was faster, in words, "" where nobody was."""
    with turn(client, found.name, decision.policy.alias, run_id):
        return _promote(client, found, decision, run_id)


def _promote(client: mlflow.MlflowClient, found: Base, decision: Decision, run_id: str) -> str:
    name, alias = found.name, decision.policy.alias
    now = holder(client, name, alias)
    if now != decision.champion:
        return f"the alias {alias!r} went {_told(now)} while this gate was deciding"
    _tag(client, found, _tags(decision, run_id))
    if now == found.version:
        return ""
    now = _move(client, found, alias)
    if now != found.version:
        return f"this gate lost a race: the alias {alias!r} went {_told(now)} right after it moved"
    return ""


def refuse(client: mlflow.MlflowClient, found: Base, decision: Decision, run_id: str) -> None:
    """Write down on a version why it does not get the alias."""
    _tag(client, found, _tags(decision, run_id))


def _tags(decision: Decision, run_id: str) -> dict[str, str]:
    """Return what a version says about the gate that it went through."""
    failed = [f"{check.name}: {check.detail}" for check in decision.checks if not check.passed]
    fresh = decision.fresh
    tags = {
        RUN_ID: run_id,
        AT: decision.decided_at,
        CONFIDENCE: f"{decision.policy.confidence:g}",
        DIGEST: fresh.data.digest if fresh is not None else "",
        REASONS: "; ".join(failed)[:MOST_CHARACTERS],
        OVERLAP: str(decision.policy.allow_overlap).lower() if fresh is not None else "",
    }
    if decision.passed and not decision.model_uri.endswith(f"/{decision.champion}"):
        tags[PREVIOUS] = decision.champion
    return tags | {GATE: word(decision)}  # last: where writing stops before, it is not said


def _tag(client: mlflow.MlflowClient, found: Base, tags: dict[str, str]) -> None:
    try:
        for key, value in tags.items():
            client.set_model_version_tag(found.name, found.version, key, value)
    except (MlflowException, OSError) as error:
        msg = f"{found.uri} could not be tagged, so the alias stays: {reason(error)}"
        raise StoreError(msg) from error


def _move(client: mlflow.MlflowClient, found: Base, alias: str) -> str:
    """Set the alias and return who has it; a lost answer may have moved it all the same."""
    failed: Exception | None = None
    try:
        client.set_registered_model_alias(found.name, alias, found.version)
    except (MlflowException, OSError) as error:
        failed = error
    try:
        now = holder(client, found.name, alias)
    except (MlflowException, OSError) as error:
        msg = (
            f"the alias {alias!r} was to move to version {found.version}, but the registry does "
            f"not say whether it did: {reason(error)}; look, and run the gate again"
        )
        raise StoreError(msg) from error
    if failed is not None and now != found.version:
        msg = f"the alias {alias!r} could not be moved: {reason(failed)}"
        raise StoreError(msg) from failed
    return now


def mark_failed(client: mlflow.MlflowClient, found: Base) -> None:
    """Write down, if the registry lets it, that a version that passed did not get the alias."""
    with suppress(MlflowException, OSError):
        client.set_model_version_tag(found.name, found.version, GATE, ERROR)


def _told(version: str) -> str:
    return f"to version {version}" if version else "away"
