"""What batches of served answers say about a certificate, carried on from batch to batch.

Three families of tests, each with a chance of at most `level` of ever raising a false alarm: drift
(of scores, and of kinds of answers: half of the level each), the risks, and the candidates.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.inputs import (
    Bools,
    Floats,
    Ints,
    Labels,
    class_sizes,
    count_up,
    is_among,
    mix,
)
from scrib_mlflow.core.monitoring import drift, evidence
from scrib_mlflow.core.monitoring.baseline import (
    QUARTERS,
    Baseline,
    Served,
    bins_of,
    cells_of,
    kinds_of,
    one_of_each_group,
)
from scrib_mlflow.core.monitoring.drift import Mixture
from scrib_mlflow.core.monitoring.evidence import Wealth
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidDataError

What = Literal["scores", "sets", "risk", "candidates"]
MOST_KEYS = 5_000
MOST_HISTORY, MOST_NUMBERS = 400, 100_000  # batches that the state remembers, and their numbers
BETS = {"scores": 3, "sets": 2 * len(evidence.POWERS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """The wealth of gamblers, as it is stored."""

    accounts: tuple[tuple[float, ...], ...]
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Evidence that has reached its limit; it stays."""

    what: What
    name: str  # of the claim, class or kind of rows; "" for scores
    index: int  # which of the claims, classes or kinds it is
    batch: int  # the first in which it did
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A batch, and what was known after it."""

    number: int
    time: str  # of its rows, UTC
    n_rows: int  # 0 where only labels came
    kinds: tuple[int, ...]
    n_labelled: int
    n_answered_labelled: int  # of these, with an answer
    scores: float  # evidence, as a logarithm to base 10
    sets: float
    risk: tuple[float, ...]  # by claim
    candidates: tuple[float, ...]  # by class
    certain: tuple[float, ...]  # by claim, labelled rows with an answer
    wrong: tuple[float, ...]
    asked: tuple[float, ...]  # by class, labelled rows that abstain
    missed: tuple[float, ...]  # of these, without the true class among their candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """What is known after some batches."""

    classes: tuple[str, ...]
    claims: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]  # classes of each claim
    targets: tuple[float, ...]
    miss_target: float | None  # how often candidates may lack the true class; None if never said
    miss_limits: tuple[float, ...]  # by class, what calibration has shown; at least the target
    level: float
    seed: int
    baseline: Baseline
    group_test: GroupTest | None
    key: str | None  # column that identifies rows
    n_batches: int
    n_rows: int
    bins: tuple[int, ...]  # rows known, by bin of their score
    kinds: tuple[int, ...]  # rows known, by kind
    scores: Purse
    sets: Purse
    risk: Purse
    candidates: Purse
    certain: tuple[float, ...]  # by claim, over all batches
    wrong: tuple[float, ...]
    asked: tuple[float, ...]  # by class
    missed: tuple[float, ...]
    cells: tuple[int, ...]  # rows since evidence of drift was low, by kind and quarter of scores
    cells_scored: bool  # whether the scores of all these are known
    cells_since: int  # the batch that they begin with
    audit_floor: float | None  # lowest probability that a row is audited with
    groups: str  # hashes of those whose rows were counted
    labelled_groups: str
    keys: str  # the lowest hashes of those that were counted
    labelled_rows: str  # hashes of rows whose labels were counted, where keys tell
    alarms: tuple[Alarm, ...]
    history: tuple[BatchRecord, ...]


class Batch(NamedTuple):
    """Rows that were answered; arrays of (n,)."""

    served: Served
    order: np.ndarray  # uint64 like chance, whatever the order of the rows
    labels: Labels | None = None  # -1 where a row has none
    named: Bools | None = None  # whether the true class is among the candidates
    groups: np.ndarray | None = None  # uint64
    audit: Floats | None = None  # probability with which each row was to be labelled


def begin(
    classes: tuple[str, ...],
    claims: Sequence[Constraint],
    baseline: Baseline,
    *,
    miss_target: float | None,
    miss_limits: Sequence[float] = (),
    level: float,
    seed: int,
    group_test: GroupTest | None,
    key: str | None = None,
    audit_floor: float | None = None,
) -> Monitor:
    """Return a monitor that has seen nothing but the baseline."""
    c, k = len(claims), len(classes)
    bets = len(evidence.MULTIPLES)
    return Monitor(
        classes=classes,
        claims=tuple(claim.name for claim in claims),
        members=tuple(claim.classes for claim in claims),
        targets=tuple(claim.target for claim in claims),
        miss_target=miss_target,
        miss_limits=tuple(miss_limits) or (() if miss_target is None else (miss_target,) * k),
        level=level,
        seed=seed,
        baseline=baseline,
        group_test=group_test,
        key=key,
        n_batches=0,
        n_rows=0,
        bins=baseline.scores,
        kinds=baseline.kinds,
        scores=_purse(evidence.begin(1, BETS["scores"])),
        sets=_purse(evidence.begin(baseline.n_kinds + 1, BETS["sets"])),
        risk=_purse(evidence.begin(c, bets)),
        candidates=_purse(evidence.begin(k, bets)),
        certain=(0.0,) * c,
        wrong=(0.0,) * c,
        asked=(0.0,) * k,
        missed=(0.0,) * k,
        cells=(0,) * (baseline.n_kinds * QUARTERS),
        cells_scored=True,
        cells_since=1,
        audit_floor=audit_floor,
        groups="",
        labelled_groups="",
        keys="",
        labelled_rows="",
        alarms=(),
        history=(),
    )


def alarm_at(monitor: Monitor, what: What) -> float:
    """Return the evidence at which there is an alarm: a test of many has a part of the level.

    Every kind of rows is a test of its own.
    """
    tests = {
        "scores": 2,
        "sets": 2 * (monitor.baseline.n_kinds + 1),
        "risk": len(monitor.claims),
        "candidates": 2 * len(monitor.classes),  # the limits are uncertain, and take the other half
    }
    return max(tests[what], 1) / monitor.level


def evidence_of(monitor: Monitor, what: What) -> Floats:
    """Return the natural logarithms of the evidence of one family."""
    return evidence.log_evidence(_wealth(getattr(monitor, what)))


def add_batch(monitor: Monitor, batch: Batch, time: str, *, labels_only: bool = False) -> Monitor:
    """Return what is known after another batch; or after labels of rows that were counted."""
    number = monitor.n_batches + 1
    kinds = kinds_of(batch.served, monitor.baseline)
    after = monitor
    if not labels_only:
        after = _add_answers(monitor, batch, kinds)
    after, counts = _add_labels(after, batch)
    logs = {what: evidence_of(after, what) / np.log(10) for what in ("scores", "sets", "risk")}
    logs["candidates"] = evidence_of(after, "candidates") / np.log(10)
    m = monitor.baseline.n_kinds
    counted = np.zeros(m, dtype=np.int64) if labels_only else np.bincount(kinds, minlength=m)
    record = BatchRecord(
        number=number,
        time=time,
        n_rows=0 if labels_only else len(kinds),
        kinds=tuple(counted.tolist()),
        n_labelled=counts.n_labelled,
        n_answered_labelled=counts.n_answered,
        scores=float(logs["scores"][0]),
        sets=float(logs["sets"].max()),
        risk=tuple(logs["risk"].tolist()),
        candidates=tuple(logs["candidates"].tolist()),
        certain=tuple(counts.certain.tolist()),
        wrong=tuple(counts.wrong.tolist()),
        asked=tuple(counts.asked.tolist()),
        missed=tuple(counts.missed.tolist()),
    )
    return replace(
        after,
        n_batches=number,
        n_rows=monitor.n_rows + record.n_rows,
        alarms=monitor.alarms + _new_alarms(after, number, time),
        history=_thinned((*monitor.history, record)),
    )


@lru_cache(maxsize=1)
def explain_drift(monitor: Monitor) -> Mixture | None:
    """Return which class frequencies would explain the rows since evidence of drift was low.

    None where that cannot be told.
    """
    table = np.array(monitor.baseline.by_class)
    cells = np.array(monitor.cells)
    if not len(table):
        return None
    if not monitor.cells_scored:
        k, m = len(table), monitor.baseline.n_kinds
        table, cells = table.reshape(k, m, -1).sum(axis=2), cells.reshape(m, -1).sum(axis=1)
    return drift.fit_frequencies(table, cells)


def _new_alarms(monitor: Monitor, number: int, time: str) -> tuple[Alarm, ...]:
    known = {(alarm.what, alarm.index) for alarm in monitor.alarms}
    kinds = tuple(map(monitor.baseline.name, range(monitor.baseline.n_kinds + 1)))
    names: dict[What, tuple[str, ...]] = {"scores": ("",), "sets": kinds, "risk": monitor.claims}
    names["candidates"] = monitor.classes
    return tuple(
        Alarm(what=what, name=name, index=index, batch=number, time=time)
        for what, of in names.items()
        for index, (name, value) in enumerate(zip(of, evidence_of(monitor, what), strict=True))
        if value >= np.log(alarm_at(monitor, what)) and (what, index) not in known
    )


def _add_answers(monitor: Monitor, batch: Batch, kinds: Ints) -> Monitor:
    """Bet on scores and kinds of rows; of a group one row counts, and once."""
    used = np.argsort(batch.order, kind="stable")
    groups = monitor.groups
    if batch.groups is not None:
        seen = unpack(monitor.groups)
        new = one_of_each_group(batch.groups, batch.order) & ~is_among(batch.groups, seen)
        used = used[new[used]]
        groups = pack(np.concatenate([seen, batch.groups[new]]))
    random = np.random.default_rng([monitor.seed, monitor.n_batches])
    after = replace(monitor, groups=groups)
    if len(used):
        after = _bet_on_scores(after, batch.served.top, used, random)
        after = _bet_on_kinds(after, kinds[used], random)
        after = _count_cells(monitor, after, kinds[used], batch.served.top, used)
    return after


def _bet_on_scores(
    monitor: Monitor, top: Floats | None, used: Ints, random: np.random.Generator
) -> Monitor:
    if top is None or not monitor.bins:
        return monitor
    bins = bins_of(top[used], monitor.baseline)
    bins = bins[bins >= 0]
    chance = random.random(len(bins))
    p_values, known = drift.score_p_values(bins, np.array(monitor.bins), chance)
    wealth = evidence.new_batch(_wealth(monitor.scores), np.array([len(bins) > 0]))
    accounts = evidence.jump(wealth.accounts[0], p_values)
    scores = _purse(wealth._replace(accounts=accounts[None, :]))
    return replace(monitor, scores=scores, bins=tuple(known.tolist()))


def _bet_on_kinds(monitor: Monitor, kinds: Ints, random: np.random.Generator) -> Monitor:
    """Bet on every kind, and on abstentions, being rarer and being more frequent than before."""
    m, k = monitor.baseline.n_kinds, len(monitor.classes)
    counts, known = np.bincount(kinds, minlength=m), np.array(monitor.kinds)
    features = [np.append(values, values[k:].sum()) for values in (counts, known)]
    rare, frequent = drift.kind_p_values(
        features[0], len(kinds), features[1], int(known.sum()), random
    )
    wealth = evidence.new_batch(_wealth(monitor.sets), np.full(m + 1, True))
    grown = np.hstack([evidence.p_growth(rare), evidence.p_growth(frequent)])
    sets = _purse(wealth._replace(accounts=wealth.accounts + grown))
    full = known.sum() + len(kinds) > drift.MOST_KNOWN
    return replace(monitor, sets=sets, kinds=tuple((known if full else known + counts).tolist()))


def _count_cells(
    before: Monitor, after: Monitor, kinds: Ints, top: Floats | None, used: Ints
) -> Monitor:
    """Count the rows since evidence of drift was low, which is when a change may have begun."""
    fresh = _is_quiet(before)
    bins = None if top is None or not before.bins else bins_of(top[used], before.baseline)
    counted = np.bincount(cells_of(kinds, bins, before.baseline), minlength=len(before.cells))
    kept = np.zeros_like(counted) if fresh else np.array(before.cells)
    return replace(
        after,
        cells=tuple((kept + counted).tolist()),
        cells_scored=(fresh or before.cells_scored) and bins is not None,
        cells_since=before.n_batches + 1 if fresh else before.cells_since,
    )


def _is_quiet(monitor: Monitor) -> bool:
    """Return whether all evidence of drift is below the square root of its alarm."""
    tests: tuple[What, What] = ("scores", "sets")
    return all(
        (evidence_of(monitor, what) <= np.log(alarm_at(monitor, what)) / 2).all() for what in tests
    )


class LabelCounts(NamedTuple):
    """What the labels of a batch say."""

    n_labelled: int
    n_answered: int
    certain: Floats  # (c,)
    wrong: Floats
    asked: Floats  # (k,)
    missed: Floats


def _add_labels(monitor: Monitor, batch: Batch) -> tuple[Monitor, LabelCounts]:
    """Bet on the errors of labelled rows."""
    c, k = len(monitor.claims), len(monitor.classes)
    nothing = LabelCounts(0, 0, np.zeros(c), np.zeros(c), np.zeros(k), np.zeros(k))
    if batch.labels is None:
        return monitor, nothing
    counted = batch.labels >= 0
    groups = monitor.labelled_groups
    if batch.groups is not None:  # one whose labels were counted would be counted twice
        seen = unpack(groups)
        counted &= ~is_among(batch.groups, seen)
        groups = pack(np.concatenate([seen, np.unique(batch.groups[counted])]))
    if not counted.any():
        return monitor, nothing
    labels, answers = batch.labels[counted], batch.served.answers[counted]
    of_group = None if batch.groups is None else batch.groups[counted]
    weights = np.ones(len(labels))
    if batch.audit is not None:
        weights = _audit_weights(batch.audit[counted], monitor.audit_floor)
    answered = answers >= 0
    wrong = answers != labels
    missed = ~answered if batch.named is None else ~batch.named[counted]
    risk, certain_sums, wrong_sums = _bet_on_errors(
        monitor,
        _wealth(monitor.risk),
        _rows_of(labels, answered, monitor.members, k),
        wrong,
        monitor.targets,
        weights,
        of_group,
    )
    candidates, asked, lost = _wealth(monitor.candidates), nothing.asked, nothing.missed
    if monitor.miss_limits and batch.named is not None:
        candidates, asked, lost = _bet_on_errors(
            monitor,
            candidates,
            _rows_of(labels, ~answered & batch.served.scored[counted], [(j,) for j in range(k)], k),
            missed,
            monitor.miss_limits,
            weights,
            of_group,
        )
    counts = LabelCounts(
        int(counted.sum()), int(answered.sum()), certain_sums, wrong_sums, asked, lost
    )
    after = replace(
        monitor,
        risk=_purse(risk),
        candidates=_purse(candidates),
        labelled_groups=groups,
        certain=_added(monitor.certain, counts.certain),
        wrong=_added(monitor.wrong, counts.wrong),
        asked=_added(monitor.asked, counts.asked),
        missed=_added(monitor.missed, counts.missed),
    )
    return after, counts


def _audit_weights(audit: Floats, floor: float | None) -> Floats:
    """Return (n,) what makes up for how likely each row was to be labelled, at most 1."""
    if floor is None or not ((audit >= floor) & (audit <= 1)).all():
        raise InvalidDataError(
            "audit probabilities must lie between the lowest one that was named before the first "
            f"labels came ({'none was' if floor is None else format(floor, 'g')}) and 1; without "
            "it the weights of rows would depend on the rows themselves"
        )
    return floor / audit


def _rows_of(
    labels: Labels, some: Bools, members: Sequence[Sequence[int]], k: int
) -> list[np.ndarray]:
    """Return the numbers of those rows whose class belongs to each claim."""
    rows = np.flatnonzero(some)
    rows = rows[np.argsort(labels[rows], kind="stable")]
    by_class = np.split(rows, np.cumsum(class_sizes(labels[rows], k))[:-1])
    return [np.concatenate([by_class[j] for j in of]) for of in members]


def _bet_on_errors(
    monitor: Monitor,
    wealth: Wealth,
    rows: Sequence[np.ndarray],  # numbers of those of each claim
    wrong: Bools,  # (n,)
    targets: Sequence[float],
    weights: Floats,  # (n,) at most 1
    groups: np.ndarray | None,
) -> tuple[Wealth, Floats, Floats]:
    """Return the wealth after these rows, and what they count for.

    Without a cap for groups each counts for one row: a limit that depends on the groups of a batch
    would let small groups count for more when no large one is there.
    """
    observed = np.array([len(some) > 0 for some in rows])
    wealth = evidence.new_batch(wealth, observed)
    accounts = wealth.accounts.copy()
    certain_sums, wrong_sums = np.zeros((2, len(rows)))
    cap = np.inf if groups is None or monitor.group_test is None else monitor.group_test.cap
    cap = cap if np.isfinite(cap) else 1.0
    for j in np.flatnonzero(observed).tolist():
        size = weights[rows[j]]
        errors = size * wrong[rows[j]]
        if groups is not None:
            codes = np.unique(groups[rows[j]], return_inverse=True)[1]
            share = np.minimum(1.0, cap / np.bincount(codes))
            size, errors = (share * np.bincount(codes, each) for each in (size, errors))
        pairs, times = np.unique(np.column_stack([errors, size]), axis=0, return_counts=True)
        accounts[j] += evidence.error_growth(targets[j], pairs[:, 0], pairs[:, 1], cap, times)
        certain_sums[j], wrong_sums[j] = size.sum(), errors.sum()
    return wealth._replace(accounts=accounts), certain_sums, wrong_sums


def _added(values: Sequence[float], more: Floats) -> tuple[float, ...]:
    return tuple((np.array(values) + more).tolist())


def _thinned(history: tuple[BatchRecord, ...]) -> tuple[BatchRecord, ...]:
    """Return the history with every second record of its older half dropped, if it is long."""
    last = history[-1]
    numbers = len(last.kinds) + 3 * len(last.risk) + 3 * len(last.candidates)
    if len(history) <= min(MOST_HISTORY, max(MOST_NUMBERS // numbers, 20)):
        return history
    half = len(history) // 2
    return history[:half:2] + history[half:]


def _wealth(purse: Purse) -> Wealth:
    accounts = np.array(purse.accounts, dtype=np.float64)
    accounts = accounts if len(accounts) else np.empty((0, 1))  # where nothing is claimed
    return Wealth(accounts, np.array(purse.batches, np.int64))


def _purse(wealth: Wealth) -> Purse:
    return Purse(
        accounts=tuple(map(tuple, wealth.accounts.tolist())), batches=tuple(wealth.batches.tolist())
    )


def pack(hashes: np.ndarray) -> str:
    """Return hashes as text."""
    return b64encode(np.unique(hashes).astype("<u8").tobytes()).decode()


def unpack(text: str) -> np.ndarray:
    """Return the hashes that a text holds, in ascending order."""
    return np.frombuffer(b64decode(text), dtype="<u8").astype(np.uint64)


def order_of(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Return an order of rows like chance, the same for the same rows.

    Equal rows must not stand together, so each copy has a hash of its own.
    """
    codes = np.unique(hashes, return_inverse=True)[1]
    return mix(hashes ^ mix(seed) ^ mix(count_up(codes)))


def sketch(known: str, hashes: np.ndarray) -> tuple[str, float]:
    """Return a sketch of all keys so far, and which share of new ones it has seen before.

    It holds the lowest hashes. Of the new ones those that are as low can be told from them.
    """
    before, new = unpack(known), np.unique(hashes)
    if len(before) >= MOST_KEYS:
        new = new[new <= before[-1]]
    seen = is_among(new, before)
    both = np.unique(np.concatenate([before, new]))[:MOST_KEYS]
    return pack(both), float(seen.mean()) if len(seen) else 0.0
