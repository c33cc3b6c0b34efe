"""What is proved and what is not, in words: for terminals, runs and registered versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scrib_mlflow.core.certificate import Certificate, Claim, Plan
from scrib_mlflow.core.certificate.claims import explain
from scrib_mlflow.core.certificate.plan import least_rows, rows_for
from scrib_mlflow.core.counts import LEAST_GROUPS
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.targets import OVERALL
from scrib_mlflow.messages import percent
from scrib_mlflow.records import DataRecord, LedgerEntry
from scrib_mlflow.results import Decision, Fresh, SetClassifier

MOST_CLASSES = 20  # of a table in a description
MOST_PRINTED = 40  # of a table in a terminal
MOST_CHARACTERS = 4000  # MLflow cuts what is longer
INVISIBLE = "\u00a0\u200c\u200d"  # but harmless: a wide space, joiners of letters
HEADER = ("class", "rows", "certain", "wrong", "risk", "upper bound", "target", "abstains")
MOST_PLANNED = 8
POINT = 0.005  # of abstention; less is not worth a word
ERRORS = 2  # standard errors that noise explains
NEARLY_ALL = 0.99
NAMES = {"thresholds": "thresholds", "optimal": "the optimal rule"}
CHANCE = 0.8  # of passing, that rows are counted for
MOST_REASONS = 8
PROVISO = "provided that neither targets nor candidates were chosen by earlier results on them"
LOOKED = (
    "frontier has looked at the labels of these rows (use_certify_rows): for targets picked by "
    "what it showed, the certificate does not hold."
)


def class_rows(
    report: SetReport, targets: Mapping[str, float], *, bounds: bool, most: int | None = None
) -> list[tuple[str, ...]]:
    """Return a header and a row a class; of many classes those with the greatest excess."""
    names = worst_first(report, targets)[:most] if most else report.classes
    names = [name for name in report.classes if name in set(names)]
    rows = [HEADER if bounds else tuple(word for word in HEADER if word != "upper bound")]
    for name in names:
        found = report.by_class[name]
        cells = [name, f"{found.n:,}", f"{found.n_certain:,}", f"{found.n_wrong:,}"]
        cells.append(percent(found.risk))
        if bounds:
            cells.append(percent(found.risk_upper))
        cells.append(percent(targets[name]) if name in targets else "none")
        cells.append(percent(found.abstention_rate))
        rows.append(tuple(cells))
    return rows


def worst_first(report: SetReport, targets: Mapping[str, float]) -> list[str]:
    """Return the classes by falling excess of risk over target, silent ones first."""

    def excess(name: str) -> float:
        risk = report.by_class[name].risk
        if name not in targets:
            return -1.0
        return 1.0 if math.isnan(risk) else risk - targets[name]

    return sorted(report.classes, key=excess, reverse=True)


def visible(text: str) -> str:
    """Return a text without characters that break a page or turn its reading order."""
    line = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in INVISIBLE else "\ufffd" for c in line)


def plain_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def plain_list(rows: Sequence[Sequence[str]]) -> str:
    """Return rows whose last column is long text, the others aligned to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for *cells, text in rows:
        head = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([*head, text]).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    safe = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    # MLflow's UI sets columns close; the header keeps them apart, or a number that is longer
    room = [MOST_CHARACTERS, *map(len, safe[0][1:])]
    header, *body = [
        [
            f"{text}\u00a0\u00a0" if row is safe[0] or len(text) > width else text
            for text, width in zip(row, room, strict=True)
        ]
        for row in safe
    ]
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *body])


def folded(report: SetReport, most: int) -> list[str]:
    """Return the line below a table that does not show all classes, none where it does."""
    if len(report.classes) <= most:
        return []
    return [
        f"The {most} of {len(report.classes)} classes with the greatest excess; all of them are in "
        "classes.json of the run."
    ]


