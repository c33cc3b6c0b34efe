"""What a price of wrong answers costs in abstention and saves in errors.

Class targets alone let a rule turn right answers of top-1 into wrong ones, up to what the targets
allow. Rules are fitted on half of the rows and measured on the other half, without a margin. Beside
weights of errors stand two other remedies of the optimal rule: only the most probable class may be
answered, and the overall risk is capped at that of top-1 on the rows that are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.datasets import Outputs, load_kernels, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_optimal, fit_thresholds, predict_sets
from scrib_mlflow.core import newton
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.optimal.fit import make_requirements
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TARGETS = (0.1, 0.2)
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
FEW_WEIGHTS = (0.0, 1.0, 3.0)
SEEDS = range(3)
ROWS = 40_000  # of the generator
LEAST_ROWS = 50  # of a class in the fit half; classes with fewer are waived
SMOOTHINGS = (0.3, 0.1, 0.03, 0.01, 0.003)
CAP_ROUNDS = 6  # in which the cap on the overall risk settles
FITS = {"optimal": fit_optimal, "thresholds": fit_thresholds}


class Half(NamedTuple):
    """Rows that are fitted or measured."""

    scores: Floats  # (n, k)
    labels: Ints  # (n,)


class Asked(NamedTuple):
    """What is asked of a rule."""

    target: float
    waive: tuple[str, ...]


Answers = Callable[[Floats], Ints]  # of scores, (n,) the class that is answered, -1 for none


def run(data: Path | None, *, quick: bool) -> None:
    """Print a table for each rule, set and target."""
    load_kernels()
    weights, seeds = (FEW_WEIGHTS, SEEDS[:1]) if quick else (WEIGHTS, SEEDS)
    scores, labels = draw_scores(ROWS, noise=3**0.5)
    sets = [Outputs("generator, variance 3", scores, labels), *read_outputs(data)]
    for rule in FITS:
        for outputs in sets:
            for target in TARGETS:
                print_table(
                    f"{outputs.name}, rule={rule}, {target:.0%} targets: rates on the half that "
                    f"was not fitted, means of {len(seeds)} splits; flips of 10,000 rows",
                    [
                        *("error_weight", "abstention", "wrong answers", "top-1 on the same"),
                        *(
                            "top-1 on all",
                            "right to wrong",
                            "wrong to right",
                            "worst risk / target",
                        ),
                    ],
                    table_rows(rule, outputs, target, weights, seeds),
                )


def table_rows(
    rule: str, outputs: Outputs, target: float, weights: tuple[float, ...], seeds: range
) -> Iterator[list[str]]:
    """Yield a line for each weight and, for the optimal rule, for each other remedy."""
    methods: dict[str, Callable[[Half, Asked], Answers]] = {
        f"{weight:g}": partial(_fit, rule, weight) for weight in weights
    }
    if rule == "optimal":
        methods["0, most probable score only"] = partial(_top_only, recalibrated=False)
        methods["0, most probable class only"] = partial(_top_only, recalibrated=True)
        methods["0, capped at top-1's risk"] = _capped
    halves = [split(outputs, seed) for seed in seeds]
    for name, method in methods.items():
        progress(f"errors: {rule}, {outputs.name}, {target:.0%}, {name}")
        found = []
        for fit, test in halves:
            few = np.flatnonzero(
                np.bincount(fit.labels, minlength=fit.scores.shape[1]) < LEAST_ROWS
            )
            if len(few) == fit.scores.shape[1]:
                return
            asked = Asked(target, tuple(map(str, few)))
            found.append(measure(method(fit, asked), test, asked))
        rates = np.mean(found, axis=0)
        cells = [*(f"{x:.4f}" for x in rates[:4]), *(f"{x:.0f}" for x in rates[4:6])]
        yield [name, *cells, f"{rates[6]:.3f}"]


def split(outputs: Outputs, seed: int) -> tuple[Half, Half]:
    """Return halves, which share no group where rows come in groups."""
    n = len(outputs.labels)
    groups = np.arange(n) if outputs.groups is None else outputs.groups
    _, codes = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(codes.max() + 1)
    first = order[codes] < (len(order) + 1) // 2
    sums = outputs.scores.sum(axis=1, keepdims=True)
    scores = outputs.scores / sums  # saved as float32
    return tuple(Half(scores[of], outputs.labels[of]) for of in (first, ~first))


def measure(answers: Answers, test: Half, asked: Asked) -> list[float]:
    """Return abstention, risks of answers and of top-1, flips, and the worst class's risk."""
    answer, top, labels = answers(test.scores), test.scores.argmax(axis=1), test.labels
    certain = answer >= 0
    wrong, top_wrong = answer != labels, top != labels
    risks = [
        wrong[certain & (labels == j)].mean() / asked.target
        for j in range(test.scores.shape[1])
        if str(j) not in asked.waive and (certain & (labels == j)).any()
    ]
    return [
        1 - certain.mean(),
        wrong[certain].mean() if certain.any() else 0.0,
        top_wrong[certain].mean() if certain.any() else 0.0,
        top_wrong.mean(),
        1e4 * (certain & wrong & ~top_wrong).mean(),
        1e4 * (certain & ~wrong & top_wrong).mean(),
        max(risks, default=0.0),
    ]


