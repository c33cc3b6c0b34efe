"""Tables of parquet and csv files: opened, read in batches, with labels, keys and groups."""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from mlflow.types import DataType, Schema
from numpy.typing import NDArray

from scrib_mlflow import preflight
from scrib_mlflow.core import inputs as arrays
from scrib_mlflow.errors import (
    InvalidDataError,
    InvalidLabelsError,
    MissingLabelsError,
    ScribError,
    UnreadableDataError,
)
from scrib_mlflow.messages import nearest, progress, reason, shown
from scrib_mlflow.records import DataRecord, Frame
from scrib_mlflow.rows import hashes

BATCH_ROWS = 100_000
WEB_SECONDS = 30.0  # without a word from a web server
SOME_ROWS = 1000  # that show what the columns of a table are
UNLABELLED = -1  # in place of a class index
DRAWN_BY = "scrib_selection"  # column of rows that select has drawn: its run
WHOLE = re.compile(r"(0|[1-9][0-9]*)(\.0+)?")
UNNAMED = re.compile(r"__index_level_[0-9]+__")  # an index of pandas that means nothing
NOTHING = {"NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None"}
GivenRows = str | PathLike[str] | pd.DataFrame  # as a Python call gives them
FileStates = tuple[tuple[str, int, int], ...]  # name, size and time of each file
# Without it pandas 2 loses last bits; pandas 3 never does.
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if pd.__version__ < "3" else {}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that can be read part by part, as often as needed."""

    name: str  # the parameter that names it, and where it is: for errors
    columns: tuple[str, ...]
    n_rows: int
    # a csv's rows, those of a frame, or parquet files that stay where they are
    held: pd.DataFrame | pa.Table | ds.Dataset
    state: FileStates = ()  # of these files

    def check_unchanged(self) -> None:
        """Raise where the files are not those that were opened: rows of two states do not mix."""
        if isinstance(self.held, ds.Dataset) and _states(self.held) != self.state:
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
            with readable(self.name):
                rows = part.to_pandas(ignore_metadata=True)
            yield rows

    def record_batches(self, most: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows as Arrow holds them, those of parquet files one row group after the other.

        A scan of the whole would read ahead of slow consumers, up to a gigabyte.
        """
        files: Any = self.held
        if isinstance(files, pa.Table):
            yield from files.select(list(columns)).to_batches(max_chunksize=most)
            return
        wanted = {"schema": files.schema, "columns": list(columns), "batch_size": most}
        with readable(self.name):
            for file in files.get_fragments():
                for group in file.split_by_row_group():
                    for part in group.to_batches(**wanted):
                        part.validate(full=True)  # text that is none would be noticed late
                        if part.num_rows:
                            yield part

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


@contextmanager
def readable(named: str) -> Iterator[None]:
    """Say which table cannot be read; a broken file makes errors of many kinds."""
    try:
        yield
    except ScribError:
        raise
    except Exception as error:
        raise UnreadableDataError(f"{named} cannot be read: {reason(error)}") from error


def open_table(name: str, place: str, label: str | None, text: Collection[str] = ()) -> Source:
    """Return the table at a path or URI or of a frame, with the label column if one is named.

    Parquet stays in its files; a csv is read as a whole, because only all of a column tells what it
    holds. Labels of a csv are text: "NA", "None" and "01" are names, not something missing; so are
    the columns that `text` names. A frame is read as the parquet file that pandas would write.
    """
    named = called(name, place)
    with ExitStack() as stack:
        path = Path() if isinstance(place, Frame) else _local(named, place, stack)
        state: FileStates = ()
        with readable(named):
            if isinstance(place, Frame):
                held = _as_parquet(place.rows)
                columns = [column for column in held.schema.names if not UNNAMED.fullmatch(column)]
                n_rows = held.num_rows
            elif _is_csv(path):
                held = _read_csv(path, label, text)
                columns, n_rows = [str(column) for column in held.columns], len(held)
            else:
                held = _open_parquet(path)
                columns = [column for column in held.schema.names if not UNNAMED.fullmatch(column)]
                n_rows, state = held.count_rows(), _states(held)
        if label is not None:
            preflight.check_column(named, label, columns)
        if n_rows == 0:
            raise InvalidDataError(f"{named} has no rows")
        source = Source(name=named, columns=tuple(columns), n_rows=n_rows, held=held, state=state)
        weakref.finalize(source, stack.pop_all().close)
    return source


