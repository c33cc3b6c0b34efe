"""Methods side by side: fitted on random halves of the rows, measured on the others.

A class's excess is how far its risk on the measured rows is above its target, never below 0. A
silent class has no risk: its excess counts as 0, so the number of silent classes stands beside it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow import errors
from scrib_mlflow.core import inputs
from scrib_mlflow.core.inputs import NAN, Bools, Floats, Ints, Labelled, Progress
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.reports import evaluate_sets
from scrib_mlflow.core.rules import Fit
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.studies import baselines
from scrib_mlflow.core.studies.baselines import LABEL, OPTIMAL, SCRIB, SGR, SHARED, TOP
from scrib_mlflow.core.studies.curves import Curve, draw_curves
from scrib_mlflow.core.targets import (
    AnswerName,
    Target,
    Targets,
    as_written,
    known_classes,
    make_constraints,
)

TRIES = 100  # to halve groups so that every class is in both halves
MOST_LISTED = 10_000  # splits that are looked at one by one, to see how many there are
METRICS = (  # of a trial, and means over trials
    "abstention_rate",
    "size_ambiguity",
    "empty_rate",
    "overall_risk",
    "mean_excess",
    "worst_excess",
    "n_silent",
    "fit_seconds_ratio",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One method on the measured half of one random split."""

    method: str
    repeat: int
    abstention_rate: float
    size_ambiguity: float
    empty_rate: float
    overall_risk: float  # NaN where nothing is certain
    mean_excess: float  # over the classes that have a target
    worst_excess: float
    n_silent: int  # classes with a target and no certain row; their excess counts as 0
    excess: dict[str, float]  # by class
    risk: dict[str, float] = field(default_factory=dict)  # by class; NaN where it is silent
    fit_seconds_ratio: float = field(compare=False)  # to SCRIB's fit of the same rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Methods on the same random splits of the same rows."""

    classes: tuple[str, ...]
    targets: dict[str, float]  # of the classes that have one enforced
    overall_target: float | None
    sgr_target: float  # the overall target, or the mean of the targets, weighted by class rows
    n_rows: int
    n_groups: int | None  # that are halved in place of rows
    repeats: int
    methods: tuple[str, ...]
    skipped: dict[str, str]  # methods that these scores do not allow, and why
    trials: tuple[Trial, ...]
    curves: tuple[tuple[Curve, ...], ...] = ()  # of the first repeats, a curve a method
    all_splits: bool = False  # whether no other exists: repeats may be fewer than asked

    def of(self, method: str) -> tuple[Trial, ...]:
        """Return the trials of a method."""
        return tuple(trial for trial in self.trials if trial.method == method)

    def curves_of(self, method: str) -> tuple[Curve, ...]:
        """Return the curves of a method, none where it has no target of the overall risk."""
        return tuple(curve for drawn in self.curves for curve in drawn if curve.method == method)

    def means(self, method: str) -> dict[str, float]:
        """Return the mean of each metric over the trials and curves where it is defined."""
        trials, curves = self.of(method), self.curves_of(method)
        means = {name: _mean([getattr(trial, name) for trial in trials]) for name in METRICS}
        if curves:
            means["auc"] = _mean([curve.auc for curve in curves])
            means["overall_rmse"] = _mean([curve.rmse for curve in curves])
        return means


