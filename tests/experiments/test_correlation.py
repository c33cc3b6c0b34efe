"""Chance and size ambiguity of random set classifiers, against counts row by row."""

import numpy as np
import pytest

from experiments.risks import correlate_ambiguities, measure_ambiguities
from scrib_mlflow import ScribError
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_counts


def test_ambiguities_are_those_of_the_sets():
    scores, labels = draw_scores(80, seed=1)
    scores = np.round(scores, 1)
    thresholds = np.random.default_rng(0).choice(scores.ravel(), size=(25, 5))
    chance, size = measure_ambiguities(scores, thresholds)
    for m, at in enumerate(thresholds):
        by_class, empty, members = naive_counts(scores, labels, at)
        assert chance[m] == pytest.approx((80 - by_class[1].sum() - empty) / 80)
        assert size[m] == pytest.approx(members / 80)


def test_correlations_are_of_thresholds_from_one_half_measured_on_the_other():
    scores = np.repeat(np.linspace(0.1, 0.9, 40)[:, None], 3, axis=1)
    found = correlate_ambiguities(scores, classifiers=400, repeats=3, seed=2)
    assert found.classifiers == 400
    assert len(found.pearson) == len(found.spearman) == 3
    for repeat in range(3):
        random = np.random.default_rng([2, repeat])
        order = random.permutation(40)
        picked = order[:20][random.integers(20, size=(400, 3))]
        at, measured = scores[picked, 0], scores[order[20:], 0]
        inside = measured[None, :, None] >= at[:, None, :]  # (classifiers, rows, classes)
        chance, size = (inside.sum(axis=2) > 1).mean(axis=1), inside.sum(axis=2).mean(axis=1)
        assert found.pearson[repeat] == pytest.approx(np.corrcoef(chance, size)[0, 1])
        ranks = [mean_ranks(chance), mean_ranks(size)]
        assert found.spearman[repeat] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def mean_ranks(values):
    """Return ranks, equal values sharing the mean of theirs."""
    return np.array([(values < v).sum() + (values == v).sum() / 2 for v in values])


def test_ambiguities_go_together_on_the_papers_data_and_a_seed_repeats():
    scores, _ = draw_scores(2_000)
    found = correlate_ambiguities(scores, classifiers=300, repeats=2)
    assert min(found.pearson + found.spearman) > 0.75
    assert found == correlate_ambiguities(scores, classifiers=300, repeats=2)
    assert found != correlate_ambiguities(scores, classifiers=300, repeats=2, seed=1)


def test_correlation_is_undefined_where_an_ambiguity_never_changes():
    found = correlate_ambiguities(np.full((10, 3), 0.5), classifiers=5, repeats=1)
    assert np.isnan(found.pearson + found.spearman).all()


def test_too_few_classifiers_are_refused():
    with pytest.raises(ScribError, match="classifiers is 1"):
        correlate_ambiguities(np.eye(4), classifiers=1)
