"""One threshold for all classes that is certain as often as SCRIB, and unequal targets."""

import numpy as np
import pytest

from experiments.outputs import Outputs, random_halves
from experiments.risks import (
    ONE,
    equal_certain_threshold,
    hardest_class,
    measure_same_certain,
    measure_unequal,
)
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_counts


def outputs(n=600, *, decimals=None, seed=0):
    scores, labels = draw_scores(n, noise=3**0.5, seed=seed)
    if decimals is not None:
        scores = np.round(scores, decimals)
    return Outputs(
        name="drawn", scores=scores, labels=labels, classes=tuple("abcde"), target=0.1, origin=""
    )


def count_certain(scores, threshold):
    return sum(sum(value >= threshold for value in row) == 1 for row in scores)


@pytest.mark.parametrize("decimals", [None, 2, 1])
@pytest.mark.parametrize("n_certain", [0, 40, 77, 120, 150])
def test_no_other_threshold_comes_nearer_to_the_number_of_certain_rows(decimals, n_certain):
    scores = outputs(150, decimals=decimals).scores
    found = equal_certain_threshold(scores, n_certain)
    values = np.unique(scores)
    tried = [-np.inf, *((values[:-1] + values[1:]) / 2)]
    misses = [abs(count_certain(scores, each) - n_certain) for each in tried]
    assert abs(count_certain(scores, found) - n_certain) == min(misses)
    # Of equal ones, none lower: sets name as many candidates as they can.
    lower = [each for each, miss in zip(tried, misses, strict=True) if miss == min(misses)]
    assert count_certain(scores, found) == count_certain(scores, lower[0])
    assert (scores >= found).sum() == (scores >= lower[0]).sum()


def test_both_are_certain_of_as_many_rows_and_counted_on_the_others():
    data = outputs(1000)
    found = measure_same_certain(data, repeats=3, seed=1)
    assert found.certain["SCRIB"] == pytest.approx(found.certain[ONE], abs=0.05)
    for method in ("SCRIB", ONE):
        assert 0 <= found.mean_excess[method] <= found.worst_risk[method] <= 1
        # Sets lack the truth at least where they are certain and wrong.
        wrong = found.certain[method] * found.overall_risk[method]
        assert found.holds_truth[method] <= 1 - wrong + 0.01
        assert found.size_ambiguity[method] >= found.certain[method]


def test_a_set_holds_the_truth_where_its_score_reaches_its_threshold():
    data = outputs(600)
    found = measure_same_certain(data, repeats=1, seed=4)
    (split,) = random_halves(data, 1, 4)
    fit = fit_thresholds(*split.to_fit(data), data.target, classes=data.classes, seed=4)
    scores, labels = data.scores[~split.fitted], data.labels[~split.fitted]
    held = [row[j] >= fit.rule.thresholds[j] for row, j in zip(scores, labels, strict=True)]
    assert found.holds_truth["SCRIB"] == pytest.approx(np.mean(held))
    assert 0.5 < np.mean(held) < 1


def test_the_hardest_class_is_the_one_least_often_right():
    data = outputs(2000)
    right = data.scores.argmax(axis=1) == data.labels
    recalls = {c: right[data.labels == j].mean() for j, c in enumerate(data.classes)}
    assert hardest_class(data) == min(recalls, key=recalls.get) == "b"


def test_risks_under_unequal_targets_are_means_over_the_measured_halves():
    data = outputs(1200)
    found = measure_unequal(data, repeats=1, seed=4)
    assert found.targets == {"a": 0.05, "b": 0.15, "c": 0.05, "d": 0.05, "e": 0.05}
    assert [*found.risks] == ["SGR", "LABEL", "SCRIB", "optimal"]
    # The same halves once more, by the formula of LABEL alone.
    (split,) = random_halves(data, 1, 4)
    scores, labels = data.scores[split.fitted], data.labels[split.fitted]
    thresholds = []
    for j, target in enumerate(found.targets.values()):
        own = np.sort(scores[labels == j, j])
        quantile = own[int(target * len(own) + 1e-9)]
        others = scores[:, j][scores[:, j] < quantile]
        thresholds.append((others.max(initial=0.0) + quantile) / 2)
    counts, _, _ = naive_counts(data.scores[~split.fitted], data.labels[~split.fitted], thresholds)
    _, certain, wrong, _ = counts
    assert [*found.risks["LABEL"].values()] == pytest.approx([*(wrong / certain)])
    assert found.overall_risk["LABEL"] == pytest.approx(wrong.sum() / certain.sum())
