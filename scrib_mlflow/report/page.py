"""The report of each command: which rows it shows, and what it may say of them."""

from __future__ import annotations

import html
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jinja2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import scrib_mlflow
from scrib_mlflow import messages
from scrib_mlflow.core.certificate import Sample
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import (
    Answers,
    SetCount,
    SetReport,
    choose_examples,
    confusion_counts,
    count_by_set,
    outcome_counts,
    own_point,
    risk_coverage,
    valid_rows,
)
from scrib_mlflow.core.rules import OptimalRule, Rule, ThresholdRule, predict_sets
from scrib_mlflow.engines.base import CalibrationRows, Tables, shown_rows
from scrib_mlflow.messages import percent
from scrib_mlflow.options import Settings
from scrib_mlflow.records import DataRecord
from scrib_mlflow.report import facts, figures, words
from scrib_mlflow.report.facts import Line
from scrib_mlflow.report.figures import MOST_SETS, inline_svg
from scrib_mlflow.results import Decision, SetClassifier
from scrib_mlflow.rows.scored import Answered, TableLike
from scrib_mlflow.serving import served_columns

MOST_EXAMPLES = 12
MOST_MEMBERS = 6  # of a set in a line
OUTCOMES = ("right", "wrong", "ambiguous", "empty")
WORDS = {
    "right": "certain, right",
    "wrong": "certain, wrong",
    "ambiguous": "ambiguous: several candidates",
    "empty": "empty set",
    "open": "abstains",
}
PACKAGES = ("mlflow", "numpy", "scipy", "numba", "pandas", "scikit-learn", "matplotlib")
REPORT = "report.html"
CLASSES, CONFUSION = "figures/classes.png", "figures/confusion.png"
SETS, COVERAGE = "figures/sets.png", "figures/risk_coverage.png"
OWN = "this set classifier"
NO_CERTIFICATE = "Risks and targets, measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """Labelled rows that a set classifier has answered, and how to find them again."""

    answers: Answers
    table: str  # the file
    places: NDArray[np.int64] | None  # (n,) the number of each row in its table, from 0
    keys: NDArray[np.object_] | None  # (n,) what identifies each row


class Folded(NamedTuple):
    """Lines to be seen at once, and others behind a fold."""

    shown: list[Any]
    folded: list[Any]


class Bar(NamedTuple):
    """A share of rows for each outcome."""

    name: str
    n: int | float
    abstains: float
    parts: list[tuple[str, float]]  # outcome and share


class Candidate(NamedTuple):
    """A class that a person should look at."""

    name: str
    score: str
    true: bool


class Example(NamedTuple):
    """A row that abstains."""

    row: int | None  # None where rows have no number
    key: str
    label: str
    reason: str
    candidates: list[Candidate]
    n_more: int


def number(value: float) -> str:
    """Return a score in as few digits as tell it apart."""
    return f"{value:,.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def certificate(lines: Sequence[Line], classes: Sequence[str], shown: Sequence[str]) -> Folded:
    """Return lines with the places of risk, bound and target on a common scale, in percent."""
    known = [line for line in lines if line.n_certain]
    ends = [x for line in known for x in (line.risk, line.upper, line.target) if not math.isnan(x)]
    scale = max([*ends, 1e-9])

    def place(value: float) -> float | None:
        return None if math.isnan(value) else round(100 * min(value / scale, 1), 2)

    drawn = [(line, place(line.risk), place(line.upper), place(line.target)) for line in lines]
    return _fold(drawn, classes, shown)


def outcomes(report: SetReport, answers: Answers | None, shown: Sequence[str]) -> Folded:
    """Return what becomes of the rows, of all first and then class by class."""
    found = []
    counts = None if answers is None else outcome_counts(answers)
    for j, (name, each) in enumerate(report.by_class.items()):
        if counts is None:
            right = each.n_certain - each.n_wrong
            parts = [("right", right), ("wrong", each.n_wrong), ("open", each.n - each.n_certain)]
        else:
            scale = each.n / max(int(counts[j].sum()), 1)  # where only some rows are at hand
            parts = [*zip(OUTCOMES, (scale * counts[j]).tolist(), strict=True)]
        found.append(_bar(name, each.n, each.abstention_rate, parts))
    folded = _fold(found, list(report.by_class), shown)
    certain = report.n_certain - report.n_wrong
    whole = [
        ("right", certain),
        ("wrong", report.n_wrong),
        ("ambiguous", report.chance_ambiguity * report.n),
        ("empty", report.empty_rate * report.n),
    ]
    if answers is None:
        whole = [*whole[:2], ("open", report.n - report.n_certain)]
    total = _bar("all rows", report.n, report.abstention_rate, whole)
    return Folded([total, *folded.shown], folded.folded)


def _bar(name: str, n: float, abstains: float, parts: Sequence[tuple[str, float]]) -> Bar:
    shares = [(what, round(100 * count / n, 3) if n else 0.0) for what, count in parts]
    return Bar(name, n, abstains, [(what, share) for what, share in shares if share > 0])


def _fold(values: Sequence[Any], names: Sequence[str], shown: Sequence[str]) -> Folded:
    """Return the values of the classes shown, in their order, and of the others, in class order.

    Values beyond those of the classes are of all of them together, and always shown.
    """
    by_name = dict(zip(names, values, strict=False))
    hidden = set(names) - set(shown)
    return Folded(
        [*(by_name[name] for name in shown), *values[len(names) :]],
        [by_name[name] for name in names if name in hidden],
    )


def sets(counts: Sequence[SetCount], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return which sets occur: certain ones together, empty ones, and the frequent others."""
    total = sum(each.n for each in counts)
    certain = [each for each in counts if len(each.members) == 1]
    several = [each for each in counts if len(each.members) > 1]
    rest = several[MOST_SETS:]
    found = [
        _set("one class: certain", [], certain, total),
        *(_set("", _members(each.members, classes), [each], total) for each in several[:MOST_SETS]),
    ]
    if rest:
        found.append(_set(f"{len(rest):,} other combinations", [], rest, total))
    empty = [each for each in counts if not each.members]
    if empty:
        line = _set("empty: no class reaches its threshold", [], empty, total)
        found.insert(1, line | {"held": NAN})
    return found


