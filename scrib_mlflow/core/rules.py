"""Rules: from class scores to prediction sets, and what a fit of one is.

The candidates of an abstention are the classes that a person should look at: the two most probable,
and those that split conformal adds. For a rule that was fixed before the rows that calibrate them,
a row of class k that abstains has k among them with at least the coverage wanted, on average over
such rows, unless more are wanted than a row may name. Only abstained rows may say how low the
probability of a true class can be: over all rows of a class the claim would not hold for those that
abstain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core import inputs
from scrib_mlflow.core.inputs import NAN, SLACK, Bools, Floats, Labelled, Labels
from scrib_mlflow.core.targets import AnswerName, Kind
from scrib_mlflow.errors import ScribError
from scrib_mlflow.serving import MOST_CANDIDATES, candidate_sets, recalibrated, rule_sets

LEAST_SCORE = 1e-6  # that a score of 0 stands for, where other scores do not say how fine they are
MOST_LEAST_SCORE = 0.05
LEAST_CANDIDATES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A rule and what it reached on the rows it was fitted on."""

    method: str
    rule: Rule
    classes: tuple[str, ...]
    loss: float
    constraints: tuple[ConstraintFit, ...]
    n_rows: int
    start_losses: tuple[float, ...] = ()  # of the starts followed to all rows, ascending
    abstention_bound: float = NAN  # of any rule, for calibrated scores; errors count as weighted
    primal_gap: float = NAN  # of an optimal rule: its abstention above the bound, on soft counts
    seed: int | None = None

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of a threshold rule, one a class."""
        if isinstance(self.rule, ThresholdRule):
            return self.rule.thresholds
        raise AttributeError(f"a rule of kind {self.rule.kind!r} has no thresholds; see fit.rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintFit:
    """How a fit keeps one constraint on its own rows."""

    name: str
    kind: Kind
    classes: tuple[str, ...]
    target: float
    rate: float  # NaN for the risk of classes that are never certain
    excess: float  # what the loss charges: above the target, or above what the margin allows

    @property
    def met(self) -> bool:
        """Whether the rows of the fit keep the constraint."""
        return self.excess <= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """A slope and an offset a class, for the log of scores or for scores as they are."""

    slopes: tuple[float, ...]
    offsets: tuple[float, ...]
    of: Literal["log", "raw"]
    least_score: float = LEAST_SCORE  # lower ones count as this, before their log is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """Every class whose score reaches its threshold is in the set.

    With answers "top", a set whose one member is not the class with the highest score gains that
    class, and so abstains.
    """

    thresholds: tuple[float, ...]
    answers: AnswerName = "any"
    recalibration: Recalibration | None = None  # of scores to probabilities, for candidates only
    candidate_thresholds: tuple[float, ...] | None = None  # None: the two most probable classes
    max_candidates: int | None = None  # that an abstention names; None until they are calibrated
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
    """The class worth most where answering pays, its candidates elsewhere.

    With p the recalibrated scores, answering j is worth
    ``1 + multipliers[j] p[j] - sum over k of charges[k] p[k]``; it pays where that is not negative.
    With answers "top", j is the class with the highest score, and no other is answered. Until
    candidates are calibrated they are the two classes worth most.
    """

    multipliers: tuple[float, ...]
    charges: tuple[float, ...]
    recalibration: Recalibration | None  # None where scores are calibrated probabilities already
    candidate_thresholds: tuple[float, ...]  # a class this probable is a candidate; inf for none
    answers: AnswerName = "any"
    max_candidates: int | None = None  # that an abstention names; None until they are calibrated
    kind: Literal["optimal"] = "optimal"


Rule = ThresholdRule | SelectiveRule | TopRule | OptimalRule
Calibrated = TypeVar("Calibrated", bound=ThresholdRule | OptimalRule)


def predict_sets(
    scores: ArrayLike,
    rule: Fit | Rule | Sequence[float] | Floats,
    *,
    trust: ArrayLike | None = None,
) -> Bools:
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
    checked = inputs.check_scores(scores, least_rows=0)
    rule = getattr(rule, "rule", rule)
    if not isinstance(rule, ThresholdRule | SelectiveRule | TopRule | OptimalRule):
        values = inputs.as_floats("thresholds", rule).ravel().tolist()
        rule = ThresholdRule(thresholds=tuple(values))
    _check_numbers(rule, checked.shape[1])
    return make_sets(rule, checked, _check_trust(rule, trust, len(checked)))


def predict_rows(
    scores: ArrayLike,
    labels: ArrayLike,
    rule: Fit | Rule | Sequence[float],
    *,
    classes: Sequence[object] | None,
    sample_weight: ArrayLike | None,
    trust: ArrayLike | None,
    hard: bool = False,
) -> tuple[Labelled, Bools]:
    """Return checked rows and the sets of a rule on them; class names are those of a fit."""
    names = rule.classes if isinstance(rule, Fit) and classes is None else classes
    rows = inputs.check_rows(scores, labels, names, sample_weight, least_rows=1, hard=hard)
    if trust is not None:
        trust = inputs.check_trust(trust, len(rows.used))[rows.used]
    return rows, predict_sets(rows.scores, rule, trust=trust)


def make_sets(rule: Rule, scores: Floats, trust: Floats | None = None) -> Bools:
    """Return the sets of a rule as it is served, block by block: no row depends on another."""
    plain = asdict(rule)
    sets = np.empty(scores.shape, dtype=np.bool_)
    for of in inputs.row_blocks(len(scores)):
        sets[of] = rule_sets(plain, scores[of], None if trust is None else trust[of])
    return sets


def predict_candidates(scores: ArrayLike, rule: Fit | Rule) -> Bools:
    """Return which classes a rule names to a person: its answer, or where it abstains candidates.

    Parameters
    ----------
    scores : (n, k) array
    rule : Rule or Fit
        Where nothing has calibrated its candidates, they are the two most probable classes.

    Returns
    -------
    (n, k) bool array, True where the class is named.
    """
    checked = inputs.check_scores(scores, least_rows=0)
    own = rule.rule if isinstance(rule, Fit) else rule
    _check_numbers(own, checked.shape[1])
    return name_classes(own, checked)


def name_classes(rule: Rule, scores: Floats) -> Bools:
    """Do what `predict_candidates` does with what is checked, block by block."""
    plain = asdict(rule)
    named = np.empty(scores.shape, dtype=np.bool_)
    for of in inputs.row_blocks(len(scores)):
        named[of] = candidate_sets(plain, scores[of])
    return named


def answerable(scores: Floats, answers: AnswerName) -> NDArray[np.int32]:
    """Return (n,) the one class that each row may be answered with; (0,) where any may."""
    if answers == "any":
        return np.zeros(0, dtype=np.int32)
    return scores.argmax(axis=1).astype(np.int32)


def _check_numbers(rule: Rule, k: int) -> None:
    """Raise unless a rule has a number for every class, and none is NaN."""
    plain = asdict(rule)
    for name, values in (plain | (plain.get("recalibration") or {})).items():
        if isinstance(values, tuple) and len(values) != k:
            raise ScribError(
                f"the rule has {len(values)} {name} but scores have {k} columns; pass one a class"
            )
        if isinstance(values, tuple | float) and np.isnan(values).any():
            raise ScribError(
                f"{name} of the rule: NaN in {values}; -inf is for a class always in the set"
            )


def _check_trust(rule: Rule, trust: ArrayLike | None, n: int) -> Floats | None:
    """Return the trust of each row, for the one kind of rule that is made for it."""
    needed = isinstance(rule, SelectiveRule) and rule.on == "trust"
    if needed and trust is None:
        raise ScribError("the rule was fitted on trust; pass the trust of each row")
    if trust is not None and not needed:
        raise ScribError("trust is given, but the rule does not use it; leave it out")
    return None if trust is None else inputs.check_trust(trust, n)


def with_candidates(
    rule: Calibrated,
    scores: ArrayLike,
    labels: ArrayLike,
    coverage: float = 0.95,
    *,
    classes: Sequence[object] | None = None,
    max_candidates: int = MOST_CANDIDATES,
) -> Calibrated:
    """Return the rule with candidates as labelled rows calibrate them.

    Parameters
    ----------
    rule : ThresholdRule or OptimalRule
        Fixed before these rows; its certain answers stay what they are.
    scores, labels, classes
        As for `fit_thresholds`; labels are one class a row.
    coverage : float
        How often the candidates of an abstention shall hold the true class, for every class.
        Classes with too few abstained rows for that, below 19 at 0.95, share a threshold: that of
        their rows together, or where these are too few as well, of all rows that abstain.
    max_candidates : int
        The most that an abstention names, at least 2. Where more are wanted, those left out are
        counted, and the coverage is lower.

    Returns
    -------
    The rule, of the same kind.
    """
    rows = inputs.check_rows(scores, labels, classes, least_rows=1, hard=True)
    return place_candidates(rule, rows.scores, rows.labels, coverage, most=max_candidates)


def place_candidates(
    rule: Calibrated,
    scores: Floats,
    labels: Labels,
    coverage: float,
    shares: Floats | None = None,  # (n,) weights, of the highest possible one
    most: int = MOST_CANDIDATES,
) -> Calibrated:
    """Do what `with_candidates` does with rows that are checked, in little memory."""
    inputs.as_number("candidate_coverage", coverage, low=0, high=1)
    if most < LEAST_CANDIDATES:
        raise ScribError(f"max_candidates must be at least {LEAST_CANDIDATES}, got {most}")
    probabilities = own_probabilities(rule, scores, labels)
    abstains = ~np.isnan(probabilities)

    def threshold(rows: Bools) -> float:
        weights = None if shares is None else shares[rows]
        return _threshold(probabilities[rows], coverage, weights)

    thresholds = np.array([threshold(abstains & (labels == j)) for j in range(scores.shape[1])])
    few = np.flatnonzero(np.isneginf(thresholds))
    if len(few):
        together = threshold(abstains & np.isin(labels, few))
        thresholds[few] = threshold(abstains) if np.isneginf(together) else together
    return replace(rule, candidate_thresholds=tuple(thresholds.tolist()), max_candidates=most)


def own_probabilities(
    rule: ThresholdRule | OptimalRule,
    scores: Floats,  # (n, k)
    labels: Labels,  # (n,)
) -> Floats:
    """Return (n,) the probability of the true class where the rule abstains, NaN elsewhere."""
    plain = asdict(rule)

    def abstained(of: slice) -> Floats:
        probabilities = recalibrated(plain["recalibration"], scores[of])
        true = probabilities[np.arange(len(probabilities)), labels[of]]
        certain = np.count_nonzero(rule_sets(plain, scores[of]), axis=1) == 1
        return np.where(certain, np.nan, true)

    return inputs.fill_rows(len(labels), np.float64, abstained)


def threshold_rank(n: int, coverage: float) -> int:
    """Return which of n ascending probabilities, from 1, is the threshold; 0: always a candidate.

    That is floor((1 - coverage) (n + 1)); below 1 the rows are too few for any threshold.
    """
    return int(np.floor((1.0 - coverage) * (n + 1) + SLACK))


def threshold_between(at: float, below: float | None) -> float:
    """Return the middle between a probability and the next lower one, or itself where none is.

    So the last bit of a probability does not matter.
    """
    return at if below is None else below + (at - below) / 2


def weighted_rank(shares: Floats, coverage: float) -> int:
    """Return what `threshold_rank` does for rows of such weights, by ascending probability.

    A further row may have the highest weight, 1 (weighted conformal prediction).
    """
    missed = (1.0 - coverage) * (shares.sum() + 1) - 1 + SLACK
    return int(np.searchsorted(np.cumsum(shares), missed, side="right")) + 1 if missed >= 0 else 0


def _threshold(probabilities: Floats, coverage: float, shares: Floats | None = None) -> float:
    """Return the threshold that the probabilities of a class give, -inf where they are too few."""
    m = threshold_rank(len(probabilities), coverage)
    if shares is not None:
        m = weighted_rank(shares[np.argsort(probabilities, kind="stable")], coverage)
    if m < 1:
        return float("-inf")
    lowest = np.partition(probabilities, m - 1)[:m]
    lower = lowest[lowest < lowest[-1]]
    return threshold_between(float(lowest[-1]), float(lower.max()) if len(lower) else None)
