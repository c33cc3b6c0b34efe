"""The paper's experiments on named data: values into tables and figures, with what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from matplotlib.figure import Figure

from experiments import figures, tables
from experiments.optimisers import OptimiserRun, compare_optimisers, skipped_optimisers
from experiments.outputs import Outputs
from experiments.risks import (
    DROPOUT,
    correlate_ambiguities,
    measure_curves,
    measure_same_certain,
    measure_unequal,
)
from experiments.tables import PaperTable, correlation_table, curve_tables, optimiser_tables
from scrib_mlflow.core.inputs import Progress
from scrib_mlflow.core.studies import Comparison, compare_rules
from scrib_mlflow.core.studies.curves import DELTA
from scrib_mlflow.errors import ScribError
from scrib_mlflow.messages import progress
from scrib_mlflow.report import comparison
from scrib_mlflow.report.comparison import curve_figure

Value = TypeVar("Value")
MOST_CLASSES = 20  # beyond, only class risks are measured: the rest takes hours
WAIVE = ", or waive it by name"  # advice that these experiments have no option for


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work to do."""

    repeats: int
    optimiser_repeats: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment found: to print, to look at, and to compare as runs."""

    tables: Sequence[PaperTable]
    figures: dict[str, Figure] = field(default_factory=dict)
    comparisons: dict[str, Comparison] = field(default_factory=dict)  # by data
    notes: Sequence[str] = ()  # what was left out, where no table is left to say it


Experiment = Callable[[Sequence[Outputs], Effort], Findings]


def class_risks(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Measure the excess of class risks, as in the paper's first experiment."""
    found, left = _each(
        data, "class risks", lambda each, bar: _compare(each, effort, bar), most=None
    )
    by_name = {each.name: value for each, value in found}
    made = [tables.excess_table(by_name, by_group=False), tables.ambiguity_table(by_name)]
    drawn = {
        f"risks_{name}": comparison.risk_figure(value, name) for name, value in by_name.items()
    }
    return _findings(made, left, figures=drawn, comparisons=by_name)


def by_group(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Measure the same where patients or recordings stay whole."""
    grouped = [each for each in data if each.groups is not None]
    if not grouped:
        return Findings(tables=[], notes=["no data set has groups."])
    found, left = _each(
        grouped, "class risks by group", lambda each, bar: _compare(each, effort, bar, whole=True)
    )
    by_name = {each.name: value for each, value in found}
    made = [tables.excess_table(by_name, by_group=True)] if by_name else []
    return _findings(made, left)


def _compare(outputs: Outputs, effort: Effort, bar: Progress, *, whole: bool = False) -> Comparison:
    return compare_rules(
        outputs.scores,
        outputs.named(),
        outputs.target,
        classes=outputs.classes,
        groups=outputs.groups if whole else None,
        trust={} if outputs.trust is None else {DROPOUT: outputs.trust},
        sgr_delta=DELTA,
        repeats=effort.repeats,
        seed=effort.seed,
        progress=bar,
    )


def overall_risk(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Draw accuracy-ambiguity curves, as in the paper's second experiment."""
    found, left = _each(
        data,
        "overall risk",
        lambda each, bar: measure_curves(each, effort.repeats, effort.seed, bar),
    )
    by_name = {each.name: value for each, value in found}
    return _findings(
        curve_tables(by_name),
        left,
        figures={f"curves_{name}": curve_figure(each, name) for name, each in by_name.items()},
    )


def unequal_targets(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Measure class risks under unequal targets, as in the paper's Figure 2."""
    found, left = _each(
        data,
        "unequal targets",
        lambda each, bar: measure_unequal(each, effort.repeats, effort.seed, bar),
    )
    values = [value for _, value in found]
    return _findings(
        tables.unequal_tables(values),
        left,
        figures={f"unequal_{each.data}": figures.risk_bars(each) for each in values},
    )


def one_threshold(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Measure one threshold that is certain as often as SCRIB, the user study's baseline."""
    found, left = _each(
        data,
        "one threshold",
        lambda each, bar: measure_same_certain(each, effort.repeats, effort.seed, bar),
    )
    table = tables.same_certain_table([value for _, value in found])
    return _findings([table], left)


def correlation(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Correlate chance and size ambiguity over random set classifiers."""
    found, left = _each(
        data,
        "correlation",
        lambda each, _: correlate_ambiguities(
            each.scores, repeats=effort.repeats, seed=effort.seed
        ),
    )
    by_name = {each.name: value for each, value in found}
    return _findings([correlation_table(by_name)], left)


def optimisers(data: Sequence[Outputs], effort: Effort) -> Findings:
    """Minimise the loss with other optimisers."""
    found, left = _each(data, "optimisers", lambda each, bar: _optimise(each, effort, bar))
    by_name = {each.name: value for each, value in found}
    left += [f"{name} is left out: {reason}." for name, reason in skipped_optimisers().items()]
    return _findings(
        optimiser_tables(by_name),
        left,
        figures={"losses": figures.losses(by_name)} if by_name else {},
    )


def _optimise(outputs: Outputs, effort: Effort, bar: Progress) -> tuple[OptimiserRun, ...]:
    return compare_optimisers(
        outputs.scores,
        outputs.named(),
        outputs.target,
        classes=outputs.classes,
        repeats=effort.optimiser_repeats,
        seed=effort.seed,
        progress=bar,
    )


EXPERIMENTS: dict[str, Experiment] = {
    "class_risks": class_risks,
    "by_group": by_group,
    "overall_risk": overall_risk,
    "unequal_targets": unequal_targets,
    "one_threshold": one_threshold,
    "correlation": correlation,
    "optimisers": optimisers,
}


def _each(
    data: Sequence[Outputs],
    what: str,
    measure: Callable[[Outputs, Progress], Value],
    most: int | None = MOST_CLASSES,
) -> tuple[list[tuple[Outputs, Value]], list[str]]:
    """Measure all data that allow it; return the values, and in words what was left out."""
    found, left = [], []
    for each in data:
        if most is not None and len(each.classes) > most:
            left.append(f"{each.name} is left out: it has more than {most} classes.")
            continue
        try:
            found.append((each, measure(each, _bar(f"{what}, {each.name}"))))
        except ScribError as error:
            left.append(f"{each.name} is left out: {str(error).removesuffix(WAIVE)}.")
    return found, left


def _bar(what: str) -> Progress:
    return lambda turns: progress(turns, what=what, unit="splits")


def _findings(
    tables: Sequence[PaperTable],
    left: Sequence[str],
    figures: dict[str, Figure] | None = None,
    comparisons: dict[str, Comparison] | None = None,
) -> Findings:
    """Return what was found; the last table says what was left out, or notes where none is."""
    kept = [table for table in tables if table.rows]
    return Findings(
        tables=[*kept[:-1], kept[-1].with_notes(left)] if kept else [],
        figures=figures or {},
        comparisons=comparisons or {},
        notes=() if kept else left,
    )
