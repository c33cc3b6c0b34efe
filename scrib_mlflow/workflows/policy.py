"""The gate's decision: a policy and the evidence in, a value out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from scrib_mlflow.core.bounds import binomial_tail
from scrib_mlflow.core.certificate.claims import reasons, spending
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.messages import percent, percents
from scrib_mlflow.records import SelectionRecord, group_targets
from scrib_mlflow.results import Check, Fresh, Policy, SetClassifier
from scrib_mlflow.workflows.intact import SLACK, is_uncapped, said


def decide(
    record: SetClassifier,
    broken: str,
    policy: Policy,
    fresh: Fresh | None,
    signature: tuple[bool, str] = (True, ""),
) -> tuple[Check, ...]:
    """Return every check of a policy; the version passes when all of them do.

    `broken` says what is wrong with the stored files, "" for nothing; `signature`, whether it will
    do and what to say of it, "" for nothing.
    """
    checks = [Check("intact", not broken, broken or "as it was registered")]
    if signature[1]:
        checks.append(Check("signature", *signature))
    if policy.evidence == "certificate":
        checks += [
            *_certified(record, policy),
            *_targets(record, policy),
            *_spending(record, policy),
        ]
    if fresh is not None:
        checks.append(_unseen(fresh, policy))
        checks.append(_fresh(fresh) if policy.evidence == "fresh" else _fresh_rows(fresh))
    return (*checks, *_caps(record, policy, fresh))


def _implied(record: SetClassifier, members: Sequence[str]) -> float:
    """Return the lowest target of classes taken together that follows from what is certified.

    Classes together are not wrong more often than the worst of the parts that they consist of:
    each by itself, or some of them as certified together and the others each by itself.
    """
    together = [((), 0.0), *said(record).values()]
    alone = {name: target for name, target in record.risk_targets.items() if target < 1}  # not NaN
    return min(
        max([target, *(alone.get(each, math.inf) for each in members if each not in part)])
        for part, target in together
        if set(part) <= set(members) and target < 1
    )


def _certified(record: SetClassifier, policy: Policy) -> Iterable[Check]:
    certificate = record.certificate
    if certificate is None:
        detail = f"no certificate was asked for (mode={record.mode}); calibrate with mode=certified"
    elif record.certified and is_uncapped(certificate):
        detail = (
            f"scrib_mlflow {record.package_version} certified it without a cap on the rows of a "
            f"{record.group}, and large groups can make that false; calibrate it again"
        )
    elif record.certified:
        about = ", approximate because rows are grouped" if certificate.approximate else ""
        detail = (
            f"every target is kept, at confidence {certificate.confidence:g}{about}"
            f" (p = {certificate.p_value:.2g})"
        )
        if certificate.group_cap is not None:
            detail += (
                f"; each {record.group} counts for at most {certificate.group_cap:,} "
                f"row{'s' * (certificate.group_cap > 1)} of a class"
            )
        if record.selection is not None:
            detail += f"; {drawn_in_words(record.selection)}"
        if record.weight is not None:
            detail += f"; risks are of rows weighted by {record.weight}"
    else:
        detail = "; ".join(reasons(certificate))
    holds = certificate is not None and record.certified and not is_uncapped(certificate)
    yield Check("certified", holds, detail)
    confidence = record.confidence if certificate is None else certificate.confidence
    detail = f"{confidence:g}, asked for is {policy.confidence:g}"
    yield Check("confidence", confidence >= policy.confidence - SLACK, detail)


def drawn_in_words(selection: SelectionRecord) -> str:
    """Return how certify rows were drawn, for the gate's table."""
    n, unlabelled = selection.n_drawn, selection.n_unlabelled
    text = (
        f"its {n:,} certify rows were drawn by run {selection.run_id}, at random from the "
        f"{selection.n_answered:,} pool rows that some rule of its path answers"
    )
    return text + f"; {unlabelled:,} without a label count as errors" * (unlabelled > 0)


def _targets(record: SetClassifier, policy: Policy) -> Iterable[Check]:
    """Compare targets, never bounds: bounds of a rule chosen on a path only describe."""
    certified = record.risk_targets
    late = [
        "{}: {} is certified, {} is asked for".format(name, *percents(certified[name], target))
        if name in certified
        else f"{name}: no target is certified, {percent(target)} is asked for"
        for name, target in policy.risk_targets.items()
        if not certified.get(name, math.inf) <= target
    ]
    yield Check("targets", not late, "; ".join(late) or "at least as strict as the policy's")
    for name, (members, target) in group_targets(policy.risk_groups).items():
        yield _follows(record, f"target of {name}", members, target, "this risk group")
    if policy.overall_target is not None:
        asked = policy.overall_target
        yield _follows(record, "overall target", record.classes, asked, "an overall_target")


def _follows(
    record: SetClassifier, name: str, members: Sequence[str], target: float, option: str
) -> Check:
    implied = _implied(record, members)
    detail = (
        "{} follows from the certificate, {} is asked for".format(*percents(implied, target))
        if math.isfinite(implied)
        else f"nothing follows from the certificate; calibrate with {option}"
    )
    return Check(name, implied <= target, detail)


