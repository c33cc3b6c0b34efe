"""Bets against scipy's distributions, against enumeration, and against other libraries."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, special, stats

from scrib_mlflow.core.monitoring import evidence

TARGETS = st.floats(0.001, 0.95)
CREPES = "crepes is not installed (extra: dev)"
MAPIE = "mapie is not installed (extra: dev)"


def risks_bet_on(target):
    return np.minimum(target * evidence.MULTIPLES, target + evidence.HIGHEST * (1 - target))


@settings(deadline=None)
@given(TARGETS, st.integers(0, 400), st.floats(0, 1))
def test_bets_on_errors_are_likelihood_ratios(target, n, share):
    wrong = round(share * n)
    grown = evidence.error_growth(
        target, np.array([1.0, 0.0]), np.ones(2), 1.0, np.array([wrong, n - wrong])
    )
    wanted = [
        stats.binom.logpmf(wrong, n, risk) - stats.binom.logpmf(wrong, n, target)
        for risk in risks_bet_on(target)
    ]
    np.testing.assert_allclose(grown, wanted, rtol=1e-7, atol=1e-7)


@settings(deadline=None)
@given(TARGETS, st.integers(1, 30), st.integers(0, 2**32))
def test_rows_one_by_one_grow_like_rows_that_are_counted(target, n, seed):
    wrong = np.random.default_rng(seed).integers(0, 2, n).astype(float)
    counted = evidence.error_growth(
        target, np.array([1.0, 0.0]), np.ones(2), 1.0, np.array([wrong.sum(), n - wrong.sum()])
    )
    np.testing.assert_allclose(
        evidence.error_growth(target, wrong, np.ones(n), 1.0), counted, rtol=1e-9, atol=1e-9
    )


@settings(deadline=None)
@given(TARGETS, st.floats(1, 50), st.floats(0, 1), st.floats(0, 1))
def test_no_observation_takes_all_the_money(target, most, size, share):
    certain = np.array([size * most])
    assert np.isfinite(evidence.error_growth(target, share * certain, certain, most)).all()


def wealth_after(batches, target):
    """Return the evidence after batches of (wrong, rows); None is a batch without rows."""
    wealth = evidence.begin(1, len(evidence.MULTIPLES))
    for batch in batches:
        wealth = evidence.new_batch(wealth, np.array([batch is not None]))
        if batch is not None:
            wrong, n = batch
            times = np.array([wrong, n - wrong])
            grown = evidence.error_growth(target, np.array([1.0, 0.0]), np.ones(2), 1.0, times)
            wealth = wealth._replace(accounts=wealth.accounts + grown)
    return float(np.exp(evidence.log_evidence(wealth)[0]))


@pytest.mark.parametrize("target", [0.05, 0.3, 0.8])
def test_evidence_is_expected_to_stay_at_one_at_the_target_and_to_shrink_below(target):
    sizes = (2, 1, 3)

    def expected(risk):
        return sum(
            np.prod([stats.binom.pmf(w, n, risk) for w, n in zip(wrong, sizes, strict=True)])
            * wealth_after(list(zip(wrong, sizes, strict=True)), target)
            for wrong in product(*(range(n + 1) for n in sizes))
        )

    assert expected(target) == pytest.approx(1.0, abs=1e-12)
    assert expected(0.7 * target) < 1.0
    assert expected(min(1.3 * target, 1.0)) > 1.0


def test_evidence_is_the_restarted_mixture_of_likelihood_ratios():
    batches, target = [(1, 4), (0, 3), (2, 2)], 0.2
    wanted = 1 / 4  # waits for later batches
    for begins in range(3):
        wrong, n = np.sum(batches[begins:], axis=0)
        ratios = stats.binom.pmf(wrong, n, risks_bet_on(target)) / stats.binom.pmf(wrong, n, target)
        wanted += ratios.mean() / ((begins + 1) * (begins + 2))
    assert wealth_after(batches, target) == pytest.approx(wanted)
    with_gaps = [None, batches[0], None, None, *batches[1:], None]
    assert wealth_after(with_gaps, target) == pytest.approx(wanted)


def test_the_wealth_after_t_batches_is_never_below_its_floor():
    batches = [(0, 500)] * 40
    for t in (1, 7, 40):
        assert wealth_after(batches[:t], 0.2) >= 1 / (t + 1)
    assert wealth_after([], 0.2) == 1.0


def grid_limits(wrong, n, level):
    """Return the lowest and highest risk of a grid that a mixture by quadrature does not refute."""
    risks = np.linspace(0, 1, 20_001)
    at = wrong / n

    def ratio(angle):  # Beta(1/2, 1/2) is uniform in this angle
        risk = np.sin(angle) ** 2
        grown = special.xlogy(wrong, risk) + special.xlog1py(n - wrong, -risk)
        return np.exp(grown - special.xlogy(wrong, at) - special.xlog1py(n - wrong, -at))

    peak = np.arcsin(np.sqrt(at))
    mixed, _ = integrate.quad(ratio, 0, np.pi / 2, points=[peak], limit=500)
    mixed = np.log(mixed / (np.pi / 2)) + special.xlogy(wrong, at) + special.xlog1py(n - wrong, -at)
    kept = mixed - special.xlogy(wrong, risks) - special.xlog1py(n - wrong, -risks) < -np.log(level)
    return risks[kept].min(), risks[kept].max()


@pytest.mark.parametrize(
    ("wrong", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 40), (200, 2000), (2.5, 7.75)]
)
def test_the_interval_holds_the_risks_that_a_grid_does_not_refute(wrong, n):
    low, high = evidence.risk_interval(wrong, n, 0.05)
    np.testing.assert_allclose((low, high), grid_limits(wrong, n, 0.05), atol=1e-4)
    assert low <= wrong / n <= high


def test_without_rows_every_risk_is_possible():
    assert evidence.risk_interval(0, 0, 0.05) == (0.0, 1.0)


def test_more_trust_asks_for_a_wider_interval():
    (low, high), (lower, higher) = (evidence.risk_interval(9, 90, level) for level in (0.1, 0.01))
    assert lower < low < high < higher


def test_rows_to_notice_fall_with_the_risk_and_rise_with_quiet_batches():
    rows = [evidence.rows_to_notice(0.1, risk, 100, 0) for risk in (0.13, 0.2, 0.3)]
    assert rows[0] > rows[1] > rows[2] > 0
    assert evidence.rows_to_notice(0.1, 0.2, 100, 50) > rows[1]
    assert evidence.rows_to_notice(0.1, 0.1, 100, 0) == np.inf


@pytest.mark.parametrize("power", range(len(evidence.POWERS)))
def test_bets_on_p_values_are_fair(power):
    def money(p):
        return float(np.exp(evidence.p_growth(np.array(p))[power]))

    # Bets are large where p is small; in logarithms the integral is tame.
    whole, _ = integrate.quad(lambda x: money(np.exp(-x)) * np.exp(-x), 0, 600, limit=500)
    assert whole == pytest.approx(1.0, abs=1e-6)


def test_a_p_value_of_zero_is_worth_a_finite_sum():
    assert np.isfinite(evidence.p_growth(np.zeros(1))).all()


def p_values(n, seed=0):
    random = np.random.default_rng(seed)
    return np.concatenate([random.random(n), random.random(n) ** 2])


def jumper_by_hand(p_values):
    """Return the evidence of the simple jumper (Vovk, Gammerman and Shafer 2022, alg. 8.1)."""
    money = np.full(3, 1 / 3)
    for p in p_values:
        money = 0.99 * money + 0.01 / 3 * money.sum()
        money *= 1 + np.array([-1, 0, 1]) * (p - 0.5)
    return np.log(money)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_jumper_bets_as_its_authors_say(compiled):
    p = p_values(150)
    kernel = evidence._jump if compiled else evidence._jump.py_func
    np.testing.assert_allclose(kernel(np.full(3, 1 / 3), p), jumper_by_hand(p), atol=1e-10)


def test_the_jumper_carries_on_from_batch_to_batch():
    p = p_values(100)
    accounts = np.log(np.full(3, 1 / 3))
    for part in (p[:3], p[3:3], p[3:150], p[150:]):
        accounts = evidence.jump(accounts, part)
    np.testing.assert_allclose(accounts, jumper_by_hand(p), atol=1e-10)


def test_the_jumper_does_not_overflow():
    grown = evidence.jump(np.log(np.full(3, 1 / 3)), np.full(20_000, 1e-9))
    assert 0.98 < grown.max() / (20_000 * np.log(1.5)) < 1
    lost = evidence.jump(grown - 1e6, np.full(20_000, 0.5))
    assert np.isfinite(lost).all()


def test_the_jumper_agrees_with_crepes():
    martingales = pytest.importorskip("crepes.martingales", reason=CREPES)
    p = p_values(300, seed=3)
    theirs = martingales.SimpleJumper(J=0.01, bf=martingales.EpsilonBettingFunction([-1, 0, 1]))
    ours = np.logaddexp.reduce(evidence.jump(np.log(np.full(3, 1 / 3)), p))
    assert ours == pytest.approx(np.log(theirs.apply(p)[-1]), abs=1e-9)


def test_the_jumper_agrees_with_mapie():
    testing = pytest.importorskip("mapie.exchangeability_testing", reason=MAPIE)
    theirs = testing.OnlineMartingaleTest(task="classification", jump_size=0.01, warn=False)
    p = p_values(300, seed=4)
    for each in p:
        theirs.update_simple_jumper_martingale(each)
    ours = np.logaddexp.reduce(evidence.jump(np.log(np.full(3, 1 / 3)), p))
    assert ours == pytest.approx(np.log(theirs.current_martingale_value), abs=1e-9)


def weighted_counts(random, rows, cap=None):
    """Return errors and sizes of groups up to a cap, whose large groups have the lower risk."""
    sizes = random.choice([1, 2, 30], rows)
    errors = random.binomial(sizes, np.where(sizes == 30, 0.05, 0.4))
    share = np.minimum(1.0, cap / sizes)
    return share * errors, share * sizes


@pytest.mark.slow
@pytest.mark.parametrize("risk", [0.02, 0.1, 0.5])
def test_the_interval_covers_the_risk_at_all_times(risk):
    random, level, runs = np.random.default_rng(5), 0.1, 400
    missed = 0
    for _ in range(runs):
        wrong = np.cumsum(random.random(20_000) < risk)
        looks = np.unique(np.geomspace(1, 20_000, 150).astype(int))
        limits = [evidence.risk_interval(float(wrong[n - 1]), float(n), level) for n in looks]
        missed += any(not low <= risk <= high for low, high in limits)
    assert missed <= stats.binom.ppf(1 - 1e-4, runs, level)


@pytest.mark.slow
def test_the_interval_of_groups_covers_once_counts_are_divided_by_the_cap():
    cap, level, runs = 5, 0.1, 300
    random = np.random.default_rng(6)
    errors, sizes = weighted_counts(random, 2_000_000, cap)
    risk = errors.sum() / sizes.sum()
    missed = 0
    for _ in range(runs):
        wrong, certain = (np.cumsum(c) / cap for c in weighted_counts(random, 3_000, cap))
        looks = np.unique(np.geomspace(5, 3_000, 60).astype(int)) - 1
        limits = [evidence.risk_interval(wrong[n], certain[n], level) for n in looks]
        missed += any(not low <= risk <= high for low, high in limits)
    assert missed <= stats.binom.ppf(1 - 1e-4, runs, level)
