"""Facts as values: the one table of the classes, and what a command says, before any layout."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scrib_mlflow.core.certificate import Certificate
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.targets import OVERALL

WITHIN, ABOVE, EXCEEDED = "bound within target", "bound above target", "risk above target"
UNPROVED = "nothing proved"
CHANGED = "not as registered"
GOOD = {"certified", WITHIN}
NEUTRAL = {"waived", "no target", "passes alone", ABOVE, UNPROVED, "not asked", "not refuted"}
Tone = Literal["good", "bad", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One class, or several together: counts, risk, bound, target and status."""

    name: str
    n: int | float
    n_certain: int | float
    n_wrong: int | float
    risk: float  # NaN without certain rows
    upper: float
    proves: bool = True  # False where the bound means nothing, as on rows of the fit
    target: float  # NaN where there is none
    abstention: float
    miscoverage: float = NAN
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTable:
    """What is known of each risk, and no more: every text and figure of the classes reads this."""

    classes: tuple[ClassRow, ...]  # in the order of the classifier
    together: tuple[ClassRow, ...] = ()  # claims about several classes

    @property
    def rows(self) -> tuple[ClassRow, ...]:
        """The classes, then what is said of several together."""
        return self.classes + self.together

    def worst(self, most: int) -> list[str]:
        """Return all names, or of more than `most` those with the greatest excess, worst first."""
        rows = self.classes
        if len(rows) > most:
            rows = tuple(sorted(rows, key=lambda row: -row.excess)[:most])
        return [row.name for row in rows]

    def changed(self) -> ClassTable:
        """Return the table of a version whose files are not those that were registered."""
        parts = (self.classes, self.together)
        classes, together = (tuple(replace(row, status=CHANGED) for row in part) for part in parts)
        return ClassTable(classes=classes, together=together)

    def records(self) -> list[dict[str, Any]]:
        """Return a record a class, as classes.json has them."""
        claimed = any(not math.isnan(row.p_value) for row in self.rows)
        return [
            {
                "class": row.name,
                "rows": row.n,
                "certain": row.n_certain,
                "wrong": row.n_wrong,
                "risk": row.risk,
                "risk_upper": row.upper,
                "target": row.target,
                "miscoverage": row.miscoverage,
                "abstention": row.abstention,
            }
            | (
                {
                    "p_value": row.p_value,
                    "risk_upper_simultaneous": row.upper_simultaneous,
                    "status": row.status,
                }
                if claimed
                else {}
            )
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
    rows = [
        ClassRow(
            name=name,
            n=each.n,
            n_certain=each.n_certain,
            n_wrong=each.n_wrong,
            risk=each.risk,
            upper=each.risk_upper,
            proves=proves,
            target=targets.get(name, NAN),
            abstention=each.abstention_rate,
            miscoverage=each.miscoverage,
        )
        for name, each in report.by_class.items()
    ]
    if certificate is not None:
        return _certified(rows, certificate, unclaimed)
    together = []
    if overall_target is not None:
        overall = ClassRow(
            name=OVERALL,
            n=report.n,
            n_certain=report.n_certain,
            n_wrong=report.n_wrong,
            risk=report.overall_risk,
            upper=report.overall_risk_upper,
            proves=proves,
            target=overall_target,
            abstention=report.abstention_rate,
        )
        together.append(overall)
    parts = (rows, together)
    classes, others = (tuple(_with_status(row, refuted) for row in part) for part in parts)
    return ClassTable(classes=classes, together=others)


def _certified(rows: list[ClassRow], certificate: Certificate, unclaimed: str) -> ClassTable:
    """Return rows with what a certificate claims of them."""
    claims = {claim.name: claim for claim in certificate.claims if len(claim.classes) == 1}
    classes = []
    for row in rows:
        claim = claims.get(row.name)
        if claim is None:
            classes.append(replace(row, status=unclaimed))
            continue
        classes.append(
            replace(
                row,
                upper=claim.risk_upper,
                p_value=claim.p_value,
                upper_simultaneous=claim.risk_upper_simultaneous,
                status=claim.status,
            )
        )
    together = tuple(
        ClassRow(
            name=claim.name,
            n=claim.n,
            n_certain=claim.n_certain,
            n_wrong=claim.n_wrong,
            risk=claim.risk,
            upper=claim.risk_upper,
            target=claim.target,
            abstention=1 - claim.n_certain / claim.n if claim.n else NAN,
            p_value=claim.p_value,
            upper_simultaneous=claim.risk_upper_simultaneous,
            status=claim.status,
        )
        for claim in certificate.claims
        if len(claim.classes) > 1
    )
    return ClassTable(classes=tuple(classes), together=together)


def _with_status(row: ClassRow, refuted: Collection[str] | None) -> ClassRow:
    """Return a row with how its risk stands to its target, or whether the rows refute that."""
    status = WITHIN if row.upper <= row.target else ABOVE
    for other, holds in (
        ("no target", math.isnan(row.target)),
        ("refuted", refuted is not None and row.name in refuted),
        ("not refuted", refuted is not None),
        ("no rows", not row.n),
        ("silent", not row.n_certain),
        (EXCEEDED, row.risk > row.target),
        (UNPROVED, not row.proves),
    ):
        if holds:
            status = other
            break
    return replace(row, status=status)


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
