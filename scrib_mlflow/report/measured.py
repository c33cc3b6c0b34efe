"""What a monitor has measured, as values: rates beside those at calibration, risks, evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from scrib_mlflow.core.inputs import NAN, Ints
from scrib_mlflow.core.monitoring import BatchRecord, Monitor, evidence_of
from scrib_mlflow.core.monitoring.evidence import risk_interval
from scrib_mlflow.core.monitoring.monitor import What
from scrib_mlflow.report.facts import Tone
from scrib_mlflow.report.page import MOST_MEMBERS
from scrib_mlflow.report.words import clipped, listed

BAND = 0.95
FEATURES = ("answered", "ambiguous", "empty", "not scored")


class Rate(NamedTuple):
    """How often something occurs in a batch, and how often at calibration."""

    name: str
    n: int
    share: float
    before: float  # NaN without a baseline
    low: float  # 95 % of batches like it lie between these; NaN where that is not known
    high: float

    @property
    def change(self) -> float:
        """How far the share is from that at calibration."""
        return 0.0 if math.isnan(self.share + self.before) else abs(self.share - self.before)


class Watched(NamedTuple):
    """A claim, or the candidates of a class: errors by all labels so far, and evidence."""

    name: str
    n: float  # labelled rows
    wrong: float
    rate: float  # NaN without rows
    low: float  # between which it lies at all times; NaN where there is no such interval
    high: float
    target: float
    evidence: float  # a logarithm to base 10
    since: int | None  # the batch in which there was an alarm

    @property
    def status(self) -> str:
        """Say whether there was an alarm."""
        if self.since is not None:
            return f"alarm since batch {self.since}"
        return "no alarm" if self.n else "no labels"

    @property
    def urgency(self) -> tuple[bool, float]:
        """A key to sort by: those with an alarm first, then by evidence."""
        return self.since is None, -self.evidence

    @property
    def tone(self) -> Tone:
        """Say whether the status is what one would wish for."""
        return "bad" if self.since is not None else "good" if self.n else "plain"


def rates(monitor: Monitor, record: BatchRecord) -> tuple[list[Rate], list[Rate]]:
    """Return the rates of a batch beside the baseline: of FEATURES, and of each kind of rows."""
    known = monitor.baseline.kinds
    names = [shown_kind(monitor, kind) for kind in range(monitor.baseline.n_kinds)]
    banded = not monitor.baseline.grouped
    now, before = count_features(monitor, record.kinds), count_features(monitor, known)
    first, second = (
        [
            _rate(name, n, record.n_rows, x, sum(known), banded=banded)
            for name, n, x in zip(each, counts.tolist(), old.tolist(), strict=True)
        ]
        for each, counts, old in zip((FEATURES, names), now, before, strict=True)
    )
    return first, second


def _rate(name: str, n: int, rows: int, before: int, known: int, *, banded: bool) -> Rate:
    low, high = (
        usual_range(before / known, rows, known) if banded and known and rows else (NAN, NAN)
    )
    return Rate(name, n, n / rows if rows else NAN, before / known if known else NAN, low, high)


def usual_range(share: float, rows: int, known: int) -> tuple[float, float]:
    """Return between which shares most batches lie, if rows come from where the known ones do.

    Both are a sample, so that the uncertainty is that of fewer rows.
    """
    size = 1 / (1 / rows + 1 / known)
    a, b = share * size + 0.5, (1 - share) * size + 0.5
    low, high = special.betaincinv(a, b, [(1 - BAND) / 2, (1 + BAND) / 2])
    return (float(low) if share > 0 else 0.0), (float(high) if share < 1 else 1.0)


def count_features(monitor: Monitor, kinds: Sequence[int]) -> tuple[Ints, Ints]:
    """Return how many rows are answered, ambiguous, empty and not scored; and each kind."""
    counts, k = np.array(kinds, dtype=np.int64), len(monitor.classes)
    return np.array([counts[:k].sum(), counts[k:-2].sum(), *counts[-2:]]), counts


def last_answers(monitor: Monitor) -> BatchRecord | None:
    """Return the last batch with answers, as others only bring labels."""
    return next((record for record in reversed(monitor.history) if record.n_rows), None)


def shown_kind(monitor: Monitor, kind: int) -> str:
    """Return what a kind of rows is called, where a set is told from classes by its braces."""
    k, own = len(monitor.classes), len(monitor.baseline.sets)
    if k <= kind < k + own:
        members = [clipped(monitor.classes[j]) for j in monitor.baseline.sets[kind - k]]
        return f"{{{listed(members, MOST_MEMBERS)}}}"
    return monitor.baseline.name(kind)


def risks(monitor: Monitor) -> list[Watched]:
    """Return what labels say of each claim."""
    return _watched(
        monitor, "risk", monitor.claims, monitor.certain, monitor.wrong, monitor.targets
    )


def candidates(monitor: Monitor) -> list[Watched]:
    """Return what labels of abstentions say of each class: how often its candidates lack it."""
    limits = monitor.miss_limits or (NAN,) * len(monitor.classes)
    return _watched(monitor, "candidates", monitor.classes, monitor.asked, monitor.missed, limits)


def _watched(
    monitor: Monitor,
    what: What,
    names: Sequence[str],
    sizes: Sequence[float],
    errors: Sequence[float],
    targets: Sequence[float],
) -> list[Watched]:
    since = {alarm.name: alarm.batch for alarm in monitor.alarms if alarm.what == what}
    logs = (evidence_of(monitor, what) / np.log(10)).tolist()
    found = []
    for name, n, wrong, target, log in zip(names, sizes, errors, targets, logs, strict=True):
        exact = float(n).is_integer() and float(wrong).is_integer() and not in_groups(monitor)
        low, high = risk_interval(wrong, n, monitor.level) if exact and n else (NAN, NAN)
        rate = wrong / n if n else NAN
        found.append(Watched(name, n, wrong, rate, low, high, target, log, since.get(name)))
    return found


def in_groups(monitor: Monitor) -> bool:
    """Return whether rows come in groups, so that they are not independent."""
    return monitor.baseline.grouped or monitor.group_test is not None


def factor(log: float) -> str:
    """Return a factor in few digits, from its logarithm to base 10."""
    if log >= 6:
        return f"10^{log:.0f}"
    return f"{10**log:,.{max(0, 1 - math.floor(log))}f}"
