"""Bounds against scipy.stats and against their own definitions."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from scrib_mlflow.core.bounds import allowed_errors, risk_upper, risk_upper_kl
from scrib_mlflow.errors import ScribError

CONFIDENCES = st.sampled_from([0.8, 0.9, 0.95, 0.999])


@given(st.integers(1, 3000), st.floats(0, 1), CONFIDENCES)
def test_exact_bound_is_clopper_pearson(n, share, confidence):
    wrong = round(share * n)
    level = 2 * confidence - 1  # two-sided at this level has our one-sided upper end
    wanted = stats.binomtest(wrong, n).proportion_ci(level, method="exact").high
    assert risk_upper(wrong, n, confidence) == pytest.approx(wanted, rel=1e-9)


@given(st.integers(1, 3000), st.floats(0, 1), CONFIDENCES)
def test_kl_bound_spends_exactly_its_budget_and_is_never_tighter(n, share, confidence):
    wrong = round(share * n)
    bound = float(risk_upper_kl(wrong, n, confidence))
    assert bound >= risk_upper(wrong, n, confidence) - 1e-9
    if wrong == n:
        assert bound == 1
        return
    risk = wrong / n
    divergence = stats.entropy([risk, 1 - risk], [bound, 1 - bound])
    assert n * divergence == pytest.approx(np.log(1 / (1 - confidence)), rel=1e-6)


@pytest.mark.parametrize(
    ("n", "risk", "exact", "kl"),
    [(30, 0.0, 0.0950, 0.0950), (30, 0.1, 0.2386, 0.2822), (1000, 0.1, 0.1170, 0.1248)],
)
def test_bounds_have_the_values_of_the_literature(n, risk, exact, kl):
    assert risk_upper(n * risk, n, 0.95) == pytest.approx(exact, abs=5e-5)
    assert risk_upper_kl(n * risk, n, 0.95) == pytest.approx(kl, abs=5e-5)


def test_without_rows_nothing_is_bounded():
    assert risk_upper(0, 0, 0.95) == 1.0
    assert risk_upper_kl(0, 0, 0.95) == 1.0


@pytest.mark.parametrize("target", [0.01, 0.1, 0.37, 0.9])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_allowed_errors_are_the_most_whose_bound_meets_the_target(target, confidence):
    table = allowed_errors(target, 9_000, confidence)
    n = np.arange(9_001)
    level = 1 - confidence
    assert (stats.binom.cdf(table, n, target) <= level).all()
    assert (stats.binom.cdf(table + 1, n, target) > level).all()
    some = n[table >= 0][::97]
    assert (risk_upper(table[some], some, confidence) <= target + 1e-12).all()
    more = np.minimum(table[some] + 1, some)
    assert (risk_upper(more, some, confidence) > target).all()
    assert (table[n < np.log(level) / np.log(1 - target)] == -1).all()


@pytest.mark.parametrize(
    ("wrong", "n", "confidence", "text"),
    [(1, 2, 1.0, "confidence"), (1, 2, 0.0, "confidence"), (3, 2, 0.9, "between 0 and n")],
)
def test_bad_counts_are_refused(wrong, n, confidence, text):
    for bound in (risk_upper, risk_upper_kl):
        with pytest.raises(ScribError, match=text):
            bound(wrong, n, confidence)


@pytest.mark.slow
@pytest.mark.parametrize("risk", [0.02, 0.1, 0.3])
def test_exact_bound_covers_at_its_level(risk):
    random = np.random.default_rng(0)
    for n in (25, 200, 2_000):
        wrong = random.binomial(n, risk, 200_000)
        missed = (risk_upper(wrong, n, 0.95) < risk).mean()
        assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200_000)
        assert (risk_upper_kl(wrong, n, 0.95) < risk).mean() <= missed
