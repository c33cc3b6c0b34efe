"""A comparison of methods in a table, words and figures."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.studies import Comparison, Curve
from scrib_mlflow.core.studies.baselines import LABEL, OPTIMAL, SCRIB, SGR, SHARED, TOP
from scrib_mlflow.core.studies.compare import METRICS
from scrib_mlflow.core.studies.curves import DELTA
from scrib_mlflow.messages import percent
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import Summary, TextTable
from scrib_mlflow.report.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION
from scrib_mlflow.report.words import say, say_each, visible

RATES = {
    "abstains": "abstention_rate",
    "worst excess": "worst_excess",
    "mean excess": "mean_excess",
    "overall risk": "overall_risk",
}
HEADER = ("method", *RATES, "set size", "silent", "time")
AREA = "AUC"  # where curves were drawn
OURS = (SCRIB, OPTIMAL)
LEAST_VIOLIN = 5  # trials; fewer are drawn as points
MARKS = "osD^v<>P"
WIDEST, MOST_LINES = 14, 3  # characters of a method's name in a line, and lines
TITLE = 60  # characters of a model's name
MOST_CLASSES = 6  # in the figure of class risks
COLOURS = {SCRIB: BLUE, OPTIMAL: GREEN, SHARED: PURPLE, SGR: ORANGE}
OTHERS = (VERMILION, BLACK, GREY)  # of SGR on trust
STYLES = {SCRIB: "-", OPTIMAL: "--", SHARED: ":", SGR: "-."}
ACROSS = np.linspace(0, 1, 401)  # ambiguities at which curves of several splits are averaged
LONGEST = 80  # characters of a title


def method_rows(result: Comparison) -> list[tuple[str, ...]]:
    """Return a header and a row a method, of means over the repeats."""
    rows: list[tuple[str, ...]] = [(*HEADER, AREA) if result.curves else HEADER]
    for method in result.methods:
        means = result.means(method)
        area = means.get("auc", NAN)
        rows.append(
            (
                method,
                *(percent(means[name]) for name in RATES.values()),
                f"{means['size_ambiguity']:.2f}",
                f"{means['n_silent']:.1f}",
                f"{means['fit_seconds_ratio']:.2g}",
                *(["-" if math.isnan(area) else f"{100 * area:.2f}"] if result.curves else []),
            )
        )
    return rows


def trial_rows(result: Comparison) -> list[dict[str, float | str]]:
    """Return a row a trial."""
    return [
        {
            "method": trial.method,
            "repeat": trial.repeat,
            **{name: getattr(trial, name) for name in METRICS},
        }
        for trial in result.trials
    ]


def legend(result: Comparison) -> list[str]:
    """Return what the columns of the table mean."""
    return say_each("comparison.legend", result=result)


def summary(result: Comparison, uri: str, unread: str, where: str) -> Summary:
    """Return what is printed and noted of a comparison."""
    return Summary(
        verdict=say("comparison.verdict", result=result, ours=OURS),
        sentences=(f"{uri} on {split_sentence(result)}",),
        tables=(TextTable(rows=tuple(method_rows(result))),),
        legend=(*legend(result), "", *target_sentences(result), *curve_sentences(result)),
        notes=(unread,),
        where=where,
    )


def split_sentence(result: Comparison) -> str:
    """Return in a sentence on what the methods were fitted and measured."""
    return say("comparison.split", result=result)


def target_sentences(result: Comparison) -> list[str]:
    """Return what SGR was asked for, and which methods are missing."""
    return say_each("comparison.targets", result=result)


def excess_figure(result: Comparison, name: str) -> Figure:
    """Return how far each method's class risks are above their targets, by repeat."""
    above = "risk above target, %\n"
    words = {"worst_excess": f"{above}worst class", "mean_excess": f"{above}mean of the classes"}
    return _spread_figure(result, name, words, 6.4)


def abstention_figure(result: Comparison, name: str) -> Figure:
    """Return how often each method abstains, by repeat."""
    return _spread_figure(result, name, {"abstention_rate": "rows that abstain, %"}, 3.8)


def _spread_figure(result: Comparison, name: str, metrics: dict[str, str], height: float) -> Figure:
    """Return how metrics spread by method, one above the other."""
    size = 1.6 + 1.1 * len(result.methods), height
    options = {"sharex": True, "squeeze": False}
    figure, every = figures.new_figure(size, _title(result, name), len(metrics), 1, **options)
    for axes, (metric, words) in zip(every[:, 0], metrics.items(), strict=True):
        _violins(axes, result.methods, [_values(result, each, metric) for each in result.methods])
        names = [
            textwrap.fill(visible(each), WIDEST, max_lines=MOST_LINES, placeholder="\u2026")
            for each in result.methods
        ]
        axes.set_xticks(np.arange(len(names)), [figures.literal(each) for each in names])
        axes.set_ylabel(words)
    return figure


