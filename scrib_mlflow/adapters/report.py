"""The report of a run: one page that needs nothing but itself."""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
from matplotlib.figure import Figure

from scrib_mlflow.adapters import charts, figures, report_parts, texts
from scrib_mlflow.adapters.lines import Line
from scrib_mlflow.adapters.report_parts import Rows
from scrib_mlflow.adapters.svg import inline_svg
from scrib_mlflow.core.answers import (
    confusion_counts,
    count_by_set,
    own_point,
    risk_coverage,
    valid_rows,
)
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.rules import OptimalRule, Rule

PACKAGES = ("mlflow", "numpy", "scipy", "numba", "pandas", "scikit-learn", "matplotlib")
REPORT = "report.html"
CLASSES, CONFUSION = "figures/classes.png", "figures/confusion.png"
SETS, COVERAGE = "figures/sets.png", "figures/risk_coverage.png"
OWN = "this set classifier"


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
    rows: Rows | None  # None where only stored figures are known
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
    found[CONFUSION] = charts.confusion_figure(confusion_counts(answers), measured, targets)
    found[SETS] = charts.sets_figure(count_by_set(answers), measured.classes)
    valid = valid_rows(answers)
    if valid.any():
        scored = answers.scores[valid], answers.labels[valid]
        found[_limits(report.rule)] = figures.rule_figure(report.rule, *scored, measured, targets)
        point = own_point(answers)
        found[COVERAGE] = charts.coverage_figure(risk_coverage(answers), point, OWN)
    return found


def _limits(rule: Rule) -> str:
    return "figures/values.png" if isinstance(rule, OptimalRule) else "figures/thresholds.png"


def render(report: Report, drawn: Mapping[str, Figure]) -> str:
    """Return the page, with some of the figures that were drawn for it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = texts.percent
    values = _values(report) | _row_values(report) | _inline(report, drawn)
    return f"{environment.get_template('report.jinja').render(report=report, **values)}\n"


def _visible(value: Any) -> Any:
    return texts.visible(value) if type(value) is str else value


def _values(report: Report) -> dict[str, Any]:
    """Return what the page says of the classes."""
    rows, measured = report.rows, report.measured
    shown = figures.shown_classes(measured, report.targets)
    optimal = isinstance(report.rule, OptimalRule)
    return {
        "certificate": report_parts.certificate(report.lines, measured.classes, shown),
        "bars": report_parts.outcomes(measured, None if rows is None else rows.answers, shown),
        "outcomes": report_parts.OUTCOMES if rows else ("right", "wrong", "open"),
        "words": report_parts.WORDS,
        "abstentions": texts.abstentions(measured),
        "empty_hint": "" if optimal else texts.empty_hint(measured),
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
    folded = charts.fold_confusion(confusion_counts(answers), measured, report.targets)
    return {
        "n_invalid": int(np.count_nonzero(~valid_rows(answers))),
        "sets": report_parts.sets(count_by_set(answers), measured.classes),
        "confusion": report_parts.confusion(*folded),
        "examples": report_parts.examples(report.rows, report.rule, measured.classes),
        "own": own_point(answers),
    }


def _inline(report: Report, drawn: Mapping[str, Figure]) -> dict[str, str | None]:
    """Return figures as they stand in the page, None for those that there are not."""
    found: dict[str, str | None] = {}
    for name, path, words in (
        ("histograms", _limits(report.rule), "scores of each class, and its limit"),
        ("curve", COVERAGE, "risk of top-1 against the share of rows that it answers"),
    ):
        figure = drawn.get(path)
        found[name] = None if figure is None else inline_svg(figure, name, words)
    return found


def package_versions() -> list[tuple[str, str]]:
    """Return the packages that matter, with their versions here."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]
