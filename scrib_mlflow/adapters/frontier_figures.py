"""Figures of a frontier: values in, a figure out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from scrib_mlflow.adapters.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MOST_CLASSES,
    ORANGE,
    plain,
    short,
)
from scrib_mlflow.adapters.frontier_classes import effects, saving
from scrib_mlflow.core.frontier import FrontierPoint, TargetFrontier

TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # of targets, in percent
MOST_SWEPT = 12  # classes in a figure
LONGEST = 22  # characters of a name above a panel


def frontier_figure(found: TargetFrontier, name: str) -> Figure:
    """Return abstention against target, all targets moving together."""
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    axes = figure.subplots()
    targets = [100 * point.target for point in found.joint]
    held = [100 * point.held_out.abstention_rate for point in found.joint]
    bands = np.array([point.held_out.abstention_band for point in found.joint]) * 100
    axes.fill_between(targets, bands[:, 0], bands[:, 1], color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(targets, held, color=BLUE, marker="o", markersize=3, label="held-out rows, with band")
    fitted = [100 * point.fitted.abstention_rate for point in found.joint]
    axes.plot(targets, fitted, "--", color=BLACK, linewidth=1, label="rows of the fit")
    certified = certifiable_curve(found)
    if certified:
        x, y = zip(*certified, strict=True)
        axes.step(
            [*x, max(targets[-1], x[-1])],
            [*y, y[-1]],
            where="post",
            color=ORANGE,
            linewidth=2,
            label="predicted to be certifiable",
        )
    first = min(certified[0][0] if certified else targets[-1], targets[-1])
    if first > targets[0]:
        axes.axvspan(targets[0], first, color=GREY, alpha=0.25, linewidth=0)
        axes.annotate(
            "not predicted to\nbe certifiable",
            (math.sqrt(targets[0] * first), 2),
            ha="center",
            va="bottom",
            fontsize=8,
        )
    _mark(axes, 100 * found.reference, "chosen target")
    _scale(axes, targets)
    axes.set_ylim(0, 100)
    axes.set_xlabel(_target_label(found), fontsize=9)
    axes.set_ylabel("rows that abstain, %", fontsize=9)
    axes.grid(axis="y", color=GREY, linewidth=0.5, alpha=0.6)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(_title(found, name), fontsize=11)
    return figure


def certifiable_curve(found: TargetFrontier) -> list[tuple[float, float]]:
    """Return (target, abstention) in percent: what certifying a target costs, least first."""
    able = sorted(
        (100 * point.certifiable_target, 100 * point.held_out.abstention_rate)
        for point in found.joint
        if not math.isnan(point.certifiable_target)
    )
    curve: list[tuple[float, float]] = []
    for target, abstention in able:
        if not curve or abstention < curve[-1][1]:
            curve.append((target, abstention))
    return curve


def class_figure(found: TargetFrontier, name: str) -> Figure:
    """Return how often the rows of each class abstain, all targets moving together."""
    now = found.chosen.held_out.by_class
    names = list(found.classes)
    if len(names) > MOST_CLASSES:
        names = sorted(names, key=lambda each: now[each].abstention_rate, reverse=True)
        names = names[:MOST_CLASSES]
    figure, panels = _panels(len(names))
    targets = [100 * point.target for point in found.joint]
    everything = [100 * point.held_out.abstention_rate for point in found.joint]
    for axes, each in zip(panels, names, strict=True):
        rates = [point.held_out.by_class[each] for point in found.joint]
        low = [100 * rate.abstention_band[0] for rate in rates]
        high = [100 * rate.abstention_band[1] for rate in rates]
        axes.fill_between(targets, low, high, color=ORANGE, alpha=0.25, linewidth=0)
        own = [100 * rate.abstention_rate for rate in rates]
        axes.plot(targets, own, color=ORANGE, label="rows of the class, with band")
        axes.plot(targets, everything, color=BLUE, linewidth=1, label="all rows")
        _mark(axes, 100 * found.reference, "chosen target")
        axes.set_title(short(each, LONGEST), fontsize=9)
        _scale(axes, targets)
    kept = "" if len(names) == len(found.classes) else f", the {len(names)} that abstain most"
    _finish(
        figure,
        _target_label(found),
        "held-out rows that abstain, %",
        f"{short(name)}: abstention by class{kept}",
    )
    return figure


def sweep_figure(found: TargetFrontier, name: str) -> Figure | None:
    """Return what the target of one class at a time costs; None where no class has a target."""
    listed = effects(found)[:MOST_SWEPT]
    if not listed:
        return None
    figure, panels = _panels(len(listed))
    for axes, effect in zip(panels, listed, strict=True):
        points = found.of(effect.name)
        targets = [100 * point.target for point in points]
        bands = np.array([point.held_out.abstention_band for point in points]) * 100
        axes.fill_between(targets, bands[:, 0], bands[:, 1], color=BLUE, alpha=0.2, linewidth=0)
        _line(axes, targets, points, None, BLUE, "all rows, with band")
        _line(axes, targets, points, effect.name, ORANGE, "rows of the class")
        _mark(axes, 100 * effect.target, "chosen target")
        axes.set_title(f"{short(effect.name, LONGEST)}\n{saving(effect)}", fontsize=8)
        _scale(axes, targets)
    kept = ""
    if len(listed) < len(found.targets):
        kept = f", {len(listed)} of {len(found.targets)} classes"
    _finish(
        figure,
        "target of this class alone, the others as chosen, %",
        "held-out rows that abstain, %",
        f"{short(name)}: one class at a time{kept}",
    )
    return figure


def _line(
    axes: Axes,
    targets: Sequence[float],
    points: Sequence[FrontierPoint],
    name: str | None,
    colour: str,
    word: str,
) -> None:
    parts = [point.held_out for point in points]
    rates = [
        part.abstention_rate if name is None else part.by_class[name].abstention_rate
        for part in parts
    ]
    axes.plot(targets, [100 * rate for rate in rates], color=colour, label=word)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many small panels, which share their scale upwards."""
    across = 3 if count in {5, 6, 9} else min(4, count)
    down = math.ceil(count / across)
    figure = Figure(figsize=(2.4 * max(across, 2) + 0.6, 1.9 * down + 1.2), layout="constrained")
    return figure, [figure.add_subplot(down, across, j + 1) for j in range(count)]