def risk_figure(result: Comparison, name: str) -> Figure:
    """Return the risk of each class by method and repeat, beside its target."""
    shown = _shown(result)
    across = min(3, len(shown))
    down = math.ceil(len(shown) / across)
    size = 1 + across * (1.2 + 0.4 * len(result.methods)), 2.6 + 1.2 / down
    folded = len(result.targets) - len(shown)
    rest = f"\nthe {len(shown)} classes most above their target; {folded} more" if folded else ""
    title = f"{_title(result, name)}\nrisks by class; dashes: target, bars: mean{rest}"
    figure, every = figures.panels(len(shown), across, size, title)
    names = [figures.short(method) for method in result.methods]
    for axes, each in zip(every, shown, strict=True):
        axes.axhline(100 * result.targets[each], color=BLACK, linewidth=1.2, linestyle="--")
        risks = [[trial.risk.get(each, NAN) for trial in result.of(m)] for m in result.methods]
        spreads = [[100 * risk for risk in some if not math.isnan(risk)] for some in risks]
        _violins(axes, result.methods, spreads)
        for place, spread in enumerate(spreads):
            if len(spread) < result.repeats:
                words = f"silent\n{result.repeats - len(spread)} of {result.repeats}"
                above = axes.get_xaxis_transform()
                axes.text(place, 1.02, words, transform=above, ha="center", va="bottom", fontsize=7)
        axes.set_xticks(np.arange(len(names)), names, rotation=40, ha="right", fontsize=8)
        axes.set_title(figures.short(each), fontsize=10, loc="left", pad=22, fontweight="bold")
    figure.supylabel("wrong among the certain rows of the class, %", fontsize=9)
    return figure


def tradeoff_figure(result: Comparison, name: str) -> Figure:
    """Return abstention against worst excess: a mark a method, lines to its extremes."""
    figure, axes = figures.new_figure((8, 4.6), _title(result, name))
    for method, mark in zip(result.methods, itertools.cycle(MARKS), strict=False):
        across = _values(result, method, "abstention_rate")
        up = _values(result, method, "worst_excess")
        x, y = float(np.mean(across)), float(np.mean(up))
        look: dict[str, Any] = {"mec": BLACK, "markersize": 8, "clip_on": False, "zorder": 3}
        axes.plot(x, y, mark, color=_colour(method), label=figures.short(method), **look)
        axes.hlines(y, min(across), max(across), color=_colour(method), linewidth=1)
        axes.vlines(x, min(up), max(up), color=_colour(method), linewidth=1)
    axes.set(xlabel="rows that abstain, %", ylabel="risk above target, %\nworst class")
    axes.set_ylim(bottom=0)
    figures.plain(axes)
    lines = "marks: means\nlines: from the lowest to\nthe highest of the splits"
    figure.legend(loc="outside right center", frameon=False, title=lines, title_fontsize=8)
    return figure


def _title(result: Comparison, name: str) -> str:
    splits = f"{result.repeats} random split{'s' * (result.repeats > 1)}"
    return f"{figures.short(name, TITLE)}, {result.n_rows:,} fit rows, {splits} into halves"


def _violins(axes: Axes, methods: Sequence[str], spreads: Sequence[Sequence[float]]) -> None:
    """Draw a violin a method and its mean, or its points where they are few."""
    for place, (method, values) in enumerate(zip(methods, spreads, strict=True)):
        colour = _colour(method)
        if len(values) < LEAST_VIOLIN:
            axes.plot([place] * len(values), values, "o", color=colour, markersize=5)
        else:
            drawn: Any = axes.violinplot(values, [place], widths=0.8, showextrema=False)
            for body in drawn["bodies"]:
                body.set(facecolor=colour, edgecolor=colour, alpha=0.6)
            axes.vlines(place, min(values), max(values), color=colour, linewidth=1)
        if values:
            axes.plot(place, np.mean(values), "_", color=BLACK, markersize=16, mew=2, clip_on=False)
    axes.set_ylim(bottom=0)
    figures.plain(axes)


