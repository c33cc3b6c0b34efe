"""Paths: what they promise about their steps, and the tables behind them."""

import numpy as np
import pytest
from scipy import special, stats

from scrib_mlflow.core.bounds import (
    allowed_errors,
    passing_errors,
    planned_tests,
    smooth_table,
)
from scrib_mlflow.core.certificate import draw_path
from scrib_mlflow.core.certificate.chances import MORE_WRONG, soft_worth
from scrib_mlflow.core.certificate.path import blur_scores, find_floor
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.errors import (
    InvalidLabelsError,
    InvalidScoresError,
    InvalidTargetsError,
    ScribError,
)
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import accepted_rows

SCORES, LABELS = draw_scores(1_500, noise=3**0.5, seed=7)


@pytest.fixture(scope="module")
def path():
    return draw_path(SCORES, LABELS, 0.15, certify_rows=6_000)


def soft_rates(scores, soft, thresholds):
    """Return certain rows of each class, their soft risk, and the abstention rate."""
    sets = scores >= np.array(thresholds)
    certain = sets.sum(axis=1) == 1
    n = soft[certain].sum(axis=0)
    wrong = np.where(sets[certain], 0.0, soft[certain]).sum(axis=0)
    return n, wrong / n, 1 - certain.mean()


def rules(path):
    return [step.rule for step in path.steps]


