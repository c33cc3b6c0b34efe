"""Coordinate descent with pair moves, compiled as a whole so that threads run it side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.compiling import inner, kernel
from scrib_mlflow.core.kernels import LEVELS, Objective, Rows, State, move, place
from scrib_mlflow.core.pairs import pair
from scrib_mlflow.core.sweep import walk

GRID_SIDE = 32
GRID_FAR = 10
BARRIER = 1.0
EVERY_PAIR = np.iinfo(np.int64).max
LEAST_GAIN = 1e-9


class Scratch(NamedTuple):
    """Memory that the kernels reuse."""

    counts: np.ndarray  # (c, 3) sweep: counters on the way
    totals: np.ndarray  # (3,)
    due: np.ndarray  # (c,) penalties on the way
    stale: np.ndarray  # (c,) bool: penalty to be computed anew
    queue: np.ndarray  # (c,) int64: which ones
    barrier: float  # a sweep turns back where the loss is this much higher
    grid_a: np.ndarray  # pair: the cuts tried
    grid_b: np.ndarray
    cells_a: np.ndarray  # by position + 1: cuts reached
    cells_b: np.ndarray
    boxes: np.ndarray  # (n, 7) int32
    box_start: np.ndarray  # (k + 1,) int64
    certain: np.ndarray  # by cell
    right: np.ndarray
    limits: np.ndarray
    losses: np.ndarray
    merged: np.ndarray  # (m, 2, cells) counters of the terms that several classes have
    far: int  # grid cuts spread over the whole range
    swept: np.ndarray  # (g,) descent: the stamp at which a threshold was last swept
    paired: np.ndarray  # (pairs,) the same for pairs


def new_state(rows: Rows, objective: Objective) -> State:
    """Return memory for a state; `place` fills it."""
    terms = len(objective.terms)
    info = np.zeros((rows.positions.shape[1], 4), dtype=np.int32)
    cuts = np.zeros(len(rows.groups), dtype=np.int64)
    return State(cuts, info, np.zeros((terms, 3)), np.zeros(3))


def new_scratch(rows: Rows, objective: Objective, pairs: int) -> Scratch:
    """Return memory for `descend`."""
    terms, classes = len(objective.terms), len(objective.class_terms) - 1
    reach = int(rows.groups[:, LEVELS].max()) + 2
    cells = (GRID_SIDE + 1) ** 2
    return Scratch(
        counts=np.zeros((terms, 3)),
        totals=np.zeros(3),
        due=np.zeros(terms),
        stale=np.zeros(terms, dtype=np.bool_),
        queue=np.zeros(terms, dtype=np.int64),
        barrier=BARRIER,
        grid_a=np.zeros(GRID_SIDE, dtype=np.int64),
        grid_b=np.zeros(GRID_SIDE, dtype=np.int64),
        cells_a=np.zeros(reach, dtype=np.int32),
        cells_b=np.zeros(reach, dtype=np.int32),
        boxes=np.zeros((rows.positions.shape[1], 7), dtype=np.int32),
        box_start=np.zeros(classes + 1, dtype=np.int64),
        certain=np.zeros(cells),
        right=np.zeros(cells),
        limits=np.zeros(cells),
        losses=np.zeros(cells),
        merged=np.zeros((int((objective.slots >= 0).sum()), 2, cells)),
        far=GRID_FAR,
        swept=np.zeros(len(rows.groups), dtype=np.int64),
        paired=np.zeros(pairs, dtype=np.int64),
    )


@inner
def try_cuts(rows, objective, state, loss, groups, cuts):
    """Move two cuts, back again unless that lowers the loss; return the loss."""
    old = (state.cuts[groups[0]], state.cuts[groups[1]])
    after = loss
    for j in range(2):
        after = move(rows, objective, state, groups[j], cuts[j])
    if after < loss:
        return after
    for j in range(2):
        move(rows, objective, state, groups[j], old[j])
    return loss


@kernel
def descend(rows, objective, state, scratch, cuts, pairs, limit, turn):
    """Move cuts, one and two at a time, until no move helps; return the loss.

    At most `limit` pairs are tried. The threshold before `turn` is swept last, so that the others
    adapt to it first.
    """
    loss = place(rows, objective, state, cuts)
    swept, paired = scratch.swept, scratch.paired
    groups = len(cuts)
    for g in range(groups):
        swept[g] = -1
    for q in range(len(pairs)):
        paired[q] = -1
    stamp = 0
    tried = 0
    q = 0
    idle = 0
    while True:
        a = turn % groups
        b = a
        if idle < groups:  # sweeps until every threshold is at its best
            turn += 1
            idle += 1
            if swept[a] == stamp:
                continue
            swept[a] = stamp
            cut_a, found = state.cuts[a], loss
            barrier = 3.0 * loss + scratch.barrier
            for step in (1, -1):
                cut_a, found = walk(rows, objective, state, scratch, a, step, cut_a, found, barrier)
            cut_b = cut_a
        else:  # then all pairs, and sweeps again where a pair has helped
            if q == len(pairs):
                if swept[a] == stamp:
                    return loss
                q = 0
                idle = 0
                continue
            q += 1
            if paired[q - 1] == stamp or tried >= limit:
                continue
            paired[q - 1] = stamp
            tried += 1
            a, b = pairs[q - 1, 0], pairs[q - 1, 1]
            cut_a, cut_b, found = pair(rows, objective, state, scratch, a, b)
        if found < loss - LEAST_GAIN:
            after = try_cuts(rows, objective, state, loss, (a, b), (cut_a, cut_b))
            if after < loss:
                loss = after
                stamp += 1
                if a == b:
                    swept[a] = stamp
                    idle = 1
