"""The whole guarantee by simulation: paths drawn on some rows, tested on others, truth known."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow.core.path import draw_path
from scrib_mlflow.core.tally import p_values, passes, tally_sets
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

TARGET, LEVEL, NOISE = 0.1, 0.05, 3**0.5
REPETITIONS = 60


def fixed_sequence(thresholds, scores, labels):
    """Return the last thresholds that pass before the first that fail."""
    last = None
    for candidate in thresholds:
        sets = scores >= np.array(candidate)
        certain = sets.sum(axis=1) == 1
        wrong = certain & ~sets[np.arange(len(labels)), labels]
        n, bad = (np.bincount(labels[rows], minlength=5) for rows in (certain, wrong))
        p = np.where(n > 0, stats.binom.cdf(bad, n, TARGET), 1.0).max()
        if not p <= LEVEL:
            break
        last = candidate
    return last


def distort(chances):
    tilted = chances**1.6 * np.exp([0.8, -0.6, 0.0, 0.3, -0.3])
    return tilted / tilted.sum(axis=1, keepdims=True)


def repetition(seed, n, distorted):
    """Return certified, false, and abstention of one data set."""
    scores, labels = draw_scores(n, noise=NOISE, seed=seed)
    chances, _ = draw_scores(200_000, noise=NOISE, seed=10_000 + seed)
    fresh = chances
    if distorted:
        scores, fresh = distort(scores), distort(chances)
    at = round(0.3 * n)
    path = draw_path(scores[:at], labels[:at], TARGET, certify_rows=n - at, threads=1)
    steps = [step.rule.thresholds for step in path.steps]
    deployed = fixed_sequence(steps, scores[at:], labels[at:])
    if deployed is None:
        return False, False, np.nan
    sets = fresh >= np.array(deployed)
    certain = sets.sum(axis=1) == 1
    wrong = np.where(sets[certain], 0.0, chances[certain]).sum(axis=0)
    risks = wrong / chances[certain].sum(axis=0)
    return True, not (risks <= TARGET + 1e-4).all(), 1 - certain.mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "distorted", "least_certified", "most_abstention"),
    [(10_000, False, 0.75, 0.68), (10_000, True, 0.6, 0.75), (5_000, False, 0.2, 0.8)],
)
def test_certificates_are_rarely_false_and_often_given(
    n, distorted, least_certified, most_abstention
):
    with ProcessPoolExecutor(2) as pool:
        seeds = range(REPETITIONS)
        found = list(pool.map(repetition, seeds, [n] * len(seeds), [distorted] * len(seeds)))
    certified, false, abstention = np.array(found, dtype=float).T
    assert false.sum() <= stats.binom.ppf(0.99, REPETITIONS, LEVEL)
    assert certified.mean() >= least_certified
    assert np.nanmean(abstention) <= most_abstention


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