def _fit(rule: str, weight: float, fit: Half, asked: Asked) -> Answers:
    """Fit a rule in which a wrong answer costs so many abstentions."""
    return _served(FITS[rule](*fit, asked.target, waive=asked.waive, error_weight=weight).rule)


def _served(rule: object) -> Answers:
    def answers(scores: Floats) -> Ints:
        sets = predict_sets(scores, rule)
        return np.where(sets.sum(axis=1) == 1, sets.argmax(axis=1), -1)

    return answers


def _capped(fit: Half, asked: Asked) -> Answers:
    """Cap the overall risk at that of top-1 on the answered rows, which depend on the cap."""
    cap = None
    for _ in range(CAP_ROUNDS):
        found = fit_optimal(*fit, asked.target, waive=asked.waive, overall_target=cap)
        answers = _served(found.rule)
        certain = answers(fit.scores) >= 0
        wrong = (fit.scores.argmax(axis=1) != fit.labels)[certain]
        if not wrong.any():
            break
        cap = float(wrong.mean())
    return answers


def _top_only(fit: Half, asked: Asked, *, recalibrated: bool) -> Answers:
    """Find the best rule that may answer the most probable class only, by its own dual."""
    recalibration = fit_recalibration(*fit)
    k = fit.scores.shape[1]
    targets = Targets(risk_targets=asked.target, waive=asked.waive)
    constraints = make_constraints(targets, tuple(map(str, range(k))))
    needs = make_requirements(constraints, np.zeros(k))
    scale = recalibrate(recalibration, fit.scores).mean(axis=0) @ needs.right.T

    def slopes(scores: Floats) -> tuple[Ints, Floats]:
        """Return the class of each row, and what a unit of each price adds to its value."""
        chances = recalibrate(recalibration, scores)
        top = (chances if recalibrated else scores).argmax(axis=1)
        own = chances[np.arange(len(top)), top][:, None] * needs.right.T[top]
        return top, (own - chances @ needs.due.T) / scale

    _, by_price = slopes(fit.scores)

    def dual(price: Floats, width: float) -> newton.Point:
        value = (1.0 + by_price @ price) / width
        chosen = special.expit(value)
        bend = by_price.T * (chosen * (1 - chosen) / width / len(value))
        gradient = chosen @ by_price / len(value)
        return newton.Point(
            price, float(width * np.logaddexp(0, value).mean()), gradient, bend @ by_price
        )

    price, low = np.ones(len(scale)), np.zeros(len(scale))
    for width in SMOOTHINGS:
        price = newton.minimise(
            partial(dual, width=width), price, low, low + 1e4, least_fall=1e-7, most_steps=50
        ).x

    def answers(scores: Floats) -> Ints:
        top, adds = slopes(scores)
        return np.where(1.0 + adds @ price >= 0, top, -1)

    return answers
