"""Monitor: watch a registered set classifier by batches of its answers, with labels or without."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

import numpy as np
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

from scrib_mlflow import messages
from scrib_mlflow.core import monitoring
from scrib_mlflow.core.bounds import risk_upper
from scrib_mlflow.core.certificate.claims import group_test_of
from scrib_mlflow.core.inputs import is_among, mix
from scrib_mlflow.core.monitoring import Alarm, Batch, Monitor
from scrib_mlflow.core.monitoring.baseline import without_baseline
from scrib_mlflow.core.monitoring.monitor import order_of, pack, sketch, unpack
from scrib_mlflow.core.targets import Targets, as_written, claimed, make_constraints
from scrib_mlflow.engines import doing, session_options
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, ModelError, StoreError
from scrib_mlflow.messages import percent
from scrib_mlflow.options import Gate, Monitor as Settings
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.predictions import served
from scrib_mlflow.predictions.answers import PredictRequest
from scrib_mlflow.records import Base, DataRecord, group_targets, seal
from scrib_mlflow.registry import models, monitoring as kept, runs, stores
from scrib_mlflow.report import monitoring as report, words
from scrib_mlflow.report.page import REPORT, listed_parameters, made_from
from scrib_mlflow.results import Check, SetClassifier, from_json, to_json
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.tables import GivenRows
from scrib_mlflow.workflows import gate as gates, intact

LOGGER = logging.getLogger(__name__)

ALARMED = 5  # exit code
FALSE_ALARMS = 0.05  # where the options say nothing
HIGHEST_MISS = 0.999  # that is tested
MOST_KNOWN = 0.1  # of the keys of a batch that may have been in earlier ones
MOST_TRIES = 20  # of a batch, while others are counted at the same time
ASKED = {"scores": "drift", "sets": "drift", "risk": "risk", "candidates": "candidates"}
FIXED = {  # options that a monitor keeps, and their names
    "false_alarms": "level",
    "seed": "seed",
    "least_audit_probability": "audit_floor",
}
STATE = "monitor.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """What a monitor knows after a batch."""

    model_uri: str  # with a version's number
    run_id: str  # of this batch
    monitor_run_id: str  # of all batches of the version
    source: str  # of the data
    number: int  # of this batch
    repeated: bool  # whether it was counted before; then nothing has changed
    labels_only: bool  # whether its rows were counted before, and labels are new
    alarms: tuple[Alarm, ...]  # all that were ever raised
    failed: bool  # whether there is an alarm that fail_on_alarm asks about
    demoted: str  # the version that the alias was moved back to, "" for none
    monitor: Monitor


def monitor(model_uri: str, data: GivenRows, **parameters: Any) -> Monitored:
    """Watch a registered set classifier by a batch of its answers.

    Parameters
    ----------
    model_uri : str
        ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
    data : str, Path or DataFrame
        Rows that it was asked: its answers as `predict` writes them, with or without its inputs,
        or inputs alone, which it answers now.
    **parameters
        Those of ``python -m scrib_mlflow monitor --help``, for example ``label="stage"``.

    Returns
    -------
    Monitored
        ``alarms`` is empty as long as nothing speaks against the certificate; ``monitor`` holds
        all evidence.
    """
    return run(read_settings(Settings, {"model_uri": model_uri, "data": data, **parameters}))


class Watched(NamedTuple):
    """The version that is watched, as it is stored."""

    base: Base
    record: SetClassifier
    request: PredictRequest
    made_by: str  # the calibrate run


class Rows(NamedTuple):
    """Slim rows of a batch, and by what it is known again."""

    slim: Mapping[str, NDArray[Any]]
    record: DataRecord
    answers: str  # digest of the answers
    labels: str  # digest of the labels, "" without any
    seconds: float  # the time of the latest row


def run(settings: Settings) -> Monitored:
    """Do what `monitor` does."""
    options = session_options(settings.engine, settings.spark_options)
    _check_options(settings)
    with stores.short_waits():
        stores.check_stores()
        watched = _find(settings)
        found = kept.find(watched.base, watched.made_by, anew=settings.restart)
        begun = _state(found)
    if begun is not None:
        _check_fixed(settings, begun)
    base = watched.base
    with runs.open_run(f"monitor {base.name}", watched.record.base.name) as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        rows = _read(settings, watched, options)
        if begun is None:
            begun = _begin(settings, watched)
        monitor_run = found.run_id or kept.start(base, found, run_id, _tags(watched))
        done = _count(settings, watched, rows, monitor_run, begun, run_id)
        _log(done, watched, rows, settings)
        if settings.on_alarm == "demote" and _counting(settings, done.monitor):
            done = _demote(settings, watched, done)
    return done


def exit_code(done: Monitored) -> int:
    """Return 0, or 5 where there is an alarm and fail_on_alarm asks to say so."""
    return ALARMED if done.failed else 0


def summary(done: Monitored) -> str:
    """Return what a person wants to see at the end."""
    where = words.logged(*runs.place_of(done.monitor_run_id))
    return words.terminal(report.monitoring_summary(_seen(done), where))


def _seen(done: Monitored) -> report.Seen:
    return report.Seen(
        monitor=done.monitor,
        model_uri=done.model_uri,
        source=done.source,
        repeated=done.number if done.repeated else None,
        labels_only=done.labels_only,
        demoted=done.demoted,
    )


def _check_options(settings: Settings) -> None:
    """Raise for options that mean nothing together."""
    for name in ("late_labels", "audit_probability"):
        if getattr(settings, name) and settings.label is None:
            raise InvalidSettingsError(f"{name} is about labels; give label, their column")
    if (settings.audit_probability is None) != (settings.least_audit_probability is None):
        raise InvalidSettingsError(
            "audit_probability and least_audit_probability go together: the column, and the lowest "
            "probability of the plan, which scales all bets and must not depend on the rows"
        )
    if settings.late_labels and settings.key is None:
        raise InvalidSettingsError(
            "late_labels needs key, the column that identifies rows, so that no label counts twice"
        )
    if settings.late_labels and settings.restart:
        raise InvalidSettingsError(
            "late_labels belong to rows that were counted, but restart begins with none; leave one "
            "of them out"
        )
    known = [*dict.fromkeys(ASKED.values())]
    if {*settings.alarms} - {*known}:
        raise InvalidSettingsError(
            f"alarms is {', '.join(settings.alarms)}, but names some of {', '.join(known)}"
        )
    if settings.on_alarm == "demote" and "@" not in settings.model_uri:
        raise InvalidSettingsError(
            "on_alarm=demote moves an alias back; name the version by it, as models:/NAME@ALIAS"
        )


def _find(settings: Settings) -> Watched:
    """Return the version that is watched."""
    base = stores.find_model(settings.model_uri)
    if not base.version:
        raise ModelError(
            f"{settings.model_uri} is no registered version; give models:/NAME/VERSION"
        )
    stored = models.read_stored(base.uri)
    if settings.verify:
        intact.check_intact(base, stored)
    info = stores.model_info(base.uri)
    signature = info.signature
    request = PredictRequest(
        model=base,
        record=stored.record,
        certificate_digest=seal(stored.text),
        inputs=signature.inputs if signature else None,
        key=(),
        explain=True,
        parameters=models.served_parameters(signature.params if signature else None, explain=True),
    )
    return Watched(base, stored.record, request, info.run_id or "")


def _state(found: kept.Found) -> Monitor | None:
    """Return the state after the last batch, None before the first."""
    if not found.batches:
        return None
    state = from_json(kept.read_state(found.run_id, found.batches[-1]))
    if not isinstance(state, Monitor):
        raise StoreError(f"the state of run {found.run_id} is none of a monitor")
    return state


def _check_fixed(settings: Settings, begun: Monitor) -> None:
    """Raise where an option differs from the one that the monitor has begun with."""
    for option, name in FIXED.items():
        given, fixed = getattr(settings, option), getattr(begun, name)
        open_still = (
            name == "audit_floor" and fixed is None and not sum(begun.certain + begun.asked)
        )
        if given is not None and given != fixed and not open_still:
            raise InvalidSettingsError(
                f"{option} is {given}, but the monitor of this version began with {fixed}: "
                "evidence cannot be judged by another measure afterwards; leave it out, or begin "
                "again with restart=true"
            )
    if settings.key != begun.key:
        now, then = (f"{each!r}" if each else "not given" for each in (settings.key, begun.key))
        raise InvalidSettingsError(
            f"key is {now}, but was {then} for the first batch, and batches are known again by it; "
            "name the same column each time, or begin again with restart=true"
        )


def _begin(settings: Settings, watched: Watched) -> Monitor:
    """Return a monitor that has seen nothing yet."""
    record = watched.record
    baseline = models.read_baseline(watched.base.uri)
    if baseline is None:
        LOGGER.warning(
            "This version does not say what its answers looked like when it was certified, so "
            "later batches are compared with the first ones."
        )
        baseline = without_baseline(record.classes)
    level, coverage = settings.false_alarms or FALSE_ALARMS, record.candidate_coverage
    limits = _miss_limits(record, level)
    return monitoring.begin(
        record.classes,
        _claims(record),
        baseline,
        miss_target=None if coverage is None or not limits else 1 - coverage,
        miss_limits=limits,
        level=level,
        seed=settings.seed or 0,
        group_test=group_test_of(record.certificate),
        key=settings.key,
        audit_floor=settings.least_audit_probability,
    )


def _miss_limits(record: SetClassifier, level: float) -> tuple[float, ...]:
    """Return by class how often candidates may lack the true class, as far as calibration knows.

    Candidates keep their promise on average over calibrations; a single one may lie beyond it. So
    the limit is the upper bound from the rows that chose them, where that is above the promise.
    None where these are not independent rows like new ones.
    """
    counted = record.certify_report or record.fit_report
    unlike = record.group, record.weight, record.selection
    if record.candidate_coverage is None or any(each is not None for each in unlike):
        return ()
    limits = []
    for name in record.classes:
        n = counted.by_class[name].n_named
        held = 0 if n == 0 else round(counted.by_class[name].candidate_coverage * n)
        upper = risk_upper(n - held, n, 1 - level / (2 * len(record.classes)))
        limits.append(min(max(1 - record.candidate_coverage, float(upper)), HIGHEST_MISS))
    return tuple(limits)


def _claims(record: SetClassifier) -> list[Any]:
    """Return what a version claims, or was fitted to."""
    targets = Targets(
        risk_targets=as_written(record.risk_targets) or None,
        overall_target=record.overall_target,
        risk_groups=group_targets(record.risk_groups),
        waive=[name for name in record.classes if name not in record.risk_targets],
    )
    return claimed(make_constraints(targets, record.classes))


def _read(settings: Settings, watched: Watched, options: dict[str, str]) -> Rows:
    """Return the rows of the batch, answered now where they hold no answers."""
    group = settings.group or watched.record.group
    slimmer = served.Slimmer(
        what=tables.called("data", settings.data),
        classes=watched.record.classes,
        label=settings.label,
        key=settings.key,
        group=group,
        time=settings.time,
        audit=settings.audit_probability,
    )
    named = {"label": settings.label, "key": settings.key, "group": group}
    named |= {"time": settings.time, "audit_probability": settings.audit_probability}
    served.check_made_by(settings.data, watched.base.uri, watched.request.certificate_digest)
    LOGGER.info(f"reading the batch {messages.shown(settings.data)}")
    if settings.engine == "spark":
        slim, slimmer, some = _read_spark(settings, watched, options, slimmer, named)
    else:
        source = tables.open_table("data", settings.data, settings.label, served.TEXTS)
        _check_columns(slimmer.what, named, source.columns, watched)

        def load() -> Any:
            LOGGER.info(f"loading {watched.base.uri}, and {doing('local', source.n_rows)}")
            return models.load_model(watched.base.uri)

        slimmer = _identity(slimmer, source.columns, watched)
        slim = served.read_local(source, slimmer, watched.request, load, settings.batch_rows)
        some = next(source.batches(tables.SOME_ROWS))
    n = len(slim["rows"])
    if settings.key is not None and len(np.unique(slim["rows"])) < n:
        raise InvalidDataError(
            f"key {settings.key!r} does not identify the rows of data: some of its values stand "
            "more than once; name another column"
        )
    record = DataRecord(
        source=messages.shown(settings.data),
        digest=hashes.digest_of(_names(slimmer), hashes.digest_sums(slim["rows"])),
        n_rows=n,
        n_used=n,
    )
    runs.log_table_input(some, record, settings.label, "monitor")
    labelled, labels = slim.get("labels"), ""
    if labelled is not None and (labelled >= 0).any():
        cases = hashes.hash_cases(slim["rows"], labelled)[labelled >= 0]
        labels = hashes.digest_of(["labels"], hashes.digest_sums(cases))
    seconds = datetime.now(timezone.utc).timestamp()
    if "time" in slim and np.isfinite(slim["time"]).any():
        seconds = float(np.nanmax(slim["time"]))
    given = hashes.digest_of(["answers"], hashes.digest_sums(mix(slim["rows"]) ^ slim["sets"]))
    return Rows(slim, record, given, labels, seconds)


def _names(slimmer: served.Slimmer) -> Sequence[str]:
    return slimmer.identity if slimmer.key is None else [slimmer.key]


def _identity(slimmer: served.Slimmer, columns: Sequence[str], watched: Watched) -> served.Slimmer:
    """Return what makes slim rows, with the columns by which rows are known again."""
    unlike = {slimmer.label, slimmer.audit}
    names = [name for name in columns if name not in unlike]
    beside = slimmer.key, slimmer.group, slimmer.time
    inputs = tables.input_names(watched.request.inputs)
    return replace(slimmer, identity=served.identity(names, inputs, beside))


def _check_columns(what: str, named: Mapping[str, str | None], columns: Any, watched: Any) -> None:
    """Raise where a column that an option names is missing, the group's with a word of its own."""
    tables.check_not_drawn(what, columns)
    group = watched.record.group
    if named["group"] is not None and group is None:
        raise InvalidSettingsError(
            "the version was certified by rows, without groups, so groups cannot be compared with "
            "them; leave group out, or calibrate with group"
        )
    if group is not None and named["group"] == group and group not in columns:
        raise InvalidDataError(
            f"{what} has no column {group!r}, by which the version was certified in groups: rows "
            "of a group are alike, and without it would be taken for a drift. Keep it beside the "
            f"answers (predict with key={group}), or name the column with group"
        )
    tables.named_columns(what, named, columns)


