"""Fit softly, certify hard: draw a path of set classifiers, then test it on rows it never saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import scrib_mlflow
from scrib_mlflow.adapters import ledger, runs
from scrib_mlflow.adapters.progress import progress
from scrib_mlflow.core.candidates import with_candidates
from scrib_mlflow.core.certificate import Certificate, certify_path
from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.fits import Fit, describe_rule
from scrib_mlflow.core.objective import Ambiguity
from scrib_mlflow.core.path import Path, draw_path
from scrib_mlflow.core.recalibrate import Recalibration
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.rules import OptimalRule, Rule, predict_sets
from scrib_mlflow.core.tally import tally_sets
from scrib_mlflow.core.targets import make_constraints
from scrib_mlflow.results import Base, PathRecord, Use, seal, to_json
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.fitting import loss_options, target_options, wanted_coverage
from scrib_mlflow.workflows.parts import Parts
from scrib_mlflow.workflows.rows import targets_of

NO_MATTER = {  # options that change nothing about what is tested
    "model_uri",
    "data",
    "certify_data",
    "path_data",
    "require_certificate",
    "registered_model_name",
    "alias",
    "candidate_coverage",
    "batch_rows",
}


class Certified(NamedTuple):
    """The set classifier that is deployed, and what proves it, if anything does."""

    fit: Fit  # how the rule does on the fit rows
    certificate: Certificate
    path: PathRecord
    use: Use
    recalibration: Recalibration


def certify(
    settings: Calibrate, base: Base, parts: Parts, run_id: str, say: Callable[[str], None]
) -> Certified:
    """Return the last of a path that passes, or its first where none does.

    The use of the rows and the path are written down before the labels of the certify rows are
    read.
    """
    assert parts.certify is not None  # noqa: S101  # for mypy; mode=certified always has them
    assert parts.certify_data is not None  # noqa: S101
    level = 1 - settings.confidence
    tested = _tested(settings, base, parts)
    use = ledger.enter(run_id, parts.certify_data.digest, tested, level, settings.ledger)
    path = _draw(settings, parts, use.level)
    text = to_json(path)
    runs.log_texts_and_figures({"path.json": text}, {})
    say(
        f"testing a path of {len(path.steps)} set classifiers on {len(parts.certify.labels):,} "
        f"rows that it never saw; the first passes with a predicted chance of "
        f"{100 * path.steps[0].power:.0f} %"
    )
    classes = path.classes
    certify_rows = parts.certify
    constraints = make_constraints(targets_of(settings), classes)
    codes = certify_rows.group_codes()
    found = certify_path(
        (
            tally_sets(
                predict_sets(certify_rows.scores, step.rule),
                certify_rows.labels,
                constraints,
                codes,
            )
            for step in path.steps
        ),
        constraints,
        classes,
        level=use.level,
        waived=settings.waive,
    )
    rule: Rule = path.steps[found.chosen or 0].rule
    if isinstance(rule, OptimalRule):  # candidates change nothing about what is certain
        rule = with_candidates(
            rule,
            certify_rows.scores,
            labels_for(certify_rows.labels, classes),
            wanted_coverage(settings),
            classes=classes,
        )
    return Certified(
        fit=_describe(settings, parts, rule, classes),
        certificate=found.certificate,
        path=PathRecord(
            digest=seal(text),
            n_steps=len(path.steps),
            power=path.steps[0].power,
            p_values=found.p_values,
            chosen=found.chosen,
        ),
        use=use,
        recalibration=path.recalibration,
    )


def _tested(settings: Calibrate, base: Base, parts: Parts) -> str:
    """Return everything that the outcome depends on, as text."""
    records = (parts.fit_data, parts.certify_data, parts.path_data)
    chosen = settings.model_dump(mode="json", exclude=NO_MATTER)
    used = [(record.digest, record.n_used) for record in records if record is not None]
    return json.dumps([scrib_mlflow.__version__, base.uri, base.model_id, chosen, used])


def _draw(settings: Calibrate, parts: Parts, level: float) -> Path:
    """Draw the path from rows in an order of their own, so that a table's does not matter."""
    fit, groups = parts.fit, parts.fit.group_codes()
    order = np.argsort(fit.cases(), kind="stable")
    path_scores = None
    if parts.path is not None:
        path_scores = parts.path.scores[np.argsort(parts.path.cases(labelled=False))]
    assert parts.certify is not None  # noqa: S101
    classes = fit.scorer.classes
    return draw_path(
        fit.scores[order],
        labels_for(fit.labels[order], classes),
        rule=settings.rule,
        certify_rows=len(parts.certify.labels),
        classes=classes,
        **target_options(settings),
        **loss_options(settings),
        confidence=1 - level,
        path_scores=path_scores,
        groups=None if groups is None else groups[order],
        progress=lambda steps: progress(steps, what="drawing the path", unit="steps"),
    )


def _describe(settings: Calibrate, parts: Parts, rule: Rule, classes: tuple[str, ...]) -> Fit:
    fit = parts.fit
    rows = check_rows(fit.scores, labels_for(fit.labels, classes), classes, None, least_rows=1)
    weights = Ambiguity(
        chance_weight=settings.chance_weight,
        size_weight=settings.size_weight,
        empty_weight=settings.empty_weight,
    )
    return describe_rule("path", rule, rows, targets_of(settings), weights)
