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
from typing import Any, NamedTuple

import jinja2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import scrib_mlflow
from scrib_mlflow import messages
from scrib_mlflow.core import reports
from scrib_mlflow.core.certificate import Sample
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import Answers, SetCount, SetReport
from scrib_mlflow.core.rules import OptimalRule, Rule, ThresholdRule, predict_sets
from scrib_mlflow.engines.base import CalibrationRows, Tables, shown_rows
from scrib_mlflow.messages import percent
from scrib_mlflow.records import DataRecord
from scrib_mlflow.report import figures, words
from scrib_mlflow.report.facts import ClassTable, Facts
from scrib_mlflow.report.figures import MOST_SETS, inline_svg
from scrib_mlflow.results import SetClassifier
from scrib_mlflow.rows.scored import Answered
from scrib_mlflow.rows.tables import TableLike
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


def number(value: float) -> str:
    """Return a score in as few digits as tell it apart."""
    return f"{value:,.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def certificate(table: ClassTable, shown: Sequence[str]) -> Folded:
    """Return rows with risk, bound and target on a common scale, in percent."""
    known = [row for row in table.rows if row.n_certain]
    ends = [x for row in known for x in (row.risk, row.bound, row.target) if not math.isnan(x)]
    scale = max([*ends, 1e-9])

    def place(value: float) -> float | None:
        return None if math.isnan(value) else round(100 * min(value / scale, 1), 2)

    drawn = [(row, place(row.risk), place(row.bound), place(row.target)) for row in table.rows]
    return _fold(drawn, [row.name for row in table.classes], shown)


def outcomes(report: SetReport, answers: Answers | None, shown: Sequence[str]) -> Folded:
    """Return what becomes of the rows, of all first and then class by class."""
    found = []
    counts = None if answers is None else reports.outcome_counts(answers)
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


