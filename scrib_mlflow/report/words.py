"""What is proved and what is not, in words: for terminals, notes, descriptions and the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import jinja2

from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.certificate.plan import least_rows, rows_for
from scrib_mlflow.core.counts import LEAST_GROUPS
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.messages import percent, shown
from scrib_mlflow.records import DataRecord, LedgerEntry
from scrib_mlflow.report.facts import (
    WITHIN,
    ClassTable,
    Facts,
    Summary,
    TextTable,
    class_table,
)
from scrib_mlflow.results import Decision, SetClassifier

TEMPLATES = Path(__file__).parent / "templates"
MOST_PRINTED = 12  # classes of a table in a terminal
MOST_NOTED = (20, 10, 5, 2, 1, 0)  # classes of a table in a note, until it fits; 0 for none
MOST_CHARACTERS = 4000  # MLflow cuts what is longer
MOST_NAMED = 8  # classes in a sentence
MOST_STEPS = 2
LONGEST = 28  # characters of a class's name
INVISIBLE = "\u00a0\u200c\u200d"  # but harmless: a wide space, joiners of letters
HEADER = ("class", "rows", "certain", "wrong", "risk", "upper bound", "target", "abstains")
POINT = 0.005  # of abstention; less is not worth a word
ERRORS = 2  # standard errors that noise explains
NEARLY_ALL = 0.99
NAMES = {"thresholds": "thresholds", "optimal": "the optimal rule"}
CHANCE = 0.8  # of passing, that rows are counted for
PASSING = {"certified", "passes alone"}
CERTIFICATE, MEASURED = "The certificate", "Risks and targets, measured"
PROVISO = "provided that neither targets nor candidates were chosen by earlier results on them"
LOOKED = (
    "frontier has looked at the labels of these rows (use_certify_rows): the certificate does not "
    "hold for targets that were chosen by what it showed."
)


def visible(text: str) -> str:
    """Return a text without characters that break a page or turn its reading order."""
    line = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in INVISIBLE else "\ufffd" for c in line)


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return a name as a table or a figure has room for it."""
    text = visible(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def plain_table(rows: Sequence[Sequence[str]], *, left: bool = False) -> str:
    """Return a table with aligned columns, numbers to the right or all texts to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [
            text.ljust(width) if left or j == 0 else text.rjust(width)
            for j, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def plain_list(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts, aligned to the left."""
    return plain_table(rows, left=True)


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


def text_table(table: ClassTable) -> TextTable:
    """Return the table of the classes as text."""
    excess = [row.excess for row in table.classes]
    return TextTable(
        rows=(
            (*HEADER, "status"),
            *(
                (
                    visible(row.name),
                    *(f"{n:,}" for n in (row.n, row.n_certain, row.n_wrong)),
                    percent(row.risk),
                    percent(row.bound),
                    "none" if math.isnan(row.target) else percent(row.target),
                    percent(row.abstention),
                    row.status,
                )
                for row in table.rows
            ),
        ),
        order=tuple(sorted(range(len(excess)), key=lambda j: -excess[j])),
        folded="The {n} of {all} classes with the greatest excess; all are in classes.json.",
    )


def fold(table: TextTable, most: int) -> tuple[list[tuple[str, ...]], str]:
    """Return the rows for which there is room, in their order, and which these are."""
    if len(table.order) <= most:
        return [*table.rows], ""
    hidden = set(table.order[most:])
    rows = [row for j, row in enumerate(table.rows, start=-1) if j not in hidden]
    return rows, table.folded.format(n=most, all=len(table.order))


def _plain(table: TextTable, most: int) -> str:
    rows, more = fold(table, most)
    text = plain_table(rows, left=table.listing)
    return f"{text}\n{more}" if more else text


def _markdown(table: TextTable, most: int) -> str:
    rows, more = fold(table, most)
    return f"{markdown_table(rows)}\n\n{more}" if more else markdown_table(rows)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701  # no HTML here; the page's escapes
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"plain": _plain, "markdown": _markdown, "listing": plain_list, "visible": visible}
    environment.filters.update(filters)
    return environment


def terminal(summary: Summary) -> str:
    """Return what a person sees at the end of a command."""
    template = _environment().get_template("summary.txt.jinja")
    return template.render(summary=summary, most=MOST_PRINTED)


