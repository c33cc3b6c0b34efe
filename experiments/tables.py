"""The tables of the experiments, beside those of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments import quoted
from experiments.optimisers import OPTIMISERS, OURS, OptimiserRun
from experiments.outputs import Outputs, excess_difference, p_value
from experiments.risks import (
    DROPOUT,
    HARDEST,
    OVERALL,
    AmbiguityCorrelation,
    SameCertain,
    UnequalRisks,
)
from scrib_mlflow.core.studies import Comparison, Curve
from scrib_mlflow.core.studies.baselines import LABEL, OPTIMAL, SCRIB, SGR, SHARED
from scrib_mlflow.core.studies.curves import DELTA
from scrib_mlflow.messages import percent

METHODS = (SGR, LABEL, SHARED, SCRIB)  # in the order of the paper's columns
NOTHING = "-"
HABIT = "Splits of the same rows are not independent samples: p-values are only the paper's habit."
SGR_DROPOUT = f"{SGR} on {DROPOUT}"
CURVES = (SGR, SGR_DROPOUT, SCRIB, SHARED, OPTIMAL)  # the first three as in the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of an experiment, as text."""

    name: str  # of its artifact
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def with_notes(self, notes: Sequence[str]) -> PaperTable:
        """Return the table with further notes."""
        return replace(self, notes=(*self.notes, *notes))


def data_table(data: Sequence[Outputs]) -> PaperTable:
    """Return what the experiments ran on."""
    return PaperTable(
        name="data",
        title="Data",
        header=("data", "rows", "classes", "groups", "top-1 error", "target", "origin"),
        rows=tuple(
            (
                each.name,
                f"{len(each.labels):,}",
                str(len(each.classes)),
                NOTHING if each.groups is None else f"{len(np.unique(each.groups)):,}",
                percent(each.top_risk()),
                percent(each.target),
                each.origin,
            )
            for each in data
        ),
        notes=(f"The paper's generator errs on {quoted.TOP_RISK} of its rows without abstention.",),
    )


def excess_table(found: Mapping[str, Comparison], *, by_group: bool) -> PaperTable:
    """Return the mean excess of class risks by method, and whether SCRIB differs."""
    rows = [_excess_row(name, each) for name, each in found.items()]
    cited = quoted.EXCESS_BY_GROUP if by_group else quoted.EXCESS
    rows += [
        (f"paper: {name}", *cells[:4], NOTHING, cells[4], NOTHING) for name, cells in cited.items()
    ]
    splits = "groups stay whole" if by_group else "rows are split at random"
    return PaperTable(
        name="excess_by_group" if by_group else "excess",
        title=f"Excess of class risks, % ({splits})",
        header=("data", *METHODS, OPTIMAL, "p-value", "against"),
        rows=tuple(rows),
        notes=(
            "Mean of (risk - target)+ over classes and repeats, on rows that were not fitted; a "
            "class without certain rows counts as 0. The p-value is of Welch's t-test between "
            "SCRIB and the best of SGR, LABEL and SCRIB-, over classes and repeats. "
            f"{HABIT} SGR may miss its target with probability {DELTA:g}, as in the paper.",
            *_silent_note(found),
        ),
    )


def _excess_row(name: str, found: Comparison) -> tuple[str, ...]:
    tested = excess_difference(found, SCRIB)
    methods = (*METHODS, OPTIMAL)
    means = [found.means(m)["mean_excess"] if m in found.methods else math.nan for m in methods]
    return (name, *(hundredths(value) for value in means), short(tested.p_value), tested.other)


def _silent_note(found: Mapping[str, Comparison]) -> list[str]:
    """Return which methods keep targets by never answering a class, nothing where none does."""
    told = []
    for data, each in found.items():
        means = {method: each.means(method)["n_silent"] for method in each.methods}
        silent = [f"{method} {count:.1f}" for method, count in means.items() if count > 0]
        told += [f"{data}: {', '.join(silent)}"] if silent else []
    return [f"Classes without certain rows, on average: {'; '.join(told)}."] if told else []


