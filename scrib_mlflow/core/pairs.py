"""Two thresholds at once: the loss of every cell of a grid of cuts from one pass over the rows.

A row adds to rectangles of the grid only, so their corners are marked and summed up afterwards.
Mis-coverage terms are left out: where there are some, no pairs are tried.
"""

from __future__ import annotations

from scrib_mlflow.core.compiling import inner
from scrib_mlflow.core.grids import accumulate, fill_cells, fill_grid, list_rows
from scrib_mlflow.core.kernels import (
    ALL_CERTAIN,
    ALL_EMPTY,
    ALL_SIZE,
    CERTAIN,
    CLASS,
    HIGHEST,
    KIND,
    LEVELS,
    MEMBERS,
    OFFSET,
    PENALTY,
    RIGHT,
    RISK,
    SILENT,
    TARGET,
    TOP_CLASS,
    TWO_SIDED,
    allowed,
    penalty,
)

CHANCE_COST, SIZE_COST, EMPTY_COST, ALL_WEIGHT = range(4)


@inner
def add_penalties(
    c, certain, right, more_certain, more_right, cells, limits, losses, terms, spans, tables
):
    """Add the penalty of term c (a risk or an abstention rate) to every cell."""
    target, worst, silent = terms[c, TARGET], 1.0 - terms[c, TARGET], terms[c, SILENT]
    below, above = terms[c, TWO_SIDED], terms[c, TWO_SIDED] + terms[c, PENALTY]
    if terms[c, KIND] != RISK:
        members = terms[c, MEMBERS]
        limit = allowed(c, members, terms, spans, tables)
        for j in range(cells):
            excess = min((members - more_certain - certain[j] - limit) / members, worst)
            losses[j] += (above if excess > 0.0 else below) * excess * excess
        return
    if spans[c, 0] < 0:
        for j in range(cells):
            limits[j] = target * (more_certain + certain[j])
    else:
        for j in range(cells):
            limits[j] = allowed(c, more_certain + certain[j], terms, spans, tables)
    for j in range(cells):
        n = more_certain + certain[j]
        excess = min((n - more_right - right[j] - limits[j]) / max(n, silent), worst)
        excess = worst if n <= silent else excess
        losses[j] += (above if excess > 0.0 else below) * excess * excess


@inner
def add_ambiguity(
    rows,
    costs,
    state,
    a,
    b,
    grid_a,
    size_a,
    grid_b,
    size_b,
    boxes,
    listed,
    here,
    empty,
    spare,
    losses,
):
    """Add what empty sets cost beyond ambiguous ones, and the cost of set sizes, to every cell."""
    width = size_b + 1
    if costs[EMPTY_COST] != costs[CHANCE_COST]:
        for j in range((size_a + 1) * width):
            empty[j] = 0.0
            spare[j] = 0.0
        for e in range(listed):
            if boxes[e, 0] == 0:
                empty[boxes[e, 2] * width + boxes[e, 3]] += rows.weights[boxes[e, 6]]
        accumulate(empty, spare, size_a, width)
        more = state.totals[ALL_EMPTY] - empty[here]
        for j in range(size_a * width):
            losses[j] += (costs[EMPTY_COST] - costs[CHANCE_COST]) * (more + empty[j])
    if len(rows.size_at) > 0:
        at_a, at_b = rows.groups[a, OFFSET], rows.groups[b, OFFSET]
        rest = state.totals[ALL_SIZE]
        rest -= rows.size_at[at_a + state.cuts[a]] + rows.size_at[at_b + state.cuts[b]]
        for u in range(size_a):
            for v in range(size_b):
                size = rest + rows.size_at[at_a + grid_a[u]] + rows.size_at[at_b + grid_b[v]]
                losses[u * width + v] += costs[SIZE_COST] * size


