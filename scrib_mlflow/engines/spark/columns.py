"""The split of a Spark table into fit rows and certify rows, as `core.split` defines it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import Window

if TYPE_CHECKING:
    from mlflow.types import Schema
    from pyspark.sql import Column, DataFrame
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

from scrib_mlflow.core.certificate import split
from scrib_mlflow.core.inputs import as_number
from scrib_mlflow.engines.spark.session import reason
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.messages import nearest
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.tables import NOTHING, UNNAMED

Measure = Callable[[pa.RecordBatch], NDArray[Any]]
TOP = np.uint64(1 << 63)
BELOW_TOP = np.int64((1 << 63) - 1)
BITS = 12  # of a histogram
MOST_BUCKETS = 1 << 16  # of all groups together
FEW = 20_000  # values that may be collected
PARTIAL = "sums binary"
UNLABELLED = -1
MOST_LABELS = 10_000
LONGEST_TEXT = 200  # of a row that is named by its contents
ROW = "scrib row"  # struct of the columns of a table
SCORES = "scrib scores"  # struct of s0, s1, … and error, beside the columns of a table
SLIM = {
    "label": "int",
    "row": "long",  # hash of all columns
    "key": "long",  # hash of what identifies the row; of its contents without such a column
    "grouped": "long",  # hash of the group
    "case": "long",  # hash of what the model is given, and of the class
    "unlabelled": "long",  # the same without the class
    "scores": "array<double>",
    "sets": "array<boolean>",  # empty where rows have scores only
    "error": "string",  # why the model gave no scores, "" where it did
    "name": "string",  # the key; without one the contents of rows with an error
}
AS_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "array<double>": pa.list_(pa.float64()),
    "array<boolean>": pa.list_(pa.bool_()),
}
OF_MLFLOW = {"runs", "models", "mlflow-artifacts", "http", "https", "databricks", "dbfs-artifacts"}
CSV = {  # as pandas reads it: quotes are doubled, lines of other lengths are errors
    "header": True,
    "mode": "FAILFAST",
    "escape": '"',
    "enforceSchema": False,
}
WHOLE = r"^\s*[+-]?[0-9]{1,19}\s*$"
LONGEST_WHOLE = 2**63  # first that is no 64-bit integer
NUMBER = (
    r"^\s*[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|(?i:inf(inity)?))\s*$"
)
TRUTHS = ("True", "TRUE", "true", "False", "FALSE", "false")
Kind = Literal["long", "double", "boolean", "string"]


def as_signed(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return unsigned numbers as signed ones of the same order."""
    return (values ^ TOP).view(np.int64)


