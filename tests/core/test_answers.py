"""What a report counts, beside plain loops over the rows."""

import math
from collections import Counter

import numpy as np
import pytest

from scrib_mlflow.core.reports import (
    MOST_POINTS,
    Answers,
    choose_examples,
    confusion_counts,
    count_by_set,
    outcome_counts,
    own_point,
    risk_coverage,
)


def draw(n=400, k=4, *, seed=0, limit=0.3, decimals=2):
    random = np.random.default_rng(seed)
    labels = random.integers(0, k, n).astype(np.int32)
    scores = random.random((n, k))
    scores[np.arange(n), labels] += 0.5
    scores = np.round(scores / scores.sum(axis=1, keepdims=True), decimals)
    return Answers(scores, labels, scores >= limit, scores >= limit / 2)


def members(row):
    return tuple(j for j, inside in enumerate(row.tolist()) if inside)


def test_confusion_counts_rows_by_true_class_and_answer_with_abstentions_last():
    answers = draw()
    expected = [[0] * 5 for _ in range(4)]
    for label, row in zip(answers.labels.tolist(), answers.sets, strict=True):
        found = members(row)
        expected[label][found[0] if len(found) == 1 else 4] += 1
    assert confusion_counts(answers).tolist() == expected


def test_outcomes_are_right_wrong_ambiguous_or_empty():
    answers = draw()
    expected = [[0] * 4 for _ in range(4)]
    for label, row in zip(answers.labels.tolist(), answers.sets, strict=True):
        found = members(row)
        if len(found) == 1:
            expected[label][0 if found[0] == label else 1] += 1
        else:
            expected[label][2 if found else 3] += 1
    assert outcome_counts(answers).tolist() == expected
    assert min(map(sum, zip(*expected, strict=True))) > 0


def test_a_class_without_rows_has_a_row_of_zeros():
    answers = draw()
    kept = answers.labels != 2
    answers = Answers(*(values[kept] for values in answers))
    assert confusion_counts(answers)[2].tolist() == [0] * 5
    assert confusion_counts(answers).sum() == kept.sum()


@pytest.mark.parametrize("k", [2, 4, 9, 150])
def test_sets_are_counted_with_how_often_they_hold_the_true_class(k):
    answers = draw(k=k, limit=1.1 / k)
    found = count_by_set(answers)
    counted = Counter(members(row) for row in answers.sets)
    held = Counter(
        members(row) for row, label in zip(answers.sets, answers.labels, strict=True) if row[label]
    )
    assert {each.members: each.n for each in found} == dict(counted)
    assert all(each.n_held == held[each.members] for each in found)
    assert [each.n for each in found] == sorted(counted.values(), reverse=True)


def test_the_risk_coverage_curve_is_that_of_every_threshold_on_the_highest_score():
    answers = draw(n=300)
    highest = [max(row) for row in answers.scores.tolist()]
    right = [
        row.index(max(row)) == label
        for row, label in zip(answers.scores.tolist(), answers.labels.tolist(), strict=True)
    ]
    coverage, risk = [], []
    for threshold in sorted(set(highest), reverse=True):
        answered = [good for score, good in zip(highest, right, strict=True) if score >= threshold]
        coverage.append(len(answered) / 300)
        risk.append(1 - sum(answered) / len(answered))
    curve = risk_coverage(answers)
    assert curve.coverage == pytest.approx(coverage)
    assert curve.risk == pytest.approx(risk)


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    answers = draw(n=5000, decimals=9)
    curve = risk_coverage(answers)
    assert len(curve.coverage) <= MOST_POINTS
    assert curve.coverage[-1] == 1
    assert curve.coverage[0] == 1 / 5000
    top = answers.scores.argmax(axis=1) != answers.labels
    assert curve.risk[-1] == pytest.approx(top.mean())


def test_rows_without_scores_are_answered_by_nobody():
    answers = draw(n=100)
    answers.scores[:40] = np.nan
    answers.sets[:40] = False
    assert risk_coverage(answers).coverage[-1] == 0.6
    assert min(choose_examples(answers, 100)) >= 40
    answers.scores[:] = np.nan
    assert risk_coverage(answers).coverage == ()
    assert len(choose_examples(answers, 5)) == 0


def test_the_own_point_is_the_share_of_certain_rows_and_their_risk():
    answers = draw()
    certain = [members(row) for row in answers.sets]
    right = [
        found[0] == label
        for found, label in zip(certain, answers.labels, strict=True)
        if len(found) == 1
    ]
    coverage, risk = own_point(answers)
    assert coverage == len(right) / 400
    assert risk == pytest.approx(1 - sum(right) / len(right))
    never = Answers(answers.scores, answers.labels, *np.zeros((2, *answers.sets.shape), dtype=bool))
    assert own_point(never)[0] == 0
    assert math.isnan(own_point(never)[1])


@pytest.mark.parametrize("most", [1, 3, 12, 1000])
def test_examples_show_as_many_kinds_of_abstentions_as_fit_the_frequent_first(most):
    answers = draw(n=200)
    rows = [
        (i, members(row), label)
        for i, (row, label) in enumerate(zip(answers.sets, answers.labels.tolist(), strict=True))
        if len(members(row)) != 1
    ]
    sizes = Counter((found, label) for _, found, label in rows)
    seen, ranked = Counter(), []
    for i, found, label in rows:
        kind = (found, label)
        ranked.append((seen[kind], -sizes[kind], i))
        seen[kind] += 1
    expected = [i for *_, i in sorted(ranked)][:most]
    assert choose_examples(answers, most).tolist() == expected


def test_there_are_no_examples_where_nothing_abstains():
    answers = draw()
    certain = np.zeros_like(answers.sets)
    certain[:, 1] = True
    assert len(choose_examples(answers._replace(sets=certain), 5)) == 0


def test_sets_of_rows_without_labels_hold_the_true_class_as_often_as_the_same_sets_elsewhere():
    sets = np.array([[1, 0], [1, 0], [1, 1], [0, 0]], dtype=np.bool_)
    labels = np.array([0, 1, 1, 0], dtype=np.int32)
    answers = Answers(np.zeros((4, 2)), labels, sets, sets)
    others = np.array([[1, 1]] * 6 + [[1, 0]] * 3 + [[0, 1]], dtype=np.bool_)
    found = count_by_set(answers, others)
    assert found[:2] == [((0, 1), 6, 6.0), ((0,), 3, 1.5)]
    assert found[2][:2] == ((1,), 1)
    assert math.isnan(found[2].n_held)
