"""Predict with Spark: rows are answered and written by its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from scrib_mlflow.adapters import (
    answering,
    runs,
    scoring,
    spark_answering,
    spark_files,
    spark_session,
    spark_stores,
    spark_tables,
)
from scrib_mlflow.adapters import prediction_files as files
from scrib_mlflow.adapters.progress import progress
from scrib_mlflow.adapters.spark_scoring import feature_names, first_rows
from scrib_mlflow.errors import OutputError
from scrib_mlflow.results import DataRecord, Predictions
from scrib_mlflow.workflows import predict as local
from scrib_mlflow.workflows.engines import doing, session_options
from scrib_mlflow.workflows.prediction_log import log_predictions, make_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def answer_table(job: local.Job, say: Callable[[str], None]) -> local.Predicted:
    """Answer all rows in Spark's workers."""
    settings = job.settings
    options = session_options(settings.engine, settings.spark_options)
    output = files.local_path(settings.output)
    if output is not None:
        files.check_apart(output, settings.data)
    else:
        spark_stores.check_apart(settings.output, settings.data)
    with (
        spark_session.session(options) as session,
        spark_files.writes(session, settings.batch_rows),
    ):
        frame = spark_tables.read(session, "data", settings.data, None)
        local.check_columns(job, tuple(frame.columns))
        digest, n = spark_answering.digest(frame)
        data = DataRecord(source=settings.data, digest=digest, n_rows=n, n_used=n)
        if output is None:
            known = _already_elsewhere(job, frame, data, say)
        else:
            known = local.already_there(job, output, lambda: digest, say)
        if known is not None:
            return known
        with runs.open_run(f"predict {job.name}") as run_id:
            runs.log_settings(run_id, settings)
            record = make_record(settings, job.model_uri, job.certificate_digest, run_id)
            record = replace(record, data=data)
            say(f"loading {job.model_uri}, and {doing(settings.engine, n)}")
            if output is None:
                done = _write_elsewhere(job, frame, record)
            else:
                done = _write_here(job, frame, record, output, say)
            some = first_rows(frame, None, local.SOME_ROWS)
            log_predictions(done.predictions, some, done.output)
    return done


def _write_here(
    job: local.Job,
    frame: DataFrame,
    record: Predictions,
    output: Path,
    say: Callable[[str], None],
) -> local.Predicted:
    """Write to this machine's file system, which all workers must share, slice by slice."""
    with files.writing(output):
        folder, why_anew = files.begin(output, job.plan())
    if why_anew:
        say(f"starting anew: {why_anew}")
    reasons: Counter[str] = Counter()
    parts: dict[str, int] = {}
    kept = 0
    answered = _function(job, frame)
    found = spark_files.slices(frame, job.settings.data, record.data.digest, job.plan())
    bar = progress(what="answering data", unit="rows", total=record.data.n_rows)
    with files.worth_keeping(folder), bar:
        for number, each in enumerate(found):
            written = spark_files.read_slice(folder, number, each.seal)
            if written is None:
                rows = answered(each.frame)
                with files.writing(output):
                    written = spark_files.write_slice(rows, folder, number, each.seal)
            else:
                kept += len(written.parts)
            reasons += written.reasons
            parts |= written.parts
            bar.update(sum(written.parts.values()))
    if kept:
        say(f"kept {kept} of {len(parts)} parts of an earlier run")
    record = local.with_counts(record, reasons, parts)
    _check_counts(job, frame, record, lambda: files.give_up(output))
    keys = pq.read_schema(folder / next(iter(parts)))
    columns = {name: str(keys.field(name).type) for name in job.settings.key}
    record = replace(record, columns=columns | _served(job))
    with files.writing(output):
        files.finish(output, folder, record)
    return local.Predicted(output=str(output), already=False, kept=kept, predictions=record)


def _write_elsewhere(job: local.Job, frame: DataFrame, record: Predictions) -> local.Predicted:
    """Write where only Spark can, all at once, under another name until it is whole."""
    output, session = job.settings.output.rstrip("/"), frame.sparkSession
    partial, replaced = (f"{output}.{word}-{record.run_id}" for word in ("partial", "replaced"))
    try:
        _function(job, frame)(frame).write.parquet(partial)
        written = spark_files.count_files(session.read.parquet(partial))
        record = local.with_counts(record, written.reasons, written.parts)
        _check_counts(job, frame, record, lambda: None)
        kinds = dict(frame.dtypes)
        columns = {name: kinds[name] for name in job.settings.key}
        record = replace(record, columns=columns | _served(job))
        spark_stores.write_manifest(session, partial, record)
        if spark_stores.exists(session, output):
            spark_stores.move(session, output, replaced)
        spark_stores.move(session, partial, output)
    except BaseException:
        if spark_stores.exists(session, replaced) and not spark_stores.exists(session, output):
            spark_stores.move(session, replaced, output)
        spark_stores.remove(session, partial)
        raise
    spark_stores.remove(session, replaced)
    return local.Predicted(output=output, already=False, kept=0, predictions=record)


def _already_elsewhere(
    job: local.Job, frame: DataFrame, data: DataRecord, say: Callable[[str], None]
) -> local.Predicted | None:
    output = job.settings.output
    known = spark_stores.read_manifest(frame.sparkSession, output)
    if known is None:
        if spark_stores.exists(frame.sparkSession, output):
            msg = f"output {output} is there, and predict has not written it; choose another folder"
            raise OutputError(msg)
        return None
    if job.made(known) and known.data.digest == data.digest:
        say(f"{output} is there, of the same model and the same rows: nothing to do")
        return local.Predicted(output=output, already=True, kept=0, predictions=known)
    if not job.settings.overwrite:
        msg = (
            f"output {output} is there, but it is of another model, other rows or columns; replace "
            "it with overwrite=true"
        )
        raise OutputError(msg)
    return None


def _function(job: local.Job, frame: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Return what turns rows into the columns kept and the answers."""
    asked, key = job.asked, job.settings.key
    names = feature_names(frame, asked.inputs, key) or []
    function = spark_answering.served_function(frame.sparkSession, job.model_uri, asked)
    return lambda rows: spark_answering.with_answers(rows, function, names, key, asked)


def _served(job: local.Job) -> dict[str, str]:
    return {name: str(kind) for name, kind in job.asked.columns().items()}


def _check_counts(
    job: local.Job, frame: DataFrame, record: Predictions, give_up: Callable[[], None]
) -> None:
    """Raise where rows are lost, are others than were read first, or none could be scored."""
    if record.n_rows != record.data.n_rows:
        msg = (
            f"data had {record.data.n_rows:,} rows and then {record.n_rows:,}; do not change it "
            "while it is answered, and run the same command again"
        )
        raise OutputError(msg)
    now = spark_tables.read(frame.sparkSession, "data", job.settings.data, None)
    if spark_answering.digest(now)[0] != record.data.digest:
        give_up()
        msg = "data changed while it was answered; run the same command again when nothing writes"
        raise OutputError(msg)
    if record.reasons.get(answering.INVALID, 0) == record.n_rows:
        give_up()
        model = scoring.load_model(job.model_uri)
        raise local.none_scored(model, first_rows(frame, None, 1), job)