def as_unsigned(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the unsigned numbers that `as_signed` was given."""
    return np.asarray(values, dtype=np.int64).view(np.uint64) ^ TOP


def float_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return floats, none of them NaN, as integers of the same order."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return np.where(bits >= 0, bits, bits ^ BELOW_TOP)


def float_of(ordered: int) -> float:
    """Return the float that `float_order` was given."""
    bits = np.array([ordered], dtype=np.int64)
    return float(np.where(bits >= 0, bits, bits ^ BELOW_TOP).view(np.float64)[0])


def numbers(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """Return a column of numbers without gaps as an array."""
    return batch.column(name).to_numpy(zero_copy_only=False)


def hash_column(batch: pa.RecordBatch, name: str) -> NDArray[np.uint64]:
    """Return a column of hashes as they were before `as_signed`."""
    return as_unsigned(numbers(batch, name))


def matrix(batch: pa.RecordBatch, name: str, k: int) -> NDArray[Any]:
    """Return a column of k numbers a row as an array (n, k)."""
    return batch.column(name).flatten().to_numpy(zero_copy_only=False).reshape(-1, k)


def sum_over(frame: DataFrame, measure: Measure, start: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over all rows of an array that is measured batch by batch.

    `start` is what no rows give: zeros of the shape and the type of the sum.
    """

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = start.copy()
        for batch in batches:
            if batch.num_rows:
                total += measure(batch)
        yield _packed(total)

    return sum(_unpacked(frame.mapInArrow(add, PARTIAL), start), start.copy())


def over_partitions(frame: DataFrame, measure: Measure, like: NDArray[Any]) -> list[NDArray[Any]]:
    """Return an array that is measured on all rows of each partition at once."""

    def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            (all_rows,) = pa.Table.from_batches(held).combine_chunks().to_batches()
            yield _packed(measure(all_rows))

    return _unpacked(frame.mapInArrow(whole, PARTIAL), like)


def _packed(array: NDArray[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"sums": [array.tobytes()]})


def _unpacked(frame: DataFrame, like: NDArray[Any]) -> list[NDArray[Any]]:
    rows = frame.collect()
    return [np.frombuffer(row["sums"], dtype=like.dtype).reshape(like.shape) for row in rows]


def lowest(frame: DataFrame, group: str, value: str, ranks: Mapping[int, int]) -> dict[int, int]:
    """Return for each group, an integer, the value (int64) of its rank among the group's, from 1.

    Each pass counts values by their next bits and goes on with the bucket that holds the rank,
    until few values are left or no bits are.
    """
    if not ranks:
        return {}
    bits = max(4, min(BITS, int(np.log2(MOST_BUCKETS / len(ranks)))))
    left, shift = dict(ranks), 64 - bits  # ranks within the buckets found so far
    inside = frame.filter(F.col(group).isin(*ranks))
    while True:
        bucket = F.shiftright(value, shift)
        counted = inside.groupBy(F.col(group).alias("g"), bucket.alias("b")).count().collect()
        found = {
            g: _bucket(sorted((row["b"], row["count"]) for row in rows), left[g])
            for g, rows in _by_group(counted).items()
        }
        prefixes = {g: prefix for g, (prefix, _, _) in found.items()}
        if shift == 0:
            return prefixes
        left = {g: rank for g, (_, rank, _) in found.items()}
        inside = frame.filter(bucket == looked_up(prefixes, group))
        if sum(size for _, _, size in found.values()) <= FEW:
            rows = inside.select(F.col(group).alias("g"), value).collect()
            return {
                g: sorted(row[1] for row in own)[left[g] - 1] for g, own in _by_group(rows).items()
            }
        shift = max(shift - bits, 0)


def next_lower(frame: DataFrame, group: str, value: str, than: Mapping[int, int]) -> dict[int, int]:
    """Return for each group its highest value below the one given, where it has one."""
    if not than:
        return {}
    below = frame.filter(F.col(value) < looked_up(than, group))
    rows = below.groupBy(group).agg(F.max(value).alias("below")).collect()
    return {row[group]: row["below"] for row in rows}


def _by_group(rows: Iterable[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row["g"], []).append(row)
    return found


def _bucket(buckets: list[tuple[int, int]], rank: int) -> tuple[int, int, int]:
    """Return the bucket that a rank falls into, the rank within, and the bucket's size."""
    for bucket, size in buckets:
        if rank <= size:
            return bucket, rank, size
        rank -= size
    raise IndexError(f"a rank is {rank} beyond the rows of its group")


def looked_up(values: Mapping[int, int], group: str) -> Column:
    """Return the value that belongs to the group of each row, null where none does."""
    pairs = [F.lit(each) for g, value in values.items() for each in (g, value)]
    return F.create_map(*pairs)[F.col(group)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What the columns of a table are for."""

    what: str  # the parameter that names the table
    label: str | None
    key: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels that a table has, and their classes."""

    known: pd.Index
    indices: NDArray[np.int32]


def column(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(f"`{name.replace('`', '``')}`")


def check_roles(frame: DataFrame, roles: Roles) -> None:
    """Raise where a column is missing, or a value of it."""
    named = {"label": roles.label, "key": roles.key, "group": roles.group}
    asked = {option: name for option, name in named.items() if name is not None}
    for option, name in asked.items():
        if name not in frame.columns:
            hint = nearest(name, frame.columns)
            raise InvalidDataError(
                f"{roles.what} has no column {name!r}, which {option} names; {hint}"
            )
    if not asked:
        return
    missing = {option: _is_missing(frame, name) for option, name in asked.items()}
    counts = frame.agg(*(F.count_if(each).alias(option) for option, each in missing.items()))
    for option, n in counts.collect()[0].asDict().items():
        if n:
            text = F.to_json(F.struct(*(column(each) for each in frame.columns)))
            first = frame.filter(missing[option]).agg(F.min(text)).collect()[0][0]
            raise InvalidDataError(
                f"{n:,} rows of {roles.what} have no {option}, the first of them "
                f"{_cut(first)}; fill column {asked[option]!r}"
            )


def _is_missing(frame: DataFrame, name: str) -> Column:
    values = column(name)
    if frame.schema[name].dataType.simpleString() in {"float", "double"}:
        return values.isNull() | F.isnan(values)
    return values.isNull()


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def find_labels(frame: DataFrame, roles: Roles, classes: tuple[str, ...]) -> Labels | None:
    """Return the distinct labels of a table and their classes, None where it has no labels."""
    if roles.label is None:
        return None
    distinct = frame.select(column(roles.label).alias("label")).distinct().limit(MOST_LABELS + 1)
    values = distinct.toArrow().column("label").to_pandas()
    if len(values) > MOST_LABELS:
        raise InvalidLabelsError(
            f"column {roles.label!r} of {roles.what} has more than {MOST_LABELS:,} different "
            "values, so it is no column of classes; name another with label"
        )
    values = values.sort_values(ignore_index=True)
    place = f"column {roles.label!r} of {roles.what}, of its different values"
    return Labels(
        known=pd.Index(values), indices=tables.label_indices(values, classes, place=place)
    )


def identify(
    frame: DataFrame,
    roles: Roles,
    labels: Labels | None,
    features: Sequence[str] | None,
    inputs: Schema | None,
    k: int,
) -> DataFrame:
    """Return slim rows: hashes, class and scores in place of the columns of a table.

    `frame` has the scores in the struct `SCORES`; without features they are what a case is.
    """

    def slim(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()
            given = None if features is None else tables.as_typed(rows[list(features)], inputs)
            yield _slim(rows, batch.column(SCORES), roles, labels, given, k)

    kinds = ", ".join(f"{name} {kind}" for name, kind in SLIM.items())
    return packed(frame).mapInArrow(slim, kinds)


def packed(frame: DataFrame) -> DataFrame:
    """Return a table with its own columns in one struct, because not all names reach workers."""
    own = [column(name) for name in frame.columns if name != SCORES]
    rest = [column(SCORES)] if SCORES in frame.columns else []
    return frame.select(F.struct(*own).alias(ROW), *rest)


def _slim(
    rows: pd.DataFrame,
    answers: pa.StructArray,
    roles: Roles,
    labels: Labels | None,
    features: pd.DataFrame | None,
    k: int,
) -> pa.RecordBatch:
    """Return the slim rows of a batch."""
    n = len(rows)
    index = np.full(n, UNLABELLED, dtype=np.int32)
    if labels is not None:
        places = labels.known.get_indexer(pd.Index(rows[roles.label]))
        if (places < 0).any():
            value = rows[roles.label].iloc[int(np.argmin(places))]
            raise InvalidDataError(
                f"{roles.what} changed while it was read: the label {value!r} is new; run it again"
            )
        index = labels.indices[places]
    row = hashes.row_hashes(rows, text=[] if roles.label is None else [roles.label])
    key = row if roles.key is None else hashes.key_hashes(rows[roles.key])
    group = np.zeros(n, dtype=np.uint64)
    if roles.group is not None:
        group = hashes.key_hashes(rows[roles.group])
    scores = _flat(answers, "s", k)
    errors = answers.field("error").to_pylist()
    given = pd.DataFrame(scores) if features is None else features
    columns = {
        "label": index,
        "row": as_signed(row),
        "key": as_signed(key),
        "grouped": as_signed(group),
        "case": as_signed(hashes.case_hashes(given, index)),
        "unlabelled": as_signed(hashes.case_hashes(given, np.full_like(index, UNLABELLED))),
        "scores": _lists(scores),
        "sets": _lists(_flat(answers, "m", k)),
        "error": errors,
        "name": _names(rows, roles.key, errors),
    }
    types = [AS_ARROW[kind] for kind in SLIM.values()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(SLIM))


def _flat(answers: pa.StructArray, letter: str, k: int) -> NDArray[Any]:
    """Return (n, k) the fields of a struct that a letter and a number name; (n, 0) without."""
    names = {field.name for field in answers.type}
    fields = [answers.field(f"{letter}{j}") for j in range(k) if f"{letter}{j}" in names]
    if not fields:
        return np.zeros((len(answers), 0), dtype=np.bool_)
    return np.column_stack([field.to_numpy(zero_copy_only=False) for field in fields])


def _lists(values: NDArray[Any]) -> pa.ListArray:
    """Return rows of equal length as Arrow's lists."""
    n, k = values.shape
    ends = np.arange(n + 1, dtype=np.int32) * k
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.ascontiguousarray(values).ravel()))


def _names(rows: pd.DataFrame, key: str | None, errors: list[str]) -> list[str | None]:
    """Return what rows are called: their key, or their contents where something is wrong."""
    if key is not None:
        return [str(value) for value in rows[key].tolist()]
    return [
        _cut(str(rows.iloc[place].to_dict())) if error else None
        for place, error in enumerate(errors)
    ]


def with_order(slim: DataFrame, seed: int, *, keyed: bool) -> DataFrame:
    """Return rows with their order, and that of their groups, as `core.split` defines them."""
    if keyed:  # no two rows have the same key
        numbered = slim.withColumn("occurrence", F.lit(0))
    else:
        alike = Window.partitionBy("label", "key").orderBy("key")
        numbered = slim.withColumn("occurrence", F.row_number().over(alike) - 1)

    def order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            occurrence = numbers(batch, "occurrence").astype(np.uint64)
            grouped = hash_column(batch, "grouped")
            found = {
                "order": split.order_of(hash_column(batch, "key"), occurrence, seed),
                "group_order": split.order_of(grouped, np.zeros_like(grouped), seed),
            }
            kept = [batch.column(name) for name in SLIM]
            orders = [pa.array(as_signed(values)) for values in found.values()]
            yield pa.RecordBatch.from_arrays([*kept, *orders], names=[*SLIM, *found])

    kinds = SLIM | {"order": "long", "group_order": "long"}
    return numbered.mapInArrow(order, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))


def check_unchanged(slim: DataFrame, columns: Sequence[str], digest: str, what: str) -> None:
    """Raise where rows that were scored are not those that were digested before."""

    def measure(batch: pa.RecordBatch) -> NDArray[np.uint64]:
        return hashes.digest_sums(hash_column(batch, "row"))

    sums = sum_over(slim.select("row"), measure, np.zeros(5, dtype=np.uint64))
    if hashes.digest_of(columns, sums) != digest:
        raise InvalidDataError(
            f"{what} changed while it was read; run it again when nothing writes to it"
        )


def digest_sums(frame: DataFrame, roles: Roles) -> NDArray[np.uint64]:
    """Return (5,) the sums that a digest of the table is made of."""
    texts = [] if roles.label is None else [roles.label]

    def measure(batch: pa.RecordBatch) -> NDArray[np.uint64]:
        rows = pa.RecordBatch.from_struct_array(batch.column(ROW)).to_pandas()
        return hashes.digest_sums(hashes.row_hashes(rows, text=texts))

    return sum_over(packed(frame), measure, np.zeros(5, dtype=np.uint64))


def read(session: SparkSession, name: str, place: str, label: str | None) -> DataFrame:
    """Return the table at a path, or in the catalog, which must have the label column if named."""
    told = f"{name} {place}"
    try:
        frame = _read(session, told, place, label)
    except InvalidDataError:
        raise
    except Exception as error:  # Spark and its file systems have errors of many kinds
        raise InvalidDataError(f"{told} cannot be read: {_why(error)}") from error
    unnamed = [each for each in frame.columns if UNNAMED.fullmatch(each)]
    frame = frame.drop(*unnamed)
    if label is not None and label not in frame.columns:
        raise InvalidDataError(
            f"{told} has no column {label!r} for the labels; {nearest(label, frame.columns)}"
        )
    if frame.isEmpty():
        raise InvalidDataError(f"{told} has no rows")
    return frame


def _why(error: Exception) -> str:
    if "PATH_NOT_FOUND" in str(error):
        return f"it does not exist; a relative path is looked up in {Path.cwd()}"
    return reason(error)


def _read(session: SparkSession, told: str, place: str, label: str | None) -> DataFrame:
    scheme = urlsplit(place).scheme
    if scheme in OF_MLFLOW:
        raise InvalidDataError(
            f"{told} cannot be read: Spark knows no {scheme}: addresses; download it to where all "
            "of Spark's workers can read it, or use engine=local"
        )
    path = place
    if len(scheme) <= 1 and Path(place).exists():  # one letter is a Windows drive
        path = spark_path(Path(place))
    lower = place.lower()
    if lower.endswith((".csv", ".csv.gz")):
        return _typed(session.read.csv(path, **CSV), label)
    if lower.endswith((".parquet", ".pq")) or scheme or Path(place).is_dir():
        return session.read.parquet(path)
    if session.catalog.tableExists(place):
        return session.table(place)
    raise InvalidDataError(
        f"{told} cannot be read: it is no table in Spark's catalog, and its ending is none of "
        ".parquet, .pq, .csv and .csv.gz"
    )


def spark_path(path: Path) -> str:
    """Return a path of this machine as Spark reads it: as a pattern, without percent codes."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", path.absolute().as_posix())


def _typed(texts: DataFrame, label: str | None) -> DataFrame:
    """Return a table of texts with numbers and truths where a whole column holds nothing else."""
    others = [name for name in texts.columns if name != label]
    there = {name: F.nullif(column(name), F.lit("")) for name in others}
    columns = [there[name].alias(name) for name in others]
    if label in texts.columns:
        columns.append(F.coalesce(column(str(label)), F.lit("")).alias(str(label)))
    rows = texts.select(*columns)
    kinds = _kinds(rows, others)
    return rows.select(
        *(
            _as(column(name), kinds[name]).alias(name) if name in kinds else column(name)
            for name in texts.columns
        )
    )


def _kinds(rows: DataFrame, names: list[str]) -> dict[str, Kind]:
    """Return what columns of texts hold, in one pass."""
    if not names:
        return {}
    sums = [F.count("*")]
    for name in names:
        values = column(name)
        sums += [
            F.count(values),
            F.count_if(_is_long(values)),
            F.count_if(values.rlike(NUMBER)),
            F.count_if(values.isin(*TRUTHS)),
            F.count_if(values.isin(*NOTHING)),
        ]
    n, *found = rows.agg(*(each.alias(f"c{i}") for i, each in enumerate(sums))).collect()[0]
    return {name: _kind(n, *found[5 * place : 5 * place + 5]) for place, name in enumerate(names)}


def _is_long(values: Column) -> Column:
    """Return whether texts are 64-bit integers."""
    whole = F.when(values.rlike(WHOLE), F.trim(values)).cast("decimal(20,0)")
    low, high = (F.lit(str(end)).cast("decimal(20,0)") for end in (-LONGEST_WHOLE, LONGEST_WHOLE))
    inside = (whole >= low) & (whole < high)
    return F.coalesce(inside, F.lit(False))


def _kind(n: int, there: int, whole: int, number: int, truth: int, nothing: int) -> Kind:
    """Return the kind of a column from how many of its values look like what."""
    full = there == n
    if full and there == whole:
        return "long"
    if full and there == truth:
        return "boolean"
    if there in {number + nothing, truth}:
        return "double"
    return "string"


def _as(values: Column, kind: Kind) -> Column:
    if kind == "string":
        return values
    if kind == "double":
        truth = F.when(values.isin(*TRUTHS), F.lower(values).cast("boolean").cast("double"))
        number = F.trim(F.when(~values.isin(*NOTHING) & ~values.isin(*TRUTHS), values))
        return F.coalesce(truth, number.cast("double"))
    return F.trim(values).cast(kind)


def count_shared(seen: DataFrame, rows: DataFrame, name: str) -> int:
    """Return how many rows have a hash, in the column of this name, that rows seen have too."""
    known = seen.select(name).distinct()
    return int(rows.select(name).join(known, name, "left_semi").count())


def shared_group(seen: DataFrame, rows: DataFrame) -> int | None:
    """Return the lowest hash, as Spark holds it, of a group that both have; None without any."""
    both = rows.select("grouped").join(seen.select("grouped").distinct(), "grouped", "left_semi")
    lowest: int | None = both.agg(F.min("grouped")).collect()[0][0]
    return lowest


def value_with(table: DataFrame, name: str, hashed: int) -> str:
    """Return the text of the value in a column that has a hash."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch.column(0).to_pandas()
            found = np.flatnonzero(as_signed(hashes.key_hashes(values)) == hashed)
            texts = [str(value) for value in values.iloc[found[:1]].tolist()]
            yield pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})

    values = table.select(column(name).alias("value")).distinct().mapInArrow(find, "value string")
    return str(values.first()["value"])


