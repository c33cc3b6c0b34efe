"""Tables of errors: exact where rows are few, and nearly so where they are many."""

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow import draw_path
from scrib_mlflow.core import bounds
from scrib_mlflow.core.bounds import (
    COARSE_ENTRIES,
    EXACT_ROWS,
    ErrorTable,
    allowed_errors,
    passing_errors,
    smooth_errors,
    smooth_table,
)
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.loss import RATIO, Margin, make_objective, make_problem, term_excess
from scrib_mlflow.core.targets import Targets
from scrib_mlflow.synthetic import draw_scores

MARGINS = [None, -0.75, 1.0, 3.5]


def exact(target, n, z):
    table = allowed_errors(target, n, 0.95)
    return smooth_table(table if z is None else passing_errors(np.arange(n + 1.0), table, z))


@pytest.mark.parametrize("z", MARGINS)
def test_few_rows_have_an_exact_entry_each(z):
    found = smooth_errors(0.1, EXACT_ROWS, 0.95, z)
    assert found.stride == 1
    np.testing.assert_array_equal(found.errors, exact(0.1, EXACT_ROWS, z))


@pytest.mark.parametrize("z", MARGINS)
@pytest.mark.parametrize("target", [0.01, 0.1, 0.3])
def test_many_rows_are_off_by_a_fraction_of_one_error(target, z):
    n = 100_000
    found, wanted = smooth_errors(target, n, 0.95, z), exact(target, n, z)
    assert len(found.errors) == COARSE_ENTRIES + 1
    assert found.rows[-1] >= n
    for rows in np.random.default_rng(0).integers(1, n - 400, 500):  # windows shrink at the end
        if wanted[rows] >= 5:
            assert found.at(rows) == pytest.approx(wanted[rows], abs=0.1)


@pytest.mark.parametrize("z", [0.0, 2.0])
def test_millions_of_rows_pass_as_often_as_the_margin_says(z):
    found = smooth_errors(0.1, 7_000_000, 0.95, z)
    for n in (20_000, 1_000_000, 6_999_999):
        most = stats.binom.ppf(0.05, n, 0.1) - 1  # the most errors whose tail is at most 5 %
        assert stats.binom.cdf(most, n, 0.1) <= 0.05 < stats.binom.cdf(most + 1, n, 0.1)
        chance = stats.binom.cdf(most, n, found.at(n) / n)
        assert chance == pytest.approx(stats.norm.cdf(z), abs=0.02)


def test_a_search_counts_rows_in_strides_and_finds_the_same_excess():
    rows = check_rows(np.eye(2), ["a", "b"], ("a", "b"), [3_000.0, 1_000.0])
    margin = Margin(confidence=0.95, certify_rows=400_000, z=1.0)
    objective = make_objective(make_problem(rows, Targets(risk_targets=0.1)), margin)
    assert len(objective.tables) < 20_000
    assert objective.terms[0, RATIO] < 100  # 100 certify rows a row, in strides
    for c, certain, wrong in ((0, 2_500.0, 300.0), (1, 700.25, 90.0)):
        table = exact(0.1, 310_000, 1.0)
        over = wrong - np.interp(100 * certain, np.arange(len(table)), table) / 100
        found = term_excess(
            c, certain, certain - wrong, 0.0, objective.terms, objective.spans, objective.tables
        )
        assert found == pytest.approx(over / certain, rel=1e-3)


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_paths_hardly_feel_how_coarse_a_table_is(rule, monkeypatch):
    scores, labels = draw_scores(2_000, noise=3**0.5, seed=4)
    options = {"rule": rule, "certify_rows": 20_000}
    fine = draw_path(scores, labels, 0.15, **options)
    monkeypatch.setattr(bounds, "EXACT_ROWS", 1_000)
    monkeypatch.setattr(bounds, "COARSE_ENTRIES", 500)
    coarse = draw_path(scores, labels, 0.15, **options)
    assert coarse != fine
    for power in (0.9, 0.5, 0.1):  # what a chance to pass costs
        rates = [
            np.interp(
                -power, [-s.power for s in path.steps], [s.abstention_rate for s in path.steps]
            )
            for path in (fine, coarse)
        ]
        assert rates[1] == pytest.approx(rates[0], abs=0.015)


def test_beyond_the_last_entry_its_errors_stand():
    table = ErrorTable(np.array([-1.0, 4.0, 9.0]), 50)
    assert table.rows.tolist() == [0, 50, 100]
    assert table.at(75) == 6.5
    assert table.at(1_000) == 9.0
