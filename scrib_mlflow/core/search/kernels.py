"""Kernels: what sets count at some cuts, what one move changes, and the best cut of one threshold.

A cut is a threshold by rank: cut c of threshold g admits the entries at position c or above among
its distinct scores. Thresholds g, rows n, classes k, terms c of the loss. Where only the top class
may be answered, a set of one other class gains it and abstains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scrib_mlflow.core import loss
from scrib_mlflow.core.compiling import inlined, inner, kernel

CLASS, LEVELS, HIGHEST, OFFSET = range(4)  # columns of groups
SECOND, TOP_CLASS, SECOND_CLASS = range(3)  # rows of tops
HELD, HOLDER, LABEL, ONLY = range(4)  # columns of info; HOLDER: the sum of the members' classes


class Rows(NamedTuple):
    """The rows that the cuts can move, and what the rows beside them add."""

    positions: np.ndarray  # (g, n) int32: -1 where never in, LEVELS where always in
    groups: np.ndarray  # (g, 4) int64: CLASS, LEVELS, HIGHEST cut, OFFSET in arrays by position
    shared: int  # the shared threshold, -1 without one
    tops: np.ndarray  # (3, n) int32: SECOND position there, TOP_CLASS, SECOND_CLASS
    entry_start: np.ndarray  # int64, by position
    entry_row: np.ndarray  # int32
    entry_second: np.ndarray  # bool: the row's second entry at the shared threshold
    label_start: np.ndarray  # int64, by position: label entries, for mis-coverage; may be empty
    label_class: np.ndarray  # int32
    label_weight: np.ndarray
    size_at: np.ndarray  # by position: weight of the members at that cut; may be empty
    labels: np.ndarray  # (n,) int32, ascending; -1 where labels are soft
    only: np.ndarray  # (n,) int32: the class that may be answered; -1 where any may
    weights: np.ndarray  # (n,)
    soft: np.ndarray  # (n, k) label weights, or (0, k)
    class_start: np.ndarray  # (k + 1,) int64: where the rows of each class start
    base_counts: np.ndarray  # (c, 3) what the other rows add to the counters
    base_totals: np.ndarray  # (4,)


class State(NamedTuple):
    """Where a search stands: the cuts, and every counter at them."""

    cuts: np.ndarray  # (g,) int64
    info: np.ndarray  # (n, 4) int32: HELD, HOLDER, LABEL, ONLY; together, for one fetch a row
    counts: np.ndarray  # (c, 3) CERTAIN, RIGHT, MISSED
    totals: np.ndarray  # (4,) ALL_CERTAIN, ALL_EMPTY, ALL_SIZE, ALL_WRONG


@inner
def count_gained(i, sign, info, weights, soft, class_terms, term_of, counts, totals):
    """Add (sign 1) or take back (sign -1) the class that a set gains because it may be answered."""
    label, only = info[i, LABEL], info[i, ONLY]
    totals[loss.ALL_SIZE] += sign * weights[i]
    if label < 0 or label == only:
        weight = sign * (weights[i] if label >= 0 else soft[i, only])
        for a in range(class_terms[only], class_terms[only + 1]):
            counts[term_of[a], loss.MISSED] -= weight


@inlined
def count_certain(i, who, sign, info, weights, soft, class_terms, term_of, counts, totals):
    """Add (sign 1) or take back (sign -1) a row that is certain of class `who`."""
    label = info[i, LABEL]
    totals[loss.ALL_CERTAIN] += sign * weights[i]
    if label < 0:
        totals[loss.ALL_WRONG] += sign * (weights[i] - soft[i, who])
    elif label != who:
        totals[loss.ALL_WRONG] += sign * weights[i]
    first, last = label, label + 1
    if label < 0:
        first, last = 0, soft.shape[1]
    for k in range(first, last):
        weight = sign * (weights[i] if label >= 0 else soft[i, k])
        for a in range(class_terms[k], class_terms[k + 1]):
            counts[term_of[a], loss.CERTAIN] += weight
            if who == k:
                counts[term_of[a], loss.RIGHT] += weight


@kernel
def place(rows, objective, state, cuts):
    """Put the state at these cuts, counting every row anew, and return the loss."""
    positions, groups, shared, tops = rows.positions, rows.groups, rows.shared, rows.tops
    info, counts, totals = state.info, state.counts, state.totals
    class_terms, term_of = objective.class_terms, objective.term_of
    n = positions.shape[1]
    info[:] = 0
    info[:, LABEL] = rows.labels
    info[:, ONLY] = rows.only
    counts[:] = rows.base_counts
    totals[:] = rows.base_totals
    for g in range(len(cuts)):
        cut = cuts[g]
        state.cuts[g] = cut
        for i in range(n):
            if positions[g, i] >= cut:
                info[i, HELD] += 1
                info[i, HOLDER] += groups[g, CLASS] if g != shared else tops[TOP_CLASS, i]
                if g == shared and tops[SECOND, i] >= cut:
                    info[i, HELD] += 1
                    info[i, HOLDER] += tops[SECOND_CLASS, i]
        offset = groups[g, OFFSET]
        if len(rows.size_at) > 0:
            totals[loss.ALL_SIZE] += rows.size_at[offset + cut]
        if len(rows.label_start) > 0:
            for e in range(rows.label_start[offset], rows.label_start[offset + cut]):
                k = rows.label_class[e]
                for a in range(class_terms[k], class_terms[k + 1]):
                    counts[term_of[a], loss.MISSED] += rows.label_weight[e]
    for i in range(n):
        if info[i, HELD] == 0:
            totals[loss.ALL_EMPTY] += rows.weights[i]
        if info[i, HELD] == 1:
            if info[i, ONLY] < 0 or info[i, ONLY] == info[i, HOLDER]:
                count_certain(i, info[i, HOLDER], 1.0, info, rows.weights, rows.soft,
                              class_terms, term_of, counts, totals)  # fmt: skip
            else:
                count_gained(i, 1.0, info, rows.weights, rows.soft,
                             class_terms, term_of, counts, totals)  # fmt: skip
    return loss.loss_of(counts, totals, objective)


@inner
def move(rows, objective, state, g, cut):
    """Move one cut, updating every counter, and return the loss."""
    info, counts, totals = state.info, state.counts, state.totals
    class_terms, term_of = objective.class_terms, objective.term_of
    weights, soft = rows.weights, rows.soft
    old = state.cuts[g]
    step = 1 if cut > old else -1
    offset = rows.groups[g, OFFSET]
    first = offset + min(old, cut)
    last = offset + max(old, cut)
    for e in range(rows.entry_start[first], rows.entry_start[last]):
        i = rows.entry_row[e]
        who = rows.groups[g, CLASS]
        if g == rows.shared:
            who = rows.tops[SECOND_CLASS if rows.entry_second[e] else TOP_CLASS, i]
        before = info[i, HELD]
        holder = info[i, HOLDER]
        info[i, HELD] = before - step
        info[i, HOLDER] = holder - step * who
        if before == 0:
            totals[loss.ALL_EMPTY] -= weights[i]
        elif before == step:
            totals[loss.ALL_EMPTY] += weights[i]
        sign = 0.0
        if before == 1:
            sign = -1.0
        elif before - step == 1:
            sign = 1.0
            holder -= step * who
        if sign != 0.0:
            if info[i, ONLY] < 0 or info[i, ONLY] == holder:
                count_certain(i, holder, sign, info, weights, soft,
                              class_terms, term_of, counts, totals)  # fmt: skip
            else:
                count_gained(i, sign, info, weights, soft,
                             class_terms, term_of, counts, totals)  # fmt: skip
    if len(rows.label_start) > 0:
        for e in range(rows.label_start[first], rows.label_start[last]):
            k = rows.label_class[e]
            for b in range(class_terms[k], class_terms[k + 1]):
                counts[term_of[b], loss.MISSED] += step * rows.label_weight[e]
    if len(rows.size_at) > 0:
        totals[loss.ALL_SIZE] += rows.size_at[offset + cut] - rows.size_at[offset + old]
    state.cuts[g] = cut
    return loss.loss_of(counts, totals, objective)


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
    weights, soft, size_at = rows.weights, rows.soft, rows.size_at
    info = state.info
    counts, totals, due = scratch.counts, scratch.totals, scratch.due
    stale, queue = scratch.stale, scratch.queue
    track_labels, track_size = len(rows.label_start) > 0, len(size_at) > 0
    group_class, offset = rows.groups[g, CLASS], rows.groups[g, OFFSET]
    cut = state.cuts[g]
    last = rows.groups[g, HIGHEST] if step > 0 else 0
    penalties = 0.0
    for j in range(4):
        totals[j] = state.totals[j]
    for c in range(len(terms)):
        for j in range(3):
            counts[c, j] = state.counts[c, j]
        due[c] = loss.penalty(
            c,
            counts[c, loss.CERTAIN],
            counts[c, loss.RIGHT],
            counts[c, loss.MISSED],
            terms,
            spans,
            tables,
        )
        penalties += due[c]
    at = cut
    while at != last:
        position = offset + (at if step > 0 else at - 1)
        at += step
        queued = 0
        changed = track_size
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
                    totals[loss.ALL_EMPTY] += weights[i]
            elif held - step == 1:
                sign = 1.0
                holder -= step * who
                if step < 0:
                    totals[loss.ALL_EMPTY] -= weights[i]
            else:
                continue
            changed = True
            if info[i, ONLY] >= 0 and info[i, ONLY] != holder:
                only = info[i, ONLY]
                count_gained(i, sign, info, weights, soft,
                             class_terms, term_of, counts, totals)  # fmt: skip
                for t in range(class_terms[only], class_terms[only + 1]):
                    if track_labels and not stale[term_of[t]]:
                        stale[term_of[t]] = True
                        queue[queued] = term_of[t]
                        queued += 1
                continue
            totals[loss.ALL_CERTAIN] += sign * weights[i]
            label = info[i, LABEL]
            first, end = label, label + 1
            if label < 0:
                first, end = 0, soft.shape[1]
                totals[loss.ALL_WRONG] += sign * (weights[i] - soft[i, holder])
            elif label != holder:
                totals[loss.ALL_WRONG] += sign * weights[i]
            for k in range(first, end):
                weight = sign * (weights[i] if label >= 0 else soft[i, k])
                for t in range(class_terms[k], class_terms[k + 1]):
                    c = term_of[t]
                    counts[c, loss.CERTAIN] += weight
                    if holder == k:
                        counts[c, loss.RIGHT] += weight
                    if not stale[c]:
                        stale[c] = True
                        queue[queued] = c
                        queued += 1
        if track_labels:
            for e in range(rows.label_start[position], rows.label_start[position + 1]):
                k = rows.label_class[e]
                for t in range(class_terms[k], class_terms[k + 1]):
                    c = term_of[t]
                    counts[c, loss.MISSED] += step * rows.label_weight[e]
                    if not stale[c]:
                        stale[c] = True
                        queue[queued] = c
                        queued += 1
        if track_size:
            totals[loss.ALL_SIZE] += size_at[offset + at] - size_at[offset + at - step]
        for q in range(queued):
            c = queue[q]
            stale[c] = False
            n = counts[c, loss.CERTAIN]
            errors = n - counts[c, loss.RIGHT]
            if terms[c, loss.KIND] == loss.MISCOVERAGE:
                n = terms[c, loss.MEMBERS]
                errors = counts[c, loss.MISSED]
            elif terms[c, loss.KIND] == loss.ABSTENTION:
                errors = terms[c, loss.MEMBERS] - n
                n = terms[c, loss.MEMBERS]
            limit = terms[c, loss.TARGET] * n
            if spans[c, 0] >= 0:
                limit = loss.allowed(c, n, terms, spans, tables)
            above = loss.excess(
                errors - limit, n, terms[c, loss.SILENT], 1.0 - terms[c, loss.TARGET]
            )
            penalties -= due[c]
            due[c] = loss.cost(above, terms[c, loss.PENALTY], terms[c, loss.TWO_SIDED])
            penalties += due[c]
        if changed or queued > 0:
            after = penalties + loss.ambiguity(totals, costs)
            if after < best_loss:
                best_loss = after
                best_cut = at
            elif after > barrier:
                break
    return best_cut, best_loss
