"""How likely a rule is to be certified, by what the fit rows say of it.

Soft rates, with recalibrated scores in place of labels, hardly vary, but they are off where the
model is. Rates by labels are right on average, but vary. So a soft rate counts as some rows beside
the labelled ones: with soft risk s worth m rows, and e of n certain rows wrong, the risk is taken
for Beta((m + MORE_WRONG) s + e, m (1 - s) + n - e). The chance to pass is the mean over that, and
over how many certain rows the certificate may find.

How many rows a soft rate is worth, its own tail of rare errors cannot say: there are too few. But
scores that hardly had to be recalibrated are right in their tails as well, and scores that had to
be changed much are not, even when they are right on average (`soft_worth`). A rule answers the rows
that look safest, so there are more errors than soft ones: the less a soft rate is worth, the more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from scrib_mlflow.core import counts
from scrib_mlflow.core.bounds import chance_within, planned_tests, smooth_tests
from scrib_mlflow.core.inputs import Floats, Labelled
from scrib_mlflow.core.loss import Margin
from scrib_mlflow.core.rules import OptimalRule, Recalibration, ThresholdRule, make_sets
from scrib_mlflow.core.targets import Constraint, claim_members, claim_targets

LEAST_WORTH, MOST_WORTH = 30.0, 500.0  # labelled rows that a soft rate is worth
WORTH = 2.0  # the same, times the square of what recalibration changes
MORE_WRONG = 10.0  # rows by which its errors count as more
# The same to compare rules and to tilt a search, which few labels would do by luck: times as many
# rows, and at least so many.
MORE_WORTH, LEAST_STEADY = 3.0, 300.0
LEAST_RATIO = 1e-3
RISKS = (np.arange(15) + 0.5) / 15  # probabilities of the risks that a mean is taken over
TINY = 1e-9  # keeps the distribution of a risk proper
SIZES = special.ndtri((np.arange(5) + 0.5) / 5)  # the same for numbers of rows, in deviations
NO_LABELS = np.zeros(0, dtype=np.int32)  # of rows with soft labels


class FitRows(NamedTuple):
    """The rows that draw a path, with soft labels, and those with labels, mostly the same."""

    scores: Floats  # (n, k)
    soft: Floats  # (n, k) probability of each class, times the weight
    weights: Floats  # (n,) how many rows each one stands for
    labelled: Labelled


class Rates(NamedTuple):
    """What fit rows say of a rule, claim by claim; labels and soft labels."""

    abstention: float  # of all rows that draw the path
    members: Floats  # (c,) share of all rows
    certain: Floats  # (c,) share of these, soft
    risk: Floats  # (c,) soft; 1 without certain rows
    n_members: Floats  # (c,) labelled rows
    n_certain: Floats  # (c,)
    n_wrong: Floats  # (c,)


def measure(
    rule: ThresholdRule | OptimalRule, fit: FitRows, constraints: Sequence[Constraint]
) -> Rates:
    """Return what the fit rows say of a rule."""
    claims = claim_members(constraints, fit.scores.shape[1])
    sets = make_sets(rule, fit.scores)
    soft = counts.count_sets(sets, NO_LABELS, fit.soft, fit.weights)
    rows = fit.labelled
    if rows.scores is not fit.scores:
        sets = make_sets(rule, rows.scores)
    hard = counts.count_rows(sets, rows)
    members, certain, wrong = (claims @ each for each in (hard.members, hard.certain, hard.wrong))
    soft_members, soft_certain, soft_wrong = (
        claims @ each for each in (soft.members, soft.certain, soft.wrong)
    )
    share = members / rows.weights.sum()
    worth = np.ones(len(claims))  # independent rows for each unit of weight
    if not rows.counted:
        squared = counts.count_sets(sets, rows.labels, rows.soft, rows.weights**2)
        worth = _ratio(members, claims @ squared.members, 1.0)
    return Rates(
        abstention=float(1.0 - soft.all_certain / fit.weights.sum()),
        members=share,
        certain=_ratio(soft_certain, soft_members, 0.0),
        risk=np.clip(_ratio(soft_wrong, soft_certain, 1.0), 0.0, 1.0),
        n_members=worth * members,
        n_certain=worth * certain,
        n_wrong=worth * wrong,
    )


def _ratio(part: Floats, whole: Floats, otherwise: float) -> Floats:
    return np.divide(part, whole, out=np.full(len(whole), otherwise), where=whole > 0)


def soft_worth(recalibration: Recalibration) -> float:
    """Return how many labelled rows a soft rate is worth, by how much the scores were changed."""
    if recalibration.of == "raw":  # slopes of scores that are no probabilities say nothing
        return LEAST_WORTH
    slopes = np.maximum(recalibration.slopes, LEAST_RATIO)
    changed = float(np.mean(np.log(slopes) ** 2))
    return float(np.clip(WORTH / max(changed, TINY), LEAST_WORTH, MOST_WORTH))


def steady_worth(worth: float) -> float:
    """Return how many rows a soft rate counts as where rules are chosen, not only judged."""
    return max(MORE_WORTH * worth, LEAST_STEADY)


def error_ratios(
    rates: Rates, constraints: Sequence[Constraint], margin: Margin, soft_rows: float
) -> Floats:
    """Return (c,) how many errors to expect for each soft one."""
    n, wrong = (each / _effects(constraints, margin) for each in rates[-2:])
    expected = (soft_rows * rates.risk + wrong) / (soft_rows + n)
    return np.maximum(_ratio(expected, rates.risk, 1.0), LEAST_RATIO)


def _effects(constraints: Sequence[Constraint], margin: Margin) -> Floats:
    """Return (c,) how many rows of a claim count as one."""
    effects = np.array(margin.design_effects or (1.0,) * len(constraints))
    return effects[[constraint.kind == "risk" for constraint in constraints]]


def claim_chances(
    rates: Rates,
    constraints: Sequence[Constraint],
    margin: Margin,
    *,
    soft_rows: float,
) -> Floats:
    """Return (c,) how likely each claim is to pass on the certify rows of a margin.

    Claims of the same rows tend to pass together, so the chance of all claims is at least the
    product. A soft rate counts as `soft_rows` rows.
    """
    effects = _effects(constraints, margin)
    members, n, wrong = (each / effects for each in rates[-3:])
    a = (soft_rows + MORE_WRONG) * rates.risk + wrong + TINY
    b = soft_rows * (1.0 - rates.risk) + n - wrong + TINY
    risk = special.betaincinv(a[:, None], b[:, None], RISKS)
    coverage = (soft_rows * rates.certain + n) / (soft_rows + members)
    sizes = margin.certify_rows * rates.members / effects
    doubt = np.sqrt(coverage * (1.0 - coverage) * sizes * (1.0 + sizes / (soft_rows + members)))
    rows = np.clip((sizes * coverage)[:, None] + doubt[:, None] * SIZES, 0.0, sizes[:, None])
    targets = claim_targets(constraints)
    tests = planned_tests if not margin.design_effects else smooth_tests
    tested, allowed = tests(rows, targets[:, None], 1.0 - margin.confidence)
    chances = chance_within(tested[:, :, None], allowed[:, :, None], risk[:, None, :])
    return np.asarray(chances.mean(axis=(1, 2)))
