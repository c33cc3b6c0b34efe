"""Rules fitted on random halves of the rows and measured on the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.evaluate import SetReport, evaluate_sets
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.halves import group_codes, halve
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.paper.outputs import Floats, Outputs


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
