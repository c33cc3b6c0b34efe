"""The Spark engine: which rows are fitted, which draw the path and which certify."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd
from mlflow.pyfunc import PyFuncModel
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.core.certificate import Sample, Tally, tally_sets
from scrib_mlflow.core.certificate.split import class_quotas, class_weights
from scrib_mlflow.core.counts import Counts, GroupSums, count_sets
from scrib_mlflow.core.rules import (
    OptimalRule,
    Rule,
    own_probabilities,
    predict_sets,
    threshold_between,
    threshold_rank,
)
from scrib_mlflow.core.targets import Constraint, claimed
from scrib_mlflow.engines.base import (
    CERTIFY,
    CERTIFY_WITH_PATH,
    CalibrationRows,
    SmokeTest,
    Tables,
    score_options,
)
from scrib_mlflow.engines.local import TRIED_ROWS, refuse_overlap
from scrib_mlflow.engines.spark import columns, udfs
from scrib_mlflow.engines.spark.columns import (
    as_signed,
    as_unsigned,
    class_sizes,
    float_of,
    float_order,
    hash_column,
    looked_up,
    lowest,
    matrix,
    next_lower,
    numbers,
    over_partitions,
    sum_over,
)
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.options import Calibrate
from scrib_mlflow.records import DataRecord
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.hashes import Hashes, thinning
from scrib_mlflow.rows.scoring import (
    COLUMNS,
    ScoreOptions,
    ScoringPlan,
    ask,
    check_asked,
    score_columns,
)
from scrib_mlflow.rows.tables import SOME_ROWS

Sets = NDArray[np.bool_]
# (n, k) sets of some rules, one after the other, of the rows of a batch
MakeSets = Callable[[pa.RecordBatch], Iterable[Sets]]
PLAIN, GROUPED = 3, 8  # numbers of a tally for each claim
NO_SOFT = np.zeros((0, 0))
AT_ONCE = 32  # rules of a path, which is tested until one fails
LOOKED_AT = 10 * TRIED_ROWS  # rows among which some to fit are found, to try the model on
Keep = Callable[["DataFrame"], "DataFrame"]  # until the engine is closed


def tally_over(
    frame: DataFrame,
    make_sets: MakeSets,
    n_rules: int,
    constraints: Sequence[Constraint],
    *,
    grouped: bool,
) -> list[Tally]:
    """Return the tally of each rule; with groups no group may be in two partitions."""
    shape = (n_rules, GROUPED if grouped else PLAIN, len(claimed(constraints)))

    def measure(batch: Any) -> NDArray[np.float64]:
        labels = numbers(batch, "label")
        codes = _codes(hash_column(batch, "grouped")) if grouped else None
        found = [_packed(tally_sets(s, labels, constraints, codes)) for s in make_sets(batch)]
        return np.array(found, dtype=np.float64).reshape(shape)

    zeros = np.zeros(shape)  # counts and sums of squares are whole, and exact below 2^53
    if grouped:
        sums = sum(over_partitions(frame, measure, zeros), zeros)
    else:
        sums = sum_over(frame, measure, zeros)
    return [_unpacked(each) for each in sums]


def count_over(frame: DataFrame, make_sets: MakeSets, k: int) -> Counts:
    """Return what the sets of one rule do, class by class."""

    def measure(batch: pa.RecordBatch) -> NDArray[np.float64]:
        (sets,) = make_sets(batch)
        labels = numbers(batch, "label")
        counts = count_sets(sets, labels, NO_SOFT, np.ones(len(labels)))
        return np.concatenate([np.atleast_1d(value) for value in counts])

    sums = sum_over(frame, measure, np.zeros(4 * k + 3))
    return Counts(*sums[: 4 * k].reshape(4, k), *(float(value) for value in sums[4 * k :]))


def served_sets(k: int) -> MakeSets:
    """Return the function that gives the sets which a served model answered with."""
    return lambda batch: [matrix(batch, "sets", k)]


def _codes(groups: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _packed(tally: Tally) -> NDArray[np.float64]:
    """Return a tally as rows of numbers, one column a claim."""
    rows: list[NDArray[Any]] = [tally.n, tally.n_certain, tally.n_wrong]
    if tally.groups is not None:
        sums = tally.groups
        rows += [sums.counts, sums.certain_squared, sums.wrong_squared, sums.product]
        rows += [np.full(len(tally.n), sums.total)]
    return np.array(rows, dtype=np.float64)


def _unpacked(rows: NDArray[np.float64]) -> Tally:
    n, n_certain, n_wrong = rows[:PLAIN].astype(np.int64)
    tally = Tally(n=n, n_certain=n_certain, n_wrong=n_wrong)
    if len(rows) == PLAIN:
        return tally
    counts, certain_squared, wrong_squared, product, total = rows[PLAIN:]
    return tally._replace(
        groups=GroupSums(
            total=int(total[0]) if len(total) else 0,
            counts=counts.astype(np.int64),
            certain_squared=certain_squared,
            wrong_squared=wrong_squared,
            product=product,
        )
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """A table whose rows stay in Spark."""

    frame: DataFrame
    record: DataRecord
    roles: columns.Roles

    @property
    def what(self) -> str:
        """The parameter that names it."""
        return self.roles.what

    @property
    def label(self) -> str | None:
        """Its column of true classes."""
        return self.roles.label

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are no inputs: those that identify and group rows."""
        return tuple(name for name in (self.roles.key, self.roles.group) if name is not None)

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""
        return udfs.first_rows(self.frame, None, SOME_ROWS)


