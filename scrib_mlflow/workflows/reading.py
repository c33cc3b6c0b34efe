"""Tables as workflows read them: once through, for what tells rows, labels and groups apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scrib_mlflow.adapters import digests, tables
from scrib_mlflow.adapters.progress import progress
from scrib_mlflow.core.checks import nearest
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.results import DataRecord

UNLABELLED = -1
SOME_ROWS = 1000  # that tell what the columns of a table are


class LabelColumn(NamedTuple):
    """The labels of a table, each distinct one written once."""

    values: pd.Series  # distinct, the first to occur first
    codes: NDArray[np.int32]  # (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose rows stay where they are, with what tells them apart."""

    what: str  # the parameter that names it
    source: tables.Source
    record: DataRecord
    label: str | None  # its column of true classes, None for rows without
    labels: LabelColumn | None
    hashes: NDArray[np.uint64]  # (n,) of what stands in each row
    key: str | None = None
    keys: NDArray[np.uint64] | None = None  # (n,) hashes of a column that identifies rows
    groups: NDArray[np.uint64] | None = None  # (n,) hashes of what rows belong together by
    beside: tuple[str, ...] = ()  # columns that are no inputs: those of both

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)

    def identities(self) -> NDArray[np.uint64]:
        """Return (n,) hashes of what identifies each row: its key, or else its contents."""
        return self.hashes if self.keys is None else self.keys

    def indices(self, classes: tuple[str, ...]) -> NDArray[np.int32]:
        """Return (n,) labels as class indices, UNLABELLED where rows have none."""
        if self.labels is None:
            return np.full(len(self.hashes), UNLABELLED, dtype=np.int32)
        values, codes = self.labels
        place = f"column {self.label!r} of {self.what}"
        return tables.label_indices(values, classes, place=place, codes=codes)[codes]

    def some_rows(self) -> pd.DataFrame:
        """Return the first rows."""
        return next(self.source.batches(SOME_ROWS))

    def key_values(self, places: NDArray[np.int64]) -> NDArray[np.object_] | None:
        """Return what identifies the rows at ascending places, None where no column does."""
        if self.key is None:
            return None
        return self.source.take(places, [self.key])[self.key].to_numpy(dtype=np.object_)


def group_codes(groups: NDArray[np.uint64] | None) -> NDArray[np.int64] | None:
    """Return hashes of groups as numbers from 0."""
    return None if groups is None else np.unique(groups, return_inverse=True)[1].astype(np.int64)


def read_rows(
    what: str, place: str, label: str | None, *, key: str | None = None, group: str | None = None
) -> Table:
    """Return the table at a path or URI, digested; key and group name columns."""
    return read_source(what, place, tables.open_table(what, place, label), label, key, group)


def read_source(
    what: str,
    place: str,
    source: tables.Source,
    label: str | None,
    key: str | None,
    group: str | None,
) -> Table:
    """Return an open table, digested."""
    for option, name in (("key", key), ("group", group)):
        if name is not None and name not in source.columns:
            msg = f"{what} has no column {name!r}, which {option} names; "
            raise InvalidDataError(msg + nearest(name, source.columns))
    hashes = np.empty(source.n_rows, dtype=np.uint64)
    keys, groups = (None if name is None else np.empty_like(hashes) for name in (key, group))
    sums = digests.digest_sums(hashes[:0])
    seen: list[tuple[NDArray[np.intp], pd.Series]] = []
    texts = [] if label is None else [label]  # those of a csv are text, others may be numbers
    for start, batch in counted(source, tables.BATCH_ROWS, f"reading {what}"):
        rows = slice(start, start + len(batch))
        hashes[rows] = digests.row_hashes(batch, text=texts)
        sums = sums + digests.digest_sums(hashes[rows])
        if keys is not None and key is not None:
            keys[rows] = _named_hashes(what, batch[key], "key", start)
        if groups is not None and group is not None:
            groups[rows] = _named_hashes(what, batch[group], "group", start)
        if label is not None:
            seen.append(_distinct(what, batch[label]))
    record = DataRecord(
        source=place,
        digest=digests.digest_of(source.columns, sums),
        n_rows=source.n_rows,
        n_used=source.n_rows,
    )
    table = Table(
        what=what,
        source=source,
        record=record,
        label=label,
        labels=_join_labels(seen) if label is not None else None,
        hashes=hashes,
        key=key,
        keys=keys,
        groups=groups,
        beside=tuple(name for name in (key, group) if name is not None),
    )
    _check_keys(table)
    return table


def counted(source: tables.Source, most: int, what: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the first row's number and the rows of each batch, with a progress bar."""
    start = 0
    with progress(what=what, unit="rows", total=source.n_rows) as bar:
        for batch in source.batches(most):
            yield start, batch
            start += len(batch)
            bar.update(len(batch))
    source.check_unchanged()
    if start != source.n_rows:
        msg = f"{source.name} says that it has {source.n_rows:,} rows, but {start:,} can be read"
        raise InvalidDataError(msg)


def _distinct(what: str, labels: pd.Series) -> tuple[NDArray[np.intp], pd.Series]:
    """Return the number of each label among the distinct ones, and these."""
    try:
        codes, distinct = pd.factorize(labels, use_na_sentinel=False)
    except TypeError as error:
        msg = (
            f"column {str(labels.name)!r} of {what} holds {type(labels.iloc[0]).__name__} values, "
            "which are no classes; name another with label"
        )
        raise InvalidLabelsError(msg) from error
    return codes, pd.Series(distinct)


def _join_labels(seen: list[tuple[NDArray[np.intp], pd.Series]]) -> LabelColumn:
    """Return the labels of a table from the distinct ones of its batches."""
    joined = pd.concat([values for _, values in seen], ignore_index=True)
    numbers, distinct = pd.factorize(joined, use_na_sentinel=False)
    starts = np.cumsum([0, *(len(values) for _, values in seen)])
    codes = [numbers[start + own] for start, (own, _) in zip(starts, seen, strict=False)]
    return LabelColumn(pd.Series(distinct), np.concatenate(codes).astype(np.int32))


def _named_hashes(what: str, values: pd.Series, option: str, start: int) -> NDArray[np.uint64]:
    """Return hashes of the values in a column that an option names."""
    missing = values.isna().to_numpy()
    if missing.any():
        row = start + int(np.argmax(missing))
        msg = f"{what} has no {option} in row {row}; fill column {str(values.name)!r}"
        raise InvalidDataError(msg)
    return digests.key_hashes(values)


def _check_keys(table: Table) -> None:
    """Raise where two rows share what shall identify them."""
    if table.keys is None:
        return
    _, first, count = np.unique(table.keys, return_index=True, return_counts=True)
    if (count > 1).any():
        values = table.key_values(first[[np.argmax(count > 1)]])
        assert values is not None  # noqa: S101  # for mypy; there is a key
        msg = (
            f"key {table.key!r} does not identify the rows of {table.what}: {values.tolist()[0]!r} "
            "stands more than once; name another column, or use group for rows that belong together"
        )
        raise InvalidDataError(msg)
