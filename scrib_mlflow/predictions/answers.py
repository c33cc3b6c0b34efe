"""Answers to the rows of a table, also to rows that MLflow would refuse, and their folder.

The folder is whole or not there: files are written to a new folder next to the output, which gets
the output's name at the end.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from mlflow.exceptions import MlflowException
from mlflow.types import DataType
from numpy.typing import NDArray

from scrib_mlflow import messages, preflight, serving
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, OutputError
from scrib_mlflow.records import Base
from scrib_mlflow.results import Predictions, SetClassifier, to_json
from scrib_mlflow.rows import hashes, tables

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel
    from mlflow.types import Schema

LOGGER = logging.getLogger(__name__)

MANIFEST = "_scrib.json"
PARTIAL, REPLACED = ".partial-", ".replaced-"  # what follows the output's name, before a number
INVALID = "invalid_scores"
COPY = re.compile("tmp[a-z0-9_]{8}")  # the folder of a project that MLflow has fetched
LONGEST_ROW = 200  # characters of a row in an error
SERVED = {  # columns and their types, those of the served model's signature
    "prediction": pa.string(),
    "abstain": pa.bool_(),
    "reason": pa.string(),
    "prediction_set": pa.list_(pa.string()),
    "set_size": pa.int64(),
    "candidates": pa.list_(pa.string()),
    "more_candidates": pa.int64(),
    "classes": pa.list_(pa.string()),  # with explain, as the numbers that follow
}
NUMBERS = pa.list_(pa.float64())
Answers = tuple[pa.Table, NDArray[np.uint64]]  # to a batch of rows, and the sums of its digest
GAPLESS = {DataType.integer: np.int64, DataType.long: np.int64, DataType.boolean: np.bool_}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """Which set classifier answers, and which columns the output has."""

    model: Base
    record: SetClassifier
    certificate_digest: str
    inputs: Schema | None
    key: tuple[str, ...]
    explain: bool
    parameters: dict[str, bool]  # of the model

    def columns(self) -> dict[str, pa.DataType]:
        """Return the columns of answers, and their types."""
        return {name: SERVED.get(name, NUMBERS) for name in self.invalid(1)}

    def invalid(self, n: int) -> dict[str, Any]:
        """Return the answers to rows that cannot be scored."""
        record, rule = self.record, asdict(self.record.rule)
        scores = np.full((n, len(record.classes)), np.nan)
        columns = serving.served_columns(rule, scores, record.classes)
        if self.explain:
            known = record.class_miscoverage, record.classes
            columns |= serving.explained_columns(rule, scores, *known)
            if rule.get("max_candidates") is None:  # as versions of before serve it
                del columns["classes"]
        return columns


class Written(NamedTuple):
    """What an output holds."""

    digest: str  # of the rows that were answered
    columns: dict[str, str]  # types by name
    parts: dict[str, int]  # rows by the name of the file
    reasons: Counter[str]  # rows by why they abstain, "" where they do not

    @property
    def n_rows(self) -> int:
        """Return the number of answers."""
        return sum(self.parts.values())


def check_columns(request: PredictRequest, data: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that the model takes; raise where one is missing, or names an answer."""
    for name in request.key:
        tables.named_columns(tables.called("data", data), {"key": name}, columns)
        if name in request.columns():
            raise InvalidSettingsError(
                f"key names {name!r}, which is also a column of the answers; rename that column of "
                "the data, or leave it out of key"
            )
        if request.key.count(name) > 1:
            raise InvalidSettingsError(f"key names {name!r} more than once")
    return tables.feature_names(tables.called("data", data), columns, request.inputs, request.key)


def answer_table(
    model: PyFuncModel,
    source: tables.Source,
    features: list[str],
    request: PredictRequest,
    batch_rows: int,
) -> Iterator[Answers]:
    """Yield the answers to all rows in order, with their key columns, so many at a time."""
    predict, start = partial(model.predict, params=request.parameters), 0
    with messages.progress(what="answering data", unit="rows", total=source.n_rows) as bar:
        for rows, key in _batches(source, batch_rows, list(request.key)):
            table = answer(predict, rows[features], request, start)
            for i, name in enumerate(request.key):
                table = table.add_column(i, key.schema.field(name), key.column(name))
            yield table, hashes.digest_sums(hashes.row_hashes(rows))
            start += len(rows)
            bar.update(len(rows))
    source.check_unchanged()


def _batches(
    source: tables.Source, most: int, key: list[str]
) -> Iterator[tuple[pd.DataFrame, pa.Table]]:
    """Yield rows in pandas, and their key columns in Arrow.

    pandas makes whole numbers with gaps floats, which cannot hold every one of them.
    """
    if isinstance(source.held, pd.DataFrame):
        columns = _plain(pa.Table.from_pandas(source.held[key], preserve_index=False))
        for i, rows in enumerate(source.batches(most)):
            yield rows, columns.slice(i * most, most)
        return
    for batch in source.record_batches(most, source.columns):
        with tables.readable(source.name):
            columns = _plain(pa.Table.from_batches([batch]).select(key))
            rows = batch.to_pandas(ignore_metadata=True)
        yield rows, columns


