"""The grid of a pair move: the cuts tried, and where in it each row is certain."""

from __future__ import annotations

from scrib_mlflow.core.compiling import inner
from scrib_mlflow.core.kernels import (
    CLASS,
    HELD,
    HOLDER,
    LEVELS,
    SECOND,
    SECOND_CLASS,
    TOP_CLASS,
)


@inner
def fill_grid(cut, highest, grid, far):
    """Fill the grid with cuts, dense around the present one, coarse elsewhere; return how many."""
    near = (len(grid) - far - 1) // 2
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
    for j in range(far):
        share = (j + 1.0) / (far + 1.0)
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
    kept = 1
    for j in range(1, size):
        if grid[j] != grid[kept - 1]:
            grid[kept] = grid[j]
            kept += 1
    return kept


@inner
def fill_cells(grid, size, levels, cells):
    """Set cells[position + 1] to the number of grid cuts that the position reaches."""
    u = 0
    for position in range(-1, levels + 1):
        while u < size and grid[u] <= position:
            u += 1
        cells[position + 1] = u


@inner
def list_rows(rows, state, a, b, cells_a, cells_b, boxes, box_start):
    """List, class by class, the rows whose certainty depends on cuts a and b.

    A box holds the entries other than a's and b's (their number, their class if one), how many
    grid cuts the row's entries at a and b reach, the same for second entries, and the row.
    """
    positions, shared, tops, info = rows.positions, rows.shared, rows.tops, state.info
    class_start = rows.class_start
    hard = len(rows.soft) == 0
    cut_a, cut_b = state.cuts[a], state.cuts[b]
    class_a, class_b = rows.groups[a, CLASS], rows.groups[b, CLASS]
    levels_a, levels_b = rows.groups[a, LEVELS], rows.groups[b, LEVELS]
    parts = len(class_start) - 1 if hard else 1
    found = 0
    for k in range(parts):
        box_start[k] = found
        first, last = 0, positions.shape[1]
        if hard:
            first, last = class_start[k], class_start[k + 1]
        for i in range(first, last):
            at_a, at_b = positions[a, i], positions[b, i]
            if not (
                (at_a >= 0 and at_a < levels_a)
                or (at_b >= 0 and at_b < levels_b)
                or shared in (a, b)
            ):
                continue
            others = info[i, HELD]
            other = info[i, HOLDER]
            second_a = 0
            second_b = 0
            if at_a >= cut_a:
                others -= 1
                other -= class_a if a != shared else tops[TOP_CLASS, i]
            if at_b >= cut_b:
                others -= 1
                other -= class_b if b != shared else tops[TOP_CLASS, i]
            if a == shared:
                second_a = cells_a[tops[SECOND, i] + 1]
                if tops[SECOND, i] >= cut_a:
                    others -= 1
                    other -= tops[SECOND_CLASS, i]
            if b == shared:
                second_b = cells_b[tops[SECOND, i] + 1]
                if tops[SECOND, i] >= cut_b:
                    others -= 1
                    other -= tops[SECOND_CLASS, i]
            if others > 1:
                continue
            boxes[found, 0] = others
            boxes[found, 1] = other
            boxes[found, 2] = cells_a[at_a + 1]
            boxes[found, 3] = cells_b[at_b + 1]
            boxes[found, 4] = second_a
            boxes[found, 5] = second_b
            boxes[found, 6] = i
            found += 1
    box_start[parts] = found


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
