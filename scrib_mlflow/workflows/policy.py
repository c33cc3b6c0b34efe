"""The gate's decision: a policy and the evidence in, a value out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from scrib_mlflow.core.bounds import binomial_tail
from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.certificate.claims import reasons, recomputed_p_value, spending
from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.targets import overall_name
from scrib_mlflow.messages import percent, percents
from scrib_mlflow.records import SelectionRecord, group_targets, seal
from scrib_mlflow.results import Check, Fresh, Policy, SetClassifier

SLACK = 1e-9  # numbers are computed again on other machines


def decide(
    record: SetClassifier, broken: str, policy: Policy, fresh: Fresh | None
) -> tuple[Check, ...]:
    """Return every check of a policy; the version passes when all of them do.

    `broken` says what is wrong with the stored files, "" for nothing.
    """
    checks = [Check("intact", not broken, broken or "as it was registered")]
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


def find_damage(record: SetClassifier, text: str, digests: Mapping[str, str]) -> str:
    """Return what shows that a stored set classifier was changed, "" for nothing.

    `digests` are those noted when it was registered, by where they stand.
    """
    for place, digest in digests.items():
        if not digest:
            return f"{place} does not say which scrib.json was registered"
        if digest != seal(text):
            return f"scrib.json is not the one that {place} names: it was changed"
    if record.certificate is None:
        return "it says certified, but holds no certificate" if record.certified else ""
    claims = {claim.name: (claim.classes, claim.target) for claim in record.certificate.claims}
    if claims != _said(record):
        return "the targets of its certificate are not those that it says it keeps"
    uncapped = _is_uncapped(record.certificate)  # which the check "certified" says
    if record.certified and not uncapped and not _adds_up(record, record.certificate):
        return "its counts do not give the certificate that it says it has"
    return ""


def _said(record: SetClassifier) -> dict[str, tuple[tuple[str, ...], float]]:
    """Return the classes and the target of every claim that a record says it makes, by name."""
    said: dict[str, tuple[tuple[str, ...], float]] = {
        name: ((name,), target) for name, target in record.risk_targets.items()
    }
    for name, (members, target) in group_targets(record.risk_groups).items():
        said[name] = tuple(each for each in record.classes if each in members), target
    if record.overall_target is not None:
        said[overall_name(record.classes)] = record.classes, record.overall_target
    return said


def _implied(record: SetClassifier, members: Sequence[str]) -> float:
    """Return the lowest target of classes taken together that follows from what is certified.

    Classes together are not wrong more often than the worst of the parts that they consist of:
    each by itself, or some of them as certified together and the others each by itself.
    """
    together = [((), 0.0), *_said(record).values()]
    alone = {name: target for name, target in record.risk_targets.items() if target < 1}  # not NaN
    return min(
        max([target, *(alone.get(each, math.inf) for each in members if each not in part)])
        for part, target in together
        if set(part) <= set(members) and target < 1
    )


def _adds_up(record: SetClassifier, certificate: Certificate) -> bool:
    """Return whether what a certificate claims follows from its own numbers."""
    test = record.path
    if test is None or test.chosen is None or not certificate.passed or not certificate.claims:
        return False
    passed = test.p_values[: test.chosen + 1]
    return (
        (record.group is None) == (certificate.n_groups is None)
        and all((record.weight is None) == (c.log_capital is None) for c in certificate.claims)
        and len(passed) > test.chosen
        and max(passed) <= certificate.level <= 1 - record.confidence + SLACK
        and abs(passed[-1] - certificate.p_value) <= SLACK
        and all(_claim_holds(claim, certificate) for claim in certificate.claims)
    )


def _is_uncapped(certificate: Certificate) -> bool:
    """Return whether a certificate counts groups in full by the design effect, as old ones do."""
    return certificate.approximate and certificate.group_cap is None


def _claim_holds(claim: Claim, certificate: Certificate) -> bool:
    if claim.status != "certified" or not claim.p_value <= certificate.level:
        return False
    if certificate.approximate and (claim.n_groups or 0) < LEAST_GROUPS:
        return False
    if claim.group_sums is not None:
        cap = certificate.group_cap or certificate.max_group_rows or 0
        if claim.group_sums.certain > (claim.n_groups or 0) * cap + SLACK:
            return False
    return abs(recomputed_p_value(claim, certificate.level) - claim.p_value) <= SLACK


def _certified(record: SetClassifier, policy: Policy) -> Iterable[Check]:
    certificate = record.certificate
    if certificate is None:
        detail = f"no certificate was asked for (mode={record.mode}); calibrate with mode=certified"
    elif record.certified and _is_uncapped(certificate):
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
    holds = certificate is not None and record.certified and not _is_uncapped(certificate)
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
