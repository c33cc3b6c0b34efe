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
        found.append(gap_sentence(record.gap, record.rule.kind, certified=record.path is not None))
    return found


def gap_sentence(gap: Gap, kind: str, *, certified: bool) -> str:
    """Return how often a rule abstains beside the best possible, and what another would gain."""
    name = NAMES.get(kind, kind)
    rows = f"the {gap.n_rows:,} {'certify' if certified else 'fit'} rows"
    told = (
        f"{name[0].upper()}{name[1:]} {'abstain' if kind == 'thresholds' else 'abstains'} on "
        f"{percent(gap.abstention_rate)} of {rows}; for these scores, recalibrated, the best "
        f"possible at the targets is {percent(gap.bound)}"
    )
    if gap.bound >= NEARLY_ALL:
        told += ", which means that the targets force nearly total abstention"
    noise = ERRORS * math.sqrt(gap.bound * (1 - gap.bound) / gap.n_rows)
    if gap.abstention_rate < gap.bound - noise:
        return (
            f"{told}. That this rule abstains less means that the scores are not calibrated, even "
            "after recalibration: more of its answers are right than the scores expect, and what "
            "they say of other rules is not to be relied on."
        )
    if gap.abstention_rate < gap.bound:
        told += " (that this rule is below it is within the noise of so many rows)"
    gain = gap.abstention_rate - gap.bound_at_risks
    told += f", and at the risks that this rule has {percent(gap.bound_at_risks)}"
    if certified and gap.bound_at_risks > gap.bound + POINT:
        told += " (the difference between these two is the price of the certificate)"
    if kind != "optimal" and gain >= POINT:
        return f"{told}: rule=optimal could gain up to {100 * gain:.1f} points."
    if gain >= POINT:
        return (
            f"{told}: what remains is due to ties, to caps on abstention, or to multipliers that "
            "classes share."
        )
    return f"{told}: no other rule of these scores would gain much."


def candidate_sentence(record: SetClassifier) -> str:
    """Return how often the candidates of an abstention hold the true class, and what is claimed."""
    report = record.certify_report or record.fit_report
    held = abstained_coverage(report)
    asked = percent(record.candidate_coverage or 0.0)
    if record.certify_report is None:
        claim = "were chosen on these same rows, so this proves nothing"
    elif record.group is not None:
        claim = "hold for independent rows; those of a group are not, so this is approximate"
    else:
        claim = (
            "hold on average over draws of certify rows, approximately so because these rows "
            "chose the rule as well"
        )
    return (
        f"When it abstains it names at least two candidates; the true class is among them on "
        f"{percent(held)} of these rows. The {asked} asked of each class {claim}."
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
