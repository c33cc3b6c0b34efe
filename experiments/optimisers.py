"""The paper's comparison of optimisers: the same loss, the same rows, loss and time of each.

The scipy methods run with their default parameters on the thresholds themselves, bounded by the
lowest and highest score of each class, from ten starts drawn from the observed scores; the best is
kept. Bayesian optimisation takes 10 initial points and 100 iterations inside the same bounds. The
paper names the library only; that the thresholds and not their ranks are searched is our reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.outputs import require, why_missing
from experiments.surface import (
    METHOD,
    PROBING,
    STARTS,
    Surface,
    draw_starts,
    fit_published,
    open_surface,
)
from scrib_mlflow.core.inputs import Progress, check_rows, check_seed, labels_for
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.studies.compare import halve
from scrib_mlflow.core.targets import Target
from scrib_mlflow.errors import ScribError

BAYESIAN, OURS = "Bayesian", "ours"
SCIPY = ("TNC", "Powell", "L-BFGS-B")
OPTIMISERS = (BAYESIAN, *SCIPY, METHOD, PROBING, OURS)  # in the order of the paper's table
INITIAL_POINTS, ITERATIONS = 10, 100
MOST_SEED = 2**32  # of numpy's older generators, which bayes_opt uses


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserRun:
    """What one method reaches on the fitted half of one random split."""

    method: str
    repeat: int
    loss: float  # of the rule as it is served, on the rows it was fitted on
    evaluations: int | None  # of the loss, where it is asked for one thresholds at a time
    seconds: float = field(compare=False)  # of one processor
    seconds_ratio: float = field(compare=False)  # to ours on the same rows


class _Reached(NamedTuple):
    """What a search gives back."""

    loss: float
    evaluations: int | None = None


Search = Callable[[Surface, int], _Reached]


def skipped_optimisers() -> dict[str, str]:
    """Return the methods whose library is not installed, and what to do about it."""
    reason = why_missing("bayes_opt")
    return {BAYESIAN: reason} if reason else {}


def compare_optimisers(
    scores: ArrayLike,
    labels: ArrayLike,
    targets: Target,
    *,
    classes: Sequence[object] | None = None,
    methods: Sequence[str] | None = None,
    repeats: int = 40,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[OptimiserRun, ...]:
    """Minimise the paper's loss with every method on random halves of the rows.

    Parameters
    ----------
    scores, labels, classes
        As for `fit_thresholds`; labels are hard.
    targets : float or mapping
        Risk targets by class.
    methods : sequence of str, optional
        Some of `OPTIMISERS`; ours always runs, for times are told beside it. Without them, all that
        are installed (`skipped_optimisers` says which are not).
    repeats : int
        Random splits; the paper made 40.
    seed : int
        Of the splits and of the searches.
    progress : callable, optional
        Takes the numbers of the repeats and yields them, saying how far the work is.

    Returns
    -------
    tuple of OptimiserRun
        Repeat by repeat, in the order of `OPTIMISERS`. Every method has one thread.
    """
    rows = check_rows(scores, labels, classes, None)
    open_surface(scores, labels, targets, classes=classes)  # says what is wrong with them
    if repeats < 1:
        raise ScribError(f"repeats is {repeats}, but must be 1 or more")
    check_seed(seed)
    searches = _searches(methods)
    named = labels_for(rows.labels, rows.classes)
    every = range(len(rows.classes))
    turns = list(range(repeats))
    runs: list[OptimiserRun] = []
    for repeat in progress(turns) if progress else turns:
        part = halve(rows, None, every, np.random.default_rng([seed, repeat]))
        surface = open_surface(rows.scores[part], named[part], targets, classes=rows.classes)
        if not runs:
            _warm_up(searches, surface)
        runs += _run_all(searches, surface, repeat, _search_seed(seed, repeat))
    return tuple(runs)


def minimise_with_scipy(surface: Surface, method: str, seed: int) -> _Reached:
    """Return the best of ten starts of a scipy method, and how often it asked for the loss."""
    from scipy.optimize import minimize  # noqa: PLC0415  # takes a while

    starts = draw_starts(surface, STARTS, np.random.default_rng(seed))
    bounds = surface.bounds()
    ends = [minimize(surface.loss, start, method=method, bounds=bounds) for start in starts]
    best = min(ends, key=lambda end: end.fun)
    return _served(surface, method, best.x, sum(int(end.nfev) for end in ends))


def minimise_with_bayes(surface: Surface, seed: int, *, iterations: int = ITERATIONS) -> _Reached:
    """Return what Bayesian optimisation with Gaussian processes reaches."""
    require("bayes_opt")
    from bayes_opt import BayesianOptimization  # noqa: PLC0415  # an extra
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # comes with scikit-learn

    names = [f"t{j:03d}" for j in range(surface.rows.scores.shape[1])]

    def gain(**at: float) -> float:
        return -surface.loss(np.array([at[name] for name in names]))

    search = BayesianOptimization(
        f=gain,
        pbounds={name: tuple(pair) for name, pair in zip(names, surface.bounds(), strict=True)},
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    with threadpool_limits(limits=1):
        search.maximize(init_points=INITIAL_POINTS, n_iter=iterations)
    best: Mapping[str, float] = search.max["params"]
    at = np.array([best[name] for name in names])
    return _served(surface, BAYESIAN, at, INITIAL_POINTS + iterations)


def _searches(methods: Sequence[str] | None) -> dict[str, Search]:
    """Return the searches asked for, in the order of the table; ours is always among them."""
    if methods is None:
        methods = [name for name in OPTIMISERS if name not in skipped_optimisers()]
    for name in methods:
        if name not in OPTIMISERS:
            raise ScribError(
                f"methods names the unknown {name!r}; known are {', '.join(OPTIMISERS)}"
            )
    if BAYESIAN in methods:
        require("bayes_opt")
    known: dict[str, Search] = {
        BAYESIAN: minimise_with_bayes,
        **{name: partial(_scipy, name) for name in SCIPY},
        METHOD: partial(_published, 0),
        PROBING: partial(_published, None),
        OURS: _ours,
    }
    return {name: known[name] for name in OPTIMISERS if name in methods or name == OURS}


def _scipy(method: str, surface: Surface, seed: int) -> _Reached:
    return minimise_with_scipy(surface, method, seed)


def _published(probes: int | None, surface: Surface, seed: int) -> _Reached:
    options = {} if probes is None else {"probes": probes}
    return _Reached(fit_published(surface, seed=seed, **options).loss)


def _ours(surface: Surface, seed: int) -> _Reached:
    rows = surface.rows
    labels = labels_for(rows.labels, rows.classes)
    asked: Any = surface.targets.risk_targets
    fit = fit_thresholds(rows.scores, labels, asked, classes=rows.classes, seed=seed, threads=1)
    return _Reached(fit.loss)


def _served(
    surface: Surface, method: str, thresholds: NDArray[np.float64], evaluations: int
) -> _Reached:
    """Return the loss of the rule as it is served, whatever the search believed."""
    return _Reached(surface.serve(method, surface.cuts(thresholds)).loss, evaluations)


def _run_all(
    searches: Mapping[str, Search],
    surface: Surface,
    repeat: int,
    seed: int,
) -> list[OptimiserRun]:
    """Run every search on one half."""
    reached, seconds = {}, {}
    for name, search in searches.items():
        started = time.process_time()
        reached[name] = search(surface, seed)
        seconds[name] = time.process_time() - started
    return [
        OptimiserRun(
            method=name,
            repeat=repeat,
            loss=found.loss,
            evaluations=found.evaluations,
            seconds=seconds[name],
            seconds_ratio=seconds[name] / seconds[OURS],
        )
        for name, found in reached.items()
    ]


def _warm_up(searches: Mapping[str, Search], surface: Surface) -> None:
    """Compile, load and import what the searches use, so that no time holds it."""
    _ours(surface, 0)
    fit_published(surface, starts=1, probes=1)
    import_module("scipy.optimize")
    if BAYESIAN in searches:
        import_module("bayes_opt")


def _search_seed(seed: int, repeat: int) -> int:
    return int(np.random.default_rng([seed, repeat]).integers(MOST_SEED))
