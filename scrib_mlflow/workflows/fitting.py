"""Fit and certify: from scored rows to a rule, and to what proves it.

What the certificate rests on is fixed and written down before any label of a certify row is read:
the path of rules, how groups are counted, and the use of the rows in the ledger. A selection has
fixed path and groups already, when it drew the rows to label.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

import scrib_mlflow
from scrib_mlflow.core import monitoring
from scrib_mlflow.core.certificate import (
    Certificate,
    Path,
    Sample,
    certify_path,
    draw_path,
    expected_rows,
)
from scrib_mlflow.core.certificate.advice import Advice, advise
from scrib_mlflow.core.certificate.certified import deploy, fitted_candidates
from scrib_mlflow.core.certificate.claims import make_certificate
from scrib_mlflow.core.groups import GroupTest, choose_group_test, first_rows
from scrib_mlflow.core.inputs import Bools, Floats, Labels, check_rows, labels_for
from scrib_mlflow.core.loss import Ambiguity, choose_rule, describe_rule
from scrib_mlflow.core.monitoring import Baseline
from scrib_mlflow.core.monitoring.baseline import one_of_each_group
from scrib_mlflow.core.optimal import AbstentionGap, fit_optimal, fit_recalibration, measure_gap
from scrib_mlflow.core.rules import Fit, OptimalRule, Recalibration, Rule
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.targets import (
    AnswerName,
    Constraint,
    RuleName,
    Targets,
    as_given,
    claimed,
    enforced,
    make_constraints,
    overall_name,
)
from scrib_mlflow.engines import base as engines
from scrib_mlflow.errors import ScribError
from scrib_mlflow.messages import chance_percent, progress
from scrib_mlflow.options import Calibrate
from scrib_mlflow.records import Base, LedgerEntry, Unscored, group_targets, risk_groups, seal
from scrib_mlflow.registry import ledger, runs
from scrib_mlflow.report.plan import impossible, plan_sentence
from scrib_mlflow.results import PathRecord, SetClassifier, to_json
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.serving import valid_rows
from scrib_mlflow.workflows.plan import plan_certify

LOGGER = logging.getLogger(__name__)

LOCATIONS = {"model_uri", "data", "certify_data", "path_data", "registered_model_name", "alias"}
MEANS = {"require_certificate", "batch_rows", "engine", "spark_options"}
MEANS |= {"allow_overlap", "max_invalid", "candidate_coverage", "max_candidates"}
NO_MATTER = LOCATIONS | MEANS  # options that change nothing about what is tested
TARGETS = {"risk_targets", "overall_target", "max_class_abstention", "waive"}  # beside groups
WEIGHTS = {"chance_weight", "size_weight", "empty_weight"}
THRESHOLD_OPTIONS = {"penalty", *WEIGHTS}
BASELINE_ROWS = 100_000  # that later answers are compared with
ADVICE_ROWS = 5_000  # fit rows that advice is drawn from


def told_rule(settings: Calibrate) -> RuleName | Literal["auto"]:
    """Return the rule that the options decide; `auto` where the scores do."""
    changed = settings.model_dump(exclude_defaults=True)
    if settings.rule == "auto" and (settings.mode == "paper" or changed.keys() & THRESHOLD_OPTIONS):
        return "thresholds"
    return settings.rule


def targets_of(settings: Calibrate) -> Targets:
    """Return the targets that the options ask for."""
    return Targets(**settings.model_dump(include=TARGETS | {"penalty"}), **_groups(settings))


def _groups(settings: Calibrate) -> dict[str, Any]:
    """Return the risk groups by the name of the core's option."""
    if settings.risk_groups is None:
        return {}
    return {"risk_groups": group_targets(risk_groups(settings.risk_groups))}


def target_options(settings: Calibrate) -> dict[str, Any]:
    """Return what is asked of a rule, by the names of the core's functions."""
    options = settings.model_dump(include=TARGETS | {"error_weight", "seed"}) | _groups(settings)
    return options | {"answers": answers(settings)}