@pytest.mark.parametrize("target", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("z", [-0.5, 0.0, 2.0])
def test_passing_errors_are_those_of_the_risk_that_passes_at_z(target, z):
    n = np.arange(3_001)
    allowed = allowed_errors(target, 3_000, 0.95)
    expected = passing_errors(n, allowed, z)
    hopeless = allowed < 0
    assert (expected[hopeless] == -1).all()
    n, allowed, expected = n[~hopeless], allowed[~hopeless], expected[~hopeless]
    chance = stats.binom.cdf(allowed, n, expected / n)
    np.testing.assert_allclose(chance, stats.norm.cdf(z), rtol=1e-6)


def test_smoothing_is_a_mean_where_all_of_it_passes():
    table = allowed_errors(0.1, 2_000, 0.95)
    smooth = smooth_table(table)
    for n in (100, 777, 1_500):
        half = int(np.ceil(np.sqrt(n)))
        assert smooth[n] == pytest.approx(table[n - half : n + half + 1].mean())
    assert (smooth[:29] == -1).all()
    assert smooth[-1] == table[-1]


def test_abstention_falls_strictly_and_power_never_rises(path):
    rates = [step.abstention_rate for step in path.steps]
    powers = [step.power for step in path.steps]
    assert len(rates) >= 8
    assert (np.diff(rates) < 0).all()
    assert (np.diff(powers) <= 0).all()
    assert powers[0] > 0.5 > powers[-1]
    assert path.n_rows == 1_500
    assert path.classes == ("0", "1", "2", "3", "4")


def test_steps_are_what_their_thresholds_on_raw_scores_give(path):
    soft = recalibrate(path.recalibration, SCORES)
    assert path.recalibration == fit_recalibration(SCORES, LABELS)
    for step in path.steps:
        n, risk, rate = soft_rates(SCORES, soft, step.rule.thresholds)
        assert step.abstention_rate == pytest.approx(rate, abs=1e-12)
        assert (n > 0).all()
        between = [
            np.isin(t, column) for t, column in zip(step.rule.thresholds, SCORES.T, strict=True)
        ]
        assert not any(between)  # thresholds stand midway between scores
        assert risk.max() < 0.2


def test_a_path_depends_on_nothing_but_its_inputs(path):
    random = np.random.default_rng(1)
    random.random(10)
    again = draw_path(SCORES.copy(), LABELS.tolist(), 0.15, certify_rows=6_000, threads=2)
    assert again == path
    assert draw_path(SCORES, LABELS, 0.15, certify_rows=6_000, threads=1) == path


def test_a_higher_scale_of_scores_moves_thresholds_only(path):
    moved = draw_path(8 * SCORES - 4, LABELS, 0.15, certify_rows=6_000)
    assert moved.recalibration.of == "raw"
    assert moved.steps[0].power > 0.1
    assert max(t for rule in rules(moved) for t in rule.thresholds) > 1


def test_more_certify_rows_pass_more_easily():
    few = draw_path(SCORES, LABELS, 0.1, certify_rows=1_000)
    many = draw_path(SCORES, LABELS, 0.1, certify_rows=50_000)
    assert few.steps[0].power < 0.2
    assert many.steps[0].power > 0.9
    likely = min(step.abstention_rate for step in many.steps if step.power > 0.5)
    assert likely < few.steps[0].abstention_rate


def test_overall_and_group_targets_are_kept_with_a_margin():
    path = draw_path(
        SCORES,
        LABELS,
        None,
        overall_target=0.05,
        risk_groups={"hard": (["1", "2"], 0.15)},
        certify_rows=6_000,
    )
    soft = recalibrate(path.recalibration, SCORES)
    sets = path.steps[0].rule.thresholds <= SCORES
    certain = sets.sum(axis=1) == 1
    wrong = np.where(sets, 0.0, soft)[certain]
    assert wrong.sum() / certain.sum() < 0.05
    assert wrong[:, 1:3].sum() / soft[certain][:, 1:3].sum() < 0.15
    assert path.steps[0].power > 0.9


def test_a_cap_on_abstention_stays_a_penalty():
    free = draw_path(SCORES, LABELS, 0.15, certify_rows=6_000)
    capped = draw_path(SCORES, LABELS, 0.15, certify_rows=6_000, max_class_abstention={"1": 0.5})
    for path, kept in ((free, False), (capped, True)):
        soft = recalibrate(path.recalibration, SCORES)
        sets = min(path.steps, key=lambda step: abs(step.margin)).rule.thresholds <= SCORES
        abstains = soft[sets.sum(axis=1) != 1][:, 1].sum() / soft[:, 1].sum()
        assert (abstains <= 0.55) == kept


def test_a_waived_class_may_be_absent():
    present = LABELS != 1
    scores, labels = SCORES[present], LABELS[present]
    with pytest.raises(InvalidLabelsError, match="waive it"):
        draw_path(scores, labels, 0.15, certify_rows=6_000)
    path = draw_path(scores, labels, 0.15, certify_rows=6_000, waive=["1"])
    assert path.steps[0].power > 0.8


def test_unlabelled_scores_draw_the_path_and_labels_recalibrate():
    more, _ = draw_scores(4_000, noise=3**0.5, seed=8)
    path = draw_path(SCORES, LABELS, 0.15, certify_rows=6_000, path_scores=more)
    assert path.n_rows == 4_000
    assert path.recalibration == fit_recalibration(SCORES, LABELS)
    soft = recalibrate(path.recalibration, more)
    _, _, rate = soft_rates(more, soft, path.steps[0].rule.thresholds)
    assert path.steps[0].abstention_rate == pytest.approx(rate, abs=1e-12)


def test_rows_in_groups_count_for_less():
    groups = np.arange(1_500) // 15
    random = np.random.default_rng(3)
    strength = np.repeat(random.normal(0, 1.5, 100), 15)  # groups differ in how easy they are
    top = SCORES.argmax(axis=1)
    logits = np.log(SCORES)
    logits[np.arange(1_500), top] += strength
    chances = special.softmax(logits, axis=1)
    labels = (chances.cumsum(axis=1) < random.random((1_500, 1))).sum(axis=1)
    alone = draw_path(SCORES, labels, 0.15, certify_rows=6_000)
    grouped = draw_path(SCORES, labels, 0.15, certify_rows=6_000, groups=groups)
    assert grouped.steps[0].power < alone.steps[0].power
    single = draw_path(SCORES, labels, 0.15, certify_rows=6_000, groups=np.arange(1_500))
    assert alone.steps[0].power - 0.1 < single.steps[0].power < alone.steps[0].power  # no plan


def test_tied_scores_are_served_as_counted_and_power_is_that_of_binomial_tests():
    votes = np.round(SCORES * 50) / 50
    path = draw_path(votes, LABELS, 0.2, certify_rows=6_000)
    soft = recalibrate(path.recalibration, votes)
    worth = soft_worth(path.recalibration)
    allowed = allowed_errors(0.2, 7_000, 0.95)
    accepted = accepted_rows(allowed)
    random = np.random.default_rng(0)
    for step in path.steps[::3]:
        _, soft_risk, rate = soft_rates(votes, soft, step.rule.thresholds)
        assert step.abstention_rate == pytest.approx(rate, abs=1e-12)
        n, risk, _ = soft_rates(votes, np.eye(5)[LABELS], step.rule.thresholds)
        right = worth * (1 - soft_risk) + n * (1 - risk)
        risks = random.beta((worth + MORE_WRONG) * soft_risk + n * risk, right, (4_000, 5))
        rows = random.poisson(4 * n, (4_000, 5))
        passed = random.binomial(accepted[rows], risks) <= allowed[rows]
        assert step.power == pytest.approx(passed.all(axis=1).mean(), abs=0.06)


@pytest.mark.parametrize("target", [0.01, 0.1, 0.3])
def test_the_plan_looks_at_the_fewest_rows_that_allow_as_many_errors(target):
    allowed = allowed_errors(target, 3_000, 0.95)
    accepted = accepted_rows(allowed)
    n = np.arange(3_001)
    for rows in (5, 40, 299, 1_000, 2_999):
        if allowed[rows] >= 0:
            assert accepted[rows] == np.flatnonzero(allowed == allowed[rows])[0]
        else:
            assert accepted[rows] == rows
    tested, errors = planned_tests(n[1:].astype(float), target, 0.05)
    np.testing.assert_array_equal(errors, allowed[1:])
    np.testing.assert_array_equal(tested, accepted[1:])
    risk = 0.5 * target
    some = allowed >= 0
    planned = stats.binom.cdf(allowed, accepted, risk)[some]
    assert (planned >= stats.binom.cdf(allowed, n, risk)[some] - 1e-12).all()


def test_a_class_that_comes_whatever_the_scores_say_has_a_floor():
    random = np.random.default_rng(2)
    scores = random.dirichlet(np.full(3, 0.3), 20_000)
    labels = (scores.cumsum(axis=1) < random.random((20_000, 1))).sum(axis=1).clip(max=2)
    clean = find_floor(scores, check_rows(scores, labels))
    assert clean.sum() < 0.005
    labels[random.random(20_000) < 0.04] = 1
    noisy = find_floor(scores, check_rows(scores, labels))
    np.testing.assert_allclose(noisy, [0, 0.04, 0], atol=0.006)


def test_a_forest_that_may_answer_always_is_let_to():
    random = np.random.default_rng(4)
    labels = random.integers(0, 3, 4_000)
    scores = random.multinomial(100, 0.7 * np.eye(3)[labels] + 0.1) / 100
    path = draw_path(scores[:1_200], labels[:1_200], 0.1, rule="optimal", certify_rows=2_800)
    assert path.steps[-1].abstention_rate == 0
    assert path.steps[-1].power > 0.9


def test_few_rows_that_differ_are_blurred_and_others_are_not():
    blurred = blur_scores(SCORES, "log", 0)
    assert (blurred[:1_500] == SCORES).all()
    assert len(blurred) == 6_000
    np.testing.assert_allclose(blurred.sum(axis=1), 1)
    np.testing.assert_allclose(blurred.mean(axis=0), SCORES.mean(axis=0), atol=0.02)
    logs = np.log(SCORES)
    raw = blur_scores(logs, "raw", 0)
    np.testing.assert_allclose(raw.mean(axis=0), logs.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(raw.std(axis=0), logs.std(axis=0), rtol=0.02)
    votes = np.round(SCORES * 50) / 50
    assert blur_scores(votes, "log", 0) is votes
    many = np.tile(SCORES, (10, 1)) + np.arange(15_000)[:, None]
    assert blur_scores(many, "raw", 0) is many


def test_progress_sees_every_turn():
    seen = []

    def progress(turns):
        for turn in turns:
            seen.append(turn)
            yield turn

    draw_path(SCORES[:400], LABELS[:400], 0.2, certify_rows=2_000, progress=progress)
    assert seen == list(range(len(seen)))
    assert len(seen) > 5


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"certify_rows": 0}, ScribError, "certify_rows"),
        ({"confidence": 1.0}, ScribError, "confidence"),
        ({"path_scores": SCORES[:, :4]}, InvalidScoresError, "path_scores have 4 columns"),
        ({"risk_targets": None, "max_class_abstention": 0.5}, InvalidTargetsError, "no target"),
        ({"groups": [1, 2]}, ScribError, "groups"),
        ({"labels": SCORES}, InvalidLabelsError, "one class a row"),
        ({"seed": -1}, ScribError, "seed"),
    ],
)
def test_what_cannot_be_used_is_refused(given, error, text):
    with pytest.raises(error, match=text):
        draw_path(**{"scores": SCORES, "labels": LABELS, "certify_rows": 6_000} | given)


def test_scores_that_are_always_right_have_a_path():
    labels = np.random.default_rng(0).integers(0, 3, 60)
    path = draw_path(np.eye(3)[labels], labels, 0.1, certify_rows=1400)
    assert path.steps[-1].abstention_rate == 0
