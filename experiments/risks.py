"""The paper's experiments on risks and ambiguity.

Unequal targets (its Figure 2): the paper bounds the overall risk by 5 % and shows SCRIB's targets
as bars only. Here every class has 5 %, and the hardest, whose rows the classifier gets right least
often, 15 %. LABEL takes the same numbers for mis-coverages.

One threshold with as many certain rows as SCRIB (its user study): in place of the doctor's marks
stand the class risks, how often a set holds the true class, and how many classes it names.

Overall risk: accuracy-ambiguity curves of methods over random halves.

Chance and size ambiguity of random set classifiers (its appendix): each threshold by itself is the
score of its class in a row drawn at random from one half; the ambiguities are of the other half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.outputs import Floats, Outputs, mean, measure_rules, random_halves
from scrib_mlflow.core.inputs import Progress, are_probabilities, check_scores, check_seed
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.rules import Fit, ThresholdRule, predict_sets
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.search.levels import between
from scrib_mlflow.core.studies import Curve, draw_curves, fit_label, fit_sgr
from scrib_mlflow.core.studies.baselines import LABEL, OPTIMAL, SCRIB, SGR
from scrib_mlflow.core.studies.curves import DELTA
from scrib_mlflow.errors import ScribError

OVERALL, HARDEST = 0.05, 0.15
ONE = "one threshold"
DROPOUT = "dropout"  # what the paper's further SGR ranks rows by


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalRisks:
    """Means over repeats, by method."""

    data: str
    targets: dict[str, float]  # by class
    risks: dict[str, dict[str, float]]  # by method and class; NaN where it was never certain
    overall_risk: dict[str, float]
    abstention_rate: dict[str, float]
    repeats: int


def hardest_class(outputs: Outputs) -> str:
    """Return the class whose rows are least often scored highest for it."""
    right = outputs.scores.argmax(axis=1) == outputs.labels
    k = len(outputs.classes)
    rows = np.bincount(outputs.labels, minlength=k)
    recall = np.bincount(outputs.labels, right, k) / np.maximum(rows, 1)
    return outputs.classes[int(np.argmin(np.where(rows > 0, recall, np.inf)))]


def measure_unequal(
    outputs: Outputs, repeats: int, seed: int, progress: Progress | None = None
) -> UnequalRisks:
    """Measure the class risks of methods under unequal targets."""
    targets = dict.fromkeys(outputs.classes, OVERALL) | {hardest_class(outputs): HARDEST}
    found: dict[str, list[SetReport]] = {}
    for split in random_halves(outputs, repeats, seed, progress=progress):
        fits = _fit(*split.to_fit(outputs), targets, outputs.classes, seed)
        for name, report in measure_rules(outputs, split, fits).items():
            found.setdefault(name, []).append(report)
    return UnequalRisks(
        data=outputs.name,
        targets=targets,
        risks={
            name: {each: mean([r.by_class[each].risk for r in reports]) for each in targets}
            for name, reports in found.items()
        },
        overall_risk={name: mean([r.overall_risk for r in rs]) for name, rs in found.items()},
        abstention_rate={name: mean([r.abstention_rate for r in rs]) for name, rs in found.items()},
        repeats=repeats,
    )


def _fit(
    scores: Floats,
    labels: NDArray[np.str_],
    targets: dict[str, float],
    classes: tuple[str, ...],
    seed: int,
) -> dict[str, Fit]:
    fits = {
        SGR: fit_sgr(scores, labels, OVERALL, delta=DELTA, classes=classes),
        LABEL: fit_label(scores, labels, targets, classes=classes),
        SCRIB: fit_thresholds(scores, labels, targets, classes=classes, seed=seed),
    }
    if are_probabilities(scores):
        fits[OPTIMAL] = fit_optimal(scores, labels, targets, classes=classes, seed=seed)
    return fits


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


def measure_curves(
    outputs: Outputs, repeats: int, seed: int, progress: Progress | None = None
) -> list[tuple[Curve, ...]]:
    """Return the curves of every split; groups stay whole, as the paper's patients do."""
    curves: list[tuple[Curve, ...]] = []
    named = outputs.named()
    for split in random_halves(outputs, repeats, seed, by_group=True, progress=progress):
        fitted, measured = split.fitted, ~split.fitted
        trust = {}
        if outputs.trust is not None:
            trust[DROPOUT] = (outputs.trust[fitted], outputs.trust[measured])
        drawn = draw_curves(
            outputs.scores[fitted],
            named[fitted],
            outputs.scores[measured],
            named[measured],
            classes=outputs.classes,
            trust=trust,
            seed=seed,
        )
        curves.append(drawn)
    return curves


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguityCorrelation:
    """Correlations of chance and size ambiguity, one each for every random split."""

    classifiers: int  # random set classifiers in each
    pearson: tuple[float, ...]
    spearman: tuple[float, ...]


def correlate_ambiguities(
    scores: ArrayLike, *, classifiers: int = 1000, repeats: int = 20, seed: int = 0
) -> AmbiguityCorrelation:
    """Return the correlations over random thresholds, on random halves of the rows.

    NaN where an ambiguity is the same for all of them.
    """
    checked = check_scores(scores, least_rows=4)
    if classifiers < 2 or repeats < 1:
        raise ScribError(
            f"classifiers is {classifiers} and repeats {repeats}, "
            "but a correlation needs 2 or more, 1 or more times"
        )
    check_seed(seed)
    found = [_correlate(checked, classifiers, [seed, repeat]) for repeat in range(repeats)]
    pearson, spearman = zip(*found, strict=True)
    return AmbiguityCorrelation(classifiers=classifiers, pearson=pearson, spearman=spearman)


def measure_ambiguities(
    scores: NDArray[np.float64], thresholds: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return chance and size ambiguity of (m, k) thresholds on (n, k) scores, (m,) each."""
    by_class = np.ascontiguousarray(scores.T)
    sizes = np.empty(len(scores), dtype=np.int32)
    inside = np.empty(len(scores), dtype=np.bool_)
    chance, size = np.empty(len(thresholds)), np.empty(len(thresholds))
    for m, row in enumerate(thresholds):
        sizes[:] = 0
        for column, threshold in zip(by_class, row, strict=True):
            np.greater_equal(column, threshold, out=inside)
            sizes += inside
        chance[m] = np.count_nonzero(sizes > 1) / len(scores)
        size[m] = sizes.mean()
    return chance, size


def _correlate(
    scores: NDArray[np.float64], classifiers: int, seed: list[int]
) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation on one random split."""
    from scipy import stats  # noqa: PLC0415  # takes a while

    n, k = scores.shape
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    drawn, measured = order[: n // 2], order[n // 2 :]
    picked = drawn[random.integers(len(drawn), size=(classifiers, k))]
    chance, size = measure_ambiguities(scores[measured], scores[picked, np.arange(k)])
    if np.ptp(chance) == 0 or np.ptp(size) == 0:
        return float("nan"), float("nan")
    return (
        float(stats.pearsonr(chance, size).statistic),
        float(stats.spearmanr(chance, size).statistic),
    )