def _spending(record: SetClassifier, policy: Policy) -> Iterable[Check]:
    """Say that certify rows equal fit rows; ask whether the test passes at the level left to it."""
    if record.n_shared and record.certify_report is not None:
        detail = (
            f"{record.n_shared:,} of {record.certify_report.n:,} certify rows equal a fit row; "
            "where these are copies of a case, nothing is proved"
        )
        yield Check("repeats", True, detail)
    if policy.ledger != "spend":
        return
    use, test = record.use, record.path
    if use is None or record.certificate is None or test is None or test.chosen is None:
        yield Check("ledger", False, "no certificate is in the ledger")
        return
    level = spending(1 - record.confidence, use.number)
    highest = max(test.p_values[: test.chosen + 1])
    detail = f"use {use.number} of its rows has the level {level:.4f}; p = {highest:.2g}"
    if highest > level:
        detail += "; calibrate with ledger=spend, or on fresh rows"
    yield Check("ledger", highest <= level, detail)


def _unseen(fresh: Fresh, policy: Policy) -> Check:
    if fresh.n_shared is None:
        detail = (
            "the rows of its calibration are not at hand, so nothing tells; allow_overlap takes "
            "them all the same"
        )
        return Check("unseen rows", policy.allow_overlap, detail)
    detail = (
        f"{fresh.n_shared:,} of {fresh.n_compared:,} were fitted or certified on, "
        f"about {fresh.n_expected:,.0f} are equal by chance"
    )
    if fresh.overlapping and policy.allow_overlap:
        detail += "; allow_overlap takes them all the same"
    return Check("unseen rows", not fresh.overlapping or policy.allow_overlap, detail)


def _fresh_rows(fresh: Fresh) -> Check:
    claims = {claim.name: claim for claim in fresh.certificate.claims}
    details = [
        f"{name}: {claims[name].n_wrong:,} of {claims[name].n_certain:,} certain rows wrong"
        if name in claims
        else name
        for name in fresh.refuted
    ] or [f"{fresh.report.n:,} fresh rows do not contradict the certificate"]
    return Check("fresh rows", not fresh.refuted, "; ".join(details))


def _fresh(fresh: Fresh) -> Check:
    certificate = fresh.certificate
    detail = (
        f"every target is kept on {fresh.report.n:,} fresh rows (p = {certificate.p_value:.2g})"
        if certificate.passed
        else "; ".join(reasons(certificate))
    )
    return Check("fresh certificate", certificate.passed, detail)


def _caps(record: SetClassifier, policy: Policy, fresh: Fresh | None) -> Iterable[Check]:
    """Compare how often it abstains with the caps, on fresh rows where there are any."""
    report = fresh.report if fresh is not None else record.certify_report
    report, where = (report, "") if report is not None else (record.fit_report, " of the fit rows")
    rate, most = report.abstention_rate, policy.max_abstention_increase
    if policy.max_abstention is not None:
        measured, allowed = percents(rate, policy.max_abstention)
        detail = f"{measured}{where}, allowed are {allowed}"
        yield Check("abstention", rate <= policy.max_abstention, detail)
    if policy.max_class_abstention:
        above = [
            "{}: {}, allowed are {}".format(
                name, *percents(report.by_class[name].abstention_rate, cap)
            )
            for name, cap in policy.max_class_abstention.items()
            if not report.by_class[name].abstention_rate <= cap
        ]
        yield Check("class abstention", not above, "; ".join(above) or "no class above its cap")
    if policy.min_candidate_coverage is not None:
        yield _candidates(report, where, policy.min_candidate_coverage, 1 - policy.confidence)
    if most is None:
        return
    if fresh is None or fresh.champion_abstention is None:
        yield Check("champion", True, "nobody has the alias")
        return
    own, other = percents(rate, fresh.champion_abstention)
    detail = (
        f"abstains on {own}, the champion on {other} of "
        f"the same rows; {percent(most)} more are allowed"
    )
    yield Check("champion", rate <= fresh.champion_abstention + most + SLACK, detail)


def _candidates(report: SetReport, where: str, least: float, level: float) -> Check:
    """Ask whether rows refute, for a class, that candidates hold it as often as is asked for."""
    if math.isnan(report.candidate_coverage) and report.abstention_rate > 0:
        detail = "its calibration has not measured its candidates; give fresh rows"
        return Check("candidates", False, detail)
    named = {name: each for name, each in report.by_class.items() if each.n_named}
    missed = [
        "{}: {} of {} abstentions{}, asked for are {}".format(
            name, measured, f"{each.n_named:,}", where, asked
        )
        for name, each in named.items()
        for measured, asked in [percents(each.candidate_coverage, least)]
        if binomial_tail(each.n_named, round(each.candidate_coverage * each.n_named), least)
        <= level / len(named)
    ]
    held = f"they hold the true class on {percent(report.candidate_coverage)} of its abstentions"
    detail = held + where if named else "it never abstains"
    return Check("candidates", not missed, "; ".join(missed) or detail)
