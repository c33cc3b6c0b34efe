"""What would help where nothing was certified: another target, or more rows; from fit rows alone.

Each question is answered by drawing a path as if the answer were true, and asking for the chance
that its first rule passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scrib_mlflow.core.certificate.path import Path

WANTED = 0.8  # chance to pass that advice is for
LOOSEST = 0.5  # target that is still worth proposing
MOST_CLAIMS = 4  # whose targets are loosened one by one; each takes a path
BISECTIONS = 3
MORE_ROWS = (4, 16)  # times as many

Draw = Callable[[Mapping[str, float], float], Path]  # from targets, and a factor of certify rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The nearest ways to a certificate, as far as fit rows can tell."""

    blocking: str | None  # the claim whose target is in the way; None where it is not one alone
    chance_without: float  # that all pass, were the target of that claim 0.5; NaN without one
    targets: dict[str, float]  # nearest that pass with the chance wanted, by claim; {} for none
    abstention_rate: float  # with them, on the fit rows; NaN without them
    more_rows: int | None  # times as many certify rows pass at the present targets; None: no number
    wanted: float = WANTED


def advise(draw: Draw, targets: Mapping[str, float], suspects: Sequence[str]) -> Advice:
    """Return what would help; `suspects` are claims, those most likely in the way first."""
    blocking, chance = None, math.nan
    for name in list(suspects)[:MOST_CLAIMS]:
        power = draw({**targets, name: _loosest(targets[name])}, 1.0).power
        if power >= WANTED:
            blocking, chance = name, power
            break
    loosened = [*targets] if blocking is None else [blocking]
    nearest, rate = _nearest(draw, targets, loosened)
    rows = next((m for m in MORE_ROWS if draw(targets, float(m)).power >= WANTED), None)
    return Advice(
        blocking=blocking,
        chance_without=chance,
        targets=nearest,
        abstention_rate=rate,
        more_rows=rows,
    )


def _nearest(
    draw: Draw, targets: Mapping[str, float], loosened: Sequence[str]
) -> tuple[dict[str, float], float]:
    """Return the lowest targets of some claims, in proportion, that pass, and their abstention."""

    def at(share: float) -> tuple[dict[str, float], Path]:
        moved = {
            name: round(t * (_loosest(t) / t) ** share, 3) if name in loosened else t
            for name, t in targets.items()
        }
        return moved, draw(moved, 1.0)

    low, high = 0.0, 1.0
    best, path = at(high)
    if path.power < WANTED:
        return {}, math.nan
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        moved, tried = at(middle)
        if tried.power >= WANTED:
            best, path, high = moved, tried, middle
        else:
            low = middle
    return best, path.expected_abstention


def _loosest(target: float) -> float:
    return max(target, LOOSEST)
