"""Certified rates and predicted chances on saved model outputs, beside those of the generator.

A draw takes N rows of a set and splits them as `calibrate` does. The fit rows draw a path. Certify
rows are drawn, with replacement, from all other rows of the set, so that the true risks are known.
Where a draw takes most of a small set, the other rows lack what made the fit rows lucky, and fewer
certificates pass than on rows of a large population: "ECG" does, "ECG, 5,000" hardly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Outputs, read_outputs
from benchmarks.tables import print_table, progress
from experiments.datasets import NotInstalledError, fars
from scrib_mlflow import draw_path, predict_sets
from scrib_mlflow.core.bounds import allowed_errors
from scrib_mlflow.core.certificate.split import share
from scrib_mlflow.core.targets import AnswerName, RuleName
from scrib_mlflow.synthetic import draw_scores

NOISE = 3**0.5
CONFIDENCE, CERTIFY = 0.95, 0.7
POPULATION, POPULATION_SEED = 100_000, 777
PATHS, FEW_PATHS, DRAWS, PROCESSES = 20, 3, 25, 2
FIRST_SEED = 100  # settings were chosen on lower ones
TRAINING = 10_000  # rows of a new user's model
MODELS = ("boosting", "forest", "bayes", "network")
BINS = (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.01)  # of predictions
RULES: tuple[RuleName, ...] = ("thresholds", "optimal")
TOP: tuple[AnswerName, ...] = ("top",)
BOTH: tuple[AnswerName, ...] = ("any", "top")


class Case(NamedTuple):
    """A set of rows, how many of them a user has, and what is asked."""

    name: str
    outputs: str  # of which the rows are
    n: int | None  # rows of a draw; None for all
    target: float
    answers: tuple[AnswerName, ...] = TOP
    waive: tuple[str, ...] = ()


CASES = (  # settings were chosen on the first eleven, and on smaller seeds
    Case("generator, 5,000", "generator", 5_000, 0.1, BOTH),
    Case("generator, 10,000", "generator", 10_000, 0.1),
    Case("ECG", "ecg2017_hgb_oof", None, 0.1, BOTH),
    Case("ECG, 20 %", "ecg2017_hgb_oof", None, 0.2),
    Case("DOD-H, 5,000", "dodh_stack_oof", 5_000, 0.1, BOTH),
    Case("DOD-H votes, 20 %", "dodh_committee_votes", 10_000, 0.2),
    Case("sleep-EDF, 20 %", "sleepedf_hgb_oof", 10_000, 0.2),
    Case("CIFAR", "cleanlab_cifar10", None, 0.1, BOTH),
    # Waived: 9 rows, 299 rows, a recall of 0.05.
    Case("accidents, 30 %", "fars", 20_000, 0.3, BOTH, waive=("0", "3", "6")),
    Case("boosting, 10,000", "boosting", 10_000, 0.1),
    Case("forest, 10,000", "forest", 10_000, 0.1),
    Case("boosting, 50,000", "boosting", 50_000, 0.1),
    Case("forest, 50,000", "forest", 50_000, 0.1),
    Case("ECG, 5,000", "ecg2017_hgb_oof", 5_000, 0.15),
    Case("DOD-H, 20 %", "dodh_stack_oof", 5_000, 0.2),
    Case("sleep-EDF, 15 %", "sleepedf_hgb_oof", 20_000, 0.15, waive=("1",)),  # recall 0.33
    Case("naive Bayes, 20 %", "bayes", 10_000, 0.2),
    Case("network, 10,000", "network", 10_000, 0.1),
)


class Result(NamedTuple):
    """What one path came to, over all draws of certify rows."""

    predicted: float  # chance of its first rule
    certified: float  # share of draws, by the acceptance plan
    by_all: float  # the same, all certain rows tested
    abstention: float  # where certified; NaN without
    expected: float  # abstention, 1 where not certified
    false: float  # certified with a true risk above its target
    wrong: float  # answers, where certified
    top1_wrong: float  # top-1's on the same rows


def run(folder: Path | None, *, quick: bool) -> None:
    """Print the table, and what came of predictions that were alike."""
    paths: list[Result] = []
    print_table(
        f"Predicted chance of the first rule, certified rates, abstention: {CONFIDENCE:.0%}, "
        f"{FEW_PATHS if quick else PATHS} paths, {DRAWS} draws of certify rows for each",
        [
            *("rows", "rule", "answers", "predicted", "certified", "by all rows", "abstains"),
            *("E", "false", "wrong", "top-1"),
        ],
        table_rows(folder, FEW_PATHS if quick else PATHS, paths),
    )
    print_table(
        "What came of predictions that were alike: all paths with answers=top",
        ["predicted", "paths", "mean predicted", "certified", "standard error"],
        [_alike(paths, *ends) for ends in itertools.pairwise(BINS)],
    )


def _alike(paths: Sequence[Result], low: float, high: float) -> list[str]:
    """Return what came of the paths whose prediction lies in between."""
    those = [path for path in paths if low <= path.predicted < high]
    predicted = np.array([path.predicted for path in those])
    certified = np.array([path.certified for path in those])
    error = certified.std(ddof=1) / len(those) ** 0.5 if len(those) > 1 else np.nan
    means = (each.mean() if len(those) else np.nan for each in (predicted, certified))
    return [f"{low:g} to {min(high, 1):g}", f"{len(those)}", *(f"{m:.3f}" for m in (*means, error))]


def table_rows(folder: Path | None, n_paths: int, paths: list[Result]) -> Iterator[Sequence[str]]:
    """Yield the means of each set and rule, and keep the paths that answer the top class."""
    saved = {outputs.name: outputs for outputs in read_outputs(folder)}
    for case in CASES:
        outputs = saved.get(case.outputs) or _made(case.outputs)
        if outputs is None:
            continue
        with ProcessPoolExecutor(PROCESSES) as pool:
            for rule in RULES:
                for answers in case.answers:
                    progress(f"chances: {case.name}, {rule}, answers {answers}")
                    draw = partial(follow, outputs, case, rule, answers)
                    found = [*pool.map(draw, range(FIRST_SEED, FIRST_SEED + n_paths))]
                    paths += found if answers == "top" else []
                    means = [np.nanmean(column) for column in zip(*found, strict=True)]
                    yield case.name, rule, answers, *(f"{mean:.3f}" for mean in means)


def _made(name: str) -> Outputs | None:
    """Return rows that are not saved: of the generator, or of a model that is fitted here."""
    if name == "generator":
        return Outputs(name, *draw_scores(POPULATION, noise=NOISE, seed=POPULATION_SEED))
    if name == "fars":
        try:
            made = fars()
        except NotInstalledError:
            return None
        return Outputs(name, made.scores, made.labels)
    if name not in MODELS:
        return None
    from sklearn.datasets import make_classification  # noqa: PLC0415

    features, labels = make_classification(
        TRAINING + POPULATION,
        n_informative=10,
        n_redundant=4,
        n_classes=5,
        weights=[0.35, 0.25, 0.2, 0.12, 0.08],
        class_sep=1.6,
        flip_y=0.02,
        random_state=0,
    )
    model = _model(name).fit(features[:TRAINING], labels[:TRAINING])
    return Outputs(name, model.predict_proba(features[TRAINING:]), labels[TRAINING:])


def _model(name: str) -> Any:
    """Return a classifier that a new user would try."""
    from sklearn.ensemble import (  # noqa: PLC0415
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415

    return {
        "boosting": HistGradientBoostingClassifier(early_stopping=False, random_state=0),
        "forest": RandomForestClassifier(100, random_state=0),
        "bayes": GaussianNB(),
        "network": MLPClassifier((64,), max_iter=100, random_state=0),
    }[name]


def follow(outputs: Outputs, case: Case, rule: RuleName, answers: AnswerName, seed: int) -> Result:
    """Draw a path, and test it on many draws of certify rows."""
    scores, labels, k = outputs.scores, outputs.labels, outputs.scores.shape[1]
    random = np.random.default_rng(seed)
    drawn = random.permutation(len(labels))[: case.n]
    names = tuple(map(str, range(k)))
    fitting = np.zeros(len(labels), dtype=np.bool_)
    sizes = np.zeros(k, dtype=np.int64)  # of certify rows
    for j in range(k):
        of = drawn[labels[drawn] == j]
        sizes[j] = max(share(len(of), CERTIFY), 0)
        fitting[of[sizes[j] :]] = True
    path = draw_path(
        *(scores[fitting], labels[fitting], case.target),
        rule=rule,
        certify_rows=int(sizes.sum()),
        classes=names,
        waive=case.waive,
        answers=answers,
        threads=1,
    )
    others, truth = scores[~fitting], labels[~fitting]
    of_class = {j: np.flatnonzero(truth == j) for j in range(k) if names[j] not in case.waive}
    top1 = others.argmax(axis=1) != truth
    steps = []  # certain and wrong rows, abstention, whether a true risk is above its target, wrong
    for step in path.steps:
        sets = predict_sets(others, step.rule)
        certain = sets.sum(axis=1) == 1
        wrong = certain & ~sets[np.arange(len(truth)), truth]
        bad = any(wrong[of].sum() > case.target * certain[of].sum() for of in of_class.values())
        rates = (wrong[certain].mean(), top1[certain].mean()) if certain.any() else (np.nan,) * 2
        steps.append((certain, wrong, 1.0 - certain.mean(), bad, *rates))
    allowed = allowed_errors(case.target, int(sizes.max()), CONFIDENCE)
    accepted = np.searchsorted(allowed, allowed)  # the rows that an acceptance plan tests
    last: list[list[int]] = [[], []]  # step that passed last, by plan and by all rows
    for _ in range(DRAWS):
        certify = [random.choice(of, sizes[j]) for j, of in of_class.items()]
        for found, tested in zip(last, (accepted, np.arange(len(allowed))), strict=True):
            found.append(_last_passed([step[:2] for step in steps], certify, allowed, tested))
    abstains = np.array([step[2] for step in steps] + [1.0])  # the last where nothing passed
    false = np.array([step[3] for step in steps] + [False])
    ends, ends_by_all = (np.array(found) for found in last)
    passed = ends >= 0
    wrongs, tops = (np.array([step[i] for step in steps])[ends[passed]] for i in (4, 5))
    return Result(
        predicted=path.power,
        certified=float(passed.mean()),
        by_all=float((ends_by_all >= 0).mean()),
        abstention=float(abstains[ends[passed]].mean()) if passed.any() else np.nan,
        expected=float(abstains[ends].mean()),
        false=float(false[ends].mean()),
        wrong=float(wrongs.mean()) if passed.any() else np.nan,
        top1_wrong=float(tops.mean()) if passed.any() else np.nan,
    )


def _last_passed(
    steps: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]],
    certify: Sequence[NDArray[np.int64]],  # rows of each class that is claimed, in random order
    allowed: NDArray[np.float64],
    tested: NDArray[np.int64],  # how many of n certain rows are looked at
) -> int:
    """Return the last step of a fixed-sequence test that passed; -1 without one."""
    for number, (certain, wrong) in enumerate(steps):
        for rows in certify:
            answered = rows[certain[rows]]
            n = len(answered)
            if wrong[answered[: tested[n]]].sum() > allowed[n]:  # allowed may be -1
                return number - 1
    return len(steps) - 1
