"""The report of each command: which rows it shows, and what it may say of them."""

from __future__ import annotations

import html
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import scrib_mlflow
from scrib_mlflow import messages
from scrib_mlflow.core import reports
from scrib_mlflow.core.certificate import Sample
from scrib_mlflow.core.reports import Answers, SetCount, SetReport
from scrib_mlflow.core.rules import (
    OptimalRule,
    Rule,
    ThresholdRule,
    make_sets,
    name_classes,
)
from scrib_mlflow.engines.base import CalibrationRows, Tables, shown_rows
from scrib_mlflow.records import DataRecord
from scrib_mlflow.report import words
from scrib_mlflow.report.facts import MOST_SETS, Facts
from scrib_mlflow.results import SetClassifier
from scrib_mlflow.rows.scored import Answered
from scrib_mlflow.rows.tables import TableLike
from scrib_mlflow.serving import recalibrated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_EXAMPLES = 12
MOST_MEMBERS = 6  # of a set in a line
OUTCOMES = ("right", "wrong", "ambiguous", "empty")
WORDS = {
    "right": "certain, right",
    "wrong": "certain, wrong",
    "ambiguous": "ambiguous: several classes in the set",
    "empty": "empty set",
    "open": "abstains",
}
PACKAGES = ("mlflow", "numpy", "scipy", "numba", "pandas", "scikit-learn", "matplotlib")
REPORT = "report.html"
CLASSES, CONFUSION = "figures/classes.png", "figures/confusion.png"
SETS, COVERAGE = "figures/sets.png", "figures/risk_coverage.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """Labelled rows that a set classifier has answered, and how to find them again."""

    answers: Answers
    table: str  # the file
    places: NDArray[np.int64] | None  # (n,) the number of each row in its table, from 0
    keys: NDArray[np.object_] | None  # (n,) what identifies each row
    pool: NDArray[np.bool_] | None = (
        None  # (m, k) sets of rows without labels, for which they stand
    )

    @property
    def set_counts(self) -> list[SetCount]:
        """Which sets occur, and how often."""
        return reports.count_by_set(self.answers, self.pool)


def number(value: float) -> str:
    """Return a score in as few digits as tell it apart."""
    return f"{value:,.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def outcomes(report: SetReport, answers: Answers | None) -> list[dict[str, float]]:
    """Return what becomes of all rows, and then of those of each class, in percent of them.

    Without the answers it is not known whether an abstention is ambiguous or empty.
    """
    rates = [(report.abstention_rate, report.overall_risk)]
    rates += [(each.abstention_rate, each.risk) for each in report.by_class.values()]
    open_rows, risks = np.nan_to_num(rates).T  # a class without rows has no bar
    known = np.isfinite(np.array(rates)[:, 0])
    answered = np.where(known, 1 - open_rows, 0.0)
    shares = 100 * np.c_[answered * (1 - risks), answered * risks, open_rows]
    if answers is not None:
        counts = reports.outcome_counts(answers)
        by_class = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        ambiguous, empty = 100 * report.chance_ambiguity, 100 * report.empty_rate
        shares = np.vstack([[*shares[0, :2], ambiguous, empty], by_class])
    kinds = ("right", "wrong", "open") if answers is None else OUTCOMES
    return [dict(zip(kinds, row, strict=True)) for row in shares.round(3).tolist()]


def sets(counts: Sequence[SetCount]) -> list[tuple[str, str, list[SetCount]]]:
    """Return which sets occur: certain ones together, empty ones, the frequent others, the rest.

    Each with its kind, and with words where it is not named by its members.
    """
    several = [each for each in counts if len(each.members) > 1]
    rest = several[MOST_SETS:]
    groups = [
        ("right", "one class: certain", [each for each in counts if len(each.members) == 1]),
        ("empty", "empty: no class reaches its threshold", [e for e in counts if not e.members]),
        *(("other", "", [each]) for each in several[:MOST_SETS]),
        ("other", f"{len(rest):,} other combinations", rest),
    ]
    return [group for group in groups if group[2] or group[0] == "right"]


def examples(rows: ReportRows, rule: Rule, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows that abstain, with the candidates that are served for them; no inputs."""
    answers = rows.answers
    chosen = reports.choose_examples(answers, MOST_EXAMPLES)
    limits = rule.thresholds if isinstance(rule, ThresholdRule) else (math.inf,) * len(classes)
    probabilities = recalibrated(asdict(rule).get("recalibration"), answers.scores[chosen])
    found = []
    for row, chances in zip(chosen.tolist(), probabilities, strict=True):
        label, scores, named = answers.labels[row], answers.scores[row], answers.named[row]
        ranked = sorted(np.flatnonzero(named).tolist(), key=lambda j: -chances[j])
        found.append(
            {
                "row": row,
                "label": classes[label],
                "reason": "ambiguous" if answers.sets[row].any() else "empty",
                "candidates": [(classes[j], _score(scores[j], limits[j])) for j in ranked],
                "missing": not named[label],
            }
        )
    return found