def loss_options(settings: Calibrate) -> dict[str, Any]:
    """Return what excess and ambiguity cost, which an optimal rule has no use for."""
    return settings.model_dump(include=WEIGHTS | {"penalty"})


def answers(settings: Calibrate) -> AnswerName:
    """Return which classes a row may be answered with; any in the paper."""
    return settings.answers or ("any" if settings.mode == "paper" else "top")


def with_rule(settings: Calibrate, scores: Floats) -> Calibrate:
    """Return the settings with the rule that `auto` means for scores like these."""
    if settings.rule != "auto":
        return settings
    rule = told_rule(settings)
    rule = choose_rule(scores) if rule == "auto" else rule
    LOGGER.info(f"rule={rule}, of rule=auto")
    return settings.model_copy(update={"rule": rule})


class Fitted(NamedTuple):
    """The rule that is deployed, and what proves it; nothing does in mode=paper."""

    fit: Fit  # how the rule does on the fit rows
    recalibration: Recalibration | None = None
    certificate: Certificate | None = None
    path: PathRecord | None = None
    use: LedgerEntry | None = None
    group_test: GroupTest | None = None  # where rows come in groups
    advice: Advice | None = None  # where nothing was certified


def make_record(
    settings: Calibrate, base: Base, parts: engines.CalibrationRows, run_id: str
) -> SetClassifier:
    """Fit, and certify in mode=certified; the labels of certify rows are read last."""
    classes = parts.classes
    sample = engines.sorted_sample(parts.fit, settings.max_fit_rows, by_class=True)
    n_fit = parts.fit.n_rows - parts.fit.n_invalid
    if len(sample.labels) < n_fit:
        LOGGER.info(
            f"the search sees {len(sample.labels):,} of {n_fit:,} fit rows, all of rare "
            "classes and the others weighted; max_fit_rows says how many"
        )
    settings = with_rule(settings, sample.scores)
    if settings.mode == "paper" or parts.certify is None:
        fit = _fit_plain(settings, parts, sample)
        fitted = Fitted(replace(fit, rule=_with_candidates(settings, fit.rule, parts.fit)))
    else:
        fitted = _certify(settings, base, parts, parts.certify, sample, run_id)
    rule = fitted.fit.rule
    how = fitted.group_test
    groups = risk_groups(settings.risk_groups)
    measured = rule, classes, settings.confidence, how, groups
    fit_report = engines.report_rule(parts.fit, *measured)
    certify_report = None
    if parts.selected is not None:
        certify_report = engines.report_selected(parts.selected, *measured)
    elif parts.certify is not None:
        certify_report = engines.report_rule(parts.certify, *measured)
    by_class = (certify_report or fit_report).by_class
    return SetClassifier(
        classes=classes,
        rule=rule,
        scores=parts.scores,
        class_miscoverage=tuple(by_class[name].miscoverage for name in classes),
        risk_targets=enforced(settings.risk_targets, classes, settings.waive),
        overall_target=settings.overall_target,
        waived=settings.waive,
        confidence=settings.confidence,
        mode=settings.mode,
        certified=fitted.certificate is not None and fitted.certificate.passed,
        base=base,
        fit_data=parts.fit_data,
        certify_data=parts.certify_data,
        path_data=parts.path_data,
        group=settings.group,
        key=settings.key,
        certificate=fitted.certificate,
        path=fitted.path,
        use=fitted.use,
        fit=fitted.fit,
        fit_report=fit_report,
        certify_report=certify_report,
        n_shared=parts.n_shared,
        package_version=scrib_mlflow.__version__,
        gap=None if settings.weight else _measure_gap(settings, parts, sample, fitted),
        candidate_coverage=_coverage(settings),
        advice=fitted.advice,
        error_weight=settings.error_weight,
        risk_groups=groups,
        weight=settings.weight,
        max_weight=settings.max_weight,
        n_repeated=parts.n_repeated,
        n_dropped=parts.n_dropped,
        unscored=find_unscored(parts),
        selection=None if parts.selected is None else parts.selected.record,
    )


