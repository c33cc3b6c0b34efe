"""Conformal p-values and class frequencies against counting, scipy, and other libraries."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from scrib_mlflow.core.monitoring import drift

CREPES = "crepes is not installed (extra: dev)"
MAPIE = "mapie is not installed (extra: dev)"


def ranked(bins, known, chance):
    """Return how strange each row is among those up to it, by counting them."""
    before = np.repeat(np.arange(len(known)), known).tolist()
    found = []
    for own, u in zip(bins, chance, strict=True):
        before.append(own)
        rows = np.array(before)
        found.append(((rows < own).sum() + u * (rows == own).sum()) / len(rows))
    return np.array(found)


def some_rows(seed, n=60, m=9):
    random = np.random.default_rng(seed)
    known = random.integers(0, 6, m) * random.integers(0, 2, m)
    return random.integers(0, m, n), known, random.random(n)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 70), st.integers(0, 2**32))
def test_p_values_of_scores_are_ranks_among_all_rows_so_far(n, m, seed):
    bins, known, chance = some_rows(seed, n, m)
    p_values, after = drift.score_p_values(bins, known, chance)
    np.testing.assert_allclose(p_values, ranked(bins, known, chance), atol=1e-12)
    np.testing.assert_array_equal(after, known + np.bincount(bins, minlength=m))
    plain = drift._score_p_values.py_func(bins, known, chance)
    np.testing.assert_allclose(plain, p_values, atol=1e-12)


def test_p_values_of_scores_do_not_change_what_is_known():
    bins, known, chance = some_rows(0)
    kept = known.copy()
    drift.score_p_values(bins, known, chance)
    np.testing.assert_array_equal(known, kept)


def test_p_values_of_scores_agree_with_crepes():
    base = pytest.importorskip("crepes.base", reason=CREPES)
    bins, known, _ = some_rows(2)
    theirs = base.p_values_online_classification(
        -bins[:, None].astype(float),
        np.array([0]),
        np.zeros(len(bins)),
        alphas_cal=-np.repeat(np.arange(len(known)), known).astype(float),
        all_classes=False,
        seed=5,
    )
    chance = np.random.RandomState(5).rand(len(bins))
    np.testing.assert_allclose(drift.score_p_values(bins, known, chance)[0], theirs, atol=1e-12)


def test_p_values_of_scores_agree_with_mapie():
    testing = pytest.importorskip("mapie.exchangeability_testing", reason=MAPIE)
    bins, known, _ = some_rows(3)
    theirs = testing.OnlineMartingaleTest(task="classification", random_state=7)
    before = -np.repeat(np.arange(len(known)), known)
    rows = np.append(before, -bins)
    wanted = [
        theirs.compute_p_value(rows[i], rows[:i]) for i in range(len(before), len(rows))
    ]  # low for a high non-conformity
    chance = np.random.default_rng(7).uniform(size=len(bins))
    np.testing.assert_allclose(drift.score_p_values(bins, known, chance)[0], wanted, atol=1e-12)


def test_beyond_many_rows_those_known_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(drift, "MOST_KNOWN", 30)
    bins, known, chance = some_rows(4)
    p_values, after = drift.score_p_values(bins, known, chance)
    wanted = [ranked([own], known, [u])[0] for own, u in zip(bins, chance, strict=True)]
    np.testing.assert_allclose(p_values, wanted, atol=1e-12)
    np.testing.assert_array_equal(after, known)


def uniform(values):
    return stats.kstest(values, "uniform").pvalue


def test_p_values_of_scores_are_uniform_and_independent_where_rows_may_change_places():
    random = np.random.default_rng(8)
    firsts, seconds = [], []
    for _ in range(4_000):
        rows = random.integers(0, 3, 6)
        known = np.bincount(rows[:2], minlength=3)
        p_values, _ = drift.score_p_values(rows[2:], known, random.random(4))
        firsts.append(p_values[0])
        seconds.append(p_values[-1])
    assert min(uniform(firsts), uniform(seconds)) > 1e-4
    assert stats.spearmanr(firsts, seconds).pvalue > 1e-4


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 300), st.integers(0, 2**32))
def test_p_values_of_kinds_are_hypergeometric(n, total, seed):
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(5))
    counts, known = random.multinomial(n, shares), random.multinomial(total, shares)
    rare, frequent = drift.kind_p_values(counts, n, known, total, np.random.default_rng(seed))
    chance = np.random.default_rng(seed).random(5)
    for j in range(5):
        lot = [stats.hypergeom.pmf(c, total + n, known[j] + counts[j], n) for c in range(n + 1)]
        below, equal = sum(lot[: counts[j]]), lot[counts[j]]
        assert rare[j] == pytest.approx(below + chance[j] * equal, abs=1e-8)
        assert frequent[j] == pytest.approx(1 - rare[j], abs=1e-8)


@pytest.mark.parametrize("total", [0, 40])
def test_p_values_of_kinds_are_uniform_and_independent_without_a_change(total):
    random = np.random.default_rng(9)
    shares = np.array([0.02, 0.38, 0.6])
    found = []
    for _ in range(3_000):
        known, p_values = random.multinomial(total, shares), []
        for n in (7, 30):
            counts = random.multinomial(n, shares)
            p_values.append(drift.kind_p_values(counts, n, known, known.sum(), random)[0])
            known += counts
        found.append(p_values)
    found = np.array(found)  # repetitions, batches, kinds
    for kind in range(3):
        first, second = found[:, :, kind].T
        assert min(uniform(first), uniform(second)) > 1e-4
        assert stats.spearmanr(first, second).pvalue > 1e-4


def test_p_values_of_kinds_stay_in_range_for_many_rows():
    random, n, total = np.random.default_rng(10), 10**6, 9 * 10**7
    shares = np.array([1e-7, 0.2, 0.8 - 1e-7])
    rare, frequent = drift.kind_p_values(
        random.multinomial(n, shares), n, random.multinomial(total, shares), total, random
    )
    for p in (*rare, *frequent):
        assert 1e-6 < p < 1
    np.testing.assert_allclose(rare + frequent, 1, atol=1e-6)


KINDS = np.array([[0.7, 0.1, 0.1, 0.05, 0.05], [0.1, 0.6, 0.1, 0.1, 0.1], [0, 0.1, 0.5, 0.2, 0.2]])


def test_frequencies_of_a_known_mixture_are_found():
    table = np.round(KINDS * 1e6)
    for wanted in ([0.2, 0.3, 0.5], [0.9, 0.1, 0.0], [1 / 3, 1 / 3, 1 / 3]):
        mixture = drift.fit_frequencies(table, np.round(1e6 * np.array(wanted) @ KINDS))
        np.testing.assert_allclose(mixture.frequencies, wanted, atol=1e-3)
        assert mixture.p_value > 0.99


def test_frequencies_sum_to_one_and_none_is_negative():
    random = np.random.default_rng(11)
    for _ in range(50):
        table = np.array([random.multinomial(200, kinds) for kinds in KINDS])
        mixture = drift.fit_frequencies(
            table, random.multinomial(300, random.dirichlet(np.ones(5)))
        )
        assert mixture.frequencies.sum() == pytest.approx(1)
        assert (mixture.frequencies >= 0).all()
        assert 0 <= mixture.p_value <= 1


def test_rows_that_no_frequencies_explain_have_a_small_p_value():
    table = np.round(KINDS * 2_000)
    mixture = drift.fit_frequencies(table, [100, 100, 100, 800, 100])
    assert mixture.p_value < 1e-6


def test_a_kind_that_the_calibration_never_saw_is_not_explained():
    table = np.column_stack([np.round(KINDS * 2_000), np.zeros(3)])
    assert drift.fit_frequencies(table, [300, 300, 200, 100, 100, 200]).p_value < 1e-6
    assert drift.fit_frequencies(table, [350, 330, 180, 90, 90, 0]).p_value > 1e-3


def test_a_class_without_calibration_rows_has_no_frequency():
    table = np.round(KINDS * 1_000)
    table[1] = 0
    mixture = drift.fit_frequencies(table, 1_000 * np.array([0.5, 0.5]) @ KINDS[[0, 2]])
    assert np.isnan(mixture.frequencies[1])
    np.testing.assert_allclose(mixture.frequencies[[0, 2]], 0.5, atol=0.01)


@pytest.mark.parametrize(
    ("table", "counts"),
    [
        (KINDS * 1_000, [5, 5, 5, 5, 5]),  # too few rows
        (KINDS[:1] * 1_000, [500, 100, 100, 100, 100]),  # one class
        (KINDS[:, :3] * 1_000, [500, 400, 300]),  # no more kinds than classes
        (np.zeros((3, 5)), [100, 100, 100, 100, 100]),
        (np.ones((60, 100)) * 50, np.full(100, 100)),  # too many classes
    ],
    ids=["few rows", "one class", "few kinds", "no calibration", "many classes"],
)
def test_frequencies_that_cannot_be_told_are_none(table, counts):
    assert drift.fit_frequencies(table, counts) is None


def explained(random, frequencies, rows, calibration, runs):
    found = []
    for _ in range(runs):
        table = np.array([random.multinomial(calibration, kinds) for kinds in KINDS])
        counts = random.multinomial(rows, frequencies @ KINDS)
        found.append(drift.fit_frequencies(table, counts).p_value)
    return np.array(found)


@pytest.mark.parametrize(("rows", "calibration"), [(300, 300), (5_000, 400), (400, 5_000)])
@pytest.mark.parametrize(
    "frequencies", [(0.2, 0.3, 0.5), (0.8, 0.1, 0.1), (1.0, 0.0, 0.0)], ids=["a", "b", "c"]
)
def test_a_change_of_frequencies_alone_is_explained_as_often_as_said(
    frequencies, rows, calibration
):
    p = explained(np.random.default_rng(12), np.array(frequencies), rows, calibration, 400)
    for level in (0.05, 0.2):
        assert (p <= level).sum() <= stats.binom.ppf(1 - 1e-3, len(p), level)
