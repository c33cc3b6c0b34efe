"""The paper's loss as a function of K thresholds, and what a rule really costs.

loss = 1 - certain / n + sum over classes of penalty * (class risk - target)+ ^ 2

It is the loss of the core, counted by the core: a score equal to a threshold is in, and a silent
class counts as risk 1, where the published code says infinity. Thresholds are told apart only by
the distinct scores between them, so no search is promised a loss that ties do not allow. "Never
in" is no candidate, as in the paper; "always in" is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.descent import new_state
from scrib_mlflow.core.fits import Fit, describe_rule
from scrib_mlflow.core.kernels import Objective, State, place
from scrib_mlflow.core.levels import Level, Track, build_level, everywhere
from scrib_mlflow.core.objective import Ambiguity, check_members, make_objective
from scrib_mlflow.core.problem import make_data
from scrib_mlflow.core.rows import Labelled, check_rows
from scrib_mlflow.core.rules import ThresholdRule
from scrib_mlflow.core.targets import Target, Targets, make_constraints
from scrib_mlflow.errors import InvalidLabelsError


class Surface(NamedTuple):
    """Rows under risk targets, ready to be asked for the loss of any thresholds."""

    rows: Labelled
    targets: Targets
    objective: Objective
    level: Level
    state: State  # memory of the last question; a surface is for one thread

    def cuts(self, thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cuts of thresholds; above all scores means at the highest."""
        return self.level.cuts(thresholds)

    def loss(self, thresholds: NDArray[np.float64]) -> float:
        """Return the loss at (k,) thresholds."""
        return float(place(self.level.rows, self.objective, self.state, self.cuts(thresholds)))

    def bounds(self) -> NDArray[np.float64]:
        """Return (k, 2) the lowest and highest score of each class, apart where they are equal."""
        low, high = self.rows.scores.min(axis=0), self.rows.scores.max(axis=0)
        return np.column_stack([low, np.where(high > low, high, low + 1.0)])

    def serve(self, method: str, cuts: NDArray[np.int64]) -> Fit:
        """Return what the served rule of these cuts costs, counted anew from its sets."""
        rule = ThresholdRule(thresholds=tuple(self.level.thresholds(cuts).tolist()))
        return describe_rule(method, rule, self.rows, self.targets, Ambiguity())


def open_surface(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target,
    *,
    classes: Sequence[object] | None = None,
) -> Surface:
    """Return the loss surface of labelled scores under risk targets by class."""
    rows = check_rows(scores, labels, classes, None)
    if len(rows.soft):
        msg = "labels must be one class a row, not soft labels"
        raise InvalidLabelsError(msg)
    targets = Targets(risk_targets=risk_targets)
    constraints = make_constraints(targets, rows.classes)
    class_weight = rows.class_weight()
    check_members(targets, class_weight, rows.classes)
    objective = make_objective(constraints, class_weight, Ambiguity(), None, counted=rows.counted)
    k = len(rows.classes)
    track = Track(size=False, missed=False)
    data = make_data(*rows[:4], np.arange(k))
    level = build_level(data, objective, everywhere(k), track, allow_never=False)
    return Surface(rows, targets, objective, level, new_state(level.rows, objective))


def draw_starts(surface: Surface, starts: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return (starts, k) thresholds, each drawn from the observed scores of its class."""
    n, k = surface.rows.scores.shape
    picked = random.integers(n, size=(starts, k))
    return surface.rows.scores[picked, np.arange(k)]
