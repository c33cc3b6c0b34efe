"""Tables of overall risk, of how ambiguities go together, and of optimisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scrib_mlflow.adapters.paper_tables import HABIT, NOTHING, PaperTable, short, spread
from scrib_mlflow.core.curves import DELTA, Curve
from scrib_mlflow.core.methods import OPTIMAL, SCRIB, SGR, SHARED
from scrib_mlflow.paper import quoted
from scrib_mlflow.paper.correlation import AmbiguityCorrelation
from scrib_mlflow.paper.optimisers import OPTIMISERS, OURS, OptimiserRun
from scrib_mlflow.paper.overall import DROPOUT
from scrib_mlflow.paper.significance import p_value

SGR_DROPOUT = f"{SGR} on {DROPOUT}"
CURVES = (SGR, SGR_DROPOUT, SCRIB, SHARED, OPTIMAL)  # the first three as in the paper


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
