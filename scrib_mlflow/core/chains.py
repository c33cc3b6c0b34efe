"""Chains: thresholds followed from one objective to the next, so that neighbours resemble."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.descent import EVERY_PAIR
from scrib_mlflow.core.kernels import place
from scrib_mlflow.core.levels import everywhere
from scrib_mlflow.core.ranks import Ranks, rank_scores
from scrib_mlflow.core.search import Best, Task, Tools, open_level, run_descent

Progress = Callable[[Iterable[int]], Iterable[int]]
FEW_ENTRIES = 100_000  # rows times thresholds: up to here every score is a candidate at each step
WINDOW = 2.0  # in windows of a fit
MOST_WINDOWS = 3


class Chain(NamedTuple):
    """Objectives in order, and the thresholds to start from."""

    tasks: Sequence[Task]  # of the same data
    thresholds: NDArray[np.float64]  # (g,)


def follow(chains: Sequence[Chain], threads: int, progress: Progress | None) -> list[list[Best]]:
    """Descend under the objectives of each chain, each from where the one before ended."""
    data = next(chain.tasks[0].data for chain in chains if chain.tasks)
    few = len(data.scores) * len(data.thresholds) <= FEW_ENTRIES
    ranks = None if few else rank_scores(data)
    found: list[list[Best]] = [[] for _ in chains]
    tools: list[Tools | None] = [None] * len(chains)

    def step(number: int, turn: int) -> None:
        chain = chains[number]
        task = chain.tasks[turn]
        thresholds = found[number][-1].thresholds if turn else chain.thresholds
        if ranks is not None:
            found[number].append(_descend_in_windows(task, thresholds, ranks, number))
            return
        opened = tools[number] or _open_everywhere(task, number)
        tools[number] = opened
        found[number].append(_descend(task, opened, thresholds))

    with ThreadPoolExecutor(threads) as pool:
        turns: Iterable[int] = range(max(len(chain.tasks) for chain in chains))
        for turn in progress(turns) if progress else turns:
            moving = [number for number, chain in enumerate(chains) if turn < len(chain.tasks)]
            list(pool.map(step, moving, [turn] * len(moving)))
    return found


def _open_everywhere(task: Task, number: int) -> Tools:
    """Return a level that serves every objective of the same constraints."""
    return open_level(
        task, task.data, everywhere(len(task.data.thresholds)), task.random(4, number)
    )


def _descend_in_windows(
    task: Task, thresholds: NDArray[np.float64], ranks: Ranks, number: int
) -> Best:
    """Descend in windows that move on until the thresholds lie inside."""
    for _ in range(MOST_WINDOWS):
        window = ranks.window(thresholds, WINDOW)
        best = _descend(
            task, open_level(task, task.data, window, task.random(4, number)), thresholds
        )
        thresholds = best.thresholds
        edges = (thresholds == window.low) | (thresholds == window.high)
        if not (edges & np.isfinite(thresholds)).any():
            break
    return best


def _descend(task: Task, tools: Tools, thresholds: NDArray[np.float64]) -> Best:
    level, state = tools.level, tools.state
    run_descent(tools, task.objective, level.cuts(thresholds), EVERY_PAIR)
    cuts = state.cuts.copy()
    loss = float(place(level.rows, task.objective, state, cuts))
    return Best(loss, level.thresholds(cuts), state.counts.copy(), state.totals.copy(), ())
