"""The loss that every optimiser is given, against row by row counts."""

import numpy as np
import pytest

from experiments.surface import draw_starts, open_surface
from scrib_mlflow import ScribError
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_loss

TARGETS = {"a": 0.05, "b": 0.3, "default": 0.1}
RISKS = [("risk", (j,), target) for j, target in enumerate([0.05, 0.3, 0.1, 0.1, 0.1])]
CLASSES = tuple("abcde")


@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_loss_is_that_of_the_thresholds_row_by_row(decimals):
    scores, labels = draw_scores(150, seed=1)
    scores = np.round(scores, decimals)
    surface = open_surface(scores, labels, TARGETS, classes=CLASSES)
    random = np.random.default_rng(0)
    for _ in range(20):
        at = random.uniform(scores.min(axis=0), scores.max(axis=0))
        truth = naive_loss(scores, labels, at, groups=RISKS)
        assert surface.loss(at) == pytest.approx(truth, abs=1e-9)
        served = surface.serve("any", surface.cuts(at))
        assert served.loss == pytest.approx(truth, abs=1e-9)
        attained = naive_loss(scores, labels, served.thresholds, groups=RISKS)
        assert attained == pytest.approx(truth, abs=1e-9)


def test_silent_class_counts_as_risk_one():
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.6], [0.7, 0.7]])
    surface = open_surface(scores, [0, 0, 1, 1], 0.1)
    assert surface.loss(np.array([0.5, 0.5])) == pytest.approx(0.5 + 1e4 * 0.9**2)


def test_starts_are_observed_scores_of_their_class():
    scores, labels = draw_scores(40, seed=2)
    surface = open_surface(scores, labels, 0.1)
    starts = draw_starts(surface, 30, np.random.default_rng(0))
    assert starts.shape == (30, 5)
    for drawn, column in zip(starts.T, scores.T, strict=True):
        assert np.isin(drawn, column).all()
        assert len(np.unique(drawn)) > 10


def test_bounds_leave_room_where_all_scores_are_equal():
    scores = np.array([[0.5, 0.1], [0.5, 0.9], [0.5, 0.4]])
    bounds = open_surface(scores, [0, 1, 0], 0.1).bounds()
    assert bounds.tolist() == [[0.5, 1.5], [0.1, 0.9]]


def test_soft_labels_are_refused():
    with pytest.raises(ScribError, match="not soft labels"):
        open_surface(np.eye(3), np.eye(3), 0.1)
