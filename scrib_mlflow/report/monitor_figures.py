"""Figures of a monitor: rates and evidence, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scrib_mlflow.core.monitoring import Monitor, alarm_at
from scrib_mlflow.core.monitoring.monitor import What
from scrib_mlflow.report import figures
from scrib_mlflow.report.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION
from scrib_mlflow.report.measured import (
    BAND,
    FEATURES,
    Rate,
    candidates,
    factor,
    rates,
    risks,
)

MOST_LINES = 12  # of evidence in a figure
MOST_PANELS = 12  # of rates in a figure
MARKED = 40  # batches up to which each is marked
HEIGHT, LINE = 1.6, 0.14  # inches of a figure of evidence, and of a name beside it
DECADES = 4  # above the alarm that a figure of evidence shows
STYLES = [
    (colour, dash)
    for dash in ("-", (0, (4, 2)))
    for colour in (BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY)
]
Line = tuple[str, Sequence[float]]  # what evidence is about, and its logarithm by batch


def rates_figure(monitor: Monitor) -> Figure | None:
    """Return the rates of each batch, and the band in which most would lie without a change."""
    records = [record for record in monitor.history if record.n_rows]
    if not records:
        return None
    by_batch = [rates(monitor, record) for record in records]
    k = len(monitor.classes)
    series = [*zip(*(features for features, _ in by_batch), strict=True)]
    series += [*zip(*(kinds[:k] for _, kinds in by_batch), strict=True)]
    headings = [*FEATURES, *(f"answer {figures.short(name, 20)}" for name in monitor.classes)]
    seen = [j for j, each in enumerate(series) if any(r.n or r.before > 0 for r in each)]
    fixed = [j for j in seen if j < len(FEATURES)]
    others = sorted((j for j in seen if j >= len(FEATURES)), key=lambda j: -series[j][-1].change)
    chosen = fixed + sorted(others[: MOST_PANELS - len(fixed)])
    across = min(4, len(chosen))
    n_answers = len(chosen) - len(fixed)
    some = f"; the {n_answers} answers that changed most" if n_answers < len(others) else ""
    title = f"share of the rows of each batch, %{some}"
    figure, every = figures.panels(
        len(chosen), across, (10, 1.9 if len(chosen) > across else 2.6), title
    )
    numbers = [record.number for record in records]
    for axes, j in zip(every, chosen, strict=True):
        _rate_panel(axes, numbers, series[j])
        axes.set_title(headings[j], fontsize=9)
        _batches(axes, monitor)
    figures.legend(figure, every, fontsize=8)
    return figure


def _rate_panel(axes: Axes, numbers: Sequence[int], rates_of: Sequence[Rate]) -> None:
    mark = "o" if len(numbers) <= MARKED else ""
    before, low, high = (
        [100 * getattr(rate, name) for rate in rates_of] for name in ("before", "low", "high")
    )
    if not math.isnan(before[0]):
        axes.axhline(before[0], color=GREY, linewidth=1, label="at calibration")
    if not math.isnan(low[0]):
        words = f"usual range: {BAND:.0%} of such batches".replace("%", " %")
        if len(numbers) == 1:
            axes.vlines(numbers, low, high, color=GREY, alpha=0.5, linewidth=12, label=words)
        else:
            axes.fill_between(numbers, low, high, color=GREY, alpha=0.35, linewidth=0, label=words)
    shares = [100 * rate.share for rate in rates_of]
    axes.plot(numbers, shares, color=BLUE, linewidth=1.2, marker=mark, markersize=3, label="batch")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0))


def _batches(axes: Axes, monitor: Monitor) -> None:
    """Draw batches across, with whole numbers."""
    first, last = monitor.history[0].number, monitor.history[-1].number
    room = 0.5 if last == first else 0.02 * (last - first)
    axes.set_xlim(first - room, last + room)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if last == first:
        axes.set_xticks([first])
    figures.plain(axes)


def drift_figure(monitor: Monitor) -> Figure | None:
    """Return the evidence of drift after each batch."""
    lines: list[Line] = []
    limits: dict[str, float] = {}
    if monitor.scores.batches[0]:
        lines.append(("scores", [record.scores for record in monitor.history]))
        limits["scores"] = alarm_at(monitor, "scores")
    if monitor.sets.batches[0]:
        lines.append(("answers and sets", [record.sets for record in monitor.history]))
        limits["answers and sets"] = alarm_at(monitor, "sets")
    if len(values := {*limits.values()}) == 1:
        limits = {"": values.pop()}
    return _evidence_figure(monitor, lines, limits, "evidence that rows come from elsewhere")


def evidence_figure(monitor: Monitor, what: What, title: str) -> Figure | None:
    """Return the evidence of each claim, or of each class's candidates, after each batch."""
    watched = risks(monitor) if what == "risk" else candidates(monitor)
    shown = [j for j, row in enumerate(watched) if row.n]
    if len(shown) > MOST_LINES:
        title += f", the {MOST_LINES} of {len(shown)} with the most"
        shown = sorted(shown, key=lambda j: watched[j].urgency)[:MOST_LINES]
    lines: list[Line] = [
        (watched[j].name, [getattr(record, what)[j] for record in monitor.history]) for j in shown
    ]
    return _evidence_figure(monitor, lines, {"": alarm_at(monitor, what)}, title)


