"""Files of comma-separated values: what a column holds, only all of it can tell."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd

# Without it pandas 2 loses last bits; pandas 3 never does.
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if pd.__version__ < "3" else {}
NOTHING = {"NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None"}


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
