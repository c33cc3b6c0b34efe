"""The whole guarantee by simulation: paths drawn on some rows, tested on others, truth known."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow.core.bounds import accepted_rows, allowed_errors
from scrib_mlflow.core.certificate import draw_path, tally_sets
from scrib_mlflow.core.certificate.claims import p_values, passes
from scrib_mlflow.core.optimal import recalibrate
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import optimal_answer

TARGET, LEVEL, NOISE = 0.1, 0.05, 3**0.5
REPETITIONS = 60


def answers_of(rule, scores):
    """Return the class of every row by the definition of its rule, -1 where it abstains."""
    if rule.kind == "thresholds":
        sets = scores >= np.array(rule.thresholds)
        return np.where(sets.sum(axis=1) == 1, sets.argmax(axis=1), -1)
    found = [
        optimal_answer(row, rule.multipliers, rule.charges)
        for row in recalibrate(rule.recalibration, scores)
    ]
    return np.array([-1 if answer is None else answer for answer in found])


def fixed_sequence(rules, scores, labels):
    """Return the last rule that passes before the first that fails."""
    last = None
    for rule in rules:
        answers = answers_of(rule, scores)
        certain = answers >= 0
        wrong = certain & (answers != labels)
        n, bad = (np.bincount(labels[rows], minlength=5) for rows in (certain, wrong))
        p = np.where(n > 0, stats.binom.cdf(bad, n, TARGET), 1.0).max()
        if not p <= LEVEL:
            break
        last = rule
    return last


def distort(chances):
    tilted = chances**1.6 * np.exp([0.8, -0.6, 0.0, 0.3, -0.3])
    return tilted / tilted.sum(axis=1, keepdims=True)


def repetition(seed, rule, n, distorted):
    """Return certified, false, and abstention of one data set."""
    scores, labels = draw_scores(n, noise=NOISE, seed=seed)
    chances, _ = draw_scores(100_000, noise=NOISE, seed=10_000 + seed)
    fresh = chances
    if distorted:
        scores, fresh = distort(scores), distort(chances)
    at = round(0.3 * n)
    path = draw_path(scores[:at], labels[:at], TARGET, rule=rule, certify_rows=n - at, threads=1)
    deployed = fixed_sequence([step.rule for step in path.steps], scores[at:], labels[at:])
    if deployed is None:
        return False, False, np.nan
    answers = answers_of(deployed, fresh)
    certain = answers >= 0
    rows = chances[certain].sum(axis=0)
    right = np.bincount(answers[certain], chances[certain, answers[certain]], 5)
    return True, not ((rows - right) / rows <= TARGET + 1e-4).all(), 1 - certain.mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "n", "distorted", "least_certified", "most_abstention"),
    [
        ("thresholds", 10_000, False, 0.75, 0.68),
        ("thresholds", 10_000, True, 0.6, 0.75),
        ("thresholds", 5_000, False, 0.2, 0.8),
        ("optimal", 10_000, False, 0.85, 0.62),
        ("optimal", 10_000, True, 0.8, 0.65),
        ("optimal", 5_000, False, 0.3, 0.75),
    ],
)
def test_certificates_are_rarely_false_and_often_given(
    rule, n, distorted, least_certified, most_abstention
):
    with ProcessPoolExecutor(2) as pool:
        seeds = range(REPETITIONS)
        same = [[value] * len(seeds) for value in (rule, n, distorted)]
        found = list(pool.map(repetition, seeds, *same))
    certified, false, abstention = np.array(found, dtype=float).T
    assert false.sum() <= stats.binom.ppf(0.99, REPETITIONS, LEVEL)
    assert certified.mean() >= least_certified
    assert np.nanmean(abstention) <= most_abstention


def first_passes(seed, rule, n):
    """Return the predicted chance of a path's first rule, and whether it passes by the plan."""
    scores, labels = draw_scores(n, noise=NOISE, seed=50_000 + seed)
    at = round(0.3 * n)
    path = draw_path(scores[:at], labels[:at], TARGET, rule=rule, certify_rows=n - at, threads=1)
    answers, truth = answers_of(path.steps[0].rule, scores[at:]), labels[at:]
    allowed = allowed_errors(TARGET, n, 1 - LEVEL)
    accepted = accepted_rows(allowed)
    passed = True
    for label in range(5):
        of = answers[(truth == label) & (answers >= 0)]
        bad = (of[: accepted[len(of)]] != label).sum()
        passed &= bool(bad <= allowed[len(of)])
    return path.steps[0].power, passed


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
@pytest.mark.parametrize("n", [5_000, 10_000])
def test_first_rules_pass_about_as_often_as_predicted(rule, n):
    with ProcessPoolExecutor(2) as pool:
        seeds = range(REPETITIONS)
        same = [[value] * len(seeds) for value in (rule, n)]
        predicted, passed = np.array(list(pool.map(first_passes, seeds, *same)), dtype=float).T
    noise = 2 * 0.5 / np.sqrt(REPETITIONS)
    assert predicted.mean() == pytest.approx(passed.mean(), abs=0.1 + noise)


def group_risks(kind, groups, target, random):
    """Return risks of groups whose mean over many draws is the target, or a fifth above it."""
    if kind == "rare":  # a few groups are all wrong, the others hardly ever
        share = (1.2 * target - 0.002) / 0.998
        return np.where(random.random(groups) < share, 1.0, 0.002)
    spread = 1 / 0.3 - 1
    return random.beta(target * spread, (1 - target) * spread, groups)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["beta", "rare"])
@pytest.mark.parametrize("groups", [30, 60, 100, 200])
@pytest.mark.parametrize("target", [0.1, 0.05, 0.01])
def test_grouped_certificates_are_false_in_at_most_about_twice_the_level(kind, groups, target):
    random = np.random.default_rng(groups)
    claims = make_constraints(Targets(risk_targets=target), ("a", "b"))[:1]
    codes, labels = np.repeat(np.arange(groups), 50), np.zeros(50 * groups, dtype=np.int32)
    runs, false = 500, 0
    for _ in range(runs):
        wrong = random.random(len(codes)) < group_risks(kind, groups, target, random)[codes]
        tally = tally_sets(np.column_stack([~wrong, wrong]), labels, claims, codes)
        false += passes(tally, p_values(tally, claims, level=LEVEL), LEVEL)
    assert false <= stats.binom.ppf(0.999, runs, 2 * LEVEL)