def _read_spark(
    settings: Settings,
    watched: Watched,
    options: dict[str, str],
    slimmer: served.Slimmer,
    named: Mapping[str, str | None],
) -> tuple[dict[str, NDArray[Any]], served.Slimmer, Any]:
    """Return slim rows that Spark's workers make, what makes them, and a few rows."""
    from scrib_mlflow.predictions import spark  # noqa: PLC0415  # an extra

    with spark.open_table(options, settings.data, settings.batch_rows) as frame:
        _check_columns(slimmer.what, named, frame.columns, watched)
        slimmer, n_rows = _identity(slimmer, frame.columns, watched), frame.count()
        slim = spark.read_slim(frame, slimmer, watched.request, n_rows)
        return slim, slimmer, spark.first_rows(frame, tables.SOME_ROWS)


def _count(
    settings: Settings,
    watched: Watched,
    rows: Rows,
    monitor_run: str,
    begun: Monitor,
    run_id: str,
) -> Monitored:
    """Count the batch after those that are counted, or find it among them."""
    for _ in range(MOST_TRIES):
        found = kept.find(watched.base, watched.made_by)
        if found.run_id != monitor_run:
            raise StoreError(
                f"another command has begun a new monitor of {watched.base.uri} meanwhile; run "
                "this one again, to count the batch there"
            )
        before = _state(found) or begun
        _log_again(watched, monitor_run, before, found)
        how, number = _known(settings, rows, found)
        if how == "repeated":
            return _done(settings, watched, rows, before, (monitor_run, run_id), number)
        after = _add(before, rows, settings, labels_only=how == "labels")
        digests = rows.record.digest, rows.answers, rows.labels
        if kept.commit(monitor_run, after.n_batches, digests, to_json(after)):
            return _done(settings, watched, rows, after, (monitor_run, run_id), None)
        LOGGER.info("another batch was counted meanwhile; counting this one after it")
    raise StoreError(
        f"{MOST_TRIES} other batches of {watched.base.uri} were counted meanwhile; run it again"
    )


