"""Figures of a report, their colours and shared parts, and figures inside a page as SVG."""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
import xml.etree.ElementTree as ET  # reads what matplotlib has just written
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from scrib_mlflow.core.reports import RiskCoverage, SetCount
from scrib_mlflow.core.rules import OptimalRule, Rule, ThresholdRule
from scrib_mlflow.report.facts import MOST_SETS, ClassTable
from scrib_mlflow.report.words import LONGEST, clipped, listed
from scrib_mlflow.serving import answer_values

LOGGER = logging.getLogger(__name__)

MOST_CLASSES = 20
BLUE, ORANGE, GREY, BLACK = "#0072B2", "#E69F00", "#BBBBBB", "#000000"  # told apart by all eyes
GREEN, VERMILION, PURPLE = "#009E73", "#D55E00", "#CC79A7"
BINS = 40
LARGEST = 1e150  # of a score that is drawn: the square of it is still a number
MOST_NAMES = 4  # of a set in a figure
NUMBERED = 12  # classes up to which there is room for counts
COLOURS = {BLACK: "currentColor", BLUE: "var(--blue)", ORANGE: "var(--orange)", GREY: "var(--grey)"}
SPACE = re.compile(r"\{.*?\}")
LEFT_OUT = {"metadata", "style"}
FONTS = (
    "Noto Sans",
    "Source Han",
    "WenQuanYi",
    "IPA",
    "Droid",
    "Microsoft",
    "PingFang",
    "Hiragino",
)
NO_FONTS = ("Last Resort", "STIX", "cm", "DejaVu Math")  # boxes, and letters of formulas


class LetteredFigure(Figure):
    """A figure that takes each letter from whichever installed font has it.

    Letters that none has are written as their code, but for SVG: a browser has more fonts.
    """

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save the figure."""
        drawn = self.findobj(Text)
        letters = frozenset("".join(text.get_text() for text in drawn))
        fonts = {letter: font_of(letter) for letter in letters if not letter.isascii()}
        others = sorted({font for font in fonts.values() if font})
        for text in drawn if others else []:
            text.set_fontfamily([*text.get_fontfamily(), *others])
        lacking = "".join(sorted(letter for letter, font in fonts.items() if font is None))
        if lacking and options.get("format") != "svg":
            self._write_codes(lacking)
        super().savefig(fname, **options)

    def _write_codes(self, lacking: str) -> None:
        """Write letters that no font has as their codes."""
        codes = {ord(letter): f"U+{ord(letter):04X} " for letter in lacking}
        for axis in (axis for axes in self.axes for axis in (axes.xaxis, axes.yaxis)):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            if {*"".join(labels)} & {*lacking}:  # which an axis would write anew from its names
                axis.set_ticks(
                    axis.get_ticklocs(), [label.translate(codes).strip() for label in labels]
                )
        for text in self.findobj(Text):
            text.set_text(text.get_text().translate(codes).strip())
        tell_lacking(lacking)


@cache
def tell_lacking(letters: str) -> None:
    """Say once that letters have no font."""
    LOGGER.info(
        f"no installed font has {letters[:LONGEST]!r}: figures show codes in place of letters, and "
        "report.html the letters; install a font that has them, such as fonts-noto-cjk"
    )


@cache
def font_of(letter: str) -> str | None:
    """Return a font that has a letter, "" for the usual one, None where no font has it."""
    if _has(font_manager.findfont(font_manager.FontProperties()), letter):
        return ""
    fonts = [(font.name, font.fname) for font in font_manager.fontManager.ttflist]
    likely = sorted(fonts, key=lambda font: not font[0].startswith(FONTS))
    for name, path in likely:
        if not name.startswith(NO_FONTS) and _has(path, letter):
            return name
    for path in sorted({*font_manager.findSystemFonts()} - {path for _, path in fonts}):
        if _has(path, letter):  # installed since matplotlib has made its list
            font_manager.fontManager.addfont(path)
            return str(font_manager.FontProperties(fname=path).get_name())
    return None


def _has(path: str, letter: str) -> bool:
    """Return whether a font has a letter."""
    try:
        return bool(font_manager.get_font(path).get_char_index(ord(letter)))
    except (OSError, RuntimeError):  # gone since matplotlib has listed it, or no font
        return False


def new_figure(
    size: tuple[float, float], title: str = "", *shape: int, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes: one, or an array of `shape` with the options of `subplots`."""
    figure = LetteredFigure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(*shape, **options)


