"""The planner: what can be certified with so many rows, before a label is looked at."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from scrib_mlflow.core.bounds import allowed_errors, chance_within
from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.core.inputs import as_number

MOST_ROWS = 2_000_000  # where the search for enough rows gives up


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """What the certify rows of one class can prove."""

    name: str
    n: int  # certify rows
    target: float
    least_target: float  # that n rows can certify, all of them certain and right
    least_rows: int  # certain rows that certify the target without an error
    rows_for_chance: int | None  # certain rows for this class's part in the chance wanted
    assumed_risk: float
    n_certain: int  # to be expected at the assumed abstention
    chance: float  # of passing with them, at the assumed risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What certify rows can prove, as if they were independent."""

    confidence: float
    level: float
    wanted: float  # chance of all classes together that `rows_for_chance` aims at
    chance: float  # that all classes pass
    abstention: float  # assumed
    n_groups: int | None
    by_class: tuple[ClassPlan, ...]


def make_plan(
    class_rows: Mapping[str, int],
    targets: Mapping[str, float],
    *,
    level: float,
    abstention: float = 0.5,
    risk_share: float = 0.5,
    wanted: float = 0.8,
    n_groups: int | None = None,
) -> Plan:
    """Return what the certify rows of each class can prove, for the classes that have a target.

    Assumed are the share of rows that abstain and the true risk as a share of its target.
    """
    as_number("risk_share", risk_share, low=0, high=np.inf)
    each = as_number("wanted", wanted, low=0, high=1) ** (1 / max(len(targets), 1))
    certain = 1 - as_number("abstention", abstention, low=-1e-12, high=1)

    by_class = []
    for name, target in targets.items():
        n, risk = class_rows.get(name, 0), min(risk_share * target, 1.0)
        n_certain = math.floor(n * certain)
        plan = ClassPlan(
            name=name,
            n=n,
            target=target,
            least_target=least_target(n, level),
            least_rows=least_rows(target, level),
            rows_for_chance=rows_for(target, risk, level, each),
            assumed_risk=risk,
            n_certain=n_certain,
            chance=chance_of_passing(n_certain, target, risk, level),
        )
        by_class.append(plan)
    needed = [max(LEAST_GROUPS, plan.least_rows) for plan in by_class]
    enough = n_groups is None or n_groups >= max(needed, default=LEAST_GROUPS)
    return Plan(
        confidence=1.0 - level,
        level=level,
        wanted=wanted,
        chance=math.prod(plan.chance for plan in by_class) if by_class and enough else 0.0,
        abstention=abstention,
        n_groups=n_groups,
        by_class=tuple(by_class),
    )


def least_target(n: int, level: float) -> float:
    """Return the lowest target that n certain rows without an error certify; 1 without rows."""
    return -math.expm1(math.log(level) / n) if n > 0 else 1.0


def least_rows(target: float, level: float) -> int:
    """Return how many certain rows without an error certify a target."""
    return math.ceil(math.log(level) / math.log1p(-target) - 1e-9)  # less is rounding


def chance_of_passing(n_certain: int, target: float, risk: float, level: float) -> float:
    """Return the probability that n certain rows certify a target, at a true risk."""
    errors = allowed_errors(target, n_certain, 1 - level)[n_certain]
    return float(chance_within(n_certain, errors, risk))


@functools.lru_cache(maxsize=1024)
def rows_for(target: float, risk: float, level: float, chance: float = 0.8) -> int | None:
    """Return the certain rows from which on the chance of passing stays at or above `chance`.

    None where the risk is not below its target, or beyond `MOST_ROWS`. The chance goes in a saw:
    it falls with every row until one more error is allowed, so it is lowest on the row before that.
    """
    if risk >= target:
        return None
    # The normal approximation, doubled, is well above the rows searched for.
    spread = special.ndtri(1 - level) * math.sqrt(target * (1 - target))
    spread += max(special.ndtri(chance), 0.0) * math.sqrt(risk * (1 - risk))
    last = math.ceil(2 * (spread / (target - risk)) ** 2) + 4 * least_rows(target, level)
    if last > MOST_ROWS:
        return None
    errors = allowed_errors(target, last, 1 - level)
    lowest = np.flatnonzero(np.diff(errors) > 0)
    chances = chance_within(lowest, errors[lowest], risk)
    return int(lowest[chances < chance][-1]) + 1
