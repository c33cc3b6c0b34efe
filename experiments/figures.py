"""The pictures of the paper's experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.optimisers import OURS, OptimiserRun
from experiments.risks import UnequalRisks
from scrib_mlflow.core.studies.baselines import LABEL, OPTIMAL, SCRIB, SGR
from scrib_mlflow.report.figures import BLACK, BLUE, GREEN, GREY, ORANGE, plain, short

COLOURS = {SGR: GREY, LABEL: ORANGE, SCRIB: BLUE, OPTIMAL: GREEN}
OVERALL = "overall"
WIDEST = 12  # characters of a name that fit below its bars
TITLE = 60


def risk_bars(found: UnequalRisks) -> Figure:
    """Return the risk of every class and of all by method, targets marked, as in Figure 2."""
    names = [*found.targets, OVERALL]
    figure = Figure(figsize=(max(5.0, 1.1 * len(names)), 3.8), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(found.risks)
    for place, (method, risks) in enumerate(found.risks.items()):
        values = [*risks.values(), found.overall_risk[method]]
        at = np.arange(len(names)) + width * (place + 0.5) - 0.4
        heights = [0.0 if math.isnan(value) else 100 * value for value in values]
        axes.bar(at, heights, width, color=COLOURS[method], label=method)
        for across, value in zip(at, values, strict=True):
            if math.isnan(value):
                _say_silent(axes, across)
    for place, target in enumerate(found.targets.values()):
        word = "target" if place == 0 else ""
        axes.hlines(100 * target, place - 0.45, place + 0.45, color=BLACK, lw=1.5, label=word)
    aslant: dict[str, Any] = (
        {"rotation": 25, "ha": "right"} if max(map(len, names)) > WIDEST else {}
    )
    axes.set_xticks(np.arange(len(names)), [short(name) for name in names], **aslant)
    axes.set_ylabel("wrong among the certain rows, %")
    plain(axes)
    figure.suptitle(f"{short(found.data)}: risks under unequal targets", fontsize=11)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


def _say_silent(axes: Axes, across: float) -> None:
    """Write where a bar would stand that the class is never certain."""
    axes.annotate(
        "silent",
        (across, 0),
        (0, 3),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=7,
    )


def losses(found: Mapping[str, Sequence[OptimiserRun]]) -> Figure:
    """Return the final losses of optimisers, a row of points each, on a scale of powers of ten."""
    down = len(found)
    figure = Figure(figsize=(8, 0.9 + 1.9 * down), layout="constrained")
    all_axes = figure.subplots(down, 1, squeeze=False)[:, 0]
    for axes, (name, runs) in zip(all_axes, found.items(), strict=True):
        methods = list(dict.fromkeys(run.method for run in runs))
        for place, method in enumerate(methods):
            values = [run.loss for run in runs if run.method == method]
            colour = BLUE if method == OURS else ORANGE
            axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.6, markersize=5)
            axes.plot(np.median(values), place, "|", color=BLACK, markersize=14, mew=2)
        axes.set_xscale("log")
        axes.set_yticks(range(len(methods)), methods)
        axes.invert_yaxis()
        axes.set_title(short(name, TITLE), fontsize=9)
        plain(axes)
    all_axes[-1].set_xlabel("final loss of each random half; bars: medians")
    return figure
