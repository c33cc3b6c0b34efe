"""Outputs of a model, random halves of them, and whether methods differ on them.

Methods are told apart as the paper does it: by t-tests of two samples of what the halves gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scrib_mlflow.core.inputs import Labelled, Progress, check_rows
from scrib_mlflow.core.reports import SetReport, evaluate_sets
from scrib_mlflow.core.rules import Fit, Rule
from scrib_mlflow.core.studies import Comparison
from scrib_mlflow.core.studies.baselines import LABEL, SGR, SHARED
from scrib_mlflow.core.studies.compare import group_codes, halve
from scrib_mlflow.errors import ScribError

Floats = NDArray[np.float64]
BASELINES = (SGR, LABEL, SHARED)  # the paper's; the optimal rule came later


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """Scores of labelled rows, by the name of their data."""

    name: str
    scores: Floats  # (n, k)
    labels: NDArray[np.int64]  # (n,) indices
    classes: tuple[str, ...]
    target: float  # asked of every class
    origin: str  # where the data come from, and under which licence
    groups: NDArray[np.int64] | None = None  # (n,) what rows belong together
    trust: Floats | None = None  # (n,) how sure a row is by Monte-Carlo dropout

    def rows(self) -> Labelled:
        """Return the rows as the core takes them."""
        return check_rows(self.scores, self.named(), self.classes, None)

    def named(self) -> NDArray[np.str_]:
        """Return the label of each row by name, which cannot be mistaken for an index."""
        return np.array(self.classes)[self.labels]

    def top_risk(self) -> float:
        """Return how often the class with the highest score is wrong."""
        return float(np.mean(self.scores.argmax(axis=1) != self.labels))


def why_missing(module: str) -> str:
    """Return why a library cannot be used and what to do, nothing where it can."""
    if find_spec(module) is not None:
        return ""
    return f"{module} is not installed; pip install 'scrib_mlflow[paper]'"


def require(module: str) -> None:
    """Raise where a library is not installed."""
    reason = why_missing(module)
    if reason:
        raise ScribError(reason)


class Split(NamedTuple):
    """The two halves of one repeat."""

    repeat: int
    fitted: NDArray[np.bool_]  # (n,) the other rows are measured

    def to_fit(self, outputs: Outputs) -> tuple[Floats, NDArray[np.str_]]:
        """Return scores and labels of the rows to fit."""
        return outputs.scores[self.fitted], outputs.named()[self.fitted]


def random_halves(
    outputs: Outputs,
    repeats: int,
    seed: int,
    *,
    by_group: bool = False,
    progress: Progress | None = None,
) -> Iterator[Split]:
    """Yield random halves of the rows, or of their groups; the same seed gives the same."""
    rows, turns = outputs.rows(), list(range(repeats))
    codes = None
    if by_group and outputs.groups is not None:
        codes = group_codes(outputs.groups, len(rows.labels))
    present = np.unique(rows.labels).tolist()
    for repeat in progress(turns) if progress else turns:
        yield Split(repeat, halve(rows, codes, present, np.random.default_rng([seed, repeat])))


def measure_rules(
    outputs: Outputs, split: Split, rules: Mapping[str, Fit | Rule]
) -> dict[str, SetReport]:
    """Return what rules that were fitted on one half do on the other."""
    scores, named = outputs.scores[~split.fitted], outputs.named()[~split.fitted]
    return {
        name: evaluate_sets(scores, named, rule, classes=outputs.classes)
        for name, rule in rules.items()
    }


def mean(values: list[float]) -> float:
    """Return the mean of the values that are defined, NaN without one."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


class Difference(NamedTuple):
    """A method beside the best of others."""

    other: str
    p_value: float  # two-sided, of equal means; NaN where that cannot be told


def excess_values(found: Comparison, method: str) -> list[float]:
    """Return the excess of every class in every repeat, the sample that the paper tests."""
    return [value for trial in found.of(method) for value in trial.excess.values()]


def excess_difference(found: Comparison, method: str) -> Difference:
    """Hold a method's excess against that of the baseline with the least."""
    best = min(BASELINES, key=lambda name: np.mean(excess_values(found, name)))
    return Difference(best, p_value(excess_values(found, method), excess_values(found, best)))


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the p-value of Welch's t-test, NaN where a sample has fewer than two values."""
    if min(len(one), len(other)) < 2 or (np.ptp(one) == 0 and np.ptp(other) == 0):
        return float("nan")
    return float(stats.ttest_ind(one, other, equal_var=False).pvalue)
