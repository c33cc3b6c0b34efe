"""The dropout network on scikit-learn's digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from experiments.dropout import score_with_dropout
from scrib_mlflow import ScribError, evaluate_sets, fit_sgr

DIGITS, LABELS = load_digits(return_X_y=True)
TRAINED, UNSEEN = slice(0, None, 2), slice(1, None, 2)
QUICK = {"epochs": 12, "passes": 30}


def scored(**options):
    given = (DIGITS[TRAINED], LABELS[TRAINED], DIGITS[UNSEEN])
    return score_with_dropout(*given, **{**QUICK, **options})


@pytest.fixture(scope="module")
def answers():
    pytest.importorskip("torch", reason="torch is not installed (extra: paper)")
    return scored(seed=1)


def test_scores_are_probabilities_that_know_the_digits(answers):
    assert answers.scores.shape == (len(LABELS[UNSEEN]), 10)
    assert answers.scores.sum(axis=1) == pytest.approx(1)
    assert (answers.scores.argmax(axis=1) == LABELS[UNSEEN]).mean() > 0.9


def test_trusted_rows_are_right_more_often(answers):
    right = answers.scores.argmax(axis=1) == LABELS[UNSEEN]
    trusted = answers.trust >= np.median(answers.trust)
    assert (answers.trust <= 0).all()
    assert (answers.trust >= -0.25).all()  # the highest variance of a number in 0..1
    assert right[trusted].mean() > right[~trusted].mean() + 0.03


def test_sgr_takes_the_trust(answers):
    labels = LABELS[UNSEEN]
    fit = fit_sgr(answers.scores, labels, 0.05, trust=answers.trust)
    report = evaluate_sets(answers.scores, labels, fit, trust=answers.trust)
    assert fit.rule.on == "trust"
    assert report.n_certain > 0
    assert report.overall_risk < 0.05


def test_a_seed_repeats_and_leaves_torch_as_it_was(answers):
    import torch  # noqa: PLC0415

    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    again = scored(seed=1)
    assert (again.scores == answers.scores).all()
    assert (again.trust == answers.trust).all()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert (scored(seed=2, epochs=1).scores != answers.scores).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.full((4, 2), np.nan)}, r"features\[0, 0\] is nan"),
        ({"unseen": np.zeros((2, 3))}, "as many columns"),
        ({"labels": [0, 2, 0, 2]}, "class indices from 0"),
        ({"labels": ["a", "b", "a", "b"]}, "one class index"),
        ({"seed": -1}, "seed is -1"),
    ],
    ids=["missing value", "other columns", "a gap in the classes", "names", "seed"],
)
def test_bad_input_is_told_in_a_sentence(change, message):
    pytest.importorskip("torch", reason="torch is not installed (extra: paper)")
    given = {"features": np.eye(4)[:, :2], "labels": [0, 1, 0, 1], "unseen": np.zeros((2, 2))}
    with pytest.raises(ScribError, match=message):
        score_with_dropout(**{**given, **change})


def test_missing_torch_is_told_with_what_to_do(monkeypatch):
    monkeypatch.setattr("experiments.outputs.find_spec", lambda _: None)
    with pytest.raises(ScribError, match=r"torch is not installed; pip install 'scrib_mlflow\["):
        score_with_dropout(np.eye(2), [0, 1], np.eye(2))