def _known(
    settings: Settings, rows: Rows, found: kept.Found
) -> tuple[Literal["new", "labels", "repeated"], int]:
    """Return whether a batch is new, brings labels of one that was counted, or is one; and which.

    Labels are counted once: where keys name the rows, each by itself.
    """
    same = [batch for batch in found.batches if batch.rows == rows.record.digest]
    again = [batch for batch in found.batches if rows.labels and batch.labels == rows.labels]
    if settings.late_labels:
        if not rows.labels:
            raise InvalidDataError(
                f"column {settings.label!r} of data holds no label; late_labels needs some"
            )
        return ("repeated", again[0].number) if again else ("labels", 0)
    if not same:
        return "new", 0
    number = same[0].number
    if all(batch.answers != rows.answers for batch in same):
        raise InvalidDataError(
            f"the rows of data were counted as batch {number}, but with other answers; "
            + _other_rows(settings)
        )
    if again or not rows.labels:
        return "repeated", number
    if settings.key is None and any(batch.labels != "-" for batch in same):
        raise InvalidDataError(
            f"this batch was counted as number {number}, with other labels; give key, the "
            "column that identifies rows, so that no label counts twice"
        )
    return "labels", number


def _other_rows(settings: Settings) -> str:
    """Return what to do where rows look like earlier ones and are others."""
    if settings.key is None:
        return "if these are other rows, give key, a column that identifies them"
    return (
        f"if these are other rows, key={settings.key} does not identify them: keys must be unique "
        "over all batches"
    )


