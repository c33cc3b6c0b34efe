"""Certifiable targets: what a frontier predicts that certify rows would prove."""

import math

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow.core.reports import measure_part
from scrib_mlflow.core.studies import draw_frontier
from scrib_mlflow.core.studies.frontier import Expected, chance_of_all, expect_claims, least_factor
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

CLASSES = ("a", "b", "c", "d", "e")
SCORES, LABELS = draw_scores(3000, seed=4)


@pytest.fixture(scope="module")
def found():
    targets = {"b": 0.2, "default": 0.1}
    return draw_frontier(SCORES, LABELS, targets, classes=CLASSES, certify_rows=7000, points=8)


def naive_chance(n, target, risk, level=0.05):
    """Return P(Binomial(n, risk) has an upper bound of at most the target)."""
    errors = np.arange(n + 1)
    allowed = errors[stats.binom.cdf(errors, n, target) <= level]
    return stats.binom.cdf(allowed[-1], n, risk) if len(allowed) else 0.0


def test_certifiable_targets_are_those_that_scipy_finds(found):
    sizes = np.bincount(LABELS) / len(LABELS)

    def chance(point, factor):
        chances = []
        for j, name in enumerate(CLASSES):
            rates = point.held_out.by_class[name]
            n = math.floor(7000 * sizes[j] * rates.n_certain / rates.n + 1e-9)
            risk = (rates.n_wrong + 0.5) / (rates.n_certain + 1)
            chances.append(naive_chance(n, min(factor * found.targets[name], 0.999), risk))
        return math.prod(chances)

    for point in found.joint[1::3]:
        factor = point.certifiable_target / found.reference
        assert chance(point, factor * 1.002) >= 0.8
        assert chance(point, factor * 0.998) < 0.8 + 1e-9
    for j in (3, 5, 7):
        able = found.certifiable[j]
        likely = [
            point.held_out.abstention_rate
            for point in found.joint
            if chance(point, able.target / found.reference) >= 0.8
        ]
        assert able.target == found.joint[j].target
        if likely:
            assert able.abstention_rate == pytest.approx(min(likely))
            assert able.chance >= 0.8
        else:
            assert math.isnan(able.abstention_rate)
            assert able.chance < 0.8


def test_what_can_be_certified_lies_above_what_was_fitted(found):
    able = [point for point in found.joint if not math.isnan(point.certifiable_target)]
    assert len(able) > 4
    assert all(point.certifiable_target > point.target for point in able if point.target <= 0.1)
    rates = [each.abstention_rate for each in found.certifiable]
    known = [rate for rate in rates if not math.isnan(rate)]
    assert rates[-len(known) :] == known
    assert known == sorted(known, reverse=True)


def test_few_rows_and_few_groups_certify_nothing():
    options = {"risk_targets": 0.2, "points": 5}
    few = draw_frontier(SCORES[:600], LABELS[:600], certify_rows=20, **options)
    assert np.isnan([point.certifiable_target for point in few.joint[:3]]).all() or all(
        point.certifiable_target > 0.3 for point in few.joint[:3]
    )
    groups = np.arange(600) // 6
    for n_groups, some in ((29, False), (600, True)):
        found = draw_frontier(
            SCORES[:600],
            LABELS[:600],
            certify_rows=3600,
            groups=groups,
            certify_groups=n_groups,
            **options,
        )
        assert found.n_groups == 100
        known = [not math.isnan(point.certifiable_target) for point in found.joint]
        assert any(known) == some


def test_certify_rows_of_groups_count_as_many_as_the_groups_where_their_rows_are_alike():
    # Of class a, 60 groups of 10 certain rows of which 6 are all wrong; of b, 60 without an error.
    groups = np.arange(1200) // 10
    labels = np.repeat([0, 1], 600).astype(np.int32)
    constraints = make_constraints(Targets(risk_targets=0.3), ("a", "b"))
    expected = Expected(2400, 240, np.array([0.5, 0.5]), 0.05)

    def claims(wrong, groups):
        sets = np.eye(2, dtype=bool)[np.where(wrong, 1 - labels, labels)]
        return expect_claims(sets, labels, groups, constraints, expected)

    # Twice the groups are expected to certify: 120 of each class, paid for by Student's quantile.
    few = (stats.t.ppf(0.95, 119) / stats.norm.ppf(0.95)) ** 2
    together = claims(groups < 6, groups)
    assert [claim.n_certain for claim in together] == [int(120 / few)] * 2
    apart = claims((labels == 0) & (np.arange(1200) % 10 == 0), groups)
    assert [claim.n_certain for claim in apart] == [int(1200 / few)] * 2
    plain = claims(groups < 6, None)
    assert [claim.n_certain for claim in plain] == [1200, 1200]
    for claim in (*together, *apart):
        assert claim.least_target == pytest.approx(1 - 0.05 ** (1 / 120))
    assert [claim.risk for claim in together] == pytest.approx([60.5 / 601, 0.5 / 601])
    half = 0.5  # of the targets
    by_hand = [naive_chance(int(120 / few), 0.15, claim.risk) for claim in together]
    assert chance_of_all(together, half, 0.05) == pytest.approx(math.prod(by_hand))
    assert chance_of_all(together, half, 0.05) < 0.5
    assert chance_of_all(plain, half, 0.05) > 0.95


def test_a_class_without_held_out_certain_rows_is_silent_and_blocks_every_certificate():
    sets = np.zeros((40, 2), dtype=bool)
    labels = np.repeat([0, 1], 20).astype(np.int32)
    sets[:20, 0] = True
    part = measure_part(sets, labels, ("a", "b"), [0, 1], confidence=0.9)
    assert part.by_class["b"].n_certain == 0
    assert math.isnan(part.by_class["b"].risk)
    assert part.by_class["b"].risk_band == (0.0, 1.0)
    assert part.by_class["b"].abstention_band == pytest.approx((0.05 ** (1 / 20), 1.0))
    constraints = make_constraints(Targets(risk_targets=0.1), ("a", "b"))
    claims = expect_claims(
        sets, labels, None, constraints, Expected(400, None, np.array([0.5, 0.5]), 0.05)
    )
    assert [claim.n_certain for claim in claims] == [200, 0]
    assert chance_of_all(claims, 5.0, 0.05) == 0.0
    assert math.isnan(least_factor(claims, 0.05))
