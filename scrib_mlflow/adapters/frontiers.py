"""A frontier in tables and words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scrib_mlflow.adapters.frontier_classes import class_sentences, clipped, target_percent
from scrib_mlflow.adapters.metrics import safe_names
from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.certifiable import Certifiable
from scrib_mlflow.core.frontier import FrontierPoint, TargetFrontier
from scrib_mlflow.core.held_out import Band, ClassRates, PartRates
from scrib_mlflow.core.tally import LEAST_GROUPS

ALL = "all"  # of a table's rows: targets that move together; rows of all classes
HEADER = ("target", "abstains", "between", "overall risk", "silent", "to certify it")
MOST_TARGETS = 16  # of the table in a terminal


def point_rows(found: TargetFrontier) -> list[dict[str, float | str]]:
    """Return a row for each point and class, and one for all of them, held-out rows first."""
    rows: list[dict[str, float | str]] = []
    for point in found.points:
        start: dict[str, float | str] = {"sweep": point.swept or ALL, "target": point.target}
        rows.append({**start, "class": ALL, **_all_cells(point)})
        for name, held in point.held_out.by_class.items():
            fitted = point.fitted.by_class[name]
            cells = _cells(held, held.risk, held.risk_band)
            cells |= {"fit_abstention": fitted.abstention_rate, "fit_risk": fitted.risk}
            rows.append({**start, "class": name, **cells})
    return rows


def _all_cells(point: FrontierPoint) -> dict[str, float]:
    held, fitted = point.held_out, point.fitted
    return {
        **_cells(held, held.overall_risk, held.overall_risk_band),
        "fit_abstention": fitted.abstention_rate,
        "fit_risk": fitted.overall_risk,
        "empty_rate": held.empty_rate,
        "n_silent": len(point.silent),
        "certifiable_target": point.certifiable_target,
    }


def _cells(rates: PartRates | ClassRates, risk: float, risk_band: Band) -> dict[str, float]:
    return {
        "rows": rates.n,
        "certain": rates.n_certain,
        "wrong": rates.n_wrong,
        "abstention": rates.abstention_rate,
        "abstention_low": rates.abstention_band[0],
        "abstention_high": rates.abstention_band[1],
        "risk": risk,
        "risk_low": risk_band[0],
        "risk_high": risk_band[1],
    }


def metrics(found: TargetFrontier) -> dict[str, float]:
    """Return what is logged as metrics: the chosen targets, and what can be certified."""
    chosen = found.chosen
    lowest = least_certifiable(found)
    at = _at_chosen(found)
    values = {
        **_part_metrics(chosen.held_out, found.classes, ""),
        **_part_metrics(chosen.fitted, found.classes, "fit_"),
        "fit_loss": chosen.loss,
        "certifiable_chance": at.chance,
        "certifiable_abstention_rate": at.abstention_rate,
    }
    if lowest is not None:
        values["certifiable_target"] = lowest.certifiable_target
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _part_metrics(part: PartRates, classes: Sequence[str], prefix: str) -> dict[str, float]:
    values = {
        f"{prefix}{name}": float(getattr(part, name))
        for name in ("abstention_rate", "empty_rate", "overall_risk")
    }
    for name, safe in zip(classes, safe_names(classes), strict=True):
        values[f"{prefix}risk/{safe}"] = part.by_class[name].risk
        values[f"{prefix}abstention/{safe}"] = part.by_class[name].abstention_rate
    return values


def least_certifiable(found: TargetFrontier) -> FrontierPoint | None:
    """Return the point whose rule is predicted to certify the lowest target, if any does."""
    able = [point for point in found.joint if not math.isnan(point.certifiable_target)]
    return min(able, key=lambda point: point.certifiable_target) if able else None


def _at_chosen(found: TargetFrontier) -> Certifiable:
    return next(each for each in found.certifiable if each.target == found.reference)


def target_rows(found: TargetFrontier, most: int = MOST_TARGETS) -> list[tuple[str, ...]]:
    """Return a header and a row a target, all targets moving together; of many some."""
    rows: list[tuple[str, ...]] = [HEADER]
    for j in _spread(found, most):
        point, able = found.joint[j], found.certifiable[j]
        held = point.held_out
        mark = " *" if point.target == found.reference else ""
        low, high = held.abstention_band
        rows.append(
            (
                f"{target_percent(point.target)}{mark}",
                percent(held.abstention_rate),
                f"{100 * low:.1f} - {100 * high:.1f} %",
                percent(held.overall_risk),
                str(len(point.silent)),
                "not predicted" if math.isnan(able.abstention_rate) else _abstains(able),
            )
        )
    return rows


def _abstains(able: Certifiable) -> str:
    return f"abstain {percent(able.abstention_rate)}"


def _spread(found: TargetFrontier, most: int) -> list[int]:
    """Return some points evenly spread, with the chosen and the first that can be certified."""
    n = len(found.joint)
    if n <= most:
        return list(range(n))
    able = [j for j, each in enumerate(found.certifiable) if not math.isnan(each.abstention_rate)]
    musts = {[point.target for point in found.joint].index(found.reference), 0, n - 1, *able[:1]}
    room = most - len(musts)
    evenly = {round(i * (n - 1) / (room + 1)) for i in range(1, room + 1)}
    return sorted(musts | evenly)


def legend(found: TargetFrontier) -> list[str]:
    """Return what the columns of the tables mean."""
    heeding = "" if found.n_groups is None else ", heeding groups, approximately"
    return [
        "*                  the chosen targets",
        f"abstains, between  on held-out rows, and its band: {100 * found.confidence:g} %, each by "
        f"itself{heeding}",
        "silent             classes with a target and no certain held-out row",
        "to certify it      abstention of the rule predicted to pass with a chance of "
        f"{100 * found.wanted:g} %",
        "costs, saves       points of abstention of all rows, for another target of this class "
        "alone",
    ]


def sentences(found: TargetFrontier) -> list[str]:
    """Return the answer in a few sentences."""
    return [_chosen_sentence(found), certify_sentence(found), *class_sentences(found)]


def _chosen_sentence(found: TargetFrontier) -> str:
    held = found.chosen.held_out
    low, high = held.abstention_band
    return (
        f"At the chosen targets ({target_words(found)}) {percent(held.abstention_rate)} of the "
        f"held-out rows abstain, {100 * low:.1f} to {100 * high:.1f} % by its band."
    )


def target_words(found: TargetFrontier) -> str:
    """Return the chosen targets in a few words."""
    others = {n: t for n, t in found.targets.items() if t != found.reference}
    words = [target_percent(found.reference)]
    words += [f"{clipped(name)} {target_percent(t)}" for name, t in list(others.items())[:3]]
    if found.overall_target is not None:
        words.append(f"overall {target_percent(found.overall_target)}")
    return ", ".join(words) + (" and others" if len(others) > 3 else "")


def certify_sentence(found: TargetFrontier) -> str:
    """Return in a sentence which targets are predicted to be certifiable."""
    lowest = least_certifiable(found)
    if lowest is None:
        return f"Nothing here is predicted to be certifiable: {_obstacle(found)}."
    at = _at_chosen(found)
    own = (
        f"the chosen ones are, at {percent(at.abstention_rate)} abstention"
        if not math.isnan(at.abstention_rate)
        else "the chosen ones are not"
    )
    return (
        "The lowest target predicted to be certifiable is "
        f"{target_percent(lowest.certifiable_target, digits=3)}, at "
        f"{percent(lowest.held_out.abstention_rate)} abstention; {own}. That is a prediction "
        f"from {found.n_held_out:,} held-out rows for {found.certify_rows:,} certify rows, no "
        "certificate."
    )


def _obstacle(found: TargetFrontier) -> str:
    groups = found.certify_groups
    if groups is not None and groups < LEAST_GROUPS:
        return f"{groups} groups certify, but a certificate needs {LEAST_GROUPS}"
    silent = found.joint[-1].silent
    if silent:
        return f"class {clipped(silent[0])!r} is never certain among the held-out rows"
    what = "rows" if groups is None else "rows and groups"
    return f"{found.certify_rows:,} certify rows hold too few {what} of some class"


def rows_sentence(found: TargetFrontier) -> str:
    """Return in a sentence on what the rules were fitted and measured."""
    groups = "" if found.n_groups is None else f", by {found.n_groups:,} groups that stay whole"
    return (
        f"{found.n_fitted:,} rows to fit and {found.n_held_out:,} held out{groups}; "
        f"rule={found.rule_kind}."
    )
