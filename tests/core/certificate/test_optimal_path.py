"""Paths of optimal rules: what their steps keep."""

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow import OptimalRule, draw_path, predict_sets
from scrib_mlflow.core.bounds import ErrorTable, allowed_errors
from scrib_mlflow.core.certificate.steps import _line
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.errors import InvalidScoresError, InvalidTargetsError
from scrib_mlflow.synthetic import draw_scores
from tests.core.certificate.test_guarantee import answers_of

TARGET, NOISE = 0.1, 3**0.5
SCORES, LABELS = draw_scores(3_000, noise=NOISE, seed=7)


@pytest.fixture(scope="module")
def path():
    return draw_path(SCORES, LABELS, TARGET, rule="optimal", certify_rows=7_000)


def test_abstention_falls_strictly_and_power_never_rises(path):
    rates = [step.abstention_rate for step in path.steps]
    powers = [step.power for step in path.steps]
    assert len(rates) >= 8
    assert (np.diff(rates) < 0).all()
    assert (np.diff(powers) <= 0).all()
    assert powers[0] > 0.7
    assert path.recalibration == fit_recalibration(SCORES, LABELS)
    for step in path.steps:
        assert isinstance(step.rule, OptimalRule)
        assert step.rule.recalibration == path.recalibration
        assert step.rule.candidate_thresholds == (np.inf,) * 5


def test_steps_abstain_as_they_say(path):
    for step in path.steps[::4]:
        sets = predict_sets(SCORES, step.rule)
        answers = answers_of(step.rule, SCORES)
        np.testing.assert_array_equal(sets.sum(axis=1) == 1, answers >= 0)
        np.testing.assert_array_equal(sets.argmax(axis=1)[answers >= 0], answers[answers >= 0])
        assert step.abstention_rate == pytest.approx((answers < 0).mean(), abs=1e-12)


def test_steps_pass_about_as_often_as_they_say():
    scores, labels = draw_scores(20_000, noise=NOISE, seed=7)
    found = draw_path(scores, labels, TARGET, rule="optimal", certify_rows=7_000)
    fresh, _ = draw_scores(200_000, noise=NOISE, seed=900)
    for step in found.steps[::4]:
        sets = predict_sets(fresh, step.rule)
        certain = sets.sum(axis=1) == 1
        wrong = np.where(sets[certain], 0.0, fresh[certain]).sum(axis=0)
        rows = fresh[certain].sum(axis=0)
        n = np.round(rows * 7_000 / len(fresh)).astype(int)
        allowed = [allowed_errors(TARGET, each, 0.95)[each] for each in n]
        chance = np.prod(stats.binom.cdf(allowed, n, wrong / rows))
        assert chance == pytest.approx(step.power, abs=0.2)


@pytest.mark.parametrize("target", [0.01, 0.1, 0.3])
def test_lines_touch_the_allowed_errors_and_leave_too_few_rows_none(target):
    allowed = allowed_errors(target, 20_000, 0.95)
    rows = np.arange(len(allowed))
    first = int(np.argmax(allowed >= 0))
    for n in (0.0, first + 1.0, 2.5 * first, 5_000.0, 19_990.0):
        slope, height = _line(ErrorTable(allowed), n, target)
        at = max(n, first + 1.0)
        assert 0.4 * target < slope < 1.6 * target
        assert height + slope * at == pytest.approx(np.interp(at, rows, allowed))
        near = rows[(rows > at - np.sqrt(at)) & (rows < at + np.sqrt(at)) & (allowed >= 0)]
        assert np.abs(height + slope * near - allowed[near]).max() < 2.0  # steps of one error
        if n < 3 * first:
            assert height + slope * 0.4 * first < 0  # so few rows pass nothing


def test_further_rows_draw_the_path_where_they_are_given():
    more, _ = draw_scores(6_000, noise=NOISE, seed=70)
    found = draw_path(SCORES, LABELS, TARGET, rule="optimal", certify_rows=7_000, path_scores=more)
    assert found.n_rows == 6_000
    rate = (predict_sets(more, found.steps[0].rule).sum(axis=1) != 1).mean()
    assert found.steps[0].abstention_rate == pytest.approx(rate, abs=1e-12)


