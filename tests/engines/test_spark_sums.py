"""Sums and order statistics over Spark tables, against NumPy."""

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from scrib_mlflow.engines.spark import columns
from scrib_mlflow.rows import hashes
from tests.engines.spark import small_session


@pytest.fixture(scope="module")
def spark():
    with small_session() as session:
        yield session


def test_signed_numbers_keep_the_order_of_unsigned_ones():
    values = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    signed = columns.as_signed(values)
    assert (np.diff(signed.astype(object)) > 0).all()
    assert (columns.as_unsigned(signed) == values).all()


def test_integers_keep_the_order_of_floats():
    values = np.array([-np.inf, -1e300, -1.5, -1e-320, 0.0, 5e-324, 0.25, 1.0, np.inf])
    ordered = columns.float_order(values)
    assert (np.diff(ordered.astype(object)) > 0).all()
    assert [columns.float_of(int(value)) for value in ordered] == values.tolist()
    assert columns.float_order(np.array([-0.0])) == columns.float_order(np.array([0.0]))


@pytest.mark.slow
def test_sums_of_hashes_wrap_as_in_numpy_and_partitions_do_not_matter(spark):
    values = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    rows = [(int(value),) for value in columns.as_signed(values)]
    frame = spark.createDataFrame(rows, "hash long").repartition(3)
    found = columns.sum_over(
        frame,
        lambda batch: hashes.digest_sums(columns.hash_column(batch, "hash")),
        np.zeros(5, dtype=np.uint64),
    )
    assert (found == hashes.digest_sums(values)).all()


@pytest.mark.slow
@pytest.mark.parametrize("few", [20_000, 3], ids=["few are collected", "to the last bit"])
def test_the_value_of_a_rank_is_that_of_the_sorted_values(spark, monkeypatch, few):
    monkeypatch.setattr(columns, "FEW", few)
    random = np.random.default_rng(1)
    groups = random.choice([0, 2, 5], 900, p=[0.6, 0.39, 0.01])
    values = random.integers(0, 2**64, 900, dtype=np.uint64)
    values[groups == 2] = random.choice(values[:5], (groups == 2).sum())  # ties
    signed = columns.as_signed(values)
    rows = list(zip(groups.tolist(), signed.tolist(), strict=True))
    frame = spark.createDataFrame(rows, "g0 int, value long").cache()
    ranks = {0: 300, 2: 100, 5: 1}
    found = columns.lowest(frame, "g0", "value", ranks)
    expected = {g: int(np.sort(signed[groups == g])[rank - 1]) for g, rank in ranks.items()}
    assert found == expected
    lower = columns.next_lower(frame, "g0", "value", expected)
    for g, at in expected.items():
        below = signed[(groups == g) & (signed < at)]
        assert lower.get(g) == (int(below.max()) if len(below) else None)
    frame.unpersist()
