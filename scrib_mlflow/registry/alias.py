"""The alias of a gate: who has it, and how it moves.

MLflow cannot set an alias only if it is still where it was. Gates take turns; and because people
and programs move aliases as well, it is read just before and just after it is set, and whoever
finds another version there has lost a race and must decide again. Tags are written before the
alias, which moves in one step: a crash leaves it where it was, or moved, with everything that is
said about it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.errors import StoreError
from scrib_mlflow.messages import reason
from scrib_mlflow.records import Base
from scrib_mlflow.results import Decision

# Tags of a version, which say what the last gate decided about it.
GATE, RUN_ID = "scrib.gate", "scrib.gate_run_id"
REASONS, OVERLAP = "scrib.gate_reasons", "scrib.gate_allow_overlap"
PREVIOUS = "scrib.previous_champion"
ERROR = "error"  # in place of passed or failed, where the alias could not be moved
MOST_CHARACTERS = 4000  # of a tag

TURN = "scrib.gate_turn"  # tags of a registered model, one for each gate that waits
DRAWING = 0  # a number that is not drawn yet
DEAD_AFTER = 20.0  # seconds without any change; a turn takes one or two
PAUSE = 0.1  # seconds between two looks


def holder(client: mlflow.MlflowClient, name: str, alias: str) -> str:
    """Return the version that has an alias, "" for none."""
    return str(client.get_registered_model(name).aliases.get(alias, ""))


def word(decision: Decision) -> str:
    """Return a decision in a word."""
    return "passed" if decision.passed else "failed"


def promote(
    client: mlflow.MlflowClient, version: Base, decision: Decision, run_id: str
) -> str | None:
    """Move the alias to a version; return who has it if others moved it meanwhile, else None."""
    name, alias = version.name, decision.policy.alias
    with turn(client, name, alias, run_id):
        now = holder(client, name, alias)
        if now != decision.champion:
            return now
        _tag(client, version, _tags(decision, run_id))
        if now != version.version:
            now = _move(client, version, alias)
        return None if now == version.version else now


def refuse(client: mlflow.MlflowClient, version: Base, decision: Decision, run_id: str) -> None:
    """Write down on a version why it does not get the alias."""
    _tag(client, version, _tags(decision, run_id))


def _tags(decision: Decision, run_id: str) -> dict[str, str]:
    """Return what a version says about the gate that it went through."""
    failed = [f"{check.name}: {check.detail}" for check in decision.checks if not check.passed]
    fresh = decision.fresh
    tags = {
        RUN_ID: run_id,
        REASONS: "; ".join(failed)[:MOST_CHARACTERS],
        OVERLAP: str(decision.policy.allow_overlap).lower() if fresh is not None else "",
    }
    if decision.passed and not decision.model_uri.endswith(f"/{decision.champion}"):
        tags[PREVIOUS] = decision.champion
    return tags | {GATE: word(decision)}  # last: where writing stops before, it is not said


def _tag(client: mlflow.MlflowClient, version: Base, tags: dict[str, str]) -> None:
    try:
        for key, value in tags.items():
            client.set_model_version_tag(version.name, version.version, key, value)
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"{version.uri} could not be tagged, so the alias stays: {reason(error)}"
        ) from error


def _move(client: mlflow.MlflowClient, version: Base, alias: str) -> str:
    """Set the alias and return who has it; a lost answer may have moved it all the same."""
    failed: Exception | None = None
    try:
        client.set_registered_model_alias(version.name, alias, version.version)
    except (MlflowException, OSError) as error:
        failed = error
    try:
        now = holder(client, version.name, alias)
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"the alias {alias!r} was to move to version {version.version}, but the registry does "
            f"not say whether it did: {reason(error)}; look, and run the gate again"
        ) from error
    if failed is not None and now != version.version:
        raise StoreError(f"the alias {alias!r} could not be moved: {reason(failed)}") from failed
    return now


def mark_failed(client: mlflow.MlflowClient, version: Base) -> None:
    """Write down, if the registry lets it, that a version that passed did not get the alias."""
    with suppress(MlflowException, OSError):
        client.set_model_version_tag(version.name, version.version, GATE, ERROR)


@contextmanager
def turn(client: mlflow.MlflowClient, name: str, alias: str, run_id: str) -> Iterator[None]:
    """Hold the turn for an alias of a registered model; wait for it as long as others live."""
    prefix = f"{TURN}.{alias}."
    own = f"{prefix}{run_id}"
    try:
        _take(client, name, prefix, own)
        yield
    finally:
        with suppress(MlflowException, OSError):  # others take it away after a while
            client.delete_registered_model_tag(name, own)


def _take(client: mlflow.MlflowClient, name: str, prefix: str, own: str) -> None:
    try:
        client.set_registered_model_tag(name, own, str(DRAWING))
        number = 1 + max(_numbers(client, name, prefix).values(), default=DRAWING)
        client.set_registered_model_tag(name, own, str(number))
        _wait(client, name, prefix, own, number)
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"{name} could not be tagged, so its alias stays: {reason(error)}"
        ) from error


def _wait(client: mlflow.MlflowClient, name: str, prefix: str, own: str, number: int) -> None:
    """Return when nobody is before this gate.

    Those that wait stand still although they live, so only the first in line can be called dead,
    and only when nothing before this gate has changed for a while.
    """
    seen: dict[str, int] = {}
    since = time.monotonic()
    while True:
        numbers = _numbers(client, name, prefix)
        if own not in numbers:  # somebody took it for dead
            client.set_registered_model_tag(name, own, str(number))
        before = {
            key: other
            for key, other in numbers.items()
            if key != own and (other == DRAWING or (other, key) < (number, own))
        }
        if not before:
            return
        now = time.monotonic()
        if before != seen:
            seen, since = before, now
        elif now - since > DEAD_AFTER:
            with suppress(MlflowException):  # another gate was faster
                client.delete_registered_model_tag(name, min(before, key=lambda k: (before[k], k)))
        time.sleep(PAUSE)


def _numbers(client: mlflow.MlflowClient, name: str, prefix: str) -> dict[str, int]:
    """Return the numbers of all gates that want the alias, by tag."""
    tags = client.get_registered_model(name).tags
    return {
        key: int(value)
        for key, value in tags.items()
        if key.startswith(prefix) and value.isdecimal()
    }