def test_groups_make_the_path_more_careful():
    groups = np.arange(3_000) // 30
    order = np.argsort(np.argmax(SCORES, axis=1), kind="stable")  # alike rows stand together
    grouped = draw_path(
        SCORES[order], LABELS[order], 0.2, rule="optimal", certify_rows=7_000, groups=groups
    )
    alone = draw_path(SCORES[order], LABELS[order], 0.2, rule="optimal", certify_rows=7_000)
    risks = []
    for found in (grouped, alone):
        sets = predict_sets(SCORES, found.steps[0].rule)
        certain = sets.sum(axis=1) == 1
        risks.append((certain & ~sets[np.arange(3_000), LABELS]).sum() / certain.sum())
    assert risks[0] < risks[1]


def test_a_target_that_no_row_count_can_pass_still_gives_a_rule():
    found = draw_path(SCORES[:200], LABELS[:200], 0.01, rule="optimal", certify_rows=100)
    assert found.steps
    assert found.steps[0].power == 0.0
    assert np.isfinite(found.steps[0].rule.multipliers).all()


def test_scores_that_are_no_probabilities_are_refused():
    with pytest.raises(InvalidScoresError, match="fit thresholds, which take any scores"):
        draw_path(np.log(SCORES), LABELS, rule="optimal", certify_rows=100)
    with pytest.raises(InvalidScoresError, match="no probabilities"):
        draw_path(SCORES, LABELS, rule="optimal", certify_rows=100, path_scores=2 * SCORES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "best"}, "use 'thresholds' or 'optimal'"),
        ({"rule": "optimal", "size_weight": 0.1}, "are for thresholds"),
        ({"rule": "optimal", "penalty": 10.0}, "are for thresholds"),
    ],
)
def test_what_the_rule_would_not_heed_is_refused(options, message):
    with pytest.raises(InvalidTargetsError, match=message):
        draw_path(SCORES, LABELS, certify_rows=100, **options)


def test_overall_targets_and_caps_enter_the_path():
    strict = draw_path(SCORES, LABELS, 0.3, overall_target=0.05, rule="optimal", certify_rows=7_000)
    loose = draw_path(SCORES, LABELS, 0.3, rule="optimal", certify_rows=7_000)
    assert strict.steps[-1].abstention_rate > loose.steps[-1].abstention_rate + 0.1
    capped = draw_path(
        SCORES, LABELS, 0.25, max_class_abstention={"1": 0.5}, rule="optimal", certify_rows=7_000
    )
    soft = recalibrate(capped.recalibration, SCORES)
    certain = predict_sets(SCORES, capped.steps[-1].rule).sum(axis=1) == 1
    assert soft[certain, 1].sum() >= 0.45 * soft[:, 1].sum()


def test_a_price_of_errors_buys_fewer_of_them_along_the_whole_path():
    scores, labels = draw_scores(4_000, noise=3**0.5, seed=3)
    wrong = []
    for weight in (0.0, 10.0):
        path = draw_path(
            scores, labels, 0.2, rule="optimal", certify_rows=4_000, error_weight=weight
        )
        by_step = []
        for step in path.steps:
            sets = predict_sets(scores, step.rule)
            certain = sets.sum(axis=1) == 1
            by_step.append(1 - scores[sets & certain[:, None]].mean())
        wrong.append(by_step)
    assert max(wrong[1]) < min(wrong[0]) - 0.02


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_paths_of_the_top_class_give_no_other_answer(rule):
    tilted = SCORES * [1.0, 3.0, 1.0, 1.0, 0.4]  # recalibration changes the top class
    tilted /= tilted.sum(axis=1, keepdims=True)
    drawn = {
        answers: draw_path(
            tilted, LABELS, 0.3, rule=rule, certify_rows=7_000, answers=answers, threads=1
        )
        for answers in ("top", "any")
    }
    others = []
    for answers, path in drawn.items():
        for step in path.steps:
            assert step.rule.answers == answers
            sets = predict_sets(tilted, step.rule)
            certain = sets.sum(axis=1) == 1
            assert step.abstention_rate == pytest.approx(1 - certain.mean(), abs=1e-12)
            other = sets[certain].argmax(axis=1) != tilted[certain].argmax(axis=1)
            others.append(other.any())
            assert not (answers == "top" and other.any())
    assert any(others)


def test_a_path_of_the_top_class_may_end_with_top_1():
    scores, labels = draw_scores(2_000, noise=1.0, signal=(9.0, 8.0, 8.0), seed=1)
    path = draw_path(scores, labels, 0.3, rule="optimal", certify_rows=5_000, answers="top")
    sets = predict_sets(scores, path.steps[-1].rule)
    assert (sets.sum(axis=1) == 1).all()
    assert (sets.argmax(axis=1) == scores.argmax(axis=1)).all()