def compare_rules(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target = 0.1,
    *,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    waive: Sequence[str] = (),
    answers: AnswerName = "any",
    trust: Mapping[str, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    repeats: int = 10,
    curves: int = 0,
    sgr_delta: float = 0.05,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare SCRIB with other methods on random halves of the same rows.

    Parameters
    ----------
    scores, labels, risk_targets, classes, overall_target, waive
        As for `fit_thresholds`; labels are hard. LABEL takes the risk targets for mis-coverage
        targets. SGR takes the overall target, or where there is none the mean of the risk targets,
        weighted by the rows of the classes.
    answers : {"any", "top"}
        Of SCRIB and of the optimal rule, apart from curves: whether only the class with the highest
        score may be answered.
    trust : mapping, optional
        Further numbers that say how sure a row is, (n,) each, by name: SGR is fitted on each.
    groups : (n,) array, optional
        What rows belong together; a group is never split.
    repeats : int
        Random splits, no two alike; all that exist where these are fewer.
    curves : int
        For how many of them, the first, to draw accuracy-ambiguity curves as `draw_curves` does.
    sgr_delta : float
        How likely SGR may miss its target, apart from curves.
    seed : int
        Of the splits and of the searches.
    progress : callable, optional
        Takes the numbers of the repeats and yields them, saying how far the work is.

    Returns
    -------
    Comparison
        The optimal rule is skipped, with the reason, where scores are no probabilities.
    """
    rows = inputs.check_rows(scores, labels, classes, hard=True)
    if repeats < 1:
        raise errors.ScribError(f"repeats is {repeats}, but must be 1 or more")
    all_targets = Targets(risk_targets=risk_targets, overall_target=overall_target, waive=waive)
    constraints = make_constraints(all_targets, rows.classes)
    targets = {c.name: c.target for c in constraints if len(c.classes) == 1}
    if not targets:
        raise errors.InvalidTargetsError(
            "every class is waived, so no risk can be above its target; leave one enforced"
        )
    sizes = dict(zip(rows.classes, rows.class_weight().tolist(), strict=True))
    weighted = sum(sizes[name] * target for name, target in targets.items())
    sgr_target = overall_target or weighted / max(sum(sizes[name] for name in targets), 1.0)
    common: dict[str, Any] = {
        "classes": rows.classes,
        "waive": [rows.classes[j] for j in known_classes("waive", waive, rows.classes)],
    }
    risks = {"risk_targets": risk_targets, "overall_target": overall_target, **common}
    searched = {**risks, "seed": inputs.check_seed(seed)}
    free = [name for name in rows.classes if name not in targets]
    methods: dict[str, Callable[..., Fit]] = {  # SCRIB first: its time is the unit of the others
        SCRIB: partial(fit_thresholds, answers=answers, **searched),
        OPTIMAL: partial(fit_optimal, answers=answers, **searched),
        SHARED: partial(baselines.fit_shared_threshold, **searched),
        SGR: partial(baselines.fit_sgr, overall_target=sgr_target, delta=sgr_delta, **common),
        LABEL: partial(
            baselines.fit_label,
            miscoverage_targets=as_written(targets),
            classes=rows.classes,
            waive=free,
        ),
        TOP: partial(baselines.fit_top1, **risks),
    }
    ranks = {
        name: inputs.check_trust(each, len(rows.scores)) for name, each in (trust or {}).items()
    }
    methods |= {f"{SGR} on {name}": methods[SGR] for name in ranks}
    skipped = {}
    try:
        inputs.check_probabilities(rows.scores)
    except errors.InvalidScoresError as error:
        skipped[OPTIMAL] = str(error)
        del methods[OPTIMAL]
    codes = None if groups is None else group_codes(groups, len(rows.scores))
    needed = [j for j, name in enumerate(rows.classes) if name not in common["waive"]]
    known = inputs.labels_for(rows.labels, rows.classes)
    check_halves(rows, codes, needed)
    listed = list_splits(rows, codes, needed, 2 * repeats)
    splits = _draw_splits(rows, codes, needed, repeats, seed)
    turns, all_splits = list(range(repeats)), False
    if listed:
        some = np.random.default_rng(seed).permutation(len(listed))[:repeats]
        splits = iter([listed[j] for j in some])
        turns, all_splits = list(range(len(some))), len(listed) <= repeats
    trials: list[Trial] = []
    drawn: list[tuple[Curve, ...]] = []
    for repeat in progress(turns) if progress else turns:
        fitted = next(splits)
        parts = [(rows.scores[of], known[of]) for of in (fitted, ~fitted)]
        trusts = {name: (each[fitted], each[~fitted]) for name, each in ranks.items()}
        if not trials:
            methods[SCRIB](*parts[0])  # the first fit of a process loads kernels
        trials += _try_methods(methods, parts, trusts, targets, repeat)
        if repeat < curves:
            drawn.append(draw_curves(*parts[0], *parts[1], trust=trusts, seed=seed, **common))
    return Comparison(
        classes=rows.classes,
        targets=targets,
        overall_target=overall_target,
        sgr_target=sgr_target,
        n_rows=len(rows.scores),
        n_groups=None if codes is None else int(codes.max()) + 1,
        repeats=len(turns),
        methods=tuple(methods),
        skipped=skipped,
        trials=tuple(trials),
        curves=tuple(drawn),
        all_splits=all_splits,
    )


def _try_methods(
    methods: dict[str, Callable[..., Fit]],
    parts: Sequence[tuple[Floats, NDArray[np.generic]]],  # to fit, and to measure
    trusts: dict[str, tuple[Floats, Floats]],  # of both parts
    targets: dict[str, float],
    repeat: int,
) -> list[Trial]:
    """Return what each method reaches on the rows that are not fitted."""
    trials, scrib_seconds = [], NAN
    by_method = {f"{SGR} on {name}": both for name, both in trusts.items()}
    for name, method in methods.items():
        to_fit, to_measure = by_method.get(name, (None, None))
        started = time.perf_counter()
        fit = method(*parts[0], **({} if to_fit is None else {"trust": to_fit}))
        seconds = time.perf_counter() - started
        scrib_seconds = seconds if name == SCRIB else scrib_seconds
        report = evaluate_sets(*parts[1], fit, trust=to_measure)
        risks = {name: report.by_class[name].risk for name in targets}
        excess = {
            name: 0.0 if math.isnan(risk) else max(risk - targets[name], 0.0)
            for name, risk in risks.items()
        }
        trials.append(
            Trial(
                method=name,
                repeat=repeat,
                abstention_rate=report.abstention_rate,
                size_ambiguity=report.size_ambiguity,
                empty_rate=report.empty_rate,
                overall_risk=report.overall_risk,
                mean_excess=sum(excess.values()) / len(excess),
                worst_excess=max(excess.values()),
                n_silent=sum(math.isnan(risk) for risk in risks.values()),
                excess=excess,
                risk=risks,
                fit_seconds_ratio=seconds / scrib_seconds,
            )
        )
    return trials


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are defined, NaN without one."""
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else NAN


def group_codes(groups: ArrayLike, n: int) -> Ints:
    """Return the group of each row as a number from 0."""
    names = np.asarray(groups)
    if names.shape != (n,):
        raise errors.InvalidDataError(
            f"groups must be one for each of the {n} rows of scores, got shape {names.shape}"
        )
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def halve(
    rows: Labelled,
    groups: Ints | None,  # (n,) from 0
    needed: Sequence[int],  # classes that must be in both halves
    random: np.random.Generator,
) -> Bools:
    """Return which rows are fitted: half of each class, or half of the groups."""
    check_halves(rows, groups, needed)
    if groups is not None:
        return _halve_groups(rows, groups, needed, random)
    fitted = np.zeros(len(rows.labels), dtype=np.bool_)
    for j in np.unique(rows.labels):
        members = random.permutation(np.flatnonzero(rows.labels == j))
        fitted[members[: (len(members) + 1) // 2]] = True
    return fitted


def check_halves(rows: Labelled, groups: Ints | None, needed: Sequence[int]) -> None:
    """Raise where a class cannot be in both halves."""
    what, units = ("row", np.arange(len(rows.labels))) if groups is None else ("group", groups)
    for j in needed:
        count = len(np.unique(units[rows.labels == j]))
        if count < 2:
            raise errors.InvalidLabelsError(
                f"class {rows.classes[j]!r} has {count} {what}{'s' * (count != 1)} among the "
                "fit rows, but needs one to fit and one to measure; add rows of it, or waive it by "
                "name"
            )


def list_splits(
    rows: Labelled, groups: Ints | None, needed: Sequence[int], most: int
) -> list[Bools] | None:
    """Return every split that `halve` can draw; None where there are more than `most`, or many."""
    labels, found = rows.labels, []
    if groups is None:
        members = [np.flatnonzero(labels == j) for j in np.unique(labels)]
        if math.prod(math.comb(len(each), (len(each) + 1) // 2) for each in members) > most:
            return None
        halves = [combinations(each.tolist(), (len(each) + 1) // 2) for each in members]
        chosen = ([row for half in each for row in half] for each in product(*halves))
        return [np.isin(np.arange(len(labels)), each) for each in chosen]
    n = int(groups.max()) + 1
    if math.comb(n, (n + 1) // 2) > MOST_LISTED:
        return None
    held = np.zeros((n, len(rows.classes)), dtype=np.bool_)  # classes of each group
    held[groups, labels] = True
    for half in combinations(range(n), (n + 1) // 2):
        fitted = np.isin(np.arange(n), half)
        if all(held[fitted, j].any() and held[~fitted, j].any() for j in needed):
            found.append(fitted)
        if len(found) > most:
            return None
    return [fitted[groups] for fitted in found]


def _draw_splits(
    rows: Labelled, groups: Ints | None, needed: Sequence[int], repeats: int, seed: int
) -> Iterator[Bools]:
    """Yield random splits, no two alike; there are more than twice as many."""
    seen: set[bytes] = set()
    for repeat in range(repeats):
        random = np.random.default_rng([seed, repeat])
        for _ in range(TRIES):
            fitted = halve(rows, groups, needed, random)
            known = hashlib.blake2b(fitted.tobytes(), digest_size=16).digest()
            if known not in seen:
                break
        seen.add(known)
        yield fitted


def _halve_groups(
    rows: Labelled, groups: Ints, needed: Sequence[int], random: np.random.Generator
) -> Bools:
    """Return the rows of half of the groups, drawn until each class is in both halves."""
    n_groups, lacking = int(groups.max()) + 1, 0
    for _ in range(TRIES):
        fitted = (random.permutation(n_groups) < (n_groups + 1) // 2)[groups]
        both = {*rows.labels[fitted].tolist()} & {*rows.labels[~fitted].tolist()}
        if both.issuperset(needed):
            return fitted
        lacking = next(j for j in needed if j not in both)
    raise errors.InvalidDataError(
        f"of {TRIES} random splits of the {n_groups} groups none has class "
        f"{rows.classes[lacking]!r} in both halves; add groups with rows of it, or waive it by name"
    )
