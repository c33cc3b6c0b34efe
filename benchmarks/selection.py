"""What labels are worth where they are drawn from rows that some rule of the path answers.

N labels in all, spent in three ways:

- at random: 30 % draw the path, 70 % certify, as `calibrate` does it;
- answered: 30 % at random draw the path, 70 % certify, drawn from the rows that it answers;
- answered, with a pool: 10 % at random recalibrate, 10,000 rows without labels draw the path, 90 %
  certify, drawn from the rows that it answers.

As in `chances`, certify rows are drawn with replacement from all other rows of the set, so that the
true risks are known: they are those of the other rows. Rows without labels come from the set as
well. They are neither labelled nor among the other rows, and they are half of what the labelled
rows leave where that is less than 10,000: of ECG about 4,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import chances
from benchmarks.chances import CONFIDENCE, DRAWS, PROCESSES, RULES, Case
from benchmarks.datasets import Outputs, read_outputs
from benchmarks.tables import print_table, progress
from scrib_mlflow import draw_path, predict_sets
from scrib_mlflow.core.bounds import allowed_errors
from scrib_mlflow.core.targets import RuleName
from scrib_mlflow.synthetic import draw_scores

MADE_PATHS, SAVED_PATHS, FEW_PATHS = 40, 12, 3  # of the generator, of saved outputs, of a quick run
FIRST_SEED = 200  # settings were chosen on lower ones
DRAWING, RECALIBRATING = 0.3, 0.1  # shares of the labels
UNLABELLED_ROWS = 10_000

CASES = (
    Case("generator, 5,000", "generator", 5_000, 0.1),
    Case("generator, 10,000", "generator", 10_000, 0.1),
    Case("ECG, 5,000", "ecg2017_hgb_oof", 5_000, 0.1),
    Case("DOD-H, 5,000", "dodh_stack_oof", 5_000, 0.1),
)


class Spent(NamedTuple):
    """What the labels of one path came to, over all draws of certify rows."""

    expected: float  # abstention, 1 where not certified
    certified: float  # share of draws
    abstention: float  # where certified; NaN without
    false: float  # certified with a true risk above its target


def run(folder: Path | None, *, quick: bool) -> None:
    """Print what each way to spend labels comes to."""
    print_table(
        f"Labels at random / from answered rows / the same with a pool: {CONFIDENCE:.0%}, "
        f"{FEW_PATHS if quick else MADE_PATHS} paths of the generator, "
        f"{FEW_PATHS if quick else SAVED_PATHS} of saved outputs, "
        f"{DRAWS} draws of certify rows for each",
        ["rows", "rule", "E", "certified", "abstains where certified", "false, %"],
        table_rows(folder, quick=quick),
    )


def table_rows(folder: Path | None, *, quick: bool) -> Iterator[Sequence[str]]:
    """Yield the means of each set and rule, for each way to spend labels."""
    saved = {outputs.name: outputs for outputs in read_outputs(folder)}
    made = draw_scores(chances.POPULATION, noise=chances.NOISE, seed=chances.POPULATION_SEED)
    saved["generator"] = Outputs("generator", *made)
    for case in CASES:
        if case.outputs not in saved:
            continue
        often = MADE_PATHS if case.outputs == "generator" else SAVED_PATHS
        seeds = range(FIRST_SEED, FIRST_SEED + (FEW_PATHS if quick else often))
        with ProcessPoolExecutor(PROCESSES) as pool:
            for rule in RULES:
                means = []
                for name, spend in WAYS.items():
                    progress(f"selection: {case.name}, {rule}, {name}")
                    found = pool.map(partial(spend, saved[case.outputs], case, rule), seeds)
                    means.append([np.nanmean(each) for each in zip(*found, strict=True)])
                expected, certified, abstention, false = zip(*means, strict=True)
                yield (
                    *(case.name, rule),
                    *(_cell(each, 3) for each in (expected, certified, abstention)),
                    _cell([100 * each for each in false], 1),
                )


def _cell(values: Sequence[float], digits: int) -> str:
    return " / ".join("-" if np.isnan(each) else f"{each:.{digits}f}" for each in values)


def spend_at_random(outputs: Outputs, case: Case, rule: RuleName, seed: int) -> Spent:
    """Draw all rows at random."""
    found = chances.follow(outputs, case, rule, "top", seed)
    return Spent(found.expected, found.certified, found.abstention, found.false)


def spend_on_answered(
    outputs: Outputs, case: Case, rule: RuleName, seed: int, *, pool: bool = False
) -> Spent:
    """Draw a path, and test it on many draws from the rows that some rule of it answers."""
    scores, labels, k = outputs.scores, outputs.labels, outputs.scores.shape[1]
    n = case.n or len(labels)
    n_fit = round((RECALIBRATING if pool else DRAWING) * n)
    random = np.random.default_rng(seed)
    mixed = random.permutation(len(labels))
    unlabelled = min(UNLABELLED_ROWS, (len(labels) - n_fit) // 2) if pool else 0
    fit, more, others = np.split(mixed, [n_fit, n_fit + unlabelled])
    path = draw_path(
        *(scores[fit], labels[fit], case.target),
        rule=rule,
        certify_rows=n - n_fit,
        answered_only=True,
        classes=tuple(map(str, range(k))),
        path_scores=scores[more] if pool else None,
        answers="top",
        threads=1,
    )
    truth = labels[others]
    steps = []  # certain and wrong rows of each rule
    for step in path.steps:
        sets = predict_sets(scores[others], step.rule)
        certain = sets.sum(axis=1) == 1
        steps.append((certain, certain & ~sets[np.arange(len(truth)), truth]))
    answered = np.flatnonzero(np.any([certain for certain, _ in steps], axis=0))
    allowed = allowed_errors(case.target, n, CONFIDENCE)
    tested = np.searchsorted(allowed, allowed)  # the rows that an acceptance plan tests
    ends = []  # the step that passed last, -1 for none
    for _ in range(DRAWS):
        drawn = random.choice(answered, n - n_fit) if len(answered) else answered
        by_class = [drawn[truth[drawn] == j] for j in range(k)]
        ends.append(chances._last_passed(steps, by_class, allowed, tested))
    passed = np.array(ends) >= 0
    abstains = np.array([*(1.0 - certain.mean() for certain, _ in steps), 1.0])
    false = np.array([*(_above(*step, truth, case.target, k) for step in steps), False])
    return Spent(
        expected=float(abstains[ends].mean()),
        certified=float(passed.mean()),
        abstention=float(abstains[ends][passed].mean()) if passed.any() else np.nan,
        false=float(false[ends].mean()),
    )


def _above(
    certain: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
    truth: NDArray[np.int64],
    target: float,
    k: int,
) -> bool:
    """Return whether the risk of some class is above its target."""
    n, errors = (np.bincount(truth[rows], minlength=k) for rows in (certain, wrong))
    return bool((errors > target * n).any())


WAYS: dict[str, Callable[[Outputs, Case, RuleName, int], Spent]] = {
    "at random": spend_at_random,
    "answered": spend_on_answered,
    "answered, with a pool": partial(spend_on_answered, pool=True),
}
