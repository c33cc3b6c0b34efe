"""A monitor in words, tables and figures: whether a certificate still holds, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scrib_mlflow.core.monitoring import Monitor, alarm_at, explain_drift
from scrib_mlflow.core.monitoring.baseline import QUARTERS
from scrib_mlflow.core.monitoring.evidence import rows_to_notice
from scrib_mlflow.core.monitoring.monitor import What
from scrib_mlflow.messages import percent, percents, safe_names
from scrib_mlflow.report.facts import Summary, TextTable
from scrib_mlflow.report.measured import (
    FEATURES,
    Watched,
    candidates,
    count_features,
    factor,
    in_groups,
    last_answers,
    rates,
    risks,
    shown_kind,
)
from scrib_mlflow.report.page import undrawn, write
from scrib_mlflow.report.words import clipped, say, say_each, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = 10  # within which a risk twice its target is to be noticed
LEAST_P = 0.01  # of what class frequencies leave open; below, they do not explain it alone
MOST_CHANGES = 3  # of class frequencies, in a sentence
MOST_ROWS = 20  # of a table on the page; the others are folded
ORDER: tuple[What, ...] = ("risk", "candidates", "sets", "scores")  # of alarms in a sentence
CLAIM_HEADER = (
    *("risk of", "labelled", "wrong", "risk", "between", "target"),
    *("evidence", "alarm at", "status"),
)
FIGURES = {  # by the name of their file, and what they show
    "rates": "rates of each batch beside those at calibration",
    "drift": "evidence of drift after each batch",
    "risk_evidence": "evidence against each risk after each batch",
    "candidate_evidence": "evidence against the candidates of each class after each batch",
}

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A monitor after a batch, and what came of it."""

    monitor: Monitor
    model_uri: str
    source: str  # of the data
    repeated: int | None = None  # the number of the batch that this one equals: nothing counted
    labels_only: bool = False  # whether the rows were counted before, and only labels are new
    demoted: str = ""  # the version that the alias was moved back to


def monitoring_summary(seen: Seen, where: str) -> Summary:
    """Return what is printed and noted of a batch."""
    monitor = seen.monitor
    return Summary(
        verdict=verdict(monitor),
        sentences=tuple(sentences(seen)),
        tables=(rate_table(monitor), claim_table(monitor)),
        legend=tuple(say_each("monitoring.legend", monitor=monitor)),
        notes=tuple(
            say_each(
                "monitoring.counted",
                seen=seen,
                last=monitor.history[-1],
                limits=_limits(monitor),
                factor=factor,
            )
        ),
        where=where,
    )


def verdict(monitor: Monitor) -> str:
    """Return whether there is an alarm, since when and of what."""
    alarms = monitor.alarms
    first = min(alarms, key=lambda alarm: alarm.batch, default=None)
    by_what = {what: [each for each in alarms if each.what == what] for what in ORDER}
    more, less, other = _directions(monitor)
    return say(
        "monitoring.verdict",
        monitor=monitor,
        first=first,
        alarms={what: each for what, each in by_what.items() if each},
        targets=dict(zip(monitor.claims, monitor.targets, strict=True)),
        more=more,
        less=less,
        other=other,
    )


def sentences(seen: Seen) -> list[str]:
    """Return what the verdict means and what to do, a sentence each."""
    monitor = seen.monitor
    kinds = {alarm.what for alarm in monitor.alarms}
    drifted, labelled = bool(kinds & {"scores", "sets"}), sum(monitor.certain)
    answered = monitor.history[-1].n_answered_labelled
    said = say_each("monitoring.means", monitor=monitor, kinds=kinds, labelled=labelled)
    if drifted:
        said += drift_sentences(monitor, refuted="risk" in kinds)
    said += say_each("monitoring.unknown", last=monitor.history[-1], labelled=labelled)
    if "risk" not in kinds and (drifted or not answered) and seen.repeated is None:
        said += audit_sentences(monitor)
    return [*said, *say_each("monitoring.happened", seen=seen)]


def drift_sentences(monitor: Monitor, *, refuted: bool) -> list[str]:
    """Return whether other class frequencies alone would explain what has changed.

    `refuted` is whether labels have shown that a risk is too high.
    """
    mixture = explain_drift(monitor)
    changes: list[tuple[str, float, float]] = []
    if mixture is not None:
        counts = np.array(monitor.baseline.by_class).sum(axis=1)
        before = counts / counts.sum()
        known = [j for j, share in enumerate(mixture.frequencies) if not math.isnan(share)]
        known.sort(key=lambda j: -abs(mixture.frequencies[j] - before[j]))
        changes = [
            (monitor.classes[j], float(mixture.frequencies[j]), float(before[j]))
            for j in known[:MOST_CHANGES]
        ]
    return say_each(
        "monitoring.explained",
        refuted=refuted,
        monitor=monitor,
        mixture=mixture,
        least=LEAST_P,
        changes=changes,
        together=[
            name
            for name, members in zip(monitor.claims, monitor.members, strict=True)
            if len(members) > 1
        ],
    )