def _shown(result: Comparison) -> list[str]:
    """Return the classes to draw: all, or of many those whose risk is most above its target."""
    above = {
        name: max(np.mean([t.excess[name] for t in result.of(each)]) for each in result.methods)
        for name in result.targets
    }
    worst = sorted(above, key=lambda name: -above[name])[:MOST_CLASSES]
    return [name for name in result.targets if name in worst]


def _values(result: Comparison, method: str, metric: str) -> Sequence[float]:
    """Return a rate of each trial, in percent."""
    return [100 * getattr(trial, metric) for trial in result.of(method)]


def _colour(method: str) -> str:
    return BLUE if method in OURS else ORANGE


def curve_sentences(result: Comparison) -> list[str]:
    """Return how curves are drawn, between which end points, and which methods have none."""
    longest = max(
        (curve.targets for drawn in result.curves for curve in drawn), key=len, default=()
    )
    values = {"delta": DELTA, "top": TOP, "label": LABEL}
    return say_each("comparison.curves", n_splits=len(result.curves), targets=longest, **values)


def curve_figure(result: Sequence[Sequence[Curve]], title: str) -> Figure:
    """Return accuracy against abstention, and the risk that came of each target, by method.

    `result` has the curves of each split. Lines are means over the splits, bands reach from the
    lowest to the highest.
    """
    splits = f"{len(result)} random split{'s' * (len(result) > 1)} into halves"
    marks = "squares: the same end points for all; dashes: as asked for"
    heading = f"{figures.short(title, LONGEST)}, {splits}\n{marks}"
    figure, (curves, risks) = figures.new_figure((11, 4.8), heading, 1, 2)
    every = [curve for drawn in result for curve in drawn]
    methods = list(dict.fromkeys(curve.method for curve in every))
    others = [method for method in methods if method not in COLOURS]
    for method in methods:
        drawn = [each for each in every if each.method == method and not np.isnan(each.auc)]
        colour = COLOURS.get(method) or OTHERS[others.index(method) % len(OTHERS)]
        style = STYLES.get(method, (0, (1, 2, 4, 2)))
        area = (
            f"AUC {100 * np.mean([each.auc for each in drawn]):.2f}" if drawn else "never certain"
        )
        look = {"color": colour, "linestyle": style, "label": f"{figures.short(method)}, {area}"}
        heights = [100 * np.interp(ACROSS, *each.points()) for each in drawn]
        _line(curves, 100 * ACROSS, heights, look)
        _line(risks, *_realised(drawn), look)
    start = 100 * (1 - np.mean([each.top_risk for each in every]))
    curves.plot([0, 100], [start, 100], "s", color=BLACK, markersize=6, clip_on=False, zorder=4)
    curves.annotate(TOP, (0, start), (8, -4), textcoords="offset points", fontsize=8)
    curves.set(xlabel="rows that abstain, %", ylabel="certain rows that are right, %")
    curves.set_xlim(0, 100)
    reach = max(risks.get_xlim()[1], 1)
    risks.plot([0, reach], [0, reach], color=BLACK, linewidth=1, dashes=(2, 2), zorder=1)
    risks.set(xlim=(0, reach), ylim=(0, None))
    risks.set(xlabel="overall risk asked for, %", ylabel="overall risk on the measured rows, %")
    for axes in (curves, risks):
        figures.plain(axes)
    figures.legend(figure, [curves], ncols=min(len(methods), 5), fontsize=9)
    return figure


def _realised(drawn: Sequence[Curve]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the targets in the reach of all splits, and the risk of each split there, in %.

    Each split has targets of its own; between two of them its risk is on the straight line.
    """
    if not drawn:
        return np.zeros(0), []
    low = max(curve.targets[0] for curve in drawn)
    high = min(curve.targets[-1] for curve in drawn)
    targets = np.unique([target for curve in drawn for target in curve.targets])
    targets = targets[(targets >= low) & (targets <= high)]
    return 100 * targets, [100 * np.interp(targets, curve.targets, curve.risk) for curve in drawn]


def _line(
    axes: Axes, across: NDArray[np.float64], ups: list[NDArray[np.float64]], look: dict[str, Any]
) -> None:
    """Draw the mean of lines, and a band around it where there are several."""
    if not ups:
        axes.plot([], [], **look)
        return
    axes.plot(across, np.mean(ups, axis=0), linewidth=1.6, zorder=3, **look)
    if len(ups) > 1:
        low, high = np.min(ups, axis=0), np.max(ups, axis=0)
        axes.fill_between(across, low, high, color=look["color"], alpha=0.12, linewidth=0)
