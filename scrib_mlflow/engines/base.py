"""What a calibration works on, whichever engine scored the rows: some to fit, some to certify."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.core.certificate import Sample, Tally, make_certificate
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import SetReport, report_counts
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.core.targets import OVERALL, Targets, make_constraints
from scrib_mlflow.records import DataRecord, ScoreSource
from scrib_mlflow.registry import runs
from scrib_mlflow.rows import hashes
from scrib_mlflow.rows.hashes import Hashes
from scrib_mlflow.rows.scored import Answered, Scored, TableLike
from scrib_mlflow.rows.scoring import ScoreOptions

ANY_TARGET = Targets(risk_targets=0.5, overall_target=0.5)  # bounds do not depend on it
T = TypeVar("T")
CERTIFY, CERTIFY_WITH_PATH = 0.7, 0.9  # share of the rows, alone and with path_data
SHOWN_SCORES = 10_000_000  # rows times classes that figures are drawn of; counts are of all rows


def report_rule(rows: Scored, rule: Rule, classes: tuple[str, ...], confidence: float) -> SetReport:
    """Measure a rule on all rows of a part."""
    report = report_counts(rows.count(rule), classes, confidence, counted=True)
    if rows.n_groups is None:
        return report
    (tally,) = rows.tallies([rule], make_constraints(ANY_TARGET, classes))
    return with_groups(report, tally)


def report_answers(rows: Answered, classes: tuple[str, ...], confidence: float) -> SetReport:
    """Measure the sets that rows were served."""
    report = report_counts(rows.count(), classes, confidence, counted=True)
    if not rows.grouped:
        return report
    return with_groups(report, rows.tally(make_constraints(ANY_TARGET, classes)))


def compare_with_calibration(run_id: str, rows: Answered) -> hashes.Overlap | None:
    """Compare rows with those that a calibration used, None where these are not at hand.

    Rows that drew a path have no label, so their comparison leaves labels out.
    """
    known = runs.read_row_hashes(run_id) if run_id else {}
    asked: list[tuple[tuple[str, ...], Hashes | None]] = [
        (("fit", "certify"), rows.cases(labelled=True)),
        (("path",), rows.cases(labelled=False)),
        (("fit keys", "certify keys", "path keys"), rows.keys()),
    ]
    found = []
    for parts, own in asked:
        seen = [known[part] for part in parts if part in known]
        if seen and own is not None:
            modulus = max(own.modulus, *(kept for _, kept in seen))
            used = np.concatenate([kept for kept, _ in seen])
            found.append(hashes.compare_rows(used, own.values, modulus))
    return max(found, key=lambda each: (each.excessive, each.n_shared), default=None)


def with_groups(report: SetReport, tally: Tally) -> SetReport:
    """Return a report whose bounds heed the groups of rows; the paper's cannot, and is undefined.

    The tally is of claims about each class and about all of them.
    """
    claimed = make_constraints(ANY_TARGET, report.classes)
    found = make_certificate(tally, claimed, report.classes, level=1 - report.confidence)
    bounds = {claim.name: claim.risk_upper for claim in found.claims}
    return replace(
        report,
        overall_risk_upper=bounds[OVERALL],
        by_class={
            name: replace(each, risk_upper=bounds[name], risk_upper_kl=NAN)
            for name, each in report.by_class.items()
        },
    )


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
    waive: tuple[str, ...] = ()


class Engine(Protocol):
    """What reads and scores rows; its tables are its own."""

    def read_tables(self, request: RowsRequest) -> Tables[Any]:
        """Read what a calibration is given."""

    def make_parts(
        self, tables: Tables[Any], model: PyFuncModel, uri: str, example: Any, request: RowsRequest
    ) -> CalibrationRows:
        """Score the rows of all tables with a model, and return them by what they are for."""

    def read_fresh(
        self,
        place: str,
        label: str,
        *,
        key: str | None,
        group: str | None,
        optional: Collection[str] = (),
    ) -> TableLike:
        """Read labelled rows; a column that key or group names may be missing if `optional`."""

    def answer(self, uri: str, table: Any, classes: tuple[str, ...], batch_rows: int) -> Answered:
        """Let a registered set classifier answer the rows of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Generic[T]):
    """The tables of a calibration, as its engine reads them."""

    data: T
    certify: T | None  # of its own; None where rows of `data` certify, or none do
    path: T | None

    def all(self) -> list[T]:
        """Return every table that there is."""
        return [each for each in (self.data, self.certify, self.path) if each is not None]


class SmokeTest(NamedTuple):
    """Some rows to try a logged model on, and the scores that it must find."""

    features: pd.DataFrame
    scores: NDArray[np.float64]  # (n, k)


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
    cases: dict[str, Hashes]  # of all rows that were used, by what for
    tried: SmokeTest | None  # fit rows; None where only scores are given


def without_missing(
    named: dict[str, str | None], columns: Collection[str], optional: Collection[str]
) -> dict[str, str | None]:
    """Return columns by the options that name them, None for optional ones that are not there."""
    return {
        option: None if option in optional and name not in columns else name
        for option, name in named.items()
    }


def sorted_sample(rows: Scored, most: int, *, by_class: bool) -> Sample:
    """Return a sample in an order of its own, so that neither a table's nor an engine's matters."""
    found = rows.sample(most, by_class=by_class)
    order = np.argsort(found.cases, kind="stable")
    return Sample(
        scores=found.scores[order],
        labels=found.labels[order],
        weights=None if found.weights is None else found.weights[order],
        groups=None if found.groups is None else found.groups[order],
        cases=found.cases[order],
        places=None if found.places is None else found.places[order],
        keys=None if found.keys is None else found.keys[order],
    )


def shown_rows(k: int) -> int:
    """Return how many rows of k classes figures are drawn of at most."""
    return SHOWN_SCORES // k
