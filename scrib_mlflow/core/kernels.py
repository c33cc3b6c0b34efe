"""Compiled loops over counters: the penalty, a full recount, moving one cut.

Notation, once for all kernels::

    n rows, k classes, g thresholds, c constraints
    position  index of a distinct score among those of one threshold
    cut       a class is in the set when its position >= the cut of its threshold
    entry     a (row, class) that a cut can move; at a shared threshold only a row's two
              highest scores count, for they decide whether it has no, one or more members there
    held      how many entries of a row are in; `holder` sums their class indices, so that it
              names the only member when one is held

A row is certain when it holds one entry. Counters are float64, exact for unweighted rows, so
hard labels, weights and soft labels run the same loops. Kernels take tuples of arrays and unpack
them first: a tuple handed on inside a loop costs more than the loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.compiling import inlined, inner, kernel

RISK, MISCOVERAGE, ABSTENTION = 0.0, 1.0, 2.0
KIND, TARGET, PENALTY, TWO_SIDED, MEMBERS, SILENT, RATIO, WHOLE = range(8)
CERTAIN, RIGHT, MISSED = range(3)
ALL_CERTAIN, ALL_EMPTY, ALL_SIZE = range(3)
CLASS, LEVELS, HIGHEST, OFFSET = range(4)
SECOND, TOP_CLASS, SECOND_CLASS = range(3)
HELD, HOLDER, LABEL = range(3)
SLACK = 1e-9  # a product that should be a whole number may fall short of it


class Objective(NamedTuple):
    """The loss: costs of the ambiguities and one penalty term per constraint."""

    costs: np.ndarray  # (4,) chance, size and empty weight per unit of row weight; all row weight
    terms: np.ndarray  # (c, 8) KIND, TARGET, ...; RATIO: table entries per unit of weight
    spans: np.ndarray  # (c, 2) int64: start and last index of the term's table, -1 without
    tables: np.ndarray  # allowed errors by number of rows, one table after another
    class_terms: np.ndarray  # (k + 1,) int64: where each class starts in `term_of`
    term_of: np.ndarray  # int64: terms that count a class, class by class
    slots: np.ndarray  # (c,) int64: -1 when one class has the term, else a number of its own


class Rows(NamedTuple):
    """The rows that the cuts can move, and what the rows beside them add."""

    positions: np.ndarray  # (g, n) int32: -1 where never in, LEVELS where always in
    groups: np.ndarray  # (g, 4) int64: CLASS, LEVELS, HIGHEST cut, OFFSET in arrays by position
    shared: int  # the shared threshold, -1 without one
    tops: np.ndarray  # (3, n) int32: SECOND position there, TOP_CLASS, SECOND_CLASS
    entry_start: np.ndarray  # int64, by position
    entry_row: np.ndarray  # int32
    entry_second: np.ndarray  # bool: the row's second entry at the shared threshold
    own_start: np.ndarray  # int64, by position: label entries, for mis-coverage; may be empty
    own_class: np.ndarray  # int32
    own_weight: np.ndarray
    size_at: np.ndarray  # by position: weight of the members at that cut; may be empty
    labels: np.ndarray  # (n,) int32, ascending; -1 where labels are soft
    weights: np.ndarray  # (n,)
    soft: np.ndarray  # (n, k) label weights, or (0, k)
    class_start: np.ndarray  # (k + 1,) int64: where the rows of each class start
    base_counts: np.ndarray  # (c, 3) what the other rows add to the counters
    base_totals: np.ndarray  # (3,)


class State(NamedTuple):
    """Where a search stands: the cuts, and every counter at them."""

    cuts: np.ndarray  # (g,) int64
    info: np.ndarray  # (n, 4) int32: HELD, HOLDER, LABEL; together, for one fetch a row
    counts: np.ndarray  # (c, 3) CERTAIN, RIGHT, MISSED
    totals: np.ndarray  # (3,) ALL_CERTAIN, ALL_EMPTY, ALL_SIZE


@inner
def allowed(c, n, terms, spans, tables):
    """Return how many errors term c allows among n rows."""
    start, last = spans[c, 0], spans[c, 1]
    if start < 0:
        return terms[c, TARGET] * n
    ratio = terms[c, RATIO]
    low = np.int64(n * ratio + SLACK)
    if low >= last:
        return tables[start + last] / ratio
    limit = tables[start + low]
    if terms[c, WHOLE] == 0.0:
        limit += (n * ratio - low) * (tables[start + low + 1] - limit)
    return limit / ratio


@inner
def excess(over, n, silent, worst):
    """Return how far a rate is above its target, from the errors over those allowed."""
    return worst if n <= silent else min(over / n, worst)


@inner
def cost(above, one_sided, two_sided):
    """Return the penalty of an excess, which is negative below the target."""
    weight = two_sided + one_sided if above > 0.0 else two_sided
    return weight * above * above


@kernel
def term_excess(c, certain, right, missed, terms, spans, tables):
    """Return the excess of term c at these counters."""
    n = certain
    errors = certain - right
    if terms[c, KIND] != RISK:
        n = terms[c, MEMBERS]
        errors = missed if terms[c, KIND] == MISCOVERAGE else n - certain
    over = errors - allowed(c, n, terms, spans, tables)
    return excess(over, n, terms[c, SILENT], 1.0 - terms[c, TARGET])


@inner
def penalty(c, certain, right, missed, terms, spans, tables):
    """Return the penalty of term c at these counters."""
    above = term_excess(c, certain, right, missed, terms, spans, tables)
    return cost(above, terms[c, PENALTY], terms[c, TWO_SIDED])


@inner
def ambiguity(totals, costs):
    """Return the weighted ambiguity at these totals."""
    chance = costs[3] - totals[ALL_CERTAIN] - totals[ALL_EMPTY]
    return costs[0] * chance + costs[1] * totals[ALL_SIZE] + costs[2] * totals[ALL_EMPTY]


@kernel
def loss_of(counts, totals, objective):
    """Return ambiguity plus penalties."""
    terms, spans, tables = objective.terms, objective.spans, objective.tables
    loss = ambiguity(totals, objective.costs)
    for c in range(len(terms)):
        loss += penalty(c, counts[c, CERTAIN], counts[c, RIGHT], counts[c, MISSED],
                        terms, spans, tables)  # fmt: skip
    return loss


@inlined
def count_certain(i, who, sign, info, weights, soft, class_terms, term_of, counts):
    """Add (sign 1) or take back (sign -1) a row that is certain of class `who`."""
    label = info[i, LABEL]
    first, last = label, label + 1
    if label < 0:
        first, last = 0, soft.shape[1]
    for k in range(first, last):
        weight = sign * (weights[i] if label >= 0 else soft[i, k])
        for a in range(class_terms[k], class_terms[k + 1]):
            counts[term_of[a], CERTAIN] += weight
            if who == k:
                counts[term_of[a], RIGHT] += weight


@kernel
def place(rows, objective, state, cuts):
    """Put the state at these cuts, counting every row anew, and return the loss."""
    positions, groups, shared, tops = rows.positions, rows.groups, rows.shared, rows.tops
    info, counts, totals = state.info, state.counts, state.totals
    class_terms, term_of = objective.class_terms, objective.term_of
    n = positions.shape[1]
    for i in range(n):
        info[i, HELD] = 0
        info[i, HOLDER] = 0
        info[i, LABEL] = rows.labels[i]
    for c in range(len(counts)):
        for j in range(3):
            counts[c, j] = rows.base_counts[c, j]
    for j in range(3):
        totals[j] = rows.base_totals[j]
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
            totals[ALL_SIZE] += rows.size_at[offset + cut]
        if len(rows.own_start) > 0:
            for e in range(rows.own_start[offset], rows.own_start[offset + cut]):
                k = rows.own_class[e]
                for a in range(class_terms[k], class_terms[k + 1]):
                    counts[term_of[a], MISSED] += rows.own_weight[e]
    for i in range(n):
        if info[i, HELD] == 0:
            totals[ALL_EMPTY] += rows.weights[i]
        if info[i, HELD] == 1:
            totals[ALL_CERTAIN] += rows.weights[i]
            count_certain(i, info[i, HOLDER], 1.0, info, rows.weights, rows.soft,
                          class_terms, term_of, counts)  # fmt: skip
    return loss_of(counts, totals, objective)


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
            totals[ALL_EMPTY] -= weights[i]
        elif before == step:
            totals[ALL_EMPTY] += weights[i]
        sign = 0.0
        if before == 1:
            sign = -1.0
        elif before - step == 1:
            sign = 1.0
            holder -= step * who
        if sign != 0.0:
            totals[ALL_CERTAIN] += sign * weights[i]
            count_certain(i, holder, sign, info, weights, soft, class_terms, term_of, counts)
    if len(rows.own_start) > 0:
        for e in range(rows.own_start[first], rows.own_start[last]):
            k = rows.own_class[e]
            for b in range(class_terms[k], class_terms[k + 1]):
                counts[term_of[b], MISSED] += step * rows.own_weight[e]
    if len(rows.size_at) > 0:
        totals[ALL_SIZE] += rows.size_at[offset + cut] - rows.size_at[offset + old]
    state.cuts[g] = cut
    return loss_of(counts, totals, objective)
