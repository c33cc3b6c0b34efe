"""The search for thresholds: many starts on samples, the best followed to all rows and kicked.

Starts descend on small samples first; those that differ go on to larger ones, inside windows around
what they have reached. On all rows the finalists are kicked: moved far, or under softer penalties,
and left to descend again. Where targets are hard to keep, only rules that answer little keep them,
and samples hold too few of the rows that matter: then climbers begin among the highest scores of
each class. Few rows need none of this: there, the best of many starts on all rows are bred.
`follow` takes thresholds along a chain of objectives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from scrib_mlflow.core.inputs import Bools, Floats, Ints, Progress
from scrib_mlflow.core.loss import (
    ALL_WEIGHT,
    CHANCE_COST,
    EMPTY_COST,
    KIND,
    PENALTY,
    RISK,
    SIZE_COST,
    TWO_SIDED,
    Objective,
)
from scrib_mlflow.core.search import levels
from scrib_mlflow.core.search.kernels import HIGHEST, State, place
from scrib_mlflow.core.search.levels import Data, Level, Track, Window
from scrib_mlflow.core.search.pairs import EVERY_PAIR, Scratch, descend, new_scratch, new_state

STARTS = 4  # on each sample
FAMILIES = ("class", "other", "rank", "equal", "high", "other", "equal", "rank", "class", "high")
EQUAL_SHARES = (0.3, 0.6, 0.1, 0.9, 0.2, 0.45, 0.75, 0.05)
FEW_ROWS = 60_000  # up to here twice the work is done
FEW_THRESHOLDS = 10  # more get fewer starts
GROWTH = 6  # each sample has so many times the rows of the one before
NEARLY_ALL = 1.5  # no sample is taken that would leave out fewer rows than a third
HOPEFUL = 3.0  # a start is worth following for being different up to this multiple of the best loss
APART = 0.05  # starts differ when the rank of some threshold does by this share of the rows

FULL = np.inf  # penalties as the objective has them
FIRST_PENALTIES = (30.0, 300.0)
NEXT_PENALTIES = (300.0, 3000.0)
LAST_PENALTIES = (1000.0, FULL)
KICK_PENALTIES = (300.0, 100.0, 1000.0, 30.0)  # every fourth kick softens them instead
KICKS = (8, 40)  # at least, and at most for five thresholds
CONTENDING = 1.1  # starts are kicked whose loss is within ten percent of the best
PROMISING = 1.01  # a kick is followed up when its loss is within one percent of the best

HARD = 0.9  # of the loss of never answering: from here on a problem is hard
HARD_IF_RARE = 0.4  # the same where some class is rare
RARE = 0.01  # of all rows
FIRST_DEPTH = 250  # highest scores of each class among which a climber begins
DEEPER = 4  # times as many next
CLIMBERS = 2  # at a time, one of each kind
MOST_CLIMBERS = 8
ENDS = 4  # combinations of highest and lowest scores of which a climber takes the best
AGREED = 1.005  # losses within this of the best agree with it
WITNESSES = 3  # populations of a hard problem that must agree
CLIMB_PENALTIES = (30.0, FULL)  # of every other pair of starts

BRED_ENTRIES = 80_000  # rows times thresholds: up to here starts are bred on all rows
CHEAP_ENTRIES = 15_000  # with more of them easy problems get fewer descents
BROODS = 4  # side by side, so that threads help
BROOD = 12  # descents of each in a round
PARENTS = 10  # the best so far
ENDED = 5  # one start of so many is at the ends of the scores
KINDS = (0.2, 0.35, 0.3, 0.15)  # shares of new starts, mixtures, jumps and softer penalties
GAIN = 0.999  # a round has gained that leaves less than this share of the loss
POPULATIONS = 6  # at most, of hard problems
PATIENCE = (2, 4)  # rounds without gain that end it, of easy problems and of hard ones

MOST_PAIRS = 60
HALF_WINDOW = 3.0  # in standard errors of a rank
LEAST_HALF_WINDOW = 30
FEW_ENTRIES = 20_000  # rows times thresholds: up to here a chain needs no windows
CHAIN_WINDOW = 2.0  # in windows of a fit
MOST_WINDOWS = 3  # that a chain opens at a step


def rank_scores(sample: Data) -> Floats:
    """Return (g, n) the sorted scores of a sample, by threshold."""
    return np.stack([np.sort(sample.column(g)) for g in range(len(sample.thresholds))])


def ranks_of(thresholds: Floats, ranked: Floats) -> Ints:
    """Return the ranks of thresholds among sorted scores."""
    return np.array([np.searchsorted(*each) for each in zip(ranked, thresholds, strict=True)])


def window_around(thresholds: Floats, ranked: Floats | None, width: float) -> Window:
    """Return a window `width` times the usual; without sorted scores it leaves nothing out."""
    if ranked is None:
        return levels.everywhere(len(thresholds))
    g, n = ranked.shape
    half = int(width * max(LEAST_HALF_WINDOW, HALF_WINDOW * np.sqrt(n)))
    at = ranks_of(thresholds, ranked)
    low = np.where(at > half, ranked[np.arange(g), np.maximum(at - half, 0)], -np.inf)
    high = np.where(at + half < n, ranked[np.arange(g), np.minimum(at + half, n - 1)], np.inf)
    tied = low >= high
    return Window(np.where(tied, -np.inf, low), np.where(tied, np.inf, high))


def stratify(data: Data) -> list[Ints]:
    """Return the rows of each class; soft labels make one stratum."""
    n, k = data.scores.shape
    if len(data.labels) == 0:
        return [np.arange(n)]
    narrow = data.labels.astype(np.int16) if k <= np.iinfo(np.int16).max else data.labels
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16 bits
    return np.split(order, np.cumsum(np.bincount(data.labels, minlength=k))[:-1])


def sample_rows(data: Data, strata: list[Ints], size: int, rng: np.random.Generator) -> Data:
    """Return about `size` rows: half in proportion, half shared out to the smaller classes."""
    n = len(data.scores)
    if size >= n:
        return data
    counts = np.array([len(rows) for rows in strata])
    least = size // (2 * len(counts))
    takes = np.minimum(counts, np.maximum(np.ceil(size * counts / n).astype(np.int64), least))
    rows = [
        stratum[rng.choice(len(stratum), take, replace=False, shuffle=False)]
        for stratum, take in zip(strata, takes, strict=True)
    ]
    return data.take(np.concatenate(rows), np.repeat(counts / np.maximum(takes, 1), takes))


def start_cuts(level: Level, data: Data, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return start number `number`; the first ten are of ten kinds, then they come again."""
    highest = level.rows.groups[:, HIGHEST]
    draw = rng.random(len(highest))
    family = FAMILIES[number % len(FAMILIES)]
    if family == "rank":
        return (highest * draw).astype(np.int64)
    if family == "high":
        return (highest * (0.5 + 0.5 * draw)).astype(np.int64)
    if family == "equal":
        share = EQUAL_SHARES[(number // 3) % len(EQUAL_SHARES)]
        low, high = data.scores.min(), data.scores.max()
        return level.cuts(np.full(len(highest), (1 - share) * low + share * high))
    of_class = family == "class"
    quantiles = 0.5 * draw if of_class else 0.6 + 0.4 * draw
    if number == 0:
        quantiles = np.full(len(highest), 0.1)
    thresholds = np.empty(len(highest))
    for g, q in enumerate(quantiles):  # of the scores at threshold g, of its classes or the others
        column = data.column(g)
        if len(data.labels) == 0:
            inside = column >= np.quantile(column, 0.8)
        else:
            inside = np.isin(data.labels, data.served(g))
        part = column[inside == of_class]
        thresholds[g] = np.quantile(part if len(part) else column, q)
    return level.cuts(thresholds)


class Effort(NamedTuple):
    """How much work a search does: counts, never seconds, so that results repeat."""

    first_rows: int  # rows of a first sample
    samples: int  # first samples
    followed: tuple[int, int]  # starts that go on to the second sample, and further
    finalists: int  # starts that are kicked on all rows
    kicked_rows: float  # kicks times rows, for each finalist
    kick_window: float  # relative to the window in which a start is followed
    kick_rounds: int  # each in a window around the best so far
    broods: tuple[int, int]  # descents of a brood in a round, of easy problems and of hard ones


class Task(NamedTuple):
    """A search problem."""

    data: Data
    objective: Objective
    track: Track
    allow_never: bool
    effort: Effort
    seed: int

    def random(self, *step: int) -> np.random.Generator:
        """Return the generator of one step, the same whatever thread takes it."""
        return np.random.default_rng([self.seed, *step])


class Best(NamedTuple):
    """The best thresholds of a start, or of a search."""

    loss: float
    thresholds: Floats  # (g,)
    counts: Floats = np.zeros((0, 3))  # (c, 3) there, once all rows are counted
    totals: Floats = np.zeros(0)  # (4,)
    start_losses: tuple[float, ...] = ()  # of all starts followed, ascending


class Tools(NamedTuple):
    """A level and the memory to search it."""

    level: Level
    state: State
    scratch: Scratch
    pairs: Ints  # (p, 2)


def plan_effort(n: int, k: int, thresholds: int, effort: float) -> Effort:
    """Return the work for n rows, k classes and so many thresholds; `effort` multiplies it."""
    few = n <= FEW_ROWS
    boost = effort * (2.0 if few else 1.0)
    fewer = boost * min(1.0, FEW_THRESHOLDS / thresholds)
    brood = BROOD * effort * min(1.0, FEW_THRESHOLDS / thresholds)
    easy = brood * min(1.0, CHEAP_ENTRIES / (n * thresholds))
    return Effort(
        first_rows=max(2_500, 150 * k),
        samples=max(2, round((8 if few else 4) * fewer)),
        followed=(
            max(4, round((9 if few else 6) * fewer)),
            max(2, round((4 if few else 2) * fewer)),
        ),
        finalists=max(2, round(2 * fewer)),
        kick_window=0.8 if few else 0.5,
        kick_rounds=3 if few else 2,
        kicked_rows=(160e3 if few else 80e3) * boost * min(max(1, thresholds // 5), 6),
        broods=(max(4, round(easy)), max(4, round(brood))),
    )


def search(task: Task, initial: Floats | None, threads: int) -> Best:
    """Return the best thresholds; `initial` ones, too, are followed to the end."""
    n = len(task.data.scores)
    strata = stratify(task.data)
    with ThreadPoolExecutor(threads) as pool:
        if task.data.hard and n * len(task.data.thresholds) <= BRED_ENTRIES:
            return _breed_all(task, initial, pool)
        sample, reached = _begin(task, strata, initial, pool)
        ranked = None
        for stage, size in enumerate(_sizes(task, len(sample.scores))):
            ranked = rank_scores(sample)
            reached = _different(reached, ranked)[: task.effort.followed[min(stage, 1)]]
            if size == n and initial is not None:
                reached.append(Best(np.inf, initial))
            sample = sample_rows(task.data, strata, size, task.random(1, stage))
            reached = list(pool.map(partial(_follow, task, sample, ranked, stage), reached))
        if _is_hard(task, min(reached, key=lambda f: f.loss)):
            reached = _climb_all(task, _distinct(reached), pool)
        reached = _distinct(reached)
        most = max(CONTENDING * reached[0].loss, reached[0].loss)  # rounding can leave it below 0
        finalists = [f for f in reached if f.loss <= most]
        kicked = itertools.islice(itertools.cycle(finalists), task.effort.finalists)
        best = list(pool.map(partial(_finish, task, ranked), itertools.count(), kicked))
    losses = [f.loss for f in [*best, *reached[len(finalists) :]]]
    return min(best, key=lambda b: b.loss)._replace(start_losses=tuple(sorted(losses)))


def _sizes(task: Task, first: int) -> Iterator[int]:
    """Yield the sizes of the samples after the first, the last of them all rows."""
    n = len(task.data.scores)
    size = first
    while size < n:
        size = task.effort.first_rows * GROWTH if size == first else size * GROWTH
        size = n if NEARLY_ALL * size >= n else size
        yield size


def _begin(
    task: Task, strata: list[Ints], initial: Floats | None, pool: ThreadPoolExecutor
) -> tuple[Data, list[Best]]:
    """Descend from every start, on first samples, or on all rows where they are few."""
    all_rows = len(task.data.scores) <= NEARLY_ALL * task.effort.first_rows
    penalties = (*FIRST_PENALTIES, FULL) if all_rows else FIRST_PENALTIES

    def on_sample(j: int) -> tuple[Data, list[Best]]:
        rng = task.random(0, j)
        size = len(task.data.scores) if all_rows else task.effort.first_rows
        sample = sample_rows(task.data, strata, size, rng)
        tools = open_level(task, sample, levels.everywhere(len(task.data.thresholds)), rng)
        reached = []
        for s in range(STARTS):
            cuts = start_cuts(tools.level, sample, j * STARTS + s, rng)
            ladder = penalties if (j + s) % 2 else penalties[-1:]
            reached.append(_anneal(task, tools, ladder, cuts))
        if all_rows and initial is not None and j == 0:
            reached.append(_anneal(task, tools, (FULL,), tools.level.cuts(initial)))
        return sample, reached

    parts = list(pool.map(on_sample, range(task.effort.samples)))
    return parts[0][0], [f for _, reached in parts for f in reached]


def _breed_all(task: Task, initial: Floats | None, pool: ThreadPoolExecutor) -> Best:
    """Breed a population, and where targets are hard to keep more, until the best agree."""
    everywhere = levels.everywhere(len(task.data.thresholds))
    tools = [open_level(task, task.data, everywhere, task.random(6, j)) for j in range(BROODS)]
    level, best = tools[0].level, list[Best]()  # of every population the best
    for number in range(POPULATIONS):
        found = _breed_until_idle(task, number, tools, pool)
        best = sorted([*best, found[0]], key=lambda f: f.loss)
        agreed = sum(f.loss <= AGREED * best[0].loss for f in best)
        if agreed == WITNESSES or not _is_hard(task, best[0]):
            break
    best += found[1:]
    if initial is not None:
        best.append(_anneal(task, tools[0], (FULL,), level.cuts(initial)))
    losses = tuple(sorted(f.loss for f in best))
    cuts = level.cuts(min(best, key=lambda f: f.loss).thresholds)
    return _count(task, tools[0], cuts)._replace(start_losses=losses)


def _breed_until_idle(
    task: Task, population: int, tools: list[Tools], pool: ThreadPoolExecutor
) -> list[Best]:
    """Return the best of a population that begins with starts, once rounds go by without gain."""
    found, before, gained = list[Best](), np.inf, 0
    for turn in itertools.count():
        breed = partial(_breed, task, found, population, turn)
        found = _distinct(list(itertools.chain(*pool.map(breed, range(BROODS), tools))))[:PARENTS]
        if found[0].loss < min(GAIN * before, before):  # rounding can leave it below 0
            before, gained = found[0].loss, turn
        if turn - gained >= PATIENCE[int(_is_hard(task, found[0]))]:
            break
    return found


def _breed(
    task: Task, found: list[Best], population: int, turn: int, brood: int, tools: Tools
) -> list[Best]:
    """Return the best so far with those of a brood; the first of all are starts."""
    rng = task.random(7, population, turn, brood)
    level, highest = tools.level, tools.level.rows.groups[:, HIGHEST]
    size = task.effort.broods[int(_is_hard(task, found[0]))] if found else 2 * task.effort.broods[0]
    for j in range(size):
        kind = rng.choice(len(KINDS), p=KINDS) if turn else 0
        if kind == 0:
            number = (turn * BROODS + brood) * 2 * task.effort.broods[1] + j
            ladder = (*FIRST_PENALTIES, FULL) if j % 2 else (FULL,)
            if number % ENDED == 0:
                cuts = end_cuts(highest, rng.random(len(highest)) < number // ENDED % 2 / 2, rng)
            else:
                cuts = start_cuts(level, task.data, number, rng)
            found = [*found, _anneal(task, tools, ladder, cuts)]
        else:
            pick = rng.integers(len(found), size=2)
            cuts, others = (level.cuts(found[i].thresholds) for i in pick)
            g = int(rng.integers(len(cuts)))
            if kind == 1:
                cuts = np.where(rng.random(len(cuts)) < 0.5, cuts, others)
            elif kind == 3:
                most = KICK_PENALTIES[int(rng.integers(len(KICK_PENALTIES)))]
                run_descent(tools, soften(task.objective, most), cuts, EVERY_PAIR)
                cuts = tools.state.cuts.copy()
            else:
                for moved in {g, int(rng.integers(len(cuts)))}:
                    cuts[moved] = np.clip(cuts[moved] + far(highest[moved], rng), 0, highest[moved])
            loss = run_descent(tools, task.objective, cuts, EVERY_PAIR, g + 1)
            found = [*found, Best(loss, level.thresholds(tools.state.cuts))]
        found = _distinct(found)[:PARENTS]
    return found


def end_cuts(highest: Ints, lowest: Bools, rng: np.random.Generator) -> Ints:
    """Return cuts near the highest scores, or the lowest, ranks from there of all magnitudes."""
    near = np.minimum((highest + 1) ** rng.random(len(highest)), highest).astype(np.int64)
    return np.where(lowest, near, highest - near)


def far(highest: int, rng: np.random.Generator) -> int:
    """Return how far a cut moves, of all magnitudes."""
    share = float(10 ** rng.uniform(-2.0, -0.2) * rng.choice([-1, 1]))
    return int(highest * share) or int(np.sign(share))


def _is_hard(task: Task, best: Best) -> bool:
    """Return whether few rows decide: never answering costs little more, or a class is rare."""
    if not task.data.hard:  # soft labels gain nothing
        return False
    share = best.loss / _doubt(task.objective)
    return share > HARD or (share > HARD_IF_RARE and _has_rare_class(task.data))


def _has_rare_class(data: Data) -> bool:
    counts = np.bincount(data.labels)
    return bool(counts[counts > 0].min() < RARE * len(data.labels))


def _doubt(objective: Objective) -> float:
    """Return the loss of never answering, without penalties; infinite where no risk matters."""
    if not (objective.terms[:, KIND] == RISK).any():
        return np.inf
    costs = objective.costs
    return float(
        costs[ALL_WEIGHT] * max(costs[CHANCE_COST] + 2 * costs[SIZE_COST], costs[EMPTY_COST])
    )


def _climb_all(task: Task, reached: list[Best], pool: ThreadPoolExecutor) -> list[Best]:
    """Return starts with those that climbers add, until the best two agree."""
    ranked = rank_scores(task.data)
    for first in range(0, MOST_CLIMBERS, CLIMBERS):
        climbed = pool.map(partial(_climb, task, ranked), range(first, first + CLIMBERS))
        reached = sorted([*reached, *climbed], key=lambda f: f.loss)
        if reached[1].loss <= AGREED * reached[0].loss:
            break
    return reached


def _climb(task: Task, ranked: Floats, number: int) -> Best:
    """Search one end of each class's scores, on all rows, then more and more of them.

    The highest scores of all classes give rules that are mostly empty. Every other climber tries
    rules where some classes are nearly always in, and goes on with the best of them.
    """
    rng = task.random(5, number)
    ends = np.zeros((1, len(ranked)), dtype=np.bool_)
    if number % 2:
        ends = rng.random((ENDS, len(ranked))) < 0.5  # at the lowest scores
    first = Best(np.inf, ranked[:, -1])
    tried = [_climb_from(task, ranked, FIRST_DEPTH, lowest, first, rng) for lowest in ends]
    chosen = int(np.argmin([f.loss for f in tried]))
    best, depth = tried[chosen], FIRST_DEPTH
    while 2 * depth < ranked.shape[1]:
        depth *= DEEPER
        best = _climb_from(task, ranked, depth, ends[chosen], best, rng)
    return best


def _climb_from(
    task: Task, ranked: Floats, depth: int, lowest: Bools, best: Best, rng: np.random.Generator
) -> Best:
    """Search so many of the highest or lowest scores of each class, or all where they are few."""
    window = levels.everywhere(len(ranked))
    if 2 * depth < ranked.shape[1]:
        low = np.where(lowest, -np.inf, ranked[:, -depth])
        high = np.where(lowest, ranked[:, depth], np.inf)
        tied = (low >= ranked[:, -1]) | (high <= ranked[:, 0])
        window = Window(np.where(tied, -np.inf, low), np.where(tied, np.inf, high))
    tools = open_level(task, task.data, window, rng)
    highest = tools.level.rows.groups[:, HIGHEST]
    kicks = int(_count_kicks(task, tools) * min(1.0, FEW_THRESHOLDS / len(ranked)))
    reached = [_anneal(task, tools, (FULL,), tools.level.cuts(best.thresholds))]
    for turn in range(kicks // 3):
        if turn % 2:
            cuts = end_cuts(highest, lowest, rng)
        else:
            cuts = (highest * rng.random(len(highest))).astype(np.int64)
        reached.append(_anneal(task, tools, CLIMB_PENALTIES[-1 - turn // 2 % 2 :], cuts))
    best = min(reached, key=lambda f: f.loss)
    return _count(task, tools, _kick(task, tools, tools.level.cuts(best.thresholds), kicks, rng))


def _follow(task: Task, sample: Data, ranked: Floats, stage: int, start: Best) -> Best:
    """Take a start to a larger sample, within a window."""
    window = window_around(start.thresholds, ranked, 1.0)
    tools = open_level(task, sample, window, task.random(2, stage))
    last = stage > 0 or len(sample.scores) == len(task.data.scores)
    penalties = LAST_PENALTIES if last else NEXT_PENALTIES
    return _anneal(task, tools, penalties, tools.level.cuts(start.thresholds))


def _finish(task: Task, ranked: Floats | None, number: int, start: Best) -> Best:
    """Kick a start on all rows, in windows that follow the best thresholds."""
    rng = task.random(3, number)
    thresholds = start.thresholds
    for _ in range(task.effort.kick_rounds):
        window = window_around(thresholds, ranked, task.effort.kick_window)
        tools = open_level(task, task.data, window, rng)
        kicks = max(_count_kicks(task, tools), KICKS[0]) // task.effort.kick_rounds
        cuts = _kick(task, tools, tools.level.cuts(thresholds), kicks, rng)
        thresholds = tools.level.thresholds(cuts)
    return _count(task, tools, cuts)


def _count_kicks(task: Task, tools: Tools) -> int:
    """Return how many kicks are worth their time."""
    kicks = task.effort.kicked_rows / max(len(tools.level.rows.weights), 1)
    return int(min(kicks, KICKS[1] * min(max(1, len(tools.level.values) // 5), 6)))


def _count(task: Task, tools: Tools, cuts: Ints) -> Best:
    """Return what all rows count at these cuts."""
    level, state = tools.level, tools.state
    loss = float(place(level.rows, task.objective, state, cuts))
    return Best(loss, level.thresholds(cuts), state.counts.copy(), state.totals.copy())


def _kick(task: Task, tools: Tools, best: Ints, kicks: int, rng: np.random.Generator) -> Ints:
    """Move one cut far, or soften all penalties, let the others adapt, and keep what is better."""
    highest = tools.level.rows.groups[:, HIGHEST]
    loss = float(place(tools.level.rows, task.objective, tools.state, best))
    few = EVERY_PAIR if len(best) <= 20 else 10
    g, jump, again = 0, 0, False
    for turn in range(kicks):
        cuts = best.copy()
        if turn % 4 == 0:
            softer = soften(task.objective, KICK_PENALTIES[turn // 4 % len(KICK_PENALTIES)])
            run_descent(tools, softer, cuts, few)
            cuts = tools.state.cuts.copy()
        else:
            if not again:
                g = int(rng.integers(len(best)))
                jump = far(highest[g], rng)
            cuts[g] = np.clip(cuts[g] + jump, 0, highest[g])
        after = run_descent(tools, task.objective, cuts, 0, g + 1)
        if after < PROMISING * loss:
            after = run_descent(tools, task.objective, tools.state.cuts.copy(), few)
        again = after < loss
        if again:
            loss, best = after, tools.state.cuts.copy()
    return best


def _anneal(task: Task, tools: Tools, penalties: tuple[float, ...], cuts: Ints) -> Best:
    """Descend under growing penalties."""
    highest = task.objective.terms[:, PENALTY].max(initial=0.0)
    loss = np.inf
    for most in [p for p in penalties[:-1] if p < highest] + [penalties[-1]]:
        loss = run_descent(tools, soften(task.objective, most), cuts, EVERY_PAIR)
        cuts = tools.state.cuts.copy()
    return Best(loss, tools.level.thresholds(cuts))


def run_descent(tools: Tools, objective: Objective, cuts: Ints, pairs: int, turn: int = 0) -> float:
    """Leave the state of the tools where no move helps, and return the loss."""
    level, state, scratch = tools.level, tools.state, tools.scratch
    return float(descend(level.rows, objective, state, scratch, cuts, tools.pairs, pairs, turn))


def soften(objective: Objective, most: float) -> Objective:
    """Return the objective with its penalties scaled so that none is above `most`."""
    highest = objective.terms[:, PENALTY].max(initial=0.0)
    if highest <= most:
        return objective
    terms = objective.terms.copy()
    terms[:, [PENALTY, TWO_SIDED]] *= most / highest
    return objective._replace(terms=terms)


def open_level(task: Task, data: Data, window: Window, rng: np.random.Generator) -> Tools:
    """Build a level; of many pairs of thresholds, pick some."""
    level = levels.build_level(
        data, task.objective, window, task.track, allow_never=task.allow_never
    )
    thresholds = 0 if task.track.missed else len(window.low)
    pairs = np.column_stack(np.triu_indices(thresholds, 1))
    if len(pairs) > MOST_PAIRS:
        pairs = pairs[rng.choice(len(pairs), MOST_PAIRS, replace=False)]
    state = new_state(level.rows, task.objective)
    return Tools(level, state, new_scratch(level.rows, task.objective, len(pairs)), pairs)


def _distinct(reached: list[Best]) -> list[Best]:
    """Return starts by loss, one for each loss."""
    ordered = sorted(reached, key=lambda f: f.loss)
    return [f for j, f in enumerate(ordered) if j == 0 or f.loss > ordered[j - 1].loss]


def _different(reached: list[Best], ranked: Floats) -> list[Best]:
    """Return starts by loss, those first that are apart from all better ones and hopeful."""
    first: list[Best] = []
    later: list[Best] = []
    seen: list[Ints] = []
    best = min(reached, key=lambda f: f.loss)
    for f in _distinct(reached):
        at = ranks_of(f.thresholds, ranked)
        gaps = [np.abs(at - other).max() / ranked.shape[1] for other in seen]
        apart = min(gaps, default=1.0) > APART and f.loss <= HOPEFUL * best.loss
        (first if apart else later).append(f)
        if apart:
            seen.append(at)
    return first + later


def follow(
    chains: Sequence[tuple[Sequence[Task], Floats]], threads: int, progress: Progress | None
) -> list[list[Best]]:
    """Descend under the objectives of each chain, each from where the one before ended.

    A chain is its tasks, of the same data as all others, and the (g,) thresholds to start from.
    """
    data = next(tasks[0].data for tasks, _ in chains if tasks)
    few = len(data.scores) * len(data.thresholds) <= FEW_ENTRIES
    ranked = None if few else rank_scores(data)
    followed: list[list[Best]] = [[] for _ in chains]
    tools: list[Tools | None] = [None] * len(chains)

    def step(number: int, turn: int) -> None:
        tasks, start = chains[number]
        task, thresholds = tasks[turn], followed[number][-1].thresholds if turn else start
        for _ in range(MOST_WINDOWS):  # which move on until the thresholds lie inside
            window = window_around(thresholds, ranked, CHAIN_WINDOW)
            opened = tools[number] or open_level(task, data, window, task.random(4, number))
            if ranked is None:
                tools[number] = opened  # serves every objective of the same constraints
            run_descent(opened, task.objective, opened.level.cuts(thresholds), EVERY_PAIR)
            best = _count(task, opened, opened.state.cuts.copy())
            thresholds = best.thresholds
            edges = (thresholds == window.low) | (thresholds == window.high)
            if not (edges & np.isfinite(thresholds)).any():
                break
        followed[number].append(best)

    with ThreadPoolExecutor(threads) as pool:
        turns: Iterable[int] = range(max(len(tasks) for tasks, _ in chains))
        for turn in progress(turns) if progress else turns:
            moving = [number for number, (tasks, _) in enumerate(chains) if turn < len(tasks)]
            list(pool.map(step, moving, [turn] * len(moving)))
    return followed