def _bar(
    name: str, n: float, abstains: float, parts: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    shares = [(what, round(100 * count / n, 3) if n else 0.0) for what, count in parts]
    shown = [(what, share) for what, share in shares if share > 0]
    return {"name": name, "n": n, "abstains": abstains, "parts": shown}


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


def examples(rows: ReportRows, rule: Rule, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows that abstain, with the candidates that are served for them; no inputs."""
    answers = rows.answers
    chosen = reports.choose_examples(answers, MOST_EXAMPLES)
    if not len(chosen):
        return []
    scores = answers.scores[chosen]
    served = served_columns(asdict(rule), scores, classes)
    limits = rule.thresholds if isinstance(rule, ThresholdRule) else None
    index = {name: j for j, name in enumerate(classes)}
    found = []
    for i, row in enumerate(chosen.tolist()):
        label, names = classes[answers.labels[row]], served["candidates"][i]
        shown = [
            {"name": name, "score": _score(scores[i, j], limits, j), "true": name == label}
            for name, j in ((name, index[name]) for name in names[:MOST_MEMBERS])
        ]
        found.append(
            {
                "row": None if rows.places is None else int(rows.places[row]),
                "key": "" if rows.keys is None else str(rows.keys[row]),
                "label": label,
                "reason": served["reason"][i],
                "candidates": shown,
                "n_more": max(len(names) - MOST_MEMBERS, 0),
            }
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
    facts: Facts
    sentences: tuple[str, ...]  # that only the page says
    rule: Rule
    rows: ReportRows | None  # None where only stored figures are known
    elsewhere: str = ""  # where the rows are shown, if not here
    made_from: tuple[tuple[str, str], ...]  # what was run
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
        told = f"{report.facts.verdict} The rest of this report could not be drawn: {error!r}"
        return {REPORT: f"<!doctype html>\n<p>{html.escape(told)}</p>\n"}, {}


def draw(report: Report) -> dict[str, Figure]:
    """Return the figures of a report by the paths under which a run keeps them."""
    facts = report.facts
    found = {CLASSES: figures.class_figure(facts.asked, title=f"{report.title}, {facts.which}")}
    if report.rows is None:
        return found
    answers = report.rows.answers
    found[CONFUSION] = figures.confusion_figure(reports.confusion_counts(answers), facts.asked)
    found[SETS] = figures.sets_figure(reports.count_by_set(answers), facts.report.classes)
    valid = reports.valid_rows(answers)
    if valid.any():
        scored = answers.scores[valid], answers.labels[valid]
        found[_limits(report.rule)] = figures.rule_figure(report.rule, *scored, facts.asked)
        point = reports.own_point(answers)
        found[COVERAGE] = figures.coverage_figure(reports.risk_coverage(answers), point, OWN)
    return found


def _limits(rule: Rule) -> str:
    return "figures/values.png" if isinstance(rule, OptimalRule) else "figures/thresholds.png"


def render(report: Report, drawn: Mapping[str, Figure]) -> str:
    """Return the page, with some of the figures that were drawn for it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(words.TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = messages.percent
    values = _values(report) | _row_values(report) | _inline(report, drawn)
    template = environment.get_template("report.html.jinja")
    return f"{template.render(report=report, facts=report.facts, **values)}\n"


def _visible(value: Any) -> Any:
    return words.visible(value) if type(value) is str else value


def _values(report: Report) -> dict[str, Any]:
    """Return what the page says of the classes."""
    rows, measured = report.rows, report.facts.report
    shown = figures.shown_classes(report.facts.asked)
    optimal = isinstance(report.rule, OptimalRule)
    return {
        "certificate": certificate(report.facts.table, shown),
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
    answers, classes = report.rows.answers, report.facts.report.classes
    folded = figures.fold_confusion(reports.confusion_counts(answers), report.facts.asked)
    return {
        "n_invalid": int(np.count_nonzero(~reports.valid_rows(answers))),
        "sets": sets(reports.count_by_set(answers), classes),
        "confusion": confusion(*folded),
        "examples": examples(report.rows, report.rule, classes),
        "own": reports.own_point(answers),
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
    parameters: Mapping[str, Any],
    name: str,
    run_id: str,
) -> Report:
    """Return the report of a calibration: of the certify rows where there are any."""
    rows = parts.fit if parts.certify is None else parts.certify
    table = tables.data if parts.certify is None or tables.certify is None else tables.certify
    shown = rows.sample(shown_rows(len(record.classes)), by_class=False)
    return Report(
        title=f"calibrate: {name}",
        facts=words.calibration_facts(record),
        sentences=tuple(_some(shown, rows.n_rows)),
        rule=record.rule,
        rows=_page_rows(shown, predict_sets(shown.scores, record.rule), table),
        made_from=_made_from(record, {}, run_id, parameters),
        parameters=_parameters(parameters),
    )


def answers_report(
    title: str,
    uri: str,
    record: SetClassifier,
    facts: Facts,
    rows: tuple[TableLike, Answered] | None,
    calibrated_by: str,
    parameters: Mapping[str, Any],
    run_id: str,
) -> Report:
    """Return the report of an evaluation or a gate, with the rows that were answered, if any."""
    sentences, shown, made = [_own_certificate(record, facts)], None, {"set classifier": uri}
    if rows is not None:
        table, answered = rows
        sample, sets = answered.sample(shown_rows(len(record.classes)))
        sentences += _some(sample, answered.n_rows)
        shown = _page_rows(sample, sets, table)
        made["data"] = _told(table.record)
    if calibrated_by:
        made["calibrated by"] = f"run {calibrated_by}"
    where = made.get("calibrated by", "the calibrate run, which is gone")
    return Report(
        title=title,
        facts=facts,
        sentences=tuple(sentences),
        rule=record.rule,
        rows=shown,
        elsewhere="This gate was given no rows. Sets, scores, confusions and examples of the rows "
        f"that certify the version are in report.html of {where}.",
        made_from=_made_from(record, made, run_id, parameters),
        parameters=_parameters(parameters),
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


def _own_certificate(record: SetClassifier, facts: Facts) -> str:
    """Return what a version says of its certificate, with every proviso where it is certified."""
    if ("intact", "FAILS") in [check[:2] for check in facts.checks]:
        return "Do not rely on what its scrib.json says of a certificate: see the checks."
    verdict, *provisos = words.verdict_sentences(record)
    claimed = " ".join([verdict, *provisos]) if record.certified else verdict
    if facts.checks:
        return f"The version was registered with the words \u201c{claimed}\u201d"
    return (
        f"Its scrib.json says \u201c{claimed}\u201d; only a gate checks that this is what was "
        "registered."
    )


def _made_from(
    record: SetClassifier, made: Mapping[str, str], run_id: str, parameters: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Return what a set classifier was made from, and by which run."""
    base, path = record.base, record.path
    named = f"{base.name} version {base.version}".removesuffix(" version ")
    parts = {
        "fit rows": record.fit_data,
        "certify rows": record.certify_data,
        "path rows": record.path_data,
    }
    facts = {
        **made,
        "classifier": f"{named} ({base.uri})",
        **{name: _told(data) for name, data in parts.items() if data is not None},
        "rule": f"{record.rule.kind}, mode={record.mode}",
        "confidence": f"{record.confidence:g}",
    }
    if path is not None:
        tested = f"{len(path.p_values)} of {path.n_steps} set classifiers"
        facts["path"] = f"{tested} tested in a fixed order"
    if "seed" in parameters:
        facts["seed"] = str(parameters["seed"])
    now = datetime.now(timezone.utc).isoformat(sep=" ", timespec="seconds")
    facts |= {"run": run_id, "scrib_mlflow": scrib_mlflow.__version__, "made": now}
    return tuple(facts.items())


def _told(data: DataRecord) -> str:
    used = f"{data.n_used:,} of {data.n_rows:,} rows"
    return f"{messages.shown(data.source)}, {used}, digest {data.digest}"


def _parameters(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, messages.shown(value) if isinstance(value, str) else json.dumps(value))
        for name, value in parameters.items()
        if value is not None
    )
