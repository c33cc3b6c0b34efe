"""Kernels against plain recounts: random rows with ties, weights, soft labels and groups."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numba import njit

from scrib_mlflow.core.counts import constraint_counts, count_sets
from scrib_mlflow.core.inputs import Labelled
from scrib_mlflow.core.loss import Ambiguity, Margin, Problem, make_objective
from scrib_mlflow.core.search.kernels import HIGHEST, move, place, walk
from scrib_mlflow.core.search.levels import Track, Window, build_level, make_data
from scrib_mlflow.core.search.pairs import EVERY_PAIR, descend, new_scratch, new_state, pair
from scrib_mlflow.core.targets import Targets, make_constraints

NO_BARRIER = 1e300
move, walk, pair = (
    getattr(each, "compiled", lambda each=each: each)() for each in (move, walk, pair)
)


@njit
def call_move(rows, objective, state, g, cut):
    return move(rows, objective, state, g, cut)


@njit
def call_walk(rows, objective, state, scratch, g, step, cut, loss):
    return walk(rows, objective, state, scratch, g, step, cut, loss, NO_BARRIER)


@njit
def call_pair(rows, objective, state, scratch, a, b):
    return pair(rows, objective, state, scratch, a, b)


@st.composite
def problems(draw):
    """Draw a level of a small random problem, and how to recount it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(4, 40)), draw(st.integers(2, 4))
    scores = rng.random((n, k)).round(draw(st.sampled_from([1, 2, 17])))
    own = np.flatnonzero(rng.random(k) < draw(st.sampled_from([0.0, 0.5, 1.0])))
    every = np.append(np.arange(k), rng.integers(0, k, n - k))  # no class without a row
    labels, soft = np.sort(every).astype(np.int32), np.zeros((0, k))
    weights = rng.random(n) if draw(st.booleans()) else np.ones(n)
    if draw(st.booleans()):
        labels, soft = labels[:0], rng.random((n, k))
        weights = soft.sum(axis=1)
    names = tuple("abcd"[:k])
    rows = Labelled(scores, labels, soft, weights, names, np.ones(n, dtype=bool))
    answers = draw(st.sampled_from(["any", "top"]))
    data = make_data(rows, own, answers)
    missed = draw(st.booleans())
    targets = Targets(
        risk_targets=0.2 if not missed else None,
        miscoverage_targets=0.2 if missed else None,
        overall_target=0.1 if draw(st.booleans()) else None,
        max_class_abstention={"a": 0.5} if draw(st.booleans()) else None,
        risk_groups={"ab": (("a", "b"), 0.3)},
        two_sided_penalty=draw(st.sampled_from([0.0, 3.0])),
        penalty=10.0,
    )
    constraints = make_constraints(targets, names)
    ambiguity = Ambiguity(
        chance_weight=1.0,
        size_weight=draw(st.sampled_from([0.0, 0.3])),
        empty_weight=draw(st.sampled_from([1.0, 1.4])),
        error_weight=draw(st.sampled_from([0.0, 2.5])),
    )
    margin = Margin(confidence=0.8, certify_rows=1.7 * n) if draw(st.booleans()) else None
    problem = Problem(rows=rows, constraints=constraints, ambiguity=ambiguity)
    objective = make_objective(problem, margin)
    low, high = np.full(len(data.thresholds), -np.inf), np.full(len(data.thresholds), np.inf)
    if draw(st.booleans()):
        low, high = rng.choice([0.0, 0.2, 0.5], len(low)), rng.choice([0.6, 0.7, 0.9], len(low))
    track = Track(ambiguity.size_weight > 0, missed)
    level = build_level(data, objective, Window(low, high), track, allow_never=draw(st.booleans()))
    return data, objective, level, constraints, track, rng


def recount(data, level, cuts, constraints):
    thresholds = data.by_class(level.thresholds(cuts))
    sets = data.scores >= thresholds
    for row, only in zip(sets, data.only, strict=bool(len(data.only))):
        if row.sum() == 1:  # without its top class, that is no answer
            row[only] = True
    return constraint_counts(count_sets(sets, data.labels, data.soft, data.weights), constraints)


def same(state, counted, track):
    counts, totals = counted
    wanted = [0, 1, 2] if track.missed else [0, 1]
    sums = [0, 1, 2, 3] if track.size else [0, 1, 3]
    np.testing.assert_allclose(state.counts[:, wanted], counts[:, wanted], rtol=0, atol=1e-9)
    np.testing.assert_allclose(state.totals[sums], totals[sums], rtol=0, atol=1e-9)