def _add(before: Monitor, rows: Rows, settings: Settings, *, labels_only: bool) -> Monitor:
    """Return the state after a batch."""
    slim, labels, audit = rows.slim, rows.slim.get("labels"), rows.slim.get("audit")
    after = before
    if settings.least_audit_probability is not None:
        after = replace(after, audit_floor=settings.least_audit_probability)
    if settings.key is not None and not labels_only:
        keys, known = sketch(before.keys, slim["rows"])
        if known > MOST_KNOWN:
            raise InvalidDataError(
                f"{percent(known)} of the keys of data were in earlier batches; "
                + _other_rows(settings)
                + ". Labels of rows that were counted come with late_labels=true"
            )
        after = replace(after, keys=keys)
    if labels is not None and settings.key is not None:
        seen = unpack(before.labelled_rows)
        again = (labels >= 0) & is_among(slim["rows"], seen)
        if again.any():
            LOGGER.warning(f"{again.sum():,} labels were counted before, and are left out.")
        labels = np.where(again, -1, labels)
        new = slim["rows"][labels >= 0]
        after = replace(after, labelled_rows=pack(np.concatenate([seen, new])))
    if audit is not None:
        _check_audit(rows, settings)
    batch = Batch(
        served=served.served_of(slim),
        order=order_of(slim["contents"], before.seed),
        labels=labels,
        named=slim.get("named"),
        groups=slim.get("groups"),
        audit=audit,
    )
    time = datetime.fromtimestamp(rows.seconds, timezone.utc).isoformat(timespec="seconds")
    return monitoring.add_batch(after, batch, time, labels_only=labels_only)