def _plain(table: pa.Table) -> pa.Table:
    """Return columns as parquet has them, without what pandas made of texts and categories."""
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_large_string(kind) else kind))
    return table.cast(pa.schema(fields))


def answer(
    predict: Callable[[pd.DataFrame], Any],
    rows: pd.DataFrame,
    request: PredictRequest,
    start: int | None,
) -> pa.Table:
    """Return one answer per row of features; a row that cannot be scored abstains.

    `start` is the number of the first row in its table, for errors; None where rows have none.
    """
    whole = _whole_rows(rows, request.inputs)
    # also where this batch has no gaps: one elsewhere may have made floats of whole numbers
    valid = _without_gaps(rows[whole], request.inputs)
    answers: Any = request.invalid(0)
    try:
        if len(valid):
            answers = predict(valid)
    except MlflowException as error:
        if serving.NONE_SCORED not in str(error):
            which = f"{len(valid):,} rows of data that begin with "
            which += str(valid.iloc[0].to_dict())[:LONGEST_ROW]
            if start is not None:
                which = f"rows {start} to {start + len(rows) - 1} of data"
            raise InvalidDataError(f"the model refuses {which}: {_refusal(error)}") from error

    def typed(columns: Any) -> pa.Table:
        kinds = request.columns().items()
        return pa.table({name: pa.array(columns[name], type=kind) for name, kind in kinds})

    table = typed(answers)
    if table.num_rows == len(whole):
        return table
    padded = pa.concat_tables([table, typed(request.invalid(1))])
    row_numbers = np.full(len(whole), table.num_rows)  # of the abstention at the end
    if table.num_rows:
        row_numbers[whole] = np.arange(table.num_rows)
    return padded.take(pa.array(row_numbers))


def count_reasons(table: pa.Table) -> Counter[str]:
    """Return how many rows have which reason; it is "" where a label is given."""
    return Counter(table.column("reason").to_pylist())


def none_scored(
    model: PyFuncModel, row: pd.DataFrame, inputs: Schema | None, data: str
) -> InvalidDataError:
    """Return the error of a table that the model cannot score, with what it says of a row."""
    why = "it gives no finite scores"
    try:
        model.predict(tables.as_typed(row, inputs))
    except Exception as error:  # whatever it is, the user wants to know
        why = messages.reason(error)
    return InvalidDataError(
        f"not one row of {tables.called('data', data)} can be scored, so no output was made; the "
        f"model says of the first row: {why}"
    )


def _refusal(error: Exception) -> str:
    """Return why MLflow refuses rows, without the rows and the schema that it repeats before."""
    _, marker, why = str(error).rpartition("Error: ")
    return messages.reason(ValueError(why) if marker else error)


def _whole_rows(rows: pd.DataFrame, inputs: Schema | None) -> NDArray[np.bool_]:
    """Return which rows have a value wherever the signature asks for whole numbers or truths.

    MLflow refuses a batch for one that is missing, because pandas then holds the others as floats.
    """
    missing = np.zeros(len(rows), dtype=np.bool_)
    for name in _gapless(rows, inputs):
        missing |= rows[name].isna().to_numpy()
    return ~missing


def _without_gaps(rows: pd.DataFrame, inputs: Schema | None) -> pd.DataFrame:
    """Return rows without missing values with the types that they would have had without gaps."""
    kinds = _gapless(rows, inputs)
    exact = {name: kind for name, kind in kinds.items() if _may_be(rows[name], kind)}
    return tables.as_typed(rows.astype(exact).reset_index(drop=True), inputs)


def _may_be(values: pd.Series, kind: Any) -> bool:
    if kind is np.bool_:
        return values.dtype == np.object_ and all(isinstance(value, bool) for value in values)
    whole = values.dtype.kind == "f" and (values % 1 == 0) & (values.abs() <= 2**53)
    return bool(np.all(whole))


def _gapless(rows: pd.DataFrame, inputs: Schema | None) -> dict[str, Any]:
    """Return the columns that hold no missing values by the signature."""
    if inputs is None or inputs.is_tensor_spec():
        return {}
    names = tables.input_names(inputs) or [str(name) for name in rows.columns]
    kinds = zip(names, inputs.input_types(), strict=False)  # MLflow refuses a wrong number of them
    return {
        name: GAPLESS[kind]
        for name, kind in kinds
        if name in rows and isinstance(kind, DataType) and kind in GAPLESS
    }


def local_path(place: str) -> Path | None:
    """Return a path of this machine's file system, None where a URI means another one."""
    path = preflight.local_path(place)
    return None if path is None else Path(path)


def check_apart(output: Path, data: str) -> None:
    """Raise where the output cannot be a folder of its own, apart from the data."""
    if output.name in {"", ".", ".."}:
        raise OutputError(f"output is {str(output)!r}; name a folder that is not there yet")
    if output.is_symlink() or output.is_mount():
        raise OutputError(
            f"output {output} is a link or a mount, which cannot be replaced; name a folder in it"
        )
    source = local_path(data)
    if source is None:
        return
    written, read = output.resolve(), source.resolve()
    if written == read or written in read.parents:
        raise OutputError(f"output {output} holds the data {data}; choose another folder")
    if read in written.parents:
        raise OutputError(
            f"output {output} lies inside the data folder {data}, so it would be read as data the "
            "next time; choose a folder elsewhere"
        )