def make_baseline(record: SetClassifier, parts: engines.CalibrationRows) -> Baseline | None:
    """Return what a monitor compares later answers with, None where rows stand for others.

    Rows that certify stand for new rows; fit rows choose what is counted of them.
    """
    if record.weight is not None:
        return None
    selected = parts.selected
    rows = parts.fit if parts.certify is None else parts.certify
    labelled = None
    if selected is None:
        labelled = _served(rows, record.rule)[0], _first_rows(rows).labels
    else:  # only rows that some rule answers have labels
        rows = selected.open_rows
    used = rows
    if rows.groups is not None:
        used = rows.take(one_of_each_group(rows.groups, rows.order))
    fit, fit_sets = _served(parts.fit, record.rule)
    return monitoring.make_baseline(
        parts.classes,
        (fit, fit_sets),
        _served(used, record.rule)[0],
        labelled,
        grouped=rows.groups is not None,
    )


def _first_rows(rows: Scored) -> Scored:
    """Return at most so many rows as a baseline needs, in an order like chance."""
    return rows.at(np.argsort(rows.order, kind="stable")[:BASELINE_ROWS])


def _served(rows: Scored, rule: Rule) -> tuple[monitoring.Served, Bools]:
    """Return what a rule answers to some rows, and their sets."""
    some = _first_rows(rows)
    sets = some.sets_of(rule)(slice(0, some.n_rows))
    scored = valid_rows(asdict(rule), some.scores)
    top = np.where(scored, some.scores.max(axis=1), np.nan)
    return monitoring.served_sets(sets, scored, top), sets


def find_unscored(parts: engines.CalibrationRows) -> Unscored | None:
    """Return which rows could not be scored, None where all could."""
    if parts.selected is not None:
        return parts.selected.unscored
    fit, certify, path = parts.fit, parts.certify, parts.path
    told = [part.unscored for part in (fit, certify, path) if part is not None and part.unscored]
    if not told:
        return None
    return Unscored(
        n_fit=fit.n_invalid,
        n_certify=0 if certify is None else certify.n_invalid,
        n_path=0 if path is None else path.n_invalid,
        first=told[0].first,
        reason=told[0].reason,
    )


def _fit_plain(settings: Calibrate, parts: engines.CalibrationRows, sample: Sample) -> Fit:
    """Fit to the targets themselves, with nothing to prove."""
    what = "multipliers" if settings.rule == "optimal" else "thresholds"
    n, k = sample.scores.shape
    LOGGER.info(f"fitting the {what} of {k} classes on {n:,} rows")
    labels = labels_for(sample.labels, parts.classes)
    common = target_options(settings) | {"classes": parts.classes, "sample_weight": sample.weights}
    if settings.rule == "optimal":
        return fit_optimal(sample.scores, labels, **common)
    return fit_thresholds(sample.scores, labels, **common, **loss_options(settings))