def ambiguity_table(found: Mapping[str, Comparison]) -> PaperTable:
    """Return how often methods abstain, and how large their sets are."""
    methods = (*METHODS, OPTIMAL)
    rows = []
    for name, each in found.items():
        means = {m: each.means(m) for m in methods if m in each.methods}
        cells = [
            f"{means[m][metric]:.2f}" if m in means else NOTHING
            for metric in ("abstention_rate", "size_ambiguity")
            for m in methods
        ]
        rows.append((name, *cells))
    for name, cited in quoted.AMBIGUITY.items():
        rows.append((f"paper: {name}", *cited[:4], NOTHING, *cited[4:], NOTHING))
    return PaperTable(
        name="ambiguity",
        title="Abstention, then size ambiguity",
        header=("data", *methods, *(f"{m} size" for m in methods)),
        rows=tuple(rows),
        notes=(
            "The paper defines chance ambiguity as P(|H| > 1), but its algorithm counts 1 - "
            "certain rows / rows, which holds empty sets as well. Here the first columns are that "
            "count, abstention.",
        ),
    )


def unequal_tables(found: Sequence[UnequalRisks]) -> list[PaperTable]:
    """Return a table of the class risks for each data set; the last says what the paper has."""
    tables = [_unequal_table(each) for each in found]
    cited = "; ".join(
        f"{name}: SGR {sgr} %, LABEL {label} %, SCRIB {scrib} %"
        for name, (sgr, label, scrib) in quoted.UNEQUAL_OVERALL.items()
    )
    told = (
        f"SGR bounds the overall risk by {percent(OVERALL)}; every class has that target, the "
        f"hardest {percent(HARDEST)}. The paper's overall risks in its Figure 2, whose targets it "
        f"does not print: {cited}."
    )
    return [*tables[:-1], tables[-1].with_notes([told])] if tables else []


def _unequal_table(found: UnequalRisks) -> PaperTable:
    methods = tuple(found.risks)
    rows = [
        (name, percent(target), *(percent(found.risks[m][name]) for m in methods))
        for name, target in found.targets.items()
    ]
    rows += [
        ("overall risk", NOTHING, *(percent(found.overall_risk[m]) for m in methods)),
        ("abstains", NOTHING, *(percent(found.abstention_rate[m]) for m in methods)),
    ]
    return PaperTable(
        name=f"unequal_{found.data}",
        title=f"Risks under unequal targets: {found.data}",
        header=("class", "target", *methods),
        rows=tuple(rows),
    )


def same_certain_table(found: Sequence[SameCertain]) -> PaperTable:
    """Return SCRIB beside one threshold that is certain as often."""
    rows = []
    for each in found:
        for method, certain in each.certain.items():
            rows.append(
                (
                    f"{each.data}: {method}",
                    percent(certain),
                    hundredths(each.mean_excess[method]),
                    percent(each.worst_risk[method]),
                    percent(each.overall_risk[method]),
                    percent(each.holds_truth[method]),
                    f"{each.size_ambiguity[method]:.2f}",
                    percent(each.empty_rate[method]),
                )
            )
    return PaperTable(
        name="one_threshold",
        title="One threshold with as many certain rows as SCRIB",
        header=(
            "data and method",
            "certain",
            "mean excess, %",
            "worst class risk",
            "overall risk",
            "set holds truth",
            "set size",
            "empty",
        ),
        rows=tuple(rows),
        notes=(
            "The user study had a doctor mark 50 such sets (3.86 of 5 for SCRIB, 3.42 for one "
            "threshold); marks cannot be repeated here, what they reward can be counted.",
        ),
    )


def hundredths(rate: float) -> str:
    """Return a rate in percent with two places, a dash where it is undefined."""
    return NOTHING if math.isnan(rate) else f"{100 * rate:.2f}"


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """Return mean and standard deviation, a dash where nothing is defined."""
    known = [scale * value for value in values if not math.isnan(value)]
    if not known:
        return NOTHING
    deviation = f" ± {np.std(known, ddof=1):.{digits}f}" if len(known) > 1 else ""
    return f"{np.mean(known):.{digits}f}{deviation}"


def short(p_value: float) -> str:
    """Return a p-value with as many places as it deserves."""
    if math.isnan(p_value):
        return NOTHING
    return f"{p_value:.2f}" if p_value >= 0.01 else f"{p_value:.0e}"


