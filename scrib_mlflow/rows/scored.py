"""Scored rows of one part in memory: counted by any rule, and sampled where a search sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scrib_mlflow.core.certificate import Sample, Tally, tally_sets
from scrib_mlflow.core.certificate.split import class_quotas, class_weights, keep_rows
from scrib_mlflow.core.counts import Counts, count_sets
from scrib_mlflow.core.inputs import labels_for
from scrib_mlflow.core.rules import OptimalRule, Rule, predict_sets, with_candidates
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.tables import UNLABELLED, Table, group_codes


class TableLike(Protocol):
    """A table that an engine has read, as far as logs and reports are concerned."""

    @property
    def what(self) -> str:
        """The parameter that names it."""

    @property
    def record(self) -> DataRecord:
        """Which rows it holds."""

    @property
    def label(self) -> str | None:
        """Its column of true classes."""

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are no inputs: those that identify and group rows."""

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""


class ScoredRows(Protocol):
    """Scored rows of one part, wherever they are; what is counted is counted over all of them."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_groups(self) -> int | None:
        """How many groups they come in, None where they come in none."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each class has (k,)."""

    def tallies(self, rules: Sequence[Rule], constraints: Sequence[Constraint]) -> Iterable[Tally]:
        """Return the counts of each rule's sets, claim by claim."""

    def count(self, rule: Rule) -> Counts:
        """Return the counts of a rule's sets, class by class."""

    def with_candidates(self, rule: OptimalRule, coverage: float) -> OptimalRule:
        """Return the rule with candidates that hold the true class as often as asked for."""

    def sample(self, most: int, *, by_class: bool) -> Sample:
        """Return all rows or at most so many, by class with all rows of rare ones; in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows with their scores and labels, all in memory; their inputs are not."""

    classes: tuple[str, ...]
    table: Table
    scores: NDArray[np.float64]  # (n, k)
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    places: NDArray[np.int64]  # (n,) the number of each row in its table
    sums: NDArray[np.uint64]  # (n,) of what the model is given, or of scores where there is no more
    order: NDArray[np.uint64]  # (n,) in which a sample is taken
    keys: NDArray[np.uint64] | None  # (n,) as in the table
    groups: NDArray[np.uint64] | None  # (n,)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    @property
    def n_groups(self) -> int | None:
        """How many groups they come in."""
        return None if self.groups is None else len(np.unique(self.groups))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each class has."""
        return np.bincount(self.labels, minlength=len(self.classes))

    def cases(self, *, labelled: bool = True) -> NDArray[np.uint64]:
        """Return a hash of each row: of what the model is given, and of its class."""
        labels = self.labels if labelled else np.full(self.n_rows, UNLABELLED)
        return hashes.hash_cases(self.sums, labels)

    def take(self, chosen: NDArray[np.bool_]) -> Scored:
        """Return these rows."""
        return replace(
            self,
            scores=self.scores[chosen],
            labels=self.labels[chosen],
            places=self.places[chosen],
            sums=self.sums[chosen],
            order=self.order[chosen],
            keys=None if self.keys is None else self.keys[chosen],
            groups=None if self.groups is None else self.groups[chosen],
        )

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)

    def tallies(self, rules: Sequence[Rule], constraints: Sequence[Constraint]) -> Iterator[Tally]:
        """Yield the counts of each rule's sets, claim by claim."""
        groups = self.group_codes()
        for rule in rules:
            yield tally_sets(predict_sets(self.scores, rule), self.labels, constraints, groups)

    def count(self, rule: Rule) -> Counts:
        """Return the counts of a rule's sets, class by class."""
        return count_answers(predict_sets(self.scores, rule), self.labels)

    def with_candidates(self, rule: OptimalRule, coverage: float) -> OptimalRule:
        """Return the rule with candidates that hold the true class as often as asked for."""
        labels = labels_for(self.labels, self.classes)
        return with_candidates(rule, self.scores, labels, coverage, classes=self.classes)

    def sample(self, most: int, *, by_class: bool) -> Sample:
        """Return all rows or at most so many, by class with all rows of rare ones; in any order."""
        weights = None
        chosen = self
        if self.n_rows > most:
            labels = self.labels if by_class else np.zeros_like(self.labels)
            sizes = np.bincount(labels)
            quotas = class_quotas(sizes, most)
            kept = keep_rows(self.order, labels, quotas)
            chosen = self.take(kept)
            weights = class_weights(sizes, quotas)[labels[kept]] if by_class else None
        return Sample(
            scores=chosen.scores,
            labels=chosen.labels,
            weights=weights,
            groups=chosen.group_codes(),
            cases=chosen.cases(labelled=self.table.label is not None),
            places=chosen.places,
            keys=chosen.table.key_values(chosen.places),
        )


def count_answers(sets: NDArray[np.bool_], labels: NDArray[np.int32]) -> Counts:
    """Return the counts of sets against labels, every row counting as one."""
    n, k = sets.shape
    return count_sets(sets, labels, np.zeros((0, k)), np.ones(n))
