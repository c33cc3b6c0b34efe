"""Levels: the rows that thresholds inside a window can move, arranged for the kernels.

Thresholds g serve a class each, or the last of them all classes that share one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.compiling import kernel
from scrib_mlflow.core.inputs import Floats, Ints, Labelled
from scrib_mlflow.core.loss import MISSED, Objective
from scrib_mlflow.core.search.kernels import HIGHEST, Rows

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
        )

    def by_class(self, thresholds: Floats) -> Floats:
        """Return (k,) thresholds from (g,) ones."""
        result = np.empty(self.scores.shape[1])
        for g, threshold in enumerate(thresholds):
            result[self.served(g)] = threshold
        return result


def make_data(rows: Labelled, single: Ints) -> Data:
    """Return the data of a search where some classes have a threshold each, the rest one."""
    scores = rows.scores
    n, k = scores.shape
    sharing = np.setdiff1d(np.arange(k), single)
    shared = len(sharing) > 1
    heads = np.empty((n if shared else 0, 2))
    head_classes = np.empty((len(heads), 2), dtype=np.int32)
    if shared:
        two_highest(scores, sharing, heads, head_classes)
    last = [SHARED] if shared else sharing
    thresholds = np.concatenate([single, last]).astype(np.int64)
    return Data(*rows[:4], thresholds, sharing, heads, head_classes)


def between(below: float, above: float) -> float:
    """Return a threshold that `above` reaches and `below` does not: the midpoint where it can."""
    middle = below / 2 + above / 2
    return float(middle) if below < middle <= above else float(above)


def centre(data: Data, thresholds: Floats) -> Floats:
    """Return (k,) thresholds midway between the adjacent scores, admitting the same."""
    k = data.scores.shape[1]
    below, above = np.full(k, -np.inf), np.full(k, np.inf)
    neighbours(data.scores, data.by_class(thresholds), below, above)
    for g in range(len(thresholds)):
        served = data.served(g)
        below[served], above[served] = below[served].max(), above[served].min()
    return np.array(
        [
            low if np.isinf(low) else high if np.isinf(high) else between(low, high)
            for low, high in zip(below, above, strict=True)
        ]
    )


@kernel
def neighbours(scores, thresholds, below, above):
    """Raise `below` to each class's highest score under its threshold, lower `above` likewise."""
    for i in range(len(scores)):
        for k in range(scores.shape[1]):
            score = scores[i, k]
            if score >= thresholds[k]:
                above[k] = min(above[k], score)
            else:
                below[k] = max(below[k], score)


@kernel
def two_highest(scores, classes, heads, head_classes):
    """Fill the two highest scores among these classes, and which classes they are of."""
    for i in range(len(scores)):
        first = -np.inf
        second = -np.inf
        a = classes[0]
        b = classes[0]
        for j in range(len(classes)):
            score = scores[i, classes[j]]
            if score > first:
                second, b = first, a
                first, a = score, classes[j]
            elif score > second:
                second, b = score, classes[j]
        heads[i, 0] = first
        heads[i, 1] = second
        head_classes[i, 0] = a
        head_classes[i, 1] = b


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
        return np.array([self._threshold(g, int(cut)) for g, cut in enumerate(cuts)])

    def _threshold(self, g: int, cut: int) -> float:
        values = self.values[g]
        if cut == 0:
            return float(self.window.low[g])
        if cut == len(values):
            return float(self.window.high[g])
        return between(values[cut - 1], values[cut])

    def cuts(self, thresholds: Floats) -> Ints:
        """Return the cuts of these thresholds, moved into the window."""
        cuts = [np.searchsorted(v, t) for v, t in zip(self.values, thresholds, strict=True)]
        return np.minimum(np.array(cuts, dtype=np.int64), self.rows.groups[:, HIGHEST])


