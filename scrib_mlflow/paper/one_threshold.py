"""One threshold with as many certain rows as SCRIB: what the paper's user study compared.

Its doctor marked sets down that miss a likely class or name too many. In place of the marks stand
the class risks, how often a set holds the true class, and how many classes it names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.fit import fit_thresholds
from scrib_mlflow.core.methods import SCRIB
from scrib_mlflow.core.problem import between
from scrib_mlflow.core.rules import ThresholdRule, predict_sets
from scrib_mlflow.paper.outputs import Floats, Outputs
from scrib_mlflow.paper.splits import mean, measure_rules, random_halves

ONE = "one threshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCertain:
    """SCRIB and one threshold, means over repeats on measured rows, by method."""

    data: str
    target: float
    certain: dict[str, float]  # share of the rows
    mean_excess: dict[str, float]
    worst_risk: dict[str, float]  # of any class
    overall_risk: dict[str, float]
    holds_truth: dict[str, float]  # share of all sets with the true class
    size_ambiguity: dict[str, float]
    empty_rate: dict[str, float]
    repeats: int


def equal_certain_threshold(scores: Floats, n_certain: int) -> float:
    """Return the threshold for all classes with the number of certain rows nearest to `n_certain`.

    A row is certain where the threshold lies above its second highest score and not above its
    highest. Of several such thresholds the lowest is taken: its sets name most candidates.
    """
    second, first = np.partition(scores, -2, axis=1)[:, -2:].T
    values = np.unique(scores)
    entered = np.searchsorted(np.sort(second), values, side="left")  # second below the threshold
    left = np.searchsorted(np.sort(first), values, side="left")  # even the first is below it
    at = int(np.argmin(np.abs(entered - left - n_certain)))
    return between(values[at - 1], values[at]) if at > 0 else -np.inf


def measure_same_certain(
    outputs: Outputs, repeats: int, seed: int, progress: Progress | None = None
) -> SameCertain:
    """Measure SCRIB and one threshold that is certain of as many fit rows."""
    found: dict[str, list[SetReport]] = {SCRIB: [], ONE: []}
    for split in random_halves(outputs, repeats, seed, progress=progress):
        scores, named = split.to_fit(outputs)
        fit = fit_thresholds(scores, named, outputs.target, classes=outputs.classes, seed=seed)
        n_certain = int(np.count_nonzero(predict_sets(scores, fit.rule).sum(axis=1) == 1))
        threshold = equal_certain_threshold(scores, n_certain)
        one = ThresholdRule(thresholds=(threshold,) * len(outputs.classes))
        for name, report in measure_rules(outputs, split, {SCRIB: fit, ONE: one}).items():
            found[name].append(report)
    risks = {
        name: [[each.risk for each in report.by_class.values()] for report in reports]
        for name, reports in found.items()
    }
    return SameCertain(
        data=outputs.name,
        target=outputs.target,
        certain={n: 1 - mean([r.abstention_rate for r in rs]) for n, rs in found.items()},
        mean_excess={
            n: float(np.mean(np.fmax(np.nan_to_num(np.array(rs)) - outputs.target, 0)))
            for n, rs in risks.items()
        },
        worst_risk={n: mean([float(np.nanmax(r)) for r in rs]) for n, rs in risks.items()},
        overall_risk={n: mean([r.overall_risk for r in rs]) for n, rs in found.items()},
        holds_truth={n: mean([_covered(r) for r in rs]) for n, rs in found.items()},
        size_ambiguity={n: mean([r.size_ambiguity for r in rs]) for n, rs in found.items()},
        empty_rate={n: mean([r.empty_rate for r in rs]) for n, rs in found.items()},
        repeats=repeats,
    )


def _covered(report: SetReport) -> float:
    """Return the share of all rows whose set holds the true class."""
    missed = sum(each.miscoverage * each.n for each in report.by_class.values() if each.n)
    return 1 - missed / report.n