def note(summary: Summary) -> str:
    """Return the note of a run or the description of a version, within MLflow's limit."""
    template = _environment().get_template("note.md.jinja")
    text = ""
    for most in MOST_NOTED:
        text = template.render(summary=summary, most=most)
        if len(text) <= MOST_CHARACTERS:
            return text
    return text[:MOST_CHARACTERS]


def listed(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """Return names in a sentence; of many the first."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def logged(run_id: str, store: str) -> str:
    """Return where the report is."""
    look = f"mlflow ui --backend-store-uri {shown(store)}"
    return f"Report: artifact report.html of run {run_id} ({look})"


def calibration_facts(record: SetClassifier) -> Facts:
    """Return what is proved of a set classifier: by its certify rows where there are any."""
    certificate = record.certificate
    report, part = record.certify_report, "certify"
    if report is None:
        report, part = record.fit_report, "fit"
    table = class_table(
        report,
        record.risk_targets,
        record.overall_target,
        certificate=certificate,
        proves=part == "certify",
    )
    verdict, *provisos = verdict_sentences(record)
    stamp = "certified" if record.certified else "not certified"
    return Facts(
        stamp=stamp if record.mode == "certified" else f"{stamp}: mode=paper",
        tone="good" if record.certified else "bad",
        verdict=verdict,
        provisos=tuple(provisos),
        reasons=() if certificate is None or record.certified else tuple(needs(certificate)),
        report=report,
        which=f"{report.n:,} {part} rows",
        table=table,
        asked=table,
        heading=MEASURED if certificate is None else CERTIFICATE,
        about_rule=tuple(rule_sentences(record)),
    )


def summarize(facts: Facts, who: str, where: str, steps: Sequence[tuple[str, str]] = ()) -> Summary:
    """Return what is printed, and mostly noted, of a set classifier."""
    checks = TextTable(rows=(("check", "", "result"), *facts.checks), listing=True)
    return Summary(
        verdict=facts.verdict,
        sentences=facts.provisos,
        tables=(*([checks] if facts.checks else []), text_table(facts.table)),
        notes=(abstentions(facts.report, who, of=facts.which), *facts.about_rule),
        steps=tuple(steps),
        where=where,
    )


def description(record: SetClassifier, run_id: str) -> str:
    """Return the description of a registered version."""
    where = f"More, and how it was made, is in run {run_id}: its artifact report.html."
    return describe(record, calibration_facts(record), where)


def describe(record: SetClassifier, facts: Facts, where: str) -> str:
    """Return the note of a calibrate run, or the description of its version."""
    base = f"{record.base.name} version {record.base.version}".removesuffix(" version ")
    what = (
        f"Set classifier over {base}: one label where it is certain, candidates where it abstains."
    )
    summary = summarize(facts, "It", where)
    reasons = (*facts.provisos, *facts.reasons)
    return note(replace(summary, sentences=reasons, notes=(what, *summary.notes)))


def calibration_summary(
    record: SetClassifier, name: str, version: str, alias: str, where: str
) -> Summary:
    """Return what is printed of a calibration: verdict, classes, what to do next."""
    facts = calibration_facts(record)
    gate = f"python -m scrib_mlflow gate --model_uri models:/{name}/{version} --alias champion"
    serve = f"mlflow models serve -m models:/{name}@{alias} --env-manager local -p 5001"
    steps = [("gate it", gate), ("serve it", serve)]
    if facts.reasons:
        words = [*facts.reasons[:MOST_STEPS]]
        words += ["More in the report."] if len(facts.reasons) > MOST_STEPS else []
        steps = [("what would help" * (j == 0), word) for j, word in enumerate(words)]
    summary = summarize(facts, f"{name} version {version}, alias {alias},", where, steps)
    return replace(summary, notes=summary.notes[:1])


def verdict_sentences(record: SetClassifier) -> list[str]:
    """Return what is proved in the first sentence, and its provisos in the others."""
    if record.certificate is not None:
        words = _certified if record.certified else _not_certified
        return [
            *words(record, record.certificate),
            *_ledger(record),
            *shared_caveat(record.n_shared),
        ]
    if record.certify_report is None:
        return [
            "Not certified: mode=paper measures the rows that it has fitted, so expect higher "
            "risks on new rows."
        ]
    return [
        "Not certified: no certificate was tested on these rows.",
        "These rows were not fitted, so each upper bound holds by itself at confidence "
        f"{record.confidence:g}.",
        *shared_caveat(record.n_shared),
    ]


def _certified(record: SetClassifier, certificate: Certificate) -> list[str]:
    report = record.certify_report or record.fit_report
    sentences = [
        f"Certified: at confidence {_confidence(certificate)} {_proved(record)}, if new rows come "
        f"from where the {report.n:,} certify rows came from."
    ]
    if certificate.approximate:
        sentences.append(
            f"Rows of a {record.group} are not independent, so this is approximate: the chance "
            f"of a false certificate can be about {percent(2 * certificate.level)}."
        )
    if record.waived:
        sentences.append(f"Nothing is proved of {', '.join(record.waived)}, waived by name.")
    sentences.append("The upper bounds only describe: the rule was chosen on these rows.")
    return sentences


def _proved(record: SetClassifier) -> str:
    """Return which risks are at most their targets, and of which classes nothing is said."""
    if not record.risk_targets:
        return "the overall risk is at most its target, of single classes nothing is proved"
    but = f" but that of {listed(record.waived)}" if record.waived else ""
    overall = " and so is the overall risk" if record.overall_target is not None else ""
    return f"every class risk{but} is at most its target{overall}"


def _not_certified(record: SetClassifier, certificate: Certificate) -> list[str]:
    names = [claim.name for claim in certificate.claims if claim.status not in PASSING]
    what = f"the target{'s' * (len(names) > 1)} of {listed(names)}" if names else "every target"
    sentences = [
        f"Not certified: at confidence {_confidence(certificate)} the certify rows do not prove "
        f"{what}."
    ]
    if record.path is not None:
        sentences.append(
            f"This is the first of {record.path.n_steps} set classifiers, the one most likely to "
            f"pass (predicted chance {percent(record.path.power)}); it did not pass."
        )
    return sentences


def _confidence(certificate: Certificate) -> str:
    return f"{100 * certificate.confidence:.4g} %"


def needs(certificate: Certificate) -> list[str]:
    """Return what is in the way of a certificate, claim by claim, and what would help."""
    failed = [claim for claim in certificate.claims if claim.status not in PASSING]
    sentences = [f"{_what(claim)} {_need(claim, certificate.level)}." for claim in failed]
    more = len(failed) - MOST_NAMED
    return [*sentences[:MOST_NAMED], *([f"{more} more are in the way."] if more > 0 else [])]


def _what(claim: Claim) -> str:
    return f"Class {claim.name}" if len(claim.classes) == 1 else f"The {claim.name} risk"


def _need(claim: Claim, level: float) -> str:
    least = least_rows(claim.target, level)
    groups = max(least, LEAST_GROUPS)
    if claim.n_groups is not None and claim.n_groups < groups:
        return f"needs at least {groups:,} groups with certain rows (it has {claim.n_groups:,})"
    if claim.n_certain == 0:
        return f"needs at least {least:,} certain rows (it has none), or waive it by name"
    needed = rows_for(claim.target, claim.risk, level, CHANCE)
    if needed is None or math.isnan(claim.risk):
        return "needs a looser target or a better model: at this risk, more rows do not help"
    worth = claim.n_effective or claim.n_certain
    rows = math.ceil(needed * claim.n / max(worth, 1))
    return (
        f"needs about {rows:,} certify rows (it has {claim.n:,}) for an {100 * CHANCE:g} % chance "
        "to pass at this risk"
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
        f"But {n_shared:,} of these rows equal a row of the fit: this does not hold if they are "
        "the same samples, and not equal by chance."
    ]


def abstentions(report: SetReport, who: str = "It", *, of: str = "rows") -> str:
    """Return how often a set classifier answers, is wrong and abstains, and how."""
    rate = report.overall_risk
    wrong = "" if math.isnan(rate) else f"; {percent(rate)} of these answers are wrong"
    return (
        f"{who} answers {percent(1 - report.abstention_rate)} of the {of}{wrong}. It abstains on "
        f"{percent(report.abstention_rate)}: {percent(report.chance_ambiguity)} with several "
        f"candidates, {percent(report.empty_rate)} with an empty set."
    )


def empty_hint(report: SetReport) -> str:
    """Return what to try when most abstentions are empty sets, "" when not."""
    if report.empty_rate <= 0.5 * report.abstention_rate:
        return ""
    return (
        "Most abstentions are empty sets, which name no class by themselves; a higher "
        "empty_weight, such as 1.1, prefers sets with candidates where the data allow it."
    )


def unread(record: DataRecord) -> str:
    """Return which rows took no part, so that they can still certify."""
    return (
        f"The other {record.n_rows - record.n_used:,} rows are those that calibrate would certify "
        "on with the same options. They were not scored, and their labels were used for the split "
        "only, so a certificate on them holds whatever you choose by this table. With path_data, "
        "set certify_fraction too (0.7 unless you set it here): its default would certify on rows "
        "that were looked at."
    )


def rule_sentences(record: SetClassifier) -> list[str]:
    """Return what is to be said of the rule of a set classifier."""
    sentences = []
    if isinstance(record.rule, OptimalRule):
        sentences.append(candidate_sentence(record))
    if record.gap is not None:
        sentences.append(
            gap_sentence(
                record.gap,
                record.rule.kind,
                rows="fit" if record.certify_report is None else "certify",
                certified=record.certified,
                kept=_keeps_targets(record),
            )
        )
    return sentences


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
    text = (
        f"{name[0].upper()}{name[1:]} {'abstain' if kind == 'thresholds' else 'abstains'} on "
        f"{percent(gap.abstention_rate)} of the {gap.n_rows:,} {rows} rows; for these scores, "
        f"recalibrated, the best possible at the targets is {percent(gap.bound)}"
    )
    if gap.bound >= NEARLY_ALL:
        text += ", which means that the targets force nearly total abstention"
    noise = ERRORS * math.sqrt(gap.bound * (1 - gap.bound) / gap.n_rows)
    if gap.abstention_rate < gap.bound - noise:
        return f"{text}. {_below(kept=kept)}"
    if gap.abstention_rate < gap.bound:
        text += " (this rule is below it within the noise of so many rows)"
    text += f", and at the risks that this rule has {percent(gap.bound_at_risks)}"
    if certified and gap.bound_at_risks > gap.bound + POINT:
        text += " (the difference between these two is the price of the certificate)"
    gain = gap.abstention_rate - gap.bound_at_risks
    if gain < POINT:
        return f"{text}: no other rule of these scores would gain much."
    if kind != "optimal":
        return f"{text}: rule=optimal could gain up to {100 * gain:.1f} points."
    return (
        f"{text}: what remains is due to ties, to caps on abstention, or to multipliers that "
        "classes share."
    )


def _below(*, kept: bool) -> str:
    """Return why a rule can abstain less than the best that keeps the targets."""
    if not kept:
        return "This rule abstains less because it does not keep them: see its risks."
    return (
        "This rule abstains less and keeps them, so the scores are not calibrated, even after "
        "recalibration: more of its answers are right than the scores expect. Do not rely on what "
        "they say of other rules."
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


def measured_candidates(record: SetClassifier, report: SetReport) -> tuple[str, ...]:
    """Return how often candidates held the true class on other rows, where a rule promises it."""
    held = abstained_coverage(report)
    if record.candidate_coverage is None or math.isnan(held):
        return ()
    return (
        f"Where it abstains, the true class is among its candidates on {percent(held)} of the "
        f"rows; {percent(record.candidate_coverage)} were asked of each class.",
    )


def abstained_coverage(report: SetReport) -> float:
    """Return how often the sets of rows that abstain hold the true class; NaN where none does."""
    abstained = report.n - report.n_certain
    missed = sum(each.miscoverage * each.n for each in report.by_class.values() if each.n)
    return float(1 - (missed - report.n_wrong) / abstained) if abstained > 0 else float("nan")


def evaluation_facts(
    record: SetClassifier,
    report: SetReport,
    *,
    fitted: bool,
    proves: bool,
    n_shared: int | None,
    grouped: bool,
    n_invalid: int,
) -> Facts:
    """Return what was measured on other rows; it claims nothing but its bounds."""
    table = class_table(report, record.risk_targets, record.overall_target, proves=proves)
    above = any(row.tone == "bad" for row in table.rows)
    alone = (
        f"Each upper bound holds by itself at confidence {report.confidence:g}, for rows drawn "
        "like these, if the fit has not seen them."
    )
    provisos = [] if fitted else [alone, *shared_caveat(n_shared or 0)]
    if n_shared is None:
        provisos.append("The rows of its calibration are not available: it may have seen these.")
    if not grouped:
        provisos.append(
            f"The version was certified by {record.group}, a column that these rows lack: the "
            "bounds take rows as independent, and may be too low."
        )
    if n_invalid:
        provisos.append(f"{n_invalid:,} rows abstain because the model could not score them.")
    return Facts(
        stamp="nothing proved" if fitted else "measured",
        tone="bad" if fitted or above else "plain",
        verdict=measured_sentence(table, fitted=fitted),
        provisos=tuple(provisos),
        report=report,
        which=f"{report.n:,} rows",
        table=table,
        asked=table,
        heading=MEASURED,
        about_rule=measured_candidates(record, report),
    )


def measured_sentence(table: ClassTable, *, fitted: bool) -> str:
    """Return in a sentence what was measured."""
    if fitted:
        return (
            "Nothing is proved: these are the rows of its calibration, so expect higher risks on "
            "new rows."
        )
    asked = [row for row in table.rows if not math.isnan(row.target)]
    if not asked:
        return "Measured: the version has no targets to compare with."
    above = [row for row in asked if row.risk > row.target]
    if any(not math.isnan(row.bound) for row in asked):
        what, within = "upper bound", [row for row in asked if row.status == WITHIN]
    else:
        what, within = "risk", [row for row in asked if row.risk <= row.target]
    told = f"Measured: the {what} is within its target for {len(within)} of {len(asked)} risks"
    if not above:
        return f"{told}, and no measured risk is above its own."
    named = listed(f"{row.name} ({percent(row.risk)})" for row in above)
    return f"{told}; measured above it: {named}."


def gate_facts(decision: Decision, record: SetClassifier, failure: str = "") -> Facts:
    """Return what a gate decided: by fresh rows, or by the stored certificate alone.

    `failure` says why an alias that may be moved was not.
    """
    fresh, policy = decision.fresh, decision.policy
    intact = all(check.passed for check in decision.checks if check.name == "intact")
    if fresh is None:
        stored = calibration_facts(record)
        report, which, table, heading = stored.report, stored.which, stored.table, stored.heading
        proves, certificate = all(row.proves for row in table.rows), record.certificate
        heading = "The stored certificate" if certificate is not None else heading
        table = table if intact else table.changed()
        ledger = ["No fresh rows were given, so only the stored certificate was checked."]
    else:
        report, certificate, proves = fresh.report, fresh.certificate, True
        which = f"{report.n:,} fresh rows of {shown(fresh.data.source)}"
        if policy.evidence == "fresh":
            heading = "What fresh rows prove of the policy's targets"
            table = class_table(
                report, policy.risk_targets, certificate=certificate, unclaimed="not asked"
            )
        else:
            heading = "What fresh rows say of the version's own targets"
            targets = record.risk_targets, record.overall_target
            table = class_table(report, *targets, refuted=fresh.refuted)
        ledger = [ledger_sentence(fresh.use)] if fresh.use is not None else []
    return Facts(
        stamp="not moved" if failure else "passed" if decision.passed else "refused",
        tone="good" if decision.passed and not failure else "bad",
        verdict=failure or decision_sentence(decision),
        provisos=tuple(ledger),
        checks=tuple(
            (check.name, "ok" if check.passed else "FAILS", check.detail)
            for check in decision.checks
        ),
        report=report,
        which=which,
        table=table,
        asked=class_table(report, policy.risk_targets, certificate=certificate, proves=proves),
        heading=heading,
        about_rule=measured_candidates(record, report),
    )


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


def way_back(decision: Decision, name: str) -> list[tuple[str, str]]:
    """Return how to undo a promotion, nothing where none was on another version before."""
    before, version = decision.champion, decision.model_uri.rpartition("/")[2]
    if not decision.passed or before in {"", version}:
        return []
    call = f"set_registered_model_alias('{name}', '{decision.policy.alias}', '{before}')"
    return [("go back", f'python -c "import mlflow; mlflow.MlflowClient().{call}"')]
