"""From constraints to requirements that can be priced, and from prices to rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.dual import (
    RANGE_TOLERANCE,
    Requirements,
    are_probabilities,
    prices,
    risk_requirements,
)
from scrib_mlflow.core.recalibrate import Recalibration
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.targets import Constraint, Target
from scrib_mlflow.errors import InvalidScoresError

Floats = NDArray[np.float64]

MANY_CLASSES = 20  # from here on classes with
FEW_ROWS = 30  # fewer rows than this share a multiplier, unless their target is their own
SHIFTS = (0.0, 0.02, -0.02)  # of all values, for rows that are alike


def check_probabilities(scores: Floats) -> Floats:
    """Return the scores, or say why they cannot be probabilities."""
    if are_probabilities(scores):
        return scores
    far = np.abs(np.clip(scores, 0.0, 1.0) - scores).max(axis=1)
    worst = int(np.argmax(far))
    what, advice = (
        "leaves [0, 1]",
        "make probabilities of logits by softmax (score_transform=softmax)",
    )
    if not far[worst] > RANGE_TOLERANCE:
        worst = int(np.argmax(np.abs(scores.sum(axis=1) - 1)))
        what = f"sums to {scores[worst].sum():g}"
        advice = "let the model give every class its probability"
    msg = (
        f"the scores are no probabilities, which the optimal rule needs: row {worst} {what}; "
        f"{advice}, or fit thresholds, which take any scores (rule=thresholds)"
    )
    raise InvalidScoresError(msg)


def own_targets(risk_targets: Target | None) -> frozenset[str]:
    """Return the classes whose target is given by name."""
    return frozenset(map(str, risk_targets)) if isinstance(risk_targets, Mapping) else frozenset()


def shared_multipliers(
    constraints: Sequence[Constraint],
    class_weight: Floats,
    own: frozenset[str],
    *,
    share: bool | None = None,
) -> Floats:
    """Return (g, c) which constraints have one multiplier together; mostly each has its own.

    The risks of few rows are noise, and prices made for each of them fit that noise.
    """
    many = len(class_weight) >= MANY_CLASSES
    together: dict[object, list[int]] = {}
    for c, constraint in enumerate(constraints):
        rows = class_weight[list(constraint.classes)].sum()
        joins = len(constraint.classes) == 1 and constraint.name not in own
        joins &= (many and rows < FEW_ROWS) if share is None else share
        key = (constraint.kind, constraint.target) if joins else c
        together.setdefault(key, []).append(c)
    found = np.zeros((len(together), len(constraints)))
    for g, members in enumerate(together.values()):
        found[g, members] = 1.0
    return found


def make_requirements(
    constraints: Sequence[Constraint], class_share: Floats, aims: Floats | None = None
) -> Requirements:
    """Return what constraints ask of a rule, in their order, with other targets where given."""
    k = len(class_share)
    aimed = constraints
    if aims is not None:
        aimed = [replace(c, target=float(t)) for c, t in zip(constraints, aims, strict=True)]
    needs = [np.zeros((len(aimed), k)), np.zeros((len(aimed), k)), np.zeros(len(aimed))]
    risks = [c for c, constraint in enumerate(aimed) if constraint.kind == "risk"]
    for part, found in zip(needs, risk_requirements(aimed, k), strict=True):
        part[risks] = found
    for c, constraint in enumerate(aimed):
        if constraint.kind == "abstention":  # answers, of the rows of these classes
            classes = list(constraint.classes)
            needs[1][c, classes] = -1.0
            needs[2][c] = (1.0 - constraint.target) * class_share[classes].sum()
    return Requirements(*needs)


def make_rule(
    needs: Requirements, multipliers: Floats, recalibration: Recalibration | None
) -> OptimalRule:
    """Return the rule of solved multipliers; its candidates are two until they are calibrated."""
    worth, charge = prices(needs, multipliers)
    return OptimalRule(
        multipliers=tuple(worth.tolist()),
        charges=tuple(charge.tolist()),
        recalibration=recalibration,
        candidate_thresholds=(float("inf"),) * len(worth),
    )


def make_rules(
    needs: Requirements,
    multipliers: Floats,
    recalibration: Recalibration | None,
    *,
    tied: bool,
) -> list[OptimalRule]:
    """Return the rule of solved multipliers; where scores are tied, also its neighbours.

    Rows that are alike can all lie where answering neither pays nor costs. The solver answers a
    share of them; a rule must answer all or none, and its neighbours do the one and the other.
    """
    rule = make_rule(needs, multipliers, recalibration)
    if not tied:
        return [rule]
    return [
        replace(
            rule,
            multipliers=tuple(each / (1.0 + shift) for each in rule.multipliers),
            charges=tuple(each / (1.0 + shift) for each in rule.charges),
        )
        for shift in SHIFTS
    ]
