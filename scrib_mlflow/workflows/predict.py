"""Predict: answer the rows of a table with a registered set classifier, into parquet answers."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

import scrib_mlflow
from scrib_mlflow import messages
from scrib_mlflow.engines import doing, session_options
from scrib_mlflow.errors import InvalidSettingsError, OutputError
from scrib_mlflow.messages import percent, shown
from scrib_mlflow.options import Predict
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.predictions import answers
from scrib_mlflow.records import DataRecord, Frame, seal
from scrib_mlflow.registry import models, runs, stores
from scrib_mlflow.report import words
from scrib_mlflow.results import PartRecord, Predictions, to_json
from scrib_mlflow.rows import tables
from scrib_mlflow.rows.tables import GivenRows
from scrib_mlflow.workflows import intact

LOGGER = logging.getLogger(__name__)

COUNTED = {"ambiguous": "n_ambiguous", "empty": "n_empty", "invalid_scores": "n_invalid"}
PART_BATCHES = 10  # batches of a file
RETURNED = "a frame that is returned"  # in place of a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Answers to the rows of a table, and where they are.

    `already` is always False and `kept` always 0: an output that is there is refused or replaced,
    and nothing of an earlier run is used.
    """

    output: str  # the folder, or `RETURNED`
    already: bool = False
    kept: int = 0
    logged: bool = True  # whether the run says so too; the output is whole in any case
    predictions: Predictions
    answers: pd.DataFrame | None = field(default=None, compare=False)  # to a frame, by its index


def predict(
    model_uri: str, data: GivenRows, output: str | None = None, **parameters: Any
) -> Predicted:
    """Answer the rows of a table with a registered set classifier, into parquet answers.

    Parameters
    ----------
    model_uri : str
        A set classifier that `calibrate` registered: ``models:/NAME/VERSION``,
        ``models:/NAME@ALIAS`` or ``models:/m-ID``.
    data : str, Path or DataFrame
        Rows to answer: parquet or csv, by path or URI, or a pandas frame; with ``engine="spark"``
        whatever Spark reads, a table of its catalog included.
    output : str
        Folder that gets the answers. It is there when all rows are answered, and not before;
        with ``engine="spark"`` it is whole once ``_scrib.json`` is in it. Without one, answers
        to a frame are returned.
    **parameters
        Those of ``python -m scrib_mlflow predict --help``.

    Returns
    -------
    Predicted
        How many rows abstained, and why; `pandas.read_parquet` reads the folder. ``answers`` of
        it are those to a frame without an output, under the index of the frame.
    """
    if isinstance(data, pd.DataFrame) and output is None:
        output = RETURNED
    values = {"model_uri": model_uri, "data": data, "output": output, **parameters}
    return run(read_settings(Predict, values))


def run(settings: Predict) -> Predicted:
    """Do what `predict` does."""
    options = session_options(settings.engine, settings.spark_options)
    request = _request(settings)
    if isinstance(settings.data, Frame) and settings.output == RETURNED:
        return _return(settings, request, settings.data.rows.index)
    output = answers.local_path(settings.output)
    if output is not None:
        answers.check_apart(output, settings.data)
        answers.check_kept(output)
    if settings.engine == "spark":
        return _answer_in_spark(settings, request, options)
    if output is None:
        raise InvalidSettingsError(
            f"output is {settings.output!r}, but engine=local writes to a local folder only"
        )
    return _answer_here(settings, request, output, str(output))


def _request(settings: Predict) -> answers.PredictRequest:
    """Return which set classifier answers, and how."""
    with stores.short_waits():
        stores.check_stores()
        model = stores.find_model(settings.model_uri)
        stored = models.read_stored(model.uri)
        if settings.verify:
            intact.check_intact(model, stored)
        signature = stores.model_info(model.uri).signature
    return answers.PredictRequest(
        model=model,
        record=stored.record,
        certificate_digest=seal(stored.text),
        inputs=signature.inputs if signature else None,
        key=settings.key,
        explain=settings.explain,
        parameters=models.served_parameters(
            signature.params if signature else None, explain=settings.explain
        ),
    )


