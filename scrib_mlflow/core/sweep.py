"""One threshold: try every cut, one step at a time."""

from __future__ import annotations

from scrib_mlflow.core.compiling import inner
from scrib_mlflow.core.kernels import (
    ABSTENTION,
    ALL_CERTAIN,
    ALL_EMPTY,
    ALL_SIZE,
    CERTAIN,
    CLASS,
    HELD,
    HIGHEST,
    HOLDER,
    KIND,
    LABEL,
    MEMBERS,
    MISCOVERAGE,
    MISSED,
    OFFSET,
    PENALTY,
    RIGHT,
    SECOND,
    SECOND_CLASS,
    SILENT,
    TARGET,
    TOP_CLASS,
    TWO_SIDED,
    allowed,
    ambiguity,
    cost,
    excess,
    penalty,
)


@inner
def walk(rows, objective, state, scratch, g, step, best_cut, best_loss, barrier):
    """Try the cuts above (step 1) or below (step -1) the present one, up to the barrier.

    Between two distinct scores only the rows at the score passed change, so a step costs the
    terms of their classes; the state itself stays as it is.
    """
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    class_terms, term_of, costs = objective.class_terms, objective.term_of, objective.costs
    positions, shared, tops = rows.positions, rows.shared, rows.tops
    entry_start, entry_row, entry_second = rows.entry_start, rows.entry_row, rows.entry_second
    own_start, own_class, own_weight = rows.own_start, rows.own_class, rows.own_weight
    weights, soft, size_at = rows.weights, rows.soft, rows.size_at
    info = state.info
    counts, totals, due = scratch.counts, scratch.totals, scratch.due
    stale, queue = scratch.stale, scratch.queue
    track_own, track_size = len(own_start) > 0, len(size_at) > 0
    group_class, offset = rows.groups[g, CLASS], rows.groups[g, OFFSET]
    cut = state.cuts[g]
    last = rows.groups[g, HIGHEST] if step > 0 else 0
    penalties = 0.0
    for j in range(3):
        totals[j] = state.totals[j]
    for c in range(len(terms)):
        for j in range(3):
            counts[c, j] = state.counts[c, j]
        due[c] = penalty(
            c, counts[c, CERTAIN], counts[c, RIGHT], counts[c, MISSED], terms, spans, tables
        )
        penalties += due[c]
    at = cut
    while at != last:
        position = offset + (at if step > 0 else at - 1)
        at += step
        queued = 0
        for e in range(entry_start[position], entry_start[position + 1]):
            i = entry_row[e]
            held = info[i, HELD]
            holder = info[i, HOLDER]
            who = group_class
            if g == shared:
                who = tops[TOP_CLASS, i]
                if entry_second[e]:
                    who = tops[SECOND_CLASS, i]
                    if step < 0 and positions[g, i] < cut:
                        held += 1  # the first entry has come in on this walk
                        holder += tops[TOP_CLASS, i]
                elif step > 0 and tops[SECOND, i] >= cut:
                    held -= 1  # the second entry has left on this walk
                    holder -= tops[SECOND_CLASS, i]
            if held == 1:
                sign = -1.0
                if step > 0:
                    totals[ALL_EMPTY] += weights[i]
            elif held - step == 1:
                sign = 1.0
                holder -= step * who
                if step < 0:
                    totals[ALL_EMPTY] -= weights[i]
            else:
                continue
            totals[ALL_CERTAIN] += sign * weights[i]
            label = info[i, LABEL]
            first, end = label, label + 1
            if label < 0:
                first, end = 0, soft.shape[1]
            for k in range(first, end):
                weight = sign * (weights[i] if label >= 0 else soft[i, k])
                for t in range(class_terms[k], class_terms[k + 1]):
                    c = term_of[t]
                    counts[c, CERTAIN] += weight
                    if holder == k:
                        counts[c, RIGHT] += weight
                    if not stale[c]:
                        stale[c] = True
                        queue[queued] = c
                        queued += 1
        if track_own:
            for e in range(own_start[position], own_start[position + 1]):
                k = own_class[e]
                for t in range(class_terms[k], class_terms[k + 1]):
                    c = term_of[t]
                    counts[c, MISSED] += step * own_weight[e]
                    if not stale[c]:
                        stale[c] = True
                        queue[queued] = c
                        queued += 1
        if track_size:
            totals[ALL_SIZE] += size_at[offset + at] - size_at[offset + at - step]
        for q in range(queued):
            c = queue[q]
            stale[c] = False
            n = counts[c, CERTAIN]
            errors = n - counts[c, RIGHT]
            if terms[c, KIND] == MISCOVERAGE:
                n = terms[c, MEMBERS]
                errors = counts[c, MISSED]
            elif terms[c, KIND] == ABSTENTION:
                errors = terms[c, MEMBERS] - n
                n = terms[c, MEMBERS]
            limit = terms[c, TARGET] * n
            if spans[c, 0] >= 0:
                limit = allowed(c, n, terms, spans, tables)
            above = excess(errors - limit, n, terms[c, SILENT], 1.0 - terms[c, TARGET])
            penalties -= due[c]
            due[c] = cost(above, terms[c, PENALTY], terms[c, TWO_SIDED])
            penalties += due[c]
        if queued > 0 or track_size:
            loss = penalties + ambiguity(totals, costs)
            if loss < best_loss:
                best_loss = loss
                best_cut = at
            elif loss > barrier:
                break
    return best_cut, best_loss
