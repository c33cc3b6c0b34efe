"""The monitor of a registered version: a run with its state, from batch to batch.

MLflow lets a parameter of a run be written once. So the parameter `batch_00012` of the monitor's
run names the state after batch 12, and of two commands that count a batch at the same time only one
can write it: the other begins again, after that batch. A state is stored before it is named, and
named with its digest. So a command that is killed at any moment has counted its batch, or has not.

The first batch names the monitor's run in the same way, in a parameter of the run that made the
version. Where that run is not in this store, a tag of the version has to do.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import mlflow
from mlflow.entities import Metric, Run, RunStatus
from mlflow.exceptions import MlflowException

from scrib_mlflow import errors, messages
from scrib_mlflow.core.inputs import text_hash
from scrib_mlflow.records import Base, seal
from scrib_mlflow.registry import runs, stores

STATUS, SINCE, REASONS = "scrib_monitor", "scrib_monitor_since", "scrib_monitor_reasons"
RUN_ID = "scrib_monitor_run_id"  # tags of a version
OF_VERSION, LOGGED = "scrib_monitor_of", "scrib_monitor_logged"  # tags of a monitor's run
PARENT = "mlflow.parentRunId"
OK, ALARM = "ok", "alarm"
FOLDER, BATCH = "states", "batch_"
MOST_CHARACTERS = 1000  # of a tag, which every registry takes
AT_ONCE = 500  # metrics of a request


class Counted(NamedTuple):
    """A batch that was counted, and where the state after it is."""

    number: int
    rows: str  # digest of its rows
    answers: str  # and of what they were answered
    labels: str  # digest of its labels, "-" without any
    file: str
    digest: str  # of this file


class Found(NamedTuple):
    """The monitor of a version."""

    run_id: str  # "" where there is none yet
    place: tuple[str, str]  # run and parameter that name it; "" where a tag does
    batches: tuple[Counted, ...]
    logged: int  # batches whose metrics are logged


def find(version: Base, made_by: str, *, anew: bool = False) -> Found:
    """Return the monitor of a version, or with `anew` the place of one that begins again."""
    name = f"scrib_monitor_{version.version}_{int(text_hash(version.name)) % 16**8:08x}"
    try:
        made = _run(made_by)
        known = {} if made is None else made.data.params
        number = 1
        while f"{name}.{number + 1}" in known:
            number += 1
        run_id = known.get(f"{name}.{number}", "")
        place = (
            ("", "") if made is None else (made_by, f"{name}.{number + (anew and bool(run_id))}")
        )
        if made is None:
            run_id = stores.version_tags(version).get(RUN_ID, "")
        if anew or not run_id:
            return Found("", place, (), 0)
        run = mlflow.get_run(run_id)
    except (MlflowException, OSError) as error:
        raise errors.StoreError(
            f"the monitor of {version.uri} cannot be looked up: {messages.reason(error)}; try again"
        ) from error
    if run.info.lifecycle_stage != "active":
        raise errors.StoreError(
            f"run {run_id}, the monitor of {version.uri}, was deleted; restore it (mlflow runs "
            f"restore --run-id {run_id}), or begin again with restart=true"
        )
    data = run.data
    batches = sorted(
        Counted(int(key.removeprefix(BATCH)), *value.split(" "))
        for key, value in data.params.items()
        if key.startswith(BATCH)
    )
    return Found(run_id, place, tuple(batches), int(data.tags.get(LOGGED, "0")))


def _run(run_id: str) -> Run | None:
    """Return a run, None where the store has none of this id, or has deleted it."""
    try:
        run = mlflow.get_run(run_id) if run_id else None
    except (MlflowException, OSError) as error:
        if stores.is_absent(error):
            return None
        raise
    return run if run is not None and run.info.lifecycle_stage == "active" else None


def start(version: Base, found: Found, beside: str, tags: Mapping[str, str]) -> str:
    """Return the id of a new run for a monitor, or of the one that somebody was faster to make.

    It stands in the experiment of the run `beside`.
    """
    client = mlflow.MlflowClient()
    name = f"monitor {version.name} version {version.version}"
    try:
        experiment = mlflow.get_run(beside).info.experiment_id
        made = client.create_run(
            experiment, tags={**tags, OF_VERSION: version.uri}, run_name=name
        ).info.run_id
        client.set_terminated(made, RunStatus.to_string(RunStatus.FINISHED))
        run_id = made
        if found.place[0] and not _write_once(*found.place, made):
            run_id = mlflow.get_run(found.place[0]).data.params[found.place[1]]
            client.delete_run(made)
        _tag(version, RUN_ID, run_id)
    except (MlflowException, OSError) as error:
        raise errors.StoreError(
            f"no monitor of {version.uri} can be started: {messages.reason(error)}"
        ) from error
    return str(run_id)


def read_state(run_id: str, batch: Counted) -> str:
    """Return the state after a batch."""
    with runs.read_artifacts(run_id, batch.file) as (path,):
        text = path.read_text(encoding="utf-8", errors="replace")
    if seal(text) != batch.digest:
        raise errors.StoreError(
            f"{batch.file} of run {run_id} is not what was stored: the monitor's state is damaged. "
            "Restore the file, or begin again with restart=true"
        )
    return text


def commit(run_id: str, number: int, digests: tuple[str, str, str], text: str) -> bool:
    """Store the state after a batch; return whether no other batch was faster to be this one.

    The digests are those of its rows, of their answers and of their labels.
    """
    file = f"{FOLDER}/{number:05d}-{secrets.token_hex(4)}.json"
    try:
        mlflow.MlflowClient().log_text(run_id, text, file)
        value = " ".join([*(each or "-" for each in digests), file, seal(text)])
        return _write_once(run_id, f"{BATCH}{number:05d}", value)
    except (MlflowException, OSError) as error:
        raise errors.StoreError(
            f"the state of the monitor, run {run_id}, could not be stored: "
            f"{messages.reason(error)}; run the same command again, which counts the batch once"
        ) from error


def _write_once(run_id: str, key: str, value: str) -> bool:
    """Write a parameter; return whether it has this value, which nobody can change then."""
    client = mlflow.MlflowClient()
    try:
        client.log_param(run_id, key, value)
    except MlflowException:
        known = client.get_run(run_id).data.params.get(key)
        if known is None:
            raise
        return bool(known == value)
    return True


def log(run_id: str, number: int, metrics: Mapping[str, float], at: float, model_id: str) -> None:
    """Log what is known after a batch, at the time of its rows (seconds since 1970)."""
    client, moment = mlflow.MlflowClient(), int(at * 1000)
    values = [
        Metric(name, value, moment, number, model_id=model_id or None)
        for name, value in metrics.items()
    ]
    for first in range(0, len(values), AT_ONCE):
        client.log_batch(run_id, metrics=values[first : first + AT_ONCE])


def log_page(run_id: str, number: int, documents: Mapping[str, str], note: str) -> None:
    """Log what people read of a monitor, and that the metrics of so many batches are logged."""
    client = mlflow.MlflowClient()
    for path, text in documents.items():
        client.log_text(run_id, text, path)
    client.set_tag(run_id, runs.NOTE, note)
    client.set_tag(run_id, LOGGED, str(number))
    client.set_terminated(run_id, RunStatus.to_string(RunStatus.FINISHED))


def tag_version(version: Base, status: str, since: str, reasons: str, run_id: str) -> None:
    """Say on a version whether its monitor has raised an alarm; a webhook may wait for this tag."""
    before = stores.version_tags(version)
    wanted = {RUN_ID: run_id, REASONS: reasons[:MOST_CHARACTERS], SINCE: since, STATUS: status}
    for key, value in wanted.items():  # the status last: then all that it means is there
        if before.get(key) != value:
            _tag(version, key, value)


def _tag(version: Base, key: str, value: str, tries: int = 3) -> None:
    """Set a tag; where another command adds it at the same moment, it is there next time.

    MLflow looks whether the row is there and then adds it, so one of two is refused.
    """
    try:
        mlflow.MlflowClient().set_model_version_tag(version.name, version.version, key, value)
    except MlflowException:
        if tries == 1:
            raise
        _tag(version, key, value, tries - 1)


def put_under(run_id: str, monitor_run: str) -> None:
    """Show the run of a batch below the run of its monitor, unless it is below another one."""
    with suppress(MlflowException, OSError):
        if PARENT not in mlflow.get_run(run_id).data.tags:
            mlflow.MlflowClient().set_tag(run_id, PARENT, monitor_run)
