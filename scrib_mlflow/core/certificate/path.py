"""A path of rules, drawn from fit rows, and the fixed-sequence test of it on certify rows.

It goes from the rule most likely to be certified to less and less abstention.

Soft counts take recalibrated scores in place of labels, so that the noise of labels is not in what
the search minimises: with labels it would pick the rules whose labels are lucky. Each step asks
that every certificate passes with probability Phi(z), z falling. Labels then say, with soft counts,
how likely each rule is to pass (`chances`). A path proves nothing by itself; certify rows that it
has not seen do, whatever its quality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate import steps
from scrib_mlflow.core.certificate.chances import NO_LABELS, FitRows, soft_worth
from scrib_mlflow.core.certificate.claims import Certificate, Tally, make_certificate
from scrib_mlflow.core.certificate.steps import HopefulStep, PathProblem, Step
from scrib_mlflow.core.compiling import one_blas_thread
from scrib_mlflow.core.groups import check_groups
from scrib_mlflow.core.inputs import MOST_CERTIFY_ROWS, Floats, Ints, Labelled, Progress
from scrib_mlflow.core.loss import Ambiguity, Margin, check_rule, make_problem
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.rules import Recalibration
from scrib_mlflow.core.targets import (
    AnswerName,
    Constraint,
    RuleName,
    Target,
    Targets,
    claimed,
    own_targets,
)
from scrib_mlflow.errors import InvalidScoresError, InvalidTargetsError, ScribError

BLUR = 0.2  # noise of a blurred copy, in standard deviations of the scores, correlated as they are
MOST_COPIES = 3
MOST_ENTRIES = 75_000  # rows times classes, copies included; more rows are smooth enough
LEAST_SCORE = 1e-12
HOPELESS = 1e-4  # a predicted chance that no step but the first may have
FIRST_FLOOR, FLOOR_STEPS = 0.02, 100  # of expectation maximisation
FEW_ROWS = 0.5  # of a class, that chance puts where scores deny it
SHARE_TURNS, STEADY_SHARE = 3, 0.05  # to find what share of the rows a path answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Rules in the order in which certify rows are to test them; each abstains less."""

    classes: tuple[str, ...]
    steps: tuple[Step, ...]
    recalibration: Recalibration
    n_rows: int  # that drew it
    seed: int
    answered_rate: float | None = None  # of these, by some rule; None where it does not matter

    @property
    def power(self) -> float:
        """The predicted chance of a certificate, which is that of the first rule."""
        return self.steps[0].power

    @property
    def expected_abstention(self) -> float:
        """The mean abstention where it is certified; the path ends at the last rule that passes."""
        if self.power <= 0:
            return self.steps[0].abstention_rate
        return 1.0 - steps.answered_share(self.steps) / self.power


class PathTest(NamedTuple):
    """A fixed-sequence test along a path of rules."""

    p_values: tuple[float, ...]  # of the rules tested
    chosen: int | None  # the last rule that passed
    certificate: Certificate  # of the chosen rule; of the first where none passed


