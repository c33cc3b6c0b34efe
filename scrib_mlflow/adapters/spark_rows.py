"""Scored rows in Spark: counted where they are, with bounded samples on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.adapters.digests import Hashes, thinning
from scrib_mlflow.adapters.spark_counts import MakeSets, count_over, served_sets, tally_over
from scrib_mlflow.adapters.spark_split import class_sizes
from scrib_mlflow.adapters.spark_sums import (
    as_unsigned,
    float_of,
    float_order,
    looked_up,
    lowest,
    matrix,
    next_lower,
    numbers,
)
from scrib_mlflow.core.candidates import own_probabilities, threshold_between, threshold_rank
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.rules import OptimalRule, Rule, predict_sets
from scrib_mlflow.core.sample import Sample, class_quotas, class_weights
from scrib_mlflow.core.tally import Tally
from scrib_mlflow.core.targets import Constraint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT_ONCE = 32  # rules of a path, which is tested until one fails


def keep(ordered: DataFrame, *, grouped: bool) -> DataFrame:
    """Return rows that are kept in the executors, whole groups together."""
    placed = ordered.repartition("grouped") if grouped else ordered
    return placed.persist(StorageLevel.MEMORY_AND_DISK)


def thinned(frame: DataFrame, name: str, modulus: int) -> Hashes:
    """Return the hashes in a column that a modulus, a power of 2, divides."""
    kept = frame.filter(F.col(name).bitwiseAND(F.lit(modulus - 1)) == 0).select(name)
    return Hashes(as_unsigned(kept.toArrow().column(0).to_numpy()), modulus)


@dataclass(frozen=True, kw_only=True)
class SparkRows:
    """Scored rows of one part: fit, certify or path."""

    frame: DataFrame  # kept, with whole groups in each partition
    k: int
    grouped: bool
    keyed: bool
    labelled: bool = True

    @cached_property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self.sizes.sum()) if self.labelled else int(self.frame.count())

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Return (k,) how many rows each class has."""
        return class_sizes(self.frame, self.k) if self.labelled else np.zeros(self.k, np.int64)

    @cached_property
    def n_groups(self) -> int | None:
        """Return how many groups there are, None where rows have none."""
        return self.frame.select("grouped").distinct().count() if self.grouped else None

    def tallies(self, rules: Sequence[Rule], constraints: Sequence[Constraint]) -> Iterator[Tally]:
        """Yield the tally of each rule over all rows, some rules a pass."""
        for start in range(0, len(rules), AT_ONCE):
            some = tuple(rules[start : start + AT_ONCE])
            yield from tally_over(
                self.frame,
                _sets_of(some, self.k),
                len(some),
                constraints,
                grouped=self.grouped,
            )

    def count(self, rule: Rule) -> Counts:
        """Return what the rule does on all rows."""
        return count_over(self.frame, _sets_of((rule,), self.k), self.k)

    def with_candidates(self, rule: OptimalRule, coverage: float) -> OptimalRule:
        """Return the rule with the candidate thresholds that all rows give."""
        own = _own_probabilities(self.frame, rule, self.k).persist()
        try:
            sizes = {row["label"]: row["count"] for row in own.groupBy("label").count().collect()}
            ranks = {j: threshold_rank(n, coverage) for j, n in sizes.items()}
            at = lowest(own, "label", "own", {j: rank for j, rank in ranks.items() if rank > 0})
            below = next_lower(own, "label", "own", at)
        finally:
            own.unpersist()
        found = {
            j: threshold_between(float_of(value), float_of(below[j]) if j in below else None)
            for j, value in at.items()
        }
        always = float("-inf")
        return replace(
            rule, candidate_thresholds=tuple(found.get(j, always) for j in range(self.k))
        )

    def sample(self, most: int, *, by_class: bool) -> Sample:
        """Return all rows, or at most so many: those of the highest order, of each class or all."""
        if self.n_rows <= most:
            return _collect(self.frame, self)[0]
        if not by_class:
            return _collect(_highest(self.frame, "order", self.n_rows, most), self)[0]
        quotas = class_quotas(self.sizes, most)
        sample = _collect(_highest_of_classes(self.frame, self.sizes, quotas), self)[0]
        return sample._replace(weights=class_weights(self.sizes, quotas)[sample.labels])