def check_keys(slim: DataFrame, roles: Roles) -> None:
    """Raise where a key stands more than once."""
    if roles.key is None:
        return
    repeated = slim.groupBy("key").agg(F.count("*").alias("n"), F.min("name").alias("name"))
    value = repeated.filter(F.col("n") > 1).agg(F.min("name")).collect()[0][0]
    if value is not None:
        raise InvalidDataError(
            f"key {roles.key!r} does not identify the rows of {roles.what}: {value!r} stands more "
            "than once; name another column, or use group for rows that belong together"
        )


def class_sizes(slim: DataFrame, k: int) -> NDArray[np.int64]:
    """Return (k,) how many rows each class has."""
    sizes = np.zeros(k, dtype=np.int64)
    for row in slim.groupBy("label").count().collect():
        sizes[row["label"]] = row["count"]
    return sizes


def certifies(
    ordered: DataFrame,
    sizes: NDArray[np.int64],  # (k,)
    fraction: float,
    *,
    grouped: bool,
    names: Sequence[str],
    waived: Sequence[str],
) -> Column:
    """Return which rows certify: a fraction of each class, or of the groups."""
    as_number("certify_fraction", fraction, low=0, high=1)
    needed = split.check_sizes(sizes, names, waived)
    if grouped:
        chosen = F.col("group_order") <= _group_cut(ordered, int(sizes.sum()), fraction)
        _check_parts(ordered, chosen, needed, names)
        return chosen
    shares = {j: split.share(int(n), fraction) for j, n in enumerate(sizes) if n}
    cuts = lowest(ordered, "label", "order", {j: n for j, n in shares.items() if n})
    return F.coalesce(F.col("order") <= looked_up(cuts, "label"), F.lit(False))


def _group_cut(ordered: DataFrame, n_rows: int, fraction: float) -> int:
    """Return the order of the last group that certifies."""
    groups = ordered.select("grouped", "group_order").distinct().withColumn("all", F.lit(0))
    n = groups.count()
    split.check_groups_suffice(n, n_rows)
    return lowest(groups, "all", "group_order", {0: split.share(n, fraction)})[0]


def _check_parts(
    ordered: DataFrame, chosen: Column, needed: NDArray[np.bool_], names: Sequence[str]
) -> None:
    """Raise for a class that a part has no rows of."""
    found = ordered.groupBy("label").agg(
        F.count_if(chosen).alias("certify"),
        F.count_if(~chosen).alias("fit"),
        F.count_distinct("grouped").alias("groups"),
    )
    rows = sorted(found.collect(), key=lambda row: row["label"])
    for part in ("certify", "fit"):
        for row in rows:
            if needed[row["label"]] and not row[part]:
                raise split.no_group_with(row["label"], part, row["groups"], names)
