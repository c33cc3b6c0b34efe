"""Rules: values that turn scores into sets, and the sets they give.

Shapes used throughout the core::

    scores      (n, k) float64  score of class k for row n, higher means more of it
    labels      (n,)   int      true class
    thresholds  (k,)   float64  class k is in the set when its score reaches this
    sets        (n, k) bool     membership
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.blocks import row_blocks
from scrib_mlflow.core.checks import as_floats, check_scores, check_trust
from scrib_mlflow.core.recalibrate import Recalibration
from scrib_mlflow.errors import ScribError
from scrib_mlflow.serving import rule_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """Every class whose score reaches its threshold is in the set."""

    thresholds: tuple[float, ...]
    kind: Literal["thresholds"] = "thresholds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveRule:
    """The top class where the trust reaches the threshold, all classes elsewhere."""

    threshold: float
    on: Literal["score", "trust"] = "score"  # the highest score, or a number given for each row
    kind: Literal["selective"] = "selective"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRule:
    """Always the one class with the highest score."""

    kind: Literal["top1"] = "top1"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalRule:
    """The class worth most where answering pays, at least two candidates elsewhere.

    With p the recalibrated scores, answering j is worth
    ``1 + multipliers[j] p[j] - sum over k of charges[k] p[k]``; it pays where that is not negative.
    """

    multipliers: tuple[float, ...]
    charges: tuple[float, ...]
    recalibration: Recalibration | None  # None where scores are calibrated probabilities already
    candidate_thresholds: tuple[float, ...]  # a class this probable is a candidate; inf for none
    kind: Literal["optimal"] = "optimal"


Rule = ThresholdRule | SelectiveRule | TopRule | OptimalRule


def predict_sets(
    scores: ArrayLike,
    rule: Rule | Sequence[float] | NDArray[np.float64],
    *,
    trust: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Return the prediction sets of a rule, or of thresholds.

    Parameters
    ----------
    scores : (n, k) array
    rule : Rule, Fit, or sequence of k floats
        A rule, a fit that has one, or thresholds, one a class.
    trust : (n,) array, optional
        For a selective rule that was fitted on trust: a number for each row, higher means surer.

    Returns
    -------
    (n, k) bool array, True where the class is in the set.
    """
    checked = check_scores(scores, least_rows=0)
    rule = getattr(rule, "rule", rule)
    if not isinstance(rule, ThresholdRule | SelectiveRule | TopRule | OptimalRule):
        values = as_floats("thresholds", rule).ravel().tolist()
        rule = ThresholdRule(thresholds=tuple(values))
    _check_numbers(rule, checked.shape[1])
    return make_sets(rule, checked, _check_trust(rule, trust, len(checked)))


def make_sets(
    rule: Rule, scores: NDArray[np.float64], trust: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """Return the sets of a rule as it is served, block by block: no row depends on another."""
    plain = asdict(rule)
    sets = np.empty(scores.shape, dtype=np.bool_)
    for of in row_blocks(len(scores)):
        sets[of] = rule_sets(plain, scores[of], None if trust is None else trust[of])
    return sets


def _check_numbers(rule: Rule, k: int) -> None:
    """Raise unless a rule has a number for every class, and none is NaN."""
    numbers = _numbers(rule)
    for name, values in numbers.items():
        if len(values) != k and name != "threshold":
            msg = f"the rule has {len(values)} {name} but scores have {k} columns; pass one a class"
            raise ScribError(msg)
        if np.isnan(values).any():
            msg = f"{name} of the rule: NaN in {values}; -inf is for a class always in the set"
            raise ScribError(msg)


def _numbers(rule: Rule) -> dict[str, tuple[float, ...]]:
    """Return the numbers of a rule by name."""
    if isinstance(rule, ThresholdRule):
        return {"thresholds": rule.thresholds}
    if isinstance(rule, SelectiveRule):
        return {"threshold": (rule.threshold,)}
    if isinstance(rule, TopRule):
        return {}
    names = ("multipliers", "charges", "candidate_thresholds")
    numbers = {name: getattr(rule, name) for name in names}
    if rule.recalibration is not None:
        numbers |= {name: getattr(rule.recalibration, name) for name in ("slopes", "offsets")}
    return numbers


def _check_trust(rule: Rule, trust: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """Return the trust of each row, for the one kind of rule that is made for it."""
    needed = isinstance(rule, SelectiveRule) and rule.on == "trust"
    if trust is None:
        if needed:
            msg = "the rule was fitted on trust; pass the trust of each row"
            raise ScribError(msg)
        return None
    if not needed:
        msg = "trust is given, but the rule does not use it; leave it out"
        raise ScribError(msg)
    return check_trust(trust, n)
