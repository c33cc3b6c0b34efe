"""Where thresholds and the optimal rule answer, on the triangle of three probabilities.

``python -m benchmarks.regions docs/optimal.png`` draws the picture and prints its figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.tables import print_table
from scrib_mlflow import Fit, SetReport, evaluate_sets, fit_optimal, fit_thresholds, predict_sets
from scrib_mlflow.synthetic import draw_scores

SIGNAL = (6.0, 1.0, 2.0)  # with these targets picked because the difference is easy to see
TARGETS = {"1": 0.3, "2": 0.1, "3": 0.1}
CLASSES = tuple(TARGETS)
FIT_ROWS, FRESH_ROWS, SHOWN_ROWS = 20_000, 200_000, 1_500

BLUE, ORANGE, GREEN = "#56B4E9", "#E69F00", "#009E73"  # told apart by all eyes
AMBIGUOUS, EMPTY, WHITE, BLACK = "#BBBBBB", "#EEEEEE", "#FFFFFF", "#000000"
SETS = (EMPTY, BLUE, ORANGE, AMBIGUOUS, GREEN, AMBIGUOUS, AMBIGUOUS, AMBIGUOUS, WHITE)
COLOURS = np.array([to_rgb(colour) for colour in SETS])
BITS, OUTSIDE = np.array([1, 2, 4]), 8  # a set as a number, the row of COLOURS
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])  # of classes 1, 2, 3
STEP = 0.001  # of pixels
LEAST_DEPTH = 0.03  # of a region that has room for its name


def draw(path: Path) -> None:
    """Fit both rules, print what they do on fresh rows, and save the picture."""
    scores, _ = _draw_rows(FIT_ROWS, seed=0)
    fresh, labels = _draw_rows(FRESH_ROWS, seed=1)
    fits = {
        "Thresholds": fit_thresholds(scores, scores, TARGETS, classes=CLASSES),
        "The optimal rule": fit_optimal(scores, None, TARGETS, classes=CLASSES),
    }
    reports = {
        name: evaluate_sets(fresh, [CLASSES[y] for y in labels], fit, classes=CLASSES)
        for name, fit in fits.items()
    }
    figure = Figure(figsize=(11, 5.8), layout="constrained")
    for axes, (name, fit) in zip(figure.subplots(1, 2), fits.items(), strict=True):
        _paint(axes, fit, fits["Thresholds"], fresh[:SHOWN_ROWS])
        verb = "abstain" if name == "Thresholds" else "abstains"
        rate = f"{name} {verb} on {_percent(reports[name].abstention_rate)} of fresh rows"
        axes.set_title(rate, fontsize=12, weight="bold")
        axes.text(0.5, -0.14, _risks(reports[name]), ha="center", va="top", fontsize=9.5)
    words = [*(f"certain of {name}" for name in CLASSES), "abstains", "abstains: empty set"]
    shown = zip([BLUE, ORANGE, GREEN, AMBIGUOUS, EMPTY], words, strict=True)
    keys = [Patch(facecolor=colour, edgecolor=BLACK, label=word) for colour, word in shown]
    dashed = Line2D([], [], color=BLACK, ls="--", lw=2, label="where thresholds abstain")
    figure.legend(handles=[*keys, dashed], loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=150)
    _print(fits, reports)


def _draw_rows(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return draw_scores(n, noise=3**0.5, signal=SIGNAL, seed=seed)


def _paint(axes: Axes, fit: Fit, other: Fit, rows: NDArray[np.float64]) -> None:
    """Colour the triangle by the set that each point gets, and outline where another abstains."""
    x, y = np.meshgrid(np.arange(-0.02, 1.02, STEP), np.arange(-0.02, CORNERS[2, 1] + 0.02, STEP))
    third = y / CORNERS[2, 1]
    second = x - third / 2
    points = np.stack([1 - second - third, second, third], axis=-1)
    numbers = _set_numbers(points, fit)
    extent = (x[0, 0], x[0, -1], y[0, 0], y[-1, 0])
    axes.imshow(COLOURS[numbers], origin="lower", extent=extent, interpolation="antialiased")
    axes.plot(*(rows @ CORNERS).T, ".", color=BLACK, markersize=1.6, alpha=0.5, markeredgewidth=0)
    for number in np.unique(numbers[numbers != OUTSIDE]).tolist():
        region = numbers == number
        axes.contour(x, y, region, levels=[0.5], colors=BLACK, linewidths=0.8)
        depth = np.asarray(ndimage.distance_transform_edt(region)) * STEP
        deepest = np.unravel_index(depth.argmax(), depth.shape)
        if depth[deepest] >= LEAST_DEPTH:
            box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
            place = float(x[deepest]), float(y[deepest])
            axes.text(*place, _name(number, fit), ha="center", va="center", fontsize=10, bbox=box)
    if other is not fit:
        abstains = np.isin(_set_numbers(points, other), [OUTSIDE, 1, 2, 4], invert=True)
        axes.contour(x, y, abstains, levels=[0.5], colors=BLACK, linestyles="--", linewidths=2)
    _mark_corners(axes)


def _set_numbers(points: NDArray[np.float64], fit: Fit) -> NDArray[np.int64]:
    """Return the set of every point as a number, the row of COLOURS."""
    inside = np.asarray((points >= 0).all(axis=-1))
    numbers = np.full(inside.shape, OUTSIDE, dtype=np.int64)
    numbers[inside] = predict_sets(points[inside], fit.rule) @ BITS
    return numbers


def _mark_corners(axes: Axes) -> None:
    """Say which corner is which class, and leave out the frame."""
    for name, (x, y), up in zip(CLASSES, CORNERS, (-0.05, -0.05, 0.03), strict=True):
        axes.text(x, y + up, f"class {name}", ha="center", va="center", fontsize=11, weight="bold")
    axes.text(0.5, -0.03, "a corner: probability 1 of its class", ha="center", va="top", fontsize=9)
    axes.set_xlim(-0.08, 1.08)
    axes.set_ylim(-0.31, CORNERS[2, 1] + 0.07)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _name(number: int, fit: Fit) -> str:
    members = [name for name, bit in zip(CLASSES, BITS, strict=True) if number & bit]
    if fit.method != "optimal":
        return "{" + ", ".join(members) + "}" if members else "empty"
    return members[0] if len(members) == 1 else "abstains: " + " or ".join(members)


def _risks(report: SetReport) -> str:
    """Return the class risks, a line each."""
    lines = ["Wrong among the certain rows of a class"]
    for name, target in TARGETS.items():
        risk = _percent(report.by_class[name].risk)
        lines.append(f"class {name}: {risk} (target {100 * target:g} %)")
    return "\n".join(lines)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def _print(fits: dict[str, Fit], reports: dict[str, SetReport]) -> None:
    header = ["rule", "abstains", "empty", *(f"risk {name}" for name in CLASSES)]
    rows = []
    for name, report in reports.items():
        risks = [report.by_class[each].risk for each in CLASSES]
        rows.append([name, *map(_percent, [report.abstention_rate, report.empty_rate, *risks])])
    print_table(f"Fitted on {FIT_ROWS:,} rows, measured on {FRESH_ROWS:,} others", header, rows)
    for fit in fits.values():
        print(fit.rule)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=Path("docs/optimal.png"))
    draw(parser.parse_args().path)