def _score(score: float, limit: float) -> str:
    if not math.isfinite(limit):
        return number(score)
    sign = "\u2265" if score >= limit else "<"
    return f"{number(score)} {sign} {number(limit)}"


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
    except Exception as error:  # whatever it is, the page says it
        return {REPORT: undrawn(report.facts.verdict, error)}, {}


def undrawn(verdict: str, error: Exception) -> str:
    """Return a page that says no more than the verdict, and why."""
    text = f"{verdict} The rest of this report could not be drawn: {error!r}"
    return f"<!doctype html>\n<p>{html.escape(text)}</p>\n"


def draw(report: Report) -> dict[str, Figure]:
    """Return the figures of a report by the paths under which a run keeps them."""
    from scrib_mlflow.report import figures  # noqa: PLC0415  # loads matplotlib

    facts = report.facts
    drawn = {CLASSES: figures.class_figure(facts.asked, title=f"{report.title}, {facts.which}")}
    if report.rows is None:
        return drawn
    answers = report.rows.answers
    drawn[CONFUSION] = figures.confusion_figure(reports.confusion_counts(answers), facts.asked)
    drawn[SETS] = figures.sets_figure(report.rows.set_counts, facts.report.classes)
    valid = reports.valid_rows(answers)
    if valid.any():
        scored = answers.scores[valid], answers.labels[valid]
        drawn[_limits(report.rule)] = figures.rule_figure(report.rule, *scored, facts.asked)
        point = reports.own_point(answers)
        drawn[COVERAGE] = figures.coverage_figure(
            reports.risk_coverage(answers), point, "this set classifier"
        )
    return drawn


def _limits(rule: Rule) -> str:
    return "figures/values.png" if isinstance(rule, OptimalRule) else "figures/thresholds.png"


