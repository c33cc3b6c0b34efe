"""What answers looked like when a set classifier was certified: what later ones are compared with.

Rows are told apart by kind: each class as an answer, each of the frequent sets that abstain, all
other sets, the empty set, and rows that could not be scored. Kinds and the bins of scores are
chosen by fit rows; the rows that certify are counted in them. (Which rule of a path is served was
chosen by the certify rows. So the kinds of these are typical of new rows up to that choice; their
scores are so exactly.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.inputs import Bools, Floats, Ints, Labels, count_up, mix

BINS = 256
OUTSIDE = 1e-6  # how far a score must lie beyond all others to be outside
QUARTERS = 4  # of the bins, by which kinds are told apart further where classes are compared
MOST_SETS = 20  # that have a kind of their own
MOST_CELLS = 20_000  # of the table by class; larger ones are left out


class Served(NamedTuple):
    """What rows were answered."""

    answers: Ints  # (n,) class of a certain row, -1 of another
    sets: np.ndarray  # (n,) uint64 hash of the set
    sizes: Ints  # (n,) of it
    scored: Bools  # (n,)
    top: Floats | None  # (n,) highest score, NaN where not scored; None where scores are unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Answers to the rows that certify a set classifier, as they are counted."""

    classes: tuple[str, ...]
    edges: tuple[float, ...]  # between the bins of the highest score
    sets: tuple[tuple[int, ...], ...]  # classes of those with a kind of their own
    scores: tuple[int, ...]  # rows by bin
    kinds: tuple[int, ...]  # rows by kind
    by_class: tuple[tuple[int, ...], ...]  # labelled rows by class, kind and quarter of the bins
    grouped: bool  # whether one row of each group is counted

    @property
    def n_kinds(self) -> int:
        """How many kinds of rows there are."""
        return len(self.classes) + len(self.sets) + 3

    def name(self, kind: int) -> str:
        """Return what a kind of rows is called; the one beyond the last is all that abstain."""
        k, rest = len(self.classes), kind - len(self.classes) - len(self.sets)
        if kind < k:
            return self.classes[kind]
        if rest < 0:
            return ", ".join(self.classes[j] for j in self.sets[kind - k])
        return ("other sets", "empty set", "not scored", "all abstentions")[rest]


def without_baseline(classes: tuple[str, ...]) -> Baseline:
    """Return a baseline without rows: later answers are compared with each other."""
    none = (0,) * (len(classes) + 3)
    return Baseline(
        classes=classes, edges=(), sets=(), scores=(), kinds=none, by_class=(), grouped=False
    )


def served_sets(sets: Bools, scored: Bools, top: Floats | None) -> Served:
    """Return what rows were answered, from their sets (n, k)."""
    sizes = np.count_nonzero(sets, axis=1)
    answers = np.where(sizes == 1, sets.argmax(axis=1), -1)
    rows, members = np.nonzero(sets)
    return Served(answers, set_hashes(rows, members, len(sets)), sizes, scored, top)


def set_hashes(rows: Ints, classes: Ints, n: int) -> np.ndarray:
    """Return (n,) a hash of the members of each set, whatever their order.

    `rows` and `classes` name each member; -1 is a class that is not known.
    """
    hashes = np.zeros(n, dtype=np.uint64)
    np.add.at(hashes, rows, mix(np.asarray(classes) + 1))
    return hashes


def kinds_of(served: Served, baseline: Baseline) -> Ints:
    """Return (n,) of which kind each row is."""
    k, own = len(baseline.classes), _hashes(baseline.sets)
    others = k + len(own)
    order = np.argsort(own)
    ranked = own[order]
    kinds = np.full(len(served.sizes), others)
    if len(own):
        at = np.minimum(np.searchsorted(ranked, served.sets), len(own) - 1)
        kinds = np.where(ranked[at] == served.sets, k + order[at], others)
    kinds[served.sizes == 0] = others + 1
    kinds = np.where(served.answers >= 0, served.answers, kinds)
    kinds[~served.scored] = others + 2
    return np.asarray(kinds, dtype=np.int64)