def _check_audit(rows: Rows, settings: Settings) -> None:
    """Raise where labelled rows lack the probability with which they were to be labelled."""
    name = f"column {settings.audit_probability!r} of data"
    if "groups" in rows.slim:
        raise InvalidSettingsError(
            "audit_probability is for rows that are independent; where rows come in groups, label "
            "whole groups, drawn at random, and leave it out"
        )
    known = rows.slim["audit"][rows.slim["labels"] >= 0]
    least = settings.least_audit_probability or 0.0
    bad = known[~((known >= least) & (known <= 1))]
    if len(bad):
        raise InvalidDataError(
            f"{name} has {bad[0]:g} for a labelled row, but must hold the probability with which "
            f"the row was to be labelled, from {least:g} (least_audit_probability) to 1"
        )


def _tags(watched: Watched) -> dict[str, str]:
    return {runs.MODEL_URI: watched.base.uri, "scrib.base_model": watched.record.base.name}


def _done(
    settings: Settings,
    watched: Watched,
    rows: Rows,
    state: Monitor,
    ids: tuple[str, str],
    repeated: int | None,
) -> Monitored:
    """Return what a monitor knows after a batch, or knew before it was given again."""
    monitor_run, run_id = ids
    return Monitored(
        model_uri=watched.base.uri,
        run_id=run_id,
        monitor_run_id=monitor_run,
        source=rows.record.source,
        number=state.n_batches if repeated is None else repeated,
        repeated=repeated is not None,
        labels_only=repeated is None and not state.history[-1].n_rows,
        alarms=state.alarms,
        failed=settings.fail_on_alarm and bool(_counting(settings, state)),
        demoted="",
        monitor=state,
    )


