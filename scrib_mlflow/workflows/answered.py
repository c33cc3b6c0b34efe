"""Labelled rows with the sets that a set classifier serves for them, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import serving
from scrib_mlflow.adapters import digests, scoring, stores, tables
from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.sample import Sample, keep_rows
from scrib_mlflow.core.tally import Tally, tally_sets
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.workflows.reading import UNLABELLED, Table, counted
from scrib_mlflow.workflows.scored import count_answers


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRows:
    """Rows of a table, with what a set classifier answers to each."""

    table: Table
    scores: NDArray[np.float64]  # (n, k) NaN in rows that it could not score
    sets: NDArray[np.bool_]  # (n, k)
    labels: NDArray[np.int32]  # (n,)
    sums: NDArray[np.uint64]  # (n,) of what the model is given
    n_invalid: int  # rows that it could not score

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    @property
    def grouped(self) -> bool:
        """Whether they come in groups."""
        return self.table.groups is not None

    def tally(self, constraints: Sequence[Constraint]) -> Tally:
        """Return the counts of the sets, claim by claim."""
        return tally_sets(self.sets, self.labels, constraints, self.table.group_codes())

    def count(self) -> Counts:
        """Return the counts of the sets, class by class."""
        return count_answers(self.sets, self.labels)

    def cases(self, *, labelled: bool) -> Hashes:
        """Return hashes of what the model is given, and of classes where asked for."""
        labels = self.labels if labelled else np.full_like(self.labels, UNLABELLED)
        return Hashes(*digests.thin(digests.hash_cases(self.sums, labels)))

    def keys(self) -> Hashes | None:
        """Return hashes of what identifies the rows, None where no column does."""
        return None if self.table.keys is None else Hashes(*digests.thin(self.table.keys))

    def sample(self, most: int) -> tuple[Sample, NDArray[np.bool_]]:
        """Return all rows or at most so many, and their sets."""
        places = np.arange(self.n_rows)
        if self.n_rows > most:
            same = np.zeros_like(self.labels)
            places = np.flatnonzero(keep_rows(self.table.hashes, same, np.array([most])))
        codes = self.table.group_codes()
        labels = self.labels[places]
        sample = Sample(
            scores=self.scores[places],
            labels=labels,
            weights=None,
            groups=None if codes is None else codes[places],
            cases=digests.hash_cases(self.sums[places], labels),
            places=places,
            keys=self.table.key_values(places),
        )
        return sample, self.sets[places]


def answer_table(uri: str, table: Table, classes: tuple[str, ...], batch_rows: int) -> AnsweredRows:
    """Let a registered set classifier answer the rows of a table."""
    labels = table.indices(classes)
    model = scoring.load_model(uri)
    batches = counted(table.source, batch_rows, f"scoring {table.what}")
    n, k = table.source.n_rows, len(classes)
    scores, sets = np.full((n, k), NAN), np.zeros((n, k), dtype=np.bool_)
    sums = np.empty(n, dtype=np.uint64)
    n_invalid = 0
    for start, rows in batches:
        features = _features(model, table, rows)
        part = slice(start, start + len(rows))
        sums[part] = digests.feature_sums(features)
        scores[part], sets[part], invalid = answer(
            model, features, classes, start, table.what, alone=len(rows) == n
        )
        n_invalid += invalid
    if n_invalid == n:
        msg = f"{uri} can score none of the {n:,} rows of {table.what}; are they of another kind?"
        raise InvalidDataError(msg)
    return AnsweredRows(
        table=table, scores=scores, sets=sets, labels=labels, sums=sums, n_invalid=n_invalid
    )


def _features(model: PyFuncModel, table: Table, rows: pd.DataFrame) -> pd.DataFrame:
    """Return what the model takes of rows."""
    inputs = model.metadata.get_input_schema()
    features = tables.features(rows, inputs, [str(table.label), *table.beside])
    if features is None:
        msg = f"{table.what} cannot be scored: {tables.missing_features(rows, inputs)}"
        raise InvalidDataError(msg)
    return features


def answer(
    model: PyFuncModel,
    features: pd.DataFrame,
    classes: tuple[str, ...],
    start: int,
    what: str,
    *,
    alone: bool,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Return scores and sets that the model serves for rows, and how many it could not score.

    `start` is the number of the first row in its table; rows that are `alone` are all of it.
    """
    index = {name: j for j, name in enumerate(classes)}
    sets = np.zeros((len(features), len(index)), dtype=np.bool_)
    scores = np.full(sets.shape, NAN)
    try:
        answers: Any = model.predict(features, params={"explain": True})
    except MlflowException as error:
        if serving.NONE_SCORED in str(error) and not alone:
            return scores, sets, len(features)
        msg = f"the model refuses rows {start} to {start + len(features) - 1} of {what}: "
        raise InvalidDataError(msg + stores.reason(error)) from error
    scored = np.flatnonzero(answers["reason"] != "invalid_scores")
    if len(scored):
        scores[scored] = answers["scores"].to_numpy()[scored].tolist()
    for row, members in enumerate(answers["prediction_set"]):
        sets[row, [index[name] for name in members]] = True
    return scores, sets, len(features) - len(scored)
