"""Certifiable targets: what a frontier predicts that certify rows would prove."""

import math

import numpy as np
import pytest

from scrib_mlflow import draw_path
from scrib_mlflow.core.reports import measure_part
from scrib_mlflow.core.studies import draw_frontier
from scrib_mlflow.synthetic import draw_scores

CLASSES = ("a", "b", "c", "d", "e")
SCORES, LABELS = draw_scores(3000, seed=4)


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_a_frontier_predicts_what_calibrate_does(rule):
    options = {"classes": CLASSES, "certify_rows": 7000, "rule": rule, "answers": "top"}
    asked = {"b": 0.2, "default": 0.1}
    found = draw_frontier(SCORES, LABELS, asked, **options, points=12, highest=0.4)
    at = {each.target: each for each in found.certifiable}
    assert 0.1 in at
    assert set(at) <= {point.target for point in found.joint}
    for factor in (1.0, found.joint[-1].target / 0.1):
        targets = {name: factor * target for name, target in found.targets.items()}
        path = draw_path(SCORES, LABELS, targets, **options)
        each = at[0.1 if factor == 1.0 else found.joint[-1].target]
        assert each.chance == pytest.approx(path.steps[0].power, abs=1e-6)
        if path.power >= 0.8:
            assert each.abstention_rate == pytest.approx(path.expected_abstention, abs=1e-6)
        else:
            assert math.isnan(each.abstention_rate)
    last = found.certifiable[-1]
    assert last.chance > 0.9
    assert last.abstention_rate >= found.joint[-1].held_out.abstention_rate - 0.03


def test_the_abstention_to_expect_is_that_of_the_last_rule_that_passes():
    path = draw_path(SCORES, LABELS, 0.2, certify_rows=7000)
    powers = np.array([step.power for step in path.steps])
    rates = np.array([step.abstention_rate for step in path.steps])
    random = np.random.default_rng(0)
    draws = random.random(20_000)  # rules that are likelier to pass pass where others do
    last = (draws[:, None] < powers).sum(axis=1) - 1
    assert path.expected_abstention == pytest.approx(rates[last[last >= 0]].mean(), abs=0.005)
    assert rates[-1] < path.expected_abstention < rates[0]


def test_few_rows_and_few_groups_certify_nothing():
    options = {"risk_targets": 0.2, "points": 5}
    few = draw_frontier(SCORES[:600], LABELS[:600], certify_rows=20, **options)
    assert all(math.isnan(each.abstention_rate) for each in few.certifiable[:3])
    groups = np.arange(600) // 6
    for n_groups, some in ((29, False), (600, True)):
        found = draw_frontier(
            SCORES[:600],
            LABELS[:600],
            certify_rows=3600,
            groups=groups,
            certify_groups=n_groups,
            **options,
        )
        assert found.n_groups == 100
        assert any(not math.isnan(each.abstention_rate) for each in found.certifiable) == some


def test_a_class_without_held_out_certain_rows_is_silent():
    sets = np.zeros((40, 2), dtype=bool)
    labels = np.repeat([0, 1], 20).astype(np.int32)
    sets[:20, 0] = True
    part = measure_part(sets, labels, ("a", "b"), [0, 1], confidence=0.9)
    assert part.by_class["b"].n_certain == 0
    assert math.isnan(part.by_class["b"].risk)
    assert part.by_class["b"].risk_band == (0.0, 1.0)
    assert part.by_class["b"].abstention_band == pytest.approx((0.05 ** (1 / 20), 1.0))
