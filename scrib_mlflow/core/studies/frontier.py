"""The frontier: how often a set classifier abstains at which targets.

Rules are fitted to a part of the rows at each of many targets, and measured on the part held out.
Whether targets can be certified is predicted as `calibrate` does: by a path, drawn from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate import draw_path
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.counts import certain_and_wrong
from scrib_mlflow.core.groups import LEAST_GROUPS, first_rows, typical_rows
from scrib_mlflow.core.inputs import MOST_CERTIFY_ROWS, NAN, Progress
from scrib_mlflow.core.loss import Ambiguity, check_rule, make_problem
from scrib_mlflow.core.reports import PartRates, measure_part
from scrib_mlflow.core.rules import make_sets
from scrib_mlflow.core.studies import sweeps
from scrib_mlflow.core.studies.compare import group_codes, halve
from scrib_mlflow.core.targets import (
    AnswerName,
    RuleName,
    Target,
    Targets,
    as_given,
    claimed,
    overall_name,
    own_targets,
)
from scrib_mlflow.errors import InvalidDataError

WANTED = 0.8  # chance that all claims pass together
PREDICTED = 9  # targets whose certificates are predicted, each by a path
MOST_PATH_ROWS = 10_000  # that draw it


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """A rule fitted to some targets, on the rows of its fit and on those held out."""

    swept: str | None  # the class whose target moves, None where all do
    target: float  # of that class, or of the one that stands for all
    loss: float  # on the rows of the fit
    fitted: PartRates
    held_out: PartRates  # of one class at a time: by_class holds that class alone
    silent: tuple[str, ...]  # classes with a target and no certain row among those held out


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifiable:
    """Whether targets are predicted to be certified, and with how much abstention."""

    target: float  # of the class that stands for all
    chance: float  # as `calibrate` would predict it
    abstention_rate: float  # expected where they are certified; NaN where the chance is too low


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFrontier:
    """Abstention against targets: all together, and one class at a time."""

    classes: tuple[str, ...]
    targets: dict[str, float]  # chosen, of the classes that have one enforced
    overall_target: float | None
    reference: float  # the chosen target that stands for all, which are swept in proportion to it
    rule_kind: str  # thresholds or optimal
    confidence: float
    wanted: float  # chance that a prediction asks for
    n_fitted: int
    n_held_out: int
    n_groups: int | None  # that the rows come in
    certify_rows: int
    certify_groups: int | None
    swept: tuple[str, ...]  # the classes that are swept one at a time
    points: tuple[FrontierPoint, ...]
    certifiable: tuple[Certifiable, ...]  # at some targets, all of them together

    @property
    def joint(self) -> tuple[FrontierPoint, ...]:
        """The points at which all targets move together."""
        return tuple(point for point in self.points if point.swept is None)

    @property
    def chosen(self) -> FrontierPoint:
        """The point at the chosen targets."""
        return next(point for point in self.joint if point.target == self.reference)

    def of(self, name: str) -> tuple[FrontierPoint, ...]:
        """Return the points at which the target of one class moves."""
        return tuple(point for point in self.points if point.swept == name)


@one_blas_thread()
def draw_frontier(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target = 0.1,
    *,
    rule: RuleName = "thresholds",
    certify_rows: int,
    certify_groups: int | None = None,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    chance_weight: float = 1.0,
    size_weight: float = 0.0,
    empty_weight: float = 1.0,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    confidence: float = 0.95,
    points: int = 30,
    lowest: float | None = None,
    highest: float | None = None,
    groups: ArrayLike | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TargetFrontier:
    """Fit rules at many targets on half of the rows, and measure them on the other half.

    Parameters
    ----------
    scores, labels, risk_targets, classes, overall_target, max_class_abstention, waive, penalty
        As for `draw_path`; labels are hard.
    rule, chance_weight, size_weight, empty_weight, error_weight, answers
        As for `draw_path`.
    certify_rows, certify_groups : int
        How many rows, and groups of rows, a certificate will be computed on; the groups if and
        only if `groups` are given.
    confidence : float
        Of the certificate that is predicted, and of each band.
    points : int
        Targets in a sweep.
    lowest, highest : float, optional
        Of all targets together. By default from a tenth of the chosen one to where the top class
        alone keeps all targets, at most one half.
    groups : (n,) array, optional
        What rows belong together; a group is never split.
    seed : int
        Of the halves and of the searches.
    threads : int, optional
        Threads to use; they never change the result.
    progress : callable, optional
        Wraps an iterable and yields the same, such as ``tqdm.tqdm``.

    Returns
    -------
    TargetFrontier
    """
    rows = inputs.check_rows(scores, labels, classes, hard=True)
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        max_class_abstention=max_class_abstention,
        waive=waive,
        penalty=penalty,
    )
    ambiguity = Ambiguity(
        chance_weight=chance_weight,
        size_weight=size_weight,
        empty_weight=empty_weight,
        error_weight=error_weight,
    )
    problem = make_problem(rows, targets, ambiguity, answers)
    constraints = problem.constraints
    check_rule(rule, ambiguity, penalty)
    inputs.as_number("confidence", confidence, low=0, high=1)
    inputs.as_number("certify_rows", certify_rows, low=0, high=MOST_CERTIFY_ROWS)
    codes = None if groups is None else group_codes(groups, len(rows.scores))
    if certify_groups is not None:
        inputs.as_number("certify_groups", certify_groups, low=0, high=MOST_CERTIFY_ROWS)
    if (codes is None) != (certify_groups is None):
        names = ["groups", "certify_groups"]
        present, missing = names if certify_groups is None else reversed(names)
        raise InvalidDataError(
            f"{present} is given without {missing}, so what is predicted to be certifiable would "
            "not heed groups; give both or neither"
        )
    needed = [j for j, name in enumerate(rows.classes) if name not in map(str, waive)]
    random = np.random.default_rng([inputs.check_seed(seed), 0])
    inside = halve(rows, codes, needed, random)
    fitted = rows.take(inside)
    grid = sweeps.make_sweeps(fitted, constraints, points=points, lowest=lowest, highest=highest)
    used = inputs.count_threads(threads)
    posed = replace(problem, rows=fitted)
    if rule == "optimal":
        named = own_targets(risk_targets)
        rules = sweeps.fit_optimal_along(posed, grid, named, seed, used, progress)
    else:
        rules = sweeps.fit_thresholds_along(posed, grid, seed, used, progress)
    held_out, held_groups = rows.take(~inside), None if codes is None else codes[~inside]
    singles = [c for c in claimed(constraints) if len(c.classes) == 1]

    def measure(point: sweeps.SweepPoint, fit: sweeps.SweepRule) -> FrontierPoint:
        names, labels = rows.classes, held_out.labels
        named = range(len(names)) if point.swept is None else [names.index(point.swept)]
        fit_sets, sets = (make_sets(fit.rule, part.scores) for part in (fitted, held_out))
        certain, _ = certain_and_wrong(sets, labels)
        answered = np.bincount(labels[certain], minlength=len(names))
        return FrontierPoint(
            swept=point.swept,
            target=point.target,
            loss=fit.loss,
            fitted=measure_part(fit_sets, fitted.labels, names, named, confidence=None),
            held_out=measure_part(
                sets, labels, names, named, confidence=confidence, groups=held_groups
            ),
            silent=tuple(c.name for c in singles if not answered[c.classes[0]]),
        )

    def predict(point: sweeps.SweepPoint) -> Certifiable:
        if certify_groups is not None and certify_groups < LEAST_GROUPS:
            return Certifiable(target=point.target, chance=0.0, abstention_rate=NAN)
        asked = {claim.name: claim.target for claim in claimed(point.constraints)}
        path = draw_path(
            rows.scores[some],
            rows.labels[some],
            as_given({n: asked[n] for n in rows.classes if n in asked}, risk_targets, rows.classes),
            rule=rule,
            certify_rows=certify_rows,
            classes=rows.classes,
            overall_target=asked.get(overall_name(rows.classes)),
            max_class_abstention=max_class_abstention,
            waive=waive,
            penalty=penalty,
            **asdict(ambiguity),
            answers=answers,
            confidence=confidence,
            groups=None if codes is None else codes[some],
            group_cap=None if codes is None else typical_rows(codes, rows.labels, constraints),
            seed=seed,
            threads=threads,
        )
        likely = path.power >= WANTED
        return Certifiable(
            target=point.target,
            chance=path.power,
            abstention_rate=path.expected_abstention if likely else NAN,
        )

    some = first_rows(rows.labels, codes, MOST_PATH_ROWS)
    turns = _spread(grid)
    return TargetFrontier(
        classes=rows.classes,
        targets={c.name: c.target for c in singles},
        overall_target=overall_target,
        reference=grid.reference,
        rule_kind=rule,
        confidence=float(confidence),
        wanted=WANTED,
        n_fitted=int(np.count_nonzero(inside)),
        n_held_out=int(np.count_nonzero(~inside)),
        n_groups=None if codes is None else int(codes.max()) + 1,
        certify_rows=int(certify_rows),
        certify_groups=certify_groups,
        swept=tuple(str(sweep[0].swept) for sweep in grid.sweeps[1:]),
        points=tuple(
            measure(*each)
            for sweep, row in zip(grid.sweeps, rules, strict=True)
            for each in zip(sweep, row, strict=True)
        ),
        certifiable=tuple(
            predict(grid.sweeps[0][j]) for j in (progress(turns) if progress else turns)
        ),
    )


def _spread(grid: sweeps.Sweeps) -> list[int]:
    """Return which joint targets are predicted: some evenly spread, with the chosen."""
    n = len(grid.sweeps[0])
    return sorted({grid.chosen, *np.linspace(0, n - 1, min(n, PREDICTED)).astype(int).tolist()})
