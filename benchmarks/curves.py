"""Accuracy-ambiguity curves: the areas that the paper reports, and what drawing them costs.

The paper does not say which end points it added to its curves. Beside the area between ours stands
that of curves which begin at accuracy 0 without abstention: there a method gains by coming near.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.datasets import NOISES, load_kernels
from benchmarks.solver import timed
from benchmarks.tables import print_table, progress
from scrib_mlflow.core.studies import Curve, compare_rules, draw_curves
from scrib_mlflow.core.studies.baselines import OPTIMAL, SCRIB, SGR, SHARED
from scrib_mlflow.core.studies.curves import EFFORT, anchored, area
from scrib_mlflow.synthetic import draw_scores

ROWS, MANY_ROWS = 10_000, 50_000
DRAWS, FEW_DRAWS, EFFORT_DRAWS = range(20), range(2), range(3)
PAPER = {SCRIB: ("89.89 ± 0.43", "0.71 ± 0.20"), SGR: ("90.12 ± 0.43", "0.72 ± 0.40")}


def run(*, quick: bool) -> None:
    """Print the tables."""
    load_kernels()
    draws = FEW_DRAWS if quick else DRAWS
    print_table(
        f"The paper's generator, K = 5, fitted on {ROWS:,} rows and measured on {ROWS:,}: AUC and "
        f"RMSE of the overall risk, in %, mean ± standard deviation of {len(draws)} draws",
        ["noise", "method", "AUC", "AUC from (0, 0)", "paper's", "RMSE", "paper's"],
        area_rows(draws),
    )
    print_table(
        f"SCRIB's curve by effort of its searches, {len(EFFORT_DRAWS)} draws of the same",
        ["noise", "effort", "AUC", "RMSE", "s"],
        effort_rows(EFFORT_DRAWS),
    )
    print_table(
        f"compare of {MANY_ROWS:,} rows, K = 5, one split",
        ["noise", "without curves, s", "with its curves, s"],
        cost_rows(),
    )


def area_rows(draws: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield the areas of all methods beside the paper's."""
    for name, noise in NOISES.items():
        found = [_draw(noise, seed) for seed in draws]
        for place, method in enumerate((SCRIB, OPTIMAL, SHARED, SGR)):
            curves = [each[place] for each in found]
            paper, paper_rmse = PAPER.get(method, ("", ""))
            areas, rmses = [each.auc for each in curves], [each.rmse for each in curves]
            low = [area(*anchored(each.ambiguity, each.risk, 1.0)) for each in curves]
            yield (
                *(name, method, _spread(areas), _spread(low), paper),
                *(_spread(rmses), paper_rmse),
            )


def effort_rows(draws: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield what less effort costs in area and saves in time."""
    for name, noise in NOISES.items():
        for effort in (1.0, EFFORT):
            taken, curves = [], []
            for seed in draws:
                step = partial(_draw, noise, seed, methods=[SCRIB], effort=effort)
                (curve,), seconds = timed(step)
                taken.append(seconds)
                curves.append(curve)
            areas, rmses = [each.auc for each in curves], [each.rmse for each in curves]
            yield name, f"{effort:g}", _spread(areas), _spread(rmses), f"{np.mean(taken):.1f}"


def cost_rows() -> Iterator[Sequence[str]]:
    """Yield how long a comparison takes with and without curves."""
    for name, noise in NOISES.items():
        rows = draw_scores(MANY_ROWS, noise=noise)
        compared = partial(compare_rules, *rows, 0.15, repeats=1)
        times = [timed(partial(compared, curves=n))[1] for n in (0, 1)]
        yield name, *(f"{seconds:.1f}" for seconds in times)


def _draw(noise: float, seed: int, **options: object) -> tuple[Curve, ...]:
    progress(f"curves, noise {noise:.3g}, draw {seed}")
    scores, labels = draw_scores(2 * ROWS, noise=noise, seed=seed)
    parts = scores[:ROWS], labels[:ROWS], scores[ROWS:], labels[ROWS:]
    return draw_curves(*parts, **options)


def _spread(rates: Sequence[float]) -> str:
    return f"{100 * np.mean(rates):.2f} ± {100 * np.std(rates, ddof=1):.2f}"
