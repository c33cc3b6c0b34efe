"""A selection in words and in a figure: which rows to label, and what labels would prove."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scrib_mlflow.messages import chance_percent, percent
from scrib_mlflow.report.facts import Summary, TextTable
from scrib_mlflow.report.words import TEXTS, say, say_each, visible
from scrib_mlflow.results import LabelPoint, Selection
from scrib_mlflow.rows.labelling import FILES, Format

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def select_summary(
    selection: Selection, where: str, output: str = "", file: str = "", run_id: str = ""
) -> Summary:
    """Return what is printed of a selection, and noted without an output."""
    command = calibrate_command(run_id, file, str(selection.settings["label"]))
    steps = [("label them", f"{output}/labelling.md says how"), ("then", command)]
    return Summary(
        verdict=say("selection.verdict", selection=selection, output=output),
        sentences=tuple(say_each("selection.drawn", selection=selection)),
        tables=(curve_table(selection), class_table(selection)),
        notes=tuple(say_each("selection.curve", point=asked(selection))),
        steps=tuple(steps) if output else (),
        where=where,
    )


def asked(selection: Selection) -> LabelPoint:
    """Return what the labels that were asked for are predicted to prove."""
    return min(selection.curve, key=lambda point: abs(point.labels - selection.n_drawn))


def curve_table(selection: Selection) -> TextTable:
    """Return what more and fewer labels would prove."""
    return TextTable(
        rows=(
            ("labels", "chance to pass", "expected abstention", "answered by some rule"),
            *(
                (
                    f"{point.labels:,}",
                    chance_percent(point.chance),
                    percent(point.expected_abstention),
                    percent(point.answered_rate),
                )
                for point in selection.curve
            ),
        ),
    )


def class_table(selection: Selection) -> TextTable:
    """Return the chance of each risk by itself, for each number of labels."""
    names = list(selection.curve[0].chances)
    least = [asked(selection).chances[name] for name in names]
    return TextTable(
        rows=(
            ("chance to pass alone", *(f"{p.labels:,} labels" for p in selection.curve)),
            *(
                (visible(name), *(chance_percent(p.chances[name]) for p in selection.curve))
                for name in names
            ),
        ),
        order=tuple(sorted(range(len(names)), key=least.__getitem__)),
        folded="The {n} of {all} risks that are least likely to pass; selection.json has all.",
    )


def metrics(selection: Selection) -> Mapping[str, float]:
    """Return the figures that runs are compared by."""
    point = asked(selection)
    return {
        "n_drawn": float(selection.n_drawn),
        "answered_rate": selection.n_answered / selection.n_open,
        "chance": point.chance,
        "expected_abstention": point.expected_abstention,
    }


def repeated(n: int, n_pool: int) -> str:
    """Return what to do about rows of the pool that equal another one."""
    return say("selection.repeated", n=n, n_pool=n_pool)


def without_label(n: int, n_drawn: int) -> str:
    """Return what becomes of rows that came back without a label."""
    return say("selection.without_label", n=n, n_drawn=n_drawn)


def sheet(selection: Selection, kind: Format, run_id: str, labelled: str) -> str:
    """Return what to do with the rows, for those who label them and those who use the labels."""
    label = str(selection.settings["label"])
    text = TEXTS.get_template("labelling.md.jinja").render(
        selection=selection,
        kind=kind,
        label=label,
        file=FILES[kind],
        command=calibrate_command(run_id, labelled, label),
    )
    return text.rstrip() + "\n"


def calibrate_command(run_id: str, labelled: str, label: str) -> str:
    """Return what to run when the labels are there."""
    command = ["python", "-m", "scrib_mlflow", "calibrate", "--selection", run_id]
    return shlex.join([*command, "--certify_data", labelled, "--label", label])


def curve_figure(selection: Selection) -> Figure:
    """Return the chance of a certificate and the expected abstention against the labels."""
    from scrib_mlflow.report import figures  # noqa: PLC0415  # loads matplotlib

    name = figures.short(selection.base.name)
    figure, axes = figures.new_figure((8.5, 4.5), f"{name}: what labels are predicted to prove")
    labels = [point.labels for point in selection.curve]
    for colour, words, values in (
        (figures.BLUE, "chance that all targets pass", [p.chance for p in selection.curve]),
        (
            figures.ORANGE,
            "expected abstention (all rows, if nothing passes)",
            [p.expected_abstention for p in selection.curve],
        ),
    ):
        axes.plot(labels, [100 * v for v in values], color=colour, marker="o", label=words)
    axes.axvline(asked(selection).labels, color=figures.GREY, linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xticks(labels, [f"{n:,}" for n in labels])
    axes.minorticks_off()
    axes.set(ylim=(0, 102), xlabel="labels", ylabel="%")
    axes.grid(axis="y", color=figures.GREY, linewidth=0.5, alpha=0.6)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure
