"""Many rows: the same as all at once, in the memory of few."""

import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest

from scrib_mlflow import OptimalRule, SelectiveRule, ThresholdRule, predict_sets, with_candidates
from scrib_mlflow.core import inputs
from scrib_mlflow.core.inputs import row_blocks
from scrib_mlflow.core.optimal import measure_gap, recalibrate
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.core.targets import Targets, make_constraints
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