def abstentions(report: SetReport) -> str:
    """Return in a sentence how often a set classifier abstains, and how."""
    return (
        f"It answers {percent(1 - report.abstention_rate)} of the rows and abstains on "
        f"{percent(report.abstention_rate)}: {percent(report.chance_ambiguity)} with several "
        f"candidates, {percent(report.empty_rate)} with an empty set. Of its answers "
        f"{percent(report.overall_risk)} are wrong."
    )


def empty_hint(report: SetReport) -> str:
    """Return what to try when most abstentions are empty sets, "" when not."""
    if report.empty_rate <= 0.5 * report.abstention_rate:
        return ""
    return (
        "Most abstentions are empty sets, which name no class by themselves; a higher "
        "empty_weight, such as 1.1, prefers sets with candidates where the data allow it."
    )


def class_markdown(
    report: SetReport, targets: Mapping[str, float], *, bounds: bool, room: int = MOST_CHARACTERS
) -> str:
    """Return the table of the classes in Markdown, folded until it fits."""
    for most in (MOST_CLASSES, 10, 5, 2, 1):
        table = markdown_table(class_rows(report, targets, bounds=bounds, most=most))
        text = "\n\n".join([table, *folded(report, most)])
        if len(text) <= room:
            return text
    return ""


def unread(record: DataRecord) -> str:
    """Return in a sentence which rows took no part, so that they can still certify."""
    return (
        f"The other {record.n_rows - record.n_used:,} rows are those that calibrate, told the "
        "same, would certify on: they were not scored, and their labels served the split alone. A "
        "certificate on them holds whatever you pick by this table. With path_data name "
        "certify_fraction as well (0.7, if you named none here): its default would certify on rows "
        "that were looked at."
    )


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return what can be certified, class by class."""
    return [
        (
            "class",
            "certify rows",
            "target",
            "least possible",
            "certain rows needed",
            f"for {percent(plan.wanted)}",
            "expected",
            "chance",
        ),
        *(
            (
                each.name,
                f"{each.n:,}",
                percent(each.target),
                percent(each.least_target),
                f"{each.least_rows:,}",
                "-" if each.rows_for_chance is None else f"{each.rows_for_chance:,}",
                f"{each.n_certain:,}",
                percent(each.chance),
            )
            for each in plan.by_class
        ),
    ]


def plan_sentence(plan: Plan) -> str:
    """Return in a sentence what can be hoped for."""
    hopeless = [each for each in plan.by_class if not each.least_target <= each.target]
    if hopeless:
        told = [
            f"{each.name} ({each.n:,} certify rows; {percent(each.least_target)} is the lowest "
            "target that they can certify)"
            for each in hopeless[:MOST_PLANNED]
        ]
        more = f" and {len(hopeless) - MOST_PLANNED} more" if len(hopeless) > MOST_PLANNED else ""
        return f"the plan: nothing can be certified, because of {'; '.join(told)}{more}"
    groups = max([LEAST_GROUPS, *(each.least_rows for each in plan.by_class)])
    if plan.n_groups is not None and plan.n_groups < groups:
        return (
            f"the plan: nothing can be certified with {plan.n_groups} groups among the certify "
            f"rows; about {groups} are needed"
        )
    share = plan.by_class[0].assumed_risk / plan.by_class[0].target if plan.by_class else 0.0
    return (
        f"the plan: all targets pass with a chance of {percent(plan.chance)} if each class "
        f"abstains on {percent(plan.abstention)} of its rows and is wrong {share:g} times as often "
        "as allowed"
    )


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


def gap_sentence(gap: AbstentionGap, kind: str, *, rows: str, certified: bool, kept: bool) -> str:
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


def ledger_sentence(use: LedgerEntry) -> str:
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


def description(record: SetClassifier, run_id: str) -> str:
    """Return the description of a registered version."""
    return describe(
        record, f"More, and how it was made, is in run {run_id}: its artifact report.html."
    )


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
        *sentences(record),
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


def rows_of_checks(decision: Decision) -> list[tuple[str, ...]]:
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
