"""What it costs in abstention to have fewer wrong answers, and how many it saves.

Class targets alone let a rule turn right answers of top-1 into wrong ones, up to what the targets
allow. Three remedies: only the top class may be answered (`answers`), a wrong answer has a price
(`error_weight`), and, for the optimal rule, the overall risk is capped at that of top-1 on the rows
that are answered. Rules are fitted on half of the rows and measured on the other half, without a
margin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Outputs, load_kernels, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import fit_optimal, fit_thresholds, predict_sets
from scrib_mlflow.synthetic import draw_scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TARGETS = (0.1, 0.2)
WEIGHTS = {"any": (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0), "top": (0.0, 1.0, 2.0)}  # by answers
FEW_WEIGHTS = {"any": (0.0, 2.0), "top": (0.0, 1.0, 2.0)}
SEEDS = range(3)
ROWS = 40_000  # of the generator
LEAST_ROWS = 50  # of a class in the fit half; classes with fewer are waived
CAP_ROUNDS = 6  # in which the cap on the overall risk settles
FITS = {"optimal": fit_optimal, "thresholds": fit_thresholds}
FIRST = "any, 0"  # the paper's, beside which the others are summed up
ABSTENTION, WRONG, TOP_WRONG = range(3)  # of what is measured


class Half(NamedTuple):
    """Rows that are fitted or measured."""

    scores: Floats  # (n, k)
    labels: Ints  # (n,)


class Asked(NamedTuple):
    """What is asked of a rule."""

    target: float
    waive: tuple[str, ...]


Answers = Callable[[Floats], Ints]  # of scores, (n,) the class that is answered, -1 for none
Method = Callable[[Half, Asked], Answers]


def run(data: Path | None, *, quick: bool) -> None:
    """Print a table for each rule, set and target, and one of means over them."""
    load_kernels()
    weights, seeds = (FEW_WEIGHTS, SEEDS[:1]) if quick else (WEIGHTS, SEEDS)
    scores, labels = draw_scores(ROWS, noise=3**0.5)
    sets = [Outputs("generator, variance 3", scores, labels), *read_outputs(data)]
    for rule in FITS:
        methods: dict[str, Method] = {
            f"{answers}, {weight:g}": partial(_fit, rule, answers, weight)
            for answers, some in weights.items()
            for weight in some
        }
        if rule == "optimal" and not quick:
            methods["any, 0, capped at top-1's risk"] = _capped
        cases = []
        for outputs in sets:
            for target in TARGETS:
                rates = measure_methods(rule, methods, outputs, target, seeds)
                if rates is None:
                    continue
                cases.append(rates)
                print_table(
                    f"{outputs.name}, rule={rule}, {target:.0%} targets: rates on the half that "
                    f"was not fitted, means of {len(seeds)} splits; flips of 10,000 rows",
                    [
                        *("answers, error_weight", "abstention", "wrong answers"),
                        *("top-1 on the same", "top-1 on all", "right to wrong"),
                        *("wrong to right", "worst risk / target"),
                    ],
                    [[name, *_cells(found)] for name, found in rates.items()],
                )
        print_table(
            f"rule={rule}: means and maxima over {len(cases)} cases, in points",
            [
                *("answers, error_weight", f"abstention above that of {FIRST}", "most"),
                *("wrong answers above top-1's on the same rows", "most"),
            ],
            summary_rows(list(methods), cases),
        )


def measure_methods(
    rule: str, methods: dict[str, Method], outputs: Outputs, target: float, seeds: range
) -> dict[str, Floats] | None:
    """Return what is measured of each method, means over splits; None where no class has rows."""
    halves = [split(outputs, seed) for seed in seeds]
    rates = {}
    for name, method in methods.items():
        progress(f"errors: {rule}, {outputs.name}, {target:.0%}, {name}")
        found = []
        for fit, test in halves:
            few = np.flatnonzero(
                np.bincount(fit.labels, minlength=fit.scores.shape[1]) < LEAST_ROWS
            )
            if len(few) == fit.scores.shape[1]:
                return None
            asked = Asked(target, tuple(map(str, few)))
            found.append(measure(method(fit, asked), test, asked))
        rates[name] = np.mean(found, axis=0)
    return rates


def _cells(rates: Floats) -> list[str]:
    return [
        *(f"{x:.4f}" for x in rates[:4]),
        *(f"{x:.0f}" for x in rates[4:6]),
        f"{rates[6]:.3f}",
    ]


def summary_rows(names: list[str], cases: list[dict[str, Floats]]) -> Iterator[list[str]]:
    """Yield for each method the mean and the highest cost and error of all cases."""
    for name in names:
        more = [100 * (case[name] - case[FIRST])[ABSTENTION] for case in cases]
        wrong = [100 * (case[name][WRONG] - case[name][TOP_WRONG]) for case in cases]
        numbers = np.mean(more), max(more), np.mean(wrong), max(wrong)
        yield [name, *(f"{x:.2f}" for x in numbers)]


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


def _fit(rule: str, answers: str, weight: float, fit: Half, asked: Asked) -> Answers:
    """Fit a rule in which a wrong answer costs so many abstentions."""
    options = {"waive": asked.waive, "answers": answers, "error_weight": weight}
    return _served(FITS[rule](*fit, asked.target, **options).rule)


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
