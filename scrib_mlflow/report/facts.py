"""Facts as values: the one table of the classes, and what a command says, before any layout."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import ClassReport, SetReport
from scrib_mlflow.core.targets import overall_name

WITHIN, ABOVE, EXCEEDED = "bound within target", "bound above target", "risk above target"
MOST_SETS = 12  # that a figure or a page shows by name
UNPROVED = "nothing proved"
CHANGED = "not as registered"
GOOD = {"certified", WITHIN}
NEUTRAL = {"waived", "no target", "passes alone", ABOVE, UNPROVED, "not asked", "not refuted"}
Tone = Literal["good", "bad", "plain"]
Counted = ClassReport | SetReport | Claim


COLUMNS = {  # of classes.json, and the fields of a row that they hold
    "class": "name",
    "rows": "n",
    "certain": "n_certain",
    "wrong": "n_wrong",
    "risk": "risk",
    "top1_risk_certain": "top1_certain",
    "top1_risk": "top1",
    "risk_upper": "upper",
    "target": "target",
    "miscoverage": "miscoverage",
    "abstention": "abstention",
    "candidate_coverage": "candidates",
}
CLAIMED = {  # where there is a certificate
    "p_value": "p_value",
    "risk_upper_simultaneous": "upper_simultaneous",
    "status": "status",
}


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class, or several together: counts, risk, bound, target and status."""

    name: str
    n: int | float
    n_certain: int | float
    n_wrong: int | float
    risk: float  # NaN without certain rows
    upper: float
    target: float  # NaN where there is none
    abstention: float = NAN  # the share of its rows that abstain, NaN without rows
    miscoverage: float = NAN
    top1: float = NAN  # the risk of top-1 on all rows, as the baseline
    top1_certain: float = NAN  # and on the certain ones
    candidates: float = NAN  # how often those of abstentions hold the true class
    proves: bool = True  # False where the bound means nothing, as on rows of the fit
    p_value: float = NAN  # of its claim, as the next
    upper_simultaneous: float = NAN
    status: str = ""

    @property
    def bound(self) -> float:
        """The upper bound where it means something, else NaN."""
        return self.upper if self.proves else NAN

    @property
    def excess(self) -> float:
        """How far the risk is above its target: silent classes first, those without target last."""
        if math.isnan(self.target):
            return -1.0
        return 1.0 if math.isnan(self.risk) else self.risk - self.target

    @property
    def tone(self) -> Tone:
        """Say whether the status is what one would wish for."""
        return "good" if self.status in GOOD else "plain" if self.status in NEUTRAL else "bad"


@dataclass(frozen=True, slots=True)
class ClassTable:
    """What is known of each risk, and no more: every text and figure of the classes reads this."""

    rows: tuple[ClassRow, ...]  # the classes in their order, then several classes together
    k: int  # classes

    @property
    def classes(self) -> tuple[ClassRow, ...]:
        """The rows of single classes."""
        return self.rows[: self.k]

    def worst(self, most: int) -> Sequence[ClassRow]:
        """Return the classes; of more than `most`, those with the greatest excess, worst first."""
        if self.k <= most:
            return self.classes
        return sorted(self.classes, key=lambda row: -row.excess)[:most]

    def changed(self) -> ClassTable:
        """Return the table of a version whose files are not those that were registered."""
        return replace(self, rows=tuple(replace(row, status=CHANGED) for row in self.rows))

    def records(self) -> list[dict[str, Any]]:
        """Return a record a class, as classes.json has them."""
        claimed = any(not math.isnan(row.p_value) for row in self.rows)
        columns = COLUMNS | CLAIMED if claimed else COLUMNS
        return [
            {column: getattr(row, field) for column, field in columns.items()}
            for row in self.classes
        ]


