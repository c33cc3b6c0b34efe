"""Groups of rows: capped counts, the cap, and the exact test by bets."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from scrib_mlflow.core.certificate import certify_sets
from scrib_mlflow.core.groups import (
    BETS,
    GroupCounts,
    count_groups,
    exact_upper,
    first_rows,
    log_capital,
    make_group_test,
    typical_rows,
)
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.errors import InvalidDataError, ScribError

LEVEL = 0.05
CLASSES = ("a", "b")


def test_some_first_rows_hold_rows_of_every_class_and_whole_groups():
    labels = np.zeros(1000, dtype=np.int64)
    labels[-3:] = 1
    kept = first_rows(labels, None, 100)
    np.testing.assert_array_equal(np.flatnonzero(kept), [*range(100), 997])
    assert first_rows(labels, None, 5000).all()
    groups = np.arange(1000) // 30
    kept = first_rows(labels, groups, 100)
    np.testing.assert_array_equal(np.unique(groups[kept]), [0, 1, 2, 33])
    assert kept.sum() == 90 + 10
    assert (groups[first_rows(labels, groups, 10)] == 0).sum() == 30  # not even one group fits


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 6),
)
def test_a_group_counts_for_its_cap_at_most_and_its_errors_in_proportion(rows, cap):
    codes, certain, wrong = (np.array(column) for column in zip(*rows, strict=True))
    found = count_groups(codes, certain & wrong, [certain], cap)[0]
    wanted = []
    for group in range(6):
        n = int((certain & (codes == group)).sum())
        e = int((certain & wrong & (codes == group)).sum())
        if n:
            wanted.append((min(n, cap), e * min(1, cap / n)))
    np.testing.assert_allclose(sorted(zip(found.certain, found.wrong, strict=True)), sorted(wanted))


def test_the_order_of_groups_does_not_follow_their_names():
    codes = np.arange(50)
    counted = count_groups(codes, codes < 25, [np.ones(50, dtype=bool)])[0]
    assert 5 < counted.wrong[:25].sum() < 20


def test_the_cap_is_the_median_of_the_claim_whose_groups_are_smallest():
    sizes = {"a": [9, 9, 40, 1], "b": [2, 3, 50]}  # a group each
    codes = np.repeat(np.arange(7), [*sizes["a"], *sizes["b"]])
    labels = np.repeat([0, 1], [59, 55])
    claims = make_constraints(Targets(risk_targets=0.1), CLASSES)
    assert typical_rows(codes, labels, claims) == 3
    assert typical_rows(codes, labels, claims[:1]) == 9
    overall = make_constraints(Targets(risk_targets=None, overall_target=0.1), CLASSES)
    assert typical_rows(codes, labels, overall) == 9


def counts_of(*pairs):
    return GroupCounts(*np.array(pairs, dtype=float).T)


def test_bets_win_what_their_products_say():
    counted = counts_of((5, 0), (3, 1), (5, 0), (1, 0), (5, 0))
    z = (counted.wrong - 0.2 * counted.certain) / 5
    capital = [
        sum(part * np.prod(1 - share / 0.8 * z[:t]) for share, part in BETS) for t in range(1, 6)
    ]
    assert log_capital(counted, 5, 0.2) == pytest.approx(np.log(max(1, *capital)))
    assert log_capital(counts_of((5, 5), (5, 5)), 5, 0.2) == 0.0
    assert log_capital(GroupCounts(np.zeros(0), np.zeros(0)), 5, 0.2) == 0.0
    assert sum(part for _, part in BETS) == pytest.approx(1.0)
    assert all(0 < share < 1 for share, _ in BETS)


def test_the_exact_bound_is_the_lowest_target_that_the_bets_prove():
    counted = counts_of(*[(5, 0)] * 80, *[(4, 1)] * 3)
    bound = exact_upper(counted, 5, LEVEL)
    assert (
        log_capital(counted, 5, bound + 1e-9) >= np.log(20) > log_capital(counted, 5, bound - 1e-6)
    )
    assert exact_upper(counts_of((5, 0)), 5, LEVEL) > 0.9


def test_capital_is_not_expected_to_grow_where_the_claim_is_false():
    """All orders of all outcomes of four groups of one row, at a risk equal to the target."""
    target, chance, expected = 0.3, {0: 0.7, 1: 0.3}, 0.0
    for wrong in itertools.product((0, 1), repeat=4):
        z = np.array(wrong) - target
        capital = sum(part * np.prod(1 - share / (1 - target) * z) for share, part in BETS)
        expected += capital * np.prod([chance[e] for e in wrong])
    assert expected == pytest.approx(1.0)


def grouped_rows(n_groups, rows_of_each, wrong_groups=0):
    """Return scores, labels and groups: class a, of which some groups are all wrong."""
    groups = np.repeat(np.arange(n_groups), rows_of_each)
    wrong = groups < wrong_groups
    return np.column_stack([~wrong, wrong]) * 0.8 + 0.1, np.zeros(len(groups), int), groups


def certified(groups, **options):
    scores, labels, codes = groups
    asked = {"classes": CLASSES, "waive": ["b"], "groups": codes} | options
    return certify_sets(scores, labels, [0.5, 0.5], 0.1, **asked)


def test_the_claim_is_about_capped_rows():
    sizes = [10] * 60 + [3_000]
    rows = grouped_rows(61, sizes)
    scores, _, codes = rows
    scores[codes == 60] = scores[codes == 60][:, ::-1]  # the large group is wrong
    capped = certified(rows, group_cap=10)
    claim = capped.claims[0]
    assert (claim.n_certain, claim.n_wrong, claim.n_groups) == (3_600, 3_000, 61)
    assert claim.risk == pytest.approx(1 / 61)
    assert (claim.group_sums.certain, claim.group_sums.wrong) == (610, 10)
    assert (capped.group_cap, capped.group_test, capped.approximate) == (10, "approximate", True)
    assert capped.passed
    assert not certified(rows, group_cap=3_000).passed


def test_the_exact_test_needs_no_thirty_groups_but_enough_of_them():
    few = certified(grouped_rows(29, [4] * 29), group_cap=4)
    assert few.claims[0].status == "too few groups"
    exact = {"group_cap": 4, "group_test": "exact"}
    assert certified(grouped_rows(29, [4] * 29), **exact).claims[0].status == "not certified"
    found = certified(grouped_rows(40, [4] * 40), **exact)
    assert found.passed
    assert (found.approximate, found.group_test) == (False, "exact")
    claim = found.claims[0]
    assert claim.p_value == pytest.approx(np.exp(-claim.group_sums.log_capital))
    assert claim.risk_upper <= 0.1 < claim.risk_upper_simultaneous + 0.1
    assert not certified(grouped_rows(40, [4] * 40, wrong_groups=4), **exact).passed


def test_without_a_cap_only_the_exact_test_of_a_declared_maximum_claims_rows():
    rows = grouped_rows(90, [4] * 89 + [9])
    found = certified(rows, group_test="exact", max_group_rows=9)
    assert found.passed
    assert (found.group_cap, found.max_group_rows) == (None, 9)
    with pytest.raises(InvalidDataError, match="a group has 9 certain rows"):
        certified(rows, group_test="exact", max_group_rows=8)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("approximate", None, None), "groups need group_cap"),
        (("exact", None, None), "groups need group_cap"),
        (("approximate", None, 9), "add group_test=exact"),
        (("exact", 3, 9), "exclude each other"),
        (("exact", 0, None), "group_cap must be above 0"),
        (("exact", 2.5, None), "rows are whole"),
        (("precise", 3, None), "approximate or exact"),
    ],
)
def test_a_test_of_groups_that_cannot_hold_is_refused(options, text):
    with pytest.raises(ScribError, match=text):
        make_group_test(*options)
