"""Reports: what sets do on labelled rows, as rates and bounds and as counts for a reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from scrib_mlflow.core import counts, inputs
from scrib_mlflow.core.bounds import risk_upper, risk_upper_kl
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.groups import count_groups, effective_counts, sum_groups
from scrib_mlflow.core.inputs import NAN, Bools, Floats, Ints, Labels
from scrib_mlflow.core.rules import (
    Fit,
    OptimalRule,
    Rule,
    ThresholdRule,
    name_classes,
    predict_rows,
)

Band = tuple[float, float]
MOST_POINTS = 200  # of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """The rows of one class, or of several together. Counts are weights where rows are weighted."""

    n: int | float
    n_certain: int | float
    n_wrong: int | float
    risk: float  # NaN without certain rows
    risk_upper: float  # exact; NaN where rows are weighted
    risk_upper_kl: float  # the paper's Theorem 4.2; NaN where rows are weighted
    miscoverage: float
    abstention_rate: float
    top1_risk: float = NAN  # wrong among all rows if the class with the highest score were answered
    top1_risk_certain: float = NAN  # the same among the certain rows
    n_named: int | float = 0  # abstentions that name candidates: all but those without scores
    candidate_coverage: float = NAN  # how often the candidates of these hold the true class


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """Sets on labelled rows."""

    classes: tuple[str, ...]
    n: int | float
    n_certain: int | float
    n_wrong: int | float
    abstention_rate: float
    chance_ambiguity: float
    size_ambiguity: float
    empty_rate: float
    overall_risk: float
    overall_risk_upper: float
    confidence: float
    by_class: dict[str, ClassReport]
    overall_top1_risk: float = NAN  # as by class
    overall_top1_risk_certain: float = NAN
    candidate_coverage: float = NAN  # as by class; NaN where nothing abstains
    mean_candidates: float = NAN  # of abstentions that have any
    by_risk_group: dict[str, ClassReport] = field(default_factory=dict)  # classes with one target


class Top1(NamedTuple):
    """The baseline: rows whose highest score is that of another class, as weights."""

    wrong: Floats  # (k,)
    wrong_certain: Floats  # (k,) of certain rows


class Named(NamedTuple):
    """The abstentions that name candidates, as weights; rows without scores name none."""

    rows: Floats  # (k,) by true class
    held: Floats  # (k,) of these, with the true class among the candidates
    size: float  # how many candidates they name together


def evaluate_sets(
    scores: ArrayLike,
    labels: ArrayLike,
    rule: Fit | Rule | Sequence[float],
    *,
    confidence: float = 0.95,
    classes: Sequence[object] | None = None,
    sample_weight: ArrayLike | None = None,
    trust: ArrayLike | None = None,
) -> SetReport:
    """Measure a rule on labelled rows.

    The bounds hold for a rule that was fixed before these rows were looked at; on the rows of its
    own fit they prove nothing.

    Parameters
    ----------
    scores : (n, k) array
    labels : (n,) or (n, k) array
        Class names or indices, or soft labels.
    rule : Fit, Rule or sequence of k floats
    confidence : float
        Of each upper bound by itself.
    classes : sequence, optional
        Class names in column order; those of the fit, or the column numbers.
    sample_weight : (n,) array, optional
        With weights that are not 0 or 1, and with soft labels, counts are no longer binomial:
        bounds are NaN then.
    trust : (n,) array, optional
        For a selective rule that was fitted on trust.

    Returns
    -------
    SetReport
    """
    inputs.as_number("confidence", confidence, low=0, high=1)
    rows, sets = predict_rows(
        scores, labels, rule, classes=classes, sample_weight=sample_weight, trust=trust
    )
    top1 = named = None
    if len(rows.labels):
        certain = np.count_nonzero(sets, axis=1) == 1
        top1 = count_top1(rows.scores, rows.labels, certain, rows.weights)
        own = getattr(rule, "rule", rule)
        if isinstance(own, ThresholdRule | OptimalRule):
            candidates = name_classes(own, rows.scores)
            named = count_named(candidates, rows.labels, certain, rows.weights)
    return report_counts(
        counts.count_rows(sets, rows),
        rows.classes,
        confidence,
        counted=rows.counted,
        top1=top1,
        named=named,
    )


def count_top1(scores: Floats, labels: Labels, certain: Bools, weights: Floats) -> Top1:
    """Count where top-1 is wrong; it is, too, where a row has no scores."""
    wrong = (scores.argmax(axis=1) != labels) | np.isnan(scores).all(axis=1)
    k = scores.shape[1]
    counted = (np.bincount(labels[of], weights[of], k) for of in (wrong, wrong & certain))
    return Top1(*(each.astype(np.float64) for each in counted))


def count_named(candidates: Bools, labels: Labels, certain: Bools, weights: Floats) -> Named:
    """Count the abstentions whose candidates hold the true class, and their candidates."""
    size = np.count_nonzero(candidates, axis=1)
    open_rows = ~certain & (size > 0)
    held = open_rows & candidates[np.arange(len(labels)), labels]
    k = candidates.shape[1]
    rows, kept = (
        np.bincount(labels[of], weights[of], k).astype(np.float64) for of in (open_rows, held)
    )
    return Named(rows, kept, float(np.sum(size[open_rows] * weights[open_rows])))


def report_counts(
    counts: Counts,
    classes: tuple[str, ...],
    confidence: float,
    *,
    counted: bool,
    top1: Top1 | None = None,
    named: Named | None = None,
    risk_groups: Mapping[str, Sequence[str]] | None = None,  # classes that count together, by name
) -> SetReport:
    """Return rates, risks and bounds; the bounds are NaN unless every row is `counted` as one."""
    number: Callable[[float], float] = round if counted else float
    total = counts.members.sum()
    groups = [[classes.index(name) for name in names] for names in (risk_groups or {}).values()]
    unknown = np.full(len(classes), NAN)
    members, certain, wrong, missed, top1_wrong, top1_certain, asked, held = (
        np.concatenate([values, [values[of].sum() for of in groups], [values.sum()]])
        for values in (
            *(counts.members, counts.certain, counts.wrong, counts.missed),
            *(top1 or (unknown, unknown)),
            *((unknown, unknown) if named is None else (named.rows, named.held)),
        )
    )
    unbounded = np.full(len(wrong), NAN)
    exact = risk_upper(wrong, certain, confidence) if counted else unbounded
    chernoff = risk_upper_kl(wrong, certain, confidence) if counted else unbounded
    reports = {
        name: ClassReport(
            n=number(members[j]),
            n_certain=number(certain[j]),
            n_wrong=number(wrong[j]),
            risk=_rate(wrong[j], certain[j]),
            risk_upper=float(exact[j]),
            risk_upper_kl=float(chernoff[j]),
            miscoverage=_rate(missed[j], members[j]),
            abstention_rate=_rate(members[j] - certain[j], members[j]),
            top1_risk=_rate(top1_wrong[j], members[j]),
            top1_risk_certain=_rate(top1_certain[j], certain[j]),
            n_named=number(asked[j]) if named is not None else 0,
            candidate_coverage=_rate(held[j], asked[j]),
        )
        for j, name in enumerate((*classes, *(risk_groups or {})))
    }
    return SetReport(
        classes=classes,
        n=number(total),
        n_certain=number(counts.all_certain),
        n_wrong=number(wrong[-1]),
        abstention_rate=_rate(total - counts.all_certain, total),
        chance_ambiguity=_rate(total - counts.all_certain - counts.all_empty, total),
        size_ambiguity=_rate(counts.all_size, total),
        empty_rate=_rate(counts.all_empty, total),
        overall_risk=_rate(wrong[-1], counts.all_certain),
        overall_risk_upper=float(exact[-1]),
        confidence=float(confidence),
        by_class={name: reports[name] for name in classes},
        overall_top1_risk=_rate(top1_wrong[-1], total),
        overall_top1_risk_certain=_rate(top1_certain[-1], counts.all_certain),
        candidate_coverage=_rate(held[-1], asked[-1]),
        mean_candidates=NAN if named is None else _rate(named.size, asked[-1]),
        by_risk_group={name: reports[name] for name in risk_groups or {}},
    )


def rounded_report(report: SetReport) -> SetReport:
    """Return a report whose counts are whole: those of weighted rows are not."""

    def whole(part: ClassReport) -> ClassReport:
        return replace(
            part,
            n=round(part.n),
            n_certain=round(part.n_certain),
            n_wrong=round(part.n_wrong),
            n_named=round(part.n_named),
        )

    return replace(
        report,
        n=round(report.n),
        n_certain=round(report.n_certain),
        n_wrong=round(report.n_wrong),
        by_class={name: whole(part) for name, part in report.by_class.items()},
        by_risk_group={name: whole(part) for name, part in report.by_risk_group.items()},
    )


def _rate(part: float, whole: float) -> float:
    """Return part / whole, NaN where there is nothing."""
    return max(float(part / whole), 0.0) if whole > 0 else NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRates:
    """The rows of one class; bands are NaN on rows of the fit."""

    n: int
    n_certain: int
    n_wrong: int
    abstention_rate: float
    abstention_band: Band
    risk: float  # NaN without certain rows
    risk_band: Band


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRates:
    """All rows of a part, and those of some classes."""

    n: int
    n_certain: int
    n_wrong: int
    abstention_rate: float
    abstention_band: Band
    empty_rate: float
    overall_risk: float  # NaN where nothing is certain
    overall_risk_band: Band
    by_class: dict[str, ClassRates]


def measure_part(
    sets: Bools,  # (n, k)
    labels: NDArray[np.int32],  # (n,)
    classes: Sequence[str],
    shown: Sequence[int],  # the classes to tell apart
    *,
    confidence: float | None,  # None: no bands
    groups: Ints | None = None,  # (n,) codes from 0
) -> PartRates:
    """Measure sets on labelled rows."""
    certain, wrong = counts.certain_and_wrong(sets, labels)
    members = [labels == j for j in shown] + [np.ones(len(sets), dtype=np.bool_)]
    abstains = _rates(members, ~certain, confidence, groups)
    risks = _rates([each & certain for each in members], wrong, confidence, groups)
    both = zip(abstains, risks, strict=True)
    *by_class, overall = [
        ClassRates(
            n=n,
            n_certain=n_certain,
            n_wrong=n_wrong,
            abstention_rate=rate,
            abstention_band=band,
            risk=risk,
            risk_band=risk_band,
        )
        for (n, _, rate, band), (n_certain, n_wrong, risk, risk_band) in both
    ]
    return PartRates(
        n=overall.n,
        n_certain=overall.n_certain,
        n_wrong=overall.n_wrong,
        abstention_rate=overall.abstention_rate,
        abstention_band=overall.abstention_band,
        empty_rate=float(np.mean(~sets.any(axis=1))),
        overall_risk=overall.risk,
        overall_risk_band=overall.risk_band,
        by_class={classes[j]: rates for j, rates in zip(shown, by_class, strict=True)},
    )


def _rates(
    among: Sequence[Bools], happens: Bools, confidence: float | None, groups: Ints | None
) -> list[tuple[int, int, float, Band]]:
    """Return of rows of several kinds their number, and how often something happens among them."""
    n = np.array([np.count_nonzero(rows) for rows in among])
    k = np.array([np.count_nonzero(rows & happens) for rows in among])
    bands = [(NAN, NAN)] * len(n)
    if confidence is not None:
        worth_n, worth_k = n.astype(np.float64), k.astype(np.float64)
        if groups is not None:
            sums = sum_groups(count_groups(groups, happens, among))
            worth_n, worth_k = effective_counts(sums, (1 - confidence) / 2)
        bands = two_sided(worth_k, worth_n, confidence)
    return [
        (int(a), int(b), float(b / a) if a else NAN, band)
        for a, b, band in zip(n, k, bands, strict=True)
    ]


def two_sided(k: Floats, n: Floats, confidence: float) -> list[Band]:
    """Return exact bands of a rate; all of 0 to 1 without rows."""
    tail = (1 - confidence) / 2
    low = special.betaincinv(np.where(k > 0, k, 1.0), n - k + 1, tail)
    low, high = np.where(k > 0, low, 0.0), risk_upper(k, n, 1 - tail)
    return list(zip(low.tolist(), high.tolist(), strict=True))


class Answers(NamedTuple):
    """Labelled rows, with the scores and the set of each."""

    scores: Floats  # (n, k) NaN in rows that could not be scored
    labels: NDArray[np.int32]  # (n,)
    sets: Bools  # (n, k)
    named: Bools  # (n, k) the classes that each answer names as candidates


class SetCount(NamedTuple):
    """One set, and how often it occurs."""

    members: tuple[int, ...]  # class indices
    n: int
    n_held: float  # rows whose true class is a member; NaN where nothing tells


class RiskCoverage(NamedTuple):
    """What plain top-1 would risk if it answered the rows with the highest scores only."""

    coverage: tuple[float, ...]  # share of rows that are answered, rising
    risk: tuple[float, ...]  # wrong among them


def valid_rows(answers: Answers) -> Bools:
    """Return which rows could be scored."""
    return np.asarray(np.isfinite(answers.scores).all(axis=1))


def confusion_counts(answers: Answers) -> Ints:
    """Return (k, k + 1) rows by true class and answer; the last column counts abstentions."""
    k = answers.sets.shape[1]
    certain = np.count_nonzero(answers.sets, axis=1) == 1
    answer = np.where(certain, answers.sets.argmax(axis=1), k)
    code = answers.labels.astype(np.int64) * (k + 1) + answer
    return np.bincount(code, minlength=k * (k + 1)).reshape(k, k + 1)


def outcome_counts(answers: Answers) -> Ints:
    """Return (k, 4) rows by true class that are right, wrong, ambiguous and empty."""
    n, k = answers.sets.shape
    sizes = np.count_nonzero(answers.sets, axis=1)
    wrong = ~answers.sets[np.arange(n), answers.labels]
    outcome = np.where(sizes == 1, wrong, np.where(sizes == 0, 3, 2))
    code = answers.labels.astype(np.int64) * 4 + outcome
    return np.bincount(code, minlength=4 * k).reshape(k, 4)


def count_by_set(answers: Answers, others: Bools | None = None) -> list[SetCount]:
    """Return every set that occurs, the most frequent first, the first to occur of equal ones.

    Sets of other rows (m, k), without labels, are counted in place of these where there are any:
    they hold the true class as often as the same sets here.
    """
    first, code, count = _distinct(np.packbits(answers.sets, axis=1))
    n = len(answers.labels)
    held = np.bincount(code, answers.sets[np.arange(n), answers.labels], len(count))
    found = [
        SetCount(_members(answers.sets[first[i]]), int(count[i]), float(held[i]))
        for i in np.lexsort((first, -count))
    ]
    if others is None:
        return found
    rates = {each.members: each.n_held / each.n for each in found}
    first, _, count = _distinct(np.packbits(others, axis=1))
    named = [(_members(others[first[i]]), int(count[i])) for i in np.lexsort((first, -count))]
    return [SetCount(members, n, n * rates.get(members, math.nan)) for members, n in named]


def _members(row: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(row).tolist())


def risk_coverage(answers: Answers) -> RiskCoverage:
    """Return the risk of the top class among ever more rows, by falling highest score.

    Rows with equal scores are answered together: no threshold tells them apart.
    """
    valid = valid_rows(answers)
    scores, labels = answers.scores[valid], answers.labels[valid]
    if not len(scores):
        return RiskCoverage((), ())
    highest = scores.max(axis=1)
    order = np.argsort(-highest, kind="stable")
    wrong = np.cumsum(scores.argmax(axis=1)[order] != labels[order])
    ranked = highest[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    if len(ends) > MOST_POINTS:
        wanted = np.linspace(ends[0], ends[-1], MOST_POINTS)
        ends = np.unique(ends[np.searchsorted(ends, wanted)])
    answered = ends + 1
    coverage, risk = answered / len(answers.labels), wrong[ends] / answered
    return RiskCoverage(tuple(coverage.tolist()), tuple(risk.tolist()))


def own_point(answers: Answers) -> tuple[float, float]:
    """Return the share of rows that the sets answer, and the risk of these answers."""
    certain, wrong = counts.certain_and_wrong(answers.sets, answers.labels)
    n_certain = int(np.count_nonzero(certain))
    risk = np.count_nonzero(wrong) / n_certain if n_certain else NAN
    return n_certain / len(certain), risk


def choose_examples(answers: Answers, most: int) -> NDArray[np.intp]:
    """Return rows that abstain, of as many kinds as there is room for, the frequent ones first.

    A kind is a set together with a true class; of each its first row comes before any second.
    """
    abstains = np.count_nonzero(answers.sets, axis=1) != 1
    rows = np.flatnonzero(abstains & valid_rows(answers))
    if not len(rows):
        return rows
    members = np.packbits(answers.sets[rows], axis=1)
    label = answers.labels[rows].astype(np.int32)[:, None].view(np.uint8)
    _, code, count = _distinct(np.hstack([members, label]))
    return rows[np.lexsort((rows, -count[code], inputs.count_up(code)))[:most]]


def _distinct(
    rows: NDArray[np.uint8],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return where each distinct row is first, which one every row is, and how many there are."""
    n, width = rows.shape
    whole: NDArray[Any]
    if width <= 8:  # numbers are sorted many times faster than bytes
        padded = np.zeros((n, 8), dtype=np.uint8)
        padded[:, :width] = rows
        whole = padded.view(np.uint64).ravel()
    else:
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, width))).ravel()
    _, first, code, count = np.unique(
        whole, return_index=True, return_inverse=True, return_counts=True
    )
    return first, code, count