@one_blas_thread()
def draw_path(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target | None = 0.1,
    *,
    rule: RuleName = "thresholds",
    certify_rows: int,
    answered_only: bool = False,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    penalty: Target = 1e4,
    chance_weight: float = 1.0,
    size_weight: float = 0.0,
    empty_weight: float = 1.0,
    error_weight: float = 0.0,
    answers: AnswerName = "any",
    confidence: float = 0.95,
    path_scores: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    group_cap: int | None = None,
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
        Class names or indices. They recalibrate the scores, and tell how likely rules are to pass;
        the path is drawn with soft counts.
    risk_targets, overall_target, risk_groups, max_class_abstention, waive : optional
        As of `fit_thresholds`. Risks get a margin for the certificate; caps on abstention do not.
    rule : "thresholds" or "optimal"
        The kind of rule. The optimal one needs scores that are probabilities; ambiguity weights and
        penalties are not for it.
    certify_rows : int
        How many rows the certificate will be computed on.
    answered_only : bool
        Whether certify rows will be drawn from those that some rule of the path answers, as labels
        of other rows prove nothing. The path then ends where further rules would cost more labels
        than they are worth.
    classes, penalty, chance_weight, size_weight, empty_weight, error_weight, answers, seed, threads
        As of `fit_thresholds`.
    confidence : float
        Of the certificate.
    path_scores : (m, k) array, optional
        Scores of further rows without labels, none of them a certify row, that draw the path in
        place of `scores`.
    groups : (n,) array, optional
        Which fit rows belong together. The path then expects that certify rows come in such groups
        too, and that the certificate counts them as fewer.
    group_cap : int, optional
        How many certain rows of a class one group will count for at most.
    sample_weight : (n,) array, optional
        How many rows each fit row stands for, where they are a sample of more; 0 leaves a row out.
        Weights of `path_scores` are 1.
    progress : callable, optional
        Wraps an iterable and yields the same, such as ``tqdm.tqdm``.

    Returns
    -------
    Path
        Its `steps` abstain less and less, the first being the most likely to pass.
    """
    rows = inputs.check_rows(scores, labels, classes, sample_weight, hard=True)
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
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
    constraints = make_problem(rows, targets, ambiguity, answers).constraints
    check_rule(rule, ambiguity, penalty)
    if not claimed(constraints):
        raise InvalidTargetsError(
            "no risk has a target, so there is nothing to certify; give risk_targets"
        )
    drawing, weights = rows.scores, rows.weights
    if path_scores is not None:
        drawing = inputs.check_scores(path_scores)
        weights = np.ones(len(drawing))
    if drawing.shape[1] != rows.scores.shape[1]:
        raise InvalidScoresError(
            f"path_scores have {drawing.shape[1]} columns but scores {rows.scores.shape[1]}; "
            "both need one column a class, in the same order"
        )
    if rule == "optimal":
        inputs.check_probabilities(rows.scores)
        inputs.check_probabilities(drawing)
    confidence = inputs.as_number("confidence", confidence, low=0, high=1)
    expected = inputs.as_number("certify_rows", certify_rows, low=0, high=MOST_CERTIFY_ROWS)
    recalibration = fit_recalibration(rows.scores, rows.labels, rows.weights)
    blurred = blur_scores(drawing, recalibration.of, inputs.check_seed(seed), weights)
    weights = np.tile(weights, len(blurred) // len(drawing))
    soft = recalibrate(recalibration, blurred)
    if rule == "thresholds":  # an optimal rule serves probabilities that know no floor
        floor = find_floor(recalibrate(recalibration, rows.scores), rows)
        soft *= 1.0 - floor.sum()
        soft += floor
    soft *= weights[:, None]
    used = np.ones(len(blurred), dtype=np.bool_)
    problem = PathProblem(
        fit=FitRows(drawing, soft[: len(drawing)], weights[: len(drawing)], rows),
        rows=Labelled(blurred, NO_LABELS, soft, soft.sum(axis=1), rows.classes, used),
        weights=weights,
        constraints=constraints,
        ambiguity=ambiguity,
        answers=answers,
        margin=Margin(confidence=confidence, certify_rows=expected),
        seed=inputs.check_seed(seed),
        soft_rows=soft_worth(recalibration),
        recalibration=recalibration if rule == "optimal" else None,
        named=own_targets(risk_targets),
        threads=inputs.count_threads(threads),
    )
    codes, cap = None, np.inf if group_cap is None else group_cap
    if groups is not None:
        codes = check_groups(groups, len(rows.used))[rows.used]
    path_steps, answered = (_draw_answered if answered_only else _draw)(
        problem, codes, cap, progress
    )
    return Path(
        classes=rows.classes,
        steps=path_steps,
        recalibration=recalibration,
        n_rows=len(drawing),
        seed=problem.seed,
        answered_rate=answered,
    )


def _draw(
    problem: PathProblem, codes: Ints | None, cap: float, progress: Progress | None
) -> tuple[tuple[Step, ...], None]:
    """Return the steps for certify rows of all kinds."""
    problem, pilot = _expect(problem, codes, cap)
    return _order(steps.find_steps(problem, pilot, progress)), None


def _draw_answered(
    problem: PathProblem, codes: Ints | None, cap: float, progress: Progress | None
) -> tuple[tuple[Step, ...], float]:
    """Return the steps for certify rows that some of them answers, and how many rows these are.

    One such row is worth 1 / share of all rows, and the share depends on the path, and so on.
    """
    labels, share = problem.margin.certify_rows, 1.0
    found: tuple[tuple[Step, ...], float] = ((), 1.0)
    for _ in range(SHARE_TURNS):
        margin = replace(problem.margin, certify_rows=min(labels / share, MOST_CERTIFY_ROWS))
        posed, pilot = _expect(replace(problem, margin=margin), codes, cap)
        before, ordered = share, _order(steps.find_steps(posed, pilot, progress))
        found = steps.shorten(posed, ordered, labels)
        share = found[1]
        if abs(share / before - 1.0) < STEADY_SHARE:
            break
    return found


def _expect(
    problem: PathProblem, codes: Ints | None, cap: float
) -> tuple[PathProblem, steps.Pilot]:
    """Return the problem with what labels say of soft counts and of groups, by a pilot rule."""
    pilot = steps.find_pilot(problem)
    if codes is not None:
        problem = steps.expect_groups(problem, pilot.rule, problem.fit.labelled, codes, cap)
    return steps.expect_errors(problem, pilot.rule), pilot


def certify_path(
    tallies: Iterable[Tally],
    constraints: Sequence[Constraint],
    classes: tuple[str, ...],
    *,
    level: float,
    waived: Sequence[str] = (),
) -> PathTest:
    """Test rules in order up to the first that fails, and choose the last that passed.

    Each rule comes as its tally on the same certify rows, on which neither the rules nor their
    order may depend. Tallies are taken one by one: hand in a generator,
    ``(tally_sets(predict_sets(scores, rule), labels, constraints) for rule in rules)``.
    """
    tested: list[float] = []
    chosen, certificate = None, None
    for index, tally in enumerate(tallies):
        latest = make_certificate(tally, constraints, classes, level=level, waived=waived)
        tested.append(latest.p_value)
        if latest.passed or certificate is None:
            certificate = latest
        if not latest.passed:
            break
        chosen = index
    if certificate is None:
        raise ScribError("the path has no rule to test; give it at least one")
    return PathTest(tuple(tested), chosen, certificate)


def _order(hopeful: Sequence[HopefulStep]) -> tuple[Step, ...]:
    """Return the steps: the likeliest to pass, then those likelier than all that follow."""
    best = max(hopeful, key=lambda each: (each.rank, each.hope)).step
    chosen = [best]
    for rank, _, step in sorted(hopeful, key=lambda each: (-each.step.abstention_rate, -each.rank)):
        rate = step.abstention_rate
        beaten = any(each.step.abstention_rate <= rate and each.rank > rank for each in hopeful)
        if rate < chosen[-1].abstention_rate and rank > HOPELESS and not beaten:
            chosen.append(replace(step, power=min(step.power, chosen[-1].power)))
    return tuple(chosen)


def blur_scores(
    scores: Floats,
    of: Literal["log", "raw"],
    seed: int,
    weights: Floats | None = None,  # (n,)
) -> Floats:
    """Return the scores followed by blurred copies, as many as are worth their time."""
    copies = min(MOST_COPIES, MOST_ENTRIES // scores.size - 1)
    if copies < 1 or inputs.are_tied(scores):
        return scores
    values = scores
    if of == "log":
        values = np.log(np.maximum(scores, LEAST_SCORE))
        values = values - values.mean(axis=1, keepdims=True)
    centre = np.average(values, axis=0, weights=weights)
    random = np.random.default_rng([seed, len(scores)])
    noise = random.standard_normal((copies, *scores.shape))
    noise = BLUR * noise @ _square_root(np.cov(values.T, ddof=0, aweights=weights))
    blurred = centre + (values - centre + noise) / np.sqrt(1 + BLUR**2)  # as widespread as before
    if of == "log":
        blurred = special.softmax(blurred, axis=2)
    return np.concatenate([scores, blurred.reshape(-1, scores.shape[1])])


def _square_root(covariance: Floats) -> Floats:
    """Return the symmetric square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def find_floor(chances: Floats, rows: Labelled) -> Floats:
    """Return (k,) how often each class comes whatever the scores say, as where labels are wrong.

    The shares of a mixture of probabilities and classes at random, by maximum likelihood, less a
    few rows. Where a model is confident they are all that is left of a class, and decide about the
    risk of a rare one.
    """
    own = chances[np.arange(len(rows.labels)), rows.labels]
    total = rows.weights.sum()
    floor = FIRST_FLOOR * rows.class_weight() / total
    for _ in range(FLOOR_STEPS):
        mixed = (1.0 - floor.sum()) * own + floor[rows.labels]
        random = np.divide(floor[rows.labels], mixed, out=np.zeros(len(own)), where=mixed > 0)
        found = np.bincount(rows.labels, rows.weights * random, len(floor))
        floor = np.maximum(found - FEW_ROWS, 0.0) / total
    return np.asarray(floor)
