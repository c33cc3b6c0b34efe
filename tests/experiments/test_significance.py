"""Whether methods differ, by the formula of Welch's test."""

import math

import numpy as np
import pytest
from scipy import special

from experiments.outputs import excess_difference, p_value
from scrib_mlflow.core.studies import compare_rules
from scrib_mlflow.synthetic import draw_scores


def welch(one, other):
    """Return the two-sided p-value from the textbook."""
    variances = np.var(one, ddof=1) / len(one), np.var(other, ddof=1) / len(other)
    t = (np.mean(one) - np.mean(other)) / math.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / sum(
        v**2 / (len(x) - 1) for v, x in zip(variances, (one, other), strict=True)
    )
    return 2 * special.stdtr(freedom, -abs(t))


def test_the_p_value_is_that_of_the_textbook():
    random = np.random.default_rng(0)
    one, other = random.normal(0, 1, 20), random.normal(0.5, 2, 30)
    assert p_value(one, other) == pytest.approx(welch(one, other))


def test_what_cannot_be_tested_is_undefined():
    assert math.isnan(p_value([0.1], [0.1, 0.2]))
    assert math.isnan(p_value([0.0, 0.0], [0.0, 0.0]))


def test_scrib_is_held_against_the_baseline_with_the_least_excess():
    found = compare_rules(*draw_scores(600, noise=3**0.5), repeats=2)
    values = {
        name: [x for trial in found.of(name) for x in trial.excess.values()]
        for name in ("SCRIB", "SGR", "LABEL", "SCRIB-")
    }
    tested = excess_difference(found, "SCRIB")
    assert tested.other == min(("SGR", "LABEL", "SCRIB-"), key=lambda m: np.mean(values[m]))
    assert len(values["SCRIB"]) == 2 * 5
    assert tested.p_value == pytest.approx(welch(values["SCRIB"], values[tested.other]))
