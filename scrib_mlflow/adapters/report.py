"""The report of a run: one page that needs nothing but itself."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scrib_mlflow.adapters import charts, figures, report_parts, texts
from scrib_mlflow.adapters.lines import Line
from scrib_mlflow.adapters.svg import inline_svg
from scrib_mlflow.core.answers import (
    Answers,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labelled rows that a set classifier has answered, and how to find them again."""

    answers: Answers
    table: str  # the file
    places: NDArray[np.int64]  # (n,) the number of each row in its table, from 0
    keys: Sequence[Any] | None  # (n,) what identifies each row


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


def render(report: Report) -> str:
    """Return the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": texts.percent, "number": report_parts.number}
    page = environment.get_template("report.jinja").render(report=report, **_sections(report))
    return page if page.endswith("\n") else f"{page}\n"


def _visible(value: Any) -> Any:
    return texts.visible(value) if type(value) is str else value


def _sections(report: Report) -> dict[str, Any]:
    rows, classes = report.rows, report.measured.classes
    shown = figures.shown_classes(report.measured, report.targets)
    found: dict[str, Any] = {
        "certificate": report_parts.certificate(report.lines, classes, shown),
        "bars": report_parts.outcomes(
            report.measured, None if rows is None else rows.answers, shown
        ),
        "abstentions": texts.abstentions(report.measured),
        "outcomes": report_parts.OUTCOMES if rows else ("right", "wrong", "open"),
        "words": report_parts.WORDS,
        "k": len(classes),
        "n_shown": len(shown),
        "empty_hint": "",
        "versions": package_versions(),
        "sets": None,
        "confusion": None,
        "examples": None,
        "histograms": None,
        "curve": None,
        "n_invalid": 0,
        "optimal": isinstance(report.rule, OptimalRule),
    }
    if not found["optimal"]:
        found["empty_hint"] = texts.empty_hint(report.measured)
    if rows is None:
        return found
    answers = rows.answers
    drawn = answer_figures(report)
    words = {
        "histograms": "histograms of scores, class by class, with the limit of each",
        "curve": "risk of top-1 against the share of rows that it answers",
    }
    for name, told in words.items():
        if name in drawn:
            found[name] = Markup(inline_svg(drawn[name], name, told))  # noqa: S704  # our own
    return found | {
        "n_invalid": int(np.count_nonzero(~valid_rows(answers))),
        "sets": report_parts.sets(count_by_set(answers), classes),
        "confusion": report_parts.confusion(
            *charts.fold_confusion(confusion_counts(answers), report.measured, report.targets)
        ),
        "examples": report_parts.examples(rows, report.rule, classes),
        "own": own_point(answers),
    }


def answer_figures(report: Report) -> dict[str, Figure]:
    """Return the figures of the rows' scores, none where no row has any."""
    if report.rows is None or not valid_rows(report.rows.answers).any():
        return {}
    answers = report.rows.answers
    valid = valid_rows(answers)
    drawn = figures.rule_figure(
        report.rule, answers.scores[valid], answers.labels[valid], report.measured, report.targets
    )
    curve = charts.coverage_figure(
        risk_coverage(answers), own_point(answers), "this set classifier"
    )
    return {"histograms": drawn, "curve": curve}


def artifacts(report: Report) -> dict[str, Figure]:
    """Return the figures of a report by the paths under which a run keeps them."""
    title = f"{report.title}, {report.which}"
    bounds = any(not math.isnan(line.upper) for line in report.lines)
    found = {
        "figures/classes.png": figures.class_figure(
            report.measured, report.targets, title=title, bounds=bounds
        )
    }
    if report.rows is None:
        return found
    answers = report.rows.answers
    limits = "values" if isinstance(report.rule, OptimalRule) else "thresholds"
    places = {"histograms": f"figures/{limits}.png", "curve": "figures/risk_coverage.png"}
    found |= {places[name]: figure for name, figure in answer_figures(report).items()}
    found["figures/confusion.png"] = charts.confusion_figure(
        confusion_counts(answers), report.measured, report.targets
    )
    found["figures/sets.png"] = charts.sets_figure(count_by_set(answers), report.measured.classes)
    return found


def package_versions() -> list[tuple[str, str]]:
    """Return the packages that matter, with their versions here."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]
