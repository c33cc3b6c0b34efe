"""The gate's decision: a policy and the evidence in, a value out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from scrib_mlflow.core.bounds import risk_upper
from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.certificate.claims import reasons, spending
from scrib_mlflow.core.counts import LEAST_GROUPS
from scrib_mlflow.core.targets import OVERALL
from scrib_mlflow.messages import percent
from scrib_mlflow.records import seal
from scrib_mlflow.results import Check, Fresh, Policy, SetClassifier

SLACK = 1e-9  # numbers are computed again on other machines


def decide(
    record: SetClassifier, broken: str, policy: Policy, fresh: Fresh | None
) -> tuple[Check, ...]:
    """Return every check of a policy; the version passes when all of them do.

    `broken` says what is wrong with the stored files, "" for nothing.
    """
    checks = [Check(name="intact", passed=not broken, detail=broken or "as it was registered")]
    if policy.evidence == "certificate":
        checks += [_certified(record), _confidence(record, policy), *_targets(record, policy)]
        checks += _repeats(record)
        if policy.ledger == "spend":
            checks.append(_spent(record))
    if fresh is not None:
        checks.append(_unseen(fresh, policy))
        fresh_check = _fresh if policy.evidence == "fresh" else _not_refuted
        checks.append(fresh_check(fresh))
    checks += _caps(record, policy, fresh)
    if policy.max_abstention_increase is not None:
        checks.append(_no_worse(policy.max_abstention_increase, fresh))
    return tuple(checks)


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
    certificate = record.certificate
    asked = dict(record.risk_targets)
    if record.overall_target is not None:
        asked[OVERALL] = record.overall_target
    held = {claim.name: claim.target for claim in certificate.claims}
    if held != asked:
        return "the targets of its certificate are not those that it says it keeps"
    if record.certified and not _adds_up(record, certificate):
        return "its counts do not give the certificate that it says it has"
    return ""


def _adds_up(record: SetClassifier, certificate: Certificate) -> bool:
    """Return whether what a certificate claims follows from its own numbers."""
    test = record.path
    if test is None or test.chosen is None or not certificate.passed or not certificate.claims:
        return False
    passed = test.p_values[: test.chosen + 1]
    if len(passed) <= test.chosen or not max(passed) <= certificate.level:
        return False
    if abs(passed[-1] - certificate.p_value) > SLACK:
        return False
    if certificate.level > 1 - record.confidence + SLACK:
        return False
    return all(_claim_holds(claim, certificate) for claim in certificate.claims)


def _claim_holds(claim: Claim, certificate: Certificate) -> bool:
    if claim.status != "certified" or not claim.p_value <= certificate.level:
        return False
    if certificate.approximate:
        return claim.n_groups is not None and claim.n_groups >= LEAST_GROUPS
    bound = float(risk_upper(claim.n_wrong, claim.n_certain, 1 - certificate.level))
    return bound <= claim.target + SLACK


def _certified(record: SetClassifier) -> Check:
    certificate = record.certificate
    if record.certified and certificate is not None:
        about = ", approximate because rows are grouped" if certificate.approximate else ""
        detail = (
            f"every target is kept, at confidence {certificate.confidence:g}{about}"
            f" (p = {certificate.p_value:.2g})"
        )
        return Check(name="certified", passed=True, detail=detail)
    if certificate is None:
        detail = f"no certificate was asked for (mode={record.mode}); calibrate with mode=certified"
    else:
        detail = "; ".join(reasons(certificate))
    return Check(name="certified", passed=False, detail=detail)


def _confidence(record: SetClassifier, policy: Policy) -> Check:
    held = record.certificate.confidence if record.certificate is not None else record.confidence
    detail = f"{held:g}, asked for is {policy.confidence:g}"
    return Check(name="confidence", passed=held >= policy.confidence - SLACK, detail=detail)


def _targets(record: SetClassifier, policy: Policy) -> Iterable[Check]:
    """Compare targets, never bounds: bounds of a rule chosen on a path only describe."""
    held = record.risk_targets
    late = [
        f"{name}: {percent(held[name])} is certified, {percent(target)} is asked for"
        if name in held
        else f"{name}: no target is certified, {percent(target)} is asked for"
        for name, target in policy.risk_targets.items()
        if not held.get(name, math.inf) <= target
    ]
    detail = "; ".join(late) or "at least as strict as the policy's"
    yield Check(name="targets", passed=not late, detail=detail)
    if policy.overall_target is None:
        return
    found = _overall(record)
    detail = (
        f"{percent(found)} follows from the certificate, "
        f"{percent(policy.overall_target)} is asked for"
        if math.isfinite(found)
        else "nothing follows from the certificate; calibrate with an overall_target"
    )
    yield Check(name="overall target", passed=found <= policy.overall_target, detail=detail)


def _overall(record: SetClassifier) -> float:
    """Return the overall risk that is certified; no answer is wrong more often than a class."""
    own = math.inf if record.overall_target is None else record.overall_target
    if set(record.risk_targets) == set(record.classes):
        return min(own, max(record.risk_targets.values()))
    return own


def _repeats(record: SetClassifier) -> Iterable[Check]:
    """Say, without judging it, that certify rows equal fit rows."""
    if record.n_shared and record.certify_report is not None:
        detail = (
            f"{record.n_shared:,} of {record.certify_report.n:,} certify rows equal a fit row; "
            "where these are copies of a case, nothing is proved"
        )
        yield Check(name="repeats", passed=True, detail=detail)


def _spent(record: SetClassifier) -> Check:
    """Ask whether the test passes with the part of the error that its use leaves to it."""
    use, certificate, test = record.use, record.certificate, record.path
    if use is None or certificate is None or test is None or test.chosen is None:
        return Check(name="ledger", passed=False, detail="no certificate is in the ledger")
    level = spending(1 - record.confidence, use.number)
    highest = max(test.p_values[: test.chosen + 1])
    detail = f"use {use.number} of its rows has the level {level:.4f}; p = {highest:.2g}"
    if highest > level:
        detail += "; calibrate with ledger=spend, or on fresh rows"
    return Check(name="ledger", passed=highest <= level, detail=detail)


def _unseen(fresh: Fresh, policy: Policy) -> Check:
    if fresh.n_shared is None:
        detail = (
            "the rows of its calibration are not at hand, so nothing tells; allow_overlap takes "
            "them all the same"
        )
        return Check(name="unseen rows", passed=policy.allow_overlap, detail=detail)
    detail = (
        f"{fresh.n_shared:,} of {fresh.n_compared:,} were fitted or certified on, "
        f"about {fresh.n_expected:,.0f} are equal by chance"
    )
    if fresh.overlapping and policy.allow_overlap:
        detail += "; allow_overlap takes them all the same"
    passed = not fresh.overlapping or policy.allow_overlap
    return Check(name="unseen rows", passed=passed, detail=detail)


def _not_refuted(fresh: Fresh) -> Check:
    if fresh.refuted:
        by_name = {claim.name: claim for claim in fresh.certificate.claims}
        told = [
            f"{name}: {by_name[name].n_wrong:,} of {by_name[name].n_certain:,} certain rows wrong"
            if name in by_name
            else name
            for name in fresh.refuted
        ]
        return Check(name="not refuted", passed=False, detail="; ".join(told))
    detail = f"{fresh.report.n:,} fresh rows do not contradict the certificate"
    return Check(name="not refuted", passed=True, detail=detail)


def _fresh(fresh: Fresh) -> Check:
    found = fresh.certificate
    detail = f"every target is kept on {fresh.report.n:,} fresh rows (p = {found.p_value:.2g})"
    if not found.passed:
        detail = "; ".join(reasons(found))
    return Check(name="fresh certificate", passed=found.passed, detail=detail)


def _caps(record: SetClassifier, policy: Policy, fresh: Fresh | None) -> Iterable[Check]:
    """Compare how often it abstains with the caps, on fresh rows where there are any."""
    report = fresh.report if fresh is not None else record.certify_report
    report, where = (report, "") if report is not None else (record.fit_report, " of the fit rows")
    if policy.max_abstention is not None:
        rate = report.abstention_rate
        detail = f"{percent(rate)}{where}, allowed are {percent(policy.max_abstention)}"
        yield Check(name="abstention", passed=rate <= policy.max_abstention, detail=detail)
    above = [
        f"{name}: {percent(report.by_class[name].abstention_rate)}, allowed are {percent(cap)}"
        for name, cap in policy.max_class_abstention.items()
        if not report.by_class[name].abstention_rate <= cap
    ]
    if policy.max_class_abstention:
        detail = "; ".join(above) or "no class above its cap"
        yield Check(name="class abstention", passed=not above, detail=detail)


def _no_worse(most: float, fresh: Fresh | None) -> Check:
    if fresh is None or fresh.champion_abstention is None:
        return Check(name="champion", passed=True, detail="nobody has the alias")
    own, other = fresh.report.abstention_rate, fresh.champion_abstention
    detail = (
        f"abstains on {percent(own)}, the champion on {percent(other)} of the same rows; "
        f"{percent(most)} more are allowed"
    )
    return Check(name="champion", passed=own <= other + most + SLACK, detail=detail)