def _evidence_figure(
    monitor: Monitor, lines: Sequence[Line], limits: Mapping[str, float], title: str
) -> Figure | None:
    """Return a line for each name, with its last value beside it; those too high leave the top."""
    if not lines:
        return None
    alarms = {name: math.log10(limit) for name, limit in limits.items()}
    highest = max(alarms.values())
    figure, axes = figures.new_figure((10, HEIGHT + 0.8 + LINE * len(lines)), title)
    values = [value for _, line in lines for value in line]
    low, high = min(values) - 0.2, min(max([*values, highest]) + 0.4, highest + DECADES)
    numbers = [record.number for record in monitor.history]
    mark = "o" if len(numbers) <= MARKED else ""
    for (_, line), (colour, dash) in zip(lines, STYLES, strict=False):
        axes.plot(numbers, line, color=colour, linestyle=dash, marker=mark, markersize=3)
    for name, alarm in alarms.items():
        axes.axhline(alarm, color=BLACK, linewidth=1.2, linestyle=":")
        axes.annotate(
            f"alarm{f' of {name}' * bool(name)} at {factor(alarm)}",
            (0, alarm),
            (2, 2),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
            va="bottom",
        )
    axes.set_ylim(low, high)
    _batches(axes, monitor)
    axes.set_xlabel(_span(monitor))
    axes.yaxis.set_major_formatter(lambda value, _: factor(value))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    _label_ends(axes, lines, low, high)
    return figure


def _label_ends(axes: Axes, lines: Sequence[Line], low: float, high: float) -> None:
    """Write each name and its last value beside the end of its line, none over another."""
    ends = [min(max((line[-1] - low) / (high - low), 0), 1) for _, line in lines]
    apart = min(LINE / (HEIGHT + LINE * len(lines)), 1 / max(len(lines) - 1, 1))
    order = sorted(range(len(ends)), key=ends.__getitem__)
    places, lowest = dict(enumerate(ends)), 0.0
    for j in order:
        places[j] = lowest = max(ends[j], lowest)
        lowest += apart
    highest = 1.0
    for j in reversed(order):
        places[j] = min(places[j], highest)
        highest = places[j] - apart
    for j, (name, line) in enumerate(lines):
        colour, dash = STYLES[j]
        axes.annotate(
            f"{figures.short(name)} {factor(line[-1])}",
            (1, ends[j]),
            (1.03, places[j]),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=8,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linestyle": dash,
                "linewidth": 1,
                "relpos": (0, 0.5),
            },
        )


def _span(monitor: Monitor) -> str:
    """Return what is across: batches, and when they were."""
    first, last = monitor.history[0], monitor.history[-1]
    return f"batch {first.number}: {first.time}" + (
        f"   \u2026   batch {last.number}: {last.time}" if last.number > first.number else ""
    )
