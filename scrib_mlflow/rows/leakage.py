"""Leakage between rows: trained on already, or belonging together by a column.

What the run that trained a model tells of its rows is what that run logged as datasets. A digest of
MLflow is compared in the ways in which training code computes it: of the whole table or the model's
inputs, in the order of the file, with or without its index.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from mlflow.data.numpy_dataset import from_numpy
from mlflow.data.pandas_dataset import from_pandas
from mlflow.exceptions import MlflowException

from scrib_mlflow import preflight
from scrib_mlflow.errors import InvalidDataError, ScribError
from scrib_mlflow.messages import reason, shown
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.registry.runs import LoggedDataset
from scrib_mlflow.rows.tables import Table, TableLike

LOGGER = logging.getLogger(__name__)

TRAINING = ("train", "fit")  # how a context begins that means rows to train on
MOST_VALUES = 20_000_000  # of a table whose digest is computed; MLflow looks at each of them
NAMED_BY_ID = (  # words in the name of a column
    *("id", "ids", "uuid", "patient", "subject", "person", "participant", "user", "customer"),
    *("client", "member", "account", "household", "family", "speaker", "author", "driver"),
    *("device", "machine", "sensor", "session", "visit", "recording", "night", "site", "hospital"),
    *("clinic", "group", "cluster"),
)
PART_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def check_untrained(uri: str, tables: Sequence[TableLike], *, allowed: bool) -> None:
    """Raise where a table is one that a model was trained on, as far as its run tells.

    Where that is only likely, or `allowed`, a warning says so; where nothing is known, a line.
    """
    try:
        with stores.short_waits():
            run_id = stores.model_info(uri).run_id or ""
            logged = runs.logged_datasets(run_id) if run_id else []
    except (ScribError, MlflowException, OSError) as error:
        LOGGER.warning(
            f"the run that trained {uri} cannot be read, so nothing tells whether it has seen "
            f"these rows: {reason(error)}"
        )
        return
    known = [each for each in logged if not each.context or _is_training(each)]
    if not known:
        LOGGER.info(
            f"nothing is known of the rows that {uri} was trained on; give rows that it has not "
            "seen"
        )
    for table in tables:
        for dataset in known:
            _compare(table, dataset, uri, run_id, allowed=allowed)


def _compare(
    table: TableLike, dataset: LoggedDataset, uri: str, run_id: str, *, allowed: bool
) -> None:
    """Raise or warn where a table is a dataset that a run has logged."""
    named = f"{table.what} {table.record.source}"
    if _has_digest(table, dataset):
        found = f"{named} is the dataset {dataset.digest} that run {run_id} trained {uri} on"
        if _is_training(dataset) and not allowed:
            raise InvalidDataError(
                f"{found}, so these rows would prove nothing; give rows that the model has not "
                "seen, or say with allow_overlap=true that it has not seen these"
            )
        LOGGER.warning(f"{found}, as far as its digest tells; they prove nothing if so")
    elif dataset.source and _place(shown(dataset.source)) == _place(table.record.source):
        LOGGER.warning(
            f"{named} is where run {run_id}, which trained {uri}, read {dataset.context or 'a'} "
            "rows; give rows that the model has not seen"
        )


def _is_training(dataset: LoggedDataset) -> bool:
    return dataset.context.lower().startswith(TRAINING)


def _place(place: str) -> str:
    """Return a path in full, or a URI as it is."""
    path = preflight.local_path(place)
    return place if path is None else os.path.realpath(path)


def _has_digest(table: TableLike, dataset: LoggedDataset) -> bool:
    """Return whether a table has the digest of a dataset, of those whose rows are at hand."""
    if not isinstance(table, Table) or dataset.n_rows != table.record.n_rows:
        return False
    source = table.source
    if source.n_rows * len(source.columns) > MOST_VALUES:
        return False
    held: Any = source.held
    rows = held if isinstance(held, pd.DataFrame) else held.to_table().to_pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of whole numbers, and of other versions of pandas
        try:
            return any(each == dataset.digest for each in _digests(rows, dataset, table.label))
        except (MlflowException, TypeError, ValueError) as error:
            LOGGER.warning(f"no digest of MLflow's for {table.what}: {reason(error)}")
            return False


def _digests(rows: pd.DataFrame, dataset: LoggedDataset, label: str | None) -> Iterator[str]:
    """Yield the digests that training code may have logged for rows."""
    inputs = rows.drop(columns=[label] if label is not None else [])
    if dataset.n_features is not None:  # arrays
        if inputs.shape[1] == dataset.n_features:
            yield from_numpy(inputs.to_numpy()).digest
            for labels in [] if label is None else _label_arrays(rows[label]):
                yield from_numpy(inputs.to_numpy(), targets=labels).digest
        return
    if not {*dataset.columns} <= {*rows.columns}:
        return
    chosen = [rows[[*dataset.columns]]] if dataset.columns else [rows, inputs]
    for some in chosen:
        for frame in (some, some.reset_index(drop=True)):
            yield from_pandas(frame).digest
            if label in frame.columns:  # the labels of a csv are text here
                numbers = pd.to_numeric(frame[label], errors="coerce")
                yield from_pandas(frame.assign(**{str(label): numbers})).digest


def _label_arrays(labels: pd.Series) -> Iterator[Any]:
    """Yield labels as training code may have them: as they are, as numbers, and as indices."""
    yield labels.to_numpy()
    numbers = pd.to_numeric(labels, errors="coerce")
    if not numbers.isna().any():
        yield numbers.to_numpy()
    yield np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64)


def hint_at_groups(table: TableLike, inputs: Collection[str]) -> None:
    """Log which column looks as if rows belong together by it, where the model takes it not."""
    others = {table.label, *table.beside, *inputs}
    if isinstance(table, Table):
        names = _ids(table.source.columns, others)
        rows = next(table.source.batches(columns=names)) if names else pd.DataFrame()
    else:
        rows = table.some_rows()
        names = _ids(rows.columns, others)
    n = len(rows)
    which = f"{n:,} rows" if n == table.record.n_rows else f"{n:,} rows looked at"
    for name in names:
        distinct = rows[name].astype(str).nunique()
        if 1 < distinct <= n / 2:
            LOGGER.info(
                f"column {name!r} of {table.what} repeats ({distinct:,} values in {which}); if "
                f"rows with one value belong together, they are not independent: pass group={name}"
            )
            return


def _ids(columns: Iterable[str], others: Collection[str | None]) -> list[str]:
    return [name for name in columns if name not in others and looks_like_id(str(name))]


def looks_like_id(name: str) -> bool:
    """Return whether a column's name says that it names something that can have several rows."""
    return any(part.lower() in NAMED_BY_ID for part in PART_OF_NAME.findall(name))
