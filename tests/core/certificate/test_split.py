"""The split: by contents and seed alone, a fraction of every class, whole groups."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.core.inputs import mix
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError, ScribError

MASK = 2**64 - 1


def drawn(n, seed=0, k=3):
    random = np.random.default_rng(seed)
    return random.integers(0, 2**64, n, dtype=np.uint64), random.integers(0, k, n)


def naive_mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def naive_split(hashes, labels, fraction, seed):
    """Split row by row, as another engine would."""
    seen = Counter()
    order = []
    for row, (value, label) in enumerate(zip(hashes.tolist(), labels.tolist(), strict=True)):
        number = seen[value, label]
        seen[value, label] += 1
        mixed = naive_mix((naive_mix(value ^ naive_mix(seed % 2**64)) + number) & MASK)
        order.append((label, mixed, row))
    certify = np.zeros(len(hashes), dtype=bool)
    for label in set(labels.tolist()):
        rows = sorted(entry for entry in order if entry[0] == label)
        share = min(max(int(fraction * len(rows) + 0.5), 1), len(rows) - 1)
        certify[[row for _, _, row in rows[:share]]] = True
    return certify


def contents(hashes, labels, certify):
    return Counter(zip(hashes.tolist(), labels.tolist(), certify.tolist(), strict=True))


def test_mixing_is_splitmix64():
    assert mix(0)[0] == 0xE220A8397B1DCDAF  # the reference implementation, seed 0
    values = [1, 2, 2**63, MASK]
    assert mix(values).tolist() == [naive_mix(value) for value in values]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
    st.integers(-(2**63), 2**64),
)
def test_the_split_is_what_another_engine_makes_of_the_definition(rows, fraction, seed):
    hashes, labels = np.array(rows * 2).T  # twice: no class with one row
    hashes = hashes.astype(np.uint64)
    found = split_rows(hashes, labels, fraction, seed)
    wanted = naive_split(hashes, labels, fraction, seed)
    assert contents(hashes, labels, found) == contents(hashes, labels, wanted)


@pytest.mark.parametrize("copies", [1, 7])
def test_the_order_of_rows_does_not_matter(copies):
    hashes, labels = drawn(500)
    hashes, labels = np.repeat(hashes, copies), np.repeat(labels, copies)
    order = np.random.default_rng(1).permutation(len(hashes))
    whole = split_rows(hashes, labels, 0.7, 3)
    shuffled = split_rows(hashes[order], labels[order], 0.7, 3)
    if copies == 1:
        assert (shuffled == whole[order]).all()
    assert contents(hashes, labels, whole) == contents(hashes[order], labels[order], shuffled)


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.7])
def test_every_class_gives_its_fraction(fraction):
    hashes, labels = drawn(3_001)
    certify = split_rows(hashes, labels, fraction, 0)
    for label in range(3):
        rows = labels == label
        assert certify[rows].sum() == int(fraction * rows.sum() + 0.5)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_both_parts_get_a_row_of_every_class(fraction):
    hashes, labels = drawn(50)
    for part in (split_rows(hashes, labels, fraction, 0), ~split_rows(hashes, labels, fraction, 0)):
        assert (np.bincount(labels[part], minlength=3) > 0).all()


def test_seeds_split_independently_and_neighbouring_hashes_too():
    hashes = np.arange(20_000, dtype=np.uint64)
    labels = np.zeros(20_000, dtype=np.int32)
    first, second = split_rows(hashes, labels, 0.5, 0), split_rows(hashes, labels, 0.5, 1)
    for other in (second, np.roll(first, 1), hashes % 2 == 0):
        table = [[(first & other).sum(), (first & ~other).sum()]]
        table.append([(~first & other).sum(), (~first & ~other).sum()])
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_copies_of_a_row_are_divided():
    hashes = np.repeat(np.arange(4, dtype=np.uint64), 1_000)
    certify = split_rows(hashes, np.zeros(4_000, dtype=int), 0.7, 0).reshape(4, 1_000)
    assert (np.abs(certify.mean(axis=1) - 0.7) < 0.06).all()


def test_groups_stay_whole_and_a_fraction_of_them_certifies():
    _, labels = drawn(3_000)
    hashes, groups = np.zeros(3_000, dtype=np.uint64), drawn(3_000, k=40)[1].astype(np.uint64)
    certify = split_rows(hashes, labels, 0.7, 0, groups=groups)
    inside, outside = set(groups[certify].tolist()), set(groups[~certify].tolist())
    assert not inside & outside
    assert (len(inside), len(outside)) == (28, 12)
    order = np.random.default_rng(1).permutation(3_000)
    again = split_rows(hashes[order], labels[order], 0.7, 0, groups=groups[order])
    assert (again == certify[order]).all()
    assert (split_rows(hashes, labels, 0.7, 5, groups=groups) != certify).any()


def test_a_class_that_cannot_be_split_is_named():
    hashes, labels = drawn(20, k=2)
    alone = np.append(labels, 2)
    names = ("a", "b", "c")
    with pytest.raises(InvalidLabelsError, match=r"class 'c' has 1 row.*add rows"):
        split_rows(np.append(hashes, hashes[:1]), alone, 0.5, 0, names=names)
    assert split_rows(hashes, labels, 0.5, 0, names=names).any()  # no row of c at all


@pytest.mark.parametrize(("fraction", "part"), [(0.1, "certify"), (0.9, "fit")])
def test_groups_that_leave_a_class_out_of_a_part_are_refused(fraction, part):
    hashes, labels = drawn(100, k=2)
    groups = np.arange(100, dtype=np.uint64) // np.uint64(10)
    labels[:10], groups[:10] = 2, 1_000
    with pytest.raises(InvalidDataError, match=f"class 'c'.*to {part}, of 1 that have it.*seed"):
        split_rows(hashes, labels, fraction, 0, groups=groups, names=("a", "b", "c"))
    with pytest.raises(InvalidDataError, match="one group"):
        split_rows(hashes, labels, fraction, 0, groups=np.zeros(100, dtype=np.uint64))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.2, "most"])
def test_fractions_lie_between_0_and_1(fraction):
    with pytest.raises(ScribError, match="certify_fraction"):
        split_rows(*drawn(20), fraction, 0)


@pytest.mark.slow
def test_ten_million_rows_are_split_in_seconds():
    hashes, labels = drawn(10_000_000)
    start = time.perf_counter()
    assert split_rows(hashes, labels, 0.7, 0).mean() == pytest.approx(0.7, abs=1e-6)
    assert time.perf_counter() - start < 30