@inner
def pair(rows, objective, state, scratch, a, b):
    """Return the best cuts of thresholds a and b on a grid, and the loss there."""
    terms, spans, tables, costs = (
        objective.terms,
        objective.spans,
        objective.tables,
        objective.costs,
    )
    class_terms, term_of, slots = objective.class_terms, objective.term_of, objective.slots
    weights, soft, shared, tops = rows.weights, rows.soft, rows.shared, rows.tops
    grid_a, grid_b, boxes, box_start = (
        scratch.grid_a,
        scratch.grid_b,
        scratch.boxes,
        scratch.box_start,
    )
    certain, right, limits, losses = scratch.certain, scratch.right, scratch.limits, scratch.losses
    merged, counts = scratch.merged, state.counts
    size_a = fill_grid(state.cuts[a], rows.groups[a, HIGHEST], grid_a, scratch.far)
    size_b = fill_grid(state.cuts[b], rows.groups[b, HIGHEST], grid_b, scratch.far)
    fill_cells(grid_a, size_a, rows.groups[a, LEVELS], scratch.cells_a)
    fill_cells(grid_b, size_b, rows.groups[b, LEVELS], scratch.cells_b)
    list_rows(rows, state, a, b, scratch.cells_a, scratch.cells_b, boxes, box_start)
    hard = len(soft) == 0
    classes = len(class_terms) - 1
    width = size_b + 1
    marked = (size_a + 1) * width
    cells = size_a * width
    here = (scratch.cells_a[state.cuts[a] + 1] - 1) * width + scratch.cells_b[state.cuts[b] + 1] - 1
    class_a, class_b = rows.groups[a, CLASS], rows.groups[b, CLASS]
    for j in range(marked):
        losses[j] = 0.0
    for m in range(len(merged)):
        for j in range(marked):
            merged[m, 0, j] = 0.0
            merged[m, 1, j] = 0.0
    constant = costs[CHANCE_COST] * (costs[ALL_WEIGHT] - state.totals[ALL_CERTAIN])
    for k in range(classes):
        first, last = box_start[0], box_start[1]
        if hard:
            first, last = box_start[k], box_start[k + 1]
        if first == last:
            for t in range(class_terms[k], class_terms[k + 1]):
                c = term_of[t]
                if slots[c] < 0:
                    constant += penalty(
                        c, counts[c, CERTAIN], counts[c, RIGHT], 0.0, terms, spans, tables
                    )
            continue
        for j in range(marked):
            certain[j] = 0.0
            right[j] = 0.0
        for e in range(first, last):
            i = boxes[e, 6]
            weight = weights[i] if hard else soft[i, k]
            u, v = boxes[e, 2] * width, boxes[e, 3]
            if boxes[e, 0] == 1:
                certain[u + v] += weight
                if boxes[e, 1] == k:
                    right[u + v] += weight
                continue
            second_u, second_v = boxes[e, 4] * width, boxes[e, 5]
            certain[second_u + v] += weight
            certain[u + second_v] += weight
            certain[u + v] -= 2.0 * weight
            if k == (tops[TOP_CLASS, i] if a == shared else class_a):
                right[second_u + v] += weight
                right[u + v] -= weight
            elif k == (tops[TOP_CLASS, i] if b == shared else class_b):
                right[u + second_v] += weight
                right[u + v] -= weight
        accumulate(certain, right, size_a, width)
        constant += costs[CHANCE_COST] * certain[here]
        for j in range(cells):
            losses[j] -= costs[CHANCE_COST] * certain[j]
        for t in range(class_terms[k], class_terms[k + 1]):
            c = term_of[t]
            if slots[c] < 0:
                more, right_more = (
                    counts[c, CERTAIN] - certain[here],
                    counts[c, RIGHT] - right[here],
                )
                add_penalties(
                    c, certain, right, more, right_more, cells, limits, losses, terms, spans, tables
                )
            else:
                for j in range(cells):
                    merged[slots[c], 0, j] += certain[j]
                    merged[slots[c], 1, j] += right[j]
    for c in range(len(terms)):
        m = slots[c]
        if m >= 0:
            for j in range(cells):
                certain[j] = merged[m, 0, j]
                right[j] = merged[m, 1, j]
            more = counts[c, CERTAIN] - certain[here]
            right_more = counts[c, RIGHT] - right[here]
            add_penalties(
                c, certain, right, more, right_more, cells, limits, losses, terms, spans, tables
            )
    listed = box_start[classes] if hard else box_start[1]
    add_ambiguity(rows, costs, state, a, b, grid_a, size_a, grid_b, size_b, boxes, listed, here,
                  certain, right, losses)  # fmt: skip
    best = 0
    for u in range(size_a):
        for j in range(u * width, u * width + size_b):
            if losses[j] < losses[best]:
                best = j
    return grid_a[best // width], grid_b[best % width], losses[best] + constant
