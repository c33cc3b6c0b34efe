"""How far soft counts can be trusted, where certify rows are so many that it matters.

Soft counts are as good as the recalibration of the scores, which is never perfect. With few certify
rows their chance is larger than that error and hides it. With very many the allowance for chance is
next to nothing, and a path that takes soft counts for the truth starts where nothing passes. So a
pilot rule is counted twice on labelled fit rows, with labels and with soft ones: the ratio corrects
the soft counts, and what the labels leave open widens the forecast.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.counts import constraint_counts, count_sets
from scrib_mlflow.core.kernels import CERTAIN, RIGHT
from scrib_mlflow.core.recalibrate import Recalibration, recalibrate
from scrib_mlflow.core.rows import Labelled
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule
from scrib_mlflow.core.steps import Problem
from scrib_mlflow.serving import rule_sets

MANY_ROWS = 100_000  # certify rows
USUAL_ERROR = 0.15  # of soft counts, before labels are looked at


def expect_errors(
    problem: Problem,
    pilot: ThresholdRule | OptimalRule,
    rows: Labelled,
    recalibration: Recalibration,
) -> Problem:
    """Return the problem with what labelled rows say of soft counts under a pilot rule."""
    sets = rule_sets(asdict(pilot), rows.scores)
    soft = recalibrate(recalibration, rows.scores) * rows.weights[:, None]
    none = np.zeros(0, dtype=np.int32)
    told, _ = constraint_counts(count_sets(sets, *rows[1:4]), problem.constraints)
    guessed, _ = constraint_counts(count_sets(sets, none, soft, rows.weights), problem.constraints)
    wrong = _wrong_rows(sets, rows, problem)
    biases, doubts = [], []
    for c in range(len(problem.constraints)):
        effect = problem.margin.design_effects[c] if problem.margin.design_effects else 1.0
        worth = wrong[c] / effect
        trusted = worth / (worth + USUAL_ERROR**-2)
        ratio = _risk(told[c]) / _risk(guessed[c]) if _risk(guessed[c]) > 0 else 1.0
        biases.append(float(max(ratio, 1e-3) ** trusted) if np.isfinite(ratio) else 1.0)
        doubts.append(float((worth + USUAL_ERROR**-2) ** -0.5))
    margin = replace(problem.margin, biases=tuple(biases), doubts=tuple(doubts))
    return problem._replace(margin=margin)


def _risk(counts: NDArray[np.float64]) -> float:
    certain = float(counts[CERTAIN])
    return (certain - float(counts[RIGHT])) / certain if certain > 0 else float("nan")


def _wrong_rows(sets: NDArray[np.bool_], rows: Labelled, problem: Problem) -> list[float]:
    """Return for each constraint how many unweighted wrong rows its weighted ones are worth."""
    certain = np.count_nonzero(sets, axis=1) == 1
    wrong = certain & ~sets[np.arange(len(sets)), rows.labels]
    worth = []
    for constraint in problem.constraints:
        weights = rows.weights[wrong & np.isin(rows.labels, constraint.classes)]
        worth.append(float(weights.sum() ** 2 / (weights @ weights)) if len(weights) else 0.0)
    return worth
