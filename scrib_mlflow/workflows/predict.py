"""Predict: answer the rows of a table with a registered set classifier, into parquet files."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from mlflow.pyfunc import PyFuncModel

import scrib_mlflow
from scrib_mlflow import messages
from scrib_mlflow.engines.opening import session_options
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError
from scrib_mlflow.messages import nearest, progress
from scrib_mlflow.options import Predict
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.predictions import answers, files
from scrib_mlflow.records import DataRecord, seal
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.registry.models import read_stored
from scrib_mlflow.results import Predictions, to_json
from scrib_mlflow.rows import hashes, scoring, tables

LOGGER = logging.getLogger(__name__)

COUNTED = {"ambiguous": "n_ambiguous", "empty": "n_empty", "invalid_scores": "n_invalid"}
PART_BATCHES = 10  # batches of a part: what a run that is stopped can lose
SOME_ROWS = 1000  # of the data, for the record of a run


def make_record(
    settings: Predict, model_uri: str, certificate_digest: str, run_id: str
) -> Predictions:
    """Return a record of answers before any are counted."""
    return Predictions(
        model_uri=model_uri,
        certificate_digest=certificate_digest,
        data=DataRecord(source=settings.data, digest="", n_rows=0, n_used=0),
        key=settings.key,
        explain=settings.explain,
        engine=settings.engine,
        n_rows=0,
        n_abstained=0,
        reasons={},
        columns={},
        parts=(),
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
        f"{record.model_uri} answered {record.n_rows:,} rows of {record.data.source} into "
        f"{output} and abstained on {share:.1%} of them.",
    )
    runs.log_texts_and_figures({"predictions.json": to_json(record)}, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Answers to the rows of a table, and where they are."""

    output: str
    already: bool  # whether they were there, of the same model and the same rows
    kept: int  # parts that an earlier run had finished
    predictions: Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be answered, and by which model."""

    settings: Predict
    model_uri: str  # with a version's number
    name: str
    certificate_digest: str
    asked: answers.PredictRequest

    def plan(self) -> dict[str, Any]:
        """Return what must be the same for the parts of an earlier run to be of use."""
        chosen = self.settings
        return {
            "model_uri": self.model_uri,
            "certificate_digest": self.certificate_digest,
            "source": chosen.data,
            "key": list(chosen.key),
            "explain": chosen.explain,
            "batch_rows": chosen.batch_rows,
            "engine": chosen.engine,
        }

    def made(self, known: Predictions) -> bool:
        """Return whether answers are those of this model, with the columns that are asked for."""
        wanted = (self.model_uri, self.certificate_digest, self.settings.key, self.settings.explain)
        return wanted == (known.model_uri, known.certificate_digest, known.key, known.explain)


def predict(model_uri: str, data: str, output: str, **parameters: Any) -> Predicted:
    """Answer the rows of a table with a registered set classifier, into parquet files.

    Parameters
    ----------
    model_uri : str
        A set classifier that `calibrate` registered: ``models:/NAME/VERSION``,
        ``models:/NAME@ALIAS`` or ``models:/m-ID``.
    data : str
        Rows to answer: parquet or csv, by path or URI; with ``engine="spark"`` whatever Spark
        reads, a table of its catalog included.
    output : str
        Folder that gets the answers. It is there when all rows are answered, and not before.
    **parameters
        Those of ``python -m scrib_mlflow predict --help``.

    Returns
    -------
    Predicted
        How many rows abstained, and why; `pandas.read_parquet` reads the folder.
    """
    values = {"model_uri": model_uri, "data": data, "output": output, **parameters}
    return run(read_settings(Predict, values))


def run(settings: Predict) -> Predicted:
    """Do what `predict` does."""
    session_options(settings.engine, settings.spark_options)  # before anything is looked up
    with stores.short_waits():
        stores.check_stores()
        found = stores.find_model(settings.model_uri)
        stored = read_stored(found.uri)
        signature = stores.model_info(found.uri).signature
    job = Job(
        settings=settings,
        model_uri=found.uri,
        name=found.name,
        certificate_digest=seal(stored.text),
        asked=answers.PredictRequest(
            record=stored.record,
            inputs=signature.inputs if signature else None,
            explain=settings.explain,
        ),
    )
    if settings.engine == "spark":
        from scrib_mlflow.workflows.predict_spark import answer_table  # noqa: PLC0415  # optional

        return answer_table(job)
    return _answer_table(job)


def _answer_table(job: Job) -> Predicted:
    """Answer all rows in this process, part by part."""
    output = files.local_path(job.settings.output)
    if output is None:
        raise InvalidSettingsError(
            f"output is {job.settings.output!r}, but engine=local writes to a local folder only"
        )
    files.check_apart(output, job.settings.data)
    source = tables.open_table("data", job.settings.data, None)
    check_columns(job, source.columns)
    known = already_there(job, output, lambda: tables.digest(source))
    if known is not None:
        return known
    with runs.open_run(f"predict {job.name}") as run_id:
        runs.log_parameters(run_id, job.settings.model_dump())
        with files.writing(output):
            folder, why_anew = files.begin(output, job.plan())
        if why_anew:
            LOGGER.info(f"starting anew: {why_anew}")
        LOGGER.info(f"loading {job.model_uri}")
        record = make_record(job.settings, job.model_uri, job.certificate_digest, run_id)
        with files.worth_keeping(folder):
            model = scoring.load_model(job.model_uri)
            record, kept = _answer_parts(job, model, source, folder, record)
        if kept:
            LOGGER.info(f"kept {kept} of {len(record.parts)} parts of an earlier run")
        if record.reasons.get(answers.INVALID, 0) == source.n_rows:
            files.give_up(output)
            raise none_scored(model, tables.first_rows(source, 1), job)
        source.check_unchanged()
        with files.writing(output):
            files.finish(output, folder, record)
        log_predictions(record, tables.first_rows(source, SOME_ROWS), str(output))
    return Predicted(output=str(output), already=False, kept=kept, predictions=record)


def check_columns(job: Job, columns: tuple[str, ...]) -> None:
    """Raise where the data lack a column, or one has the name of an answer."""
    served = job.asked.columns()
    for name in job.settings.key:
        if name not in columns:
            msg = f"data {job.settings.data} has no column {name!r}, which key names; "
            raise InvalidDataError(msg + nearest(name, columns))
        if name in served:
            raise InvalidSettingsError(
                f"key names {name!r}, which is also a column of the answers; rename that column of "
                "the data, or leave it out of key"
            )
    twice = [name for name, n in Counter(job.settings.key).items() if n > 1]
    if twice:
        raise InvalidSettingsError(f"key names {twice[0]!r} more than once")
    empty = pd.DataFrame(columns=list(columns))
    if tables.features(empty, job.asked.inputs, job.settings.key) is None:
        lacking = tables.missing_features(empty, job.asked.inputs)
        raise InvalidDataError(f"data {job.settings.data} cannot be scored: {lacking}")


def already_there(job: Job, output: Path, digest: Callable[[], str]) -> Predicted | None:
    """Return the answers that are there, None where there are none or they are to be replaced."""
    if not files.is_taken(output):
        return None
    known = files.read_manifest(output)
    if known is not None and job.made(known) and known.data.digest == digest():
        LOGGER.info(f"{output} is there, of the same model and the same rows: nothing to do")
        return Predicted(output=str(output), already=True, kept=0, predictions=known)
    files.check_replaceable(output, known, overwrite=job.settings.overwrite)
    return None


def _answer_parts(
    job: Job, model: PyFuncModel, source: tables.Source, folder: Path, record: Predictions
) -> tuple[Predictions, int]:
    """Answer the rows that no part has an answer for; return the record, and the parts kept."""
    size = job.settings.batch_rows * PART_BATCHES
    made_by = seal(json.dumps(job.plan()))
    sums = np.zeros(5, dtype=np.uint64)
    reasons: Counter[str] = Counter()
    parts: dict[str, int] = {}
    columns: dict[str, str] = {}
    kept = 0
    with progress(what="answering data", unit="rows", total=source.n_rows) as bar:
        for number, piece in enumerate(tables.pieces(source, size, job.settings.key)):
            own = hashes.digest_sums(hashes.row_hashes(piece.rows))
            sums += own
            name, n = f"part-{number:05d}.parquet", len(piece.rows)
            footer = json.dumps({"rows": hashes.digest_of(source.columns, own), "by": made_by})
            columns = columns or _types(piece.kept, job)
            found = files.read_part(folder / name, footer, n)
            if found is None:
                table = _answer_piece(job, model, piece, bar)
                with files.writing(job.settings.output):
                    files.write_part(folder, name, table, footer)
                found = files.count_reasons(table)
            else:
                kept += 1
                bar.update(n)
            reasons += found
            parts[name] = n
    digest = hashes.digest_of(source.columns, sums)
    data = DataRecord(
        source=job.settings.data, digest=digest, n_rows=source.n_rows, n_used=source.n_rows
    )
    return with_counts(replace(record, data=data, columns=columns), reasons, parts), kept


def with_counts(record: Predictions, reasons: Counter[str], parts: dict[str, int]) -> Predictions:
    """Return the record with what was counted, and the files that hold it."""
    abstained = {reason: n for reason, n in sorted(reasons.items()) if reason}
    return replace(
        record,
        n_rows=sum(reasons.values()),
        n_abstained=sum(abstained.values()),
        reasons=abstained,
        parts=files.part_records(parts),
    )


def _answer_piece(job: Job, model: PyFuncModel, piece: tables.Piece, bar: Any) -> pa.Table:
    """Return the rows of a part: the columns kept, and the answers."""
    parts = []
    for start, batch in _batches(piece.rows, job.settings.batch_rows):
        given = tables.features(batch, job.asked.inputs, job.settings.key)
        assert given is not None  # noqa: S101  # for mypy; told before
        parts.append(answers.answer(model, given, job.asked, piece.start + start))
        bar.update(len(batch))
    table = pa.concat_tables(parts)
    for place, name in enumerate(job.settings.key):
        table = table.add_column(place, piece.kept.schema.field(name), piece.kept.column(name))
    return table


def _batches(rows: pd.DataFrame, most: int) -> Iterator[tuple[int, pd.DataFrame]]:
    for start in range(0, len(rows), most):
        yield start, rows.iloc[start : start + most].reset_index(drop=True)


def _types(kept: pa.Table, job: Job) -> dict[str, str]:
    keys = {name: str(kept.schema.field(name).type) for name in job.settings.key}
    return keys | {name: str(kind) for name, kind in job.asked.columns().items()}


def none_scored(model: PyFuncModel, row: pd.DataFrame, job: Job) -> InvalidDataError:
    """Return the error of a table that the model cannot score, with what it says of a row."""
    given = tables.features(row, job.asked.inputs, job.settings.key)
    why = "it gives no finite scores"
    try:
        model.predict(given)
    except Exception as error:  # whatever it is, the user wants to know
        why = messages.reason(error)
    return InvalidDataError(
        f"not one row of data {job.settings.data} can be scored, so no output was made; the model "
        f"says of the first row: {why}"
    )


def summary(done: Predicted) -> str:
    """Return what a person wants to see at the end."""
    found = done.predictions
    if done.already:
        first = f"{done.output} holds the answers of {found.model_uri} to these rows already"
    else:
        first = f"{found.model_uri} answered {found.n_rows:,} rows into {done.output}"
    by_reason = ", ".join(f"{n:,} {reason}" for reason, n in found.reasons.items())
    share = found.n_abstained / found.n_rows
    return "\n".join(
        [
            f"{first}: {len(found.parts)} parquet files",
            f"It abstains on {share:.1%} of the rows{': ' if by_reason else ''}{by_reason}.",
            f"logged to run {found.run_id}",
        ]
    )