def read_frame(frame: DataFrame, place: str, roles: columns.Roles) -> SparkTable:
    """Return an open table, digested."""
    columns.check_roles(frame, roles)
    sums = columns.digest_sums(frame, roles)
    n = int(sums[0])
    record = DataRecord(
        source=place, digest=hashes.digest_of(frame.columns, sums), n_rows=n, n_used=n
    )
    return SparkTable(frame=frame, record=record, roles=roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The rows of a table, scored, and how."""

    table: SparkTable
    asked: ScoringPlan
    rows: SparkRows


def make_parts(
    read: Tables[SparkTable],
    model: PyFuncModel,
    uri: str,
    example: Any,
    settings: Calibrate,
    held: Keep,
) -> CalibrationRows:
    """Score the rows of all tables, and return them by what they are for."""
    options = score_options(settings)
    check_asked(model, options)
    scored: dict[str, Scored] = {}
    for table in read.all():
        like = scored["data"].asked if scored else None
        asked = ask(model, example, table, table.some_rows(), options, like)
        scored[table.what] = Scored(
            table=table, asked=asked, rows=_score(table, asked, uri, options, held)
        )
    data = scored["data"]
    fit, certify = data.rows, None
    fit_data = read.data.record
    certify_data = None if read.certify is None else read.certify.record
    path = scored["path_data"].rows if "path_data" in scored else None
    if read.certify is not None:
        certify = scored["certify_data"].rows
    elif settings.mode == "certified":
        fit, certify = _split(data, settings)
        fit_data = replace(fit_data, n_used=fit.n_rows)
        certify_data = replace(fit_data, n_used=certify.n_rows)
    _check_groups(scored, certify, settings.group)
    if certify is not None:
        _check_overlap(fit, certify, path, own_table=read.certify is not None)
    n_shared = 0
    if certify is not None:
        n_shared = columns.count_shared(fit.frame, certify.frame, "case")
    return CalibrationRows(
        classes=data.asked.scorer.classes,
        scores=data.asked.scorer.source,
        fit=fit,
        certify=certify,
        path=path,
        fit_data=fit_data,
        certify_data=certify_data,
        path_data=None if read.path is None else read.path.record,
        n_shared=n_shared,
        cases=_cases(scored, {"fit": fit, "certify": certify, "path": path}),
        tried=_tried(data, fit),
    )


def _score(
    table: SparkTable, asked: ScoringPlan, uri: str, options: ScoreOptions, held: Keep
) -> SparkRows:
    """Return the rows of a table with scores, kept in Spark."""
    scorer, names, roles = asked.scorer, list(asked.inputs) or None, table.roles
    inputs, k = scorer.model.metadata.get_input_schema(), len(scorer.classes)
    labels = columns.find_labels(table.frame, roles, scorer.classes)
    wanted, named = score_columns(options)
    if wanted == COLUMNS:
        scored = udfs.given_scores(table.frame, named or scorer.classes)
    else:
        scored = udfs.with_scores(
            table.frame, uri, names or [], inputs, scorer.classes, scorer.source
        )
    slim = columns.identify(scored, roles, labels, names, inputs, k)
    keyed, grouped = roles.key is not None, roles.group is not None
    ordered = columns.with_order(slim, options.seed, keyed=keyed)
    frame = held(keep(ordered, grouped=grouped))
    columns.check_unchanged(frame, table.frame.columns, table.record.digest, table.what)
    udfs.check_scored(frame, table.what, roles.key)
    columns.check_keys(frame, roles)
    return SparkRows(
        frame=frame, k=k, grouped=grouped, keyed=keyed, labelled=roles.label is not None
    )


def _split(data: Scored, settings: Calibrate) -> tuple[SparkRows, SparkRows]:
    """Return the rows that fit and those that certify."""
    usual = CERTIFY if settings.path_data is None else CERTIFY_WITH_PATH
    rows = data.rows
    certifies = columns.certifies(
        rows.frame,
        rows.sizes,
        usual if settings.certify_fraction is None else settings.certify_fraction,
        grouped=rows.grouped,
        names=data.asked.scorer.classes,
        waived=settings.waive,
    )
    fit, certify = rows.frame.filter(~certifies), rows.frame.filter(certifies)
    return replace(rows, frame=fit), replace(rows, frame=certify)


def _check_groups(scored: dict[str, Scored], certify: SparkRows | None, group: str | None) -> None:
    """Raise where a group stands among the certify rows and among others."""
    if group is None or certify is None:
        return
    own = "certify_data" in scored
    for what, other in scored.items():
        if what == "certify_data" or (what == "data" and not own):
            continue
        hashed = columns.shared_group(certify.frame, other.rows.frame)
        if hashed is not None:
            value = columns.value_with(other.table.frame, group, hashed)
            raise InvalidDataError(
                f"{group} {value!r} has rows among those that certify and in {what}, so they "
                "would not be independent; give every group to one of them"
            )


def _check_overlap(
    fit: SparkRows, certify: SparkRows, path: SparkRows | None, *, own_table: bool
) -> None:
    """Raise where rows that certify were fitted, beyond what chance explains."""
    others = [("data", fit)] if own_table else []
    others += [("path_data", path)] if path is not None else []
    for what, rows in others:
        modulus = max(hashes.thinning(rows.n_rows), hashes.thinning(certify.n_rows))
        for name in ("unlabelled", "key") if certify.keyed else ("unlabelled",):
            seen, new = (thinned(each.frame, name, modulus)[0] for each in (rows, certify))
            refuse_overlap(what, hashes.compare_rows(seen, new, modulus))


def _cases(scored: dict[str, Scored], used: dict[str, SparkRows | None]) -> dict[str, Hashes]:
    """Return hashes of all rows that were used, by what for.

    Scores do not tell rows apart when they come again as inputs.
    """
    found = {}
    for part, rows in used.items():
        if rows is None:
            continue
        own = scored.get(f"{part}_data", scored["data"])
        modulus = hashes.thinning(rows.n_rows)
        if own.asked.inputs:
            name = "unlabelled" if part == "path" else "case"
            found[part] = thinned(rows.frame, name, modulus)
        if rows.keyed:
            found[f"{part} keys"] = thinned(rows.frame, "key", modulus)
    return found


def _tried(data: Scored, fit: SparkRows) -> SmokeTest | None:
    """Return some fit rows as the local engine would read them, with the scores found in Spark."""
    names, scorer = data.asked.inputs, data.asked.scorer
    if not names:
        return None
    rows = udfs.first_rows(data.table.frame, names, LOOKED_AT)
    features = tables.as_typed(rows, scorer.model.metadata.get_input_schema())
    nothing = np.full(len(features), columns.UNLABELLED)
    cases = as_signed(hashes.case_hashes(features, nothing)).tolist()
    for frame in (fit.frame, data.rows.frame):  # a sorted table may begin with certify rows only
        scores = udfs.scores_of(frame, cases)
        places = [place for place, each in enumerate(cases) if each in scores][:TRIED_ROWS]
        if places:
            found = np.array([scores[cases[place]] for place in places])
            return SmokeTest(features.iloc[places].reset_index(drop=True), found)
    return None