def _hashes(sets: Sequence[Sequence[int]]) -> np.ndarray:
    rows = np.repeat(np.arange(len(sets)), [len(each) for each in sets]).astype(np.int64)
    members = np.array([j for each in sets for j in each], dtype=np.int64)
    return set_hashes(rows, members, len(sets))


def bins_of(top: Floats, baseline: Baseline) -> Ints:
    """Return (n,) the bin of each highest score, -1 of a row without scores."""
    bins = np.searchsorted(np.array(baseline.edges), top, side="right")
    return np.where(np.isnan(top), -1, bins)


def cells_of(kinds: Ints, bins: Ints | None, baseline: Baseline) -> Ints:
    """Return (n,) the kind of each row with the quarter of its score."""
    if bins is None:
        return kinds * QUARTERS
    quarters = np.maximum(bins, 0) * QUARTERS // (len(baseline.edges) + 1)
    return kinds * QUARTERS + quarters


def make_baseline(
    classes: tuple[str, ...],
    fit: tuple[Served, Bools],  # and their sets (n, k)
    rows: Served,  # that stand for new ones
    labelled: tuple[Served, Labels] | None,  # None where labels are of some kinds only
    *,
    grouped: bool,
) -> Baseline:
    """Return what later answers are compared with."""
    served, sets = fit
    top = served.top[served.scored] if served.top is not None else np.empty(0)
    baseline = replace(
        without_baseline(classes),
        edges=_edges(top),
        sets=_frequent(served, sets),
        grouped=grouped,
    )
    m = baseline.n_kinds
    small = m * QUARTERS * len(classes) <= MOST_CELLS
    bins = None if rows.top is None else bins_of(rows.top, baseline)
    known = (
        None if bins is None else np.bincount(bins[bins >= 0], minlength=len(baseline.edges) + 1)
    )
    return replace(
        baseline,
        kinds=tuple(np.bincount(kinds_of(rows, baseline), minlength=m).tolist()),
        scores=() if known is None else tuple(known.tolist()),
        by_class=_by_class(baseline, *labelled) if small and labelled is not None else (),
    )


def _edges(top: Floats) -> tuple[float, ...]:
    """Return what parts scores into bins of like size, halfway between scores that occur.

    Scores below all of these, and above, have bins of their own.
    """
    if not len(top):
        return ()
    distinct = np.unique(top)
    spread = np.quantile(top, np.arange(1, BINS) / BINS, method="higher")
    at = np.unique(np.searchsorted(distinct, spread))
    halfway = (distinct[at - 1] + distinct[at])[at > 0] / 2
    room = OUTSIDE * np.maximum(1.0, np.abs(distinct[[0, -1]]))
    return (float(distinct[0] - room[0]), *halfway.tolist(), float(distinct[-1] + room[1]))


def _by_class(baseline: Baseline, served: Served, labels: Labels) -> tuple[tuple[int, ...], ...]:
    bins = None if served.top is None else bins_of(served.top, baseline)
    cells = cells_of(kinds_of(served, baseline), bins, baseline)
    k, width = len(baseline.classes), baseline.n_kinds * QUARTERS
    known = labels >= 0
    table = np.bincount(labels[known] * width + cells[known], minlength=k * width)
    return tuple(map(tuple, table.reshape(k, width).tolist()))


def _frequent(served: Served, sets: Bools) -> tuple[tuple[int, ...], ...]:
    """Return the most frequent sets of several classes."""
    several = np.flatnonzero(served.sizes > 1)
    hashes, first, times = np.unique(served.sets[several], return_index=True, return_counts=True)
    chosen = np.lexsort((hashes, -times))[:MOST_SETS]
    return tuple(tuple(np.flatnonzero(sets[several[first[i]]]).tolist()) for i in chosen)


def one_of_each_group(groups: np.ndarray, order: np.ndarray) -> Bools:
    """Return (n,) one row of each group, the first in an order like chance."""
    by_order = np.argsort(order, kind="stable")
    chosen = np.zeros(len(groups), dtype=np.bool_)
    codes = np.unique(groups[by_order], return_inverse=True)[1]
    chosen[by_order[count_up(codes) == 0]] = True
    return chosen
