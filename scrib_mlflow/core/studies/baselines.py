"""The methods that are set side by side: their names, and how each is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.bounds import risk_upper
from scrib_mlflow.core.counts import count_sets
from scrib_mlflow.core.inputs import (
    Floats,
    Labelled,
    as_number,
    check_probabilities,
    check_rows,
    check_trust,
)
from scrib_mlflow.core.loss import Ambiguity, check_members, describe_fit, make_objective
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.rules import Fit, Rule, SelectiveRule, ThresholdRule, TopRule, predict_sets
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.search.levels import between
from scrib_mlflow.core.targets import Target, Targets, make_constraints
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError

SLACK = 1e-9  # a product that should be a whole number may fall short of it
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
    rows = check_rows(scores, labels, classes, None)
    targets = Targets(risk_targets=risk_targets, overall_target=overall_target, waive=waive)
    return _measured("top1", TopRule(), rows, targets, Ambiguity())


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
    rows = check_rows(scores, labels, classes, None)
    _hard(rows, "fit_sgr")
    as_number("delta", delta, low=0, high=1)
    target = as_number("overall_target", overall_target, low=0, high=1)
    given = None if trust is None else check_trust(trust, len(rows.scores))
    ranked_by = rows.scores.max(axis=1) if given is None else given
    wrong = rows.scores.argmax(axis=1) != rows.labels
    threshold = _sgr_threshold(ranked_by, wrong, target, delta)
    rule = SelectiveRule(threshold=threshold, on="score" if given is None else "trust")
    targets = Targets(risk_targets=None, overall_target=target, waive=waive)
    return _measured("sgr", rule, rows, targets, Ambiguity(), given)


def _sgr_threshold(
    trust: NDArray[np.float64], wrong: NDArray[np.bool_], target: float, delta: float
) -> float:
    """Return the lowest threshold that the binary search has seen pass, infinity without one."""
    values, kept, errors = count_by_trust(trust, wrong)
    ranks = np.searchsorted(values, np.sort(trust))
    steps = max(1, int(np.ceil(np.log2(len(trust)))))
    low, high = 0, len(trust) - 1
    threshold = np.inf
    for _ in range(steps):
        middle = (low + high + 1) // 2
        at = ranks[middle]
        if risk_upper(errors[at], kept[at], 1 - delta / steps) < target:
            high = middle
            threshold = cut_above(values, at)
        else:
            low = middle
    return float(threshold)


def count_by_trust(trust: Floats, wrong: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Return the distinct values of trust, ascending, and the rows and errors from each on."""
    values, index = np.unique(trust, return_inverse=True)
    kept = np.bincount(index, minlength=len(values))[::-1].cumsum()[::-1]
    errors = np.bincount(index, wrong, len(values))[::-1].cumsum()[::-1]
    return values, kept.astype(np.float64), errors


def cut_above(values: Floats, at: int) -> float:
    """Return a threshold that the value at this place reaches and the one before does not."""
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
    rows = check_rows(scores, labels, classes, None)
    _hard(rows, "fit_label")
    targets = Targets(risk_targets=None, miscoverage_targets=miscoverage_targets, waive=waive)
    thresholds = np.full(len(rows.classes), -np.inf)
    constraints = make_constraints(targets, rows.classes)
    check_members(targets, rows.class_weight(), rows.classes)
    for constraint in constraints:
        (k,) = constraint.classes
        column = rows.scores[:, k]
        own = np.sort(column[rows.labels == k])
        missed = int(constraint.target * (len(own) + conformal) + SLACK) - conformal
        if missed >= 0:
            quantile = own[min(missed, len(own) - 1)]
            below = column[column < quantile].max(initial=-np.inf)
            thresholds[k] = between(below, quantile) if np.isfinite(below) else -np.inf
    rule = ThresholdRule(thresholds=tuple(thresholds.tolist()))
    ambiguity = Ambiguity(chance_weight=0.0, size_weight=1.0, empty_weight=0.0)
    method = "label-conformal" if conformal else "label"
    return _measured(method, rule, rows, targets, ambiguity)


def _measured(
    method: str,
    rule: Rule,
    rows: Labelled,
    targets: Targets,
    ambiguity: Ambiguity,
    trust: NDArray[np.float64] | None = None,
) -> Fit:
    """Return the fit of a rule that needed no search."""
    constraints = make_constraints(targets, rows.classes)
    class_weight = rows.class_weight()
    check_members(targets, class_weight, rows.classes)
    counts = count_sets(predict_sets(rows.scores, rule, trust=trust), *rows[1:4])
    objective = make_objective(constraints, class_weight, ambiguity, None, counted=rows.counted)
    return describe_fit(method, rule, rows, constraints, objective, counts)


def _hard(rows: Labelled, name: str) -> None:
    if len(rows.soft):
        raise InvalidLabelsError(f"{name} needs one label a row, not soft labels")


class Method(NamedTuple):
    """How a method is fitted."""

    fit: Callable[..., Fit]
    trust: NDArray[np.float64] | None = None  # (n,) what it ranks rows by, if it is given


def make_methods(
    targets: dict[str, float],
    sgr_target: float,
    risk_targets: Target,
    overall_target: float | None,
    seed: int,
    common: dict[str, Any],
    sgr_delta: float,
) -> dict[str, Method]:
    """Return how each method is fitted, SCRIB first."""
    asked = {"risk_targets": risk_targets, "overall_target": overall_target, **common}
    free = tuple(name for name in common["classes"] if name not in targets)
    label = {"miscoverage_targets": targets, "classes": common["classes"], "waive": free}
    return {
        SCRIB: Method(partial(fit_thresholds, **asked, seed=seed)),
        OPTIMAL: Method(partial(fit_optimal, **asked, seed=seed)),
        SHARED: Method(partial(fit_shared_threshold, **asked, seed=seed)),
        SGR: Method(partial(fit_sgr, overall_target=sgr_target, delta=sgr_delta, **common)),
        LABEL: Method(partial(fit_label, **label)),
        TOP: Method(partial(fit_top1, **asked)),
    }


def skipped_methods(scores: NDArray[np.float64]) -> dict[str, str]:
    """Return the methods that scores do not allow, and why."""
    try:
        check_probabilities(scores)
    except InvalidScoresError as error:
        return {OPTIMAL: str(error)}
    return {}
