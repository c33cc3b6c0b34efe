"""A comparison of methods in tables, words and figures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scrib_mlflow.adapters.figures import BLACK, BLUE, ORANGE, literal, plain
from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.compare import METRICS, Comparison
from scrib_mlflow.core.methods import OPTIMAL, SCRIB

HEADER = (
    "method",
    "abstains",
    "worst excess",
    "mean excess",
    "overall risk",
    "set size",
    "silent",
    "time",
)
OURS = (SCRIB, OPTIMAL)
LEAST_VIOLIN = 5  # trials; fewer are drawn as points
MARKS = "osD^v<>P"
WIDEST = 14  # characters of a method's name in a line


def method_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Return a header and a row a method, of means over the repeats."""
    rows: list[tuple[str, ...]] = [HEADER]
    for method in found.methods:
        means = found.means(method)
        rates = ("abstention_rate", "worst_excess", "mean_excess", "overall_risk")
        rows.append(
            (
                method,
                *(percent(means[name]) for name in rates),
                f"{means['size_ambiguity']:.2f}",
                f"{means['n_silent']:.1f}",
                f"{means['fit_seconds_ratio']:.2g}",
            )
        )
    return rows


def trial_rows(found: Comparison) -> list[dict[str, float | str]]:
    """Return a row a trial."""
    return [
        {
            "method": trial.method,
            "repeat": trial.repeat,
            **{name: getattr(trial, name) for name in METRICS},
        }
        for trial in found.trials
    ]


def legend() -> list[str]:
    """Return what the columns of the table mean."""
    return [
        "worst, mean excess  how far the risks of the classes are above their targets; a silent "
        "class counts as 0",
        "set size            mean number of classes in a set",
        "silent              classes with a target and no certain row, whose risk is undefined",
        "time                of the fit, in units of SCRIB's",
    ]


def split_sentence(found: Comparison) -> str:
    """Return in a sentence on what the methods were fitted and measured."""
    what = f"{found.n_rows:,} fit rows"
    if found.n_groups is not None:
        what += f" in {found.n_groups:,} groups, which stay whole"
    times = "once" if found.repeats == 1 else f"means over {found.repeats} random splits"
    return f"{what}: a random half to fit, the other to measure; {times}."


def target_sentences(found: Comparison) -> list[str]:
    """Return what SGR was asked for, and which methods are missing."""
    origin = "as asked for"
    if found.overall_target is None:
        origin = "the mean of the risk targets, weighted by the rows of the classes"
    return [
        f"SGR bounds the overall risk by {percent(found.sgr_target)}, {origin}; LABEL takes the "
        "risk targets for mis-coverages.",
        *(f"{name} is left out: {reason}." for name, reason in found.skipped.items()),
    ]


def excess_figure(found: Comparison, name: str) -> Figure:
    """Return how far each method's class risks are above their targets, by repeat."""
    figure = Figure(figsize=(1.6 + 1.1 * len(found.methods), 6.4), layout="constrained")
    words = {"worst_excess": "worst class", "mean_excess": "mean of the classes"}
    for axes, metric in zip(figure.subplots(2, 1, sharex=True), words, strict=True):
        _spread(axes, found, metric)
        axes.set_ylabel(f"risk above target, %\n{words[metric]}", fontsize=9)
    figure.suptitle(_title(found, name), fontsize=11)
    return figure


def abstention_figure(found: Comparison, name: str) -> Figure:
    """Return how often each method abstains, by repeat."""
    figure = Figure(figsize=(1.6 + 1.1 * len(found.methods), 3.8), layout="constrained")
    axes = figure.subplots()
    _spread(axes, found, "abstention_rate")
    axes.set_ylabel("rows that abstain, %", fontsize=9)
    figure.suptitle(_title(found, name), fontsize=11)
    return figure


def tradeoff_figure(found: Comparison, name: str) -> Figure:
    """Return abstention against worst excess: a mark a method, lines to its extremes."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for place, method in enumerate(found.methods):
        across = _values(found, method, "abstention_rate")
        up = _values(found, method, "worst_excess")
        x, y = float(np.mean(across)), float(np.mean(up))
        colour = _colour(method)
        mark = axes.plot(x, y, MARKS[place % len(MARKS)], color=colour, label=literal(method))[0]
        mark.set(markeredgecolor=BLACK, markersize=8, clip_on=False, zorder=3)
        axes.hlines(y, min(across), max(across), color=colour, linewidth=1)
        axes.vlines(x, min(up), max(up), color=colour, linewidth=1)
    axes.set_xlabel("rows that abstain, %", fontsize=9)
    axes.set_ylabel("risk above target, %\nworst class", fontsize=9)
    axes.set_ylim(bottom=0)
    plain(axes)
    lines = "marks: means\nlines: from the lowest to\nthe highest of the splits"
    figure.legend(loc="outside right center", frameon=False, title=lines, title_fontsize=8)
    figure.suptitle(_title(found, name), fontsize=11)
    return figure


def _title(found: Comparison, name: str) -> str:
    splits = f"{found.repeats} random split{'s' * (found.repeats > 1)}"
    return literal(f"{name}, {found.n_rows:,} fit rows, {splits} into halves")


def _spread(axes: Axes, found: Comparison, metric: str) -> None:
    """Draw a violin a method, or its points where they are few."""
    places = np.arange(len(found.methods))
    for place, method in zip(places, found.methods, strict=True):
        values, colour = _values(found, method, metric), _colour(method)
        if len(values) < LEAST_VIOLIN:
            axes.plot([place] * len(values), values, "o", color=colour, markersize=5)
        else:
            drawn: Any = axes.violinplot(values, [place], widths=0.8, showextrema=False)
            for body in drawn["bodies"]:
                body.set(facecolor=colour, edgecolor=colour, alpha=0.6)
            axes.vlines(place, min(values), max(values), color=colour, linewidth=1)
        axes.plot(place, np.mean(values), "_", color=BLACK, markersize=16, mew=2, clip_on=False)
    axes.set_xticks(places, [literal(textwrap.fill(each, WIDEST)) for each in found.methods])
    axes.set_ylim(bottom=0)
    plain(axes)


def _values(found: Comparison, method: str, metric: str) -> Sequence[float]:
    """Return a rate of each trial, in percent."""
    return [100 * getattr(trial, metric) for trial in found.of(method)]


def _colour(method: str) -> str:
    return BLUE if method in OURS else ORANGE