def class_figure(table: ClassTable, *, title: str) -> Figure:
    """Return the risk of every class beside its target, and how often it abstains."""
    rows = table.worst(MOST_CLASSES)
    figure, places, risks, rates = bars([row.name for row in rows], short(title, 90))
    values = [100 * (0 if math.isnan(row.risk) else row.risk) for row in rows]
    risks.barh(places, values, color=BLUE, height=0.6, label="risk")
    if any(not math.isnan(row.bound) for row in rows):
        upper = [100 * row.bound for row in rows]
        risks.hlines(places, values, upper, color=BLUE, linewidth=1.5, label="to its upper bound")
    mark_targets(risks, [row.target for row in rows])
    for place, row in zip(places, rows, strict=True):
        if math.isnan(row.risk):
            risks.text(0, place, " never certain", va="center")
    risks.set_xlabel("wrong among the certain rows of the class, %")
    rates.barh(places, [100 * row.abstention for row in rows], color=ORANGE, height=0.6)
    rates.set_xlabel("rows of the class that abstain, %")
    legend(figure, [risks], order=("risk", "to its upper bound", "target"))
    return figure


def bars(names: Sequence[str], title: str) -> tuple[Figure, NDArray[np.int64], Axes, Axes]:
    """Return a figure with a line for each name, their places, and two sides, the right in %."""
    size = 9, 1.6 + 0.32 * len(names)
    figure, (left, right) = new_figure(size, title, 1, 2, sharey=True)
    places = np.arange(len(names))
    left.set_yticks(places, [short(name) for name in names])
    left.invert_yaxis()
    right.set_xlim(0, 100)
    for axes in (left, right):
        plain(axes)
    return figure, places, left, right


def mark_targets(axes: Axes, targets: Sequence[float]) -> None:
    """Mark the target of each line; NaN is left out."""
    places, limits = np.arange(len(targets)), 100 * np.array(targets)
    axes.plot(limits, places, "|", color=BLACK, markersize=16, mew=2.5, label="target")


def panels(
    count: int, across: int, size: tuple[float, float], title: str
) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many small panels in rows."""
    down = math.ceil(count / across)
    figure = LetteredFigure(figsize=(size[0], size[1] * down), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, [figure.add_subplot(down, across, j + 1) for j in range(count)]


def legend(
    figure: Figure, every: Sequence[Axes], *, order: Sequence[str] = (), **options: Any
) -> None:
    """Write below a figure what is drawn, each word once."""
    drawn = {
        word: handle
        for axes in every
        for handle, word in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    words = [word for word in order or drawn if word in drawn]
    handles = [drawn[word] for word in words]
    options = {"ncols": 3, "frameon": False} | options
    figure.legend(handles, words, loc="outside lower center", **options)


def rule_figure(
    rule: Rule,
    scores: NDArray[np.float64],
    labels: NDArray[np.int32],
    table: ClassTable,
) -> Figure:
    """Return, for every class, what its own and other rows have, and where the rule divides them.

    That is the score of the class and its threshold, or under an optimal rule the value of
    answering the class, which pays from 0 on.
    """
    limits, title = np.zeros(scores.shape[1]), "value of answering the class; from 0 on it pays"
    if isinstance(rule, OptimalRule):
        fields = asdict(rule) | {"answers": "any"}  # so that the value is that of the worthiest
        _, scores, value = answer_values(fields, scores)
        scores = scores - scores.max(axis=1, keepdims=True) + value[:, None]
    elif isinstance(rule, ThresholdRule):
        limits = np.array(rule.thresholds)
        title = "score of the class; a member from its threshold on"
    names = shown_classes(table)
    classes = [row.name for row in table.classes]
    across = min(len(names), min((4, 5, 3), key=lambda n: -len(names) % n))
    down = math.ceil(len(names) / across)
    size = 2.6 * min(across, 4), 1.9 + 0.6 / down
    figure, every = panels(len(names), across, size, title)
    for axes, name in zip(every, names, strict=True):
        j = classes.index(name)
        _histogram(axes, scores[:, j], labels == j, limits[j], wide=isinstance(rule, OptimalRule))
        axes.set_title(short(name), fontsize=9)
        plain(axes)
    legend(figure, every)
    return figure


def _histogram(
    axes: Axes,
    scores: NDArray[np.float64],
    members: NDArray[np.bool_],
    threshold: float,
    *,
    wide: bool,
) -> None:
    """Draw the square roots of shares, so that small ones are seen; wide values as logarithms."""
    scores = np.clip(scores, -LARGEST, LARGEST)
    low, high = np.quantile(scores, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    if wide:
        ends = np.arcsinh(edges)
        edges = np.sinh(np.linspace(ends[0], ends[-1], BINS + 1))
        axes.set_xscale("symlog", linthresh=1)
        decades = {
            sign: math.floor(math.log10(max(sign * end, 1))) for sign, end in ((-1, low), (1, high))
        }
        axes.set_xticks([0, *(sign * 10.0**power for sign, power in decades.items() if power)])
    inside = np.clip(scores, edges[0], edges[-1])
    parts = (~members, GREY, "other classes"), (members, BLUE, "rows of the class")
    for chosen, colour, word in parts:
        counts, _ = np.histogram(inside[chosen], edges)
        shares = counts / max(chosen.sum(), 1)
        axes.stairs(np.sqrt(shares), edges, fill=True, alpha=0.7, color=colour, label=word)
    if math.isfinite(threshold):
        axes.axvline(threshold, color=BLACK, linewidth=1.5, label="limit")
    else:
        axes.set_xlabel("always a member" if threshold < 0 else "never a member", fontsize=8)
    axes.set_yticks([])


def shown_classes(table: ClassTable) -> list[str]:
    """Return the classes to draw: all, or of many those with the greatest excess."""
    return [row.name for row in table.worst(MOST_CLASSES)]


def plain(axes: Axes) -> None:
    """Leave out what a figure does not need, and write small."""
    axes.spines[["top", "right"]].set_visible(False)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(9)
    axes.tick_params(labelsize=8)


def short(text: str, longest: int = LONGEST) -> str:
    """Return a name as a figure has room for it."""
    return literal(clipped(text, longest))


def literal(text: str) -> str:
    """Return a text that matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def confusion_figure(counts: NDArray[np.int64], classes: ClassTable) -> Figure:
    """Return which share of each class is answered how, abstentions last."""
    names, answers, table = fold_confusion(counts, classes)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    side = 1.6 + 0.42 * len(names)
    figure, axes = new_figure((side + 2.2, side + 0.9), "share of the rows of each class")
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.axvline(len(answers) - 1.5, color=BLACK, linewidth=1)
    axes.set_xticks(range(len(answers)), [short(name) for name in answers], rotation=90)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set(xlabel="answer", ylabel="true class")
    axes.tick_params(labelsize=8)
    if len(names) <= NUMBERED:
        for (i, j), n in np.ndenumerate(table):
            if n:
                ink = "white" if shares[i, j] > 0.5 else BLACK
                axes.text(j, i, f"{n:,}", ha="center", va="center", fontsize=7, color=ink)
    return figure


