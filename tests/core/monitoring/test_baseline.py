"""Kinds, bins and hashes against plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from scrib_mlflow.core.monitoring import baseline as module, make_baseline, served_sets
from scrib_mlflow.core.monitoring.baseline import (
    bins_of,
    cells_of,
    kinds_of,
    one_of_each_group,
    set_hashes,
    without_baseline,
)

CLASSES = tuple("abcd")


def draw(seed, n, k=4, share=0.4):
    random = np.random.default_rng(seed)
    sets = random.random((n, k)) < share
    scored = random.random(n) < 0.9
    top = np.where(scored, np.round(random.random(n), 1), np.nan)
    sets[~scored] = False
    return sets, scored, top


def baseline_of(seed, n=300, k=4, *, scores=True):
    fit, rows = draw(seed, n, k), draw(seed + 1, n, k)
    labels = np.random.default_rng(seed).integers(-1, k, n)
    served = [served_sets(s, scored, top if scores else None) for s, scored, top in (fit, rows)]
    return make_baseline(
        CLASSES[:k], (served[0], fit[0]), served[1], (served[1], labels), grouped=False
    ), (fit, rows, labels)


def plain_kind(members, scored, baseline):
    k = len(baseline.classes)
    others = k + len(baseline.sets)
    if not scored:
        return others + 2
    if not members:
        return others + 1
    if len(members) == 1:
        return members[0]
    return k + baseline.sets.index(members) if members in baseline.sets else others


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 60))
def test_a_row_is_of_the_kind_that_its_set_says(seed, n):
    baseline, _ = baseline_of(seed)
    sets, scored, top = draw(seed + 2, n)
    members = [tuple(np.flatnonzero(row).tolist()) for row in sets]
    wanted = [plain_kind(m, s, baseline) for m, s in zip(members, scored, strict=True)]
    assert kinds_of(served_sets(sets, scored, top), baseline).tolist() == wanted


def test_the_most_frequent_sets_have_a_kind_of_their_own(monkeypatch):
    monkeypatch.setattr(module, "MOST_SETS", 3)
    baseline, ((sets, _, _), *_) = baseline_of(5)
    members = [tuple(np.flatnonzero(row).tolist()) for row in sets if row.sum() > 1]
    times = {each: members.count(each) for each in set(members)}
    assert len(baseline.sets) == 3
    assert (
        sorted((times[each] for each in baseline.sets), reverse=True)
        == sorted(times.values(), reverse=True)[:3]
    )


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_what_was_answered_is_what_the_sets_hold(seed):
    sets, scored, top = draw(seed, 40)
    served = served_sets(sets, scored, top)
    for row, answer, size in zip(sets, served.answers, served.sizes, strict=True):
        assert size == row.sum()
        assert answer == (row.argmax() if row.sum() == 1 else -1)
    by_set = {}
    for row, hashed in zip(sets, served.sets, strict=True):
        by_set.setdefault(tuple(row), set()).add(int(hashed))
    assert all(len(hashes) == 1 for hashes in by_set.values())
    assert len(set.union(*by_set.values())) == len(by_set)


def test_the_order_of_the_members_does_not_change_a_hash():
    one = set_hashes(np.array([0, 0, 0, 1]), np.array([2, 5, -1, 2]), 3)
    other = set_hashes(np.array([1, 0, 0, 0]), np.array([2, -1, 5, 2]), 3)
    np.testing.assert_array_equal(one, other)
    assert len(set(one.tolist())) == 3


def test_a_set_with_an_unknown_class_is_none_of_the_known_sets():
    baseline, _ = baseline_of(5)
    known = set_hashes(np.zeros(2, int), np.array(baseline.sets[0][:2]), 1)
    other = set_hashes(np.zeros(3, int), np.array([*baseline.sets[0][:2], -1]), 1)
    assert known != other


@pytest.mark.parametrize("scores", [True, False])
def test_a_baseline_counts_rows_by_kind_bin_and_class(scores):
    baseline, (fit, rows, labels) = baseline_of(7, scores=scores)
    sets, scored, top = rows
    members = [tuple(np.flatnonzero(row).tolist()) for row in sets]
    kinds = [plain_kind(m, s, baseline) for m, s in zip(members, scored, strict=True)]
    assert list(baseline.kinds) == [kinds.count(j) for j in range(baseline.n_kinds)]
    edges = list(baseline.edges)
    bins = [sum(edge <= t for edge in edges) if t == t else -1 for t in top]  # noqa: PLR0124
    if not scores:
        assert baseline.scores == baseline.edges == ()
        bins = [0] * len(bins)
    else:
        assert list(baseline.scores) == [bins.count(j) for j in range(len(edges) + 1)]
        occurring = sorted(fit[2][fit[1]].tolist())
        assert not set(edges) & set(occurring)
        assert edges[0] < occurring[0] < occurring[-1] < edges[-1]
    cells = [
        (label, kind * 4 + max(b, 0) * 4 // (len(edges) + 1))
        for label, kind, b in zip(labels.tolist(), kinds, bins, strict=True)
    ]
    wanted = [[cells.count((j, c)) for c in range(4 * baseline.n_kinds)] for j in range(4)]
    assert [list(row) for row in baseline.by_class] == wanted


def test_a_table_by_class_that_would_be_huge_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 50)
    baseline, _ = baseline_of(7)
    assert baseline.by_class == ()
    assert sum(baseline.kinds) == 300


def test_scores_that_are_all_equal_have_a_bin_between_those_below_and_above():
    baseline, _ = baseline_of(7, 50)
    same = np.full(50, 0.5)
    served = served_sets(np.eye(4, dtype=bool)[np.zeros(50, int)], np.ones(50, bool), same)
    tied = make_baseline(
        CLASSES,
        (served, np.eye(4, dtype=bool)[np.zeros(50, int)]),
        served,
        (served, np.zeros(50, int)),
        grouped=False,
    )
    assert bins_of(np.array([0.4, 0.5, 0.5 + 1e-12, 0.6, np.nan]), tied).tolist() == [
        0,
        1,
        1,
        2,
        -1,
    ]
    assert bins_of(np.empty(0), baseline).tolist() == []


def test_without_a_baseline_all_sets_of_several_classes_are_one_kind():
    baseline = without_baseline(CLASSES)
    sets = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=bool)
    assert kinds_of(served_sets(sets, np.ones(4, bool), None), baseline).tolist() == [0, 4, 4, 5]
    names = [baseline.name(kind) for kind in range(baseline.n_kinds + 1)]
    assert names == [*CLASSES, "other sets", "empty set", "not scored", "all abstentions"]


def test_kinds_are_called_by_their_classes():
    baseline, _ = baseline_of(5)
    names = [baseline.name(4 + j) for j in range(len(baseline.sets))]
    assert names == [", ".join(CLASSES[j] for j in each) for each in baseline.sets]


def test_cells_without_scores_are_the_first_quarter_of_each_kind():
    baseline, _ = baseline_of(5)
    assert cells_of(np.array([0, 3]), None, baseline).tolist() == [0, 12]


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), max_size=40), st.integers(0, 2**31))
def test_of_each_group_the_first_row_in_the_order_is_chosen(groups, seed):
    groups = np.array(groups, dtype=np.uint64)
    order = np.random.default_rng(seed).permutation(len(groups)).astype(np.uint64)
    chosen = one_of_each_group(groups, order)
    for group in set(groups.tolist()):
        rows = np.flatnonzero(groups == group)
        assert chosen[rows].sum() == 1
        assert chosen[rows[np.argmin(order[rows])]]


def test_a_baseline_of_no_rows_counts_nothing():
    sets = np.zeros((0, 4), dtype=bool)
    served = served_sets(sets, np.zeros(0, bool), np.zeros(0))
    baseline = make_baseline(
        CLASSES, (served, sets), served, (served, np.zeros(0, int)), grouped=False
    )
    assert sum(baseline.kinds) == sum(baseline.scores) == 0
