"""The same input gives the same result; nothing else is touched."""

import random

import numpy as np
import pytest

from scrib_mlflow import fit_thresholds
from scrib_mlflow.synthetic import draw_scores


@pytest.mark.parametrize("n", [900, 12_000], ids=["all rows at once", "samples first"])
def test_result_does_not_depend_on_threads_or_repetition(n):
    scores, labels = draw_scores(n)
    fits = [fit_thresholds(scores, labels, threads=threads) for threads in (1, 2, 5, 1)]
    assert fits[0] == fits[1] == fits[2] == fits[3]


def test_result_does_not_depend_on_memory_layout_or_precision_of_input():
    scores, labels = draw_scores(500)
    single = scores.astype(np.float32)
    wanted = fit_thresholds(single.astype(np.float64), labels)
    for same in (single, np.asfortranarray(single), single.tolist()):
        assert fit_thresholds(same, labels) == wanted
    assert fit_thresholds(single, labels.tolist()) == wanted


def test_input_and_global_random_state_stay_as_they_are():
    scores, labels = draw_scores(400)
    before = scores.copy(), labels.copy()
    np.random.seed(1)  # noqa: NPY002  # the global state is what is watched
    random.seed(1)
    state = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    fit_thresholds(scores, labels)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == state  # noqa: NPY002
    assert (scores == before[0]).all()
    assert (labels == before[1]).all()
    scores.flags.writeable = False
    fit_thresholds(scores, labels)


def test_another_seed_may_differ_but_is_as_good():
    scores, labels = draw_scores(5_000)
    losses = [fit_thresholds(scores, labels, seed=seed).loss for seed in range(4)]
    assert max(losses) <= 1.02 * min(losses)


def test_losses_of_starts_are_ascending_and_the_first_is_the_fits():
    scores, labels = draw_scores(5_000)
    fit = fit_thresholds(scores, labels)
    assert list(fit.start_losses) == sorted(fit.start_losses)
    assert len(fit.start_losses) >= 2
    assert fit.start_losses[0] == pytest.approx(fit.loss, abs=1e-9)
