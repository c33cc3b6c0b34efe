"""The pictures of the paper's experiments."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from scrib_mlflow.adapters.figures import BLACK, BLUE, GREY, ORANGE, literal, plain
from scrib_mlflow.core.compare import LABEL, OPTIMAL, SCRIB, SGR
from scrib_mlflow.paper.unequal import UnequalRisks

GREEN = "#009E73"
COLOURS = {SGR: GREY, LABEL: ORANGE, SCRIB: BLUE, OPTIMAL: GREEN}
OVERALL = "overall"


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
    for place, target in enumerate(found.targets.values()):
        word = "target" if place == 0 else ""
        axes.hlines(100 * target, place - 0.45, place + 0.45, color=BLACK, lw=1.5, label=word)
    axes.set_xticks(np.arange(len(names)), [literal(name) for name in names])
    axes.set_ylabel("wrong among the certain rows, %")
    plain(axes)
    figure.suptitle(literal(f"{found.data}: risks under unequal targets"), fontsize=11)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure
