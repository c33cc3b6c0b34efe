"""Frontiers: rules along targets, against fits from scratch and counts by hand."""

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow import ScribError, fit_optimal, fit_thresholds, from_json, predict_sets, to_json
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.loss import Problem
from scrib_mlflow.core.studies import compare, draw_frontier, frontier, sweeps
from scrib_mlflow.core.studies.sweeps import fit_optimal_along, fit_thresholds_along, make_sweeps
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

CLASSES = ("a", "b", "c", "d", "e")
SCORES, LABELS = draw_scores(3000, seed=4)
TARGETS = {"b": 0.2, "default": 0.1}


@pytest.fixture(scope="module")
def drawn():
    """A frontier, which rows it fitted, and the rules it found."""
    seen = {}
    halve, along = compare.halve, sweeps.fit_thresholds_along

    def halving(*given):
        seen["inside"] = halve(*given)
        return seen["inside"]

    def fitting(rows, asked, *rest):
        seen["asked"], seen["placed"] = asked, along(rows, asked, *rest)
        return seen["placed"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "halve", halving)
        patch.setattr(sweeps, "fit_thresholds_along", fitting)
        found = draw_frontier(SCORES, LABELS, TARGETS, classes=CLASSES, certify_rows=7000, points=8)
    return found, seen


def test_the_grid_holds_the_chosen_targets_and_keeps_their_proportions(drawn):
    found, seen = drawn
    assert len(found.joint) == 8
    targets = [point.target for point in found.joint]
    assert targets == sorted(targets)
    assert targets[0] == pytest.approx(0.01)
    assert found.reference == found.chosen.target == 0.1
    assert found.targets == {"a": 0.1, "b": 0.2, "c": 0.1, "d": 0.1, "e": 0.1}
    for each in seen["asked"].sweeps[0]:
        asked = [constraint.target for constraint in each.constraints]
        assert asked == pytest.approx([each.target * f for f in (1, 2, 1, 1, 1)])
    for name, sweep in zip(CLASSES, seen["asked"].sweeps[1:], strict=True):
        j = CLASSES.index(name)
        for each in sweep:
            asked = [constraint.target for constraint in each.constraints]
            assert asked[j] == each.target
            others = [0.1, 0.2, 0.1, 0.1, 0.1]
            assert np.delete(asked, j).tolist() == np.delete(others, j).tolist()


def test_rates_are_those_of_the_rules_on_both_halves_and_bands_are_exact(drawn):
    found, seen = drawn
    inside = seen["inside"]
    assert abs(inside.sum() - 1500) <= 5
    assert (found.n_fitted, found.n_held_out) == (inside.sum(), (~inside).sum())
    placed = [each for row in seen["placed"] for each in row]
    for point, each in zip(found.points, placed, strict=True):
        for part, rows in ((point.fitted, inside), (point.held_out, ~inside)):
            sets, labels = predict_sets(SCORES[rows], each.rule), LABELS[rows]
            certain = sets.sum(axis=1) == 1
            wrong = certain & ~sets[np.arange(len(labels)), labels]
            assert (part.n, part.n_certain, part.n_wrong) == (
                *(len(labels), certain.sum(), wrong.sum()),
            )
            assert part.abstention_rate == pytest.approx(1 - certain.mean())
            assert part.empty_rate == pytest.approx((sets.sum(axis=1) == 0).mean())
            assert part.overall_risk == pytest.approx(wrong.sum() / certain.sum())
            for name, rates in part.by_class.items():
                own = labels == CLASSES.index(name)
                counts = (own.sum(), (own & certain).sum(), (own & wrong).sum())
                assert (rates.n, rates.n_certain, rates.n_wrong) == counts
        assert np.isnan(point.fitted.abstention_band).all()
        held = point.held_out
        exact = stats.binomtest(round(held.n * held.abstention_rate), held.n)
        band = exact.proportion_ci(0.95, method="exact")
        assert held.abstention_band == pytest.approx((band.low, band.high))
        for rates in held.by_class.values():
            exact = stats.binomtest(rates.n_wrong, rates.n_certain)
            band = exact.proportion_ci(0.95, method="exact")
            assert rates.risk_band == pytest.approx((band.low, band.high))
        names = CLASSES if point.swept is None else (point.swept,)
        assert tuple(held.by_class) == names


def test_losses_and_abstention_fall_as_targets_rise(drawn):
    found, _ = drawn
    for points in (found.joint, *(found.of(name) for name in found.swept)):
        assert (np.diff([point.loss for point in points]) <= 1e-12).all()
        assert (np.diff([point.fitted.abstention_rate for point in points]) <= 0.005).all()
    for name in found.swept:
        assert found.of(name)[found.joint.index(found.chosen)].loss == found.chosen.loss


def test_warm_starts_are_as_good_as_fits_from_scratch(drawn):
    _, seen = drawn
    rows = SCORES[seen["inside"]], LABELS[seen["inside"]]
    excess = []
    for sweep, placed in list(zip(seen["asked"].sweeps, seen["placed"], strict=True))[::2]:
        for each, at in list(zip(sweep, placed, strict=True))[::3]:
            asked = {constraint.name: constraint.target for constraint in each.constraints}
            fit = fit_thresholds(*rows, asked, classes=CLASSES)
            excess.append(at.loss / fit.loss - 1)
    assert np.mean(excess) < 0.005
    assert max(excess) < 0.02


def test_prices_along_targets_are_as_good_as_fits_from_scratch():
    rows = check_rows(SCORES, LABELS, CLASSES, None)
    constraints = make_constraints(Targets(risk_targets=TARGETS), CLASSES)
    asked = make_sweeps(rows, constraints, points=5, lowest=0.03, highest=0.2)
    asked = asked._replace(sweeps=asked.sweeps[:3])
    problem = Problem(rows=rows, constraints=constraints)
    placed = fit_optimal_along(problem, asked, frozenset("b"), 0, 2, None)
    excess = []
    for sweep, row in zip(asked.sweeps, placed, strict=True):
        assert (np.diff([each.loss for each in row]) <= 1e-12).all()
        for each, at in list(zip(sweep, row, strict=True))[::2]:
            targets = {constraint.name: constraint.target for constraint in each.constraints}
            fit = fit_optimal(SCORES, LABELS, targets, classes=CLASSES)
            excess.append(at.loss - fit.loss)
    assert np.mean(excess) < 0.001
    assert max(excess) < 0.005


@pytest.mark.parametrize(
    ("chosen", "points", "lowest", "highest"),
    [
        (0.1, 5, None, 0.996),
        (0.1, 5, None, 0.999),
        (0.1, 200, None, 0.99999),
        (0.995, 200, 0.99, 0.99999),  # too close for rounding
    ],
)
def test_no_target_is_rounded_up_to_one(chosen, points, lowest, highest):
    rows = check_rows(SCORES[:100], LABELS[:100], CLASSES, None)
    constraints = make_constraints(Targets(risk_targets=chosen), CLASSES)
    asked = make_sweeps(rows, constraints, points=points, lowest=lowest, highest=highest)
    targets = [each.target for each in asked.sweeps[0]]
    assert targets == sorted(set(targets))
    assert 0.99 < targets[-1] <= 0.999
    assert chosen in targets
    for each in asked.sweeps[0]:
        assert each.constraints[0].target == pytest.approx(each.target)


def test_groups_widen_bands_and_stay_whole(monkeypatch):
    halves = []
    halve = compare.halve
    monkeypatch.setattr(
        frontier, "halve", lambda *given: halves.append(halve(*given)) or halves[-1]
    )
    order = np.lexsort((SCORES.max(axis=1), LABELS))[::2]  # rows of a group are alike
    scores, labels = SCORES[order], LABELS[order]
    groups = np.arange(1500) // 10
    options = {"certify_rows": 3500, "points": 5}
    found = draw_frontier(scores, labels, 0.1, groups=groups, certify_groups=350, **options)
    shares = np.bincount(groups, halves[0]) / 10
    assert set(shares.tolist()) == {0.0, 1.0}
    for point in found.joint:
        held = point.held_out
        plain = stats.binomtest(round(held.n * held.abstention_rate), held.n)
        narrow = plain.proportion_ci(0.95, method="exact")
        low, high = held.abstention_band
        if 0 < held.abstention_rate < 1:
            assert high - low > narrow.high - narrow.low


def test_many_classes_are_swept_by_themselves_only_where_it_matters():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 20)
    scores = random.dirichlet(np.ones(24), len(labels))
    sure = random.random(len(labels)) < np.where(labels < 12, 0.5, 0.95)
    scores[sure, labels[sure]] += 1
    names = [f"c{j:02d}" for j in range(24)]
    rows = check_rows(scores, labels, names, None)
    constraints = make_constraints(Targets(risk_targets=0.1), rows.classes)
    asked = make_sweeps(rows, constraints, points=5, lowest=None, highest=None)
    assert [sweep[0].swept for sweep in asked.sweeps] == [None, *names[:12]]
    problem = Problem(rows=rows, constraints=constraints)
    placed = fit_thresholds_along(problem, asked, 0, 2, None)
    assert [len(row) for row in placed] == [5] * 13


def test_a_class_of_a_few_rows_does_not_stop_the_frontier_of_many(monkeypatch):
    monkeypatch.setattr(frontier, "MOST_PATH_ROWS", 500)
    random = np.random.default_rng(1)
    labels = np.array(CLASSES)[LABELS]
    scores = np.hstack([SCORES, random.random((len(SCORES), 1)) * 0.01])
    labels[-4:] = "f"  # none of them among the first 500
    names = [*CLASSES, "f"]
    found = draw_frontier(scores, labels, 0.3, classes=names, certify_rows=7000, points=5)
    assert all(0 <= each.chance <= 1 for each in found.certifiable)


def test_the_seed_says_what_comes_out_and_json_gives_it_back():
    one, two, other = (
        draw_frontier(
            SCORES[:300], LABELS[:300], 0.2, certify_rows=700, points=5, seed=seed, threads=threads
        )
        for seed, threads in ((1, 1), (1, 2), (2, 2))
    )
    assert to_json(one) == to_json(two)
    assert to_json(one) != to_json(other)
    assert to_json(from_json(to_json(one))) == to_json(one)


def test_waived_classes_are_not_swept_and_overall_targets_are():
    found = draw_frontier(
        SCORES[:600],
        LABELS[:600],
        0.2,
        classes=CLASSES,
        overall_target=0.1,
        waive=("a", "b", "c", "d"),
        certify_rows=1400,
        points=5,
    )
    assert found.swept == ("e",)
    assert found.targets == {"e": 0.2}
    assert found.joint[-1].target > found.joint[0].target


def test_some_rows_are_taken_with_their_labels():
    rows = check_rows(SCORES[:4], LABELS[:4], CLASSES, None)
    some = rows.take(np.array([True, False, True, False]))
    assert some.labels.tolist() == LABELS[[0, 2]].tolist()
    assert some.scores.tolist() == SCORES[[0, 2]].tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"points": 4}, "points is 4, but must be from 5"),
        ({"lowest": 0.2}, "the chosen one, 0.1, must lie between"),
        ({"highest": 0.05}, "the chosen one, 0.1, must lie between"),
        ({"waive": CLASSES}, "no target to sweep"),
        ({"rule": "best"}, "use 'thresholds' or 'optimal'"),
        ({"rule": "optimal", "empty_weight": 2.0}, "are for thresholds"),
        ({"rule": "optimal", "scores": np.log(SCORES)}, "no probabilities"),
        ({"certify_rows": 0}, "certify_rows"),
        ({"groups": [1, 2]}, "groups must be one for each"),
        ({"groups": np.arange(3000) // 5}, "groups is given without certify_groups"),
        ({"certify_groups": 40}, "certify_groups is given without groups"),
        ({"groups": np.arange(3000) // 5, "certify_groups": 0}, "certify_groups"),
        ({"labels": np.where(LABELS == 1, 0, LABELS)}, "no row has class 'b'"),
        ({"labels": SCORES}, "not soft labels"),
    ],
)
def test_what_cannot_be_swept_is_told_with_what_to_do(changed, message):
    given = {"scores": SCORES, "labels": LABELS, "classes": CLASSES, "certify_rows": 7000}
    with pytest.raises(ScribError, match=message):
        draw_frontier(**{**given, **changed})
