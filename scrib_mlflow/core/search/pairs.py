"""Coordinate descent with pair moves, compiled as a whole so that threads run it side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scrib_mlflow.core import loss
from scrib_mlflow.core.compiling import inlined, inner, kernel
from scrib_mlflow.core.search import kernels

GRID_SIDE = 32  # cuts of a threshold that a pair move tries
GRID_FAR = 10  # of them spread over the whole range
BARRIER = 1.0  # a sweep turns back where the loss is this much higher
EVERY_PAIR = np.iinfo(np.int64).max
LEAST_GAIN = 1e-9


@inner
def fill_grid(rows, state, g, grid, cells):
    """Fill the grid with cuts, dense around the present one, coarse elsewhere; return how many.

    cells[position + 1] becomes the number of grid cuts that the position reaches.
    """
    cut, highest = state.cuts[g], rows.groups[g, kernels.HIGHEST]
    near = (len(grid) - GRID_FAR - 1) // 2
    growth = 1.0
    if highest > 2 * near:
        growth = (0.5 * highest) ** (1.0 / near)
    grid[0] = cut
    size = 1
    step = 1.0
    reach = 0.0
    for _ in range(near):
        reach += step
        step *= growth
        jump = int(reach)
        if cut + jump <= highest:
            grid[size] = cut + jump
            size += 1
        if cut >= jump:
            grid[size] = cut - jump
            size += 1
    for j in range(GRID_FAR):
        share = (j + 1.0) / (GRID_FAR + 1.0)
        if j % 2 == 1:
            share = 1.0 - 0.75 ** (j // 2 + 1.0)
        grid[size] = int(highest * share)
        size += 1
    for j in range(1, size):
        value = grid[j]
        at = j
        while at > 0 and grid[at - 1] > value:
            grid[at] = grid[at - 1]
            at -= 1
        grid[at] = value
    distinct = 1
    for j in range(1, size):
        if grid[j] != grid[distinct - 1]:
            grid[distinct] = grid[j]
            distinct += 1
    u = 0
    for position in range(-1, rows.groups[g, kernels.LEVELS] + 1):
        while u < distinct and grid[u] <= position:
            u += 1
        cells[position + 1] = u
    return distinct


@inner
def list_rows(rows, state, a, b, cells, boxes, box_start):
    """List, class by class, the rows whose certainty depends on cuts a and b.

    A box holds the entries other than a's and b's (their number, their class if one), how many
    grid cuts the row's entries at a and b reach, the same for second entries, and the row.
    """
    positions, groups, shared, tops = rows.positions, rows.groups, rows.shared, rows.tops
    hard = len(rows.soft) == 0
    levels_a, levels_b = groups[a, kernels.LEVELS], groups[b, kernels.LEVELS]
    parts = len(rows.class_start) - 1 if hard else 1
    listed = 0
    for k in range(parts):
        box_start[k] = listed
        first, last = 0, positions.shape[1]
        if hard:
            first, last = rows.class_start[k], rows.class_start[k + 1]
        for i in range(first, last):
            at_a, at_b = positions[a, i], positions[b, i]
            if not (
                (at_a >= 0 and at_a < levels_a)
                or (at_b >= 0 and at_b < levels_b)
                or shared in (a, b)
            ):
                continue
            others = state.info[i, kernels.HELD]
            other = state.info[i, kernels.HOLDER]
            for side in range(2):
                g, at = (a, at_a) if side == 0 else (b, at_b)
                boxes[listed, 2 + side] = cells[side, at + 1]
                boxes[listed, 4 + side] = 0
                if at >= state.cuts[g]:
                    others -= 1
                    other -= groups[g, kernels.CLASS] if g != shared else tops[kernels.TOP_CLASS, i]
                if g == shared:
                    second = tops[kernels.SECOND, i]
                    boxes[listed, 4 + side] = cells[side, second + 1]
                    if second >= state.cuts[g]:
                        others -= 1
                        other -= tops[kernels.SECOND_CLASS, i]
            if others > 1:
                continue
            boxes[listed, 0] = others
            boxes[listed, 1] = other
            boxes[listed, 6] = i
            listed += 1
    box_start[parts] = listed


@inner
def accumulate(certain, right, height, width):
    """Turn corner marks into values: sum over all cells above and to the left."""
    for u in range(height):
        row = u * width
        run_certain = 0.0
        run_right = 0.0
        for v in range(width):
            run_certain += certain[row + v]
            run_right += right[row + v]
            certain[row + v] = run_certain
            right[row + v] = run_right
        if u > 0:
            for v in range(width):
                certain[row + v] += certain[row - width + v]
                right[row + v] += right[row - width + v]


@inner
def add_penalties(c, objective, counts, planes, here, cells):
    """Add the penalty of term c (a risk or an abstention rate) to every cell; we are `here`."""
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    certain, right, limits, losses = planes[0], planes[1], planes[2], planes[3]
    more_certain = counts[c, loss.CERTAIN] - certain[here]
    more_right = counts[c, loss.RIGHT] - right[here]
    target, silent = terms[c, loss.TARGET], terms[c, loss.SILENT]
    worst = 1.0 - target
    below, above = terms[c, loss.TWO_SIDED], terms[c, loss.TWO_SIDED] + terms[c, loss.PENALTY]
    if terms[c, loss.KIND] != loss.RISK:
        members = terms[c, loss.MEMBERS]
        limit = loss.allowed(c, members, terms, spans, tables)
        for j in range(cells):
            excess = min((members - more_certain - certain[j] - limit) / members, worst)
            losses[j] += (above if excess > 0.0 else below) * excess * excess
        return
    if spans[c, 0] < 0:
        for j in range(cells):
            limits[j] = target * (more_certain + certain[j])
    else:
        for j in range(cells):
            limits[j] = loss.allowed(c, more_certain + certain[j], terms, spans, tables)
    for j in range(cells):
        n = more_certain + certain[j]
        excess = min((n - more_right - right[j] - limits[j]) / max(n, silent), worst)
        excess = worst if n <= silent else excess
        losses[j] += (above if excess > 0.0 else below) * excess * excess


@inner
def mark_gained(rows, a, b, boxes, e, width, gained):
    """Mark the corners of the cells where a row holds one class that may not be answered."""
    i = boxes[e, 6]
    only, weight = rows.only[i], rows.weights[i]
    if only < 0:
        return
    u, v = boxes[e, 2] * width, boxes[e, 3]
    if boxes[e, 0] == 1:
        if boxes[e, 1] != only:
            gained[u + v] += weight
        return
    if only != member(rows, a, i):
        gained[boxes[e, 4] * width + v] += weight
        gained[u + v] -= weight
    if only != member(rows, b, i):
        gained[u + boxes[e, 5]] += weight
        gained[u + v] -= weight


@inlined
def member(rows, g, i):
    """Return the class that threshold g admits first in row i."""
    return rows.tops[kernels.TOP_CLASS, i] if g == rows.shared else rows.groups[g, kernels.CLASS]


@inner
def add_ambiguity(rows, costs, state, a, b, grid_a, size_a, grid_b, size_b, boxes, listed, here,
                  empty, gained, losses):  # fmt: skip
    """Add what empty sets cost beyond ambiguous ones, and the cost of set sizes, to every cell."""
    width = size_b + 1
    # whether the cost of a set of one class that gains another is to be counted
    gains = len(rows.size_at) > 0 and len(rows.only) > 0 and rows.only[0] >= 0
    if costs[loss.EMPTY_COST] != costs[loss.CHANCE_COST] or gains:
        empty[: (size_a + 1) * width] = 0.0
        gained[: (size_a + 1) * width] = 0.0
        for e in range(listed):
            if boxes[e, 0] == 0:
                empty[boxes[e, 2] * width + boxes[e, 3]] += rows.weights[boxes[e, 6]]
            if gains:
                mark_gained(rows, a, b, boxes, e, width, gained)
        accumulate(empty, gained, size_a, width)
        more = state.totals[loss.ALL_EMPTY] - empty[here]
        for j in range(size_a * width):
            losses[j] += (costs[loss.EMPTY_COST] - costs[loss.CHANCE_COST]) * (more + empty[j])
            losses[j] += costs[loss.SIZE_COST] * (gained[j] - gained[here])
    if len(rows.size_at) > 0:
        at_a, at_b = rows.groups[a, kernels.OFFSET], rows.groups[b, kernels.OFFSET]
        rest = state.totals[loss.ALL_SIZE]
        rest -= rows.size_at[at_a + state.cuts[a]] + rows.size_at[at_b + state.cuts[b]]
        for u in range(size_a):
            for v in range(size_b):
                size = rest + rows.size_at[at_a + grid_a[u]] + rows.size_at[at_b + grid_b[v]]
                losses[u * width + v] += costs[loss.SIZE_COST] * size


@inner
def pair(rows, objective, state, scratch, a, b):
    """Return the best cuts of thresholds a and b on a grid, and the loss there."""
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    class_terms, term_of, costs = objective.class_terms, objective.term_of, objective.costs
    slots = objective.slots
    weights, soft, shared, tops = rows.weights, rows.soft, rows.shared, rows.tops
    grid_a, grid_b = scratch.grids[0], scratch.grids[1]
    cells_a, cells_b = scratch.cells[0], scratch.cells[1]
    boxes, box_start, merged = scratch.boxes, scratch.box_start, scratch.merged
    certain, right, losses = scratch.planes[0], scratch.planes[1], scratch.planes[3]
    counts = state.counts
    size_a = fill_grid(rows, state, a, grid_a, cells_a)
    size_b = fill_grid(rows, state, b, grid_b, cells_b)
    list_rows(rows, state, a, b, scratch.cells, boxes, box_start)
    hard = len(soft) == 0
    classes = len(class_terms) - 1
    width = size_b + 1
    marked = (size_a + 1) * width
    cells = size_a * width
    here = (cells_a[state.cuts[a] + 1] - 1) * width + cells_b[state.cuts[b] + 1] - 1
    class_a, class_b = rows.groups[a, kernels.CLASS], rows.groups[b, kernels.CLASS]
    losses[:marked] = 0.0
    merged[:, :, :marked] = 0.0
    chance, error = costs[loss.CHANCE_COST], costs[loss.ERROR_COST]
    constant = chance * (costs[loss.ALL_WEIGHT] - state.totals[loss.ALL_CERTAIN])
    constant += error * state.totals[loss.ALL_WRONG]
    for k in range(classes):
        first, last = box_start[0], box_start[1]
        if hard:
            first, last = box_start[k], box_start[k + 1]
        if first == last:
            for t in range(class_terms[k], class_terms[k + 1]):
                c = term_of[t]
                if slots[c] < 0:
                    constant += loss.penalty(
                        c, counts[c, loss.CERTAIN], counts[c, loss.RIGHT], 0.0, terms, spans, tables
                    )
            continue
        certain[:marked] = 0.0
        right[:marked] = 0.0
        for e in range(first, last):
            i = boxes[e, 6]
            weight = weights[i] if hard else soft[i, k]
            u, v = boxes[e, 2] * width, boxes[e, 3]
            only = rows.only[i]
            if boxes[e, 0] == 1:
                if only < 0 or only == boxes[e, 1]:
                    certain[u + v] += weight
                    if boxes[e, 1] == k:
                        right[u + v] += weight
                continue
            second_u, second_v = boxes[e, 4] * width, boxes[e, 5]
            of_a = tops[kernels.TOP_CLASS, i] if a == shared else class_a
            of_b = tops[kernels.TOP_CLASS, i] if b == shared else class_b
            by_a = weight if only < 0 or only == of_a else 0.0
            by_b = weight if only < 0 or only == of_b else 0.0
            certain[second_u + v] += by_a
            certain[u + second_v] += by_b
            certain[u + v] -= by_a + by_b
            if k == of_a:
                right[second_u + v] += by_a
                right[u + v] -= by_a
            elif k == of_b:
                right[u + second_v] += by_b
                right[u + v] -= by_b
        accumulate(certain, right, size_a, width)
        constant += chance * certain[here] - error * (certain[here] - right[here])
        for j in range(cells):
            losses[j] -= chance * certain[j]
        if error > 0.0:
            for j in range(cells):
                losses[j] += error * (certain[j] - right[j])
        for t in range(class_terms[k], class_terms[k + 1]):
            c = term_of[t]
            if slots[c] < 0:
                add_penalties(c, objective, counts, scratch.planes, here, cells)
            else:
                for j in range(cells):
                    merged[slots[c], 0, j] += certain[j]
                    merged[slots[c], 1, j] += right[j]
    for c in range(len(terms)):
        m = slots[c]
        if m >= 0:
            certain[:cells] = merged[m, 0, :cells]
            right[:cells] = merged[m, 1, :cells]
            add_penalties(c, objective, counts, scratch.planes, here, cells)
    listed = box_start[classes] if hard else box_start[1]
    add_ambiguity(rows, costs, state, a, b, grid_a, size_a, grid_b, size_b, boxes, listed, here,
                  certain, right, losses)  # fmt: skip
    best = 0
    for u in range(size_a):
        for j in range(u * width, u * width + size_b):
            if losses[j] < losses[best]:
                best = j
    return grid_a[best // width], grid_b[best % width], losses[best] + constant


class Scratch(NamedTuple):
    """Memory that the kernels reuse."""

    counts: np.ndarray  # (c, 3) sweep: counters on the way
    totals: np.ndarray  # (4,)
    due: np.ndarray  # (c,) penalties on the way
    stale: np.ndarray  # (c,) bool: penalty to be computed anew
    queue: np.ndarray  # (c,) int64: which ones
    grids: np.ndarray  # (2, GRID_SIDE) pair: the cuts tried
    cells: np.ndarray  # (2, positions + 1): cuts reached
    boxes: np.ndarray  # (n, 7) int32
    box_start: np.ndarray  # (k + 1,) int64
    planes: np.ndarray  # (4, cells) certain, right, limits, losses
    merged: np.ndarray  # (m, 2, cells) counters of the terms that several classes have
    swept: np.ndarray  # (g,) descent: the stamp at which a threshold was last swept
    paired: np.ndarray  # (pairs,) the same for pairs


def new_state(rows: kernels.Rows, objective: loss.Objective) -> kernels.State:
    """Return memory for a state; `place` fills it."""
    terms = len(objective.terms)
    info = np.zeros((rows.positions.shape[1], 4), dtype=np.int32)
    cuts = np.zeros(len(rows.groups), dtype=np.int64)
    return kernels.State(cuts, info, np.zeros((terms, 3)), np.zeros(4))


def new_scratch(rows: kernels.Rows, objective: loss.Objective, pairs: int) -> Scratch:
    """Return memory for `descend`."""
    terms, classes = len(objective.terms), len(objective.class_terms) - 1
    reach = int(rows.groups[:, kernels.LEVELS].max()) + 2
    cells = (GRID_SIDE + 1) ** 2
    return Scratch(
        counts=np.zeros((terms, 3)),
        totals=np.zeros(4),
        due=np.zeros(terms),
        stale=np.zeros(terms, dtype=np.bool_),
        queue=np.zeros(terms, dtype=np.int64),
        grids=np.zeros((2, GRID_SIDE), dtype=np.int64),
        cells=np.zeros((2, reach), dtype=np.int32),
        boxes=np.zeros((rows.positions.shape[1], 7), dtype=np.int32),
        box_start=np.zeros(classes + 1, dtype=np.int64),
        planes=np.zeros((4, cells)),
        merged=np.zeros((int((objective.slots >= 0).sum()), 2, cells)),
        swept=np.zeros(len(rows.groups), dtype=np.int64),
        paired=np.zeros(pairs, dtype=np.int64),
    )


@kernel
def descend(rows, objective, state, scratch, cuts, pairs, limit, turn):
    """Move cuts, one and two at a time, until no move helps; return the loss.

    At most `limit` pairs are tried. The threshold before `turn` is swept last, so that the others
    adapt to it first.
    """
    current = kernels.place(rows, objective, state, cuts)
    swept, paired = scratch.swept, scratch.paired
    groups = len(cuts)
    swept[:] = -1
    paired[:] = -1
    stamp = tried = q = idle = 0
    while True:
        a = turn % groups
        b = a
        if idle < groups:  # sweeps until every threshold is at its best
            turn += 1
            idle += 1
            if swept[a] == stamp:
                continue
            swept[a] = stamp
            cut_a, best = state.cuts[a], current
            barrier = 3.0 * current + BARRIER
            for step in (1, -1):
                cut_a, best = kernels.walk(
                    rows, objective, state, scratch, a, step, cut_a, best, barrier
                )
            cut_b = cut_a
        else:  # then all pairs, and sweeps again where a pair has helped
            if q == len(pairs):
                if swept[a] == stamp:
                    return current
                q = 0
                idle = 0
                continue
            q += 1
            if paired[q - 1] == stamp or tried >= limit:
                continue
            paired[q - 1] = stamp
            tried += 1
            a, b = pairs[q - 1, 0], pairs[q - 1, 1]
            cut_a, cut_b, best = pair(rows, objective, state, scratch, a, b)
        if best < current - LEAST_GAIN:
            old_a, old_b = state.cuts[a], state.cuts[b]
            kernels.move(rows, objective, state, a, cut_a)
            after = kernels.move(rows, objective, state, b, cut_b)
            if after < current:
                current = after
                stamp += 1
                if a == b:
                    swept[a] = stamp
                    idle = 1
            else:
                kernels.move(rows, objective, state, a, old_a)
                kernels.move(rows, objective, state, b, old_b)