def audit_sentences(monitor: Monitor) -> list[str]:
    """Return how many answered rows to label, so that a high risk is noticed."""
    wanted = {name: n for name, n in audit_rows(monitor).items() if math.isfinite(n)}
    rarest = max(wanted, key=wanted.__getitem__, default="")
    rows = math.ceil(wanted.get(rarest, 0))
    values = {"rows": rows, "rarest": rarest, "batches": BATCHES, "n_claims": len(monitor.claims)}
    return say_each("monitoring.audit", grouped=in_groups(monitor), **values)


def audit_rows(monitor: Monitor, batches: int = BATCHES) -> dict[str, float]:
    """Return by claim how many answered rows of each batch to label.

    The evidence of a risk twice its target (of one above 1/3: halfway to 1) then reaches its alarm
    within so many batches, about. Infinite where the classes of a claim are never answered.
    """
    kinds = monitor.baseline.kinds if sum(monitor.baseline.kinds) else monitor.kinds
    answers = np.array(kinds[: len(monitor.classes)], dtype=np.float64)
    shares = answers / max(answers.sum(), 1.0)
    limit = alarm_at(monitor, "risk")
    found = {}
    claims = zip(monitor.claims, monitor.members, monitor.targets, strict=True)
    for name, members, target in claims:
        rows = rows_to_notice(target, min(2 * target, (1 + target) / 2), limit, batches)
        share = shares[list(members)].sum()
        found[name] = float(rows / share / batches) if share else math.inf
    return found


def metrics(monitor: Monitor) -> dict[str, float]:
    """Return the figures of the last batch; what is undefined or not observed is left out."""
    last = monitor.history[-1]
    values = {
        "n_rows": float(last.n_rows),
        "n_labelled": float(last.n_labelled),
        "alarm": float(bool(monitor.alarms)),
    }
    if last.n_rows:
        answered, ambiguous, empty, not_scored = (
            count_features(monitor, last.kinds)[0] / last.n_rows
        )
        values |= {"abstention_rate": 1 - answered, "ambiguous_rate": ambiguous}
        values |= {"empty_rate": empty, "not_scored_rate": not_scored}
    if monitor.scores.batches[0]:
        values["evidence_scores"] = last.scores
    if monitor.sets.batches[0]:
        values["evidence_sets"] = last.sets
    for each, safe in zip(risks(monitor), safe_names(monitor.claims), strict=True):
        if each.n:
            values[f"evidence_risk/{safe}"] = each.evidence
            values[f"risk/{safe}"] = each.rate
            values[f"risk_lower/{safe}"] = each.low
            values[f"risk_upper/{safe}"] = each.high
    for each, safe in zip(candidates(monitor), safe_names(monitor.classes), strict=True):
        if each.n:
            values[f"evidence_candidates/{safe}"] = each.evidence
            values[f"candidate_coverage/{safe}"] = 1 - each.rate
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def _directions(monitor: Monitor) -> tuple[list[str], list[str], list[str]]:
    """Return which kinds of rows with an alarm are more frequent, less frequent, or unknown.

    Rows since evidence of drift was low are compared with those of the baseline.
    """
    alarmed = [alarm.name for alarm in monitor.alarms if alarm.what == "sets"]
    since = np.array(monitor.cells).reshape(-1, QUARTERS).sum(axis=1)
    before = np.array(monitor.baseline.kinds)
    if not (since.sum() and before.sum()):
        return [], [], alarmed
    k = len(monitor.classes)
    grown = since / since.sum() - before / before.sum()
    changes = [*grown.tolist(), float(grown[k:].sum())]
    more, less = (
        [
            clipped(monitor.classes[kind]) if kind < k else shown_kind(monitor, kind)
            for kind in sorted(range(len(changes)), key=lambda kind: -abs(changes[kind]))
            if monitor.baseline.name(kind) in alarmed and (changes[kind] > 0) == up
        ]
        for up in (True, False)
    )
    return more, less, []


def _limits(monitor: Monitor) -> dict[str, str]:
    return {what: factor(math.log10(alarm_at(monitor, what))) for what in ORDER}


def amount(n: float) -> str:
    """Return a number of rows, which may be weighted."""
    return f"{n:,.0f}" if float(n).is_integer() else f"{n:,.1f}"


def between(low: float, high: float) -> str:
    """Return an interval, a dash where there is none."""
    return (
        "-" if math.isnan(low + high) else " to ".join(percents(low, high)).replace(" % to", " to")
    )


def rate_table(monitor: Monitor) -> TextTable:
    """Return the rates of the last batch with answers beside the baseline."""
    record = last_answers(monitor) or monitor.history[-1]
    features, kinds = rates(monitor, record)
    k = len(monitor.classes)
    listed = [features[0], *kinds[:k], *features[1:]]
    label = ["answered", *(f"  {visible(name)}" for name in monitor.classes), *FEATURES[1:]]
    head = f"batch {record.number}, {record.n_rows:,} rows"
    order = sorted(range(k), key=lambda j: -kinds[j].change)
    return TextTable(
        rows=(
            (head, "rows", "share", "at calibration", "usual range"),
            *(
                (name, f"{r.n:,}", percent(r.share), percent(r.before), between(r.low, r.high))
                for name, r in zip(label, listed, strict=True)
            ),
        ),
        order=tuple(1 + j for j in order),
        folded="The {n} of {all} classes whose share has changed most; report.html has all.",
    )


