"""What is proved and what is not, in words: for terminals, notes, descriptions and the page."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.certificate.plan import least_rows, rows_for
from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import ClassReport, SetReport
from scrib_mlflow.core.rules import threshold_rank
from scrib_mlflow.core.targets import overall_name
from scrib_mlflow.messages import chance_percent, percent, percents, shown
from scrib_mlflow.records import DataRecord, Unscored
from scrib_mlflow.report.facts import WITHIN, ClassTable, Facts, Summary, TextTable, class_table
from scrib_mlflow.results import Decision, SetClassifier

TEMPLATES = Path(__file__).parent / "templates"
MOST_PRINTED = 12  # classes of a table in a terminal
MOST_NOTED = (20, 10, 5, 2, 1, 0)  # classes of a table in a note, until it fits; 0 for none
MOST_CHARACTERS = 4000  # MLflow cuts what is longer
MOST_NAMED = 8  # classes in a sentence
MOST_STEPS = 2
LONGEST = 28  # characters of a class's name
INVISIBLE = "\u00a0\u200c\u200d"  # but harmless: a wide space, joiners of letters
COUNTED = ("class", "rows", "certain", "wrong")
RATES = ("risk", "top-1", "top-1 all", "upper bound", "target", "abstains")
LEGEND = "top-1: how often the class with the highest score is wrong on the same rows, and on all"
POINT = 0.005  # of abstention; less is not worth a word
ERRORS = 2  # standard errors that noise explains
CHANCE = 0.8  # of passing, that rows are counted for
REFUSALS = {  # why, by the check that fails; the others are about targets of classes together
    "intact": "its files are not those that were registered",
    "signature": "it does not have the signature that this gate asks for",
    "certified": "it is not certified",
    "confidence": "its confidence is below the policy's",
    "targets": "its targets are looser than the policy's",
    "ledger": "its rows were used too often",
    "unseen rows": "rows of data may be those of its calibration",
    "fresh rows": "fresh rows refute its certificate",
    "fresh certificate": "fresh rows do not certify it",
    "abstention": "it abstains too often",
    "class abstention": "it abstains too often on a class",
    "candidates": "its candidates miss the true class of a class too often",
    "champion": "it abstains too often, compared with the champion",
}
# What means something inside a line of Markdown; a _ inside a word does not.
MARKDOWN = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
ENTITIES = {"<": "&lt;", "&": "&amp;"}
BEGINNING = re.compile(r"^(\d*)([>#+=.)-])(?=\s|#|>|=|-|$)")
CERTIFICATE, MEASURED = "The certificate", "Risks and targets, measured"


def visible(text: str) -> str:
    """Return a text without characters that break a page or turn its reading order."""
    line = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in INVISIBLE else "\ufffd" for c in line)


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return a name as a table or a figure has room for it."""
    text = visible(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is: names may hold signs, HTML and links."""
    return MARKDOWN.sub(lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), visible(text))


def escaped_line(text: str) -> str:
    """Return a text as a line of Markdown, which is no heading, list or quotation either."""
    return BEGINNING.sub(r"\1\\\2", escaped(text))


def code(text: str) -> str:
    """Return a text as code in a line of Markdown."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {visible(text)} {fence}" if "`" in text else f"`{visible(text)}`"


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


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    safe = [[escaped(text) for text in row] for row in rows]
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
            (*COUNTED, *RATES, "status"),
            *(
                (
                    visible(row.name),
                    *(f"{n:,}" for n in (row.n, row.n_certain, row.n_wrong)),
                    *(risk, percent(row.top1_certain), percent(row.top1), bound),
                    "none" if math.isnan(row.target) else target,
                    percent(row.abstention),
                    row.status,
                )
                for row in table.rows
                for risk, bound, target in [percents(row.risk, row.bound, row.target)]
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


def listed(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """Return names in a sentence; of many the first."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def finalized(value: Any) -> Any:
    """Return what a template shows of a value; markup of its own making stays as it is."""
    return visible(value) if type(value) is str else value


def environment(**options: Any) -> jinja2.Environment:
    """Return an environment of the templates, with options for what they write."""
    made = jinja2.Environment(  # noqa: S701  # texts; the page asks for autoescape
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    made.filters |= {"percent": percent, "chance_percent": chance_percent}
    made.filters |= {"thousands": "{:,}".format, "listed": listed, "fold": fold}
    made.filters |= {"plain": plain_table, "markdown": markdown_table}
    made.filters |= {"visible": visible, "clipped": clipped}
    made.filters |= {"escaped": escaped_line, "code": code}
    made.tests["nan"] = math.isnan
    made.globals["percents"] = percents
    return made


TEXTS, SENTENCES = environment(), environment(finalize=finalized)


def say(name: str, **values: Any) -> str:
    """Return in a line what a macro of a template says, such as `words.verdict` of words.jinja."""
    return " ".join(say_each(name, **values))


def say_each(name: str, **values: Any) -> list[str]:
    """Return the sentences of a macro, which writes each on a line of its own."""
    file, _, macro = name.partition(".")
    text = getattr(SENTENCES.get_template(f"{file}.jinja").module, macro)(**values)
    return [line for line in text.split("\n") if line.strip()]


def terminal(summary: Summary) -> str:
    """Return what a person sees at the end of a command."""
    return TEXTS.get_template("summary.txt.jinja").render(summary=summary, most=MOST_PRINTED)


def note(summary: Summary) -> str:
    """Return the note of a run or the description of a version, within MLflow's limit."""
    template = TEXTS.get_template("note.md.jinja")
    text = ""
    for most in MOST_NOTED:
        text = template.render(summary=summary, most=most)
        if len(text) <= MOST_CHARACTERS:
            break
    return text[:MOST_CHARACTERS]


def logged(run_id: str, store: str, experiment_id: str) -> str:
    """Return where the report is."""
    return f"Report: artifact report.html of run {run_id}{look(run_id, store, experiment_id)}"


def look(run_id: str, store: str, experiment_id: str) -> str:
    """Return how to look at a run, in brackets: at its address on a server, or with MLflow's UI."""
    if store.startswith(("http://", "https://")):
        page = f"experiments/{experiment_id}/runs/{run_id}"
        return f" ({shown(store).rstrip('/')}/#/{page})" if experiment_id else ""
    if store.startswith("databricks"):
        return ""
    return f" ({shlex.join(['mlflow', 'ui', '--backend-store-uri', shown(store)])})"


def calibration_facts(record: SetClassifier) -> Facts:
    """Return what is proved of a set classifier: by its certify rows where there are any."""
    certificate = record.certificate
    report = record.certify_report or record.fit_report
    part = "fit" if record.certify_report is None else "certify"
    targets = record.named_targets, record.overall_target
    table = class_table(report, *targets, certificate=certificate, proves=part == "certify")
    verdict, *provisos = verdict_sentences(record)
    stamp = "certified" if record.certified else "not certified"
    return Facts(
        stamp=stamp if record.mode == "certified" else f"{stamp}: mode=paper",
        tone="good" if record.certified else "bad",
        verdict=verdict,
        provisos=tuple(provisos),
        reasons=() if certificate is None or record.certified else tuple(_reasons(record)),
        report=report,
        which=_which(record, part),
        counted=_counted(record),
        table=table,
        asked=table,
        heading=MEASURED if certificate is None else CERTIFICATE,
        about_rule=tuple(rule_sentences(record)),
    )


def _which(record: SetClassifier, part: str) -> str:
    """Return which rows a calibration is measured on."""
    if record.selection is not None:
        return f"{record.selection.n_open:,} rows of the pool"
    report = record.certify_report or record.fit_report
    return f"{report.n:,} {part} rows"


def _counted(record: SetClassifier) -> str:
    """Return which rows the table of a calibration counts, where others are measured as well."""
    if record.selection is None:
        return ""
    return say("selection.counted", drawn=record.selection)


def summarize(facts: Facts, who: str, where: str, steps: Sequence[tuple[str, str]] = ()) -> Summary:
    """Return what is printed, and mostly noted, of a set classifier."""
    checks = TextTable(rows=(("check", "", "result"), *facts.checks), listing=True)
    answers = say("words.abstentions", report=facts.report, who=who, which=facts.which)
    return Summary(
        verdict=facts.verdict,
        sentences=facts.provisos,
        tables=(*([checks] if facts.checks else []), text_table(facts.table)),
        legend=(LEGEND, *([facts.counted] if facts.counted else [])),
        notes=(answers, *facts.about_rule),
        steps=tuple(steps),
        where=where,
    )


def description(record: SetClassifier, run_id: str) -> str:
    """Return the description of a registered version."""
    where = f"More, and how it was made, is in run {run_id}: its artifact report.html."
    return describe(record, calibration_facts(record), where)


def describe(record: SetClassifier, facts: Facts, where: str) -> str:
    """Return the note of a calibrate run, or the description of its version."""
    what = say("words.about", base=record.base)
    summary = summarize(facts, "It", where)
    reasons = (*facts.provisos, *facts.reasons)
    return note(replace(summary, sentences=reasons, notes=(what, *summary.notes)))


def calibration_summary(
    record: SetClassifier, name: str, version: str, alias: str, where: str
) -> Summary:
    """Return what is printed of a calibration: verdict, classes, what to do next."""
    facts = calibration_facts(record)
    gated, served = shlex.quote(f"models:/{name}/{version}"), shlex.quote(f"models:/{name}@{alias}")
    gate = f"python -m scrib_mlflow gate --model_uri {gated} --alias champion"
    serve = f"mlflow models serve -m {served} --env-manager local -p 5001"
    steps = [("gate it", gate), ("serve it", serve)]
    if facts.reasons:
        words = [*facts.reasons[:MOST_STEPS]]
        words += ["More in the report."] if len(facts.reasons) > MOST_STEPS else []
        frontier = "python -m scrib_mlflow frontier, with the same options, shows other targets."
        steps = [("what would help" * (j == 0), word) for j, word in enumerate([*words, frontier])]
    which = f", alias {alias}," if alias else " (the alias stays with a certified version)"
    summary = summarize(facts, f"{name} version {version}{which}", where, steps)
    return replace(summary, notes=summary.notes[:1])


def repeated(n_repeated: int, n: int, *, drawn: bool = False) -> str:
    """Return what to do about certify rows that equal another one."""
    return say("words.repeated", n_repeated=n_repeated, n=n, drawn=drawn)


def scores_summary(record: SetClassifier, uri: str, where: str) -> Summary:
    """Return what is printed of a calibration of scores that no model of MLflow gives."""
    facts = calibration_facts(record)
    evaluate = f"python -m scrib_mlflow evaluate --model_uri {shlex.quote(uri)}"
    steps = [
        ("to serve", "nothing: no model was given, so the run holds a rule and its certificate."),
        ("other rows", f"{evaluate} --data … --label …"),
    ]
    summary = summarize(facts, "The rule", where, steps)
    return replace(summary, notes=(*summary.notes[:1], *facts.reasons))


def verdict_sentences(record: SetClassifier) -> list[str]:
    """Return what is proved in the first sentence, and its provisos in the others."""
    failed = [] if record.certificate is None else _failed(record.certificate)
    said = say_each("words.verdict", record=record, failed=[claim.name for claim in failed])
    if record.selection is not None:
        said[1:1] = say_each("selection.how_drawn", drawn=record.selection)
    return said if record.unscored is None else [*said, unscored_sentence(record.unscored)]


def unscored_sentence(unscored: Unscored) -> str:
    """Return how many rows could not be scored, which, and why."""
    return say("words.unscored", unscored=unscored)


def _failed(certificate: Certificate) -> list[Claim]:
    passing = {"certified", "passes alone"}
    return [claim for claim in certificate.claims if claim.status not in passing]


def _reasons(record: SetClassifier) -> list[str]:
    """Return what is in the way of a certificate, and what would help: advice, else the counts."""
    advice, certificate = record.advice, record.certificate
    if advice is not None and (advice.targets or advice.more_rows):
        overall = {overall_name(record.classes): record.overall_target}
        changed = {
            name: target
            for name, target in advice.targets.items()
            if target != (record.named_targets | overall).get(name)
        }
        n = record.certify_report.n if record.certify_report is not None else 0
        return say_each("words.advice", advice=advice, changed=changed, n=n)
    return [] if certificate is None else needs(certificate)


def needs(certificate: Certificate) -> list[str]:
    """Return what is in the way of a certificate, claim by claim, and what would help."""
    failed = _failed(certificate)
    sentences = [_need(claim, certificate.level) for claim in failed[:MOST_NAMED]]
    more = len(failed) - MOST_NAMED
    return [*sentences, *([f"{more} more are in the way."] if more > 0 else [])]


def _need(claim: Claim, level: float) -> str:
    least = least_rows(claim.target, level)
    rows = rows_for(claim.target, claim.risk, level, CHANCE) if claim.n_certain else None
    if rows is not None:  # all rows of the claim, at the share of them that counts today
        rows = math.ceil(rows * claim.n / max(claim.n_effective or claim.n_certain, 1))
    groups = max(least, LEAST_GROUPS)
    return say("words.need", claim=claim, least=least, groups=groups, rows=rows, chance=CHANCE)


def unread(data: DataRecord) -> str:
    """Return which rows took no part, so that they can still certify."""
    return say("words.unread", data=data)


def rule_sentences(record: SetClassifier) -> list[str]:
    """Return what is to be said of the rule of a set classifier."""
    report = record.certify_report or record.fit_report
    sentences = []
    if getattr(record.rule, "answers", "any") == "top":
        sentences.append(say("words.only_top"))
    if getattr(record.rule, "max_candidates", None) is not None:
        coverage = record.candidate_coverage or record.confidence
        named = {name: int(each.n_named) for name, each in report.by_class.items()}
        few = [name for name, n in named.items() if threshold_rank(n, coverage) < 1]
        values = {"few": few, "least": _lowest_coverage(report)}
        sentences.append(say("words.candidates", record=record, report=report, **values))
    if record.selection is not None:
        sentences += say_each("selection.measured", drawn=record.selection)
    if record.gap is not None:
        measured = report.by_class | report.by_risk_group
        risks = [(measured[name].risk, target) for name, target in record.named_targets.items()]
        if record.overall_target is not None:
            risks.append((report.overall_risk, record.overall_target))
        gap = gap_sentence(
            record.gap,
            record.rule.kind,
            answers=getattr(record.rule, "answers", "any"),
            rows="pool" if record.selection else "certify" if record.certify_report else "fit",
            certified=record.certified,
            kept=not any(risk > target for risk, target in risks),
        )
        sentences.append(gap)
    return sentences


def gap_sentence(
    gap: AbstentionGap, kind: str, *, answers: str, rows: str, certified: bool, kept: bool
) -> str:
    """Return how often a rule abstains beside the best possible, and what another would gain.

    The best possible of rules with the same `answers`. `rows` are those of the fit or those that
    certify; `kept` says that their risks are within the targets.
    """
    noise = ERRORS * math.sqrt(gap.bound * (1 - gap.bound) / gap.n_rows)
    values = {"rows": rows, "certified": certified, "kept": kept, "noise": noise, "least": POINT}
    return say("words.gap", gap=gap, kind=kind, top=answers == "top", **values)


def _lowest_coverage(report: SetReport) -> tuple[str, ClassReport] | None:
    """Return the class whose abstentions hold it least often, if it is one of several."""
    named = [(name, each) for name, each in report.by_class.items() if each.n_named]
    return min(named, key=lambda pair: pair[1].candidate_coverage) if len(named) > 1 else None


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
    table = class_table(report, record.named_targets, record.overall_target, proves=proves)
    above = any(row.tone == "bad" for row in table.rows)
    provisos = say_each(
        "words.measured_provisos",
        record=record,
        report=report,
        fitted=fitted,
        n_shared=n_shared,
        grouped=grouped,
        n_invalid=n_invalid,
    )
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
        about_rule=_about_candidates(record, report),
    )


def _about_candidates(record: SetClassifier, report: SetReport) -> tuple[str, ...]:
    """Return how often candidates held the true class on other rows, and what was asked."""
    least = _lowest_coverage(report)
    values = {"record": record, "report": report, "least": least}
    return tuple(say_each("words.measured_candidates", **values))


def measured_sentence(table: ClassTable, *, fitted: bool) -> str:
    """Return in a sentence what was measured."""
    rows = [row for row in table.rows if not math.isnan(row.target)]
    above = [
        f"{row.name} ({percents(row.risk, row.target)[0]})" for row in rows if row.risk > row.target
    ]
    bounded = any(not math.isnan(row.bound) for row in rows)
    within = sum(row.status == WITHIN if bounded else row.risk <= row.target for row in rows)
    values = {"rows": rows, "above": above, "bounded": bounded, "n_within": within}
    return say("words.measured", fitted=fitted, **values)


def gate_facts(decision: Decision, record: SetClassifier, failure: str = "") -> Facts:
    """Return what a gate decided: by fresh rows, or by the stored certificate alone.

    `failure` says why an alias that may be moved was not.
    """
    fresh, policy, counted = decision.fresh, decision.policy, ""
    if fresh is None:
        stored = calibration_facts(record)
        report, which, table, heading = stored.report, stored.which, stored.table, stored.heading
        counted = stored.counted
        proves, certificate = all(row.proves for row in table.rows), record.certificate
        heading = "The stored certificate" if certificate is not None else heading
        if not all(check.passed for check in decision.checks if check.name == "intact"):
            table = table.changed()
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
            targets = record.named_targets, record.overall_target
            table = class_table(report, *targets, refuted=fresh.refuted)
        ledger = [] if fresh.use is None else say_each("words.ledger", use=fresh.use)
    return Facts(
        stamp="not moved" if failure else "passed" if decision.passed else "refused",
        tone="good" if decision.passed and not failure else "bad",
        verdict=failure or _decision(decision),
        provisos=tuple(ledger),
        checks=tuple(
            (check.name, "ok" if check.passed else "FAILS", check.detail)
            for check in decision.checks
        ),
        report=report,
        which=which,
        counted=counted,
        table=table,
        asked=class_table(report, policy.risk_targets, certificate=certificate, proves=proves),
        heading=heading,
        about_rule=_about_candidates(record, report),
    )


def _refusals(decision: Decision) -> list[str]:
    """Return why a version was refused, a few words a check; the table has the rest."""
    return [
        REFUSALS.get(check.name, f"the {check.name} does not follow from its certificate")
        for check in decision.checks
        if not check.passed
    ]


def _decision(decision: Decision) -> str:
    values = {"version": _version(decision), "why": _refusals(decision)}
    return say("words.decision", decision=decision, **values)


def _version(decision: Decision) -> str:
    return decision.model_uri.rpartition("/")[2]


def way_back(decision: Decision, name: str) -> list[tuple[str, str]]:
    """Return how to undo a promotion, nothing where none was on another version before."""
    before = decision.champion
    if not decision.passed or before in {"", _version(decision)}:
        return []
    named = json.dumps([name, decision.policy.alias, before], ensure_ascii=False)[1:-1]
    program = f"import mlflow; mlflow.MlflowClient().set_registered_model_alias({named})"
    return [("go back", shlex.join(["python", "-c", program]))]
