"""How much of a rule's abstention its scores make inevitable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scrib_mlflow.core.counts import add_counts, constraint_counts, count_sets
from scrib_mlflow.core.dual import abstention_bound
from scrib_mlflow.core.inputs import Floats, row_blocks
from scrib_mlflow.core.loss import CERTAIN, RIGHT
from scrib_mlflow.core.optimal.recalibration import recalibrate
from scrib_mlflow.core.rules import Recalibration, Rule, make_sets
from scrib_mlflow.core.targets import Constraint, claimed

MOST_ROWS = 20_000  # that prices are taken from
LEAST_RISK = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionGap:
    """A rule's abstention beside the least that any rule of these scores can reach.

    All by soft counts: recalibrated scores take the place of labels.
    """

    abstention_rate: float  # of the rule
    bound: float  # of any rule that keeps the targets
    bound_at_risks: float  # of any rule whose risks are not above this rule's
    n_rows: int


def measure_gap(
    rule: Rule,
    scores: Floats,
    constraints: Sequence[Constraint],
    recalibration: Recalibration,
    fit_scores: Floats,
    seed: int,
    fit_weights: Floats | None = None,
) -> AbstentionGap:
    """Hold a rule against the best possible on rows whose labels are not looked at.

    Prices come from `fit_scores`, so that on other rows the bounds do not flatter. The weights of
    the fit rows count in the prices, and in all else where they are the rows themselves.
    """
    risks = claimed(constraints)
    chances = recalibrate(recalibration, scores)
    same = fit_scores is scores
    weights = np.ones(len(scores)) if fit_weights is None or not same else fit_weights
    no_labels = np.zeros(0, dtype=np.int32)
    counts = add_counts(
        count_sets(
            make_sets(rule, scores[of]), no_labels, chances[of] * weights[of, None], weights[of]
        )
        for of in row_blocks(len(scores))
    )
    by_risk, _ = constraint_counts(counts, risks)
    reached = []
    for constraint, counters in zip(risks, by_risk, strict=True):
        if counters[CERTAIN] > 0:  # a rule that never answers has no risk
            risk = 1.0 - counters[RIGHT] / counters[CERTAIN]
            reached.append(replace(constraint, target=float(np.clip(risk, LEAST_RISK, 1.0))))
    bound = partial(
        abstention_bound,
        chances,
        weights,
        seed=seed,
        priced_by=chances if same else recalibrate(recalibration, fit_scores),
        price_weights=fit_weights,
        most_rows=MOST_ROWS,
    )
    least = bound(risks)
    return AbstentionGap(
        abstention_rate=float(1.0 - counts.all_certain / weights.sum()),
        bound=least,
        bound_at_risks=bound(reached) if reached else least,
        n_rows=len(scores),
    )
