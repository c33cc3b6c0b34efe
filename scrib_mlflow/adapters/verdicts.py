"""What is proved and what is not, in words: for terminals, runs and registered versions."""

from __future__ import annotations

import math

from scrib_mlflow.adapters import rule_texts
from scrib_mlflow.adapters.texts import (
    HEADER,
    MOST_CHARACTERS,
    MOST_CLASSES,
    abstentions,
    class_rows,
    folded,
    markdown_table,
    percent,
)
from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.plan import least_rows, rows_for
from scrib_mlflow.core.tally import LEAST_GROUPS
from scrib_mlflow.core.targets import OVERALL
from scrib_mlflow.decisions import explain
from scrib_mlflow.results import Decision, Fresh, SetClassifier, Use

CHANCE = 0.8  # of passing, that rows are counted for
MOST_REASONS = 8


def verdict(record: SetClassifier) -> str:
    """Return what is proved."""
    return " ".join(verdict_sentences(record))


def headline(record: SetClassifier) -> str:
    """Return in one sentence what is proved, for a person in a hurry."""
    certificate = record.certificate
    if certificate is None or record.certified:
        return verdict_sentences(record)[0]
    names = [c.name for c in certificate.claims if c.status not in {"certified", "passes alone"}]
    more = f" and {len(names) - MOST_REASONS} more" if len(names) > MOST_REASONS else ""
    return (
        f"Not certified: at confidence {_confidence(certificate)} the certify rows do not prove "
        f"every target; in the way: {', '.join(names[:MOST_REASONS])}{more}."
    )


def verdict_sentences(record: SetClassifier) -> list[str]:
    """Return what is proved in the first sentence, and what is to be said of it in the others."""
    if record.certificate is not None:
        told = _certified(record) if record.certified else _not_certified(record)
        return [*told, *_ledger(record), *shared_caveat(record.n_shared)]
    if record.certify_report is None:
        return [
            "Not certified: mode=paper measures the rows that it has fitted, so risks on new "
            "rows are higher than these."
        ]
    return [
        "Not certified: no certificate was asked of these rows.",
        "They were not fitted, so each upper bound holds by itself at confidence "
        f"{record.confidence:g}.",
        *shared_caveat(record.n_shared),
    ]


def _certified(record: SetClassifier) -> list[str]:
    certificate = record.certificate
    assert certificate is not None  # noqa: S101  # for mypy; told by the caller
    sentences = [
        f"Certified: at confidence {_confidence(certificate)} {_proved(record)}, if new rows come "
        f"from where the {record.certify_report.n:,} certify rows came from."  # type: ignore[union-attr]
    ]
    if certificate.approximate:
        sentences.append(
            f"Rows of a {record.group} are not independent, so this is approximate: the chance "
            f"of a false certificate can be about {percent(2 * certificate.level)}."
        )
    if record.waived:
        sentences.append(f"Nothing is proved of {', '.join(record.waived)}, waived by name.")
    sentences.append("Upper bounds only describe: the rule was chosen on these rows.")
    return sentences


def _proved(record: SetClassifier) -> str:
    """Return which risks are at most their targets, and of which classes nothing is said."""
    if not record.risk_targets:
        return "the overall risk is at most its target, of single classes nothing is proved"
    but = ""
    if record.waived:
        more = len(record.waived) - MOST_REASONS
        but = f" but that of {', '.join(record.waived[:MOST_REASONS])}"
        but += f" and {more} more" if more > 0 else ""
    overall = " and so is the overall risk" if record.overall_target is not None else ""
    return f"every class risk{but} is at most its target{overall}"


def _not_certified(record: SetClassifier) -> list[str]:
    certificate, path = record.certificate, record.path
    assert certificate is not None  # noqa: S101
    assert path is not None  # noqa: S101
    told = needs(certificate)
    more = f"; and {len(told) - MOST_REASONS} more" if len(told) > MOST_REASONS else ""
    return [
        f"Not certified: the first of {path.n_steps} set classifiers, the one most likely to "
        f"pass (predicted chance {percent(path.power)}), did not pass at confidence "
        f"{_confidence(certificate)}, and is what this is.",
        f"In the way: {'; '.join(told[:MOST_REASONS])}{more}.",
    ]


def _confidence(certificate: Certificate) -> str:
    return f"{100 * certificate.confidence:.4g} %"


def needs(certificate: Certificate) -> list[str]:
    """Return what is in the way of a certificate, claim by claim, and how many rows would help."""
    return [
        f"{claim.name} ({explain(claim)}; {_rows_needed(claim, certificate.level)})"
        for claim in certificate.claims
        if claim.status not in {"certified", "passes alone"}
    ]


def _rows_needed(claim: Claim, level: float) -> str:
    least = least_rows(claim.target, level)
    if claim.n_groups is not None and claim.n_groups < max(least, LEAST_GROUPS):
        return f"at least {max(least, LEAST_GROUPS):,} groups are needed for this target"
    if claim.n_certain == 0:
        return f"at least {least:,} certain rows are needed, or waive it by name"
    needed = rows_for(claim.target, claim.risk, level, CHANCE)
    if needed is None or math.isnan(claim.risk):
        return "more rows would not help at this risk: loosen its target, or improve the model"
    worth = claim.n_effective or claim.n_certain
    rows = math.ceil(needed * claim.n / max(worth, 1))
    return (
        f"about {rows:,} rows of it where {claim.n:,} are would pass {percent(CHANCE)} of the "
        "time at this risk"
    )


def _ledger(record: SetClassifier) -> list[str]:
    use = record.use
    return [ledger_sentence(use)] if use is not None and use.number > 1 else []