def _counting(settings: Settings, state: Monitor) -> list[Alarm]:
    """Return the alarms of the kinds that the options name."""
    wanted = settings.alarms or (*ASKED.values(),)
    return [alarm for alarm in state.alarms if ASKED[alarm.what] in wanted]


def _log_again(watched: Watched, monitor_run: str, before: Monitor, found: kept.Found) -> None:
    """Log the metrics of the last batch where a command that was killed did not."""
    if before.n_batches > found.logged:
        at = datetime.fromisoformat(before.history[-1].time).timestamp()
        metrics = report.metrics(before)
        kept.log(monitor_run, before.n_batches, metrics, at, watched.base.model_id)


def _log(done: Monitored, watched: Watched, rows: Rows, settings: Settings) -> None:
    """Log what is known to the run of the batch, to that of the monitor and to the version."""
    state, base = done.monitor, watched.base
    metrics = report.metrics(state)
    at = datetime.fromisoformat(state.history[-1].time).timestamp()
    if not done.repeated:
        kept.log(done.monitor_run_id, state.n_batches, metrics, at, base.model_id)
    parameters = settings.model_dump()
    html, figures = report.page(
        _seen(done),
        made_from(watched.record, {}, done.run_id, parameters),
        listed_parameters(parameters),
    )
    note = words.note(report.monitoring_summary(_seen(done), f"More is in the artifact {REPORT}."))
    documents = {REPORT: html, STATE: to_json(state)}
    kept.put_under(done.run_id, done.monitor_run_id)
    runs.log_metrics(metrics)
    runs.log_texts_and_figures(documents, figures)
    runs.set_tags(_tags(watched), note)
    _tell(done, watched, documents, note)


def _tell(done: Monitored, watched: Watched, documents: Mapping[str, str], note: str) -> None:
    """Write page and tags, unless a later batch was counted meanwhile, which knows more.

    Its command may have been killed before it did so: then its tags are written here.
    """
    base, state = watched.base, done.monitor
    try:
        for _ in range(MOST_TRIES):
            alarmed = bool(state.alarms)
            status, since = (kept.ALARM, state.alarms[0].time) if alarmed else (kept.OK, "")
            if state is done.monitor:
                kept.log_page(done.monitor_run_id, state.n_batches, documents, note)
            kept.tag_version(base, status, since, report.verdict(state), done.monitor_run_id)
            found = kept.find(base, watched.made_by)
            newest = _state(found) if found.run_id == done.monitor_run_id else None
            if newest is None or newest.n_batches <= state.n_batches:
                return
            state = newest
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"the batch is counted, but {base.uri} could not be tagged: {messages.reason(error)}; "
            "run the same command again, which counts nothing twice"
        ) from error


def _demote(settings: Settings, watched: Watched, done: Monitored) -> Monitored:
    """Move the alias back to the version that had it before, if that passes the gate."""
    base, alias = watched.base, settings.model_uri.partition("@")[2]
    previous = stores.version_tags(base).get("scrib.previous_champion", "")
    if not previous:
        LOGGER.warning(f"{base.uri} follows no other version, so the alias {alias} stays on it.")
        return done
    before = stores.find_model(f"models:/{base.name}/{previous}")
    status = stores.version_tags(before).get(kept.STATUS, "")

    def more(champion: str) -> tuple[Check, ...]:
        return (
            Check(
                "in its place",
                champion == base.version,
                f"the alias {alias} is on version {champion or '(none)'}, and the alarm is about "
                f"version {base.version}",
            ),
            Check("monitor", status != kept.ALARM, f"its own monitor says {status or 'nothing'}"),
        )

    wanted = Gate(model_uri=before.uri, alias=alias)
    gated = gates.run(wanted, more)
    LOGGER.info(f"\n{gates.summary(gated)}\n")
    if not gated.moved:
        LOGGER.warning(f"The alias {alias} stays where it is: version {previous} was refused.")
        return done
    return replace(done, demoted=previous)
