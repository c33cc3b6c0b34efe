"""Tables of parquet and csv files: opened, read in batches, with labels, keys and groups."""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from mlflow.types import DataType, Schema
from numpy.typing import NDArray

from scrib_mlflow.core.inputs import (
    check_labels,
    distinct_values,
    fill_rows,
    new_array,
    sorted_values,
)
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.messages import nearest, progress, reason
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes

BATCH_ROWS = 100_000
SOME_ROWS = 1000  # that show what the columns of a table are
UNLABELLED = -1  # in place of a class index
WHOLE = re.compile(r"(0|[1-9][0-9]*)(\.0+)?")
UNNAMED = re.compile(r"__index_level_[0-9]+__")  # an index of pandas that means nothing
NOTHING = {"NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None"}
# Without it pandas 2 loses last bits; pandas 3 never does.
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if pd.__version__ < "3" else {}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that can be read part by part, as often as needed."""

    name: str  # the parameter that names it, and where it is: for errors
    columns: tuple[str, ...]
    n_rows: int
    held: pd.DataFrame | ds.Dataset  # a csv's rows, or parquet files that stay where they are
    state: tuple[tuple[str, int, int], ...] = ()  # name, size and time of each of these files

    def check_unchanged(self) -> None:
        """Raise where the files are not those that were opened: rows of two states do not mix."""
        if not isinstance(self.held, pd.DataFrame) and _state(self.held) != self.state:
            raise InvalidDataError(
                f"{self.name} changed while it was read; run it again when nothing writes to it"
            )

    def batches(
        self, most: int = BATCH_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, so many at a time at most, with all columns or some."""
        wanted = list(self.columns if columns is None else columns)
        if isinstance(self.held, pd.DataFrame):
            for start in range(0, self.n_rows, most):
                yield self.held[wanted].iloc[start : start + most].reset_index(drop=True)
            return
        for part in self.record_batches(most, wanted):
            yield part.to_pandas(ignore_metadata=True)

    def record_batches(self, most: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow holds them, of parquet files one row group after the other.

        A scan of the whole would read ahead of slow consumers, up to a gigabyte.
        """
        if isinstance(self.held, pd.DataFrame):
            table = pa.Table.from_pandas(self.held[list(columns)], preserve_index=False)
            yield from table.to_batches(max_chunksize=most)
            return
        try:
            for file in self.held.get_fragments():
                for group in file.split_by_row_group():
                    for part in group.to_batches(
                        schema=self.held.schema, columns=list(columns), batch_size=most
                    ):
                        if part.num_rows:
                            yield part
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.name, error) from error

    def take(
        self, row_numbers: NDArray[np.int64], columns: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Return the rows of ascending numbers, reading no further than the last of them."""
        taken, start = [], 0
        last = int(row_numbers[-1]) if len(row_numbers) else -1
        for batch in self.batches(columns=columns):
            end = start + len(batch)
            inside = row_numbers[(row_numbers >= start) & (row_numbers < end)]
            taken.append(batch.iloc[inside - start])
            start = end
            if start > last:
                break
        return pd.concat(taken, ignore_index=True)


def open_table(name: str, place: str, label: str | None) -> Source:
    """Return the table at a path or URI, which must have the label column if one is named.

    Parquet stays in its files; a csv is read as a whole, because only all of a column tells what it
    holds. Labels of a csv are text: "NA", "None" and "01" are names, not something missing.
    """
    folder = tempfile.mkdtemp() if _is_elsewhere(place) else None
    try:
        source = _open(name, place, label, folder)
    except BaseException:
        _delete(folder)
        raise
    weakref.finalize(source, _delete, folder)
    return source


def _delete(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _open(name: str, place: str, label: str | None, folder: str | None) -> Source:
    path = _local(name, place, folder)
    named = f"{name} {place}"
    held: pd.DataFrame | ds.Dataset
    state: tuple[tuple[str, int, int], ...] = ()
    try:
        if _is_csv(path):
            held = read_csv(path, label)
            columns, n_rows = [str(column) for column in held.columns], len(held)
        else:
            # in a folder, not on the way to a file, names such as year=2026 are columns
            parted = "hive" if path.is_dir() else None
            held = ds.dataset(path, format="parquet", partitioning=parted)
            if not held.files:
                raise ValueError("there are no parquet files in it")  # noqa: TRY301  # worded like pyarrow's
            columns = [column for column in held.schema.names if not UNNAMED.fullmatch(column)]
            n_rows, state = held.count_rows(), _state(held)
    except Exception as error:
        raise _unreadable(named, error) from error
    if label is not None and label not in columns:
        raise InvalidDataError(
            f"{named} has no column {label!r} for the labels; {nearest(label, columns)}"
        )
    if n_rows == 0:
        raise InvalidDataError(f"{named} has no rows")
    return Source(name=named, columns=tuple(columns), n_rows=n_rows, held=held, state=state)


def _state(files: ds.Dataset) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of the files, size -1 of one that is gone."""
    stats = {name: Path(name).stat() if Path(name).exists() else None for name in files.files}
    return tuple(
        (name, stat.st_size, stat.st_mtime_ns) if stat else (name, -1, -1)
        for name, stat in stats.items()
    )


def _unreadable(name: str, error: Exception) -> InvalidDataError:
    return InvalidDataError(f"{name} cannot be read: {reason(error)}")


def _is_elsewhere(place: str) -> bool:
    return len(urlsplit(place).scheme) > 1  # one letter is a Windows drive


def _local(name: str, place: str, folder: str | None) -> Path:
    """Return the path of a file, downloaded where it is elsewhere."""
    path = Path(place)
    if _is_elsewhere(place):
        try:
            path = Path(mlflow.artifacts.download_artifacts(artifact_uri=place, dst_path=folder))
        except Exception as error:  # each kind of store has errors of its own
            raise InvalidDataError(
                f"{name} {place} cannot be downloaded: {reason(error)}"
            ) from error
    if not path.exists():
        raise InvalidDataError(
            f"{name} {place} does not exist; a relative path is looked up in {Path.cwd()}"
        )
    return path


def _is_csv(path: Path) -> bool:
    suffixes = "".join(path.suffixes[-2:]).lower()
    if suffixes.endswith((".csv", ".csv.gz")):
        return True
    if path.is_dir() or suffixes.endswith((".parquet", ".pq")):
        return False
    raise ValueError(f"the ending of {path.name!r} is none of .parquet, .pq, .csv and .csv.gz")


def read_csv(path: Path, label: str | None) -> pd.DataFrame:
    """Return a csv's rows; without the label's column only its header."""
    header = pd.read_csv(path, nrows=0, index_col=False)
    if label is not None and label not in header.columns:
        return header
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more values than columns
        table = pd.read_csv(
            path,
            index_col=False,
            dtype={} if label is None else {label: str},
            keep_default_na=False,
            na_values={name: [""] for name in header.columns if name != label},
            **EXACT,
        )
    return table.assign(**{name: _as_numbers(table[name]) for name in _texts(table, label)})


def _texts(table: pd.DataFrame, label: str | None) -> list[str]:
    """Return the columns of texts that are not labels."""
    texts = table.select_dtypes(include=["object", "string"]).columns
    return [str(name) for name in texts if name != label]


def _as_numbers(texts: pd.Series) -> pd.Series:
    """Return numbers where all texts but "NA" and the like are numbers; "NA" may be a word."""
    there = texts.where(~texts.isin(NOTHING))
    try:
        return pd.to_numeric(there)
    except ValueError:
        return texts


def label_indices(
    values: pd.Series,
    classes: tuple[str, ...],
    *,
    place: str,
    codes: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Return labels as class indices; whole numbers in text are indices where no name says so.

    Where the values are the distinct ones of a column, `codes` say which of them each row has; they
    tell which row is to blame.
    """
    labels = np.asarray(values.astype(object).where(values.notna(), None))
    if values.dtype.kind in "iuf" or values.dtype.kind == "b":
        labels = np.asarray(values)
    try:
        if labels.dtype == np.object_ and not {*labels} <= {*classes}:
            texts = [str(value) for value in labels]
            if all(WHOLE.fullmatch(text) for text in texts):
                labels = np.array([int(float(text)) for text in texts])
        try:
            return check_labels(labels, classes, len(labels))
        except InvalidLabelsError:
            if codes is None:
                raise
            return check_labels(labels[codes], classes, len(codes))
    except (InvalidLabelsError, TypeError) as error:
        raise InvalidLabelsError(
            f"{place}: {error}; if the model's own names are others, give them in the order of "
            "its scores with classes"
        ) from error


def features(
    table: pd.DataFrame, inputs: Schema | None, leave_out: Sequence[str]
) -> pd.DataFrame | None:
    """Return the columns that the model takes, None where the table lacks them.

    Without names in the model's signature, these are all columns but those left out.
    """
    names = input_names(inputs)
    if not names:
        rest = [name for name in table.columns if name not in leave_out]
        return as_typed(table[rest], inputs) if rest else None
    needed = inputs.required_input_names() if inputs is not None else []
    if any(name not in table.columns for name in needed):
        return None
    return as_typed(table[[name for name in names if name in table.columns]], inputs)


def input_names(inputs: Schema | None) -> list[str]:
    """Return the names of a model's inputs, none where its signature has none."""
    if inputs is None or not inputs.has_input_names():  # MLflow calls unnamed ones 0, 1, …
        return []
    return [str(name) for name in inputs.input_names()]


def as_typed(rows: pd.DataFrame, inputs: Schema | None) -> pd.DataFrame:
    """Return rows with the narrow numbers of a signature, which no csv can hold.

    A served request is JSON, whose numbers MLflow narrows in the same way.
    """
    if inputs is None:
        return rows
    kinds = [spec.type for spec in inputs]
    types = [kind.to_numpy() if isinstance(kind, DataType) else kind for kind in kinds]
    if not inputs.has_input_names() and inputs.is_tensor_spec():
        types = types[:1] * rows.shape[1]
    names = input_names(inputs) or rows.columns
    wanted = dict(zip(names, types, strict=False))  # a wrong number of columns MLflow refuses
    narrowed = {
        name: wanted[name]
        for name in rows.columns
        if name in wanted and _can_narrow(rows[name], wanted[name])
    }
    return rows.astype(narrowed) if narrowed else rows


def _can_narrow(values: pd.Series, wanted: object) -> bool:
    """Return whether numbers may become another, narrower type: floats rounded, integers not."""
    if not isinstance(wanted, np.dtype) or not isinstance(values.dtype, np.dtype):
        return False
    if values.dtype == wanted or values.dtype.kind not in "fiu":
        return False
    if wanted.kind == "f":
        return True
    whole = values.dtype.kind in "iu" and wanted.kind in "iu"
    return whole and bool((values.astype(wanted) == values).all())


def missing_features(table: pd.DataFrame, inputs: Schema | None) -> str:
    """Return what a table lacks that the model needs, in words."""
    needed = inputs.required_input_names() if inputs is not None and input_names(inputs) else []
    missing = [str(name) for name in needed if name not in table.columns]
    listed = ", ".join(map(repr, missing[:10])) + (" …" if len(missing) > 10 else "")
    return f"it lacks the model's inputs {listed}" if missing else "it has no column but the label"


class LabelColumn(NamedTuple):
    """The labels of a table, each distinct one written once."""

    values: pd.Series  # distinct, the first to occur first
    codes: NDArray[np.int32]  # (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose rows stay where they are, with what tells them apart."""

    what: str  # the parameter that names it
    source: Source
    record: DataRecord
    label: str | None  # its column of true classes, None for rows without
    labels: LabelColumn  # empty for rows without
    hashes: NDArray[np.uint64]  # (n,) of what stands in each row
    key: str | None = None
    keys: NDArray[np.uint64] | None = None  # (n,) hashes of a column that identifies rows
    groups: NDArray[np.uint64] | None = None  # (n,) hashes of what rows belong together by
    beside: tuple[str, ...] = ()  # columns that are no inputs: those of both
    numbered: bool = True  # whether rows have a number; those that Spark read have none

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)

    def identities(self) -> NDArray[np.uint64]:
        """Return (n,) hashes of what identifies each row: its key, or else its contents."""
        return self.hashes if self.keys is None else self.keys

    def indices(self, classes: tuple[str, ...]) -> NDArray[np.int32]:
        """Return (n,) labels as class indices, UNLABELLED where rows have none."""
        if self.label is None:
            return np.full(len(self.hashes), UNLABELLED, dtype=np.int32)
        values, codes = self.labels
        place = f"column {self.label!r} of {self.what}"
        indices = label_indices(values, classes, place=place, codes=codes)
        return fill_rows(len(codes), np.int32, lambda of: indices[codes[of]])

    def some_rows(self) -> pd.DataFrame:
        """Return the first rows."""
        return next(self.source.batches(SOME_ROWS))

    def key_values(self, row_numbers: NDArray[np.int64]) -> NDArray[np.object_] | None:
        """Return what identifies the rows of ascending numbers, None where no column does."""
        if self.key is None:
            return None
        return self.source.take(row_numbers, [self.key])[self.key].to_numpy(dtype=np.object_)


def group_codes(groups: NDArray[np.uint64] | None) -> NDArray[np.int64] | None:
    """Return hashes of groups as numbers from 0."""
    if groups is None:
        return None
    distinct = distinct_values(groups)
    return fill_rows(len(groups), np.int64, lambda of: np.searchsorted(distinct, groups[of]))


def read_rows(
    what: str, place: str, label: str | None, *, key: str | None = None, group: str | None = None
) -> Table:
    """Return the table at a path or URI, digested; key and group name columns."""
    return read_source(what, place, open_table(what, place, label), label, key, group)


def read_source(
    what: str,
    place: str,
    source: Source,
    label: str | None,
    key: str | None,
    group: str | None,
) -> Table:
    """Return an open table, digested."""
    for option, name in (("key", key), ("group", group)):
        if name is not None and name not in source.columns:
            msg = f"{what} has no column {name!r}, which {option} names; "
            raise InvalidDataError(msg + nearest(name, source.columns))
    n = (source.n_rows,)
    row_hashes, codes = new_array(n, np.uint64), new_array(n, np.int32)
    keys, groups = (None if name is None else new_array(n, np.uint64) for name in (key, group))
    sums = hashes.digest_sums(row_hashes[:0])
    seen: list[tuple[slice, pd.Series]] = []
    texts = [] if label is None else [label]  # those of a csv are text, others may be numbers
    for start, batch in counted(source, BATCH_ROWS, f"reading {what}"):
        rows = slice(start, start + len(batch))
        row_hashes[rows] = hashes.row_hashes(batch, text=texts)
        sums = sums + hashes.digest_sums(row_hashes[rows])
        if keys is not None and key is not None:
            keys[rows] = _named_hashes(what, batch[key], "key", start)
        if groups is not None and group is not None:
            groups[rows] = _named_hashes(what, batch[group], "group", start)
        if label is not None:
            codes[rows], distinct = _distinct(what, batch[label])
            seen.append((rows, distinct))
    record = DataRecord(
        source=place,
        digest=hashes.digest_of(source.columns, sums),
        n_rows=source.n_rows,
        n_used=source.n_rows,
    )
    table = Table(
        what=what,
        source=source,
        record=record,
        label=label,
        labels=_join_labels(codes, seen),
        hashes=row_hashes,
        key=key,
        keys=keys,
        groups=groups,
        beside=tuple(name for name in (key, group) if name is not None),
    )
    check_keys(table)
    return table


def counted(source: Source, most: int, what: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the first row's number and the rows of each batch, with a progress bar."""
    start = 0
    with progress(what=what, unit="rows", total=source.n_rows) as bar:
        for batch in source.batches(most):
            yield start, batch
            start += len(batch)
            bar.update(len(batch))
    source.check_unchanged()
    if start != source.n_rows:
        raise InvalidDataError(
            f"{source.name} says that it has {source.n_rows:,} rows, but {start:,} can be read"
        )


def _distinct(what: str, labels: pd.Series) -> tuple[NDArray[np.intp], pd.Series]:
    """Return the number of each label among the distinct ones, and these."""
    try:
        codes, distinct = pd.factorize(labels, use_na_sentinel=False)
    except TypeError as error:
        raise InvalidLabelsError(
            f"column {str(labels.name)!r} of {what} holds {type(labels.iloc[0]).__name__} values, "
            "which are no classes; name another with label"
        ) from error
    return codes, pd.Series(distinct)


def _join_labels(codes: NDArray[np.int32], seen: list[tuple[slice, pd.Series]]) -> LabelColumn:
    """Return the labels of a table from the distinct ones of its batches, which codes number."""
    if not seen:
        return LabelColumn(pd.Series(dtype=np.object_), np.empty(0, dtype=np.int32))
    joined = pd.concat([values for _, values in seen], ignore_index=True)
    numbers, distinct = pd.factorize(joined, use_na_sentinel=False)
    start = 0
    for rows, values in seen:
        codes[rows] = numbers[start : start + len(values)][codes[rows]]
        start += len(values)
    return LabelColumn(pd.Series(distinct), codes)


def _named_hashes(what: str, values: pd.Series, option: str, start: int) -> NDArray[np.uint64]:
    """Return hashes of the values in a column that an option names."""
    missing = values.isna().to_numpy()
    if missing.any():
        row = start + int(np.argmax(missing))
        raise InvalidDataError(
            f"{what} has no {option} in row {row}; fill column {str(values.name)!r}"
        )
    return hashes.key_hashes(values)


def check_keys(table: Table) -> None:
    """Raise where two rows share what shall identify them."""
    if table.key is None or table.keys is None:
        return
    ordered = sorted_values(table.keys)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])[:1]
    if len(again):
        first = np.flatnonzero(table.keys == ordered[again])[:1]
        twice = table.source.take(first, [table.key])[table.key]
        raise InvalidDataError(
            f"key {table.key!r} does not identify the rows of {table.what}: {twice.tolist()[0]!r} "
            "stands more than once; name another column, or use group for rows that belong together"
        )