def curve_tables(found: Mapping[str, Sequence[Sequence[Curve]]]) -> list[PaperTable]:
    """Return the areas under curves, and how near realised risks come to their targets."""
    if not found:
        return []
    area, miss = [], []
    for name, splits in found.items():
        curves = [curve for drawn in splits for curve in drawn]
        aucs = _by_method(curves, "auc")
        areas = [spread(aucs[method], 100) for method in CURVES]
        area.append((name, *areas, short(p_value(aucs[SCRIB], aucs[SGR]))))
        rmses = _by_method(curves, "rmse")
        miss.append((name, *(spread(rmses[method], 100) for method in CURVES)))
    unknown = (NOTHING, NOTHING)
    area += [(f"paper: {n}", *cells, *unknown, NOTHING) for n, cells in quoted.AUC.items()]
    miss += [(f"paper: {n}", *cells, *unknown) for n, cells in quoted.RMSE.items()]
    return [
        PaperTable(
            name="auc",
            title="Area under the accuracy-ambiguity curve, %",
            header=("data", *CURVES, "SCRIB and SGR differ, p"),
            rows=tuple(area),
            notes=(
                "Mean and standard deviation over splits, in which groups stay whole. Every curve "
                "starts at abstention 0 with the accuracy of the top class and ends at abstention "
                f"1 with accuracy 1. SGR may miss its target with probability {DELTA:g}, as in the "
                f"paper. {HABIT}",
            ),
        ),
        PaperTable(
            name="rmse",
            title="Root mean square of overall risk less its target, in points",
            header=("data", *CURVES),
            rows=tuple(miss),
        ),
    ]


def _by_method(curves: Sequence[Curve], field: str) -> dict[str, list[float]]:
    """Return a number of each split, by method."""
    return {
        method: [getattr(curve, field) for curve in curves if curve.method == method]
        for method in CURVES
    }


def correlation_table(found: Mapping[str, AmbiguityCorrelation]) -> PaperTable:
    """Return how chance and size ambiguity of random set classifiers go together."""
    rows = [
        (name, spread(each.pearson, 100), spread(each.spearman, 100))
        for name, each in found.items()
    ]
    rows += [(f"paper: {name}", *cells) for name, cells in quoted.CORRELATION.items()]
    classifiers = next((each.classifiers for each in found.values()), 0)
    return PaperTable(
        name="correlation",
        title="Correlation of chance and size ambiguity, %",
        header=("data", "Pearson", "Spearman"),
        rows=tuple(rows) if found else (),
        notes=(
            f"Over {classifiers:,} random set classifiers: each threshold is the score of its "
            "class in a row drawn from one half; ambiguities are those of the other half. Chance "
            "ambiguity is P(|H| > 1) here, without empty sets.",
        ),
    )


def optimiser_tables(found: Mapping[str, Sequence[OptimiserRun]]) -> list[PaperTable]:
    """Return the losses that optimisers end with, and how long they take."""
    if not found:
        return []
    loss, time = [], []
    for name, runs in found.items():
        own = {method: [run for run in runs if run.method == method] for method in OPTIMISERS}
        loss.append((name, *(_losses([run.loss for run in own[m]]) for m in OPTIMISERS)))
        seconds = [f"{_mean([r.seconds for r in own[m]])}" for m in OPTIMISERS]
        ratios = [f"{_mean([r.seconds_ratio for r in own[m]])}" for m in OPTIMISERS]
        time += [(name, *seconds), (f"{name}, in units of ours", *ratios)]
    loss += [(f"paper: {name}", *cells, NOTHING) for name, cells in quoted.LOSS.items()]
    time += [(f"paper: {name}", *cells, NOTHING) for name, cells in quoted.SECONDS.items()]
    repeats = max(len([r for r in runs if r.method == OURS]) for runs in found.values())
    return [
        PaperTable(
            name="losses",
            title="Final loss of optimisers",
            header=("data", *OPTIMISERS),
            rows=tuple(loss),
            notes=(
                f"Mean and standard deviation; random halves: {repeats}. Losses are those of the "
                "rule as it is served. Greedy is the paper's descent, written anew from its "
                "text, with ties heeded and a silent class counted as risk 1: kinder than the "
                "published code.",
            ),
        ),
        PaperTable(
            name="seconds",
            title="Seconds of one processor",
            header=("data", *OPTIMISERS),
            rows=tuple(time),
        ),
    ]


def _losses(losses: Sequence[float]) -> str:
    """Return mean and deviation, without places that a large loss does not need."""
    return spread(losses, digits=0 if losses and max(losses) >= 100 else 3)


def _mean(values: Sequence[float]) -> str:
    return NOTHING if not values else f"{sum(values) / len(values):.2g}"
