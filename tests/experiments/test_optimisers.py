"""Optimisers side by side: attained losses, none below the optimum."""

import numpy as np
import pytest

from experiments.optimisers import (
    BAYESIAN,
    OPTIMISERS,
    OURS,
    SCIPY,
    compare_optimisers,
    minimise_with_bayes,
    minimise_with_scipy,
    skipped_optimisers,
)
from experiments.surface import Surface, open_surface
from scrib_mlflow import ScribError
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.studies.compare import halve
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import best_loss

QUICK = tuple(name for name in OPTIMISERS if name != BAYESIAN)


def rows(seed, n=70):
    scores, labels = draw_scores(n, signal=(4.0, 1.0, 2.0), noise=1.5, seed=seed)
    labels[:6] = [0, 1, 2, 0, 1, 2]
    return scores, labels


def test_ours_reaches_the_optimum_of_each_half_and_nothing_goes_below():
    scores, labels = rows(0)
    runs = compare_optimisers(scores, labels, 0.1, methods=QUICK, repeats=3, seed=1)
    assert [(run.repeat, run.method) for run in runs] == [(r, m) for r in range(3) for m in QUICK]
    for repeat in range(3):
        random = np.random.default_rng([1, repeat])
        part = halve(check_rows(scores, labels, None, None), None, range(3), random)
        truth = best_loss(scores[part], labels[part], 0.1)
        for run in runs:
            if run.repeat == repeat:
                assert run.loss >= truth - 1e-12
                assert run.method != OURS or run.loss == pytest.approx(truth, abs=1e-12)


def test_times_are_told_beside_ours_which_always_runs():
    scores, labels = rows(1)
    runs = compare_optimisers(scores, labels, 0.1, methods=["TNC"], repeats=1)
    assert [run.method for run in runs] == ["TNC", OURS]
    assert runs[1].seconds_ratio == 1
    assert runs[0].seconds_ratio == runs[0].seconds / runs[1].seconds


def test_a_seed_repeats_and_progress_sees_every_repeat():
    scores, labels = rows(2)
    seen = []
    options = {"methods": ["Powell", "greedy"], "repeats": 2, "seed": 3}
    runs = compare_optimisers(scores, labels, 0.1, **options)
    again = compare_optimisers(
        scores, labels, 0.1, **options, progress=lambda turns: seen.extend(turns) or turns
    )
    assert runs == again
    assert seen == [0, 1]


@pytest.fixture
def asked():
    """A small loss surface, and the losses it was asked for."""
    losses = []

    class Listening(Surface):
        def loss(self, thresholds):
            losses.append(super().loss(thresholds))
            return losses[-1]

    return Listening(*open_surface(*rows(3, n=60), {"0": 0.05, "default": 0.2})), losses


@pytest.mark.parametrize("method", SCIPY)
def test_scipy_methods_keep_the_best_of_ten_starts(asked, method):
    surface, losses = asked
    found = minimise_with_scipy(surface, method, 0)
    assert len(losses) == found.evaluations
    picked = np.random.default_rng(0).integers(60, size=(10, 3))
    starts = surface.rows.scores[picked, np.arange(3)]
    losses = np.array(losses)
    assert np.abs(losses - found.loss).min() < 1e-9
    assert found.loss <= min(surface.loss(start) for start in starts) + 1e-9


def test_bayesian_optimisation_keeps_the_best_it_has_seen(asked):
    pytest.importorskip("bayes_opt", reason="bayesian-optimization is not installed (extra: paper)")
    surface, losses = asked
    found = minimise_with_bayes(surface, 0, iterations=15)
    assert len(losses) == found.evaluations == 25
    assert found.loss == pytest.approx(min(losses), abs=1e-9)


def test_missing_library_is_skipped_with_what_to_do(monkeypatch):
    monkeypatch.setattr("experiments.outputs.find_spec", lambda _: None)
    assert skipped_optimisers() == {
        BAYESIAN: "bayes_opt is not installed; pip install 'scrib_mlflow[paper]'"
    }
    runs = compare_optimisers(*rows(5), 0.1, repeats=1)
    assert [run.method for run in runs] == list(QUICK)
    with pytest.raises(ScribError, match="bayes_opt is not installed"):
        compare_optimisers(*rows(5), 0.1, methods=[BAYESIAN], repeats=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats is 0, but must be 1 or more"),
        ({"methods": ["Nelder"]}, "unknown 'Nelder'; known are Bayesian, TNC"),
        ({"seed": -1}, "seed is -1"),
        ({"targets": 2.0}, "risk_targets is 2, but a target lies between 0 and 1"),
        ({"classes": ["a"]}, "3 columns"),
    ],
    ids=str,
)
def test_bad_input_is_told_in_a_sentence(options, message):
    asked = {"targets": 0.1, "repeats": 1, **options}
    with pytest.raises(ScribError, match=message):
        compare_optimisers(*rows(6), **asked)
