"""Figures of answers: who is taken for whom, which sets occur, and what top-1 would risk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scrib_mlflow.adapters.figures import BLACK, BLUE, GREY, ORANGE, plain, short, shown_classes
from scrib_mlflow.core.answers import RiskCoverage, SetCount
from scrib_mlflow.core.evaluate import SetReport

MOST_SETS = 12
MOST_NAMES = 4  # of a set in a figure
NUMBERED = 12  # classes up to which there is room for counts


def confusion_figure(
    counts: NDArray[np.int64], report: SetReport, targets: Mapping[str, float]
) -> Figure:
    """Return which share of each class is answered how, abstentions last."""
    names, answers, table = fold_confusion(counts, report, targets)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    side = 1.6 + 0.42 * len(names)
    figure = Figure(figsize=(side + 2.2, side + 0.9), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.axvline(len(answers) - 1.5, color=BLACK, linewidth=1)
    axes.set_xticks(range(len(answers)), [short(name) for name in answers], rotation=90)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_xlabel("answer")
    axes.set_ylabel("true class")
    axes.tick_params(labelsize=8)
    if len(names) <= NUMBERED:
        for (i, j), n in np.ndenumerate(table):
            if n:
                ink = "white" if shares[i, j] > 0.5 else BLACK
                axes.text(j, i, f"{n:,}", ha="center", va="center", fontsize=7, color=ink)
    figure.suptitle("share of the rows of each class", fontsize=10)
    return figure


def fold_confusion(
    counts: NDArray[np.int64], report: SetReport, targets: Mapping[str, float]
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Return the classes shown, the answers, and their counts; other answers are one column."""
    names = shown_classes(report, targets)
    chosen = [report.classes.index(name) for name in names]
    if len(names) == len(report.classes):
        return names, [*names, "abstain"], counts
    rows = counts[chosen]
    other = rows[:, :-1].sum(axis=1) - rows[:, chosen].sum(axis=1)
    return (
        names,
        [*names, "others", "abstain"],
        np.column_stack([rows[:, chosen], other, rows[:, -1]]),
    )


def coverage_figure(curve: RiskCoverage, own: tuple[float, float], name: str) -> Figure:
    """Return the risk of plain top-1 against the share of rows it answers, and the sets' own."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    covered = [100 * share for share in curve.coverage]
    axes.step(covered, [100 * risk for risk in curve.risk], where="post", color=BLUE, label="top-1")
    if not math.isnan(own[1]):
        place = [100 * own[0]], [100 * own[1]]
        axes.plot(*place, "D", color=ORANGE, mec=BLACK, markersize=8, label=name)
    axes.set_xlim(0, 102)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows that are answered, %", fontsize=9)
    axes.set_ylabel("wrong among them, %", fontsize=9)
    axes.legend(frameon=False, fontsize=9, loc="best")
    plain(axes)
    return figure


def sets_figure(counts: Sequence[SetCount], classes: Sequence[str]) -> Figure:
    """Return how often the most frequent sets occur."""
    shown = counts[:MOST_SETS]
    total = sum(each.n for each in counts)
    figure = Figure(figsize=(7, 1.2 + 0.3 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colours = [BLUE if len(each.members) == 1 else ORANGE for each in shown]
    colours = [
        colour if each.members else GREY for colour, each in zip(colours, shown, strict=True)
    ]
    axes.barh(range(len(shown)), [100 * each.n / total for each in shown], color=colours)
    names = [short(set_name(each.members, classes), 40) for each in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel("rows with this set, %")
    axes.set_title(f"the {len(shown)} most frequent of {len(counts):,} sets", fontsize=10)
    plain(axes)
    return figure


def set_name(members: Sequence[int], classes: Sequence[str]) -> str:
    """Return a set in words."""
    if not members:
        return "empty"
    names = [classes[j] for j in members[:MOST_NAMES]]
    more = f" and {len(members) - MOST_NAMES} more" if len(members) > MOST_NAMES else ""
    return ", ".join(names) + more
