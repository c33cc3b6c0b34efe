"""Vector scaling against maps that are known."""

import numpy as np
import pytest
from scipy import optimize, special

from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError
from scrib_mlflow.synthetic import draw_scores

BIAS = np.array([0.8, -0.6, 0.0, 0.3, -0.3])


def distort(probabilities):
    return special.softmax(1.6 * np.log(probabilities) + BIAS, axis=1)


def log_loss(probabilities, labels):
    return -np.log(probabilities[np.arange(len(labels)), labels]).mean()


def test_map_is_a_softmax_of_scaled_logs_or_of_scaled_scores():
    scores = np.array([[0.2, 0.8], [1.0, 0.0]])
    of_log = Recalibration(slopes=(2.0, 0.5), offsets=(0.1, -0.2), of="log", least_score=0.01)
    logs = np.log([[0.2, 0.8], [1.0, 0.01]])
    wanted = special.softmax(logs * [2.0, 0.5] + [0.1, -0.2], axis=1)
    np.testing.assert_allclose(recalibrate(of_log, scores), wanted, rtol=1e-12)
    of_raw = Recalibration(slopes=(2.0, 0.5), offsets=(0.1, -0.2), of="raw")
    wanted = special.softmax(scores * [2.0, 0.5] + [0.1, -0.2], axis=1)
    np.testing.assert_allclose(recalibrate(of_raw, scores), wanted, rtol=1e-12)


def test_distorted_scores_are_set_right():
    true, labels = draw_scores(30_000, noise=3**0.5, seed=1)
    found = fit_recalibration(distort(true), labels)
    np.testing.assert_allclose(found.slopes, 1 / 1.6, atol=0.03)
    offsets = np.array(found.offsets) + BIAS / 1.6  # equal up to a constant
    np.testing.assert_allclose(offsets - offsets.mean(), 0, atol=0.08)
    assert np.abs(recalibrate(found, distort(true)) - true).mean() < 0.003


def test_logits_of_any_size_are_set_right():
    true, labels = draw_scores(20_000, noise=3**0.5, seed=2)
    for scale in (1e-3, 1.0, 1e4):
        found = fit_recalibration(scale * np.log(true), labels)
        assert found.of == "raw"
        assert np.abs(recalibrate(found, scale * np.log(true)) - true).mean() < 0.005


def test_calibrated_scores_stay_nearly_as_they_are():
    true, labels = draw_scores(2_000, noise=3**0.5, seed=3)
    found = fit_recalibration(true, labels)
    np.testing.assert_allclose(found.slopes, 1, atol=0.05)
    assert np.abs(recalibrate(found, true) - true).mean() < 0.008


def test_with_many_rows_it_is_the_most_likely_map():
    true, labels = draw_scores(8_000, noise=3**0.5, seed=4)
    scores = special.softmax(np.log(true) * [0.5, 1.0, 1.5, 2.0, 0.8] + BIAS, axis=1)

    def loss(x):
        logits = np.log(scores) * x[:5] + np.append(x[5:], 0.0)
        return (special.logsumexp(logits, axis=1) - logits[np.arange(8_000), labels]).mean()

    least = optimize.minimize(loss, [*np.ones(5), *np.zeros(4)]).fun
    found = fit_recalibration(scores, labels)
    assert log_loss(recalibrate(found, scores), labels) == pytest.approx(least, abs=1e-3)


def test_few_rows_are_improved_rather_than_overfitted():
    true, labels = draw_scores(50_000, noise=3**0.5, seed=5)
    scores = distort(true)
    raw = log_loss(scores, labels)
    for n in (40, 200, 1_000):
        found = fit_recalibration(scores[:n], labels[:n])
        assert log_loss(recalibrate(found, scores), labels) < raw


@pytest.mark.parametrize("k", [2, 150])
def test_separable_rows_and_absent_classes_stay_finite(k):
    labels = np.arange(300) % max(k - 1, 2)  # the last class has no rows
    scores = np.where(labels[:, None] == np.arange(k), 1.0, 0.0)
    for given in (scores, 0.9 * scores + 0.1 / k, 1e3 * scores):
        found = fit_recalibration(given, labels)
        chances = recalibrate(found, given)
        assert min(found.slopes) > 0
        assert (chances > 0).all()
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        assert (chances.argmax(axis=1) == labels).all()


def test_vote_shares_take_zero_as_less_than_one_vote():
    true, labels = draw_scores(5_000, noise=3**0.5, seed=6)
    votes = np.array([np.random.default_rng(i).multinomial(10, p) for i, p in enumerate(true)]) / 10
    found = fit_recalibration(votes, labels)
    assert found.least_score == pytest.approx(0.05)
    chances = recalibrate(found, votes)
    for label in range(5):
        assert chances[:, label].mean() == pytest.approx((labels == label).mean(), abs=0.01)


def test_labels_and_scores_that_do_not_fit_are_refused():
    scores, labels = draw_scores(50)
    with pytest.raises(InvalidLabelsError, match="one class a row"):
        fit_recalibration(scores, scores)
    with pytest.raises(InvalidScoresError, match="5 classes"):
        recalibrate(fit_recalibration(scores, labels), scores[:, :4])