def claim_table(monitor: Monitor) -> TextTable:
    """Return what all labels so far say of each claim."""
    rows = risks(monitor)
    limit = _limits(monitor)["risk"]
    return TextTable(
        rows=(
            CLAIM_HEADER,
            *(
                (
                    visible(row.name),
                    amount(row.n),
                    amount(row.wrong),
                    percent(row.rate),
                    between(row.low, row.high),
                    percent(row.target),
                    factor(row.evidence),
                    limit,
                    row.status,
                )
                for row in rows
            ),
        ),
        order=tuple(sorted(range(len(rows)), key=lambda j: rows[j].urgency)),
        folded="The {n} of {all} risks with the most evidence against them; report.html has all.",
    )


def page(seen: Seen, made_from: Pairs, parameters: Pairs = ()) -> tuple[str, dict[str, Figure]]:
    """Return the page of a monitor, and its figures by path.

    What a picture cannot show must not undo an alarm: where anything fails, the page says so.
    """
    try:
        drawn = draw(seen)
        return render(seen, made_from, parameters, drawn), drawn
    except Exception as error:  # whatever it is, the page says it
        return undrawn(verdict(seen.monitor), error), {}


def draw(seen: Seen) -> dict[str, Figure]:
    """Return the figures by the paths under which a run keeps them."""
    from scrib_mlflow.report import monitor_figures as figures  # noqa: PLC0415  # loads matplotlib

    monitor = seen.monitor
    above = "evidence that a risk is above its target"
    rarely = "evidence that candidates hold the true class too rarely"
    drawn = {
        "rates": figures.rates_figure(monitor),
        "drift": figures.drift_figure(monitor),
        "risk_evidence": figures.evidence_figure(monitor, "risk", above),
        "candidate_evidence": figures.evidence_figure(monitor, "candidates", rarely),
    }
    return {path_of(name): figure for name, figure in drawn.items() if figure is not None}


def path_of(name: str) -> str:
    """Return the path under which a run keeps a figure."""
    return f"figures/{name}.png"


def render(seen: Seen, made_from: Pairs, parameters: Pairs, drawn: dict[str, Figure]) -> str:
    """Return the page, with the figures that were drawn for it."""
    from scrib_mlflow.report import figures  # noqa: PLC0415  # loads matplotlib

    monitor = seen.monitor
    record = last_answers(monitor) or monitor.history[-1]
    features, kinds = rates(monitor, record)
    asked = [row for row in candidates(monitor) if row.n]
    shown = {name: drawn.get(path_of(name)) for name in FIGURES}
    inline = {
        name: figures.inline_svg(figure, name, FIGURES[name])
        for name, figure in shown.items()
        if figure is not None
    }
    return write(
        "monitoring.html.jinja",
        title=f"monitor: {seen.model_uri}",
        stamp="alarm" if monitor.alarms else "ok",
        tone="bad" if monitor.alarms else "good",
        verdict=verdict(monitor),
        sentences=sentences(seen),
        made_from=(("set classifier", seen.model_uri), ("data", seen.source), *made_from),
        parameters=tuple(parameters),
        seen=seen,
        monitor=monitor,
        record=record,
        last=monitor.history[-1],
        features=features,
        kinds=sorted([rate for rate in kinds if rate.n or rate.before > 0], key=lambda r: -r.n),
        kind_place=_place([x for rate in kinds for x in (rate.share, rate.before, rate.high)]),
        feature_place=lambda value: round(100 * value, 2),
        risks=_worst_first(risks(monitor)),
        risk_place=_place([x for row in risks(monitor) for x in _ends(row)]),
        candidates=_worst_first(asked),
        miss_place=_place([x for row in asked for x in _ends(row)]),
        limits=_limits(monitor),
        most=MOST_ROWS,
        drawn=inline,
        amount=amount,
        between=between,
        factor=factor,
    )


def _ends(row: Watched) -> tuple[float, ...]:
    """Return what a bar of a risk should reach to; a wide interval may leave it."""
    return row.rate, 2 * row.target


def _worst_first(rows: list[Watched]) -> list[Watched]:
    """Return the rows in their order; of too many for a page, the most urgent first."""
    return rows if len(rows) <= MOST_ROWS else sorted(rows, key=lambda row: row.urgency)


def _place(values: Sequence[float]) -> Callable[[float], float]:
    """Return what makes of a rate a place on a scale, in percent of its length."""
    scale = min(max([1e-9, *(1.1 * value for value in values if not math.isnan(value))]), 1.0)
    return lambda value: round(100 * min(value / scale, 1), 2)