def _certify(
    settings: Calibrate,
    base: Base,
    parts: engines.CalibrationRows,
    certify: Scored,
    sample: Sample,
    run_id: str,
) -> Fitted:
    """Return the last rule of a path that passes, a plain fit where none does.

    The sample is what the search sees of the fit rows. The use of the rows and the path are written
    down before the labels of the certify rows are read.
    """
    classes, selected = parts.classes, parts.selected
    constraints = make_constraints(targets_of(settings), classes)
    plan = None
    if selected is None:
        plan = plan_certify(settings, classes, parts.fit, certify)
        runs.log_texts_and_figures({"plan.json": to_json(plan)}, {})
        if impossible(plan):
            LOGGER.info(plan_sentence(plan))
        how = group_test(settings, parts.fit, parts.fit.labels, constraints)
    else:
        how = selected.group_test
    digest, tested = _identity(settings, base, parts)
    use = ledger.enter(run_id, digest, tested, 1 - settings.confidence, settings.ledger)
    worth, shares = certify.n_rows - certify.n_invalid, parts.fit.weights
    drawing = drawing_options(settings, classes, how, use.level)
    drawing["certify_rows"] = expected_rows(worth, use.level, shares, how)
    drawing["answered_only"] = selected is not None
    with ledger.not_counted_if_it_fails(run_id):
        path = _draw(settings, parts, sample, drawing) if selected is None else selected.path
        text = to_json(path)
        runs.log_texts_and_figures({"path.json": text}, {})
    LOGGER.info(
        f"testing a path of {len(path.steps)} set classifier{'s' * (len(path.steps) > 1)} on "
        f"{certify.n_rows:,} rows "
        f"that it never saw; the first passes with a predicted chance of "
        f"{chance_percent(path.power)}"
    )
    tallies = certify.tallies([step.rule for step in path.steps], constraints, use.level, how)
    outcome = certify_path(tallies, constraints, classes, level=use.level, waived=settings.waive)
    make = partial(
        make_certificate,
        constraints=constraints,
        classes=classes,
        level=use.level,
        waived=settings.waive,
    )
    rule, certificate = deploy(
        path,
        outcome,
        lambda: _fit_plain(settings, parts, sample).rule,
        lambda some: next(certify.tallies([some], constraints, use.level, how)),
        make,
    )
    rule = _with_candidates(settings, rule, parts.representative, path.recalibration)
    fit = _describe(settings, classes, rule, sample)
    advice = None
    if outcome.chosen is None and not (plan is not None and impossible(plan)):
        try:
            advice = _advise(parts, sample, drawing, fit, constraints)
        except ScribError as error:  # the verdict stands without it
            LOGGER.warning(f"no advice: {error}")
    return Fitted(
        fit=fit,
        recalibration=path.recalibration,
        certificate=certificate,
        path=PathRecord(
            digest=seal(text),
            n_steps=len(path.steps),
            power=path.power,
            p_values=outcome.p_values,
            chosen=outcome.chosen,
        ),
        use=use,
        group_test=how,
        advice=advice,
    )


def group_test(
    settings: Calibrate, rows: Scored, labels: Labels, constraints: Sequence[Constraint]
) -> GroupTest | None:
    """Return how groups are tested; a cap that is not given is typical of these rows' groups."""
    asked = (settings.group_test, settings.group_cap, settings.max_group_rows)
    return choose_group_test(rows.group_codes(), labels, constraints, *asked)


def drawing_options(
    settings: Calibrate, classes: tuple[str, ...], how: GroupTest | None, level: float
) -> dict[str, Any]:
    """Return how a path is drawn, but for its rows and the number of certify rows."""
    return {
        "rule": settings.rule,
        "classes": classes,
        **target_options(settings),
        **loss_options(settings),
        "confidence": 1 - level,
        "group_cap": None if how is None else int(how.cap),
    }


def _draw(
    settings: Calibrate,
    parts: engines.CalibrationRows,
    sample: Sample,
    drawing: Mapping[str, Any],
) -> Path:
    """Draw a path with what the search sees of the fit rows, and of those that draw it if any."""
    path_scores = None
    if parts.path is not None:
        most = settings.max_fit_rows
        path_scores = engines.sorted_sample(parts.path, most, by_class=False).scores
    return draw_path(
        sample.scores,
        labels_for(sample.labels, parts.classes),
        **drawing,
        path_scores=path_scores,
        groups=sample.groups,
        sample_weight=sample.weights,
        progress=lambda steps: progress(steps, what="drawing the path", unit="steps"),
    )


def _describe(settings: Calibrate, classes: tuple[str, ...], rule: Rule, sample: Sample) -> Fit:
    """Return a rule of a path with what it reaches on the fit rows."""
    labels = labels_for(sample.labels, classes)
    rows = check_rows(sample.scores, labels, classes, sample.weights, least_rows=1)
    ambiguity = Ambiguity(**settings.model_dump(include=WEIGHTS | {"error_weight"}))
    return describe_rule("path", rule, rows, targets_of(settings), ambiguity)


