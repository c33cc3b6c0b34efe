"""Fit softly: a path of rules, from the one most likely to be certified to less abstention.

Soft counts take recalibrated scores in place of labels, so that the noise of labels is not in what
the search minimises: with labels it would pick the rules whose labels are lucky. Each step asks
that every certificate passes with probability Phi(z), z falling. A path proves nothing by itself;
certify rows that it has not seen do, whatever its quality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core import optimal_steps, threshold_steps
from scrib_mlflow.core.blur import blur_scores
from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.checks import as_number, check_scores
from scrib_mlflow.core.doubts import MANY_ROWS, expect_errors
from scrib_mlflow.core.fit import MOST_CERTIFY_ROWS, check_seed, count_threads
from scrib_mlflow.core.groups import check_groups
from scrib_mlflow.core.objective import Ambiguity, Margin, check_ambiguity, check_members
from scrib_mlflow.core.pricing import check_probabilities, own_targets
from scrib_mlflow.core.recalibrate import Recalibration, fit_recalibration, recalibrate
from scrib_mlflow.core.rows import Labelled, check_rows
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule
from scrib_mlflow.core.steps import Candidate, Problem, expect_groups
from scrib_mlflow.core.targets import Constraint, Target, Targets, make_constraints
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError, InvalidTargetsError

Floats = NDArray[np.float64]
RuleName = Literal["thresholds", "optimal"]
NEARLY = 0.002  # the share of power that is given up for a start that abstains less


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule of a path."""

    rule: ThresholdRule | OptimalRule
    margin: float  # z
    power: float  # predicted chance that every claim passes
    abstention_rate: float  # on the rows that drew the path


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Rules in the order in which certify rows are to test them; each abstains less."""

    classes: tuple[str, ...]
    steps: tuple[Step, ...]
    recalibration: Recalibration
    n_rows: int  # that drew it
    seed: int


def draw_path(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target | None = 0.1,
    *,
    rule: RuleName = "thresholds",
    certify_rows: int,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    chance_weight: float = 1.0,
    size_weight: float = 0.0,
    empty_weight: float = 1.0,
    confidence: float = 0.95,
    path_scores: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Draw a path of rules for a fixed-sequence test on rows that are not given here.

    Parameters
    ----------
    scores : (n, k) array
        Of the fit rows. Higher means more of the class; need not sum to one.
    labels : (n,) array
        Class names or indices. They recalibrate the scores; the path is drawn with soft counts.
    risk_targets, overall_target, risk_groups, max_class_abstention, waive : optional
        As of `fit_thresholds`. Risks get a margin for the certificate; caps on abstention do not.
    rule : "thresholds" or "optimal"
        The kind of rule. The optimal one needs scores that are probabilities; ambiguity weights and
        penalties are not for it.
    certify_rows : int
        How many rows the certificate will be computed on.
    classes : sequence, optional
        Class names in column order; without them the column numbers.
    penalty : float or mapping
        What a squared excess costs, by class or group name with a ``"default"``.
    chance_weight, size_weight, empty_weight : float
        What ambiguous sets, members of sets, and empty sets cost.
    confidence : float
        Of the certificate.
    path_scores : (m, k) array, optional
        Scores of further rows without labels, none of them a certify row, that draw the path in
        place of `scores`.
    groups : (n,) array, optional
        Which fit rows belong together. The path then expects that certify rows come in such groups
        too, and that the certificate counts them as fewer.
    sample_weight : (n,) array, optional
        How many rows each fit row stands for, where they are a sample of more; 0 leaves a row out.
        Weights of `path_scores` are 1.
    seed : int
        Of the samples and random starts.
    threads : int, optional
        Threads to use; they never change the result.
    progress : callable, optional
        Wraps an iterable and yields the same, such as ``tqdm.tqdm``.

    Returns
    -------
    Path
        Its `steps` abstain less and less, the first being the most likely to pass.
    """
    rows = check_rows(scores, labels, classes, sample_weight)
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
        max_class_abstention=max_class_abstention,
        waive=waive,
        penalty=penalty,
    )
    constraints = make_constraints(targets, rows.classes)
    weights = Ambiguity(
        chance_weight=chance_weight, size_weight=size_weight, empty_weight=empty_weight
    )
    check_ambiguity(weights, constraints)
    check_rule(rule, weights, penalty)
    _check_path_rows(rows, targets, constraints)
    drawing = _path_scores(rows, path_scores)
    drawn = rows.weights if path_scores is None else np.ones(len(drawing))
    if rule == "optimal":
        check_probabilities(rows.scores)
        check_probabilities(drawing)
    recalibration = fit_recalibration(rows.scores, rows.labels, rows.weights)
    blurred = blur_scores(drawing, recalibration.of, check_seed(seed), drawn)
    counted = np.tile(drawn, len(blurred) // len(drawing))
    problem = Problem(
        scores=drawing,
        rows=_soften(blurred, counted, recalibration, rows.classes),
        weights=counted,
        constraints=constraints,
        ambiguity=weights,
        margin=Margin(
            confidence=as_number("confidence", confidence, low=0, high=1),
            certify_rows=as_number("certify_rows", certify_rows, low=0, high=MOST_CERTIFY_ROWS),
        ),
        seed=check_seed(seed),
    )
    codes = None if groups is None else check_groups(groups, len(rows.kept))[rows.kept]
    found: tuple[Candidate, ...]
    if rule == "optimal":
        own = own_targets(risk_targets)
        if codes is not None:
            pilot = optimal_steps.find_pilot(problem, recalibration, own)
            problem = expect_groups(problem, pilot, rows, codes)
        if certify_rows >= MANY_ROWS:
            pilot = optimal_steps.find_pilot(problem, recalibration, own)
            problem = expect_errors(problem, pilot, rows, recalibration)
        found = optimal_steps.find_candidates(problem, recalibration, own, progress)
    else:
        many = count_threads(threads)
        if codes is not None:
            problem = expect_groups(problem, threshold_steps.find_pilot(problem, many), rows, codes)
        if certify_rows >= MANY_ROWS:
            careful = threshold_steps.find_pilot(problem, many)
            problem = expect_errors(problem, careful, rows, recalibration)
        found = threshold_steps.find_candidates(problem, many, progress)
    return Path(
        classes=rows.classes,
        steps=_order(found),
        recalibration=recalibration,
        n_rows=len(drawing),
        seed=problem.seed,
    )


def check_rule(rule: str, weights: Ambiguity, penalty: Target) -> None:
    """Refuse unknown rules, and what the optimal one would not heed."""
    if rule not in {"thresholds", "optimal"}:
        msg = f"rule is {rule!r}; use 'thresholds' or 'optimal'"
        raise InvalidTargetsError(msg)
    if rule == "optimal" and (weights != Ambiguity() or penalty != Targets().penalty):
        msg = "ambiguity weights and penalties are for thresholds; the optimal rule has none"
        raise InvalidTargetsError(msg)


def _check_path_rows(rows: Labelled, targets: Targets, constraints: tuple[Constraint, ...]) -> None:
    """Refuse labels that cannot recalibrate, absent classes, and targets that claim nothing."""
    if len(rows.soft):
        msg = "labels must be one class a row: the path makes soft labels of the scores itself"
        raise InvalidLabelsError(msg)
    check_members(targets, rows.class_weight(), rows.classes)
    if not any(constraint.kind == "risk" for constraint in constraints):
        msg = "no risk has a target, so there is nothing to certify; give risk_targets"
        raise InvalidTargetsError(msg)


def _path_scores(rows: Labelled, path_scores: ArrayLike | None) -> Floats:
    """Return the scores that draw the path."""
    scores = rows.scores if path_scores is None else check_scores(path_scores)
    if scores.shape[1] != rows.scores.shape[1]:
        msg = (
            f"path_scores have {scores.shape[1]} columns but scores {rows.scores.shape[1]}; "
            "both need one column a class, in the same order"
        )
        raise InvalidScoresError(msg)
    return scores


def _soften(
    scores: Floats, weights: Floats, recalibration: Recalibration, classes: tuple[str, ...]
) -> Labelled:
    """Return rows that are labelled by their recalibrated scores."""
    soft = recalibrate(recalibration, scores)
    soft *= weights[:, None]
    return Labelled(
        scores=scores,
        labels=np.zeros(0, dtype=np.int32),
        soft=soft,
        weights=soft.sum(axis=1),
        classes=classes,
        kept=np.ones(len(scores), dtype=np.bool_),
    )


def _order(found: Sequence[Candidate]) -> tuple[Step, ...]:
    """Return the steps: the likeliest to pass, then those with more power than all that follow."""
    highest = max(candidate.power for candidate in found)
    likely = [candidate for candidate in found if candidate.power >= (1 - NEARLY) * highest]
    start = min(likely, key=lambda c: c.abstention_rate)
    chosen = [start if highest > 0 else max(found, key=lambda c: c.hope)]
    for candidate in sorted(found, key=lambda c: (-c.abstention_rate, -c.power)):
        rate, power = candidate.abstention_rate, candidate.power
        beaten = any(c.abstention_rate <= rate and c.power > power for c in found)
        if rate < chosen[-1].abstention_rate and not beaten:
            chosen.append(candidate)
    return tuple(
        Step(rule=c.rule, margin=c.margin, power=c.power, abstention_rate=c.abstention_rate)
        for c in chosen
    )