def class_table(
    report: SetReport,
    targets: Mapping[str, float],
    overall_target: float | None = None,
    *,
    certificate: Certificate | None = None,
    unclaimed: str = "waived",
    refuted: Collection[str] | None = None,
    proves: bool = True,
) -> ClassTable:
    """Return the table of a report: with the statuses of a certificate, or as measured.

    `unclaimed` is the status of a class that the certificate does not mention. `refuted` names the
    claims of a version that these rows disprove. `proves` is False where bounds mean nothing.
    """
    measured = report.by_class | (report.by_risk_group if certificate is None else {})
    rows = [_measured(name, each, targets.get(name, NAN)) for name, each in measured.items()]
    k, overall = len(report.by_class), overall_name(report.classes)
    if certificate is None and overall_target is not None:
        rates = report.overall_risk, report.overall_risk_upper, overall_target
        rows.append(_overall(_row(overall, report, *rates), report))
    rows = [replace(row, proves=proves) for row in rows]
    if certificate is None:
        return ClassTable(tuple(replace(row, status=_status(row, refuted)) for row in rows), k)
    claims = {claim.name: claim for claim in certificate.claims}
    rows = [
        _claimed(row, claims[row.name]) if row.name in claims else replace(row, status=unclaimed)
        for row in rows
    ]
    for claim in certificate.claims:
        if claim.name not in report.by_class:
            row = _row(claim.name, claim, claim.risk, claim.risk_upper, claim.target)
            if claim.name in report.by_risk_group:
                row = _measured(claim.name, report.by_risk_group[claim.name], claim.target)
            elif claim.name == overall:
                row = _overall(row, report)
            rows.append(_claimed(row, claim))
    return ClassTable(tuple(rows), k)


def _row(name: str, counts: Counted, risk: float, upper: float, target: float) -> ClassRow:
    n, certain, wrong = counts.n, counts.n_certain, counts.n_wrong
    abstention = NAN
    if isinstance(counts, ClassReport | SetReport):
        abstention = counts.abstention_rate
    elif n:
        abstention = (n - certain) / n
    return ClassRow(name, n, certain, wrong, risk, upper, target, abstention)


def _measured(name: str, each: ClassReport, target: float) -> ClassRow:
    return replace(
        _row(name, each, each.risk, each.risk_upper, target),
        miscoverage=each.miscoverage,
        top1=each.top1_risk,
        top1_certain=each.top1_risk_certain,
        candidates=each.candidate_coverage,
    )


def _overall(row: ClassRow, report: SetReport) -> ClassRow:
    """Return the row of all classes together with its baseline."""
    top1, certain = report.overall_top1_risk, report.overall_top1_risk_certain
    abstains, held = report.abstention_rate, report.candidate_coverage
    return replace(row, abstention=abstains, top1=top1, top1_certain=certain, candidates=held)


def _claimed(row: ClassRow, claim: Claim) -> ClassRow:
    return replace(
        row,
        n=claim.n,
        n_certain=claim.n_certain,
        n_wrong=claim.n_wrong,
        risk=claim.risk,
        upper=claim.risk_upper,
        p_value=claim.p_value,
        upper_simultaneous=claim.risk_upper_simultaneous,
        status=claim.status,
    )


def _status(row: ClassRow, refuted: Collection[str] | None) -> str:
    """Return how a measured risk stands to its target, or whether the rows refute the claim."""
    for status, holds in (
        ("no target", math.isnan(row.target)),
        ("refuted", refuted is not None and row.name in refuted),
        ("not refuted", refuted is not None),
        ("no rows", not row.n),
        ("silent", not row.n_certain),
        (EXCEEDED, row.risk > row.target),
        (UNPROVED, not row.proves),
        (WITHIN, row.upper <= row.target),
    ):
        if holds:
            return status
    return ABOVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a command says of a set classifier, on a terminal, in a note and on the page."""

    stamp: str  # a word or two
    tone: Tone
    verdict: str  # a sentence
    provisos: tuple[str, ...]  # without which the verdict would claim too much
    reasons: tuple[str, ...] = ()  # what is in the way of a certificate, and what would help
    checks: tuple[tuple[str, str, str], ...] = ()  # of a gate: name, answer, why
    report: SetReport
    which: str  # rows these are
    counted: str = ""  # which rows the table counts, where these are others
    table: ClassTable
    asked: ClassTable  # the same rows by the targets of the command: logged and drawn
    heading: str  # above the table
    about_rule: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Cells as text, the header first, and which rows matter most where room is short."""

    rows: tuple[tuple[str, ...], ...]
    order: tuple[int, ...] = ()  # rows below the header that may be left out, worst first
    folded: str = ""  # which are left then: "The {n} of {all} ..."
    listing: bool = False  # whether the last column is long text


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a command says in the end, the verdict first."""

    verdict: str
    sentences: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    legend: tuple[str, ...] = ()  # of the tables, on a terminal
    notes: tuple[str, ...] = ()  # below them
    steps: tuple[tuple[str, str], ...] = ()  # what to do next, and how
    where: str  # the rest is to be seen
