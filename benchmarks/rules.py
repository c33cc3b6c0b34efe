"""The optimal rule beside thresholds and the methods they are compared with.

On the paper's generator, whose scores are the true probabilities, all are held against the least
abstention that any rule can reach; on learned models and saved outputs, against rows that no rule
was fitted on. Rules are fitted to the targets themselves, without a margin, so risks on other rows
lie a little above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import solver
from benchmarks.datasets import NOISES, Outputs, load_kernels, read_outputs
from benchmarks.solver import timed
from benchmarks.tables import print_table, progress
from scrib_mlflow import (
    Fit,
    evaluate_sets,
    fit_label,
    fit_optimal,
    fit_sgr,
    fit_shared_threshold,
    fit_thresholds,
    fit_top1,
)
from scrib_mlflow.core.dual import abstention_bound
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

TARGETS, LEARNED_TARGETS, SAVED_TARGET = (0.05, 0.1, 0.15), (0.1, 0.15), 0.1
ROWS, FEW_ROWS = 100_000, 10_000
FRESH_ROWS, FRESH_SEED = 500_000, 1_000_003
CLASSES = tuple("01234")
TRAIN_ROWS, FIT_ROWS, TEST_ROWS = 10_000, 20_000, 30_000
WEIGHTS = (0.35, 0.25, 0.15, 0.12, 0.08, 0.05)  # of the classes of learned models
CLASS_SEP = 1.0
SEEDS, FEW_SEEDS = range(3), range(1)
SPLITS = range(3)
NEARLY = 1e-3  # rows of saved scores that sum to one but for this were rounded

METHODS: dict[str, Callable[[Floats, Labels, float], Fit]] = {
    "thresholds": fit_thresholds,
    "optimal": fit_optimal,
    "SCRIB-": lambda scores, labels, target: fit_shared_threshold(
        scores, labels, risk_targets=target
    ),
    "SGR": fit_sgr,
    "LABEL": fit_label,
    "top-1": fit_top1,
}


class Reached(NamedTuple):
    """What a rule does on rows that it was not fitted on."""

    abstention: float
    worst_risk: float  # of the classes that are ever certain

    def __str__(self) -> str:
        """Return the cell of a table."""
        return f"{self.abstention:.3f} / {self.worst_risk:.3f}"


def run(data: Path | None, *, quick: bool) -> None:
    """Print the tables."""
    load_kernels()
    fit_optimal(*draw_scores(1_000))  # imports what recalibration needs
    n = FEW_ROWS if quick else ROWS
    print_table(
        f"The paper's generator, K = 5, fitted on {n:,} rows: abstention / worst class risk on "
        f"{FRESH_ROWS:,} fresh rows, by true probabilities; seconds of the fits",
        [
            *("noise", "target", "thresholds", "optimal", "without labels", "bound"),
            *("thresholds s", "optimal s", "without labels s", "thresholds / optimal s"),
        ],
        generated_rows(n),
    )
    seeds = FEW_SEEDS if quick else SEEDS
    print_table(
        f"Learned models, 6 unbalanced classes, fitted on {FIT_ROWS:,} rows: abstention / worst "
        f"class risk on {TEST_ROWS:,} others",
        ["model", "target", *METHODS],
        learned_rows(seeds),
    )
    solver.run(quick=quick)
    if data:
        print_table(
            f"Saved outputs, {SAVED_TARGET:.0%} targets, fitted on a random half of the rows: "
            f"abstention / worst class excess on the other half, means of {len(SPLITS)} splits",
            ["data", "N", "K", "thresholds", "optimal"],
            map(_saved_row, read_outputs(data)),
        )


def generated_rows(n: int) -> Iterator[list[str]]:
    """Yield a line for each noise and target."""
    for noise, sd in NOISES.items():
        rows = draw_scores(n, noise=sd)
        fresh, _ = draw_scores(FRESH_ROWS, noise=sd, seed=FRESH_SEED)
        for target in TARGETS:
            progress(f"rules: {noise}, {target:.0%}")
            yield [noise, f"{target:.0%}", *_generated_cells(*rows, fresh, target)]


def _generated_cells(scores: Floats, labels: Labels, fresh: Floats, target: float) -> list[str]:
    fits = [
        timed(lambda: fit_thresholds(scores, labels, target)),
        timed(lambda: fit_optimal(scores, labels, target)),
        timed(lambda: fit_optimal(scores, None, target)),
    ]
    constraints = make_constraints(Targets(risk_targets=target), CLASSES)
    bound = abstention_bound(
        fresh, np.ones(len(fresh)), constraints, 0, priced_by=scores, most_rows=len(scores)
    )
    cells = [str(reach(fresh, fresh, fit)) for fit, _ in fits]
    taken = [seconds for _, seconds in fits]
    times = [f"{seconds:.2f}" for seconds in taken]
    return [*cells, f"{bound:.3f}", *times, f"{taken[0] / taken[1]:.1f}"]


def learned_rows(seeds: range) -> Iterator[list[str]]:
    """Yield a line for each model, seed and target."""
    for seed in seeds:
        for name, scores, labels in learned_outputs(seed):
            fit = scores[:FIT_ROWS], labels[:FIT_ROWS]
            test = scores[FIT_ROWS:], labels[FIT_ROWS:]
            for target in LEARNED_TARGETS:
                progress(f"rules: {name}, seed {seed}, {target:.0%}")
                cells = [str(reach(*test, method(*fit, target))) for method in METHODS.values()]
                yield [f"{name}, seed {seed}", f"{target:.0%}", *cells]


def learned_outputs(seed: int) -> Iterator[Outputs]:
    """Train the models, and yield their outputs on the rows they have not seen."""
    # Imported here, because growth wants a small parent.
    from sklearn.datasets import make_classification  # noqa: PLC0415
    from sklearn.ensemble import (  # noqa: PLC0415
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # noqa: PLC0415

    features, labels = make_classification(
        TRAIN_ROWS + FIT_ROWS + TEST_ROWS,
        n_features=20,
        n_informative=10,
        n_classes=len(WEIGHTS),
        weights=list(WEIGHTS),
        class_sep=CLASS_SEP,
        random_state=seed,
    )
    for model in (
        HistGradientBoostingClassifier(max_iter=50, random_state=seed),
        RandomForestClassifier(n_estimators=100, n_jobs=2, random_state=seed),
    ):
        progress(f"rules: trains {type(model).__name__}, seed {seed}")
        with threadpool_limits(1):  # threads that wait for a busy core take several times as long
            model.fit(features[:TRAIN_ROWS], labels[:TRAIN_ROWS])
        scores = model.predict_proba(features[TRAIN_ROWS:])
        yield Outputs(type(model).__name__, scores, labels[TRAIN_ROWS:])


def reach(scores: Floats, labels: Floats | Labels, fit: Fit) -> Reached:
    """Measure a fit on labelled rows; the scores are labels where they are the truth."""
    report = evaluate_sets(scores, labels, fit)
    risks = [found.risk for found in report.by_class.values()]
    return Reached(report.abstention_rate, float(np.nanmax(risks)))


def _saved_row(outputs: Outputs) -> list[str]:
    """Fit on halves, and return the cells of the means on the other halves."""
    n, k = outputs.scores.shape
    sums = outputs.scores.sum(axis=1, keepdims=True)
    scores = np.where(np.abs(sums - 1) < NEARLY, outputs.scores / sums, outputs.scores)
    cells = []
    for name in ("thresholds", "optimal"):
        progress(f"rules: {outputs.name}, {name}")
        reached = []
        for seed in SPLITS:
            fit, test = np.array_split(np.random.default_rng(seed).permutation(n), 2)
            found = METHODS[name](scores[fit], outputs.labels[fit], SAVED_TARGET)
            reached.append(reach(scores[test], outputs.labels[test], found))
        abstention, risk = np.mean(reached, axis=0)
        cells.append(f"{abstention:.3f} / {risk - SAVED_TARGET:.3f}")
    return [outputs.name, f"{n:,}", str(k), *cells]
