"""The alias of a gate: who has it, and how it moves.

MLflow cannot set an alias only if it is still where it was. So a gate writes down that it is about
to move it (its claim), looks, sets the alias, looks again, writes down that it has moved it, and
looks once more. If any look shows another version, claim or move than its own, it has met another
gate, and claims or decides again: against the version that has the alias, or that had it before
this gate overwrote it. Of gates that meet, those that have claimed earlier see the later claim. So
no two of them end without the later one knowing of the earlier, however slow the calls are.

Nobody waits for anybody, so a gate that was killed delays no other. Tags of a version are written
before the alias, which moves in one step: a crash leaves it where it was, or moved, with everything
that is said about it.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.errors import StoreError, UnknownOutcomeError
from scrib_mlflow.messages import reason
from scrib_mlflow.records import Base
from scrib_mlflow.registry.stores import is_unanswered
from scrib_mlflow.results import Decision

LOGGER = logging.getLogger(__name__)

# Tags of a version, which say what the last gate decided about it.
GATE, RUN_ID = "scrib.gate", "scrib.gate_run_id"
REASONS, OVERLAP = "scrib.gate_reasons", "scrib.gate_allow_overlap"
PREVIOUS = "scrib.previous_champion"
ERROR, UNKNOWN = "error", "unknown"  # in place of passed or failed: not moved, or nobody knows
MOST_CHARACTERS = 4000  # of a tag

CLAIM, MOVED = "scrib.gate_claim", "scrib.gate_moved"  # tags of a registered model, by alias
MOST_TRIES = 20  # decisions; others may move the alias meanwhile
MOST_LOOKS = 3  # after an answer that was lost
PAUSE = 0.2  # seconds between them
MOST_CLAIMS = 50  # of one decision, while others claim the alias too
MOST_DOUBLED = 5  # how often the pause between them doubles


class Seen(NamedTuple):
    """What a registered model says of an alias, in one answer."""

    holder: str  # the version that has it, "" for none
    claim: str  # VERSION RUN_ID NONCE of the gate that was the last to claim it, "" for none
    moved: str  # the same of the gate that was the last to move it

    @property
    def done(self) -> bool:
        """Whether the last claim is by the gate that has moved it, to the version that has it."""
        return self.claim == self.moved and self.claim.split(" ")[0] == self.holder


def look(client: mlflow.MlflowClient, name: str, alias: str) -> Seen:
    """Return who has an alias, and who was the last to claim and to move it."""
    model = client.get_registered_model(name)
    tags = (model.tags.get(f"{key}.{alias}", "") for key in (CLAIM, MOVED))
    return Seen(str(model.aliases.get(alias, "")), *tags)


def word(decision: Decision) -> str:
    """Return a decision in a word."""
    return "passed" if decision.passed else "failed"


def settle(
    client: mlflow.MlflowClient,
    version: Base,
    alias: str,
    decide: Callable[[str], Decision],
    run_id: str,
) -> tuple[Decision, bool]:
    """Let a version have the alias if the decision against its holder passes; say if it moved.

    Where others move the alias meanwhile, decide again, against the version that they put there.
    """
    try:
        seen = look(client, version.name, alias)
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"the registry does not say which version of {version.name} is {alias}: {reason(error)}"
        ) from error
    champion = seen.holder
    for _ in range(MOST_TRIES):
        with _told_where_it_has_moved(version, alias, seen.holder, champion):
            decision = decide(champion)
            if not decision.passed:
                if version.version == seen.holder != champion:
                    _give_back(client, version, decision, run_id, seen)
                _tag(client, version, _tags(decision, run_id))
                return decision, False
            _tag(client, version, _tags(decision, run_id))
            seen = _promote(client, version, decision, run_id, seen)
        other = _met(seen, version.version)
        if other is None:
            return decision, champion != version.version
        champion = other
        where = f"to version {champion}" if champion else "away"
        LOGGER.info(
            f"the alias {alias!r} went {where} while this gate was deciding; deciding again"
        )
    with _told_where_it_has_moved(version, alias, seen.holder, champion):
        raise _keeps_moving(version.name, alias, MOST_TRIES)


@contextmanager
def _told_where_it_has_moved(
    version: Base, alias: str, holder: str, champion: str
) -> Iterator[None]:
    """Say "unknown" of what fails after the alias has moved to the version, over another gate's.

    `holder` was last seen to have it, and `champion` is decided against.
    """
    try:
        yield
    except UnknownOutcomeError:
        raise
    except Exception as error:
        if version.version != holder or holder == champion:
            raise
        raise UnknownOutcomeError(
            f"unknown: the alias {alias!r} has moved to version {holder}, but another gate had "
            f"moved it to version {champion} just before, and this gate could not decide against "
            f"that one ({reason(error)}); run it again"
        ) from error


def _met(seen: Seen, own: str) -> str | None:
    """Return the version to decide against after meeting another gate, None where this one is done.

    Where the alias is on the own version, and another gate has moved it before, it was overwritten.
    It may have been moved to the own version, to give it back: then there is nothing to decide.
    """
    if seen.holder != own:
        return seen.holder
    champion = seen.moved.split()[0]
    return None if champion == own else champion


def _keeps_moving(name: str, alias: str, times: int, *, moved: bool = False) -> StoreError:
    kind = UnknownOutcomeError if moved else StoreError
    return kind(
        f"the alias {alias!r} of {name} keeps moving: {times} times another gate or user was "
        "faster; run this gate again when they are done"
    )


def _promote(
    client: mlflow.MlflowClient, version: Base, decision: Decision, run_id: str, before: Seen
) -> Seen:
    """Move the alias to a version from where it was; return what is there when others meddle.

    It may be on the version before: then this gate has moved it, and met another gate.
    """
    name, alias, own = version.name, decision.policy.alias, version.version
    for number in range(MOST_CLAIMS):
        began = time.monotonic()
        seen = _swap(client, name, alias, before, own, run_id)
        if seen.holder not in {own, before.holder}:
            return seen
        others = seen.moved not in {"", before.moved} and run_id not in seen.moved
        if seen.holder == own and (seen.done or others):
            return seen  # this gate is done, or has overwritten what another one had moved
        before = seen  # another gate is about to move it: claim it again
        _pause(began, number)
    raise _keeps_moving(name, alias, MOST_CLAIMS, moved=before.holder == own)


def _give_back(
    client: mlflow.MlflowClient, version: Base, decision: Decision, run_id: str, before: Seen
) -> None:
    """Move the alias back to a champion that another gate had put there just before."""
    name, alias = version.name, decision.policy.alias
    try:
        for number in range(MOST_CLAIMS):
            began = time.monotonic()
            before = _swap(client, name, alias, before, decision.champion, run_id)
            if before.holder != version.version:
                return
            _pause(began, number)
    except StoreError as error:
        raise UnknownOutcomeError(
            f"the alias {alias!r} of {name} may be on version {version.version}, although it was "
            f"refused: another gate had moved it to version {decision.champion} just before, and "
            f"it could not be put back ({error}); look, and move it"
        ) from error


def _pause(began: float, number: int) -> None:
    """Wait for others to be done: longer where calls take longer, and after each try."""
    longest = (time.monotonic() - began) * 2 ** min(number, MOST_DOUBLED)
    time.sleep(random.uniform(0, longest))  # noqa: S311  # nothing secret


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


def _swap(
    client: mlflow.MlflowClient, name: str, alias: str, before: Seen, after: str, run_id: str
) -> Seen:
    """Set the alias to a version if nothing has changed; return what is there in the end.

    It is done if that is the version, claimed and moved by the own run.
    """
    own, moves = f"{after} {run_id} {secrets.token_hex(4)}", before.holder != after
    try:
        client.set_registered_model_tag(name, f"{CLAIM}.{alias}", own)
        seen = look(client, name, alias)
    except (MlflowException, OSError) as error:
        if not moves:  # it has moved already
            raise _unknown(alias, after, error) from error
        raise StoreError(
            f"{name} could not be tagged, so its alias stays: {reason(error)}"
        ) from error
    if seen != before._replace(claim=own):
        return seen
    if moves:
        _set(client, name, alias, after)
        seen = _look_again(client, name, alias, after)
        if seen != Seen(after, own, before.moved):
            return seen
    try:
        client.set_registered_model_tag(name, f"{MOVED}.{alias}", own)
        return look(client, name, alias)
    except (MlflowException, OSError):
        return Seen(after, own, own)  # it was seen to have moved; later gates read the alias


def _set(client: mlflow.MlflowClient, name: str, alias: str, version: str) -> None:
    """Set the alias; where the answer is an error or lost, see whether it moved all the same."""
    try:
        client.set_registered_model_alias(name, alias, version)
    except (MlflowException, OSError) as error:
        if _look_again(client, name, alias, version).holder == version:
            return
        if is_unanswered(error):
            raise _unknown(alias, version, error) from error  # the request may still be on its way
        raise StoreError(f"the alias {alias!r} could not be moved: {reason(error)}") from error


def _look_again(client: mlflow.MlflowClient, name: str, alias: str, version: str) -> Seen:
    """Return who has the alias after it was to move; ask more than once."""
    for _ in range(MOST_LOOKS - 1):
        with suppress(MlflowException, OSError):
            return look(client, name, alias)
        time.sleep(PAUSE)
    try:
        return look(client, name, alias)
    except (MlflowException, OSError) as error:
        raise _unknown(alias, version, error) from error


def _unknown(alias: str, version: str, error: Exception) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"unknown: the alias {alias!r} was to move to version {version}, but the registry does not "
        f"say whether it did ({reason(error)}); run the gate again"
    )


def mark_failed(client: mlflow.MlflowClient, version: Base) -> None:
    """Write down, if the registry lets it, that a version that passed did not get the alias."""
    with suppress(MlflowException, OSError):
        client.set_model_version_tag(version.name, version.version, GATE, ERROR)
