"""How often a guarantee is given, how often it is false, and what it costs in abstention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import chances
from benchmarks.tables import print_table, progress
from scrib_mlflow import draw_path, fit_thresholds, predict_sets
from scrib_mlflow.core.certificate import certify_path, tally_sets
from scrib_mlflow.core.rules import Rule, ThresholdRule
from scrib_mlflow.core.targets import RuleName, Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

Floats = NDArray[np.float64]
Rules = Iterable[Rule]
TARGET, CONFIDENCE = 0.1, 0.95
NOISE = 3**0.5
SIZES = (5_000, 10_000)
REPETITIONS, PATH_REPETITIONS, FEW = 60, 100, 10
FRESH_ROWS, FRESH_SEED = 200_000, 1_000_003
UNLABELLED_ROWS, UNLABELLED_SEED = 20_000, 2_000_003
ROUNDING = 1e-4  # of the true risks
PROCESSES = 2
CLASSES = tuple("01234")


class Rows(NamedTuple):
    """Labelled rows."""

    scores: Floats  # (n, k)
    labels: NDArray[np.int64]  # (n,)

    def split(self, share: float) -> tuple[Rows, Rows]:
        """Return the first rows and the rest; rows are drawn in no order."""
        at = round(share * len(self.labels))
        return Rows(*(a[:at] for a in self)), Rows(*(a[at:] for a in self))


class Outcome(NamedTuple):
    """What one repetition of a procedure came to."""

    given: bool  # the guarantee
    false: bool  # and some true risk is above its target
    abstention: float  # NaN where it was not given


def run(folder: Path | None, *, quick: bool) -> None:
    """Print all tables."""
    print_table(
        f"Guarantees on the paper's generator (variance 3), K = 5, {TARGET:.0%} targets, "
        f"{CONFIDENCE:.0%}: given / false / abstention when given (repetitions)",
        ["procedure", *(f"N = {n:,}" for n in SIZES)],
        [[name, *(_cell(name, n, quick=quick) for n in SIZES)] for name in PROCEDURES],
    )
    chances.run(folder, quick=quick)


def repeat(name: str, n: int, seeds: Iterable[int]) -> list[Outcome]:
    """Run a procedure on the data of every seed."""
    seeds = list(seeds)
    with ProcessPoolExecutor(PROCESSES) as pool:
        return list(pool.map(_once, [name] * len(seeds), [n] * len(seeds), seeds))


def _once(name: str, n: int, seed: int) -> Outcome:
    return PROCEDURES[name](Rows(*draw_scores(n, noise=NOISE, seed=seed)), seed)


def _cell(name: str, n: int, *, quick: bool) -> str:
    progress(f"guarantee: {name}, N = {n:,}")
    most = PATH_REPETITIONS if name in OFTEN else REPETITIONS
    repetitions = FEW if quick else most
    outcomes = repeat(name, n, range(repetitions))
    given, false = (np.mean([o[j] for o in outcomes]) for j in (0, 1))
    abstention = np.mean([o.abstention for o in outcomes if o.given]) if given else np.nan
    shown = "-" if np.isnan(abstention) else f"{abstention:.3f}"
    return f"{given:.0%} / {false:.1%} / {shown} ({repetitions})"


def promise_point(rows: Rows, _: int) -> Outcome:
    """Fit to the targets themselves on all rows, and take them as kept."""
    return _outcome(ThresholdRule(thresholds=_fit(rows)))


def certify_searched(rows: Rows, _: int) -> Outcome:
    """Fit to the upper bound on all rows, and certify on the same."""
    rule = ThresholdRule(thresholds=_fit(rows, confidence=CONFIDENCE))
    return _outcome(_certified([rule], rows))


def certify_once(rows: Rows, _: int) -> Outcome:
    """Fit to the targets on half, certify on half."""
    fit, certify = rows.split(0.5)
    return _outcome(_certified([ThresholdRule(thresholds=_fit(fit))], certify))


def certify_bound(rows: Rows, _: int) -> Outcome:
    """Fit to the upper bound on half, certify on half."""
    fit, certify = rows.split(0.5)
    thresholds = _fit(fit, confidence=CONFIDENCE, certify_rows=len(certify.labels))
    return _outcome(_certified([ThresholdRule(thresholds=thresholds)], certify))


def follow_path(rows: Rows, _: int, rule: RuleName = "thresholds") -> Outcome:
    """Draw a path on three tenths, test it on the rest."""
    return _outcome(_end_of_path(*rows.split(0.3), rule))


def follow_distorted(rows: Rows, _: int, rule: RuleName = "thresholds") -> Outcome:
    """Do the same with scores that are too bold and lean to some classes."""
    distorted = Rows(distort(rows.scores), rows.labels)
    return _outcome(_end_of_path(*distorted.split(0.3), rule), distort)


def follow_unlabelled(rows: Rows, seed: int, rule: RuleName = "thresholds") -> Outcome:
    """Draw the path on further rows without labels; a tenth of the labelled ones recalibrates."""
    more, _ = draw_scores(UNLABELLED_ROWS, noise=NOISE, seed=UNLABELLED_SEED + seed)
    return _outcome(_end_of_path(*rows.split(0.1), rule, more))


def _end_of_path(
    fit: Rows, certify: Rows, rule: RuleName, path_scores: Floats | None = None
) -> Rule | None:
    """Return the rule that commands would certify."""
    path = draw_path(
        *fit,
        TARGET,
        rule=rule,
        certify_rows=len(certify.labels),
        path_scores=path_scores,
        answers="top",
        threads=1,
    )
    return _certified([step.rule for step in path.steps], certify)


def distort(chances: Floats) -> Floats:
    """Return probabilities that a miscalibrated model would give."""
    tilted = chances**1.6 * np.exp([0.8, -0.6, 0.0, 0.3, -0.3])
    return np.asarray(tilted / tilted.sum(axis=1, keepdims=True))


PROCEDURES: dict[str, Callable[[Rows, int], Outcome]] = {
    "point targets on all rows, taken as kept": promise_point,
    "bound in the loss and certificate on the rows of the search": certify_searched,
    "half fit to point targets, half certify": certify_once,
    "half fit to the bound, half certify": certify_bound,
    "path from 30 %, fixed-sequence test on 70 %": follow_path,
    "the same, scores miscalibrated": follow_distorted,
    f"path from {UNLABELLED_ROWS:,} unlabelled, test on 90 %": follow_unlabelled,
    "optimal rule: path from 30 %, test on 70 %": partial(follow_path, rule="optimal"),
    "optimal rule: the same, scores miscalibrated": partial(follow_distorted, rule="optimal"),
    "optimal rule: path from 20,000 unlabelled": partial(follow_unlabelled, rule="optimal"),
}
OFTEN = (
    "path from 30 %, fixed-sequence test on 70 %",
    "optimal rule: path from 30 %, test on 70 %",
)


def _fit(rows: Rows, **more: float) -> tuple[float, ...]:
    return fit_thresholds(*rows, TARGET, threads=1, **more).thresholds


def _certified(rules: Rules, rows: Rows) -> Rule | None:
    """Return the rule that a fixed-sequence test ends with."""
    rules = list(rules)
    claims = make_constraints(Targets(risk_targets=TARGET), CLASSES)
    tested = certify_path(
        (
            tally_sets(
                predict_sets(rows.scores, rule),
                rows.labels,
                claims,
                order=np.arange(len(rows.labels)),  # rows are drawn in no order
                level=1 - CONFIDENCE,
            )
            for rule in rules
        ),
        claims,
        CLASSES,
        level=1 - CONFIDENCE,
    )
    return None if tested.chosen is None else rules[tested.chosen]


def _outcome(rule: Rule | None, model: Callable[[Floats], Floats] | None = None) -> Outcome:
    """Hold a rule against the true probabilities of fresh rows, which a model may distort."""
    if rule is None:
        return Outcome(given=False, false=False, abstention=np.nan)
    chances = _fresh_scores()
    sets = predict_sets(chances if model is None else model(chances), rule)
    certain = sets.sum(axis=1) == 1
    wrong = np.where(sets[certain], 0.0, chances[certain]).sum(axis=0)
    risks = wrong / chances[certain].sum(axis=0)
    return Outcome(True, not (risks <= TARGET + ROUNDING).all(), float(1 - certain.mean()))


@cache
def _fresh_scores() -> Floats:
    return draw_scores(FRESH_ROWS, noise=NOISE, seed=FRESH_SEED)[0]
