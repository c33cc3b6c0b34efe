"""What pair moves are worth: where random starts end with and without them."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.tables import print_table
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.loss import make_objective, make_problem
from scrib_mlflow.core.search.kernels import HIGHEST
from scrib_mlflow.core.search.levels import Track, Window, build_level, make_data
from scrib_mlflow.core.search.pairs import EVERY_PAIR, descend, new_scratch, new_state
from scrib_mlflow.core.targets import Targets
from scrib_mlflow.synthetic import draw_scores

STARTS = 60


def run() -> None:
    """Print the losses at which descents from random starts end."""
    rows = []
    for n in (2_000, 10_000):
        for name, limit in (("sweeps alone", 0), ("sweeps and pairs", EVERY_PAIR)):
            losses = np.sort(_end_losses(n, limit))
            quantiles = losses[[0, STARTS // 10, STARTS // 2, -1]]
            rows.append([f"{n:,}", name, *(f"{loss:.4f}" for loss in quantiles)])
    header = ["N", "moves", "best", "lowest tenth", "median", "worst"]
    print_table(f"Losses of {STARTS} random starts (sd 3, 10 % targets)", header, rows)


def _end_losses(n: int, limit: int) -> list[float]:
    """Return where descents from random cuts end; at most `limit` pairs are tried."""
    scores, labels = draw_scores(n)
    k = scores.shape[1]
    rows = check_rows(scores, labels)
    data = make_data(rows, np.arange(k))
    objective = make_objective(make_problem(rows, Targets()))
    everywhere = Window(np.full(k, -np.inf), np.full(k, np.inf))
    level = build_level(data, objective, everywhere, Track(False, False), allow_never=False)
    pairs = np.array(list(itertools.combinations(range(k), 2)), dtype=np.int64)
    state, scratch = (
        new_state(level.rows, objective),
        new_scratch(level.rows, objective, len(pairs)),
    )
    random = np.random.default_rng(0)
    highest = level.rows.groups[:, HIGHEST]
    starts = [(highest * random.random(k)).astype(np.int64) for _ in range(STARTS)]
    return [
        float(descend(level.rows, objective, state, scratch, cuts, pairs, limit, 0))
        for cuts in starts
    ]
