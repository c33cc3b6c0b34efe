"""Unequal targets: the risk of every class, and of all, as in the paper's Figure 2.

The paper bounds the overall risk by 5 % and gives SCRIB targets that it shows as bars only. Here
every class has 5 %, and the hardest, whose rows the classifier gets right least often, 15 %. LABEL
takes the same numbers for mis-coverages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.baselines import fit_label, fit_sgr
from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.curves import DELTA
from scrib_mlflow.core.dual import are_probabilities
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.fit import fit_thresholds
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.methods import LABEL, OPTIMAL, SCRIB, SGR
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.paper.outputs import Floats, Outputs
from scrib_mlflow.paper.splits import mean, measure_rules, random_halves

OVERALL, HARDEST = 0.05, 0.15


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
