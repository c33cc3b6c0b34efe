"""False certificates and power where rows come in groups, some of them hard to be right about."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.tables import print_table, progress
from scrib_mlflow.core.certificate.claims import Grouped, Tally, p_values, passes
from scrib_mlflow.core.groups import GroupCounts, GroupTest
from scrib_mlflow.core.targets import Targets, make_constraints

Floats = NDArray[np.float64]
TARGET, LEVEL = 0.1, 0.05
GROUPS = (30, 40, 60, 100, 200)
REPETITIONS, FEW = 2_000, 200
POPULATION = 400_000  # groups, from which the true risk and the cap are taken
CLAIMS = make_constraints(Targets(risk_targets=TARGET), ("a", "b"))[:1]
SHARES = (1.0, 0.5, 0.25)  # of the target, that the true risk is


class Drawn(NamedTuple):
    """Certain and wrong rows of groups."""

    certain: Floats  # (m,)
    wrong: Floats  # (m,)


def equal(random: Generator, m: int, scale: float) -> Drawn:
    """60 rows a group, correlation 0.2."""
    return _alike(random, np.full(m, 60), scale)


def unrelated(random: Generator, m: int, scale: float) -> Drawn:
    """Lognormal sizes that have nothing to do with the risk, correlation 0.2."""
    return _alike(random, _sizes(random, m), scale)


def root(random: Generator, m: int, scale: float) -> Drawn:
    """Lognormal sizes, risk in proportion to the square root of the size."""
    sizes = _sizes(random, m)
    return _wrong(random, sizes, np.minimum(scale * TARGET * np.sqrt(sizes / 33), 1))


def huge(random: Generator, m: int, scale: float) -> Drawn:
    """Two percent of the groups are 30 times larger and three times riskier."""
    large = random.random(m) < 0.02
    risks = np.where(large, 3, 1) * TARGET * scale
    return _wrong(random, np.where(large, 1_800, 60), np.minimum(risks, 1))


def all_wrong(random: Generator, m: int, scale: float) -> Drawn:
    """Draw groups that are all wrong, or all right."""
    return _wrong(random, _sizes(random, m), (random.random(m) < TARGET * scale).astype(float))


CASES: dict[str, Callable[[Generator, int, float], Drawn]] = {
    "equal sizes": equal,
    "sizes unrelated to risk": unrelated,
    "risk grows with the root of the size": root,
    "2 % huge and riskier": huge,
    "some groups all wrong": all_wrong,
}


def _sizes(random: Generator, m: int) -> NDArray[np.int64]:
    return np.ceil(random.lognormal(3.5, 1.0, m)).astype(np.int64)


def _alike(random: Generator, sizes: NDArray[np.int64], scale: float) -> Drawn:
    risk = TARGET * scale
    return _wrong(random, sizes, random.beta(4 * risk, 4 * (1 - risk), len(sizes)))


def _wrong(random: Generator, sizes: NDArray[np.int64], risks: Floats) -> Drawn:
    return Drawn(sizes.astype(np.float64), random.binomial(sizes, risks).astype(np.float64))


def capped(drawn: Drawn, cap: float) -> Drawn:
    """Return what the groups count for."""
    share = np.minimum(1.0, cap / drawn.certain)
    return Drawn(share * drawn.certain, share * drawn.wrong)


def find_cap(case: str) -> int:
    """Return the cap that fit rows would give: the median of the groups' sizes."""
    return int(np.median(CASES[case](np.random.default_rng(1), POPULATION, 1.0).certain))


@cache
def find_scale(case: str, cap: float, risk: float) -> float:
    """Return the scale of the risks at which the population's risk is as wanted, capped or not."""
    low, high = 0.0, 3.0
    for _ in range(30):
        middle = (low + high) / 2
        drawn = capped(CASES[case](np.random.default_rng(2), POPULATION, middle), cap)
        below = drawn.wrong.sum() < risk * drawn.certain.sum()
        low, high = (middle, high) if below else (low, middle)
    return low


def certifies(drawn: Drawn, test: GroupTest) -> bool:
    """Return whether the groups certify their claim."""
    counts = capped(drawn, test.cap)
    n, wrong = (np.array([round(each.sum())]) for each in drawn)
    tally = Tally(n, n, wrong, groups=Grouped(test, len(drawn.certain), (GroupCounts(*counts),)))
    return passes(tally, p_values(tally, CLAIMS, level=LEVEL), LEVEL)


def rate(case: str, m: int, test: GroupTest, share: float, repetitions: int, seed: int) -> float:
    """Return how often groups certify that their risk, a share of the target, is within it.

    The risk is that of the test's own claim: of capped rows, or of all rows without a cap.
    """
    scale = find_scale(case, test.cap, share * TARGET)
    random = np.random.default_rng([seed, m, round(100 * share)])
    draw = partial(CASES[case], random, m, scale)
    return float(np.mean([certifies(draw(), test) for _ in range(repetitions)]))


def run(*, quick: bool) -> None:
    """Print a table for each case."""
    repetitions = FEW if quick else REPETITIONS
    for case in CASES:
        progress(f"groups: {case}")
        cap = find_cap(case)
        tests = {
            "approximate": GroupTest(cap),
            "exact": GroupTest(cap, exact=True),
            "design effect without a cap": GroupTest(),
        }
        print_table(
            f"Groups, {case}: certificates of a {TARGET:.0%} target at {1 - LEVEL:.0%}, where the "
            f"risk that each claims (cap {cap}, or none) is the target / half of it / a quarter; "
            f"{repetitions:,} repetitions",
            ["groups", *tests],
            [
                [str(m), *(_cell(case, m, test, repetitions) for test in tests.values())]
                for m in GROUPS
            ],
        )


def _cell(case: str, m: int, test: GroupTest, repetitions: int) -> str:
    rates = [rate(case, m, test, share, repetitions, seed=7) for share in SHARES]
    return " / ".join(f"{value:.1%}" for value in rates)
