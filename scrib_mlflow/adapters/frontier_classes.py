"""What other targets of single classes do, in a table and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from scrib_mlflow.adapters.texts import percent, visible
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.frontier import FrontierPoint, TargetFrontier
from scrib_mlflow.core.held_out import Band
from scrib_mlflow.core.target_grid import DIGITS

HEADER = ("class", "target", "risk", "abstains", "stricter", "costs", "looser", "saves")
MOST_CLASSES = 8  # of the table in a terminal
LONGEST = 28  # characters of a class's name
STRICTER, LOOSER = 0.5, 1.5  # times its target, of a class by itself
LEAST_SAVING = 0.01  # of all rows, from which a class is expensive
STANDARD_ERRORS = 2  # that a saving has to exceed


class Effect(NamedTuple):
    """What another target of one class does to the abstention of all rows."""

    name: str
    target: float  # chosen
    stricter: float  # NaN, as what it costs, where no point is below the chosen target
    costs: float
    looser: float  # NaN, as what it saves, where no point is above the chosen target
    saves: float
    noise: float  # that a saving must exceed to say anything


def effects(found: TargetFrontier) -> list[Effect]:
    """Return what other targets of single classes do, the greatest saving first."""
    now = found.chosen.held_out
    listed = []
    for name in found.swept:
        target = found.targets[name]
        points = found.of(name)
        strict = _nearest([p for p in points if p.target < target], STRICTER * target)
        loose = _nearest([p for p in points if p.target > target], LOOSER * target)
        bands = [now.abstention_band]
        if loose is not None:
            bands.append(loose.held_out.abstention_band)
        listed.append(
            Effect(
                name,
                target,
                NAN if strict is None else strict.target,
                NAN if strict is None else strict.held_out.abstention_rate - now.abstention_rate,
                NAN if loose is None else loose.target,
                NAN if loose is None else now.abstention_rate - loose.held_out.abstention_rate,
                _noise(bands, found.confidence),
            )
        )
    return sorted(listed, key=lambda each: (math.isnan(each.saves), -each.saves))


def _nearest(points: Sequence[FrontierPoint], target: float) -> FrontierPoint | None:
    return min(points, key=lambda p: abs(math.log(p.target / target)), default=None)


def _noise(bands: Sequence[Band], confidence: float) -> float:
    """Return some standard errors of an abstention rate: of the widest band, which heeds groups.

    The two rules are measured on the same rows, so their difference is less uncertain than that.
    """
    widest = max(high - low for low, high in bands) / 2
    return STANDARD_ERRORS * widest / NormalDist().inv_cdf((1 + confidence) / 2)


def class_rows(found: TargetFrontier, most: int = MOST_CLASSES) -> list[tuple[str, ...]]:
    """Return a header and a row a class, the greatest saving first."""
    rows: list[tuple[str, ...]] = [HEADER]
    for effect in effects(found)[:most]:
        own = found.chosen.held_out.by_class[effect.name]
        rows.append(
            (
                clipped(effect.name),
                target_percent(effect.target),
                percent(own.risk),
                percent(own.abstention_rate),
                target_percent(effect.stricter),
                _points(effect.costs),
                target_percent(effect.looser),
                _points(effect.saves),
            )
        )
    return rows


def _points(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}".replace("-0.0", "0.0")


def class_sentences(found: TargetFrontier) -> list[str]:
    """Return which class is expensive, if one is, and which were looked at."""
    listed = effects(found)
    if not listed:
        return []
    left = len(found.targets) - len(found.swept)
    of = " of those swept" if left else ""
    words = [_expensive(listed, of, found.n_held_out)]
    if left:
        words.append(
            f"Of {len(found.targets)} classes the {len(found.swept)} with the most wrong top "
            "classes above their target were swept by themselves."
        )
    return words


def _expensive(listed: Sequence[Effect], of: str, n_held_out: int) -> str:
    above = [each for each in listed if each.saves > each.noise]
    if not above:
        return (
            f"No class{of} is seen to be expensive by itself: what a looser target of one saves "
            f"does not stand out from the noise of {n_held_out:,} held-out rows."
        )
    first = above[0]
    if first.saves < LEAST_SAVING:
        return (
            f"No class{of} is expensive by itself: a looser target of one saves less than a point "
            "of abstention."
        )
    return (
        f"The expensive class{of} is {clipped(first.name)!r}: allowing it "
        f"{target_percent(first.looser)} in place of {target_percent(first.target)} saves "
        f"{_points(first.saves)} points of abstention."
    )


def saving(effect: Effect) -> str:
    """Return in a few words what a looser target saves, "" where none was swept."""
    if math.isnan(effect.saves):
        return ""
    return f"{target_percent(effect.looser)} saves {_points(effect.saves)} points"


def target_percent(target: float, digits: int = DIGITS[-1]) -> str:
    """Return a target in percent with the digits it has, a dash where it is undefined."""
    if math.isnan(target):
        return "-"
    text = f"{100 * target:.{digits}g}"
    return f"{text} %" if "." in text or "e" in text else f"{text}.0 %"


def clipped(name: str) -> str:
    """Return a name as a table has room for it."""
    text = visible(name)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"
