"""A report as MLflow metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scrib_mlflow.core.certificate import Certificate
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.gap import Gap
from scrib_mlflow.core.targets import OVERALL as OVERALL_CLAIM

UNSAFE = re.compile(r"[^\w.\- ]")  # what MLflow refuses in a metric's name, and its separators
LONGEST = 200
OVERALL = (
    "abstention_rate",
    "chance_ambiguity",
    "size_ambiguity",
    "empty_rate",
    "overall_risk",
    "overall_risk_upper",
)
BY_CLASS = {
    "risk": "risk",
    "risk_upper": "risk_upper",
    "risk_upper_kl": "risk_upper_kl",
    "miscoverage": "miscoverage",
    "abstention": "abstention_rate",
    "n_certain": "n_certain",
}


def report_metrics(report: SetReport, *, prefix: str = "") -> dict[str, float]:
    """Return metrics by name; on rows of the fit the prefix is ``fit_``."""
    values = {f"{prefix}{name}": float(getattr(report, name)) for name in OVERALL}
    for name, safe in zip(report.classes, safe_names(report.classes), strict=True):
        found = report.by_class[name]
        for metric, field in BY_CLASS.items():
            values[f"{prefix}{metric}/{safe}"] = float(getattr(found, field))
    return values


def certificate_metrics(
    certificate: Certificate, classes: Sequence[str], *, prefix: str = ""
) -> dict[str, float]:
    """Return p-values by class and of the whole."""
    safe = dict(zip(classes, safe_names(classes), strict=True))
    values = {f"{prefix}p_value": certificate.p_value}
    for claim in certificate.claims:
        if claim.name in safe:
            values[f"{prefix}p_value/{safe[claim.name]}"] = claim.p_value
        elif claim.name == OVERALL_CLAIM:
            values[f"{prefix}overall_p_value"] = claim.p_value
    return values


def gap_metrics(gap: Gap | None, *, prefix: str = "") -> dict[str, float]:
    """Return the least abstention that is possible, at the targets and at the rule's risks."""
    if gap is None:
        return {}
    values = {"abstention_bound": gap.bound, "abstention_bound_at_risks": gap.bound_at_risks}
    return {f"{prefix}{name}": value for name, value in values.items()}


def safe_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return class names as MLflow allows them in metrics, all different."""
    taken: set[str] = set()
    safe = []
    for index, name in enumerate(classes):
        plain = UNSAFE.sub("_", name).strip()[:LONGEST]
        if not plain.strip(". "):
            plain = f"class_{index}"
        chosen, count = plain, 1
        while chosen.lower() in taken:  # some databases do not tell a from A
            count += 1
            chosen = f"{plain}_{count}"
        taken.add(chosen.lower())
        safe.append(chosen)
    return tuple(safe)