@dataclass(frozen=True, kw_only=True)
class SparkAnswered:
    """Labelled rows, with the sets that a served model gave them."""

    frame: DataFrame
    k: int
    grouped: bool
    keyed: bool

    @cached_property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self.frame.count())

    @cached_property
    def n_invalid(self) -> int:
        """Return how many rows the model could not score."""
        return int(self.frame.filter("error != ''").count())

    @cached_property
    def n_groups(self) -> int | None:
        """Return how many groups there are, None where rows have none."""
        return self.frame.select("grouped").distinct().count() if self.grouped else None

    def tally(self, constraints: Sequence[Constraint]) -> Tally:
        """Return the tally over all rows."""
        made = served_sets(self.k)
        return tally_over(self.frame, made, 1, constraints, grouped=self.grouped)[0]

    def count(self) -> Counts:
        """Return what the sets do on all rows."""
        return count_over(self.frame, served_sets(self.k), self.k)

    def sample(self, most: int) -> tuple[Sample, NDArray[np.bool_]]:
        """Return all rows and their sets, or so many with the highest hashes."""
        if self.n_rows <= most:
            return _collect(self.frame, self)
        return _collect(_highest(self.frame, "row", self.n_rows, most), self)

    def cases(self, *, labelled: bool) -> Hashes:
        """Return hashes of what the model is given, and of classes where asked for."""
        return thinned(self.frame, "case" if labelled else "unlabelled", thinning(self.n_rows))

    def keys(self) -> Hashes | None:
        """Return hashes of what identifies the rows, None where no column does."""
        return thinned(self.frame, "key", thinning(self.n_rows)) if self.keyed else None


def _sets_of(rules: Sequence[Rule], k: int) -> MakeSets:
    return lambda batch: (predict_sets(matrix(batch, "scores", k), rule) for rule in rules)


def _own_probabilities(frame: DataFrame, rule: OptimalRule, k: int) -> DataFrame:
    """Return class and probability of the true class of rows that abstain, in integers."""

    def own(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            labels = numbers(batch, "label")
            found = own_probabilities(rule, matrix(batch, "scores", k), labels)
            asked = ~np.isnan(found)
            yield pa.RecordBatch.from_pydict(
                {"label": labels[asked], "own": float_order(found[asked])}
            )

    return frame.select("label", "scores").mapInArrow(own, "label int, own long")


def _highest(frame: DataFrame, by: str, n: int, most: int) -> DataFrame:
    """Return so many rows with the highest numbers; rows with the same number are equal."""
    cut = lowest(frame.withColumn("all", F.lit(0)), "all", by, {0: n - most + 1})[0]
    above = frame.filter(F.col(by) > cut)
    return above.union(frame.filter(F.col(by) == cut).limit(most - above.count()))


def _highest_of_classes(
    frame: DataFrame, sizes: NDArray[np.int64], quotas: NDArray[np.int64]
) -> DataFrame:
    """Return of each class as many rows as its quota, those of the highest order."""
    pairs = list(enumerate(zip(sizes.tolist(), quotas.tolist(), strict=True)))
    whole = [j for j, (n, quota) in pairs if 0 < n == quota]
    ranks = {j: n - quota + 1 for j, (n, quota) in pairs if 0 < quota < n}
    cuts = lowest(frame, "label", "order", ranks)
    chosen = F.col("label").isin(*whole)
    if cuts:
        chosen |= F.coalesce(F.col("order") >= looked_up(cuts, "label"), F.lit(False))
    return frame.filter(chosen)


def _collect(frame: DataFrame, rows: SparkRows | SparkAnswered) -> tuple[Sample, NDArray[np.bool_]]:
    """Return rows on the driver, sorted by case, with the sets that they were answered with."""
    names = ["label", "scores", "sets", "grouped", "case", "unlabelled", "name"]
    table = frame.select(*names).toArrow().combine_chunks()
    labelled = getattr(rows, "labelled", True)
    cases = as_unsigned(table.column("case" if labelled else "unlabelled").to_numpy())
    by_case = np.argsort(cases, kind="stable")
    groups = None
    if rows.grouped:
        groups = np.unique(table.column("grouped").to_numpy(), return_inverse=True)[1]
        groups = groups.astype(np.int64)[by_case]
    keys = None
    if rows.keyed:
        keys = np.array(table.column("name").to_pylist(), dtype=np.object_)[by_case]
    sets = _matrix(table, "sets").astype(np.bool_)
    return Sample(
        scores=_matrix(table, "scores").astype(np.float64)[by_case],
        labels=table.column("label").to_numpy().astype(np.int32)[by_case],
        weights=None,
        groups=groups,
        cases=cases[by_case],
        places=None,
        keys=keys,
    ), sets[by_case]


def _matrix(table: pa.Table, name: str) -> NDArray[np.generic]:
    """Return a column of lists of one length as an array (n, k)."""
    column = table.column(name).combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(table.num_rows, -1)
