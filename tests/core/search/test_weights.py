"""Rows that stand for others: a weighted sample gives what all rows would."""

import numpy as np
import pytest

from scrib_mlflow import draw_path, fit_optimal, predict_sets
from scrib_mlflow.core.certificate.chances import FitRows
from scrib_mlflow.core.certificate.path import blur_scores
from scrib_mlflow.core.certificate.split import class_quotas, class_weights, keep_rows
from scrib_mlflow.core.certificate.steps import PathProblem, expect_groups
from scrib_mlflow.core.groups import count_groups, sum_groups
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.loss import Margin
from scrib_mlflow.core.optimal import fit_recalibration, measure_gap
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

NOISE = 3**0.5
SHARES = np.array([1.0, 0.3, 0.1, 0.05, 0.02])  # of the rows of each class that are left
ASKED = make_constraints(Targets(), tuple("01234"))


def imbalanced(n, seed):
    scores, labels = draw_scores(n, noise=NOISE, seed=seed)
    left = np.random.default_rng(seed).random(n) < SHARES[labels]
    return scores[left], labels[left]


SCORES, LABELS = imbalanced(100_000, 1)
FRESH, TRUTH = imbalanced(300_000, 2)


def a_fifth(seed):
    """Return a stratified sample of a fifth of the rows, and what each row stands for."""
    sizes = np.bincount(LABELS)
    quotas = class_quotas(sizes, len(LABELS) // 5)
    order = np.random.default_rng(seed).integers(0, 2**64, len(LABELS), dtype=np.uint64)
    kept = keep_rows(order, LABELS, quotas)
    assert kept[LABELS >= 3].all()  # the rare classes are whole
    return kept, class_weights(sizes, quotas)[LABELS[kept]]


def measured(rule):
    """Return the risk of each class on fresh rows, and last the abstention."""
    sets = predict_sets(FRESH, rule)
    certain = sets.sum(axis=1) == 1
    wrong = certain & ~sets[np.arange(len(TRUTH)), TRUTH]
    risks = np.bincount(TRUTH[wrong], minlength=5) / np.bincount(TRUTH[certain], minlength=5)
    return np.append(risks, 1 - certain.mean())


def step_at(path, margin):
    return min(path.steps, key=lambda s: (abs(s.margin - margin), s.abstention_rate))


def test_labels_of_a_stratified_sample_recalibrate_as_all_labels_do():
    kept, weights = a_fifth(0)
    whole = fit_recalibration(SCORES, LABELS).offsets
    part = SCORES[kept], LABELS[kept]
    np.testing.assert_allclose(fit_recalibration(*part, weights).offsets, whole, atol=0.15)
    assert np.abs(np.subtract(fit_recalibration(*part).offsets, whole)).max() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_a_path_from_a_stratified_sample_is_that_of_all_rows_if_weights_say_what_it_stands_for(
    rule,
):
    options = {"rule": rule, "certify_rows": 20_000}
    whole = step_at(draw_path(SCORES, LABELS, 0.15, **options), 1.0)
    kept, weights = a_fifth(1)
    part = (SCORES[kept], LABELS[kept], 0.15)
    weighted = step_at(draw_path(*part, **options, sample_weight=weights), 1.0)
    plain = step_at(draw_path(*part, **options), 1.0)
    np.testing.assert_allclose(measured(weighted.rule), measured(whole.rule), atol=0.04)
    assert weighted.abstention_rate == pytest.approx(whole.abstention_rate, abs=0.03)
    assert weighted.power == pytest.approx(whole.power, abs=0.2)
    assert plain.abstention_rate > whole.abstention_rate + 0.08  # so it matters


def test_an_optimal_fit_of_a_stratified_sample_is_that_of_all_rows():
    kept, weights = a_fifth(2)
    whole = fit_optimal(SCORES, LABELS, 0.15)
    weighted = fit_optimal(SCORES[kept], LABELS[kept], 0.15, sample_weight=weights)
    plain = fit_optimal(SCORES[kept], LABELS[kept], 0.15)
    np.testing.assert_allclose(measured(weighted.rule), measured(whole.rule), atol=0.03)
    assert weighted.abstention_bound == pytest.approx(whole.abstention_bound, abs=0.02)
    assert plain.abstention_bound > whole.abstention_bound + 0.08


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_weights_of_one_change_nothing_and_weights_of_none_leave_rows_out(rule):
    few = slice(0, 1_000)  # few enough to be blurred
    scores, labels = SCORES[few], LABELS[few]
    groups = np.arange(1_000) // 10
    options = {"rule": rule, "certify_rows": 10_000, "groups": groups}
    given = draw_path(scores, labels, 0.2, **options)
    assert draw_path(scores, labels, 0.2, **options, sample_weight=np.ones(1_000)) == given
    more = np.vstack([scores, scores[::-1]]), np.append(labels, labels)
    weights = np.repeat([1.0, 0.0], 1_000)
    options["groups"] = np.append(groups, groups)
    assert draw_path(*more, 0.2, **options, sample_weight=weights) == given


def test_a_heavy_row_is_as_good_as_copies_of_it():
    scores, labels = SCORES[:4_000], LABELS[:4_000]
    weights = np.random.default_rng(3).integers(1, 6, 4_000) * 1.0
    copies = np.repeat(np.arange(4_000), weights.astype(int))
    for given in (scores, 5 * np.log(scores)):
        found = fit_recalibration(given, labels, weights)
        wanted = fit_recalibration(given[copies], labels[copies])
        np.testing.assert_allclose(found.slopes, wanted.slopes, rtol=1e-4)
        np.testing.assert_allclose(found.offsets, wanted.offsets, atol=1e-4)
    rule = fit_optimal(scores, labels, 0.15).rule
    found = measure_gap(rule, scores, ASKED, rule.recalibration, scores, 0, weights)
    wanted = measure_gap(rule, scores[copies], ASKED, rule.recalibration, scores[copies], 0)
    assert found.abstention_rate == pytest.approx(wanted.abstention_rate)
    assert found.bound == pytest.approx(wanted.bound, abs=1e-3)
    assert found.bound_at_risks == pytest.approx(wanted.bound_at_risks, abs=1e-3)


def test_fit_rows_that_price_a_gap_count_as_what_they_stand_for():
    kept, weights = a_fifth(4)
    fit = fit_optimal(SCORES, LABELS, 0.15)
    recalibration = fit.rule.recalibration
    bounds = [
        measure_gap(fit.rule, FRESH, ASKED, recalibration, scores, 0, of).bound
        for scores, of in ((SCORES, None), (SCORES[kept], weights), (SCORES[kept], None))
    ]
    assert bounds[1] == pytest.approx(bounds[0], abs=0.002)
    assert bounds[2] < bounds[0] - 0.002  # prices of other rows: valid, but not as tight


def test_blurred_copies_are_as_widespread_as_what_the_rows_stand_for():
    scores = np.random.default_rng(0).normal([[0.0, 5.0]], 1.0, (4_000, 2))
    far = scores[:, 0] > 1.0
    scores[far] *= 3.0
    weights = np.where(far, 0.1, 2.0)
    copies = blur_scores(scores, "raw", 0, weights)[len(scores) :]
    wanted = np.sqrt(np.cov(scores.T, aweights=weights).diagonal())
    many = np.tile(weights, len(copies) // len(scores))
    assert len(many) == len(copies) > 0
    np.testing.assert_allclose(
        np.sqrt(np.cov(copies.T, aweights=many).diagonal()), wanted, rtol=0.03
    )


def test_groups_of_sampled_rows_are_summed_as_those_of_all_rows_on_average():
    random = np.random.default_rng(5)
    groups = np.repeat(np.arange(300), 12)
    certain = random.random(3_600) < 0.8
    wrong = certain & (random.random(3_600) < 0.3 * random.random(300)[groups])
    weight = np.where(np.arange(3_600) % 3 == 0, 1.0, 4.0)
    wanted = sum_groups(count_groups(groups, wrong, [certain]))
    found = []
    for _ in range(400):
        kept = random.random(3_600) < 1 / weight
        counted = count_groups(groups[kept], wrong[kept], [certain[kept]], weights=weight[kept])
        sums = sum_groups(counted)
        found.append([sums.certain_squared[0], sums.wrong_squared[0], sums.product[0]])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / 20
    exact = np.array([wanted.certain_squared[0], wanted.wrong_squared[0], wanted.product[0]])
    assert (np.abs(mean - exact) < 4 * error).all()
    assert (error < 0.03 * exact).all()
    ones = sum_groups(count_groups(groups, wrong, [certain], weights=np.ones(3_600)))
    assert [*map(np.ravel, ones)] == [*map(np.ravel, wanted)]


def test_groups_of_a_sample_are_expected_to_be_as_alike_as_those_of_all_rows():
    order = np.argsort(SCORES.argmax(axis=1), kind="stable")  # alike rows stand together
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.arange(len(order)) // 60
    pilot = fit_optimal(SCORES, LABELS, 0.2).rule
    problem = PathProblem(
        fit=FitRows(SCORES, SCORES, np.ones(len(SCORES)), check_rows(SCORES, LABELS, None, None)),
        rows=check_rows(SCORES, SCORES, None, None),
        weights=np.ones(len(SCORES)),
        constraints=ASKED,
        margin=Margin(confidence=0.95, certify_rows=20_000),
        soft_rows=100.0,
        seed=0,
    )

    def effects(kept, weights):
        rows = check_rows(SCORES[kept], LABELS[kept], None, weights)
        found = expect_groups(problem, pilot, rows, groups[kept], np.inf)
        return np.array(found.margin.design_effects)

    whole = effects(slice(None), None)
    parts = np.mean([effects(*a_fifth(seed)) for seed in range(12)], axis=0)
    np.testing.assert_allclose(parts, whole, rtol=0.1)
    assert (whole > 2).all()
    plain = effects(a_fifth(0)[0], None)
    assert (plain[:2] < 0.7 * whole[:2]).all()  # of classes that are thinned out
