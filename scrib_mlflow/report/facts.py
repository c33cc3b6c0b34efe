"""The class table: what is known of each risk, and no more."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import ClassReport, SetReport
from scrib_mlflow.messages import percent
from scrib_mlflow.report.words import shared_caveat

WITHIN, ABOVE, EXCEEDED = "bound within target", "bound above target", "risk above target"
UNPROVED = "nothing proved"
CHANGED = "not as registered"
MOST_NAMED = 8
GOOD = {"certified", WITHIN}
NEUTRAL = {"waived", "no target", "passes alone", ABOVE, UNPROVED, "not asked", "not refuted"}


class Line(NamedTuple):
    """One class, or several together, beside what was asked of it."""

    name: str
    n: int | float
    n_certain: int | float
    n_wrong: int | float
    risk: float
    upper: float  # NaN where it bounds nothing
    target: float  # NaN where there is none
    status: str

    @property
    def tone(self) -> str:
        """Say whether the status is what one would wish for."""
        return "good" if self.status in GOOD else "plain" if self.status in NEUTRAL else "bad"


def certificate_lines(
    report: SetReport, certificate: Certificate, without: str = "waived"
) -> list[Line]:
    """Return a line for each class and for each claim about several; `without` is for no claim."""
    claims = {claim.name: claim for claim in certificate.claims if len(claim.classes) == 1}
    several = [claim for claim in certificate.claims if len(claim.classes) > 1]
    lines = [
        _claim_line(claims[name], claims[name].status)
        if name in claims
        else _class_line(name, report.by_class[name], NAN, without)
        for name in report.classes
    ]
    return lines + [_claim_line(claim, claim.status) for claim in several]


def refuted_lines(
    report: SetReport,
    targets: Mapping[str, float],
    overall_target: float | None,
    refuted: Collection[str],
) -> list[Line]:
    """Return whether rows refute what a version claims, each risk beside the version's target."""
    return [
        line
        if math.isnan(line.target)
        else line._replace(status="refuted" if line.name in refuted else "not refuted")
        for line in measured_lines(report, targets, overall_target, proves=True)
    ]


def measured_lines(
    report: SetReport,
    targets: Mapping[str, float],
    overall_target: float | None,
    *,
    proves: bool,
) -> list[Line]:
    """Return what rows say without a certificate; `proves` where their bounds mean something."""
    lines = [
        _class_line(name, found, targets.get(name, NAN), "", proves=proves)
        for name, found in report.by_class.items()
    ]
    if overall_target is not None:
        line = Line(
            "overall",
            report.n,
            report.n_certain,
            report.n_wrong,
            report.overall_risk,
            report.overall_risk_upper if proves else NAN,
            overall_target,
            "",
        )
        lines.append(line)
    return [
        line if line.status else line._replace(status=_measured(line, proves=proves))
        for line in lines
    ]


def _claim_line(claim: Claim, status: str) -> Line:
    counts = claim.n, claim.n_certain, claim.n_wrong
    return Line(claim.name, *counts, claim.risk, claim.risk_upper, claim.target, status)


def _class_line(
    name: str, found: ClassReport, target: float, status: str, *, proves: bool = True
) -> Line:
    counts = found.n, found.n_certain, found.n_wrong
    upper = found.risk_upper if proves else NAN
    return Line(name, *counts, found.risk, upper, target, status)


def _measured(line: Line, *, proves: bool) -> str:
    """Return how a measured risk stands to its target."""
    found = WITHIN if line.upper <= line.target else ABOVE
    for status, holds in (
        ("no target", math.isnan(line.target)),
        ("no rows", not line.n),
        ("silent", not line.n_certain),
        (EXCEEDED, line.risk > line.target),
        (UNPROVED, not proves),
    ):
        if holds:
            return status
    return found


def measured_sentence(lines: list[Line], *, fitted: bool) -> str:
    """Return in a sentence what was measured."""
    if fitted:
        return (
            "Nothing is proved: these are the rows of its calibration, so risks on new rows are "
            "higher."
        )
    asked = [line for line in lines if not math.isnan(line.target)]
    if not asked:
        return "Measured: the version has no targets to be held against."
    within = [line for line in asked if line.status == WITHIN]
    above = [line for line in asked if line.risk > line.target]
    what = "upper bound" if any(not math.isnan(line.upper) for line in asked) else "risk"
    if what == "risk":
        within = [line for line in asked if line.risk <= line.target]
    told = f"Measured: the {what} is within its target for {len(within)} of {len(asked)} risks"
    if not above:
        return f"{told}, and no measured risk is above its own."
    named = ", ".join(f"{line.name} ({percent(line.risk)})" for line in above[:MOST_NAMED])
    more = f" and {len(above) - MOST_NAMED} more" if len(above) > MOST_NAMED else ""
    return f"{told}; measured above it: {named}{more}."


def measured_meaning(
    report: SetReport, *, fitted: bool, n_shared: int | None, group: str | None, n_invalid: int
) -> list[str]:
    """Return what bounds on other rows mean; `group` is the column that these rows lack."""
    if fitted:
        told = ["These are the rows of its calibration: risks on new rows are higher."]
    else:
        told = [
            f"Each upper bound holds by itself at confidence {report.confidence:g}, for rows drawn "
            "like these, if the fit has not seen them.",
            *shared_caveat(n_shared or 0),
        ]
    if n_shared is None:
        told.append(
            "The rows of its calibration are not at hand, so nothing tells whether it saw these."
        )
    if group is not None:
        told.append(
            f"The version was certified by {group}, a column that these rows "
            "lack: the bounds take rows for independent, and may be too low."
        )
    if n_invalid:
        told.append(f"{n_invalid:,} rows abstain because the model could not score them.")
    return told
