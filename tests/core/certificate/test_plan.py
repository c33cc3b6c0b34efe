"""Plans against a search over all numbers of rows with scipy.stats."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from scrib_mlflow.core.certificate import make_plan
from scrib_mlflow.core.certificate.plan import chance_of_passing, least_rows, least_target, rows_for
from scrib_mlflow.errors import ScribError

ALL_OF_5 = 0.8**0.2


def naive_chances(most, target, risk, level):
    """Return the chance of passing with 0 ... most rows."""
    n = np.arange(most + 1)
    errors = stats.binom.ppf(level, n, target)
    errors -= stats.binom.cdf(errors, n, target) > level
    return np.where(errors >= 0, stats.binom.cdf(errors, n, risk), 0.0)


@pytest.mark.parametrize(
    ("target", "rows"), [(0.1, 29), (0.05, 59), (0.02, 149), (0.01, 299), (0.5, 5)]
)
def test_least_rows_are_the_first_that_pass_without_an_error(target, rows):
    assert least_rows(target, 0.05) == rows
    assert (1 - target) ** rows <= 0.05 < (1 - target) ** (rows - 1)
    assert least_target(rows, 0.05) <= target < least_target(rows - 1, 0.05)


def test_least_rows_count_a_p_value_equal_to_the_level():
    assert least_rows(0.5, 0.0625) == 4


def test_least_targets_are_those_of_the_literature():
    assert least_target(17, 0.05) == pytest.approx(0.162, abs=5e-4)
    assert least_target(34, 0.05) == pytest.approx(0.084, abs=5e-4)
    assert least_target(0, 0.05) == 1.0


@pytest.mark.parametrize(
    ("target", "risk", "one", "of_5", "of_5_bounds"),
    [
        (0.05, 0.025, 434, 694, 997),
        (0.05, 0.035, 1260, 2137, 3058),
        (0.10, 0.05, 203, 333, 471),
        (0.10, 0.07, 593, 1021, 1467),
        (0.15, 0.075, 126, 213, 303),
        (0.20, 0.10, 94, 153, 219),
    ],
)
def test_rows_for_a_chance_have_the_values_of_the_literature(target, risk, one, of_5, of_5_bounds):
    assert rows_for(target, risk, 0.05) == one
    assert rows_for(target, risk, 0.05, ALL_OF_5) == of_5
    assert rows_for(target, risk, 0.01, ALL_OF_5) == of_5_bounds


@pytest.mark.parametrize("target", [0.01, 0.02, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.7])
@pytest.mark.parametrize(("level", "chance"), [(0.05, 0.8), (0.01, 0.3), (0.2, 0.99)])
def test_from_these_rows_on_the_chance_stays(target, share, level, chance):
    found = rows_for(target, share * target, level, chance)
    chances = naive_chances(4 * found, target, share * target, level)
    assert (chances[found:] >= chance).all()
    assert chances[found - 1] < chance


@pytest.mark.parametrize(("target", "risk"), [(0.1, 0.1), (0.1, 0.2), (0.1, 0.0999)])
def test_no_number_of_rows_is_enough_at_or_near_the_target(target, risk):
    assert rows_for(target, risk, 0.05) is None


def test_many_rows_are_searched_fast():
    rows_for(0.1, 0.05, 0.05)  # compiles
    start = time.perf_counter()
    assert rows_for(0.01, 0.0075, 0.05, 0.96) > 10_000
    assert time.perf_counter() - start < 1


@given(st.integers(0, 500), st.sampled_from([0.05, 0.1, 0.4]), st.floats(0, 1))
def test_chances_are_binomial(n, target, risk):
    wanted = naive_chances(n, target, risk, 0.05)[n]
    assert chance_of_passing(n, target, risk, 0.05) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_a_plan_tells_what_each_class_can_prove():
    rows = {"a": 1_000, "rare": 17, "b": 700, "waived": 3}
    plan = make_plan(rows, {"a": 0.1, "rare": 0.2, "b": 0.1, "absent": 0.1}, level=0.05)
    assert [one.name for one in plan.by_class] == ["a", "rare", "b", "absent"]
    a, rare, b, absent = plan.by_class
    assert (a.n, a.n_certain, a.assumed_risk, a.least_rows) == (1_000, 500, 0.05, 29)
    assert a.chance == chance_of_passing(500, 0.1, 0.05, 0.05)
    assert a.rows_for_chance == rows_for(0.1, 0.05, 0.05, 0.8**0.25)
    assert rare.least_target == pytest.approx(0.162, abs=5e-4)
    assert (rare.chance, absent.chance, absent.least_target) == (0.0, 0.0, 1.0)
    assert plan.chance == 0.0
    assert (plan.confidence, plan.level, plan.abstention, plan.wanted) == (0.95, 0.05, 0.5, 0.8)
    two = make_plan(rows, {"a": 0.1, "b": 0.1}, level=0.05, abstention=0.2, risk_share=0.6)
    chances = [chance_of_passing(800, 0.1, 0.06, 0.05), chance_of_passing(560, 0.1, 0.06, 0.05)]
    assert two.chance == pytest.approx(math.prod(chances))
    assert b.n_certain == 350


def test_few_groups_and_no_claims_have_no_chance():
    assert make_plan({"a": 9_000}, {"a": 0.1}, level=0.05, n_groups=29).chance == 0.0
    assert make_plan({"a": 9_000}, {"a": 0.1}, level=0.05, n_groups=30).chance > 0.99
    assert make_plan({"a": 9_000}, {}, level=0.05).chance == 0.0


@pytest.mark.parametrize("option", ["abstention", "wanted", "risk_share"])
def test_assumptions_that_make_no_sense_are_refused(option):
    with pytest.raises(ScribError, match=option):
        make_plan({"a": 9}, {"a": 0.1}, level=0.05, **{option: -0.5})