def render(report: Report, drawn: Mapping[str, Figure]) -> str:
    """Return the page, with some of the figures that were drawn for it."""
    from scrib_mlflow.report import figures  # noqa: PLC0415  # loads matplotlib

    facts, rows = report.facts, report.rows
    shown = figures.shown_classes(facts.asked)
    known = [row for row in facts.table.rows if row.n_certain]
    ends = [x for row in known for x in (row.risk, row.bound, row.target) if not math.isnan(x)]
    scale = max([*ends, 1e-9])
    histograms, curve = drawn.get(_limits(report.rule)), drawn.get(COVERAGE)
    values: dict[str, Any] = {
        "optimal": isinstance(report.rule, OptimalRule),
        "top": getattr(report.rule, "answers", "any") == "top",
        "shown": shown,
        "folded": [name for name in facts.report.classes if name not in set(shown)],
        "by_name": {row.name: row for row in facts.table.classes},
        "place": lambda value: round(100 * min(value / scale, 1), 2),
        "outcomes": outcomes(facts.report, None if rows is None else rows.answers),
        "legend": WORDS,
        "empty_weight": float(dict(report.parameters).get("empty_weight", math.inf)),
        "most": MOST_MEMBERS,
        "histograms": histograms
        and figures.inline_svg(histograms, "histograms", "scores of each class, and its limit"),
        "curve": curve
        and figures.inline_svg(
            curve, "curve", "risk of top-1 against the share of rows that it answers"
        ),
    }
    if rows is not None:
        names, answers, counts = figures.fold_confusion(
            reports.confusion_counts(rows.answers), facts.asked
        )
        values |= {
            "n_invalid": int(np.count_nonzero(~reports.valid_rows(rows.answers))),
            "sets": sets(rows.set_counts),
            "n_rows": sum(each.n for each in rows.set_counts),
            "answers": answers,
            "confusion": dict(zip(names, counts.tolist(), strict=True)),
            "examples": examples(rows, report.rule, facts.report.classes),
            "point": reports.own_point(rows.answers),
        }
    return write(
        "report.html.jinja",
        title=report.title,
        stamp=facts.stamp,
        tone=facts.tone,
        verdict=facts.verdict,
        sentences=facts.provisos + facts.reasons + report.sentences,
        made_from=report.made_from,
        parameters=report.parameters,
        report=report,
        facts=facts,
        **values,
    )


def write(template: str, **values: Any) -> str:
    """Return a page of a template that fills the frame; everything in it is escaped."""
    environment = words.environment(autoescape=True, finalize=words.finalized)
    return f"{environment.get_template(template).render(versions=package_versions(), **values)}\n"


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
    rows = rows if parts.selected is None else parts.selected.shown
    table = tables.data if parts.certify is None or tables.certify is None else tables.certify
    shown = rows.sample(shown_rows(len(record.classes)), by_class=False)
    named = name_classes(record.rule, shown.scores)
    pool = None
    if parts.selected is not None:
        some = parts.selected.open_rows.sample(shown_rows(len(record.classes)), by_class=False)
        pool = make_sets(record.rule, some.scores)
    made = _page_rows(shown, make_sets(record.rule, shown.scores), named, table)
    return Report(
        title=f"calibrate: {name}",
        facts=words.calibration_facts(record),
        sentences=tuple(words.say_each("words.sampled", sample=shown, n_rows=rows.n_rows)),
        rule=record.rule,
        rows=replace(made, pool=pool),
        made_from=made_from(record, {}, run_id, parameters),
        parameters=listed_parameters(parameters),
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
    verdict, *provisos = words.verdict_sentences(record)
    claimed = " ".join([verdict, *provisos]) if record.certified else verdict
    sentences = words.say_each("words.registered", checks=facts.checks, claimed=claimed)
    shown, made = None, {"set classifier": uri}
    if rows is not None:
        table, answered = rows
        sample, sets, named = answered.sample(shown_rows(len(record.classes)))
        sentences += words.say_each("words.sampled", sample=sample, n_rows=answered.n_rows)
        shown = _page_rows(sample, sets, named, table)
        made["data"] = _used_rows(table.record)
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
        made_from=made_from(record, made, run_id, parameters),
        parameters=listed_parameters(parameters),
    )


def _page_rows(
    shown: Sample, sets: NDArray[np.bool_], named: NDArray[np.bool_], table: TableLike
) -> ReportRows:
    return ReportRows(
        answers=Answers(shown.scores, shown.labels, sets, named),
        table=table.record.source,
        places=shown.places,
        keys=shown.keys,
    )


def made_from(
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
        "classifier": f"{named} ({base.uri or 'no model in MLflow, so nothing is served'})",
        **{name: _used_rows(data) for name, data in parts.items() if data is not None},
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


def _used_rows(data: DataRecord) -> str:
    used = f"{data.n_used:,} of {data.n_rows:,} rows"
    return f"{messages.shown(data.source)}, {used}, digest {data.digest}"


def listed_parameters(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return options as a page shows them: what is set, without secrets."""
    return tuple(
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in messages.shown_options(parameters).items()
        if value is not None
    )