def called(name: str, place: str) -> str:
    """Return what errors call a table: the option that names it, and what it names."""
    return f"{name}, {place}," if isinstance(place, Frame) else f"{name} {shown(place)}"


def _as_parquet(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as parquet would hold it: columns by text, a named index among them."""
    if frame.columns.nlevels > 1:
        raise ValueError(
            f"its columns have {frame.columns.nlevels} levels of names; give each one name, such "
            "as frame.columns = ['_'.join(names) for names in frame.columns]"
        )
    twice = [name for name, n in Counter(map(str, frame.columns)).items() if n > 1]
    if twice:
        raise ValueError(f"it has more than one column {twice[0]!r}; rename or drop the others")
    return pa.Table.from_pandas(frame)


def _local(named: str, place: str, stack: ExitStack) -> Path:
    """Return the path of a file; one that is elsewhere is downloaded until the stack closes."""
    if preflight.is_remote(place):
        folder = tempfile.mkdtemp()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            place = _download(place, folder)
        except Exception as error:  # each kind of store has errors of its own
            raise UnreadableDataError(f"{named} cannot be downloaded: {reason(error)}") from error
    return preflight.check_exists(named, place)


def _download(place: str, folder: str) -> str:
    """Return where a file is once it is here: from the web, or from wherever MLflow reads."""
    of_mlflow = "/api/2.0/mlflow-artifacts/artifacts/" in place  # what its server calls artifacts
    if not place.lower().startswith(("http://", "https://")) or of_mlflow:
        return mlflow.artifacts.download_artifacts(artifact_uri=place, dst_path=folder)
    parts = urlsplit(place)
    user, _, host = parts.netloc.rpartition("@")
    request = Request(parts._replace(netloc=host, fragment="").geturl())  # noqa: S310  # as checked
    if user:
        basic = b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    path = Path(folder) / (Path(unquote(parts.path)).name or "index")
    with urlopen(request, timeout=WEB_SECONDS) as answer, path.open("wb") as file:  # noqa: S310
        shutil.copyfileobj(answer, file)
        if answer.length:
            raise OSError(f"the answer ended {answer.length:,} bytes early")
    return str(path)


def _open_parquet(path: Path) -> ds.Dataset:
    # in a folder, not on the way to a file, names such as year=2026 are columns
    partitioning = "hive" if path.is_dir() else None
    files = ds.dataset(path, format="parquet", partitioning=partitioning)
    if not files.files:
        raise ValueError("there are no parquet files in it")  # worded like pyarrow's
    return files


def _states(files: ds.Dataset) -> FileStates:
    """Return name, size and time of the files that are there."""
    stats = {name: Path(name).stat() for name in files.files if Path(name).exists()}
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items())


def _is_csv(path: Path) -> bool:
    suffixes = "".join(path.suffixes[-2:]).lower()
    if suffixes.endswith((".csv", ".csv.gz")):
        return True
    if path.is_dir() or suffixes.endswith((".parquet", ".pq")):
        return False
    raise ValueError(f"the ending of {path.name!r} is none of .parquet, .pq, .csv and .csv.gz")


def _read_csv(path: Path, label: str | None, text: Collection[str] = ()) -> pd.DataFrame:
    """Return a csv's rows; without the label's column only its header.

    A column of texts that are all numbers but for "NA" and the like holds numbers.
    """
    header = pd.read_csv(path, nrows=0, index_col=False)
    if label is not None and label not in header.columns:
        return header
    texts = [name for name in (label, *text) if name in header.columns]
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more values than columns
        table = pd.read_csv(
            path,
            index_col=False,
            dtype=dict.fromkeys(texts, str),
            keep_default_na=False,
            na_values={name: [""] for name in header.columns if name not in texts},
            **EXACT,
        )
    for name in table.select_dtypes(include=["object", "string"]).columns:
        if name not in texts:
            with suppress(ValueError):
                table[name] = pd.to_numeric(table[name].where(~table[name].isin(NOTHING)))
    return table


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
    plain = values.dtype.kind in "iufb"
    labels = np.asarray(values if plain else values.astype(object).where(values.notna(), None))
    try:
        if labels.dtype == np.object_ and not {*labels} <= {*classes}:
            texts = [str(value) for value in labels]
            if all(WHOLE.fullmatch(text) for text in texts):
                labels = np.array([int(float(text)) for text in texts])
        try:
            return arrays.check_labels(labels, classes, len(labels))
        except InvalidLabelsError:
            if codes is None:
                raise
            return arrays.check_labels(labels[codes], classes, len(codes))
    except MissingLabelsError as error:
        raise MissingLabelsError(f"{place}: {error}") from error
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
    """Return rows as a request has them: plain values of categoricals, and narrow numbers.

    No csv can hold the narrow numbers of a signature. A served request is JSON, whose numbers
    MLflow narrows in the same way.
    """
    for name in categoricals(rows):
        rows = rows.assign(**{name: rows[name].astype(np.object_).infer_objects()})
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


def categoricals(rows: pd.DataFrame) -> list[str]:
    """Return the columns that are pandas categoricals."""
    return [name for name in rows.columns if isinstance(rows[name].dtype, pd.CategoricalDtype)]


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


def feature_names(
    what: str, columns: Iterable[Any], inputs: Schema | None, leave_out: Sequence[str]
) -> list[Any]:
    """Return which columns of a table the model takes; raise where it lacks one."""
    empty = pd.DataFrame(columns=list(columns))
    taken = features(empty, inputs, leave_out)
    if taken is None:
        raise no_features(what, empty, inputs)
    return list(taken.columns)


def no_features(what: str, table: pd.DataFrame, inputs: Schema | None) -> InvalidDataError:
    """Return the error of a table that lacks what the model needs."""
    needed = inputs.required_input_names() if inputs is not None and input_names(inputs) else []
    missing = [str(name) for name in needed if name not in table.columns]
    listed = ", ".join(map(repr, missing[:10])) + (" …" if len(missing) > 10 else "")
    why = f"it lacks the model's inputs {listed}" if missing else "it has no column but the label"
    return InvalidDataError(f"{what} cannot be scored: {why}")


class LabelColumn(NamedTuple):
    """The labels of a table, each distinct one written once."""

    values: pd.Series  # distinct, the first to occur first
    codes: NDArray[np.int32]  # (n,)


NO_LABELS = LabelColumn(pd.Series(dtype=np.object_), np.empty(0, dtype=np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLike(ABC):
    """A table that an engine has read, as far as logs and reports are concerned."""

    what: str  # the parameter that names it
    record: DataRecord
    label: str | None  # its column of true classes, None for rows without
    key: str | None = None  # its column that identifies rows
    beside: tuple[str, ...] = ()  # columns that are no inputs: those that identify and group rows

    @abstractmethod
    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(TableLike):
    """A table whose rows stay where they are, with what tells them apart."""

    source: Source
    labels: LabelColumn = NO_LABELS
    hashes: NDArray[np.uint64]  # (n,) of what stands in each row
    keys: NDArray[np.uint64] | None = None  # (n,) hashes of the key
    groups: NDArray[np.uint64] | None = None  # (n,) hashes of what rows belong together by
    weights: NDArray[np.float64] | None = None  # (n,) of the rows
    numbered: bool = True  # whether rows have a number; those that Spark read have none

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
        return arrays.fill_rows(len(codes), np.int32, lambda of: indices[codes[of]])

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
    distinct = arrays.distinct_values(groups)
    return arrays.fill_rows(len(groups), np.int64, lambda of: np.searchsorted(distinct, groups[of]))


def named_columns(
    what: str,
    options: Mapping[str, str | None],
    columns: Collection[str],
    optional: Collection[str] = (),
) -> dict[str, str]:
    """Return the columns that options name; raise for one that is missing and not optional."""
    named = {}
    for option, name in options.items():
        if name is not None and name in columns:
            named[option] = name
        elif name is not None and option not in optional:
            hint = nearest(name, columns)
            raise InvalidDataError(f"{what} has no column {name!r}, which {option} names; {hint}")
    return named


def check_not_drawn(what: str, columns: Collection[str]) -> None:
    """Raise where rows were drawn by select: any other use of their labels would mislead."""
    if DRAWN_BY in columns:
        raise InvalidDataError(
            f"{what} has the column {DRAWN_BY}: its rows were drawn by select from those that its "
            "path answers, so they do not stand for all rows. Give them to calibrate as "
            f"certify_data, with selection, the run that the column names"
        )


def read_rows(
    what: str,
    place: str,
    label: str | None,
    optional: Collection[str] = (),
    *,
    drawn: bool = False,
    **options: str | None,
) -> Table:
    """Return the table at a path or URI, digested.

    The options key, group and weight name columns, which may be missing if `optional` holds the
    option. `drawn` says that these are rows that select has drawn.
    """
    source = open_table(what, place, label)
    if not drawn:
        check_not_drawn(what, source.columns)
    named = named_columns(what, options, source.columns, optional)
    n = (source.n_rows,)
    row_hashes, codes = arrays.new_array(n, np.uint64), arrays.new_array(n, np.int32)
    hashed = {option: arrays.new_array(n, np.uint64) for option in named if option != "weight"}
    weights = arrays.new_array(n, np.float64) if "weight" in named else None
    sums = hashes.digest_sums(row_hashes[:0])
    seen: list[tuple[slice, pd.Series]] = []
    texts = [] if label is None else [label]  # those of a csv are text, others may be numbers
    for start, batch in counted(source, BATCH_ROWS, f"reading {what}"):
        rows = slice(start, start + len(batch))
        row_hashes[rows] = hashes.row_hashes(batch, text=texts)
        sums = sums + hashes.digest_sums(row_hashes[rows])
        for option, values in hashed.items():
            values[rows] = _named_hashes(what, batch[named[option]], option, start)
        if weights is not None:
            weights[rows] = _weights(what, batch[named["weight"]], start)
        if label is not None:
            codes[rows], distinct = _distinct(what, batch[label])
            seen.append((rows, distinct))
    digest = hashes.digest_of(source.columns, sums)
    table = Table(
        what=what,
        source=source,
        record=DataRecord(source=shown(place), digest=digest, n_rows=n[0], n_used=n[0]),
        label=label,
        labels=NO_LABELS if label is None else _join_labels(codes, seen),
        hashes=row_hashes,
        key=named.get("key"),
        keys=hashed.get("key"),
        groups=hashed.get("group"),
        weights=weights,
        beside=tuple(named.values()),
    )
    check_keys(table)
    return table


def counted(
    source: Source, most: int, what: str, kept: NDArray[np.bool_] | None = None
) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the first row's number and the rows of each batch; a bar counts all, or those kept."""
    start, total = 0, source.n_rows if kept is None else int(np.count_nonzero(kept))
    with progress(what=what, unit="rows", total=total) as bar:
        for batch in source.batches(most):
            yield start, batch
            end = start + len(batch)
            bar.update(len(batch) if kept is None else int(np.count_nonzero(kept[start:end])))
            start = end
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


def _weights(what: str, values: pd.Series, start: int) -> NDArray[np.float64]:
    """Return weights of rows, or say which is none."""
    try:
        weights = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(
            f"column {str(values.name)!r} of {what} holds no numbers: {error}; weight needs some"
        ) from error
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InvalidDataError(
            f"{what} has the weight {weights[bad[0]]:g} in row {start + int(bad[0])}; weights are "
            "finite and not negative"
        )
    return weights


def check_keys(table: Table) -> None:
    """Raise where two rows share what shall identify them."""
    if table.key is None or table.keys is None:
        return
    ordered = arrays.sorted_values(table.keys)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])[:1]
    if len(again):
        first = np.flatnonzero(table.keys == ordered[again])[:1]
        twice = table.source.take(first, [table.key])[table.key]
        raise InvalidDataError(
            f"key {table.key!r} does not identify the rows of {table.what}: {twice.tolist()[0]!r} "
            "stands more than once; name another column, or use group for rows that belong together"
        )