def fold_confusion(
    counts: NDArray[np.int64], table: ClassTable
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Return the classes shown, the answers, and their counts; other answers are one column."""
    names = shown_classes(table)
    classes = [row.name for row in table.classes]
    chosen = [classes.index(name) for name in names]
    if len(names) == len(classes):
        return names, [*names, "abstain"], counts
    rows = counts[chosen]
    other = rows[:, :-1].sum(axis=1) - rows[:, chosen].sum(axis=1)
    folded = np.column_stack([rows[:, chosen], other, rows[:, -1]])
    return names, [*names, "others", "abstain"], folded


def coverage_figure(curve: RiskCoverage, point: tuple[float, float], name: str) -> Figure:
    """Return the risk of plain top-1 against the share of rows it answers, and the sets' own."""
    figure, axes = new_figure((6.4, 3.4))
    covered = [100 * share for share in curve.coverage]
    axes.step(covered, [100 * risk for risk in curve.risk], where="post", color=BLUE, label="top-1")
    if not math.isnan(point[1]):
        place = [100 * point[0]], [100 * point[1]]
        axes.plot(*place, "D", color=ORANGE, mec=BLACK, markersize=8, label=name)
    axes.set(xlim=(0, 102), ylim=(0, None))
    axes.set(xlabel="rows that are answered, %", ylabel="wrong among them, %")
    axes.legend(frameon=False, fontsize=9, loc="best")
    plain(axes)
    return figure


def sets_figure(counts: Sequence[SetCount], classes: Sequence[str]) -> Figure:
    """Return how often the most frequent sets occur."""
    shown = counts[:MOST_SETS]
    total = sum(each.n for each in counts)
    title = f"the {len(shown)} most frequent of {len(counts):,} sets"
    figure, axes = new_figure((7, 1.2 + 0.3 * len(shown)), title)
    colours = [{0: GREY, 1: BLUE}.get(len(each.members), ORANGE) for each in shown]
    axes.barh(range(len(shown)), [100 * each.n / total for each in shown], color=colours)
    members = [[classes[j] for j in each.members] for each in shown]
    names = [short(listed(each, MOST_NAMES) or "empty", 40) for each in members]
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel("rows with this set, %")
    plain(axes)
    return figure


def inline_svg(figure: Figure, name: str, words: str) -> str:
    """Return a figure as an SVG element for a page; `words` say what is seen.

    Its ids start with `name`, so that several of them on a page do not meet.
    """
    target = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", UserWarning)  # of letters that the browser does have
        figure.savefig(target, format="svg", transparent=True)
    root = ET.fromstring(target.getvalue())  # noqa: S314
    for parent in [*root.iter()]:
        for child in [*parent]:
            if SPACE.sub("", child.tag) in LEFT_OUT:
                parent.remove(child)
    for element in root.iter():
        element.tag = SPACE.sub("", element.tag)
        named = {SPACE.sub("", key): value for key, value in element.attrib.items()}
        element.attrib = {key: _rewrite(key, value, name) for key, value in named.items()}
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": words}
    return ET.tostring(root, encoding="unicode")


def _rewrite(key: str, value: str, name: str) -> str:
    """Return an attribute with ids of the figure's own and the page's colours."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = value.replace("url(#", f"url(#{name}-")
    for colour, other in COLOURS.items():
        value = value.replace(colour.lower(), other)
    return value