def _return(settings: Predict, request: answers.PredictRequest, index: pd.Index) -> Predicted:
    """Answer all rows of a frame by way of a folder that is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers"
        done = _answer_here(settings, request, path, RETURNED)
        return replace(done, answers=answers.read_answers(path, index))


@contextmanager
def _warn_once_whole(output: str) -> Iterator[list[Predictions]]:
    """Yield a list for what an output says of itself; from then on no error undoes the answers."""
    whole: list[Predictions] = []
    try:
        yield whole
    except Exception as error:  # of MLflow, of its store or of the network
        if not whole:
            raise
        LOGGER.warning(
            f"{shown(output)} is whole, but run {whole[0].run_id} could not be told all of it: "
            f"{messages.reason(error)}"
        )
        whole.clear()


def _answer_here(
    settings: Predict, request: answers.PredictRequest, output: Path, called: str
) -> Predicted:
    """Answer all rows in this process, into an output that is called so."""
    source = tables.open_table("data", settings.data, None)
    features = answers.check_columns(request, settings.data, source.columns)
    answers.check_free(output, overwrite=settings.overwrite)
    some_rows = next(source.batches(tables.SOME_ROWS))
    name = f"predict {request.model.name}"
    with _warn_once_whole(called) as whole, runs.open_run(name, request.record.base.name) as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        with answers.new_folder(output, overwrite=settings.overwrite) as folder:
            LOGGER.info(f"loading {request.model.uri}")
            model = models.load_model(request.model.uri)
            batches = answers.answer_table(model, source, features, request, settings.batch_rows)
            part_rows = PART_BATCHES * settings.batch_rows
            written = answers.write_answers(output, folder, batches, source.columns, part_rows)
            if not _some_scored(written, source.n_rows):
                row = some_rows[features].head(1)
                raise answers.none_scored(model, row, request.inputs, settings.data)
            record = make_record(settings, request, written, run_id)
            answers.write_manifest(output, folder, record)
        whole.append(record)
        log_predictions(record, some_rows, called)
    return Predicted(output=called, logged=bool(whole), predictions=record)


def _answer_in_spark(
    settings: Predict, request: answers.PredictRequest, options: dict[str, str]
) -> Predicted:
    """Answer all rows in Spark's workers, which write the output themselves."""
    from scrib_mlflow.predictions import spark  # noqa: PLC0415  # an extra

    place, name = spark.output_place(settings.output, settings.data), request.record.base.name
    with (
        _warn_once_whole(settings.output) as whole,
        spark.open_table(options, settings.data, settings.batch_rows) as frame,
    ):
        features = answers.check_columns(request, settings.data, tuple(frame.columns))
        mode = spark.check_free(frame.sparkSession, place, overwrite=settings.overwrite)
        digest, n_rows = spark.digest_rows(frame)
        with runs.open_run(f"predict {request.model.name}", name) as run_id:
            runs.log_parameters(run_id, settings.model_dump())
            LOGGER.info(f"loading {request.model.uri}, and {doing('spark', n_rows)}")
            answered = spark.with_answers(frame, features, request)
            answered.write.mode(mode).parquet(place)  # `_SUCCESS` says that its job has finished
            written = spark.read_back(answered, place, digest, request)
            some_rows = spark.first_rows(frame, tables.SOME_ROWS)
            if not _some_scored(written, n_rows):
                spark.delete(frame.sparkSession, place)
                model = models.load_model(request.model.uri)
                row = some_rows[features].head(1)
                raise answers.none_scored(model, row, request.inputs, settings.data)
            record = make_record(settings, request, written, run_id)
            spark.write_manifest(frame.sparkSession, place, record)
            whole.append(record)
            log_predictions(record, some_rows, settings.output)
    return Predicted(output=settings.output, logged=bool(whole), predictions=record)


def _some_scored(written: answers.Written, n_rows: int) -> bool:
    """Return whether any row could be scored; raise unless there is an answer to each row."""
    if written.n_rows != n_rows:
        raise OutputError(
            f"data had {n_rows:,} rows, but {written.n_rows:,} answers were written, so the output "
            f"gets no {answers.MANIFEST}; delete it if it is there, and run the same command again "
            "when nothing writes to the data or the output"
        )
    return written.reasons[answers.INVALID] < n_rows


def make_record(
    settings: Predict, request: answers.PredictRequest, written: answers.Written, run_id: str
) -> Predictions:
    """Return what an output says of itself."""
    n_rows = written.n_rows
    abstained = {reason: n for reason, n in sorted(written.reasons.items()) if reason}
    source = shown(settings.data)
    data = DataRecord(source=source, digest=written.digest, n_rows=n_rows, n_used=n_rows)
    return Predictions(
        model_uri=request.model.uri,
        certificate_digest=request.certificate_digest,
        data=data,
        key=settings.key,
        explain=settings.explain,
        engine=settings.engine,
        n_rows=n_rows,
        n_abstained=sum(abstained.values()),
        reasons=abstained,
        columns=written.columns,
        parts=tuple(PartRecord(name=name, n_rows=n) for name, n in sorted(written.parts.items())),
        run_id=run_id,
        written_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        package_version=scrib_mlflow.__version__,
    )


def log_predictions(record: Predictions, some_rows: pd.DataFrame, output: str) -> None:
    """Log which rows were answered, and how often the model abstained."""
    runs.log_table_input(some_rows, record.data, None, "predict")
    share = record.n_abstained / record.n_rows
    counts = {name: float(record.reasons.get(reason, 0)) for reason, name in COUNTED.items()}
    runs.log_metrics({"n_rows": float(record.n_rows), "abstention_rate": share, **counts})
    runs.set_tags(
        {runs.MODEL_URI: record.model_uri, "scrib.data_digest": record.data.digest},
        words.escaped(
            f"{record.model_uri} answered {record.n_rows:,} rows of {record.data.source} into "
            f"{shown(output)} and abstained on {percent(share)} of them."
        ),
    )
    runs.log_texts_and_figures({"predictions.json": to_json(record)}, {})


def summary(done: Predicted) -> str:
    """Return what a person wants to see at the end."""
    record = done.predictions
    by_reason = ", ".join(f"{n:,} {reason}" for reason, n in record.reasons.items())
    share, files = record.n_abstained / record.n_rows, len(record.parts)
    return "\n".join(
        [
            f"{record.model_uri} answered {record.n_rows:,} rows into {done.output}"
            + f": {files} parquet file{'s' * (files > 1)}" * (done.answers is None),
            f"It abstains on {percent(share)} of the rows{': ' if by_reason else ''}{by_reason}.",
            f"{'logged to' if done.logged else 'not all of it is logged to'} run {record.run_id}",
        ]
    )