def random_cuts(level, rng):
    return np.array([rng.integers(0, h + 1) for h in level.rows.groups[:, HIGHEST]], dtype=np.int64)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_counters_after_any_moves_equal_a_recount(problem):
    data, objective, level, constraints, track, rng = problem
    state = new_state(level.rows, objective)
    cuts = random_cuts(level, rng)
    place(level.rows, objective, state, cuts)
    same(state, recount(data, level, cuts, constraints), track)
    for _ in range(4):
        g = int(rng.integers(len(cuts)))
        cuts[g] = random_cuts(level, rng)[g]
        moved = call_move(level.rows, objective, state, g, cuts[g])
        same(state, recount(data, level, cuts, constraints), track)
        placed = place(level.rows, objective, new_state(level.rows, objective), cuts)
        assert moved == pytest.approx(placed, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_a_sweep_finds_the_best_cut_and_its_loss(problem):
    _, objective, level, _, _, rng = problem
    state, scratch = new_state(level.rows, objective), new_scratch(level.rows, objective, 0)
    cuts = random_cuts(level, rng)
    g = int(rng.integers(len(cuts)))
    found = place(level.rows, objective, state, cuts)
    best = cuts[g]
    for step in (1, -1):
        best, found = call_walk(level.rows, objective, state, scratch, g, step, best, found)
    losses = []
    for cut in range(level.rows.groups[g, HIGHEST] + 1):
        there = cuts.copy()
        there[g] = cut
        losses.append(place(level.rows, objective, new_state(level.rows, objective), there))
    assert found == pytest.approx(min(losses), abs=1e-9)
    assert losses[best] == pytest.approx(found, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_a_pair_move_has_the_loss_it_promises(problem):
    _, objective, level, _, track, rng = problem
    cuts = random_cuts(level, rng)
    if len(cuts) < 2 or track.missed:
        return
    state, scratch = new_state(level.rows, objective), new_scratch(level.rows, objective, 1)
    before = place(level.rows, objective, state, cuts)
    a, b = (int(g) for g in rng.choice(len(cuts), 2, replace=False))
    cuts[a], cuts[b], found = call_pair(level.rows, objective, state, scratch, a, b)
    after = place(level.rows, objective, new_state(level.rows, objective), cuts)
    assert found == pytest.approx(after, abs=1e-9)
    assert found <= before + 1e-9


@settings(max_examples=60, deadline=None)
@given(problems())
def test_a_pair_move_is_the_best_of_a_small_grid(problem):
    _, objective, level, _, track, rng = problem
    highest = level.rows.groups[:, HIGHEST]
    if len(highest) < 2 or track.missed or highest.max() > 10:
        return  # the grid holds every cut only where there are few
    cuts = random_cuts(level, rng)
    state, scratch = new_state(level.rows, objective), new_scratch(level.rows, objective, 1)
    place(level.rows, objective, state, cuts)
    *_, found = call_pair(level.rows, objective, state, scratch, 0, 1)
    losses = []
    for cuts[0] in range(highest[0] + 1):
        for cuts[1] in range(highest[1] + 1):
            losses.append(place(level.rows, objective, new_state(level.rows, objective), cuts))
    assert found == pytest.approx(min(losses), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_a_descent_ends_where_no_sweep_helps(problem):
    _, objective, level, _, track, rng = problem
    cuts = random_cuts(level, rng)
    groups = len(cuts)
    pairs = [(a, b) for a in range(groups) for b in range(a) if not track.missed]
    pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    state, scratch = (
        new_state(level.rows, objective),
        new_scratch(level.rows, objective, len(pairs)),
    )
    start = place(level.rows, objective, state, cuts)
    loss = descend(level.rows, objective, state, scratch, cuts, pairs, EVERY_PAIR, 0)
    again = place(level.rows, objective, new_state(level.rows, objective), state.cuts)
    assert loss <= start
    assert loss == pytest.approx(again, abs=1e-9)
    if loss > 1:
        return  # sweeps may turn back before a better cut that is far
    for g in range(groups):
        best = state.cuts[g]
        for step in (1, -1):
            best, found = call_walk(level.rows, objective, state, scratch, g, step, best, loss)
            assert found >= loss - 1e-8 or abs(int(best) - int(state.cuts[g])) > 1


INTERPRETED = """
import json, sys
import numpy as np
import scrib_mlflow
from scrib_mlflow.synthetic import draw_scores
fits = []
scores, labels = draw_scores(60, seed=5, signal=(5.0, 2.0, 3.0))
for options in json.loads(sys.argv[1]):
    rounded = np.round(scores, 2)
    soft = options.pop("soft", False)
    fit = scrib_mlflow.fit_thresholds(rounded, rounded if soft else labels, effort=0.01, **options)
    fits.append([fit.loss, list(fit.thresholds), fit.abstention_bound])
print(json.dumps(fits))
"""


def test_compiled_and_interpreted_kernels_agree_bit_for_bit():
    options = [
        {},
        {"overall_target": 0.05, "confidence": 0.9},
        {"threshold_groups": ["1"], "size_weight": 0.2, "empty_weight": 1.2, "error_weight": 3.0},
        {"miscoverage_targets": 0.1},
        {"soft": True, "max_class_abstention": 0.5, "error_weight": 1.5},
        {"answers": "top", "size_weight": 0.2, "threshold_groups": ["1"]},
        {"answers": "top", "miscoverage_targets": 0.1, "risk_targets": None},
    ]
    outputs = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        command = [sys.executable, "-c", INTERPRETED, json.dumps(options)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])) == len(options)
