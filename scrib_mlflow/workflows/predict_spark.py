"""Predict with Spark: rows are answered and written by its workers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from scrib_mlflow.engines.opening import doing, session_options
from scrib_mlflow.engines.spark import session, tables
from scrib_mlflow.engines.spark.scoring import feature_names
from scrib_mlflow.engines.spark.tables import first_rows
from scrib_mlflow.errors import OutputError
from scrib_mlflow.messages import progress
from scrib_mlflow.predictions import answers, files, spark
from scrib_mlflow.records import DataRecord
from scrib_mlflow.registry import runs
from scrib_mlflow.results import Predictions
from scrib_mlflow.rows import scoring
from scrib_mlflow.workflows import predict
from scrib_mlflow.workflows.predict import log_predictions, make_record

LOGGER = logging.getLogger(__name__)


def answer_table(job: predict.Job) -> predict.Predicted:
    """Answer all rows in Spark's workers."""
    settings = job.settings
    options = session_options(settings.engine, settings.spark_options)
    output = files.local_path(settings.output)
    if output is not None:
        files.check_apart(output, settings.data)
    else:
        spark.check_apart(settings.output, settings.data)
    with (
        session.session(options) as running,
        spark.writes(running, settings.batch_rows),
    ):
        frame = tables.read(running, "data", settings.data)
        predict.check_columns(job, tuple(frame.columns))
        digest, n = spark.digest(frame)
        data = DataRecord(source=settings.data, digest=digest, n_rows=n, n_used=n)
        if output is None:
            known = _already_elsewhere(job, frame, data)
        else:
            known = predict.already_there(job, output, lambda: digest)
        if known is not None:
            return known
        with runs.open_run(f"predict {job.name}") as run_id:
            runs.log_settings(run_id, settings)
            record = make_record(settings, job.model_uri, job.certificate_digest, run_id)
            record = replace(record, data=data)
            LOGGER.info(f"loading {job.model_uri}, and {doing(settings.engine, n)}")
            if output is None:
                done = _write_elsewhere(job, frame, record)
            else:
                done = _write_here(job, frame, record, output)
            some = first_rows(frame, None, predict.SOME_ROWS)
            log_predictions(done.predictions, some, done.output)
    return done


def _write_here(
    job: predict.Job,
    frame: DataFrame,
    record: Predictions,
    output: Path,
) -> predict.Predicted:
    """Write to this machine's file system, which all workers must share, slice by slice."""
    with files.writing(output):
        folder, why_anew = files.begin(output, job.plan())
    if why_anew:
        LOGGER.info(f"starting anew: {why_anew}")
    reasons: Counter[str] = Counter()
    parts: dict[str, int] = {}
    kept = 0
    answered = _function(job, frame)
    found = spark.slices(frame, job.settings.data, record.data.digest, job.plan())
    bar = progress(what="answering data", unit="rows", total=record.data.n_rows)
    with files.worth_keeping(folder), bar:
        for number, each in enumerate(found):
            written = spark.read_slice(folder, number, each.seal)
            if written is None:
                rows = answered(each.frame)
                with files.writing(output):
                    written = spark.write_slice(rows, folder, number, each.seal)
            else:
                kept += len(written.parts)
            reasons += written.reasons
            parts |= written.parts
            bar.update(sum(written.parts.values()))
    if kept:
        LOGGER.info(f"kept {kept} of {len(parts)} parts of an earlier run")
    record = predict.with_counts(record, reasons, parts)
    _check_counts(job, frame, record, lambda: files.give_up(output))
    keys = pq.read_schema(folder / next(iter(parts)))
    columns = {name: str(keys.field(name).type) for name in job.settings.key}
    record = replace(record, columns=columns | _served(job))
    with files.writing(output):
        files.finish(output, folder, record)
    return predict.Predicted(output=str(output), already=False, kept=kept, predictions=record)


def _write_elsewhere(job: predict.Job, frame: DataFrame, record: Predictions) -> predict.Predicted:
    """Write where only Spark can, all at once, under another name until it is whole."""
    output, running = job.settings.output.rstrip("/"), frame.sparkSession
    partial, replaced = (f"{output}.{word}-{record.run_id}" for word in ("partial", "replaced"))
    try:
        _function(job, frame)(frame).write.parquet(partial)
        written = spark.count_files(running.read.parquet(partial))
        record = predict.with_counts(record, written.reasons, written.parts)
        _check_counts(job, frame, record, lambda: None)
        kinds = dict(frame.dtypes)
        columns = {name: kinds[name] for name in job.settings.key}
        record = replace(record, columns=columns | _served(job))
        spark.write_manifest(running, partial, record)
        if spark.exists(running, output):
            spark.move(running, output, replaced)
        spark.move(running, partial, output)
    except BaseException:
        if spark.exists(running, replaced) and not spark.exists(running, output):
            spark.move(running, replaced, output)
        spark.remove(running, partial)
        raise
    spark.remove(running, replaced)
    return predict.Predicted(output=output, already=False, kept=0, predictions=record)


def _already_elsewhere(
    job: predict.Job, frame: DataFrame, data: DataRecord
) -> predict.Predicted | None:
    output = job.settings.output
    known = spark.read_manifest(frame.sparkSession, output)
    if known is None:
        if spark.exists(frame.sparkSession, output):
            raise OutputError(
                f"output {output} is there, and predict has not written it; choose another folder"
            )
        return None
    if job.made(known) and known.data.digest == data.digest:
        LOGGER.info(f"{output} is there, of the same model and the same rows: nothing to do")
        return predict.Predicted(output=output, already=True, kept=0, predictions=known)
    if not job.settings.overwrite:
        raise OutputError(
            f"output {output} is there, but it is of another model, other rows or columns; replace "
            "it with overwrite=true"
        )
    return None


def _function(job: predict.Job, frame: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Return what turns rows into the columns kept and the answers."""
    asked, key = job.asked, job.settings.key
    names = feature_names(frame, asked.inputs, key) or []
    function = spark.served_function(frame.sparkSession, job.model_uri, asked)
    return lambda rows: spark.with_answers(rows, function, names, key, asked)


def _served(job: predict.Job) -> dict[str, str]:
    return {name: str(kind) for name, kind in job.asked.columns().items()}


def _check_counts(
    job: predict.Job, frame: DataFrame, record: Predictions, give_up: Callable[[], None]
) -> None:
    """Raise where rows are lost, are others than were read first, or none could be scored."""
    if record.n_rows != record.data.n_rows:
        raise OutputError(
            f"data had {record.data.n_rows:,} rows and then {record.n_rows:,}; do not change it "
            "while it is answered, and run the same command again"
        )
    now = tables.read(frame.sparkSession, "data", job.settings.data)
    if spark.digest(now)[0] != record.data.digest:
        give_up()
        raise OutputError(
            "data changed while it was answered; run the same command again when nothing writes"
        )
    if record.reasons.get(answers.INVALID, 0) == record.n_rows:
        give_up()
        model = scoring.load_model(job.model_uri)
        raise predict.none_scored(model, first_rows(frame, None, 1), job)
