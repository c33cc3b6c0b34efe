"""A table in pieces of one size, in order, whatever the batches that its files hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from scrib_mlflow.adapters import digests
from scrib_mlflow.adapters.tables import BATCH_ROWS, Source


class Piece(NamedTuple):
    """Some rows of a table that follow each other."""

    start: int  # number of the first of them in the table
    rows: pd.DataFrame
    kept: pa.Table  # columns with the very values and types of the table


def pieces(source: Source, most: int, keep: Sequence[str]) -> Iterator[Piece]:
    """Yield all rows, so many at a time, with some columns in Arrow as well.

    pandas makes whole numbers with gaps floats, which cannot hold every one of them.
    """
    start = 0
    for rows, kept in _slices(source, most, list(keep)):
        yield Piece(start, rows, kept)
        start += len(rows)


def first_rows(source: Source, n: int) -> pd.DataFrame:
    """Return the first rows of a table."""
    return next(pieces(source, n, ())).rows


def digest(source: Source) -> str:
    """Return the digest of all rows."""
    sums = digests.digest_sums(np.empty(0, dtype=np.uint64))
    for piece in pieces(source, BATCH_ROWS, ()):
        sums += digests.digest_sums(digests.row_hashes(piece.rows))
    return digests.digest_of(source.columns, sums)


def _slices(source: Source, most: int, keep: list[str]) -> Iterator[tuple[pd.DataFrame, pa.Table]]:
    if isinstance(source.held, pd.DataFrame):
        kept = pa.Table.from_pandas(source.held[keep], preserve_index=False)
        kept = _plain(kept)
        for start in range(0, source.n_rows, most):
            rows = source.held.iloc[start : start + most].reset_index(drop=True)
            yield rows, kept.slice(start, most)
        return
    for table in _tables(source, most):
        yield table.to_pandas(ignore_metadata=True), _plain(table.select(keep))


def _plain(table: pa.Table) -> pa.Table:
    """Return columns as parquet has them, without what pandas made of texts and categories."""
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_large_string(kind) else kind))
    return table.cast(pa.schema(fields))


def _tables(source: Source, most: int) -> Iterator[pa.Table]:
    """Yield rows of parquet files, so many at a time."""
    waiting: list[pa.RecordBatch] = []
    n_waiting = 0
    for batch in source.record_batches(most, source.columns):
        waiting.append(batch)
        n_waiting += batch.num_rows
        while n_waiting >= most:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, most)
            waiting = table.slice(most).to_batches()
            n_waiting -= most
    if n_waiting:
        yield pa.Table.from_batches(waiting)
