"""Scored rows of one part: counted by any rule, and sampled where a search sees them.

They are worked through block by block, because large arrays lie on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.certificate import Sample, Tally
from scrib_mlflow.core.certificate.claims import AcceptancePlan, tally_answers
from scrib_mlflow.core.certificate.split import (
    class_quotas,
    class_weights,
    keep_rows,
    testing_order,
)
from scrib_mlflow.core.counts import Counts, add_counts, certain_and_wrong, count_sets
from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.inputs import (
    class_sizes,
    distinct_values,
    fill_rows,
    row_blocks,
    take_rows,
)
from scrib_mlflow.core.reports import Named, Top1, count_named, count_top1
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.tables import UNLABELLED, Table, group_codes
from scrib_mlflow.serving import candidate_sets, rule_sets

ARRAYS = (
    "scores",
    "labels",
    "places",
    "sums",
    "order",
    "keys",
    "groups",
    "weights",
)  # of scored rows
SetsOf = Callable[[slice], NDArray[np.bool_]]  # (b, k) sets of a block of rows


class Testing(NamedTuple):
    """How rows are counted: by groups, or by an acceptance plan where they are independent."""

    groups: NDArray[np.int64] | None  # (n,) codes from 0
    group_test: GroupTest | None
    plan: AcceptancePlan | None
    weights: NDArray[np.float64] | None = None  # (n,) of the highest possible one


class Unscored(NamedTuple):
    """Rows of a table that could not be scored: the first of them, and why."""

    first: str  # in words; "" where only their contents would name them
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows with their scores and labels; their inputs stay where they are."""

    classes: tuple[str, ...]
    table: Table
    scores: NDArray[np.float64]  # (n, k) NaN in rows that could not be scored
    labels: NDArray[np.int32]  # (n,) UNLABELLED where rows have none
    places: NDArray[np.int64]  # (n,) the number of each row in its table
    sums: NDArray[np.uint64]  # (n,) of what the model is given, or of scores where there is no more
    order: NDArray[np.uint64]  # (n,) in which a sample is taken
    keys: NDArray[np.uint64] | None  # (n,) as in the table
    groups: NDArray[np.uint64] | None  # (n,)
    weights: NDArray[np.float64] | None = None  # (n,) of the highest possible one
    unscored: Unscored | None = None  # rows of the table that have NaN for scores

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    @property
    def n_invalid(self) -> int:
        """How many of them could not be scored."""
        return 0 if self.unscored is None else int(np.count_nonzero(self._invalid()))

    def _invalid(self) -> NDArray[np.bool_]:
        return fill_rows(self.n_rows, np.bool_, lambda of: np.isnan(self.scores[of, 0]))

    def scorable(self) -> Scored:
        """Return the rows that could be scored: a rule is fitted on them; the others abstain."""
        return self.take(~self._invalid()) if self.n_invalid else self

    @property
    def record(self) -> DataRecord:
        """Which rows of their table these are."""
        return replace(self.table.record, n_used=self.n_rows)

    def cases(self, *, labelled: bool = True) -> NDArray[np.uint64]:
        """Return a hash of each row: of what the model is given, and of its class if `labelled`."""
        labels = self.labels if labelled else np.full_like(self.labels, UNLABELLED)
        return hashes.hash_cases(self.sums, labels)

    def count_repeated(self) -> int:
        """Return how many rows equal an earlier one in all columns; none where a key names rows."""
        return 0 if self.keys is not None else self.n_rows - len(distinct_values(self._contents()))

    def distinct(self) -> NDArray[np.bool_]:
        """Return (n,) which rows are the first with their contents."""
        first = np.zeros(self.n_rows, dtype=np.bool_)
        first[np.unique(self._contents(), return_index=True)[1]] = True
        return first

    def _contents(self) -> NDArray[np.uint64]:
        """Return (n,) hashes of all columns of each row."""
        hashed, places = self.table.hashes, self.places
        return fill_rows(self.n_rows, np.uint64, lambda of: hashed[places[of]])

    def take(self, chosen: NDArray[np.bool_]) -> Scored:
        """Return these rows."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        taken: dict[str, Any] = {
            name: None if values is None else take_rows(values, chosen)
            for name, values in arrays.items()
        }
        return replace(self, **taken)

    def at(self, row_numbers: NDArray[np.intp]) -> Scored:
        """Return rows by their numbers among these, some of them perhaps more than once."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        taken: dict[str, Any] = {
            name: None if values is None else values[row_numbers] for name, values in arrays.items()
        }
        return replace(self, **taken)

    def labelled(self) -> Scored:
        """Return the rows that have a label."""
        return self.take(self.labels != UNLABELLED)

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return the group of each row as a number from 0, None without groups."""
        return group_codes(self.groups)

    def tallies(
        self,
        rules: Sequence[Rule],
        constraints: Sequence[Constraint],
        level: float,
        group_test: GroupTest | None,
    ) -> Iterator[Tally]:
        """Yield the counts of each rule's sets, claim by claim, for tests at a level."""
        k, how = len(self.classes), self.testing(level, group_test)
        for rule in rules:
            yield tally_blocks(self.sets_of(rule), self.labels, constraints, k, how)

    def testing(self, level: float, group_test: GroupTest | None) -> Testing:
        """Return how these rows are counted for a test at a level."""
        groups = self.group_codes()
        if groups is not None:
            return Testing(groups, group_test, None)
        if self.weights is not None:
            return Testing(None, None, None, self.weights)
        if (self.labels == UNLABELLED).any():  # a plan proves more, and for known labels only
            return Testing(None, None, None)
        return Testing(None, None, AcceptancePlan(testing_order(self.order, self.labels), level))

    def sets_of(self, rule: Rule) -> SetsOf:
        """Return what gives a rule's sets of a block of rows, empty ones without scores."""
        plain = asdict(rule)
        return lambda of: rule_sets(plain, self.scores[of])

    def named_by(self, rule: Rule) -> SetsOf:
        """Return what gives the classes that a rule names for a block of rows."""
        plain = asdict(rule)
        return lambda of: candidate_sets(plain, self.scores[of])

    def sample(self, most: int, *, by_class: bool) -> Sample:
        """Return all rows or at most so many, by class with all rows of rare ones; in any order."""
        if self.n_rows <= most:
            return self.as_sample(self.weights)
        labels = self.labels if by_class else np.zeros_like(self.labels)
        sizes = class_sizes(labels, int(labels.max()) + 1)
        quotas = class_quotas(sizes, most)
        chosen = self.take(keep_rows(self.order, labels, quotas))
        weights = class_weights(sizes, quotas)[chosen.labels] if by_class else None
        if chosen.weights is not None:
            weights = chosen.weights if weights is None else weights * chosen.weights
        return chosen.as_sample(weights)

    def as_sample(self, weights: NDArray[np.float64] | None) -> Sample:
        """Return all rows, which may stand for others by their weights."""
        return Sample(
            scores=self.scores,
            labels=self.labels,
            weights=weights,
            groups=self.group_codes(),
            cases=self.cases(),
            places=self.places if self.table.numbered else None,
            keys=self.table.key_values(self.places),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Labelled rows, with the sets that a set classifier serves for them."""

    rows: Scored  # with NaN for scores where it could not score a row
    sets: NDArray[np.bool_]  # (n, k)
    named: NDArray[np.bool_]  # (n, k) the classes that each answer names as candidates
    n_invalid: int  # rows that it could not score

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.rows.n_rows

    def sets_of(self, block: slice) -> NDArray[np.bool_]:
        """Return the sets of a block of rows."""
        return self.sets[block]

    def named_of(self, block: slice) -> NDArray[np.bool_]:
        """Return the classes that are named for a block of rows."""
        return self.named[block]

    def tally(
        self, constraints: Sequence[Constraint], level: float, group_test: GroupTest | None
    ) -> Tally:
        """Return the counts of the sets, claim by claim, for a test at a level."""
        how = self.rows.testing(level, group_test)
        return tally_blocks(self.sets_of, self.rows.labels, constraints, self.sets.shape[1], how)

    def count(self) -> Counts:
        """Return the counts of the sets, class by class."""
        return count_blocks(self.sets_of, self.named_of, self.rows.labels, self.rows.scores)[0]

    def sample(self, most: int) -> tuple[Sample, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return all rows or at most so many, their sets, and the classes that they name."""
        rows, sets, named = self.rows, self.sets, self.named
        if rows.n_rows > most:
            kept = keep_rows(rows.order, np.zeros_like(rows.labels), np.array([most]))
            rows, sets, named = rows.take(kept), take_rows(sets, kept), take_rows(named, kept)
        return rows.as_sample(None), sets, named


def make_answered(
    uri: str,
    table: Table,
    classes: tuple[str, ...],
    labels: NDArray[np.int32],
    sums: NDArray[np.uint64],
    scores: NDArray[np.float64],
    sets: NDArray[np.bool_],
    named: NDArray[np.bool_],
) -> Answered:
    """Return what a set classifier answers to a table; raise where it can score none of the rows.

    Rows that it could not score have NaN for scores.
    """
    n = len(labels)
    invalid = fill_rows(n, np.bool_, lambda of: np.isnan(scores[of]).all(axis=1))
    if invalid.all():
        raise InvalidDataError(
            f"{uri} can score none of the {n:,} rows of {table.what}; are they of another kind?"
        )
    rows = Scored(
        classes=classes,
        table=table,
        scores=scores,
        labels=labels,
        places=row_numbers(n),
        sums=sums,
        order=table.hashes,
        keys=table.keys,
        groups=table.groups,
    )
    n_invalid = int(np.count_nonzero(invalid))
    return Answered(rows=rows, sets=sets, named=named, n_invalid=n_invalid)


def row_numbers(n: int) -> NDArray[np.int64]:
    """Return the numbers of n rows, from 0."""
    return fill_rows(n, np.int64, lambda of: np.arange(of.start, of.stop))


def tally_blocks(
    sets_of: SetsOf,
    labels: NDArray[np.int32],
    constraints: Sequence[Constraint],
    k: int,
    how: Testing,
) -> Tally:
    """Return the counts of sets, which a function gives for each block of rows, claim by claim."""
    certain, wrong = np.empty((2, len(labels)), dtype=np.bool_)
    answers = np.empty(len(labels), dtype=np.int64) if (labels == UNLABELLED).any() else None
    for of in row_blocks(len(labels)):
        sets = sets_of(of)
        certain[of], wrong[of] = certain_and_wrong(sets, labels[of])
        if answers is not None:
            answers[of] = sets.argmax(axis=1)
    return tally_answers(
        certain,
        wrong,
        labels,
        constraints,
        k,
        how.groups,
        how.weights,
        group_test=how.group_test,
        plan=how.plan,
        answers=answers,
    )


def count_blocks(
    sets_of: SetsOf,
    named_of: SetsOf,
    labels: NDArray[np.int32],
    scores: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,  # (n,)
) -> tuple[Counts, Top1, Named]:
    """Return the counts of sets, which a function gives for each block, of top-1 and candidates."""
    parts = []
    for of in row_blocks(len(labels)):
        sets = sets_of(of)
        certain = np.count_nonzero(sets, axis=1) == 1
        worth = np.ones(len(sets)) if weights is None else weights[of]
        counts = count_sets(sets, labels[of], np.zeros((0, sets.shape[1])), worth)
        top1 = count_top1(scores[of], labels[of], certain, worth)
        parts.append((counts, top1, count_named(named_of(of), labels[of], certain, worth)))
    counted, tops, named = zip(*parts, strict=True)
    top1 = Top1(*(sum(each) for each in zip(*tops, strict=True)))
    return add_counts(counted), top1, Named(*(sum(each) for each in zip(*named, strict=True)))
