"""Which rows were used: hashes of rows, digests of tables, and rows that two tables share.

The hash of a row is defined value by value and not by pandas, so that any engine can repeat it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from scrib_mlflow.core.certificate.overlap import multiples
from scrib_mlflow.core.inputs import (
    fill_rows,
    mix,
    text_hash,
    text_of,
)
from scrib_mlflow.errors import InvalidDataError

LABEL = "\0label"  # no column of a file is called so
MISSING = np.uint64(0x6D697373696E6721)  # hash of any missing value
SALTS = np.arange(1, 5, dtype=np.uint64)  # of the sums of a digest
MANY_ROWS = 1_000_000
KEPT_OF_MANY = 16  # one in so many, and of these again where they are still many


class Hashes(NamedTuple):
    """Hashes of rows, of many only those that a modulus divides."""

    values: NDArray[np.uint64]
    modulus: int


def digest_sums(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return (5,) the number of rows and sums of their hashes; those of parts add up."""
    sums = [mix(hashes ^ mix(salt)).sum(dtype=np.uint64) for salt in SALTS]
    return np.array([len(hashes), *sums], dtype=np.uint64)


def digest_of(columns: Iterable[object], sums: NDArray[np.uint64]) -> str:
    """Return the digest of a table with these columns, from the sums over all of its rows."""
    text = hashlib.blake2b(digest_size=16)
    text.update("\0".join(sorted(map(str, columns))).encode())
    text.update(sums.astype("<u8").tobytes())
    return text.hexdigest()


def feature_sums(features: pd.DataFrame) -> NDArray[np.uint64]:
    """Return sums over the features of each row, which its hash is made of, with its class.

    Numbers count to the precision of float32, so that a csv of float32 numbers has equal rows.
    """
    return _row_sums(features, np.float32)


def hash_cases(
    sums: NDArray[np.uint64], labels: NDArray[np.int32] | NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the hashes of rows from the sums of their features, and from their classes."""

    def hashed(of: slice) -> NDArray[np.uint64]:
        return mix(sums[of] + feature_sums(pd.DataFrame({LABEL: labels[of]})))

    return fill_rows(len(sums), np.uint64, hashed)


def row_hashes(
    table: pd.DataFrame, number: DTypeLike = np.float64, text: Collection[str] = ()
) -> NDArray[np.uint64]:
    """Return a hash of each row's contents, whatever the order of the columns.

    Columns of numbers are hashed as numbers of one type and everything else as text, as are the
    columns that `text` names, whatever they hold. Missing is one value, of whatever type.
    """
    return mix(_row_sums(table, number, text))


def _row_sums(
    table: pd.DataFrame, number: DTypeLike, text: Collection[str] = ()
) -> NDArray[np.uint64]:
    total = np.zeros(len(table), dtype=np.uint64)
    for name in table.columns:
        values = _uncoded(table[name])
        if name not in text and _are_numbers(values):
            hashes = _number_bits(values, number)
        else:
            hashes = _text_hashes(values)
        total += mix(hashes ^ text_hash(str(name)))
    return total


def _uncoded(values: pd.Series) -> pd.Series:
    """Return categories as what they stand for: another engine reads nothing else."""
    coded = isinstance(values.dtype, pd.CategoricalDtype)
    return pd.Series(np.asarray(values), name=values.name) if coded else values


def _are_numbers(values: pd.Series) -> bool:
    """Return whether a column holds numbers or truths, also where pandas knows only objects.

    A part of a column must say the same as the whole, and truths are objects where one is missing.
    """
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return True
    return values.dtype == np.object_ and pd.api.types.infer_dtype(values, skipna=True) == "boolean"


def key_hashes(values: pd.Series) -> NDArray[np.uint64]:
    """Return a hash of each value of a column that names rows or groups.

    Values are compared as text, whole numbers without a fraction: 7, 7.0 and "7" are one key,
    "7.0" and "007" are others.
    """
    missing = values.isna().to_numpy()
    if missing.any():
        raise InvalidDataError(
            f"column {str(values.name)!r} has no value in row {int(np.argmax(missing))}; "
            "fill it in, or leave out rows without"
        )
    return mix(_text_hashes(_uncoded(values)))


def thin(hashes: NDArray[np.uint64]) -> Hashes:
    """Return the hashes worth keeping of many rows."""
    modulus = thinning(len(hashes))
    return Hashes(multiples(hashes, modulus), modulus)


def thinning(n: int) -> int:
    """Return the modulus that leaves few enough of n hashes; a lower one divides it."""
    modulus = 1
    while n > MANY_ROWS * modulus:
        modulus *= KEPT_OF_MANY
    return modulus


def _number_bits(values: pd.Series, number: DTypeLike) -> NDArray[np.uint64]:
    """Return the bits of numbers as float64, rounded to `number`; one zero and one NaN."""
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(over="ignore"):  # beyond float32 all are infinite
        rounded = numbers.astype(number).astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    return np.where(np.isnan(rounded), MISSING, rounded.view(np.uint64))


def _text_hashes(values: pd.Series) -> NDArray[np.uint64]:
    """Return a hash of the text of each value."""
    if pd.api.types.infer_dtype(values, skipna=True) != "string":  # 1, 1.0 and True are equal
        missing = values.isna().to_numpy()
        texts = np.array([text_of(value) for value in values.tolist()], dtype=np.object_)
        texts[missing] = None
        values = pd.Series(texts, dtype=np.object_)
    codes, distinct = pd.factorize(values)
    hashes = np.array([text_hash(text) for text in distinct] + [MISSING], dtype=np.uint64)
    return hashes[codes]  # the code of what is missing is -1