def check_kept(output: Path) -> None:
    """Raise where an output would lie in the copy of a project that `mlflow run` has made."""
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    copies = Path(tempfile.gettempdir()).resolve()
    for folder in output.resolve().parents:
        copied = folder.parent == copies and COPY.fullmatch(folder.name)
        if copied and any((folder / name).exists() for name in (".git", "MLproject")):
            raise OutputError(
                f"output {output} would be {output.resolve()}, in the temporary copy that mlflow "
                "run made of the project, where nobody looks for it; give the absolute path of a "
                "folder elsewhere"
            )


def check_free(output: Path, *, overwrite: bool) -> None:
    """Raise where something is at the output that may not be replaced."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        check_replaceable(output, ours=(output / MANIFEST).is_file(), overwrite=overwrite)


def check_replaceable(output: Path | str, *, ours: bool, overwrite: bool) -> None:
    """Raise unless an output is one that `predict` wrote, and may be replaced."""
    if not ours:
        raise OutputError(
            f"output {output} is there and was not written by predict, or not to its end: it has "
            f"no {MANIFEST}; choose another folder, or delete it yourself"
        )
    if not overwrite:
        raise OutputError(f"output {output} is there; replace it with overwrite=true")


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say what to do where the output cannot be written."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
        raise OutputError(
            f"output {output} cannot be written: {why}; make room or choose another folder, and "
            "run the same command again"
        ) from error


@contextmanager
def new_folder(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder that becomes the output at the end; if anything fails, it is deleted."""
    folder = _next_to(output, PARTIAL)
    with writing(output):
        folder.mkdir(parents=True)
    try:
        _name_leftovers(output, folder)
        yield folder
        with writing(output):
            _put(folder, output, overwrite=overwrite)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _next_to(output: Path, ending: str) -> Path:
    return output.with_name(f"{output.name}{ending}{uuid4().hex[:12]}")


def _name_leftovers(output: Path, folder: Path) -> None:
    """Log what other runs left: it may be of a run that goes on, so it is not ours to delete."""
    endings = (output.name + PARTIAL, output.name + REPLACED)
    for path in sorted(output.parent.iterdir()):
        if path.name.startswith(endings) and path != folder:
            LOGGER.warning(
                f"{path} is left of a predict that was killed, unless that still runs; delete it "
                "if you do not need it"
            )


def _put(folder: Path, output: Path, *, overwrite: bool) -> None:
    """Rename a folder to the output; an output that is there is deleted once this is done."""
    check_free(output, overwrite=overwrite)  # again: another run may have been faster
    old = _next_to(output, REPLACED)
    if output.exists():
        output.rename(old)
    try:
        folder.rename(output)
    except BaseException:
        if old.exists() and not output.exists():
            old.rename(output)
        raise
    _sync(output.parent)
    if (old / MANIFEST).is_file() or (old.exists() and not any(old.iterdir())):
        shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        LOGGER.warning(f"{old} is what {output} was before; it could not be deleted")


def write_answers(
    output: Path, folder: Path, batches: Iterable[Answers], columns: tuple[str, ...], most: int
) -> Written:
    """Write answers as parquet files of about so many rows; `columns` are those of the data."""
    sums = np.zeros(5, dtype=np.uint64)
    reasons: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    parts: dict[str, int] = {}
    waiting: list[pa.Table] = []

    def write_part() -> None:
        part = pa.concat_tables(waiting)
        waiting.clear()
        kinds.update({field.name: str(field.type) for field in part.schema})
        name = f"part-{len(parts):05d}.parquet"
        parts[name] = part.num_rows
        with writing(output), (folder / name).open("wb") as file:
            pq.write_table(part, file)
            _flush(file)

    for table, digest_sums in batches:
        sums += digest_sums
        reasons += count_reasons(table)
        waiting.append(table)
        if sum(map(len, waiting)) >= most:
            write_part()
    if waiting:
        write_part()
    digest = hashes.digest_of(columns, sums)
    return Written(digest=digest, columns=kinds, parts=parts, reasons=reasons)


def read_answers(folder: Path, index: pd.Index) -> pd.DataFrame:
    """Return the answers that a folder holds, as the model serves them, under an index."""
    names = sorted(str(path) for path in folder.glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(name) for name in names])
    columns = {
        name: values.to_pylist() if pa.types.is_list(values.type) else values.to_pandas()
        for name, values in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns).set_axis(index)


def write_manifest(output: Path, folder: Path, record: Predictions) -> None:
    """Write what an output says of itself, which makes it whole."""
    with writing(output), (folder / MANIFEST).open("wb") as file:
        file.write(to_json(record).encode())
        _flush(file)
    _sync(folder)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do so."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
