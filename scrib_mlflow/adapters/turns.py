"""Turns: gates that move the same alias do so one after the other.

MLflow has neither locks nor a compare-and-set, so this is Lamport's bakery over tags of the
registered model. Each gate writes tags of its own only: it draws a number above all it sees, and
waits for those with lower ones, and for those that are still drawing. When the first in line has
died, its tag is taken away after a while.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.adapters.stores import reason
from scrib_mlflow.errors import StoreError

PREFIX = "scrib.gate_turn"
DRAWING = 0  # a number that is not drawn yet
DEAD_AFTER = 20.0  # seconds without any change; a turn takes one or two
PAUSE = 0.1


@contextmanager
def turn(client: mlflow.MlflowClient, name: str, alias: str, run_id: str) -> Iterator[None]:
    """Hold the turn for an alias of a registered model; wait for it as long as others live."""
    prefix = f"{PREFIX}.{alias}."
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
        msg = f"{name} could not be tagged, so its alias stays: {reason(error)}"
        raise StoreError(msg) from error


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
