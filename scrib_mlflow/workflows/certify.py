"""Fit softly, certify hard: draw a path of set classifiers, then test it on rows it never saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import scrib_mlflow
from scrib_mlflow.adapters import ledger, runs
from scrib_mlflow.adapters.progress import progress
from scrib_mlflow.core.certificate import Certificate, certify_path
from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.fits import Fit, describe_rule
from scrib_mlflow.core.objective import Ambiguity
from scrib_mlflow.core.path import Path, draw_path
from scrib_mlflow.core.recalibrate import Recalibration
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.rules import OptimalRule, Rule
from scrib_mlflow.core.sample import Sample
from scrib_mlflow.core.targets import make_constraints
from scrib_mlflow.results import Base, PathRecord, Use, seal, to_json
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.fitting import loss_options, target_options, wanted_coverage
from scrib_mlflow.workflows.parts import Parts, sorted_sample
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
    "engine",
    "spark_options",
}


class Certified(NamedTuple):
    """The set classifier that is deployed, and what proves it, if anything does."""

    fit: Fit  # how the rule does on the fit rows
    certificate: Certificate
    path: PathRecord
    use: Use
    recalibration: Recalibration


def certify(
    settings: Calibrate,
    base: Base,
    parts: Parts,
    sample: Sample,
    run_id: str,
    say: Callable[[str], None],
) -> Certified:
    """Return the last of a path that passes, or its first where none does.

    The sample is what the search sees of the fit rows. The use of the rows and the path are written
    down before the labels of the certify rows are read.
    """
    assert parts.certify is not None  # noqa: S101  # for mypy; mode=certified always has them
    assert parts.certify_data is not None  # noqa: S101
    level = 1 - settings.confidence
    tested = _tested(settings, base, parts)
    use = ledger.enter(run_id, parts.certify_data.digest, tested, level, settings.ledger)
    path = _draw(settings, parts, sample, use.level)
    text = to_json(path)
    runs.log_texts_and_figures({"path.json": text}, {})
    say(
        f"testing a path of {len(path.steps)} set classifiers on {parts.certify.n_rows:,} rows "
        f"that it never saw; the first passes with a predicted chance of "
        f"{100 * path.steps[0].power:.0f} %"
    )
    constraints = make_constraints(targets_of(settings), path.classes)
    found = certify_path(
        parts.certify.tallies([step.rule for step in path.steps], constraints),
        constraints,
        path.classes,
        level=use.level,
        waived=settings.waive,
    )
    rule: Rule = path.steps[found.chosen or 0].rule
    if isinstance(rule, OptimalRule):  # candidates change nothing about what is certain
        rule = parts.certify.with_candidates(rule, wanted_coverage(settings))
    return Certified(
        fit=_describe(settings, sample, rule, path.classes),
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


def _draw(settings: Calibrate, parts: Parts, sample: Sample, level: float) -> Path:
    assert parts.certify is not None  # noqa: S101
    path_scores = None
    if parts.path is not None:
        path_scores = sorted_sample(parts.path, settings.max_fit_rows, by_class=False).scores
    return draw_path(
        sample.scores,
        labels_for(sample.labels, parts.classes),
        rule=settings.rule,
        certify_rows=parts.certify.n_rows,
        classes=parts.classes,
        **target_options(settings),
        **loss_options(settings),
        confidence=1 - level,
        path_scores=path_scores,
        groups=sample.groups,
        sample_weight=sample.weights,
        progress=lambda steps: progress(steps, what="drawing the path", unit="steps"),
    )


def _describe(settings: Calibrate, sample: Sample, rule: Rule, classes: tuple[str, ...]) -> Fit:
    labels = labels_for(sample.labels, classes)
    rows = check_rows(sample.scores, labels, classes, sample.weights, least_rows=1)
    weights = Ambiguity(
        chance_weight=settings.chance_weight,
        size_weight=settings.size_weight,
        empty_weight=settings.empty_weight,
    )
    return describe_rule("path", rule, rows, targets_of(settings), weights)
