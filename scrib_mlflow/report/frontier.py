"""A frontier of targets in tables, words and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.core.inputs import NAN
from scrib_mlflow.core.reports import Band, ClassRates, PartRates
from scrib_mlflow.core.studies import TargetFrontier
from scrib_mlflow.core.studies.frontier import Certifiable, FrontierPoint
from scrib_mlflow.core.studies.sweeps import DIGITS
from scrib_mlflow.messages import chance_percent, percent, safe_names
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import Summary, TextTable
from scrib_mlflow.report.figures import BLACK, BLUE, GREEN, GREY, MOST_CLASSES, ORANGE
from scrib_mlflow.report.words import clipped, say, say_each

CLASS_HEADER = ("class", "target", "risk", "abstains", "stricter", "costs", "looser", "saves")
MOST_PRINTED_CLASSES = 8  # of the table in a terminal
STRICTER, LOOSER = 0.5, 1.5  # times its target, of a class by itself
LEAST_SAVING = 0.01  # of all rows, from which a class costs much
STANDARD_ERRORS = 2  # that a saving has to exceed
ALL = "all"  # of a table's rows: targets that move together; rows of all classes
TARGET_HEADER = (
    *("target", "abstains", "between", "overall risk", "silent", "chance", "certified"),
)
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # of targets, in percent
MOST_SWEPT = 12  # classes in a figure
LONGEST_PANEL = 22  # characters of a name above a panel
Panel = tuple[str, str, Sequence[FrontierPoint], float]  # class, heading, points, chosen target


class Effect(NamedTuple):
    """What another target of one class does to the abstention of all rows."""

    name: str
    target: float  # chosen
    stricter: float  # NaN, as what it costs, where no point is below the chosen target
    costs: float
    looser: float  # NaN, as what it saves, where no point is above the chosen target
    saves: float
    noise: float  # that a saving must exceed to say anything


def effects(result: TargetFrontier) -> list[Effect]:
    """Return what other targets of single classes do, the greatest saving first."""
    now = result.chosen.held_out
    listed = []
    for name in result.swept:
        target, points = result.targets[name], result.of(name)
        strict = _nearest([p for p in points if p.target < target], STRICTER * target)
        loose = _nearest([p for p in points if p.target > target], LOOSER * target)
        bands = [p.held_out.abstention_band for p in (result.chosen, loose) if p is not None]
        (stricter, more), (looser, less) = (
            (NAN, NAN) if p is None else (p.target, p.held_out.abstention_rate)
            for p in (strict, loose)
        )
        costs, saves = more - now.abstention_rate, now.abstention_rate - less
        noise = _noise(bands, result.confidence)
        listed.append(Effect(name, target, stricter, costs, looser, saves, noise))
    return sorted(listed, key=lambda each: (math.isnan(each.saves), -each.saves))


def _nearest(points: Sequence[FrontierPoint], target: float) -> FrontierPoint | None:
    return min(points, key=lambda p: abs(math.log(p.target / target)), default=None)


def _noise(bands: Sequence[Band], confidence: float) -> float:
    """Return some standard errors of an abstention rate: of the widest band, which heeds groups.

    The two rules are measured on the same rows, so their difference is less uncertain than that.
    """
    widest = max(high - low for low, high in bands) / 2
    return STANDARD_ERRORS * widest / NormalDist().inv_cdf((1 + confidence) / 2)


def class_rows(result: TargetFrontier, most: int = MOST_PRINTED_CLASSES) -> list[tuple[str, ...]]:
    """Return a header and a row a class, the greatest saving first."""
    rows: list[tuple[str, ...]] = [CLASS_HEADER]
    for effect in effects(result)[:most]:
        rates = result.chosen.held_out.by_class[effect.name]
        rows.append(
            (
                clipped(effect.name),
                target_percent(effect.target),
                percent(rates.risk),
                percent(rates.abstention_rate),
                target_percent(effect.stricter),
                _points(effect.costs),
                target_percent(effect.looser),
                _points(effect.saves),
            )
        )
    return rows


def _points(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}".replace("-0.0", "0.0")


def class_sentences(result: TargetFrontier) -> list[str]:
    """Return which class costs the most abstention, if one does, and which were looked at."""
    listed = effects(result)
    return say_each(
        "frontier.classes",
        result=result,
        effects=listed,
        costliest=next((each for each in listed if each.saves > each.noise), None),
        least=LEAST_SAVING,
        target=target_percent,
        points=_points,
    )


def target_percent(target: float, digits: int = DIGITS[-1]) -> str:
    """Return a target in percent with the digits it has, a dash where it is undefined."""
    if math.isnan(target):
        return "-"
    text = f"{100 * target:.{digits}g}"
    return f"{text} %" if "." in text or "e" in text else f"{text}.0 %"


def point_rows(result: TargetFrontier) -> list[dict[str, float | str]]:
    """Return a row for each point and class, and one for all of them, held-out rows first."""
    rows: list[dict[str, float | str]] = []
    able = {each.target: each for each in result.certifiable}
    for point in result.points:
        held, fitted = point.held_out, point.fitted
        start: dict[str, float | str] = {"sweep": point.swept or ALL, "target": point.target}
        whole = {
            **_cells(held, held.overall_risk, held.overall_risk_band),
            "fit_abstention": fitted.abstention_rate,
            "fit_risk": fitted.overall_risk,
            "empty_rate": held.empty_rate,
            "n_silent": len(point.silent),
        }
        at = able.get(point.target) if point.swept is None else None
        if at is not None:
            whole |= {"certifiable_chance": at.chance, "certifiable_abstention": at.abstention_rate}
        rows.append({**start, "class": ALL, **whole})
        for name, each in held.by_class.items():
            fit = fitted.by_class[name]
            cells = _cells(each, each.risk, each.risk_band)
            cells |= {"fit_abstention": fit.abstention_rate, "fit_risk": fit.risk}
            rows.append({**start, "class": name, **cells})
    return rows


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


def metrics(result: TargetFrontier) -> dict[str, float]:
    """Return what is logged as metrics: the chosen targets, and what can be certified."""
    chosen, at = result.chosen, _at_chosen(result)
    values = {
        **_part_metrics(chosen.held_out, result.classes, ""),
        **_part_metrics(chosen.fitted, result.classes, "fit_"),
        "fit_loss": chosen.loss,
        "certifiable_chance": at.chance,
        "certifiable_abstention_rate": at.abstention_rate,
    }
    lowest = least_certifiable(result)
    if lowest is not None:
        values["certifiable_target"] = lowest.target
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


def least_certifiable(result: TargetFrontier) -> Certifiable | None:
    """Return the lowest target that is predicted to be certified, if any is."""
    able = [each for each in result.certifiable if not math.isnan(each.abstention_rate)]
    return min(able, key=lambda each: each.target, default=None)


def _at_chosen(result: TargetFrontier) -> Certifiable:
    return next(each for each in result.certifiable if each.target == result.reference)


def target_rows(result: TargetFrontier) -> list[tuple[str, ...]]:
    """Return a header and a row for each target with a prediction, all targets moving together."""
    first, *others = TARGET_HEADER
    rows: list[tuple[str, ...]] = [(f"{first} of most" if _unequal(result) else first, *others)]
    able = {each.target: each for each in result.certifiable}
    for point in result.joint:
        if point.target not in able:
            continue
        held, at = point.held_out, able[point.target]
        mark = " *" if point.target == result.reference else ""
        low, high = held.abstention_band
        rows.append(
            (
                f"{target_percent(point.target)}{mark}",
                percent(held.abstention_rate),
                f"{100 * low:.1f} - {100 * high:.1f} %",
                percent(held.overall_risk),
                str(len(point.silent)),
                chance_percent(at.chance),
                percent(at.abstention_rate),
            )
        )
    return rows


def sentences(result: TargetFrontier) -> list[str]:
    """Return the answer in a few sentences."""
    chosen = say("frontier.chosen", result=result, targets=_target_words(result))
    return [chosen, certify_sentence(result), *class_sentences(result)]


def summary(result: TargetFrontier, uri: str, rows_used: str, where: str) -> Summary:
    """Return what is printed and noted of a frontier."""
    verdict, *others = sentences(result)
    return Summary(
        verdict=verdict,
        sentences=tuple(others),
        tables=tuple(TextTable(rows=tuple(rows(result))) for rows in (target_rows, class_rows)),
        legend=tuple(say_each("frontier.legend", result=result, others=_proportions(result))),
        notes=(f"{uri}: {say('frontier.rows', result=result)}", rows_used),
        where=where,
    )


def _target_words(result: TargetFrontier) -> str:
    """Return the chosen targets in a few words."""
    others = {n: t for n, t in result.targets.items() if t != result.reference}
    words = [target_percent(result.reference)]
    words += [f"{clipped(name)} {target_percent(t)}" for name, t in list(others.items())[:3]]
    if result.overall_target is not None:
        words.append(f"overall {target_percent(result.overall_target)}")
    return ", ".join(words) + (" and others" if len(others) > 3 else "")


def _proportions(result: TargetFrontier) -> list[str]:
    """Return the targets that differ from the one that stands for all, as multiples of it."""
    if not _unequal(result):
        return []
    named = {clipped(n): t for n, t in result.targets.items() if t != result.reference}
    if result.overall_target is not None:
        named["the overall target"] = result.overall_target
    return [f"{name} {target / result.reference:.3g} times" for name, target in named.items()]


def certify_sentence(result: TargetFrontier) -> str:
    """Return in a sentence which targets are predicted to be certifiable."""
    lowest, at = least_certifiable(result), _at_chosen(result)
    values = {"target": target_percent, "least_groups": LEAST_GROUPS}
    return say("frontier.certify", result=result, lowest=lowest, at=at, **values)


def frontier_figure(result: TargetFrontier, name: str) -> Figure:
    """Return abstention against target, all targets moving together."""
    rows, groups = result.n_fitted + result.n_held_out, result.n_groups
    title = f"{figures.short(name)}: which targets can be afforded, by {rows:,} rows"
    title += "" if groups is None else f" in {groups:,} groups"
    figure, axes = figures.new_figure((8.5, 5), title)
    targets = [100 * point.target for point in result.joint]
    held = [100 * point.held_out.abstention_rate for point in result.joint]
    bands = np.array([point.held_out.abstention_band for point in result.joint]) * 100
    axes.fill_between(targets, bands[:, 0], bands[:, 1], color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(targets, held, color=BLUE, marker="o", markersize=3, label="held-out rows, with band")
    fitted = [100 * point.fitted.abstention_rate for point in result.joint]
    axes.plot(targets, fitted, "--", color=BLACK, linewidth=1, label="rows of the fit")
    certified = certifiable_curve(result)
    if certified:
        last = max(targets[-1], certified[-1][0]), certified[-1][1]
        x, y = zip(*certified, last, strict=True)
        words = "predicted to be certifiable"
        axes.step(x, y, where="post", color=ORANGE, linewidth=2, label=words)
    first = min(certified[0][0] if certified else targets[-1], targets[-1])
    if first > targets[0]:
        axes.axvspan(targets[0], first, color=GREY, alpha=0.25, linewidth=0)
        middle, words = math.sqrt(targets[0] * first), "not predicted to\nbe certifiable"
        axes.annotate(words, (middle, 2), ha="center", va="bottom", fontsize=8)
    _scale(axes, targets, result.reference)
    axes.set(ylim=(0, 100), xlabel=_target_label(result), ylabel="rows that abstain, %")
    axes.grid(axis="y", color=GREY, linewidth=0.5, alpha=0.6)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def certifiable_curve(result: TargetFrontier) -> list[tuple[float, float]]:
    """Return (target, abstention) in percent: what certifying a target costs, least first."""
    able = sorted(
        (100 * each.target, 100 * each.abstention_rate)
        for each in result.certifiable
        if not math.isnan(each.abstention_rate)
    )
    curve: list[tuple[float, float]] = []
    for target, abstention in able:
        if not curve or abstention < curve[-1][1]:
            curve.append((target, abstention))
    return curve


def class_figure(result: TargetFrontier, name: str) -> Figure:
    """Return how often the rows of each class abstain, all targets moving together."""
    now = result.chosen.held_out.by_class
    names = list(result.classes)
    if len(names) > MOST_CLASSES:
        names = sorted(names, key=lambda each: now[each].abstention_rate, reverse=True)
        names = names[:MOST_CLASSES]
    some = "" if len(names) == len(result.classes) else f", the {len(names)} that abstain most"
    short, points, chosen = figures.short, result.joint, result.reference
    return _small_figures(
        [(each, short(each, LONGEST_PANEL), points, chosen) for each in names],
        _target_label(result),
        f"{short(name)}: abstention by class{some}",
        band_of_class=True,
    )


def sweep_figure(result: TargetFrontier, name: str) -> Figure | None:
    """Return what the target of one class at a time costs; None where no class has a target."""
    listed = effects(result)[:MOST_SWEPT]
    if not listed:
        return None
    some = f", {len(listed)} of {len(result.targets)} classes" * (len(listed) < len(result.targets))
    panels = []
    for each in listed:
        saves = f"{target_percent(each.looser)} saves {_points(each.saves)} points"
        title = f"{figures.short(each.name, LONGEST_PANEL)}\n"
        title += "" if math.isnan(each.saves) else saves
        panels.append((each.name, title, result.of(each.name), each.target))
    return _small_figures(
        panels,
        "target of this class alone, the others as chosen, %",
        f"{figures.short(name)}: one class at a time{some}",
        band_of_class=False,
    )


def _small_figures(
    drawn: Sequence[Panel], label: str, title: str, *, band_of_class: bool
) -> Figure:
    """Return a panel a class: abstention of its rows and of all, one of them with its band."""
    across = 3 if len(drawn) in {5, 6, 9} else min(4, len(drawn))
    down = math.ceil(len(drawn) / across)
    size = 2.4 * max(across, 2) + 0.6, 1.9 + 1.2 / down
    figure, every = figures.panels(len(drawn), across, size, title)
    for axes, (name, heading, points, chosen) in zip(every, drawn, strict=True):
        targets = [100 * point.target for point in points]
        for rates, colour, word, banded in (
            ([p.held_out.by_class[name] for p in points], ORANGE, "rows of the class", True),
            ([p.held_out for p in points], BLUE, "all rows", False),
        ):
            with_band = banded == band_of_class
            if with_band:
                bands = 100 * np.array([rate.abstention_band for rate in rates])
                axes.fill_between(targets, *bands.T, color=colour, alpha=0.2, linewidth=0)
            values = [100 * rate.abstention_rate for rate in rates]
            words = f"{word}, with band" if with_band else word
            axes.plot(targets, values, color=colour, linewidth=1.2, label=words)
        axes.set_title(heading, fontsize=9 if band_of_class else 8)
        _scale(axes, targets, chosen)
    highest = max(axes.dataLim.y1 for axes in every)
    for axes in every:
        axes.set_ylim(0, min(10 * math.ceil(highest / 10 + 0.2), 100))
    figure.supylabel("held-out rows that abstain, %", fontsize=9)
    figures.legend(figure, every[:1], fontsize=8, title=label, title_fontsize=9)
    return figure


def _scale(axes: Axes, targets: Sequence[float], chosen: float) -> None:
    """Draw targets in even proportions, with plain numbers, and mark the chosen one."""
    axes.axvline(100 * chosen, color=GREEN, linewidth=1.2, linestyle=":", label="chosen target")
    axes.set_xscale("log")
    axes.set_xlim(targets[0], targets[-1])
    inside = [tick for tick in TICKS if targets[0] <= tick <= targets[-1]]
    axes.set_xticks(inside or [targets[0], targets[-1]])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    figures.plain(axes)


def _unequal(result: TargetFrontier) -> bool:
    """Return whether targets differ, so that one stands for all."""
    others = any(target != result.reference for target in result.targets.values())
    return others or (result.overall_target is not None and bool(result.targets))


def _target_label(result: TargetFrontier) -> str:
    if _unequal(result):
        return "target of most classes, the others in proportion, %"
    return "target of every class, %"
