"""Samples: which rows are kept, and what each of them stands for."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.core.certificate.split import (
    class_quotas,
    class_weights,
    keep_rows,
    order_rows,
    share,
)


def fill(sizes, most):
    """Raise one limit for all classes as long as the sum allows."""
    limit = 0
    while sum(min(n, limit + 1) for n in sizes) <= most and limit < max(sizes, default=0):
        limit += 1
    return [min(n, limit) for n in sizes]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=7), st.integers(0, 150))
def test_quotas_are_the_highest_common_limit(sizes, most):
    assert class_quotas(sizes, most).tolist() == fill(sizes, most)


def test_every_row_of_a_rare_class_is_kept_and_hardly_a_place_is_left_free():
    assert class_quotas([9_000_000, 30, 0, 900_000], 1_000_000).tolist() == [
        499_985,
        30,
        0,
        499_985,
    ]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=7), st.integers(7, 150))
def test_kept_rows_weigh_as_much_as_all_rows_of_their_class(sizes, most):
    quotas = class_quotas(sizes, most)
    weights = class_weights(sizes, quotas)
    assert (weights * quotas).tolist() == pytest.approx(sizes)
    assert (weights[quotas == np.array(sizes)] == 1.0).all()  # exactly
    assert class_weights([5, 5, 0], [0, 5, 0]).tolist() == [1.0, 1.0, 1.0]


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2)), max_size=60, unique=True),
    st.lists(st.integers(0, 30), min_size=3, max_size=3),
)
def test_rows_are_kept_from_the_highest_order_down(rows, quotas):
    order = np.array([value for value, _ in rows], dtype=np.uint64)
    labels = np.array([label for _, label in rows], dtype=np.int32)
    kept = keep_rows(order, labels, np.array(quotas))
    wanted = set()
    for label, quota in enumerate(quotas):
        own = sorted(((v, i) for i, (v, of) in enumerate(rows) if of == label), reverse=True)
        wanted |= {row for _, row in itertools.islice(own, quota)}
    assert set(np.flatnonzero(kept).tolist()) == wanted


def test_a_sample_of_fit_rows_is_what_is_farthest_from_the_certify_rows():
    random = np.random.default_rng(5)
    hashes = random.integers(0, 2**64, 4_000, dtype=np.uint64)
    labels = random.choice(3, 4_000, p=[0.9, 0.09, 0.01]).astype(np.int32)
    certify = split_rows(hashes, labels, 0.5, 3)
    order = order_rows(hashes, labels, 3)
    sizes = np.bincount(labels[~certify], minlength=3)
    quotas = class_quotas(sizes, 500)
    of_fit = np.zeros(4_000, dtype=bool)
    of_fit[~certify] = keep_rows(order[~certify], labels[~certify], quotas)
    of_all = keep_rows(order, labels, quotas)  # without any split: the same rows
    np.testing.assert_array_equal(of_fit, of_all)
    assert np.bincount(labels[of_fit], minlength=3).tolist() == quotas.tolist()
    for j in range(3):
        own = labels == j
        assert certify[own].sum() == share(int(own.sum()), 0.5)
        assert order[certify & own].max() < order[~certify & own].min()
