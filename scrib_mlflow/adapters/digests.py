"""Which rows were used: digests of tables, and rows that two tables share."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

LABEL = "\0label"  # no column of a file is called so


def digest(table: pd.DataFrame) -> str:
    """Return a digest of all rows, the same in any order of rows and columns."""
    text = hashlib.blake2b(digest_size=16)
    text.update("\0".join(sorted(map(str, table.columns))).encode())
    text.update(np.sort(row_hashes(table)).tobytes())
    return text.hexdigest()


def case_hashes(
    features: pd.DataFrame, labels: NDArray[np.int32] | NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return a hash of what the model is given for each row, and of its class.

    Numbers count to the precision of float32, so that a csv of float32 numbers has equal rows.
    """
    return row_hashes(features.assign(**{LABEL: labels}), np.float32)


def count_shared(seen: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> int:
    """Return how many rows stand among those seen."""
    return int(np.isin(hashes, seen).sum())


def row_hashes(table: pd.DataFrame, number: DTypeLike = np.float64) -> NDArray[np.uint64]:
    """Return a hash of each row's contents, whatever the order of the columns.

    Numbers are hashed as numbers of one type and everything else as text.
    """
    total = np.zeros(len(table), dtype=np.uint64)
    for name in table.columns:
        values = table[name]
        if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
            with np.errstate(over="ignore"):  # beyond float32 all are infinite
                plain = numbers.astype(number).astype(np.float64)
        else:
            plain = values.astype(str).to_numpy(dtype=np.object_)
        salt = int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "big")
        mixed = pd.util.hash_array(plain, categorize=True) ^ np.uint64(salt)
        total += pd.util.hash_array(mixed, categorize=False)
    return total