def ledger_sentence(use: Use) -> str:
    """Return how often rows have been used to prove something, and what that means."""
    looked = f" {LOOKED}" if use.n_looks else ""
    if use.ledger == "spend":
        return (
            f"This is use {use.number} of these rows, at its own level {use.level:.4f}: all "
            "certificates that are spent so on them are true together at the confidence asked "
            f"for, {PROVISO}.{looked}"
        )
    return (
        f"This is use {use.number} of these rows: the chance that a certificate on them is false, "
        f"this one or an earlier one, is up to {percent(use.total)}, {PROVISO}.{looked}"
    )


PROVISO = "provided that neither targets nor candidates were chosen by earlier results on them"
LOOKED = (
    "frontier has looked at the labels of these rows (use_certify_rows): for targets picked by "
    "what it showed, the certificate does not hold."
)


def shared_caveat(n_shared: int) -> list[str]:
    """Return a warning, where there is reason for one, that some rows may have been fitted."""
    if not n_shared:
        return []
    return [
        f"But {n_shared:,} of these rows equal a row of the fit: if they are the same cases, and "
        "not equal by chance, this does not hold."
    ]


def shown_report(record: SetClassifier) -> tuple[SetReport, str, bool]:
    """Return the report that matters most, what its rows are, and whether its bounds mean much."""
    if record.certify_report is not None:
        return record.certify_report, f"{record.certify_report.n:,} certify rows", True
    return record.fit_report, f"{record.fit_report.n:,} fit rows", False


def record_rows(record: SetClassifier, most: int) -> list[tuple[str, ...]]:
    """Return the table of the classes, with their statuses where there is a certificate."""
    report, _, bounds = shown_report(record)
    rows = class_rows(report, record.risk_targets, bounds=bounds, most=most)
    if record.certificate is None:
        return rows
    claims = {claim.name: claim for claim in record.certificate.claims}
    told = [(*rows[0], "status")]
    for row in rows[1:]:
        claim = claims.pop(row[0], None)
        told.append((*row, "waived" if claim is None else claim.status))
    told += [_claim_row(claim) for claim in claims.values() if len(claim.classes) > 1]
    return told


def _claim_row(claim: Claim) -> tuple[str, ...]:
    counts = (f"{claim.n:,}", f"{claim.n_certain:,}", f"{claim.n_wrong:,}")
    rates = (percent(claim.risk), percent(claim.risk_upper), percent(claim.target))
    abstains = percent(1 - claim.n_certain / claim.n) if claim.n else "-"
    return (claim.name, *counts, *rates, abstains, claim.status)


def describe(record: SetClassifier, more: str) -> str:
    """Return the description of a run or a version, in Markdown, within MLflow's limit.

    `more` says where more is to be seen.
    """
    report, which, _ = shown_report(record)
    base = f"{record.base.name} version {record.base.version}".removesuffix(" version ")
    paragraphs = [
        verdict(record),
        f"Set classifier over {base}: one label where it is certain, candidates where it abstains.",
        f"On {which}: {abstentions(report)}",
        *rule_texts.sentences(record),
        more,
    ]
    room = MOST_CHARACTERS - sum(map(len, paragraphs)) - 10
    for most in (MOST_CLASSES, 10, 5, 2, 1):
        table = markdown_table(record_rows(record, most))
        text = "\n\n".join([table, *folded(report, most)])
        if len(text) <= room:
            return "\n\n".join([*paragraphs, text])
    return "\n\n".join(paragraphs)[:MOST_CHARACTERS]


def fresh_rows(
    fresh: Fresh, record: SetClassifier, evidence: str, most: int
) -> list[tuple[str, ...]]:
    """Return what fresh rows say: of the policy's targets, or whether they refute the version's."""
    if evidence == "fresh":
        claims = fresh.certificate.claims
        worst = sorted(claims, key=lambda claim: -claim.p_value)[:most]
        shown = [_claim_row(claim) for claim in claims if claim in worst]
        return [("claim", *HEADER[1:], "status"), *shown]
    rows = class_rows(fresh.report, record.risk_targets, bounds=True, most=most)
    told = [(*rows[0], "status")]
    for row in rows[1:]:
        kept = "not refuted" if row[0] in record.risk_targets else "no target"
        told.append((*row, "refuted" if row[0] in fresh.refuted else kept))
    if record.overall_target is not None:
        told.append(_overall_row(fresh, record.overall_target))
    return told


def _overall_row(fresh: Fresh, target: float) -> tuple[str, ...]:
    report = fresh.report
    counts = (f"{report.n:,}", f"{report.n_certain:,}", f"{report.n_wrong:,}")
    rates = (report.overall_risk, report.overall_risk_upper, target, report.abstention_rate)
    status = "refuted" if OVERALL in fresh.refuted else "not refuted"
    return (OVERALL, *counts, *map(percent, rates), status)


def check_rows(decision: Decision) -> list[tuple[str, ...]]:
    """Return what a gate asked, and the answers."""
    return [
        ("check", "", "found"),
        *((each.name, "ok" if each.passed else "FAILS", each.detail) for each in decision.checks),
    ]


def decision_sentence(decision: Decision) -> str:
    """Return what a gate decided."""
    alias, version = decision.policy.alias, decision.model_uri.rpartition("/")[2]
    if decision.passed and decision.champion == version:
        return f"Passed: version {version} keeps the alias {alias}."
    if decision.passed:
        before = f"before it was on version {decision.champion}" if decision.champion else "new"
        return f"Passed: the alias {alias} is on version {version} ({before})."
    failed = ", ".join(check.name for check in decision.checks if not check.passed)
    stays = f"stays on version {decision.champion}" if decision.champion else "is not set"
    return f"Refused ({failed}): the alias {alias} {stays}."
