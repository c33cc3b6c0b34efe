"""Tables: read from files, digested, and taken apart into features and labels."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from mlflow.exceptions import MlflowException
from mlflow.types import DataType
from numpy.typing import NDArray

from scrib_mlflow.core.checks import check_labels, nearest
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

if TYPE_CHECKING:
    from mlflow.types import Schema

WHOLE = re.compile(r"\d+")


def read_table(name: str, place: str, label: str) -> pd.DataFrame:
    """Return the rows at a path or URI, which must have the label column.

    Labels of a csv are read as text: "NA", "None" and "01" are names, not something missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = _local(name, place, folder)
        try:
            columns = _columns(path)
            if label not in columns:
                msg = f"{name} {place} has no column {label!r} for the labels; "
                raise InvalidDataError(msg + nearest(label, columns))
            table = _read(path, label)
        except (OSError, ValueError, pd.errors.ParserError) as error:
            if isinstance(error, InvalidDataError):
                raise
            msg = f"{name} {place} cannot be read: {' '.join(str(error).split())}"
            raise InvalidDataError(msg) from error
    if table.empty:
        msg = f"{name} {place} has no rows"
        raise InvalidDataError(msg)
    return table


def _local(name: str, place: str, folder: str) -> Path:
    """Return the path of a file, downloaded where it is elsewhere."""
    path = Path(place)
    if len(urlsplit(place).scheme) > 1:  # one letter is a Windows drive
        try:
            path = Path(mlflow.artifacts.download_artifacts(artifact_uri=place, dst_path=folder))
        except (MlflowException, OSError) as error:
            msg = f"{name} {place} cannot be downloaded: {' '.join(str(error).split())[:300]}"
            raise InvalidDataError(msg) from error
    if not path.exists():
        msg = f"{name} {place} does not exist; a relative path is looked up in {Path.cwd()}"
        raise InvalidDataError(msg)
    return path


def _is_csv(path: Path) -> bool:
    suffixes = "".join(path.suffixes[-2:]).lower()
    if suffixes.endswith((".csv", ".csv.gz")):
        return True
    if path.is_dir() or suffixes.endswith((".parquet", ".pq")):
        return False
    msg = f"the ending of {path.name!r} is none of .parquet, .pq, .csv and .csv.gz"
    raise ValueError(msg)


def _columns(path: Path) -> list[str]:
    if _is_csv(path):
        return [str(name) for name in pd.read_csv(path, nrows=0).columns]
    return [str(name) for name in pq.ParquetDataset(path).schema.names]


def _read(path: Path, label: str) -> pd.DataFrame:
    if not _is_csv(path):
        return pd.read_parquet(path)
    table = pd.read_csv(path, float_precision="round_trip")  # pandas 2 loses last bits without
    texts = pd.read_csv(path, usecols=[label], dtype=str, na_filter=False)
    return table.assign(**{label: texts[label]})


def digest(table: pd.DataFrame) -> str:
    """Return a digest of all rows, the same in any order of rows and columns."""
    text = hashlib.blake2b(digest_size=16)
    text.update("\0".join(sorted(map(str, table.columns))).encode())
    text.update(np.sort(row_hashes(table)).tobytes())
    return text.hexdigest()


def row_hashes(table: pd.DataFrame) -> NDArray[np.uint64]:
    """Return a hash of each row's contents, whatever the order of the columns.

    Numbers are hashed as float64 and everything else as text, so that a csv and a parquet file of
    the same rows agree wherever they hold the same values.
    """
    total = np.zeros(len(table), dtype=np.uint64)
    for name in table.columns:
        values = table[name]
        if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
            plain = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            plain = values.astype(str).to_numpy(dtype=np.object_)
        salt = int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "big")
        mixed = pd.util.hash_array(plain, categorize=True) ^ np.uint64(salt)
        total += pd.util.hash_array(mixed, categorize=False)
    return total


def label_indices(values: pd.Series, classes: tuple[str, ...], *, place: str) -> NDArray[np.int32]:
    """Return labels as class indices; whole numbers in text are indices where no name says so."""
    labels = np.asarray(values)
    if labels.dtype == np.object_ and not set(labels[pd.notna(labels)]) <= set(classes):
        texts = [str(value) for value in labels]
        if all(WHOLE.fullmatch(text) for text in texts):
            labels = np.array([int(text) for text in texts])
    try:
        return check_labels(labels, classes, len(labels))
    except InvalidLabelsError as error:
        msg = (
            f"{place}: {error}; if the model's own names are others, give them in the order of "
            "its scores with classes"
        )
        raise InvalidLabelsError(msg) from error


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


def count_shared(fitted: pd.DataFrame, certified: pd.DataFrame) -> int:
    """Return how many certify rows stand among the fit rows as well."""
    common = sorted(set(fitted.columns) & set(certified.columns), key=str)
    seen = row_hashes(fitted[common])
    return int(np.isin(row_hashes(certified[common]), seen).sum())
