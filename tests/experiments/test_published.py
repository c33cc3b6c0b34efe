"""The paper's descent against a plain rewrite of it, and against brute force."""

import numpy as np
import pytest

from experiments.surface import PROBING, draw_starts, fit_published, open_surface, probe
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import best_loss, naive_loss

RISKS = [("risk", (j,), 0.1) for j in range(3)]


def rows(seed, n=40, decimals=17):
    scores, labels = draw_scores(n, signal=(4.0, 1.0, 2.0), noise=1.5, seed=seed)
    labels[:3] = np.arange(3)
    return np.round(scores, decimals), labels


def plain_descent(scores, labels, start):
    """Apply the best of all single moves to an observed score until none is better."""
    at = np.array(start)
    loss = naive_loss(scores, labels, at, groups=RISKS)
    while True:
        moves = []
        for k in range(3):
            for value in np.unique(scores[:, k]):
                moved = at.copy()
                moved[k] = value
                moves.append((naive_loss(scores, labels, moved, groups=RISKS), moved))
        least, best = min(moves, key=lambda found: found[0])
        if least >= loss - 1e-9:
            return loss
        loss, at = least, best


@pytest.mark.parametrize(("seed", "decimals"), [(0, 17), (1, 17), (2, 1), (3, 1)])
def test_descent_is_the_papers(seed, decimals):
    scores, labels = rows(seed, n=25, decimals=decimals)
    surface = open_surface(scores, labels, 0.1)
    (start,) = draw_starts(surface, 1, np.random.default_rng(seed))
    fit = fit_published(surface, starts=1, probes=0, seed=seed)
    assert fit.loss == pytest.approx(plain_descent(scores, labels, start), abs=1e-9)


@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_loss_is_attained_and_never_below_the_optimum(decimals):
    for seed in range(6):
        scores, labels = rows(seed, decimals=decimals)
        truth = best_loss(scores, labels, 0.1)
        surface = open_surface(scores, labels, 0.1)
        losses = []
        for probes in (0, 200):
            fit = fit_published(surface, probes=probes, seed=seed)
            attained = naive_loss(scores, labels, fit.thresholds, groups=RISKS)
            assert fit.loss == pytest.approx(attained, abs=1e-12)
            losses.append(fit.loss)
        assert truth - 1e-12 <= losses[1] <= losses[0]


def test_more_starts_are_never_worse_and_a_seed_repeats():
    surface = open_surface(*draw_scores(600, seed=4), 0.1)
    one, ten = (fit_published(surface, starts=s, probes=0, seed=3) for s in (1, 10))
    assert ten.loss < one.loss
    assert fit_published(surface, probes=20, seed=5) == fit_published(surface, probes=20, seed=5)
    assert fit_published(surface, starts=1, probes=1).method == PROBING


@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_probes_stay_within_a_tenth_of_the_ranks(decimals):
    scores, labels = rows(7, n=200, decimals=decimals)
    surface = open_surface(scores, labels, 0.1)
    random = np.random.default_rng(0)
    ranks = np.array([100, 3, 198])
    ordered = np.sort(scores, axis=0)
    cuts = surface.cuts(ordered[ranks, np.arange(3)])
    first = np.array([np.searchsorted(ordered[:, k], ordered[ranks[k], k]) for k in range(3)])
    seen = []
    for _ in range(300):
        trial = cuts.copy()
        draws = random.random((1, 3))
        assert probe(surface.level.rows, surface.objective,
                     surface.state, cuts, np.inf, draws, trial)  # fmt: skip
        seen.append([surface.level.values[k][trial[k]] for k in range(3)])
    low = ordered[np.maximum(first - 20, 0), np.arange(3)]
    high = ordered[np.minimum(first + 20, 199), np.arange(3)]
    assert (np.min(seen, axis=0) == low).all()
    assert (np.max(seen, axis=0) == high).all()
