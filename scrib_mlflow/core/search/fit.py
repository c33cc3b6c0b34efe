"""Fit thresholds to targets, and check the result against the rule as it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import inputs, loss
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.counts import Counts, constraint_counts, count_rows
from scrib_mlflow.core.dual import abstention_bound
from scrib_mlflow.core.inputs import MOST_CERTIFY_ROWS, NAN, Floats, Ints
from scrib_mlflow.core.loss import (
    ALL_SIZE,
    ALL_WEIGHT,
    MEMBERS,
    MISSED,
    Ambiguity,
    Margin,
    Objective,
    Problem,
)
from scrib_mlflow.core.rules import Fit, ThresholdRule, make_sets
from scrib_mlflow.core.search.levels import Data, Track, centre, make_data
from scrib_mlflow.core.search.search import Best, Task, plan_effort, search
from scrib_mlflow.core.targets import AnswerName, Target, Targets, known_classes
from scrib_mlflow.errors import InvalidTargetsError, ScribError, SearchMismatchError

TOLERANCE = 1e-9  # of weighted counts, for each unit of weight


@one_blas_thread()
def fit_thresholds(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target | None = 0.1,
    *,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    miscoverage_targets: Target | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    two_sided_penalty: Target = 0.0,
    chance_weight: float = 1.0,
    size_weight: float = 0.0,
    empty_weight: float = 1.0,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    threshold_groups: str | Sequence[str] = "class",
    sample_weight: ArrayLike | None = None,
    confidence: float | None = None,
    certify_rows: int | None = None,
    allow_never: bool = False,
    initial: Sequence[float] | None = None,
    seed: int = 0,
    effort: float = 1.0,
    threads: int | None = None,
) -> Fit:
    """Find the thresholds that keep the targets with the least ambiguity.

    Minimises ``chance_weight P(|H| > 1) + size_weight E|H| + empty_weight P(|H| = 0)`` plus
    ``error_weight P(|H| = 1, wrong)`` plus ``penalty * excess ** 2`` for every target.

    Parameters
    ----------
    scores : (n, k) array
        Higher means more of the class; need not sum to one.
    labels : (n,) array, or (n, k) array
        Class names or indices; or soft labels, the weight of each class in each row.
    risk_targets : float or mapping, optional
        How often each class may be wrong when the set has one member: one number, or numbers by
        class name, with ``"default"`` for the others. None: no class has a target of its own.
    classes : sequence, optional
        Class names in column order; without them the column numbers.
    overall_target : float, optional
        How often a certain row may be wrong, all classes taken together.
    risk_groups : mapping, optional
        Further groups of classes: ``{name: (class names, target)}``.
    miscoverage_targets : float or mapping, optional
        In place of ``risk_targets``: how often the set may lack the true class.
    max_class_abstention : float or mapping, optional
        Caps on how often the rows of a class may abstain.
    waive : sequence of str
        Classes whose own target is not enforced.
    penalty, two_sided_penalty : float or mapping
        What a squared excess costs, and a squared difference both ways; by class or group name
        with a ``"default"``.
    chance_weight, size_weight, empty_weight : float
        What ambiguous sets, members of sets, and empty sets cost.
    error_weight : float
        What a wrong answer costs, that is a certain row whose member is another class; at 0 only
        the targets heed it.
    answers : "top" or "any"
        "top": a row may be answered with the class of its highest score only, the first of equal
        ones, so that answers are never more often wrong than that class; a set of one other class
        gains it and abstains. "any": the paper's, where any class may be answered.
    threshold_groups : "class", "all", or class names
        A threshold for every class; one for all; or one for each class named and one that the
        rest share.
    sample_weight : (n,) array, optional
        Weights of rows; 0 leaves a row out.
    confidence, certify_rows : float and int, optional
        Apply the targets to the exact upper confidence bound that so many certify rows (default:
        as many as here) would give, not to the rate itself.
    allow_never : bool
        Let a threshold rise above all scores, so that its class is never in a set.
    initial : sequence of k floats, optional
        Thresholds to start from, besides the usual starts.
    seed : int
        Of the samples and random starts.
    effort : float
        Multiple of the usual amount of work.
    threads : int, optional
        Threads to use; they never change the result.

    Returns
    -------
    Fit
        With ``rule``, ``thresholds``, ``classes``, ``loss``, how every constraint is kept, the
        losses of all starts, and a bound for calibrated probabilities.
    """
    problem = loss.make_problem(
        inputs.check_rows(scores, labels, classes, sample_weight),
        Targets(
            risk_targets=risk_targets,
            overall_target=overall_target,
            risk_groups=risk_groups,
            miscoverage_targets=miscoverage_targets,
            max_class_abstention=max_class_abstention,
            waive=waive,
            penalty=penalty,
            two_sided_penalty=two_sided_penalty,
        ),
        Ambiguity(
            chance_weight=chance_weight,
            size_weight=size_weight,
            empty_weight=empty_weight,
            error_weight=error_weight,
        ),
        answers,
    )
    rows = problem.rows
    single = _single_thresholds(threshold_groups, rows.classes)
    margin = None
    if confidence is not None:
        size = len(rows.scores) if certify_rows is None else certify_rows
        margin = Margin(
            confidence=inputs.as_number("confidence", confidence, low=0, high=1),
            certify_rows=inputs.as_number("certify_rows", size, low=0, high=MOST_CERTIFY_ROWS),
        )
    elif certify_rows is not None:
        raise InvalidTargetsError(
            f"certify_rows is {certify_rows} without a confidence; add one, such as 0.95"
        )
    task = make_task(
        problem,
        loss.make_objective(problem, margin),
        single=single,
        allow_never=allow_never,
        effort=inputs.as_number("effort", effort, low=0, high=np.inf),
        seed=inputs.check_seed(seed),
    )
    best = search(task, _initial(initial, task.data), inputs.count_threads(threads))
    rule, counts = served_rule(best, task, problem)
    method = "scrib" if len(single) else "scrib-"
    fit = loss.describe_fit(method, rule, problem, task.objective, counts)
    bound = NAN
    usual = replace(Ambiguity(), error_weight=problem.error_weight)  # targets alone make the bound
    plain = problem.ambiguity == usual and {c.kind for c in problem.constraints} == {"risk"}
    if plain and inputs.are_probabilities(rows.scores):  # all that the bound knows of
        bound = abstention_bound(
            rows.scores,
            rows.weights,
            problem.constraints,
            task.seed,
            error_weight=problem.error_weight,
            tops=problem.tops(),
        )
    return replace(fit, start_losses=best.start_losses, abstention_bound=bound, seed=task.seed)


def make_task(
    problem: Problem,
    objective: Objective,
    *,
    single: Ints | None = None,
    allow_never: bool = False,
    effort: float = 1.0,
    seed: int,
) -> Task:
    """Return the search problem; the classes `single`, by default all, have a threshold each."""
    rows, k = problem.rows, len(problem.rows.classes)
    data = make_data(rows, np.arange(k) if single is None else single, problem.answers)
    missed = any(constraint.kind == "miscoverage" for constraint in problem.constraints)
    return Task(
        data=data,
        objective=objective,
        track=Track(size=problem.ambiguity.size_weight > 0, missed=missed),
        allow_never=allow_never,
        effort=plan_effort(len(rows.scores), k, len(data.thresholds), effort),
        seed=seed,
    )


def served_rule(best: Best, task: Task, problem: Problem) -> tuple[ThresholdRule, Counts]:
    """Return the rule of the best thresholds, and what it counts as it is served.

    Raises where the search has counted something else.
    """
    thresholds = centre(task.data, best.thresholds)
    rule = ThresholdRule(thresholds=tuple(thresholds.tolist()), answers=problem.answers)
    counts = count_rows(make_sets(rule, problem.rows.scores), problem.rows)
    served, totals = constraint_counts(counts, problem.constraints)
    searched, searched_totals = best.counts.copy(), best.totals.copy()
    if not task.track.missed:
        searched[:, MISSED] = served[:, MISSED]
    if not task.track.size:
        searched_totals[ALL_SIZE] = totals[ALL_SIZE]
    tolerance = 0.0 if problem.rows.counted else TOLERANCE
    members = task.objective.terms[:, [MEMBERS]]
    total = task.objective.costs[ALL_WEIGHT] * np.array([1, 1, len(counts.members), 1])
    same = (np.abs(served - searched) <= tolerance * members).all()
    if not (same and (np.abs(totals - searched_totals) <= tolerance * total).all()):
        raise SearchMismatchError(
            f"the search counted {searched.tolist()} and {searched_totals.tolist()} but the served "
            f"rule gives {served.tolist()} and {totals.tolist()}; please report this with your data"
        )
    return rule, counts


def _single_thresholds(groups: str | Sequence[str], classes: tuple[str, ...]) -> Ints:
    """Return the classes that have a threshold of their own."""
    if isinstance(groups, str):
        if groups not in ("class", "all"):
            raise ScribError(
                f"threshold_groups is {groups!r}; use 'class', 'all', or a list of class names"
            )
        return np.arange(len(classes) if groups == "class" else 0)
    return np.array(known_classes("threshold_groups", groups, classes), dtype=np.int64)


def _initial(initial: Sequence[float] | None, data: Data) -> Floats | None:
    """Return (g,) thresholds; classes that share one start from the lowest of theirs."""
    if initial is None:
        return None
    values = inputs.as_floats("initial", initial)
    if values.shape != (data.scores.shape[1],) or np.isnan(values).any():
        raise ScribError(
            f"initial must be {data.scores.shape[1]} thresholds, one a class, got {initial!r}"
        )
    return np.array([values[data.served(g)].min() for g in range(len(data.thresholds))])
