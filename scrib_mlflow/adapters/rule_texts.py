"""What is said of a rule itself: how near it is to the best, and what its candidates hold."""

from __future__ import annotations

import math

from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.gap import Gap
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.results import SetClassifier

POINT = 0.005  # of abstention; less is not worth a word
ERRORS = 2  # standard errors that noise explains
NEARLY_ALL = 0.99
NAMES = {"thresholds": "thresholds", "optimal": "the optimal rule"}


def sentences(record: SetClassifier) -> list[str]:
    """Return what is to be said of the rule of a set classifier."""
    found = []
    if isinstance(record.rule, OptimalRule):
        found.append(candidate_sentence(record))
    if record.gap is not None:
        found.append(
            gap_sentence(
                record.gap,
                record.rule.kind,
                rows="fit" if record.certify_report is None else "certify",
                certified=record.certified,
                kept=_keeps_targets(record),
            )
        )
    return found


def _keeps_targets(record: SetClassifier) -> bool:
    """Return whether the measured risks are within their targets."""
    report = record.certify_report or record.fit_report
    risks = [(report.by_class[name].risk, t) for name, t in record.risk_targets.items()]
    if record.overall_target is not None:
        risks.append((report.overall_risk, record.overall_target))
    return not any(risk > target for risk, target in risks)


def gap_sentence(gap: Gap, kind: str, *, rows: str, certified: bool, kept: bool) -> str:
    """Return how often a rule abstains beside the best possible, and what another would gain."""
    name = NAMES.get(kind, kind)
    told = (
        f"{name[0].upper()}{name[1:]} {'abstain' if kind == 'thresholds' else 'abstains'} on "
        f"{percent(gap.abstention_rate)} of the {gap.n_rows:,} {rows} rows; for these scores, "
        f"recalibrated, the best possible at the targets is {percent(gap.bound)}"
    )
    if gap.bound >= NEARLY_ALL:
        told += ", which means that the targets force nearly total abstention"
    noise = ERRORS * math.sqrt(gap.bound * (1 - gap.bound) / gap.n_rows)
    if gap.abstention_rate < gap.bound - noise:
        return f"{told}. {_below(kept=kept)}"
    if gap.abstention_rate < gap.bound:
        told += " (that this rule is below it is within the noise of so many rows)"
    told += f", and at the risks that this rule has {percent(gap.bound_at_risks)}"
    if certified and gap.bound_at_risks > gap.bound + POINT:
        told += " (the difference between these two is the price of the certificate)"
    gain = gap.abstention_rate - gap.bound_at_risks
    if gain < POINT:
        return f"{told}: no other rule of these scores would gain much."
    if kind != "optimal":
        return f"{told}: rule=optimal could gain up to {100 * gain:.1f} points."
    return (
        f"{told}: what remains is due to ties, to caps on abstention, or to multipliers that "
        "classes share."
    )


def _below(*, kept: bool) -> str:
    """Return why a rule can abstain less than the best that keeps the targets."""
    if not kept:
        return "This rule abstains less because it does not keep them: see its risks."
    return (
        "That this rule abstains less, and keeps them, means that the scores are not calibrated, "
        "even after recalibration: more of its answers are right than the scores expect, and what "
        "they say of other rules is not to be relied on."
    )


def candidate_sentence(record: SetClassifier) -> str:
    """Return how often the candidates of an abstention hold the true class, and what is claimed."""
    report = record.certify_report or record.fit_report
    held = abstained_coverage(report)
    if math.isnan(held):
        return "It never abstains on these rows, so they say nothing of its candidates."
    asked = percent(record.candidate_coverage or 0.0)
    if record.certify_report is None:
        claim = "but on the rows that were fitted, which proves nothing"
    elif record.group is not None:
        claim = "for independent rows; those of a group are not, so this is approximate"
    else:
        claim = "on average over draws of certify rows"
        if record.certified:
            claim += "; approximately, because these rows chose the rule as well"
    return (
        "When it abstains it names at least two candidates; the true class is among them on "
        f"{percent(held)} of these rows. They were chosen to hold it on {asked} for each class, "
        f"{claim}."
    )


def measured_candidates(record: SetClassifier, report: SetReport) -> list[str]:
    """Return how often candidates held the true class on other rows, where a rule promises it."""
    held = abstained_coverage(report)
    if record.candidate_coverage is None or math.isnan(held):
        return []
    return [
        f"Where it abstains, the true class is among its candidates on {percent(held)} of the "
        f"rows; {percent(record.candidate_coverage)} were asked of each class."
    ]


def abstained_coverage(report: SetReport) -> float:
    """Return how often the sets of rows that abstain hold the true class; NaN where none does."""
    abstained = report.n - report.n_certain
    missed = sum(each.miscoverage * each.n for each in report.by_class.values() if each.n)
    return float(1 - (missed - report.n_wrong) / abstained) if abstained > 0 else float("nan")
