"""Accuracy-ambiguity curves in words and in a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scrib_mlflow.adapters.figures import BLACK, BLUE, GREEN, GREY, ORANGE, plain, short
from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.compare import Comparison
from scrib_mlflow.core.curves import DELTA, Curve
from scrib_mlflow.core.methods import LABEL, OPTIMAL, SCRIB, SGR, SHARED, TOP

VERMILION, PURPLE = "#D55E00", "#CC79A7"
COLOURS = {SCRIB: BLUE, OPTIMAL: GREEN, SHARED: PURPLE, SGR: ORANGE}
OTHERS = (VERMILION, BLACK, GREY)  # of SGR on trust
STYLES = {SCRIB: "-", OPTIMAL: "--", SHARED: ":", SGR: "-."}
ACROSS = np.linspace(0, 1, 401)  # ambiguities at which curves of several splits are averaged
LONGEST = 80  # characters of a title


def curve_sentences(found: Comparison) -> list[str]:
    """Return how curves are drawn, between which end points, and which methods have none."""
    if not found.curves:
        return []
    targets = [curve.targets for drawn in found.curves for curve in drawn if curve.targets]
    if not targets:
        return ["No curve: the top class is never wrong on the rows that are fitted."]
    longest = max(targets, key=len)
    splits = (
        "the first split" if len(found.curves) == 1 else f"the first {len(found.curves)} splits"
    )
    return [
        f"AUC is of {splits}: overall risks of {percent(longest[0])} up to "
        f"{percent(longest[-1])}, about that of {TOP}, are asked for, and each gives a point. All "
        f"curves begin at the accuracy of {TOP}, without abstention, and end at accuracy 1, where "
        "every row abstains.",
        f"For its curve SGR may miss a target with probability {DELTA:g}, as in the paper. {LABEL} "
        "has no target of the overall risk, and so no curve.",
    ]


def curve_figure(found: Sequence[Sequence[Curve]], title: str) -> Figure:
    """Return accuracy against abstention, and the risk that came of each target, by method.

    `found` has the curves of each split. Lines are means over the splits, bands reach from the
    lowest to the highest.
    """
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    curves, risks = figure.subplots(1, 2)
    every = [curve for drawn in found for curve in drawn]
    methods = list(dict.fromkeys(curve.method for curve in every))
    others = [method for method in methods if method not in COLOURS]
    for method in methods:
        drawn = [each for each in every if each.method == method and not np.isnan(each.auc)]
        colour = COLOURS.get(method) or OTHERS[others.index(method) % len(OTHERS)]
        style = STYLES.get(method, (0, (1, 2, 4, 2)))
        area = (
            f"AUC {100 * np.mean([each.auc for each in drawn]):.2f}" if drawn else "never certain"
        )
        look = {"color": colour, "linestyle": style, "label": f"{short(method)}, {area}"}
        _line(curves, 100 * ACROSS, [_heights(each) for each in drawn], look)
        _line(risks, *_realised(drawn), look)
    start = 100 * (1 - np.mean([each.top_risk for each in every]))
    curves.plot([0, 100], [start, 100], "s", color=BLACK, markersize=6, clip_on=False, zorder=4)
    curves.annotate(f"{TOP}", (0, start), (8, -4), textcoords="offset points", fontsize=8)
    curves.set_xlabel("rows that abstain, %", fontsize=9)
    curves.set_ylabel("certain rows that are right, %", fontsize=9)
    curves.set_xlim(0, 100)
    reach = max(risks.get_xlim()[1], 1)
    risks.plot([0, reach], [0, reach], color=BLACK, linewidth=1, dashes=(2, 2), zorder=1)
    risks.set(xlim=(0, reach), ylim=(0, None))
    risks.set_xlabel("overall risk asked for, %", fontsize=9)
    risks.set_ylabel("overall risk on the measured rows, %", fontsize=9)
    for axes in (curves, risks):
        plain(axes)
    handles, words = curves.get_legend_handles_labels()
    figure.legend(
        handles,
        words,
        loc="outside lower center",
        ncols=min(len(words), 5),
        frameon=False,
        fontsize=9,
    )
    splits = f"{len(found)} random split{'s' * (len(found) > 1)} into halves"
    marks = "squares: the same end points for all; dashes: as asked for"
    figure.suptitle(f"{short(title, LONGEST)}, {splits}\n{marks}", fontsize=11)
    return figure


def _heights(curve: Curve) -> NDArray[np.float64]:
    return 100 * np.interp(ACROSS, *curve.points())


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
