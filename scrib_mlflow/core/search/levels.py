"""Levels: the rows that thresholds inside a window can move, arranged for the kernels.

Thresholds g serve a class each, or the last of them all classes that share one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Floats, Ints, Labelled
from scrib_mlflow.core.loss import ALL_CERTAIN, ALL_EMPTY, ALL_WRONG, MISSED, Objective
from scrib_mlflow.core.rules import answerable
from scrib_mlflow.core.search.kernels import HIGHEST, Rows
from scrib_mlflow.core.targets import AnswerName

SHARED = -1  # in place of a class: the threshold that several classes share
PARTS = {  # fields of `Rows` that are joined from those of each threshold
    "entry_start": np.int64,
    "entry_row": np.int32,
    "entry_second": np.bool_,
    "label_start": np.int64,
    "label_class": np.int32,
    "label_weight": np.float64,
    "size_at": np.float64,
}


class Data(NamedTuple):
    """What a search sees, checked and without rows of weight 0."""

    scores: Floats  # (n, k)
    labels: NDArray[np.int32]  # (n,); empty where labels are soft
    soft: Floats  # (n, k) label weights; (0, k) where labels are hard
    weights: Floats  # (n,) row weights
    thresholds: Ints  # (g,) the class that a threshold serves, or SHARED
    sharing: Ints  # the classes that share the last threshold
    heads: Floats  # (n, 2) their two highest scores in each row; (0, 2) without
    head_classes: NDArray[np.int32]  # (n, 2)
    only: NDArray[np.int32]  # (n,) the class that may be answered; empty where any may

    @property
    def hard(self) -> bool:
        """Whether labels are classes, not weights over classes."""
        return len(self.soft) == 0

    def column(self, g: int) -> Floats:
        """Return the scores that decide whether threshold g admits anything."""
        served = self.thresholds[g]
        return self.heads[:, 0] if served == SHARED else self.scores[:, served]

    def served(self, g: int) -> Ints:
        """Return the classes that threshold g serves."""
        return self.sharing if self.thresholds[g] == SHARED else self.thresholds[g : g + 1]

    def take(self, rows: Ints, scale: Floats | None = None) -> Data:
        """Return these rows, with their weights scaled."""
        by = np.ones(len(rows)) if scale is None else scale
        shared = len(self.heads) > 0
        return self._replace(
            scores=self.scores[rows],
            labels=self.labels[rows] if self.hard else self.labels,
            soft=self.soft if self.hard else self.soft[rows] * by[:, None],
            weights=self.weights[rows] * by,
            heads=self.heads[rows] if shared else self.heads,
            head_classes=self.head_classes[rows] if shared else self.head_classes,
            only=self.only[rows] if len(self.only) else self.only,
        )

    def by_class(self, thresholds: Floats) -> Floats:
        """Return (k,) thresholds from (g,) ones."""
        result = np.empty(self.scores.shape[1])
        for g, threshold in enumerate(thresholds):
            result[self.served(g)] = threshold
        return result


def make_data(rows: Labelled, single: Ints, answers: AnswerName = "any") -> Data:
    """Return the data of a search where some classes have a threshold each, the rest one."""
    n, k = rows.scores.shape
    sharing = np.setdiff1d(np.arange(k), single)
    shared = len(sharing) > 1
    heads = np.empty((n if shared else 0, 2))
    head_classes = np.empty((len(heads), 2), dtype=np.int32)
    if shared:
        part, each_row = rows.scores[:, sharing], np.arange(n)
        for j in range(2):
            highest = part.argmax(axis=1)
            heads[:, j], head_classes[:, j] = part[each_row, highest], sharing[highest]
            part[each_row, highest] = -np.inf
    last = [SHARED] if shared else sharing
    thresholds = np.concatenate([single, last]).astype(np.int64)
    only = answerable(rows.scores, answers)
    return Data(*rows[:4], thresholds, sharing, heads, head_classes, only)


def between(below: float, above: float) -> float:
    """Return a threshold that `above` reaches and `below` does not: the midpoint where it can."""
    middle = below / 2 + above / 2
    return float(middle) if below < middle <= above else float(above)


def centre(data: Data, thresholds: Floats) -> Floats:
    """Return (k,) thresholds midway between the adjacent scores, admitting the same."""
    centred = []
    for g, threshold in enumerate(thresholds):
        part = data.scores[:, data.served(g)]
        admitted = part >= threshold
        low = part[~admitted].max(initial=-np.inf)
        high = part[admitted].min(initial=np.inf)
        centred.append(low if np.isinf(low) else high if np.isinf(high) else between(low, high))
    return data.by_class(np.array(centred))


class Track(NamedTuple):
    """Counters that cost extra and that most objectives do not need."""

    size: bool
    missed: bool


class Window(NamedTuple):
    """Thresholds g stay in [low[g], high[g]]."""

    low: Floats
    high: Floats


class Level(NamedTuple):
    """The problem within a window, and how its cuts read as thresholds."""

    rows: Rows
    values: tuple[Floats, ...]  # by threshold: distinct scores inside, ascending
    window: Window

    def thresholds(self, cuts: Ints) -> Floats:
        """Return the thresholds of these cuts."""
        result = self.window.low.copy()
        for g, (values, cut) in enumerate(zip(self.values, cuts, strict=True)):
            if cut > 0:
                last = cut == len(values)
                result[g] = self.window.high[g] if last else between(values[cut - 1], values[cut])
        return result

    def cuts(self, thresholds: Floats) -> Ints:
        """Return the cuts of these thresholds, moved into the window."""
        cuts = [np.searchsorted(v, t) for v, t in zip(self.values, thresholds, strict=True)]
        return np.minimum(np.array(cuts, dtype=np.int64), self.rows.groups[:, HIGHEST])


def everywhere(thresholds: int) -> Window:
    """Return the window that leaves nothing out."""
    infinite = np.full(thresholds, np.inf)
    return Window(-infinite, infinite)


def build_level(
    data: Data, objective: Objective, window: Window, track: Track, *, allow_never: bool
) -> Level:
    """Return the problem of moving thresholds inside the window."""
    n, k = data.scores.shape
    moving = np.empty(n, dtype=np.int64)
    class_counts, totals = np.zeros((k, 3)), np.zeros(4)
    n_moving = find_moving(data, *window, track.size or track.missed, moving, class_counts, totals)
    moving = moving[:n_moving]
    if data.hard:
        moving = moving[np.argsort(data.labels[moving], kind="stable")]
    part = data.take(moving)
    table = np.zeros((len(data.thresholds), 4), dtype=np.int64)
    positions = np.empty((len(table), n_moving), dtype=np.int32)
    tops = np.zeros((3, len(part.heads)), dtype=np.int32)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in PARTS}
    values: list[Floats] = []
    for g, served in enumerate(data.thresholds):
        low, high = window.low[g], window.high[g]
        members = part.served(g)
        everything = None
        if track.size or track.missed:
            everything = part.scores[:, members].ravel(order="F")
        held = part.heads.ravel(order="F") if served == SHARED else part.scores[:, served]
        inside, at, start, order = rank_entries(held, low, high, everything)
        values.append(inside)
        positions[g] = at[:n_moving]
        if served == SHARED:
            tops[0] = at[n_moving:]
            tops[1:] = part.head_classes.T
        highest = len(inside) - int(np.isposinf(high) and not allow_never)
        table[g] = max(served, 0), len(inside), max(highest, 0), sum(map(len, parts["entry_start"]))
        parts["entry_start"].append(start + sum(map(len, parts["entry_row"])))
        parts["entry_row"].append(order % max(n_moving, 1))
        parts["entry_second"].append(order >= n_moving)
        if everything is None:
            continue
        rank = np.searchsorted(inside, everything)
        rank = np.where(everything >= high, len(inside), np.where(everything < low, -1, rank))
        if track.size:
            mass = np.bincount(rank + 1, np.tile(part.weights, len(members)), len(inside) + 2)
            parts["size_at"].append(np.cumsum(mass[::-1])[::-1][1:])
        if track.missed:
            weight = part.soft[:, members].T
            if part.hard:
                weight = (part.labels == members[:, None]) * part.weights
            weight, who = weight.ravel(), np.repeat(members, n_moving)
            never = (rank < 0) & (weight > 0)
            np.add.at(class_counts[:, MISSED], who[never], weight[never])
            live = np.flatnonzero((rank >= 0) & (rank < len(inside)) & (weight > 0))
            live = live[np.argsort(rank[live], kind="stable")]
            start = np.searchsorted(rank[live], np.arange(len(inside) + 1))
            parts["label_start"].append(start + sum(map(len, parts["label_class"])))
            parts["label_class"].append(who[live])
            parts["label_weight"].append(weight[live])
    base = np.zeros((len(objective.terms), 3))
    classes = np.repeat(np.arange(k), np.diff(objective.class_terms))
    np.add.at(base, objective.term_of, class_counts[classes])
    labels = part.labels if data.hard else np.full(n_moving, -1, dtype=np.int32)
    joined: dict[str, NDArray[Any]] = {
        name: np.concatenate([np.zeros(0, dtype), *parts[name]]).astype(dtype)
        for name, dtype in PARTS.items()
    }
    rows = Rows(
        positions=positions,
        groups=table,
        shared=int(np.argmin(data.thresholds)) if len(data.heads) else -1,
        tops=tops,
        labels=labels,
        only=part.only if len(data.only) else np.full(n_moving, -1, dtype=np.int32),
        weights=part.weights,
        soft=part.soft,
        class_start=np.searchsorted(labels, np.arange(k + 1)),
        base_counts=base,
        base_totals=totals,
        **joined,
    )
    return Level(rows, tuple(values), window)


def rank_entries(
    held: Floats, low: float, high: float, everything: Floats | None
) -> tuple[Floats, NDArray[np.int32], Ints, Ints]:
    """Return how entries rank among the distinct scores inside [low, high), of `everything` if any.

    That is the distinct scores; positions of all entries, -1 below the window and above it the
    number of these scores; the first entry of each position in the order; and the entries inside
    in that order.
    """
    inside = np.flatnonzero((held >= low) & (held < high))
    order = np.argsort(held[inside])
    ordered = held[inside[order]]
    if everything is None:
        fresh = np.empty(len(ordered), dtype=bool)
        fresh[:1] = True
        np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
        values = ordered[fresh]
        index = np.cumsum(fresh, dtype=np.int32) - 1
        start = np.append(np.flatnonzero(fresh), len(ordered))
    else:
        values = np.unique(everything[(everything >= low) & (everything < high)])
        index = np.searchsorted(values, ordered).astype(np.int32)
        start = np.append(np.searchsorted(ordered, values), len(ordered))
    positions = np.where(held >= high, len(values), -1).astype(np.int32)
    positions[inside[order]] = index
    return values, positions, start, inside[order]


@kernel
def find_moving(data, low, high, keep_all, moving, class_counts, totals):
    """List the rows that thresholds in [low, high] can move; count the rest; return how many.

    `class_counts` (k, 3) and `totals` (4,) take the weights of rows that are certain or empty
    whatever the thresholds.
    """
    scores, labels, soft, weights = data.scores, data.labels, data.soft, data.weights
    thresholds, heads, head_classes = data.thresholds, data.heads, data.head_classes
    only = data.only
    n_moving = 0
    for i in range(len(scores)):
        always = 0
        movable = keep_all
        member = 0
        for g in range(len(thresholds)):
            k = thresholds[g]
            for j in range(1 if k >= 0 else 2):
                score = scores[i, k] if k >= 0 else heads[i, j]
                if score >= high[g]:
                    always += 1
                    member = k if k >= 0 else head_classes[i, j]
                elif score >= low[g]:
                    movable = True
        if movable and (keep_all or always < 2):
            moving[n_moving] = i
            n_moving += 1
        elif always == 0:
            totals[ALL_EMPTY] += weights[i]
        elif always == 1 and (len(only) == 0 or only[i] == member):
            totals[ALL_CERTAIN] += weights[i]
            if len(soft) == 0:
                class_counts[labels[i], 0] += weights[i]
                if labels[i] == member:
                    class_counts[member, 1] += weights[i]
                else:
                    totals[ALL_WRONG] += weights[i]
            else:
                for k in range(scores.shape[1]):
                    class_counts[k, 0] += soft[i, k]
                class_counts[member, 1] += soft[i, member]
                totals[ALL_WRONG] += weights[i] - soft[i, member]
    return n_moving
