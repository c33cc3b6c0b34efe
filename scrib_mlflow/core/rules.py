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

from scrib_mlflow.core.checks import check_scores
from scrib_mlflow.errors import ScribError
from scrib_mlflow.serving import rule_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """Every class whose score reaches its threshold is in the set."""

    thresholds: tuple[float, ...]
    kind: Literal["thresholds"] = "thresholds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveRule:
    """The top class where the confidence reaches the threshold, all classes elsewhere."""

    threshold: float
    kind: Literal["selective"] = "selective"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRule:
    """Always the one class with the highest score."""

    kind: Literal["top1"] = "top1"


Rule = ThresholdRule | SelectiveRule | TopRule


def predict_sets(
    scores: ArrayLike,
    rule: Rule | Sequence[float] | NDArray[np.float64],
    *,
    confidence: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Return the prediction sets of a rule, or of thresholds.

    Parameters
    ----------
    scores : (n, k) array
    rule : Rule or sequence of k floats
        A rule, such as ``fit.rule``, or thresholds, one a class.
    confidence : (n,) array, optional
        What a selective rule compares with its threshold, in place of the highest score.

    Returns
    -------
    (n, k) bool array, True where the class is in the set.
    """
    checked = check_scores(scores, least_rows=0)
    if not isinstance(rule, ThresholdRule | SelectiveRule | TopRule):
        rule = ThresholdRule(thresholds=tuple(float(t) for t in np.asarray(rule).ravel()))
    if isinstance(rule, ThresholdRule):
        if len(rule.thresholds) != checked.shape[1]:
            msg = (
                f"the rule has {len(rule.thresholds)} thresholds but scores have "
                f"{checked.shape[1]} columns; pass one threshold a class"
            )
            raise ScribError(msg)
        if np.isnan(rule.thresholds).any():
            msg = f"a threshold is NaN in {rule.thresholds}; -inf is for a class always in the set"
            raise ScribError(msg)
    trust = None
    if confidence is not None:
        trust = np.asarray(confidence, dtype=np.float64)
        if trust.shape != (len(checked),) or np.isnan(trust).any():
            msg = (
                f"confidence must be {len(checked)} numbers, one a row, got shape {trust.shape} "
                f"with {int(np.isnan(trust).sum())} NaN"
            )
            raise ScribError(msg)
    return rule_sets(asdict(rule), checked, trust)