class Entries(NamedTuple):
    """What one threshold moves."""

    values: Floats  # distinct scores inside the window
    positions: NDArray[np.int32]  # (entries of all rows,): -1 below the window, len(values) above
    start: Ints  # (len(values) + 1,) first entry of each position in `order`
    order: Ints  # entries inside, by position


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
    class_counts, totals = np.zeros((k, 3)), np.zeros(3)
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
        everything = None
        if track.size or track.missed:
            everything = part.scores[:, part.served(g)].ravel(order="F")
        held = part.heads.ravel(order="F") if served == SHARED else part.scores[:, served]
        entries = rank_entries(held, low, high, everything)
        positions[g] = entries.positions[:n_moving]
        if served == SHARED:
            tops[0] = entries.positions[n_moving:]
            tops[1:] = part.head_classes.T
        levels = len(entries.values)
        highest = levels - int(np.isposinf(high) and not allow_never)
        table[g] = max(served, 0), levels, max(highest, 0), sum(map(len, parts["entry_start"]))
        parts["entry_start"].append(entries.start + sum(map(len, parts["entry_row"])))
        parts["entry_row"].append(entries.order % max(n_moving, 1))
        parts["entry_second"].append(entries.order >= n_moving)
        if everything is not None:
            at = place_values(everything, entries.values, low, high)
            _track(parts, part, g, at, levels, track, class_counts)
        values.append(entries.values)
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
        weights=part.weights,
        soft=part.soft,
        class_start=np.searchsorted(labels, np.arange(k + 1)),
        base_counts=base,
        base_totals=totals,
        **joined,
    )
    return Level(rows, tuple(values), window)


def rank_entries(held: Floats, low: float, high: float, everything: Floats | None) -> Entries:
    """Return positions among the distinct scores inside [low, high), of `everything` if given."""
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
    return Entries(values, positions, start, inside[order])


def place_values(scores: Floats, values: Floats, low: float, high: float) -> Ints:
    """Return positions: -1 below the window, len(values) above it."""
    at = np.searchsorted(values, scores)
    return np.where(scores >= high, len(values), np.where(scores < low, -1, at))


def _track(
    parts: dict[str, list[NDArray[Any]]],
    part: Data,
    g: int,
    at: Ints,
    levels: int,
    track: Track,
    class_counts: Floats,
) -> None:
    """Append what threshold g does to set sizes and to the coverage of its classes."""
    members = part.served(g)
    if track.size:
        mass = np.bincount(at + 1, np.tile(part.weights, len(members)), levels + 2)
        parts["size_at"].append(np.cumsum(mass[::-1])[::-1][1:])
    if track.missed:
        weight = part.soft[:, members].T
        if part.hard:
            weight = (part.labels == members[:, None]) * part.weights
        weight, who = weight.ravel(), np.repeat(members, len(part.weights))
        never = (at < 0) & (weight > 0)
        np.add.at(class_counts[:, MISSED], who[never], weight[never])
        live = np.flatnonzero((at >= 0) & (at < levels) & (weight > 0))
        live = live[np.argsort(at[live], kind="stable")]
        start = np.searchsorted(at[live], np.arange(levels + 1))
        parts["label_start"].append(start + sum(map(len, parts["label_class"])))
        parts["label_class"].append(who[live])
        parts["label_weight"].append(weight[live])


@kernel
def find_moving(data, low, high, keep_all, moving, class_counts, totals):
    """List the rows that thresholds in [low, high] can move; count the rest; return how many.

    `class_counts` (k, 3) and `totals` (3,) take the weights of rows that are certain or empty
    whatever the thresholds.
    """
    scores, labels, soft, weights = data.scores, data.labels, data.soft, data.weights
    thresholds, heads, head_classes = data.thresholds, data.heads, data.head_classes
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
            totals[1] += weights[i]
        elif always == 1:
            totals[0] += weights[i]
            if len(soft) == 0:
                class_counts[labels[i], 0] += weights[i]
                if labels[i] == member:
                    class_counts[member, 1] += weights[i]
            else:
                for k in range(scores.shape[1]):
                    class_counts[k, 0] += soft[i, k]
                class_counts[member, 1] += soft[i, member]
    return n_moving
