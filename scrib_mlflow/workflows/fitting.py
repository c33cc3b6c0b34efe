"""Fit a rule to labelled rows, and hold it against the best possible."""

from __future__ import annotations

from typing import Any

from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.fit import fit_thresholds
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.gap import Gap, measure_gap
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.recalibrate import Recalibration, fit_recalibration
from scrib_mlflow.core.rules import OptimalRule
from scrib_mlflow.core.targets import make_constraints
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.parts import Parts
from scrib_mlflow.workflows.rows import Scored, targets_of


def fit_rule(settings: Calibrate, scored: Scored) -> Fit:
    """Fit the rule that is asked for to the targets themselves, on all rows."""
    classes = scored.scorer.classes
    labels = labels_for(scored.labels, classes)
    common = {"classes": classes, **target_options(settings)}
    if settings.rule == "optimal":
        coverage = wanted_coverage(settings)
        return fit_optimal(scored.scores, labels, candidate_coverage=coverage, **common)
    return fit_thresholds(scored.scores, labels, **common, **loss_options(settings))


def target_options(settings: Calibrate) -> dict[str, Any]:
    """Return what is asked of a rule, by the names of the core's functions."""
    names = ("risk_targets", "overall_target", "max_class_abstention", "waive", "seed")
    return {name: getattr(settings, name) for name in names}


def loss_options(settings: Calibrate) -> dict[str, Any]:
    """Return what excess and ambiguity cost, which an optimal rule has no use for."""
    names = ("penalty", "chance_weight", "size_weight", "empty_weight")
    return {name: getattr(settings, name) for name in names}


def wanted_coverage(settings: Calibrate) -> float:
    """Return how often the candidates of an abstention shall hold the true class."""
    return settings.candidate_coverage or settings.confidence


def find_gap(
    settings: Calibrate, parts: Parts, fit: Fit, recalibration: Recalibration | None
) -> Gap:
    """Return how much of the abstention the scores make inevitable.

    On the scores of the certify rows where there are any; their labels are not looked at.
    """
    scores = parts.fit.scores
    if isinstance(fit.rule, OptimalRule):
        recalibration = fit.rule.recalibration
    if recalibration is None:
        recalibration = fit_recalibration(scores, parts.fit.labels)
    return measure_gap(
        fit.rule,
        scores if parts.certify is None else parts.certify.scores,
        make_constraints(targets_of(settings), fit.classes),
        recalibration,
        scores,
        settings.seed,
    )
