"""The optimal rule's solver: against linear programs on the same rows, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import starmap
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_optimal
from scrib_mlflow.synthetic import SIGNAL, draw_scores

Floats = NDArray[np.float64]
Found = TypeVar("Found")

TARGET = 0.1
PROGRAMS = ((300, 5), (800, 5), (800, 10))  # rows and classes
SIZES = ((100_000, 5), (20_000, 20))
LARGE = ((7_500, 150), (20_000, 1_000))  # in the last, classes share one multiplier
RAISED = {5: 0.0, 10: 2.0, 20: 4.0, 150: 9.0, 1_000: 12.0}  # so that most rows are answered


def run(*, quick: bool) -> None:
    """Print how far the solver ends from linear programs, and its seconds."""
    print_table(
        f"Largest certain rate within {TARGET:.0%} targets, sd 3: the dual of the optimal rule, "
        "without labels, and a linear program (HiGHS)",
        [
            *("N", "K", "program", "dual", "relative difference", "primal gap in rows"),
            *("dual s", "program s"),
        ],
        starmap(_compare, PROGRAMS),
    )
    print_table(
        f"Fits of the optimal rule without labels, {TARGET:.0%} targets, sd 3",
        ["N", "K", "bound", "primal gap in rows", "seconds"],
        starmap(_time, SIZES if quick else SIZES + LARGE),
    )


def most_certain(chances: Floats, target: float) -> float:
    """Return how often a rule that may toss coins can be certain within the target."""
    from scipy import optimize, sparse  # noqa: PLC0415  # growth wants a small parent

    n, k = chances.shape
    wrong = (1 - target) * chances.T[:, :, None] - chances.T[:, :, None] * np.eye(k)[:, None, :]
    solved = optimize.linprog(
        np.full(n * k, -1.0 / n),
        A_ub=sparse.vstack([wrong.reshape(k, n * k), sparse.kron(sparse.eye(n), np.ones(k))]),
        b_ub=np.repeat([0.0, 1.0], [k, n]),
        method="highs",
    )
    return float(-solved.fun)


def draw(n: int, k: int) -> Floats:
    """Draw an easy class, a hard one and middling ones, all raised the more classes there are."""
    signal = RAISED[k] + np.array([*SIGNAL, *SIGNAL[-1:] * (k - len(SIGNAL))])
    return draw_scores(n, signal=signal.tolist())[0]


def timed(step: Callable[[], Found]) -> tuple[Found, float]:
    """Return what a step finds, and its seconds."""
    start = time.perf_counter()
    found = step()
    return found, time.perf_counter() - start


def _compare(n: int, k: int) -> list[str]:
    progress(f"solver: linear program, N = {n:,}, K = {k}")
    chances = draw(n, k)
    fit, taken = timed(lambda: fit_optimal(chances, None, TARGET))
    program, taken_by_program = timed(lambda: most_certain(chances, TARGET))
    dual = 1 - fit.abstention_bound
    return [
        *(f"{n:,}", str(k), f"{program:.6f}", f"{dual:.6f}", f"{dual / program - 1:.1e}"),
        *(f"{n * fit.primal_gap:.2f}", f"{taken:.3f}", f"{taken_by_program:.3f}"),
    ]


def _time(n: int, k: int) -> list[str]:
    progress(f"solver: N = {n:,}, K = {k}")
    chances = draw(n, k)
    fit, taken = timed(lambda: fit_optimal(chances, None, TARGET))
    gap = f"{n * fit.primal_gap:.1f}"
    return [f"{n:,}", str(k), f"{fit.abstention_bound:.3f}", gap, f"{taken:.2f}"]