def _finish(figure: Figure, across: str, up: str, title: str) -> None:
    highest = max(axes.dataLim.y1 for axes in figure.axes)
    for axes in figure.axes:
        axes.set_ylim(0, min(10 * math.ceil(highest / 10 + 0.2), 100))
    figure.supylabel(up, fontsize=9)
    figure.suptitle(title, fontsize=11)
    handles, words = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        words,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
        title=across,
        title_fontsize=9,
    )


def _mark(axes: Axes, target: float, word: str) -> None:
    axes.axvline(target, color=GREEN, linewidth=1.2, linestyle=":", label=word)


def _scale(axes: Axes, targets: Sequence[float]) -> None:
    """Draw targets in even proportions, with plain numbers."""
    axes.set_xscale("log")
    axes.set_xlim(targets[0], targets[-1])
    shown = [tick for tick in TICKS if targets[0] <= tick <= targets[-1]]
    axes.set_xticks(shown or [targets[0], targets[-1]])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain(axes)


def _target_label(found: TargetFrontier) -> str:
    others = any(target != found.reference for target in found.targets.values())
    if others or (found.overall_target is not None and found.targets):
        return "target of most classes, the others in proportion, %"
    return "target of every class, %"


def _title(found: TargetFrontier, name: str) -> str:
    groups = "" if found.n_groups is None else f" in {found.n_groups:,} groups"
    rows = found.n_fitted + found.n_held_out
    return f"{short(name)}: which targets can be afforded, by {rows:,} rows{groups}"
