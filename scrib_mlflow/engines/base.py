"""What a calibration works on, whichever engine scored the rows: some to fit, some to certify."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.core.certificate import Path, Sample, make_certificate
from scrib_mlflow.core.certificate.overlap import Overlap, compare_rows
from scrib_mlflow.core.groups import GroupTest, typical_rows
from scrib_mlflow.core.inputs import NAN, row_blocks
from scrib_mlflow.core.reports import ClassReport, SetReport, report_counts, rounded_report
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.core.targets import Targets, make_constraints, overall_name
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.records import (
    DataRecord,
    RiskGroup,
    ScoreSource,
    SelectionRecord,
    Unscored,
    group_targets,
)
from scrib_mlflow.registry import runs
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.scored import Answered, Scored, SetsOf, Testing, count_blocks, tally_blocks
from scrib_mlflow.rows.scoring import ScoreOptions

ANY_TARGET = Targets(risk_targets=0.5, overall_target=0.5)  # bounds do not depend on it
T = TypeVar("T")
SHOWN_SCORES = 10_000_000  # rows times classes that figures are drawn of; counts are of all rows


def report_rule(
    rows: Scored,
    rule: Rule,
    classes: tuple[str, ...],
    confidence: float,
    group_test: GroupTest | None = None,
    risk_groups: Mapping[str, RiskGroup] | None = None,
) -> SetReport:
    """Measure a rule on all rows of a part."""
    how = classes, confidence, group_test, risk_groups, rows.weights
    groups = rows.group_codes()
    sets_of, named_of = rows.sets_of(rule), rows.named_by(rule)
    return report_sets(sets_of, named_of, rows.labels, rows.scores, groups, *how)


def report_answers(
    rows: Answered,
    classes: tuple[str, ...],
    confidence: float,
    group_test: GroupTest | None = None,
    risk_groups: Mapping[str, RiskGroup] | None = None,
) -> SetReport:
    """Measure the sets that rows were served."""
    scored, how = rows.rows, (classes, confidence, group_test, risk_groups)
    groups = scored.group_codes()
    return report_sets(rows.sets_of, rows.named_of, scored.labels, scored.scores, groups, *how)


def report_sets(
    sets_of: SetsOf,
    named_of: SetsOf,
    labels: NDArray[np.int32],
    scores: NDArray[np.float64],
    groups: NDArray[np.int64] | None,
    classes: tuple[str, ...],
    confidence: float,
    group_test: GroupTest | None = None,
    risk_groups: Mapping[str, RiskGroup] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> SetReport:
    """Measure sets, which a function gives for each block of rows, and the classes that are named.

    With groups the bounds are of capped rows, where nothing else is said by the median of these;
    the paper's bound cannot heed groups, and is undefined. Weights are scaled to the number of
    rows; counts are rounded then, and no bound is defined.
    """
    together = {name: group.classes for name, group in (risk_groups or {}).items()}
    scaled = None if weights is None else weights * (len(weights) / weights.sum())
    counts, top1, named = count_blocks(sets_of, named_of, labels, scores, scaled)
    report = report_counts(
        counts,
        classes,
        confidence,
        counted=weights is None,
        top1=top1,
        named=named,
        risk_groups=together,
    )
    if weights is not None:
        return rounded_report(report)
    if groups is None:
        return report
    wanted = replace(ANY_TARGET, risk_groups=group_targets(risk_groups or {}))
    claims = make_constraints(wanted, classes)
    how = group_test or GroupTest(typical_rows(groups, labels, claims))
    tally = tally_blocks(sets_of, labels, claims, len(classes), Testing(groups, how, None))
    certificate = make_certificate(tally, claims, classes, level=1 - report.confidence)
    bounds = {claim.name: claim.risk_upper for claim in certificate.claims}
    return replace(
        report,
        overall_risk_upper=bounds[overall_name(classes)],
        by_class=_with_bounds(report.by_class, bounds),
        by_risk_group=_with_bounds(report.by_risk_group, bounds),
    )


def report_selected(
    selected: SelectedRows,
    rule: Rule,
    classes: tuple[str, ...],
    confidence: float,
    group_test: GroupTest | None = None,
    risk_groups: Mapping[str, RiskGroup] | None = None,
) -> SetReport:
    """Measure a rule where only some rows of a pool were labelled.

    How often it abstains and with which sets needs no labels: all open rows of the pool tell. Rates
    by class are of labelled rows, weighted to stand for the pool; counts and bounds of those drawn,
    where a row without a label is an error of every class that it could be. A risk is the higher of
    both: one counts such rows, the other those that only a rule outside the path answers.
    """
    how = rule, classes, confidence, group_test, risk_groups
    certify, codes = selected.drawn, selected.drawn.group_codes()
    unlabelled = np.zeros_like(selected.open_rows.labels)
    pool = report_rule(replace(selected.open_rows, labels=unlabelled, groups=None), *how)
    whole = report_rule(selected.stand_ins, *how)
    wanted = replace(ANY_TARGET, risk_groups=group_targets(risk_groups or {}))
    constraints = make_constraints(wanted, classes)
    tested = Testing(codes, group_test, None)
    tally = tally_blocks(certify.sets_of(rule), certify.labels, constraints, len(classes), tested)
    certificate = make_certificate(tally, constraints, classes, level=1 - confidence)
    claims = {claim.name: claim for claim in certificate.claims}
    overall = claims[overall_name(classes)]

    def counted(reports: Mapping[str, ClassReport]) -> dict[str, ClassReport]:
        return {
            name: replace(
                each,
                **{of: getattr(claims[name], of) for of in ("n", "n_certain", "n_wrong")},
                risk=float(np.fmax(each.risk, claims[name].risk)),
                risk_upper=claims[name].risk_upper,
                risk_upper_kl=NAN if codes is not None else claims[name].risk_upper_kl,
            )
            for name, each in reports.items()
        }

    return replace(
        whole,
        n=overall.n,
        n_certain=overall.n_certain,
        n_wrong=overall.n_wrong,
        overall_risk=float(np.fmax(whole.overall_risk, overall.risk)),
        overall_risk_upper=overall.risk_upper,
        abstention_rate=pool.abstention_rate,
        chance_ambiguity=pool.chance_ambiguity,
        size_ambiguity=pool.size_ambiguity,
        empty_rate=pool.empty_rate,
        mean_candidates=pool.mean_candidates,
        by_class=counted(whole.by_class),
        by_risk_group=counted(whole.by_risk_group),
    )


def _with_bounds(
    reports: Mapping[str, ClassReport], bounds: Mapping[str, float]
) -> dict[str, ClassReport]:
    return {
        name: replace(each, risk_upper=bounds[name], risk_upper_kl=NAN)
        for name, each in reports.items()
    }


def answer_scores(
    engine: Engine[T],
    table: T,
    label: str,
    classes: tuple[str, ...],
    columns: tuple[str, ...],
    rule: Rule,
    batch_rows: int,
) -> Answered:
    """Let a rule answer rows whose scores stand in columns, where there is no model to do so."""
    options = ScoreOptions(
        label=label, classes=classes, columns=columns, batch_rows=batch_rows, max_invalid=1.0
    )
    request = RowsRequest(data="", scoring=options, certify=False)
    tables = Tables(data=table, certify=None, path=None)
    rows = engine.make_parts(tables, None, "", None, request).fit
    if rows.n_invalid == rows.n_rows:
        raise InvalidDataError(
            f"not one of the {rows.n_rows:,} rows of data has a finite score for every class"
        )
    sets_of, named_by = rows.sets_of(rule), rows.named_by(rule)
    sets, named = np.zeros((2, rows.n_rows, len(classes)), dtype=np.bool_)
    for block in row_blocks(rows.n_rows):
        sets[block], named[block] = sets_of(block), named_by(block)
    return Answered(rows=rows, sets=sets, named=named, n_invalid=rows.n_invalid)


def compare_with_calibration(run_id: str, rows: Scored) -> Overlap | None:
    """Compare rows with those that a calibration used, None where these are not at hand.

    Rows that drew a path have no label, so their comparison leaves labels out.
    """
    known = runs.read_row_hashes(run_id) if run_id else {}
    compared: list[tuple[tuple[str, ...], NDArray[np.uint64] | None]] = [
        (("fit", "certify"), rows.cases()),
        (("path",), rows.cases(labelled=False)),
        (("fit keys", "certify keys", "path keys"), rows.keys),
    ]
    overlaps = []
    for parts, fresh in compared:
        seen = [known[part] for part in parts if part in known]
        if seen and fresh is not None:
            modulus = max(hashes.thinning(len(fresh)), *(modulus for _, modulus in seen))
            used = np.concatenate([values for values, _ in seen])
            overlaps.append(compare_rows(used, fresh, modulus))
    return max(overlaps, key=lambda each: (each.excessive, each.n_shared), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """The rows of a calibration: where they are, what they are for, and how they are scored."""

    data: str
    scoring: ScoreOptions
    certify_data: str | None = None
    path_data: str | None = None
    key: str | None = None  # column that identifies rows
    group: str | None = None  # column by which rows belong together
    certify: bool = True  # whether rows of data certify where no table of its own does
    certify_fraction: float | None = None
    weight: str | None = None  # column of what rows count for
    max_weight: float | None = None  # that a row can have
    waive: tuple[str, ...] = ()
    drop_repeated: bool = False  # certify rows that equal another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Generic[T]):
    """The tables of a calibration, as its engine reads them."""

    data: T
    certify: T | None  # of its own; None where rows of `data` certify, or none do
    path: T | None

    def all(self) -> list[T]:
        """Return every table that there is."""
        return [each for each in (self.data, self.certify, self.path) if each is not None]


class Engine(ABC, Generic[T]):
    """What reads and scores rows; its tables are its own."""

    @abstractmethod
    def read_table(self, what: str, place: str, label: str | None, **named: Any) -> T:
        """Read rows, as `rows.tables.read_rows` does; `what` is the option that names them."""

    def read_tables(self, request: RowsRequest) -> Tables[T]:
        """Read what a calibration is given."""

        def read(what: str, place: str, label: str | None) -> T:
            weight = None if label is None else request.weight
            named = {"key": request.key, "group": request.group, "weight": weight}
            return self.read_table(what, place, label, **named)

        label, certify, path = request.scoring.label, request.certify_data, request.path_data
        return Tables(
            data=read("data", request.data, label),
            certify=None if certify is None else read("certify_data", certify, label),
            path=None if path is None else read("path_data", path, None),
        )

    @abstractmethod
    def make_parts(
        self,
        tables: Tables[T],
        model: PyFuncModel | None,
        uri: str,
        example: Any,
        request: RowsRequest,
    ) -> CalibrationRows:
        """Score the rows of all tables, and return them by what they are for.

        Without a model, the tables hold the scores.
        """

    @abstractmethod
    def read_again(self, table: T, rows: Scored, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of some rows of a table, for people; in the order of their hashes."""

    @abstractmethod
    def answer(self, uri: str, table: T, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""


class SmokeTest(NamedTuple):
    """Some rows to try a logged model on, and the scores that it must find."""

    features: pd.DataFrame
    scores: NDArray[np.float64]  # (n, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRows:
    """Rows of a pool, some of which were drawn and labelled, and what was fixed before."""

    record: SelectionRecord
    path: Path
    group_test: GroupTest | None
    path_rows: Scored  # of the pool, that drew the path
    open_rows: Scored  # the others, labelled or not
    drawn: Scored  # of these, to be labelled
    stand_ins: Scored  # those with a label and fit rows that no rule answers, weighted as the pool
    shown: Scored  # stand-ins, each as often as its weight says: for figures
    unscored: Unscored | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRows:
    """Scored rows by what they are for."""

    classes: tuple[str, ...]
    scores: ScoreSource  # where they come from
    fit: Scored  # recalibrates, and draws the path where nothing else does
    certify: Scored | None
    path: Scored | None
    fit_data: DataRecord
    certify_data: DataRecord | None
    path_data: DataRecord | None
    n_shared: int  # certify rows that equal a fit row
    cases: dict[str, hashes.Hashes]  # of all rows that were used, by what for
    tried: SmokeTest | None  # fit rows; None where only scores are given
    n_repeated: int = 0  # certify rows that equal another one
    n_dropped: int = 0  # such rows that were left out
    selected: SelectedRows | None = None  # where certify rows were drawn to be labelled

    @property
    def representative(self) -> Scored:
        """Labelled rows that stand for what the certificate is about, by weights if they have any.

        They are the fit rows where none certify.
        """
        if self.selected is not None:
            return self.selected.stand_ins
        return self.fit if self.certify is None else self.certify


def sorted_sample(rows: Scored, most: int, *, by_class: bool) -> Sample:
    """Return a sample in an order of its own, so that neither a table's nor an engine's matters.

    Rows that could not be scored are not in it.
    """
    sample = rows.scorable().sample(most, by_class=by_class)
    order = np.argsort(sample.cases, kind="stable")
    ordered: list[Any] = [None if values is None else values[order] for values in sample]
    return Sample(*ordered)


def shown_rows(k: int) -> int:
    """Return how many rows of k classes figures are drawn of at most."""
    return SHOWN_SCORES // k
