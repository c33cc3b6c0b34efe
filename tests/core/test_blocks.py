"""Many rows: the same as all at once, in the memory of few."""

import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from scrib_mlflow import OptimalRule, SelectiveRule, ThresholdRule, predict_sets, with_candidates
from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate import split
from scrib_mlflow.core.inputs import row_blocks
from scrib_mlflow.core.optimal import measure_gap, recalibrate
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.serving import recalibrated, rule_sets
from scrib_mlflow.synthetic import draw_scores

MAP = Recalibration(slopes=(1.1, 0.9, 1.0, 1.2, 0.8), offsets=(0.1, 0.0, -0.2, 0.0, 0.3), of="log")
OPTIMAL = OptimalRule(
    multipliers=(1.0, 12.0, 6.0, 6.0, 6.0),
    charges=(1.5, 11.0, 5.5, 5.5, 5.5),
    recalibration=MAP,
    candidate_thresholds=(0.2,) * 5,
)
ASKED = make_constraints(Targets(), tuple("01234"))


@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 700])
def test_blocks_cover_every_row_once(n, monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK_ROWS", 7)
    assert [row for of in row_blocks(n) for row in range(n)[of]] == list(range(n))


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_results_do_not_depend_on_the_size_of_blocks(size, monkeypatch):
    scores, labels = draw_scores(2_500, noise=3**0.5, seed=3)
    trust = scores[:, 0]
    wanted = with_candidates(OPTIMAL, scores, labels, 0.9)
    bound = measure_gap(OPTIMAL, scores, ASKED, MAP, scores, 0)
    monkeypatch.setattr(inputs, "BLOCK_ROWS", size)
    for rule in (OPTIMAL, ThresholdRule(thresholds=(0.5, 0.1, 0.2, 0.2, 0.2))):
        sets = rule_sets(asdict(rule), scores)
        np.testing.assert_array_equal(predict_sets(scores, rule), sets)
    rule = SelectiveRule(threshold=0.5, on="trust")
    sets = rule_sets(asdict(rule), scores, trust)
    np.testing.assert_array_equal(predict_sets(scores, rule, trust=trust), sets)
    np.testing.assert_array_equal(recalibrate(MAP, scores), recalibrated(asdict(MAP), scores))
    assert with_candidates(OPTIMAL, scores, labels, 0.9) == wanted
    found = measure_gap(OPTIMAL, scores, ASKED, MAP, scores, 0)
    assert asdict(found) == pytest.approx(asdict(bound), rel=1e-9)


@pytest.mark.parametrize(
    ("most", "work"),
    [
        (0.5, lambda scores, labels: predict_sets(scores, OPTIMAL)),
        (1.5, lambda scores, labels: with_candidates(OPTIMAL, scores, labels, 0.9)),
        (2.5, lambda scores, labels: measure_gap(OPTIMAL, scores, ASKED, MAP, scores[:9], 0)),
    ],
)
def test_memory_stays_below_a_share_of_that_of_the_scores(most, work):
    scores, labels = draw_scores(600_000, seed=1)
    labels = labels.astype(np.int32)
    tracemalloc.start()
    try:
        work(scores, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * scores.nbytes


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 70), st.integers(0, 60))
def test_hashes_are_ordered_found_and_cut_as_numpy_does_at_once(values, size, count):
    values = np.array(values, dtype=np.uint64)
    labels = (values % 3).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "BLOCK_ROWS", size)
        patch.setattr(inputs, "MOST_IN_MEMORY", 64)
        assert inputs.sorted_values(values).tolist() == sorted(values.tolist())
        assert inputs.distinct_values(values).tolist() == sorted({*values.tolist()})
        assert inputs.is_among(values, np.arange(5, dtype=np.uint64)).tolist() == [
            value < 5 for value in values
        ]
        numbers = [number for _, some in split._occurrences(values, labels) for number in some]
        assert numbers == [np.sum(values[:row] == value) for row, value in enumerate(values)]
        kept = split.keep_rows(values, np.zeros_like(labels), np.array([count]))
        assert kept.sum() == min(count, len(values))
        assert not kept.any() or values[kept].min() >= values[~kept].max(initial=0)
        assert inputs.class_sizes(labels, 3, kept).tolist() == [
            np.sum(kept & (labels == j)) for j in range(3)
        ]


def test_a_disk_that_is_too_small_is_told_before_it_is_full(monkeypatch):
    monkeypatch.setattr(inputs, "MOST_IN_MEMORY", 100)
    with pytest.raises(InvalidDataError, match="name a folder on a larger disk in TMPDIR"):
        inputs.new_array((2**55,), np.uint64)
