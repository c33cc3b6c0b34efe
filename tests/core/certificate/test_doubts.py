"""Soft counts that are wrong, and certify rows so many that it shows."""

import numpy as np
import pytest
from scipy import special

from scrib_mlflow import certify_path, draw_path, predict_sets
from scrib_mlflow.core.certificate import path, tally_sets
from scrib_mlflow.core.certificate.chances import LEAST_WORTH, MOST_WORTH, soft_worth
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.core.targets import Targets, make_constraints

CLASSES = ("a", "b", "c")
TARGET = 0.05


def draw(n, seed):
    """Return scores whose confidence is off by a factor that no slope by class can repair."""
    random = np.random.default_rng(seed)
    labels = random.choice(3, size=n, p=[0.6, 0.3, 0.1])
    logits = 2.2 * np.eye(3)[labels] + random.normal(size=(n, 3))
    sharp = np.where(np.abs(logits[:, 0] - logits[:, 1]) > 2.0, 1.6, 0.7)
    return special.softmax(logits * sharp[:, None], axis=1), labels


def passes(rule):
    scores, labels = draw(60_000, seed=0)
    found = draw_path(scores, labels, TARGET, rule=rule, certify_rows=600_000, classes=CLASSES)
    fresh, truth = draw(600_000, seed=1)
    constraints = make_constraints(Targets(risk_targets=TARGET), CLASSES)
    tallies = (
        tally_sets(predict_sets(fresh, step.rule), truth, constraints) for step in found.steps
    )
    return certify_path(tallies, constraints, CLASSES, level=0.05), found


@pytest.mark.parametrize("rule", ["thresholds", pytest.param("optimal", marks=pytest.mark.slow)])
def test_labels_correct_what_soft_counts_get_wrong(rule, monkeypatch):
    test, found = passes(rule)
    assert test.certificate.passed
    assert found.steps[test.chosen + 1].power < 0.9  # the first that failed
    monkeypatch.setattr(path, "soft_worth", lambda recalibration: 1e12)
    blind, trusting = passes(rule)
    assert trusting.steps[len(blind.p_values) - 1].power > 0.99
    assert blind.p_values[-1] > 0.05


def test_the_forecast_knows_what_labels_leave_open():
    _, found = passes("thresholds")
    powers = [step.power for step in found.steps]
    assert powers == sorted(powers, reverse=True)
    assert powers[0] > 0.8
    assert powers[-1] < 0.2


def test_soft_rates_are_worth_more_where_recalibration_changed_little():
    def worth(slope, of="log"):
        return soft_worth(Recalibration(slopes=(slope, 1 / slope), offsets=(0.0, 0.3), of=of))

    assert worth(1.0) == MOST_WORTH
    assert worth(0.5) == LEAST_WORTH == worth(2.0)
    assert LEAST_WORTH < worth(0.85) < worth(0.92) < MOST_WORTH
    assert worth(1.0, of="raw") == LEAST_WORTH
