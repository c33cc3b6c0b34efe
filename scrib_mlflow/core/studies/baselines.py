"""The methods that SCRIB is compared with: how each is fitted, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import inputs
from scrib_mlflow.core.bounds import risk_upper
from scrib_mlflow.core.inputs import SLACK, Bools, Floats
from scrib_mlflow.core.loss import Ambiguity, describe_rule, make_problem
from scrib_mlflow.core.rules import Fit, SelectiveRule, ThresholdRule, TopRule
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.search.levels import between
from scrib_mlflow.core.targets import Target, Targets

SCRIB, OPTIMAL, SHARED, SGR, LABEL, TOP = "SCRIB", "optimal", "SCRIB-", "SGR", "LABEL", "top-1"


def fit_shared_threshold(scores: ArrayLike, labels: ArrayLike, **options: Any) -> Fit:
    """Fit SCRIB-: one threshold for all classes; options as for `fit_thresholds`."""
    return fit_thresholds(scores, labels, **{**options, "threshold_groups": "all"})


def fit_top1(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target | None = 0.1,
    *,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    waive: Sequence[str] = (),
) -> Fit:
    """Return the rule that never abstains, and what that costs under these targets."""
    rows = inputs.check_rows(scores, labels, classes)
    targets = Targets(risk_targets=risk_targets, overall_target=overall_target, waive=waive)
    return describe_rule("top1", TopRule(), rows, targets)


def fit_sgr(
    scores: ArrayLike,
    labels: ArrayLike,
    overall_target: float = 0.1,
    *,
    delta: float = 0.05,
    trust: ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    waive: Sequence[str] = (),
) -> Fit:
    """Fit SGR (Geifman and El-Yaniv 2017): one threshold on how sure a row is, overall risk only.

    With probability 1 - delta over the rows the overall risk is at most the target: a binary
    search over the rows by trust, each of its steps tested by the exact binomial bound at its share
    of delta. Abstains on every row where no step passes.

    Parameters
    ----------
    scores, labels, classes, waive
        As for `fit_thresholds`; labels are hard. A waived class may be without rows.
    overall_target, delta : float
        The risk, and the probability that it is exceeded after all.
    trust : (n,) array, optional
        What to rank rows by, higher means surer; the highest score where absent.

    Returns
    -------
    Fit
        With a selective rule: the top class, or all classes where it abstains.
    """
    rows = inputs.check_rows(scores, labels, classes, hard=True)
    inputs.as_number("delta", delta, low=0, high=1)
    target = inputs.as_number("overall_target", overall_target, low=0, high=1)
    ranks = None if trust is None else inputs.check_trust(trust, len(rows.scores))
    ranked_by = rows.scores.max(axis=1) if ranks is None else ranks
    wrong = rows.scores.argmax(axis=1) != rows.labels
    values, answered, errors = count_by_trust(ranked_by, wrong)
    ascending = np.searchsorted(values, np.sort(ranked_by))
    steps = max(1, int(np.ceil(np.log2(len(wrong)))))
    low, high, threshold = 0, len(wrong) - 1, np.inf
    for _ in range(steps):
        middle = (low + high + 1) // 2
        at = ascending[middle]
        if risk_upper(errors[at], answered[at], 1 - delta / steps) < target:
            high, threshold = middle, cut_above(values, at)
        else:
            low = middle
    rule = SelectiveRule(threshold=float(threshold), on="score" if ranks is None else "trust")
    targets = Targets(risk_targets=None, overall_target=target, waive=waive)
    return describe_rule("sgr", rule, rows, targets, trust=ranks)


def count_by_trust(trust: Floats, wrong: Bools) -> tuple[Floats, Floats, Floats]:
    """Return the distinct values of trust, ascending, and the rows and errors from each on."""
    values, index = np.unique(trust, return_inverse=True)
    answered = np.bincount(index, minlength=len(values))[::-1].cumsum()[::-1]
    errors = np.bincount(index, wrong, len(values))[::-1].cumsum()[::-1]
    return values, answered.astype(np.float64), errors


def cut_above(values: Floats, at: int) -> float:
    """Return a threshold that this value reaches and the one before does not."""
    return between(values[at - 1], values[at]) if at > 0 else -np.inf


def fit_label(
    scores: ArrayLike,
    labels: ArrayLike,
    miscoverage_targets: Target = 0.1,
    *,
    conformal: bool = False,
    classes: Sequence[object] | None = None,
    waive: Sequence[str] = (),
) -> Fit:
    """Fit LABEL (Sadinle et al. 2019): class-wise quantiles of the scores of each class.

    Parameters
    ----------
    scores, labels, classes, waive
        As for `fit_thresholds`; labels are hard. A waived class is always in.
    miscoverage_targets : float or mapping
        How often the set may lack the true class, by class.
    conformal : bool
        Use the finite-sample quantile, under which a new row of the class is missed with at most
        the target probability.

    Returns
    -------
    Fit
    """
    rows = inputs.check_rows(scores, labels, classes, hard=True)
    targets = Targets(risk_targets=None, miscoverage_targets=miscoverage_targets, waive=waive)
    ambiguity = Ambiguity(chance_weight=0.0, size_weight=1.0, empty_weight=0.0)
    thresholds = np.full(len(rows.classes), -np.inf)
    for constraint in make_problem(rows, targets, ambiguity).constraints:
        (k,) = constraint.classes
        column = rows.scores[:, k]
        of_class = np.sort(column[rows.labels == k])
        missed = int(constraint.target * (len(of_class) + conformal) + SLACK) - conformal
        if missed >= 0:
            quantile = of_class[min(missed, len(of_class) - 1)]
            below = column[column < quantile].max(initial=-np.inf)
            thresholds[k] = between(below, quantile) if np.isfinite(below) else -np.inf
    rule = ThresholdRule(thresholds=tuple(thresholds.tolist()))
    method = "label-conformal" if conformal else "label"
    return describe_rule(method, rule, rows, targets, ambiguity)
