"""The paper's loss as a function of K thresholds, and its own greedy descent on it.

loss = 1 - certain / n + sum over classes of penalty * (class risk - target)+ ^ 2

It is the loss of the core, counted by the core: a score equal to a threshold is in, and a silent
class counts as risk 1, where the published code says infinity. "Never in" is no candidate, as in
the paper; "always in" is one.

The descent is Algorithms 1 and 2, written from the paper's text.

A start is drawn from the observed scores. A round sweeps every class over all its cuts and
applies the single best move; rounds end when none improves. Ten starts, the best kept.

Probing follows each descent: 1,000 random thresholds, each class drawn within 10 % of the ranks
around the optimum. The text does not say what a better one leads to; here, as in the published
code, the descent goes on from it and probing begins anew, until 1,000 misses in a row.

It runs on the core's counters and sweeps, which is kinder than the published code in three ways:
losses are those between distinct scores, a silent class is finite, and a step of a sweep costs
O(1), not O(K). Times beside ours therefore compare searches, not code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Labelled, check_rows
from scrib_mlflow.core.loss import Objective, describe_rule, make_objective, make_problem
from scrib_mlflow.core.rules import Fit, ThresholdRule
from scrib_mlflow.core.search.kernels import HIGHEST, OFFSET, State, move, place, walk
from scrib_mlflow.core.search.levels import Level, Track, build_level, everywhere, make_data
from scrib_mlflow.core.search.pairs import LEAST_GAIN, new_scratch, new_state
from scrib_mlflow.core.targets import Target, Targets

METHOD, PROBING = "greedy", "greedy + probing"
STARTS, PROBES = 10, 1000
REACH = 0.1  # of the rows, either way


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
        return describe_rule(method, rule, self.rows, self.targets)


def open_surface(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target,
    *,
    classes: Sequence[object] | None = None,
) -> Surface:
    """Return the loss surface of labelled scores under risk targets by class."""
    rows = check_rows(scores, labels, classes, hard=True)
    targets = Targets(risk_targets=risk_targets)
    objective = make_objective(make_problem(rows, targets))
    k = len(rows.classes)
    track = Track(size=False, missed=False)
    data = make_data(rows, np.arange(k))
    level = build_level(data, objective, everywhere(k), track, allow_never=False)
    return Surface(rows, targets, objective, level, new_state(level.rows, objective))


def draw_starts(surface: Surface, starts: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return (starts, k) thresholds, each drawn from the observed scores of its class."""
    n, k = surface.rows.scores.shape
    picked = random.integers(n, size=(starts, k))
    return surface.rows.scores[picked, np.arange(k)]


def fit_published(
    surface: Surface, *, starts: int = STARTS, probes: int = PROBES, seed: int = 0
) -> Fit:
    """Return the best rule of the paper's search; no probes for the variant "Ours-"."""
    random = np.random.default_rng(seed)
    best, least = np.zeros(0, dtype=np.int64), np.inf
    for start in draw_starts(surface, starts, random):
        cuts, loss = _descend(surface, surface.cuts(start), probes, random)
        if loss < least:
            best, least = cuts, loss
    return surface.serve(PROBING if probes else METHOD, best)


def _descend(
    surface: Surface, cuts: NDArray[np.int64], probes: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """Return where a descent ends, and its loss."""
    rows, objective, state = surface.level.rows, surface.objective, surface.state
    scratch = new_scratch(rows, objective, 0)
    while True:
        loss = float(greedy(rows, objective, state, scratch, cuts))
        cuts = state.cuts.copy()
        trial = cuts.copy()
        draws = random.random((probes, len(cuts)))
        if not probe(rows, objective, state, cuts, loss, draws, trial):
            return cuts, loss
        cuts = trial


@kernel
def greedy(rows, objective, state, scratch, cuts):
    """Apply the single best move of all classes until none helps; return the loss."""
    loss = place(rows, objective, state, cuts)
    while True:
        best, best_group, best_cut = loss - LEAST_GAIN, -1, 0
        for g in range(len(cuts)):
            cut, found = state.cuts[g], loss
            for step in (1, -1):
                cut, found = walk(rows, objective, state, scratch, g, step, cut, found, np.inf)
            if found < best:
                best, best_group, best_cut = found, g, cut
        if best_group < 0:
            return loss
        old = state.cuts[best_group]
        after = move(rows, objective, state, best_group, best_cut)
        if not after < loss:  # a gain that was rounding
            return move(rows, objective, state, best_group, old)
        loss = after


@kernel
def probe(rows, objective, state, cuts, loss, draws, trial):
    """Leave in `trial` the first of the draws (m, k), in 0..1, that is better; return if any is."""
    n = rows.positions.shape[1]
    reach = np.int64(REACH * n)
    for m in range(len(draws)):
        for g in range(len(cuts)):
            offset = rows.groups[g, OFFSET]
            first = rows.entry_start[offset]
            rank = rows.entry_start[offset + cuts[g]] - first
            low = max(rank - reach, 0)
            high = min(rank + reach, n - 1)
            drawn = min(low + np.int64(draws[m, g] * (high - low + 1)), high)
            at = rows.positions[g, rows.entry_row[first + drawn]]
            trial[g] = min(at, rows.groups[g, HIGHEST])
        if place(rows, objective, state, trial) < loss - LEAST_GAIN:
            return True
    return False
