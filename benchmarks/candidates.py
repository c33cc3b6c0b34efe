"""How often the candidates of abstentions hold the true class, beside the two highest scores.

Half of the rows calibrate (30 % of these draw the path, 70 % certify), the other half is measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.datasets import Outputs, load_kernels, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import evaluate_sets, fit_certified, predict_sets
from scrib_mlflow.errors import ScribError
from scrib_mlflow.synthetic import draw_scores

TARGET = 0.2
GENERATED = 20_000  # rows
SEEDS, QUICK_SEEDS = range(5), range(1)
LEAST_ROWS = 20  # abstentions of a class whose coverage is shown as the lowest
NAMES = ("abstains", "named", "held", "lowest class", "top two hold")


def run(data: Path | None, *, quick: bool) -> None:
    """Print a row for each set of outputs and rule, as means over splits."""
    load_kernels()
    scores, labels = draw_scores(GENERATED, seed=3000)
    sets = [Outputs("generator", scores, labels), *read_outputs(data)]
    seeds = QUICK_SEEDS if quick else SEEDS
    rows = []
    for outputs in sets:
        for rule in ("thresholds", "optimal"):
            progress(f"candidates: {outputs.name}, {rule}")
            found = [_measure(outputs, rule, seed) for seed in seeds]
            rows.append([outputs.name, rule, *_means(found)])
    print_table(
        f"Candidates, asked to hold 95 % of the abstentions of each class; targets {TARGET:.0%}, "
        f"means over {len(seeds)} splits; the lowest class of each has {LEAST_ROWS} abstentions",
        ["outputs", "rule", *NAMES],
        rows,
    )


def _measure(outputs: Outputs, rule: str, seed: int) -> tuple[float, ...] | None:
    """Return what candidates reach on the half that is measured; None where nothing abstains."""
    chosen = np.random.default_rng(seed).permutation(len(outputs.labels))
    fitted, fresh = np.array_split(chosen, 2)
    try:
        fit = fit_certified(
            outputs.scores[fitted], outputs.labels[fitted], TARGET, rule=rule, seed=seed
        )
    except ScribError as error:
        progress(f"left out: {error}")
        return None
    scores, labels = outputs.scores[fresh], outputs.labels[fresh]
    report = evaluate_sets(scores, labels, fit.rule)
    asked = np.count_nonzero(predict_sets(scores, fit.rule), axis=1) != 1
    if not asked.any():
        return None
    pairs = np.argsort(-scores[asked], axis=1, kind="stable")[:, :2]
    two = float((pairs == labels[asked, None]).any(axis=1).mean())
    known = [c.candidate_coverage for c in report.by_class.values() if c.n_named >= LEAST_ROWS]
    lowest = min(known, default=float("nan"))
    measured = report.abstention_rate, report.mean_candidates, report.candidate_coverage
    return *measured, lowest, two


def _means(found: list[tuple[float, ...] | None]) -> list[str]:
    kept = [each for each in found if each is not None]
    cells = []
    for name, column in zip(NAMES, zip(*kept, strict=True), strict=False):
        known = [value for value in column if np.isfinite(value)]
        mean = sum(known) / len(known) if known else None
        cells.append("-" if mean is None else f"{mean:.2f}" if name == "named" else f"{mean:.1%}")
    return cells or ["-"] * len(NAMES)