def _advise(
    parts: engines.CalibrationRows,
    sample: Sample,
    drawing: Mapping[str, Any],
    fit: Fit,
    constraints: Sequence[Constraint],
) -> Advice:
    """Return what would help, as some fit rows tell; a rule's worst risks are suspected first."""
    classes, path_scores = parts.classes, None
    LOGGER.info("looking for targets that could be certified, on the fit rows")
    if parts.selected is not None:  # its labelled rows are few
        some_rows = engines.sorted_sample(parts.selected.path_rows, ADVICE_ROWS, by_class=False)
        path_scores = some_rows.scores
    some = first_rows(sample.labels, sample.groups, ADVICE_ROWS)
    scores, labels = sample.scores[some], labels_for(sample.labels[some], classes)
    groups = None if sample.groups is None else sample.groups[some]
    weights = None if sample.weights is None else sample.weights[some]

    def draw(targets: Mapping[str, float], more: float) -> Path:
        asked = dict(drawing, certify_rows=round(more * drawing["certify_rows"]))
        own = {n: t for n, t in targets.items() if n in classes}
        asked["risk_targets"] = as_given(own, drawing["risk_targets"], classes)
        asked["overall_target"] = targets.get(overall_name(classes))
        together = drawing.get("risk_groups") or {}
        asked["risk_groups"] = {n: (of, targets[n]) for n, (of, _) in together.items()} or None
        rows: dict[str, Any] = {"groups": groups, "sample_weight": weights}
        return draw_path(scores, labels, **asked, **rows, path_scores=path_scores)

    rates = {each.name: each.rate / each.target for each in fit.constraints if each.kind == "risk"}
    suspects = sorted(rates, key=lambda name: -np.nan_to_num(rates[name], nan=np.inf))
    return advise(draw, {claim.name: claim.target for claim in claimed(constraints)}, suspects)


def _identity(settings: Calibrate, base: Base, parts: engines.CalibrationRows) -> tuple[str, str]:
    """Return by what the ledger knows the certify rows, and all that the outcome depends on.

    Rows that were drawn to be labelled are known by their pool, so that another selection from it
    is another use.
    """
    records = (parts.fit_data, parts.certify_data, parts.path_data)
    chosen = settings.model_dump(mode="json", exclude=NO_MATTER) | {"answers": answers(settings)}
    used = [(record.digest, record.n_used) for record in records if record is not None]
    tested = [scrib_mlflow.__version__, base.uri, base.model_id, chosen, used]
    certify = parts.certify_data
    digest = "" if certify is None else certify.digest
    if parts.selected is not None:
        pool, selection = parts.path_data, parts.selected.record.digest
        digest = "" if pool is None else pool.digest
        tested = [scrib_mlflow.__version__, selection, used]
    return digest, json.dumps(tested)


def _with_candidates(
    settings: Calibrate, rule: Rule, rows: Scored, recalibration: Recalibration | None = None
) -> Rule:
    """Return a rule whose candidates rows have calibrated: those that certify, in mode=paper fit.

    A rule that does not recalibrate scores does so for its candidates where it is told how.
    """
    by = rows.scores, rows.labels, _coverage(settings), rows.weights
    return fitted_candidates(rule, recalibration, *by, settings.max_candidates)


def _coverage(settings: Calibrate) -> float:
    """Return how often the candidates of an abstention shall hold the true class."""
    return settings.candidate_coverage or settings.confidence


def _measure_gap(
    settings: Calibrate, parts: engines.CalibrationRows, sample: Sample, fitted: Fitted
) -> AbstentionGap:
    """Return how much of the abstention the scores make inevitable.

    On the scores of the certify rows where there are any, of very many on some; their labels are
    not looked at.
    """
    measured = sample.scores
    if parts.certify is not None:
        most = engines.shown_rows(len(parts.classes))
        rows = parts.certify if parts.selected is None else parts.selected.open_rows
        measured = engines.sorted_sample(rows, most, by_class=False).scores
    rule, recalibration = fitted.fit.rule, fitted.recalibration
    if isinstance(rule, OptimalRule):
        recalibration = rule.recalibration
    scores, weights = sample.scores, sample.weights
    recalibration = recalibration or fit_recalibration(scores, sample.labels, weights)
    constraints = make_constraints(targets_of(settings), parts.classes)
    return measure_gap(
        rule,
        measured,
        constraints,
        recalibration,
        scores,
        settings.seed,
        weights,
        error_weight=settings.error_weight,
    )
