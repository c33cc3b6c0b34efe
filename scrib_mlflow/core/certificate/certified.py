"""Fit softly, certify hard, in one call: labelled rows in, a rule and its certificate out.

Some rows draw a path of rules, the others test it. Neither the path, nor its order, nor how groups
are counted depends on the rows that certify, so that the certificate holds whatever the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from scrib_mlflow.core import inputs
from scrib_mlflow.core.certificate.claims import (
    Certificate,
    Tally,
    check_shares,
    make_certificate,
    tally_sets,
    unproved,
)
from scrib_mlflow.core.certificate.overlap import compare_rows
from scrib_mlflow.core.certificate.path import Path, PathTest, certify_path, draw_path
from scrib_mlflow.core.certificate.split import (
    certify_share,
    order_rows,
    split_rows,
    testing_order,
)
from scrib_mlflow.core.groups import GroupTest, TestName, choose_group_test
from scrib_mlflow.core.inputs import Floats, Labels, Progress
from scrib_mlflow.core.loss import choose_rule
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.rules import (
    Fit,
    OptimalRule,
    Recalibration,
    Rule,
    ThresholdRule,
    place_candidates,
    predict_sets,
)
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.targets import AnswerName, RuleName, Target, Targets, make_constraints
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.serving import MOST_CANDIDATES


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedFit:
    """A rule that was fitted on some rows, and what other rows prove of it."""

    classes: tuple[str, ...]
    rule: Rule  # the last of the path that passed; where none did, fitted to the targets themselves
    certificate: Certificate  # of the rule; `passed` says whether every target is proved
    abstention_rate: float  # of the rule on the certify rows
    predicted_power: float  # chance that the path's first rule passes, as the fit rows said
    path: Path
    p_values: tuple[float, ...]  # of the rules of the path that were tested
    chosen: int | None  # which of them the rule is; None where none passed
    fit_rows: int  # how many
    certify_rows: int
    seed: int


def fit_certified(
    scores: ArrayLike,
    labels: ArrayLike,
    risk_targets: Target | None = 0.1,
    *,
    rule: RuleName | Literal["auto"] = "thresholds",
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    max_class_abstention: Target | None = None,
    waive: Sequence[str] = (),
    confidence: float = 0.95,
    certify_fraction: float | None = None,
    path_scores: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    group_cap: int | None = None,
    group_test: TestName = "approximate",
    max_group_rows: int | None = None,
    keys: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    max_weight: float | None = None,
    error_weight: float = 0.0,
    answers: AnswerName = "top",
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CertifiedFit:
    """Find a rule that keeps the risk targets, and prove on rows of its own that it does.

    The rows are split. Those to fit draw a path of rules that abstain less and less; those to
    certify test one after the other, up to the first that fails. A rule with any risk above its
    target is certified with a probability of at most 1 - confidence.

    Parameters
    ----------
    scores : (n, k) array
        Of rows that the model was not trained on. Higher means more of the class.
    labels : (n,) array
        Class names or indices.
    risk_targets, overall_target, risk_groups, max_class_abstention, waive, classes, threads
        As of `fit_thresholds`.
    rule : "thresholds", "optimal" or "auto"
        The kind of rule. The optimal one needs scores that are probabilities. "auto" is optimal for
        probabilities of three classes or more, and thresholds otherwise.
    confidence : float
        Of the certificate, between 0.5 and 1.
    certify_fraction : float, optional
        Share of the rows that certify: 0.7, or 0.9 with `path_scores`.
    path_scores : (m, k) array, optional
        Scores of further rows without labels, none of them among `scores`, that draw the path.
    groups : (n,) array, optional
        Which rows belong together, such as the patient of each row. A group is never split.
    group_cap, group_test, max_group_rows
        As of `certify_sets`. A cap that is not given is typical of the fit rows' groups.
    keys : (n,) array, optional
        What identifies each row. The split follows from keys and seed, by default from scores and
        seed, so that the order of the rows does not matter.
    sample_weight : (n,) array, optional
        Weights that make the rows stand for others, as a function of the row; 0 leaves a row out.
        Other weights than 0 and 1 need `max_weight` and rows without groups.
    max_weight : float, optional
        The highest weight that a row can have, fixed before the weights were looked at.
    error_weight : float
        How many abstentions a wrong answer costs.
    answers : "top" or "any"
        "top": only the class with the highest score may be answered, so that answers are never
        more often wrong than that class; "any": the paper's, where any class may be.
    seed : int
        Of the split and the search.
    progress : callable, optional
        Wraps an iterable and yields the same, such as ``tqdm.tqdm``.

    Returns
    -------
    CertifiedFit
        With the `rule` for `predict_sets`, and its `certificate`.
    """
    level = 1.0 - inputs.as_number("confidence", confidence, low=0.5, high=1)
    seed = inputs.check_seed(seed)
    rows = inputs.check_rows(scores, labels, classes, sample_weight, hard=True)
    names, n = rows.classes, len(rows.used)
    shares = check_shares(rows, max_weight, grouped=groups is not None)
    wanted = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
        max_class_abstention=max_class_abstention,
        waive=waive,
    )
    constraints = make_constraints(wanted, names)
    hashes = hash_scores(rows.scores)
    if keys is not None:
        hashes = inputs.hash_names("keys", keys, n)[rows.used]
    grouped = codes = None
    if groups is not None:
        grouped = inputs.hash_names("groups", groups, n)[rows.used]
        codes = np.unique(grouped, return_inverse=True)[1].astype(np.int64)
    share = certify_share(certify_fraction, with_path=path_scores is not None)
    certifies = split_rows(hashes, rows.labels, share, seed, grouped, names, waive)
    order = order_rows(hashes, rows.labels, seed)
    fit, certify = (
        chosen[np.argsort(order[chosen], kind="stable")]  # so that the order of rows is no matter
        for chosen in (np.flatnonzero(~certifies), np.flatnonzero(certifies))
    )
    fit_groups, certify_groups = (None, None) if codes is None else (codes[fit], codes[certify])
    options = group_test, group_cap, max_group_rows
    how = choose_group_test(fit_groups, rows.labels[fit], constraints, *options)
    if path_scores is not None:
        path_scores = inputs.check_scores(path_scores)
        _check_unseen(path_scores, rows.scores[certify])
    kind = choose_rule(rows.scores[fit]) if rule == "auto" else rule
    fit_labels = inputs.labels_for(rows.labels[fit], names)
    fit_weights = None if shares is None else rows.weights[fit]
    path = draw_path(
        rows.scores[fit],
        fit_labels,
        risk_targets,
        rule=kind,
        certify_rows=expected_rows(
            len(certify), level, None if shares is None else shares[fit], how
        ),
        classes=names,
        overall_target=overall_target,
        risk_groups=risk_groups,
        max_class_abstention=max_class_abstention,
        waive=waive,
        error_weight=error_weight,
        answers=answers,
        confidence=confidence,
        path_scores=path_scores,
        groups=fit_groups,
        group_cap=None if how is None else int(how.cap),
        sample_weight=fit_weights,
        seed=seed,
        threads=threads,
        progress=progress,
    )
    held_out, truth = rows.scores[certify], rows.labels[certify]
    tested = testing_order(order[certify], truth)
    weights = None if shares is None else shares[certify]

    def tally(some: Rule) -> Tally:
        return tally_sets(
            predict_sets(held_out, some),
            truth,
            constraints,
            certify_groups,
            weights,
            group_test=how,
            order=tested,
            level=level,
        )

    def plain() -> Rule:
        asked = {
            "risk_targets": risk_targets,
            "classes": names,
            "overall_target": overall_target,
            "risk_groups": risk_groups,
            "max_class_abstention": max_class_abstention,
            "waive": waive,
            "error_weight": error_weight,
            "answers": answers,
            "sample_weight": fit_weights,
            "seed": seed,
        }
        fit_rule: Callable[..., Fit] = fit_optimal if kind == "optimal" else fit_thresholds
        return fit_rule(rows.scores[fit], fit_labels, **asked).rule

    outcome = certify_path(
        (tally(step.rule) for step in path.steps), constraints, names, level=level, waived=waive
    )
    make = partial(
        make_certificate, constraints=constraints, classes=names, level=level, waived=waive
    )
    deployed, certificate = deploy(path, outcome, plain, tally, make)
    recalibration = path.recalibration
    deployed = fitted_candidates(deployed, recalibration, held_out, truth, confidence, weights)
    certain = np.count_nonzero(predict_sets(held_out, deployed), axis=1) == 1
    return CertifiedFit(
        classes=names,
        rule=deployed,
        certificate=certificate,
        abstention_rate=float(1.0 - np.average(certain, weights=weights)),
        predicted_power=path.power,
        path=path,
        p_values=outcome.p_values,
        chosen=outcome.chosen,
        fit_rows=len(fit),
        certify_rows=len(certify),
        seed=seed,
    )


def expected_rows(
    certify_rows: int, level: float, shares: Floats | None, group_test: GroupTest | None
) -> int:
    """Return how many rows of a binomial test the certify rows are worth to a path.

    A bet needs log(1 / level) of evidence where the quantile z of a test needs z^2 / 2. Weighted
    rows are worth those that a chance of weight / max_weight would keep, as fit rows say.
    """
    worth = certify_rows * (1.0 if shares is None else float(shares.mean()))
    if shares is not None or (group_test is not None and group_test.exact):
        worth *= special.ndtri(level) ** 2 / (2 * -np.log(level))
    return max(int(worth), 1)


def deploy(
    path: Path,
    outcome: PathTest,
    plain: Callable[[], Rule],
    tally: Callable[[Rule], Tally],
    certificate: Callable[[Tally], Certificate],
) -> tuple[Rule, Certificate]:
    """Return the last rule that passed and its certificate.

    Where none did, the rule is the plain fit to the targets: the first of the path abstains far
    more for a certificate that it did not get. Nothing is proved of it then, whatever rows say.
    """
    if outcome.chosen is not None:
        return path.steps[outcome.chosen].rule, outcome.certificate
    rule = plain()
    return rule, unproved(certificate(tally(rule)))


def fitted_candidates(
    rule: Rule,
    recalibration: Recalibration | None,  # of the path, for a rule that has none of its own
    scores: Floats,  # (n, k) of the certify rows
    labels: Labels,  # (n,)
    coverage: float,
    shares: Floats | None = None,  # (n,) weights, of the highest possible one
    most: int = MOST_CANDIDATES,
) -> Rule:
    """Return a rule with candidates placed on the certify rows.

    They change nothing about what is certain, so nothing about what is proved.
    """
    if isinstance(rule, ThresholdRule):
        rule = replace(rule, recalibration=recalibration)
    if isinstance(rule, ThresholdRule | OptimalRule):
        return place_candidates(rule, scores, labels, coverage, shares, most)
    return rule


def _check_unseen(path_scores: Floats, certify_scores: Floats) -> None:
    """Raise where the rows that draw the path certify it too."""
    found = compare_rows(hash_scores(path_scores), hash_scores(certify_scores))
    if found.excessive:
        raise InvalidDataError(
            f"{found.n_shared:,} of the {found.n_rows:,} rows that certify stand in path_scores as "
            f"well, where about {found.expected * found.n_rows:,.0f} would by chance, so they "
            "would prove nothing; give rows that nothing else has seen"
        )


def hash_scores(scores: Floats) -> NDArray[np.uint64]:
    """Return (n,) a hash of the scores of each row."""
    total = np.zeros(len(scores), dtype=np.uint64)
    for j in range(scores.shape[1]):
        bits = (scores[:, j] + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        total += inputs.mix(bits ^ inputs.mix(j))
    return inputs.mix(total)
