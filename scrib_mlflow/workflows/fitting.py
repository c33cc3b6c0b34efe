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
from scrib_mlflow.core.sample import Sample
from scrib_mlflow.core.targets import make_constraints
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.parts import Parts, shown_rows, sorted_sample
from scrib_mlflow.workflows.rows import targets_of


def fit_rule(settings: Calibrate, sample: Sample, classes: tuple[str, ...]) -> Fit:
    """Fit the rule that is asked for to the targets themselves."""
    labels = labels_for(sample.labels, classes)
    common = {
        "classes": classes,
        "sample_weight": sample.weights,
        **target_options(settings),
    }
    if settings.rule == "optimal":
        coverage = wanted_coverage(settings)
        return fit_optimal(sample.scores, labels, candidate_coverage=coverage, **common)
    return fit_thresholds(sample.scores, labels, **common, **loss_options(settings))


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
    settings: Calibrate,
    parts: Parts,
    sample: Sample,
    fit: Fit,
    recalibration: Recalibration | None,
) -> Gap:
    """Return how much of the abstention the scores make inevitable.

    On the scores of the certify rows where there are any, of very many on some; their labels are
    not looked at.
    """
    scores = measured = sample.scores
    if parts.certify is not None:
        most = shown_rows(len(parts.classes))
        measured = sorted_sample(parts.certify, most, by_class=False).scores
    if isinstance(fit.rule, OptimalRule):
        recalibration = fit.rule.recalibration
    if recalibration is None:
        recalibration = fit_recalibration(scores, sample.labels, sample.weights)
    return measure_gap(
        fit.rule,
        measured,
        make_constraints(targets_of(settings), fit.classes),
        recalibration,
        scores,
        settings.seed,
        sample.weights,
    )