def _set(words: str, members: list[str], counts: Sequence[SetCount], total: int) -> dict[str, Any]:
    n = sum(each.n for each in counts)
    return {
        "words": words,
        "kind": {0: "empty", 1: "right"}.get(len(counts[0].members) if counts else 1, "other"),
        "members": members,
        "n": n,
        "share": n / total if total else NAN,
        "held": sum(each.n_held for each in counts) / n if n else NAN,
    }


def _members(members: Sequence[int], classes: Sequence[str]) -> list[str]:
    names = [classes[j] for j in members[:MOST_MEMBERS]]
    more = len(members) - MOST_MEMBERS
    return [*names, f"and {more} more"] if more > 0 else names


def confusion(
    names: Sequence[str], answers: Sequence[str], counts: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the cells of a table: counts, and which share of its class each is."""
    lines = []
    for name, row in zip(names, counts.tolist(), strict=True):
        total = sum(row)
        cells = []
        for answer, n in zip(answers, row, strict=True):
            kind = "abstain" if answer is answers[-1] else "right" if answer == name else "wrong"
            share = n / total if total else 0.0
            cells.append({"n": n, "kind": kind, "share": round(share, 3), "told": percent(share)})
        lines.append({"name": name, "cells": cells})
    return {"answers": list(answers), "lines": lines}


def examples(rows: ReportRows, rule: Rule, classes: Sequence[str]) -> list[Example]:
    """Return rows that abstain, with the candidates that are served for them; no inputs."""
    answers = rows.answers
    chosen = choose_examples(answers, MOST_EXAMPLES)
    if not len(chosen):
        return []
    scores = answers.scores[chosen]
    served = served_columns(asdict(rule), scores, classes)
    limits = rule.thresholds if isinstance(rule, ThresholdRule) else None
    index = {name: j for j, name in enumerate(classes)}
    found = []
    for i, row in enumerate(chosen.tolist()):
        label = classes[answers.labels[row]]
        named = served["candidates"][i]
        shown = [
            Candidate(name, _score(scores[i, index[name]], limits, index[name]), name == label)
            for name in named[:MOST_MEMBERS]
        ]
        found.append(
            Example(
                None if rows.places is None else int(rows.places[row]),
                "" if rows.keys is None else str(rows.keys[row]),
                label,
                served["reason"][i],
                shown,
                max(len(named) - MOST_MEMBERS, 0),
            )
        )
    return found


def _score(score: float, limits: Sequence[float] | None, j: int) -> str:
    if limits is None or not math.isfinite(limits[j]):
        return number(score)
    sign = "\u2265" if score >= limits[j] else "<"
    return f"{number(score)} {sign} {number(limits[j])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a page says, in the order in which it says it."""

    title: str
    stamp: str  # a word or two
    tone: Literal["good", "bad", "plain"]
    verdict: str  # a sentence
    sentences: tuple[str, ...]  # what is to be said of it
    checks: tuple[tuple[str, ...], ...] = ()  # of a gate: name, answer, why
    lines: tuple[Line, ...]
    lines_title: str
    measured: SetReport
    which: str  # rows these are
    rule: Rule
    rule_sentences: tuple[str, ...]
    targets: Mapping[str, float]
    rows: ReportRows | None  # None where only stored figures are known
    elsewhere: str  # where the rows are shown, if not here
    facts: tuple[tuple[str, str], ...]  # what was run
    parameters: tuple[tuple[str, str], ...]


def page_files(report: Report) -> tuple[dict[str, str], dict[str, Figure]]:
    """Return the page and its figures by path.

    What a picture cannot show must not undo a certificate or a decision: where anything fails, the
    page says so, and the rest goes on.
    """
    try:
        drawn = draw(report)
        return {REPORT: render(report, drawn)}, drawn
    except Exception as error:  # whatever it is, it is told
        told = f"{report.verdict} The rest of this report could not be drawn: {error!r}"
        return {REPORT: f"<!doctype html>\n<p>{html.escape(told)}</p>\n"}, {}


def draw(report: Report) -> dict[str, Figure]:
    """Return the figures of a report by the paths under which a run keeps them."""
    title = f"{report.title}, {report.which}"
    bounds = any(not math.isnan(line.upper) for line in report.lines)
    measured, targets = report.measured, report.targets
    found = {CLASSES: figures.class_figure(measured, targets, title=title, bounds=bounds)}
    if report.rows is None:
        return found
    answers = report.rows.answers
    found[CONFUSION] = figures.confusion_figure(confusion_counts(answers), measured, targets)
    found[SETS] = figures.sets_figure(count_by_set(answers), measured.classes)
    valid = valid_rows(answers)
    if valid.any():
        scored = answers.scores[valid], answers.labels[valid]
        found[_limits(report.rule)] = figures.rule_figure(report.rule, *scored, measured, targets)
        point = own_point(answers)
        found[COVERAGE] = figures.coverage_figure(risk_coverage(answers), point, OWN)
    return found


def _limits(rule: Rule) -> str:
    return "figures/values.png" if isinstance(rule, OptimalRule) else "figures/thresholds.png"


def render(report: Report, drawn: Mapping[str, Figure]) -> str:
    """Return the page, with some of the figures that were drawn for it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = messages.percent
    values = _values(report) | _row_values(report) | _inline(report, drawn)
    return f"{environment.get_template('report.html.jinja').render(report=report, **values)}\n"


def _visible(value: Any) -> Any:
    return words.visible(value) if type(value) is str else value


def _values(report: Report) -> dict[str, Any]:
    """Return what the page says of the classes."""
    rows, measured = report.rows, report.measured
    shown = figures.shown_classes(measured, report.targets)
    optimal = isinstance(report.rule, OptimalRule)
    return {
        "certificate": certificate(report.lines, measured.classes, shown),
        "bars": outcomes(measured, None if rows is None else rows.answers, shown),
        "outcomes": OUTCOMES if rows else ("right", "wrong", "open"),
        "words": WORDS,
        "abstentions": words.abstentions(measured),
        "empty_hint": "" if optimal else words.empty_hint(measured),
        "optimal": optimal,
        "k": len(measured.classes),
        "n_shown": len(shown),
        "versions": package_versions(),
    }


def _row_values(report: Report) -> dict[str, Any]:
    """Return what the page says of rows."""
    if report.rows is None:
        return {}
    answers, measured = report.rows.answers, report.measured
    folded = figures.fold_confusion(confusion_counts(answers), measured, report.targets)
    return {
        "n_invalid": int(np.count_nonzero(~valid_rows(answers))),
        "sets": sets(count_by_set(answers), measured.classes),
        "confusion": confusion(*folded),
        "examples": examples(report.rows, report.rule, measured.classes),
        "own": own_point(answers),
    }


def _inline(report: Report, drawn: Mapping[str, Figure]) -> dict[str, str | None]:
    """Return figures as they stand in the page, None for those that there are not."""
    found: dict[str, str | None] = {}
    for name, path, about in (
        ("histograms", _limits(report.rule), "scores of each class, and its limit"),
        ("curve", COVERAGE, "risk of top-1 against the share of rows that it answers"),
    ):
        figure = drawn.get(path)
        found[name] = None if figure is None else inline_svg(figure, name, about)
    return found


def package_versions() -> list[tuple[str, str]]:
    """Return the packages that matter, with their versions here."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]


def calibration_report(
    record: SetClassifier,
    tables: Tables[Any],
    parts: CalibrationRows,
    settings: Settings,
    name: str,
    run_id: str,
) -> Report:
    """Return the report of a calibration: of the certify rows where there are any."""
    measured, which, bounds = words.shown_report(record)
    verdict = words.headline(record)
    others = [told for told in words.verdict_sentences(record) if told != verdict]
    if record.certificate is not None:
        found = facts.certificate_lines(measured, record.certificate)
    else:
        found = facts.measured_lines(
            measured, record.risk_targets, record.overall_target, proves=bounds
        )
    rows = parts.fit if parts.certify is None else parts.certify
    table = tables.data if parts.certify is None or tables.certify is None else tables.certify
    shown = rows.sample(shown_rows(len(record.classes)), by_class=False)
    sets = predict_sets(shown.scores, record.rule)
    stamp = "certified" if record.certified else "not certified"
    return Report(
        title=f"calibrate: {name}",
        stamp=stamp if record.mode == "certified" else f"{stamp}: mode=paper",
        tone="good" if record.certified else "bad",
        verdict=verdict,
        sentences=(*others, *_some(shown, rows.n_rows)),
        lines=tuple(found),
        lines_title=NO_CERTIFICATE if record.certificate is None else "The certificate",
        measured=measured,
        which=which,
        rule=record.rule,
        rule_sentences=tuple(words.sentences(record)),
        targets=record.risk_targets,
        rows=_page_rows(shown, sets, table),
        elsewhere="",
        facts=(*_made_from(record), *_ran(run_id, settings)),
        parameters=_parameters(settings),
    )


def evaluation_report(
    uri: str,
    record: SetClassifier,
    table: TableLike,
    answered: Answered,
    measured: SetReport,
    meaning: Sequence[str],
    *,
    fitted: bool,
    proves: bool,
    calibrated_by: str,
    settings: Settings,
    run_id: str,
) -> Report:
    """Return the report of a measurement; it claims nothing but its bounds."""
    found = facts.measured_lines(
        measured, record.risk_targets, record.overall_target, proves=proves
    )
    above = any(line.tone == "bad" for line in found)
    shown, sets = answered.sample(shown_rows(len(record.classes)))
    return Report(
        title=f"evaluate: {uri}",
        stamp="nothing proved" if fitted else "measured",
        tone="bad" if fitted or above else "plain",
        verdict=facts.measured_sentence(found, fitted=fitted),
        sentences=(
            *meaning,
            f"Its scrib.json says \u201c{_claimed(record)}\u201d; only a gate checks that "
            "this is what was registered.",
            *_some(shown, answered.n_rows),
        ),
        lines=tuple(found),
        lines_title=NO_CERTIFICATE,
        measured=measured,
        which=f"{measured.n:,} rows of {messages.shown(table.record.source)}",
        rule=record.rule,
        rule_sentences=tuple(words.measured_candidates(record, measured)),
        targets=record.risk_targets,
        rows=_page_rows(shown, sets, table),
        elsewhere="",
        facts=(
            ("set classifier", uri),
            ("data", _told(table.record)),
            *_made_from(record),
            *_calibrated_by(calibrated_by),
            *_ran(run_id, settings),
        ),
        parameters=_parameters(settings),
    )


def gate_report(
    decision: Decision,
    record: SetClassifier,
    table: TableLike | None,
    answered: Answered | None,
    calibrated_by: str,
    settings: Settings,
    run_id: str,
    failure: str = "",
) -> Report:
    """Return the report of a decision: of the fresh rows, or of the stored certificate alone.

    `failure` says why an alias that may be moved was not.
    """
    fresh, policy = decision.fresh, decision.policy
    sentences = [_own_certificate(record, decision)]
    if fresh is not None and table is not None and answered is not None:
        measured = fresh.report
        which = f"{measured.n:,} fresh rows of {messages.shown(fresh.data.source)}"
        if policy.evidence == "fresh":
            found = facts.certificate_lines(measured, fresh.certificate, without="not asked")
            title = "What fresh rows prove of the policy's targets"
        else:
            found = facts.refuted_lines(
                measured, record.risk_targets, record.overall_target, fresh.refuted
            )
            title = "What fresh rows say of the version's own targets"
        sentences += [words.ledger_sentence(fresh.use)] if fresh.use is not None else []
        shown, sets = answered.sample(shown_rows(len(record.classes)))
        sentences += _some(shown, answered.n_rows)
        rows = _page_rows(shown, sets, table)
        elsewhere = ""
    else:
        measured, which, bounds = words.shown_report(record)
        title, rows = "The stored certificate", None
        sentences.append("No fresh rows were given: only the stored certificate was asked.")
        where = f"run {calibrated_by}" if calibrated_by else "the calibrate run, which is gone"
        elsewhere = (
            "This gate was given no rows. Sets, scores, confusions and examples of the rows that "
            f"certify the version are in report.html of {where}."
        )
        if record.certificate is not None:
            found = facts.certificate_lines(measured, record.certificate)
        else:
            title = NO_CERTIFICATE
            found = facts.measured_lines(
                measured, record.risk_targets, record.overall_target, proves=bounds
            )
        if not _intact(decision):
            found = [line._replace(status=facts.CHANGED) for line in found]
    return Report(
        title=f"gate: {decision.model_uri} for {policy.alias}",
        stamp="not moved" if failure else "passed" if decision.passed else "refused",
        tone="good" if decision.passed and not failure else "bad",
        verdict=failure or words.decision_sentence(decision),
        sentences=tuple(sentences),
        checks=tuple(words.rows_of_checks(decision)[1:]),
        lines=tuple(found),
        lines_title=title,
        measured=measured,
        which=which,
        rule=record.rule,
        rule_sentences=tuple(words.measured_candidates(record, measured)),
        targets=policy.risk_targets,
        rows=rows,
        elsewhere=elsewhere,
        facts=(
            ("set classifier", decision.model_uri),
            *((("fresh rows", _told(fresh.data)),) if fresh is not None else ()),
            *_made_from(record),
            *_calibrated_by(calibrated_by),
            *_ran(run_id, settings),
        ),
        parameters=_parameters(settings),
    )


def _page_rows(shown: Sample, sets: NDArray[np.bool_], table: TableLike) -> ReportRows:
    return ReportRows(
        answers=Answers(shown.scores, shown.labels, sets),
        table=messages.shown(table.record.source),
        places=shown.places,
        keys=shown.keys,
    )


def _some(shown: Sample, n_rows: int) -> list[str]:
    """Return that only some rows are shown, where that is so."""
    n = len(shown.labels)
    if n == n_rows:
        return []
    return [
        f"Tables of classes count all {n_rows:,} rows; figures, sets, confusions and examples are "
        f"of {n:,} of them, taken by hash."
    ]


def _intact(decision: Decision) -> bool:
    """Return whether the stored files of a version are those that were registered."""
    return all(check.passed for check in decision.checks if check.name == "intact")


def _own_certificate(record: SetClassifier, decision: Decision) -> str:
    """Return what the version was registered with, where that can be relied on."""
    if not _intact(decision):
        return "What its scrib.json says of a certificate is not to be relied on: see the checks."
    return f"The version was registered with the words \u201c{_claimed(record)}\u201d"


def _claimed(record: SetClassifier) -> str:
    """Return what is claimed of a version, with every proviso where it is certified."""
    return words.verdict(record) if record.certified else words.headline(record)


def _made_from(record: SetClassifier) -> list[tuple[str, str]]:
    """Return what a set classifier was made from, and how."""
    base = record.base
    parts = {
        "fit rows": record.fit_data,
        "certify rows": record.certify_data,
        "path rows": record.path_data,
    }
    named = f"{base.name} version {base.version}".removesuffix(" version ")
    facts = [("classifier", f"{named} ({base.uri})")]
    facts += [(name, _told(data)) for name, data in parts.items() if data is not None]
    facts.append(("rule", f"{record.rule.kind}, mode={record.mode}"))
    facts.append(("confidence", f"{record.confidence:g}"))
    if record.path is not None:
        tested, steps = len(record.path.p_values), record.path.n_steps
        facts.append(("path", f"{tested} of {steps} set classifiers tested in a fixed order"))
    return facts


def _calibrated_by(run_id: str) -> list[tuple[str, str]]:
    return [("calibrated by", f"run {run_id}")] if run_id else []


def _told(data: DataRecord) -> str:
    used = f"{data.n_used:,} of {data.n_rows:,} rows"
    return f"{messages.shown(data.source)}, {used}, digest {data.digest}"


def _ran(run_id: str, settings: Settings) -> list[tuple[str, str]]:
    now = datetime.now(timezone.utc).isoformat(sep=" ", timespec="seconds")
    seed = getattr(settings, "seed", None)
    facts = [] if seed is None else [("seed", str(seed))]
    return [*facts, ("run", run_id), ("scrib_mlflow", scrib_mlflow.__version__), ("made", now)]


def _parameters(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, messages.shown(value) if isinstance(value, str) else json.dumps(value))
        for name, value in settings.model_dump().items()
        if value is not None
    )
