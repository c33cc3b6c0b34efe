"""Calibrate: from a registered classifier and labelled rows to a registered set classifier."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from mlflow.pyfunc import PyFuncModel

import scrib_mlflow
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
from scrib_mlflow.core.groups import GroupTest, choose_group_test, first_rows, make_group_test
from scrib_mlflow.core.inputs import Floats, check_rows, labels_for
from scrib_mlflow.core.loss import Ambiguity, choose_rule, describe_rule
from scrib_mlflow.core.optimal import AbstentionGap, fit_optimal, fit_recalibration, measure_gap
from scrib_mlflow.core.rules import Fit, OptimalRule, Recalibration, Rule, ThresholdRule
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
from scrib_mlflow.engines import base as engines, doing, open_engine
from scrib_mlflow.errors import InvalidSettingsError, NotCertifiedError, ScribError
from scrib_mlflow.messages import chance_percent, progress
from scrib_mlflow.options import Calibrate, Settings
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import (
    SCORES_ONLY,
    Base,
    LedgerEntry,
    Unscored,
    group_targets,
    risk_groups,
    seal,
)
from scrib_mlflow.registry import ledger, models, runs, stores
from scrib_mlflow.registry.models import Stored
from scrib_mlflow.report import words
from scrib_mlflow.report.page import calibration_report, page_files
from scrib_mlflow.report.plan import impossible, plan_sentence
from scrib_mlflow.results import PathRecord, SetClassifier, to_json
from scrib_mlflow.rows import leakage, scoring
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.rows.tables import GivenRows, TableLike
from scrib_mlflow.serving import candidate_sets, rule_sets
from scrib_mlflow.workflows.plan import plan_certify

LOGGER = logging.getLogger(__name__)

LOCATIONS = {"model_uri", "data", "certify_data", "path_data", "registered_model_name", "alias"}
MEANS = {"require_certificate", "batch_rows", "engine", "spark_options"}
MEANS |= {"allow_overlap", "max_invalid", "candidate_coverage", "max_candidates"}
NO_MATTER = LOCATIONS | MEANS  # options that change nothing about what is tested
TARGETS = {"risk_targets", "overall_target", "max_class_abstention", "waive"}  # beside groups
WEIGHTS = {"chance_weight", "size_weight", "empty_weight"}
THRESHOLD_OPTIONS = {"penalty", *WEIGHTS}
ADVICE_ROWS = 5_000  # fit rows that advice is drawn from
GROUP_OPTIONS = ("group_cap", "group_test", "max_group_rows")
EXAMPLE_ROWS = 2  # logged with the model
ABOUT = (
    "Set classifiers over {base}, made by scrib_mlflow: each version answers with one label where "
    "it is certain, and abstains with candidates where it is not. A version's tag scrib.certified "
    "says whether its class risks are proved to be within their targets; its description says what "
    "was proved, and on how many rows."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A registered set classifier and where it stands."""

    name: str
    version: str
    alias: str  # "" where it is not certified, and the version that has the alias is
    model_uri: str  # runs:/RUN_ID where there is no model, and no name and version either
    run_id: str
    classifier: SetClassifier


def calibrate(
    model_uri: str | None = None,
    data: GivenRows | None = None,
    label: str | None = None,
    **parameters: Any,
) -> Calibration:
    """Make a registered classifier a set classifier that keeps a risk for every class.

    Scores the labelled rows with the registered model, finds a rule that turns scores into sets,
    logs what came of it to the open run (or a new one), and registers a model that serves sets.

    Parameters
    ----------
    model_uri : str, optional
        ``models:/NAME/VERSION``, ``models:/NAME@ALIAS`` or ``models:/m-ID``. Without one,
        ``scores_from="columns:[p_a, p_b]"`` names the columns of ``data`` that hold the scores of
        some other model; then nothing is registered.
    data : str, Path or DataFrame
        Labelled rows: a parquet or csv file, by path or URI, or a pandas frame.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow calibrate --help``, for example
        ``risk_targets={"N1": 0.2, "default": 0.1}``.

    Returns
    -------
    Calibration
        Name and version in the registry, the run, and the set classifier with its reports. Without
        a model, name and version are empty, and ``model_uri`` is ``runs:/RUN_ID``.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Calibrate, values))


def run(settings: Calibrate) -> Calibration:
    """Do what `calibrate` does."""
    check_options(settings)
    base = find_base(settings.model_uri)
    name = settings.registered_model_name or f"{base.name}-scrib"
    if base.uri:
        with stores.short_waits():
            models.check_names(name, settings.alias, base)
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
        request = rows_request(settings)
        tables = engine.read_tables(request)
        if base.uri:
            labelled = [each for each in (tables.data, tables.certify) if each is not None]
            leakage.check_untrained(base.uri, labelled, allowed=settings.allow_overlap)
        run_id = stack.enter_context(runs.open_run(f"calibrate {base.name}", base.name))
        runs.log_parameters(run_id, settings.model_dump())
        _log_inputs(tables, settings)
        model, example = _load(base)
        LOGGER.info(doing(settings.engine, sum(table.record.n_rows for table in tables.all())))
        parts = engine.make_parts(tables, model, base.uri, example, request)
        unscored = find_unscored(parts)
        if unscored is not None:
            LOGGER.warning(words.unscored_sentence(unscored))
        _warn_of_leakage(settings, tables.data, parts)
        if model is not None:
            _try_serving(base, model, parts)
        stack.enter_context(_told_if_counted(run_id))
        record = _make_record(settings, base, parts, run_id)
        stored = Stored(record, to_json(record))
        _log(stored, tables, parts, settings, name if base.uri else base.name, run_id)
        if model is None:
            runs.remember(f"runs:/{run_id}", "", "")
            done = _not_registered(record, run_id)
        else:
            LOGGER.info("logging the set classifier, and trying it")
            logged_uri = _log_model(stored, model, parts.tried, example, run_id)
            runs.remember(logged_uri, name, settings.alias)
            done = register_logged(logged_uri, stored, run_id, name, settings.alias)
    if settings.require_certificate and not record.certified:
        LOGGER.info(f"\n{summary(done)}\n")
        raise NotCertifiedError(
            f"{done.model_uri} is {'registered but ' * bool(base.uri)}not certified, which "
            "require_certificate asks for; the table above says which classes are in the way"
        )
    return done


@contextmanager
def _told_if_counted(run_id: str) -> Iterator[None]:
    """Say of what fails that it has used the certify rows, where their labels were read."""
    try:
        yield
    except BaseException:
        number = ledger.number_of(run_id)
        if number is not None:
            LOGGER.warning(
                f"The labels of the certify rows had been read, so this counts as use {number} of "
                "them in the ledger. The same calibration again is the same use."
            )
        raise


def _warn_of_leakage(settings: Calibrate, data: TableLike, parts: engines.CalibrationRows) -> None:
    """Log what makes certify rows doubtful as independent cases, and what to do about it."""
    if parts.certify is None:
        return
    if parts.n_repeated:
        LOGGER.warning(words.repeated(parts.n_repeated, parts.certify.n_rows))
    if settings.mode == "certified" and settings.group is None:
        inputs = () if parts.tried is None else parts.tried.features.columns
        leakage.hint_at_groups(data, inputs)


def _load(base: Base) -> tuple[PyFuncModel | None, Any]:
    """Return a model and the example that it was logged with; neither where only scores are."""
    if not base.uri:
        return None, None
    LOGGER.info(f"loading {base.uri}")
    return models.load_model(base.uri), scoring.input_example(base.uri)


def _not_registered(record: SetClassifier, run_id: str) -> Calibration:
    """Return a calibration of scores that no model of MLflow gives: only its run holds it."""
    uri = f"runs:/{run_id}"
    return Calibration(
        name="", version="", alias="", model_uri=uri, run_id=run_id, classifier=record
    )


def check_options(settings: Calibrate) -> None:
    """Raise for options that exclude each other."""
    _check_model_options(settings)
    _check_certify_options(settings)
    changed = settings.model_dump(exclude_defaults=True)
    rule = _told_rule(settings)
    for name in sorted(THRESHOLD_OPTIONS):
        if rule == "optimal" and name in changed:
            raise InvalidSettingsError(
                f"{name} is for rule=thresholds; rule=optimal has no such weight, it keeps the "
                "targets with the least abstention"
            )
    _check_group_options(settings, changed)
    _check_weight_options(settings)
    for name in ("certify_fraction", "path_data", "group", "weight", "duplicates"):
        if settings.mode == "paper" and name in changed:
            raise InvalidSettingsError(
                f"{name} is for mode=certified; mode=paper fits all rows and certifies none"
            )
    if settings.mode == "paper" and settings.require_certificate:
        raise InvalidSettingsError(
            "require_certificate needs mode=certified; mode=paper certifies nothing"
        )


def _check_model_options(settings: Calibrate) -> None:
    """Raise where there is neither a model nor scores of one, or nothing to register."""
    if settings.model_uri is not None:
        return
    if settings.scores_from.partition(":")[0] != scoring.COLUMNS:
        raise InvalidSettingsError(
            "model_uri is missing; give the classifier as models:/NAME/VERSION, or, for scores of "
            "a model that MLflow does not have, their columns: scores_from='columns:[p_a, p_b]'"
        )
    changed = settings.model_dump(exclude_defaults=True)
    for name in ("registered_model_name", "alias"):
        if name in changed:
            raise InvalidSettingsError(
                f"{name} is for a model that is registered, but without model_uri there is nothing "
                "to serve; leave it out"
            )


def _told_rule(settings: Calibrate) -> RuleName | Literal["auto"]:
    """Return the rule that the options decide; `auto` where the scores do."""
    changed = settings.model_dump(exclude_defaults=True)
    if settings.rule == "auto" and (settings.mode == "paper" or changed.keys() & THRESHOLD_OPTIONS):
        return "thresholds"
    return settings.rule


def _check_certify_options(settings: Calibrate) -> None:
    """Raise where two options say which rows certify."""
    if settings.certify_fraction is not None and settings.certify_data is not None:
        raise InvalidSettingsError(
            "certify_fraction and certify_data exclude each other; leave one of them out"
        )
    if settings.key is not None and settings.duplicates == "drop":
        raise InvalidSettingsError(
            "duplicates=drop and key exclude each other: rows with keys of their own are no copies"
        )


def _check_group_options(settings: Calibrate, changed: Mapping[str, Any]) -> None:
    """Raise for options about groups that mean nothing, or not what they seem to."""
    for name in GROUP_OPTIONS:
        if name in changed and settings.group is None:
            raise InvalidSettingsError(
                f"{name} is about groups; give group, the column that names them, or leave it out"
            )
    if settings.group_cap is not None or settings.max_group_rows is not None:
        make_group_test(settings.group_test, settings.group_cap, settings.max_group_rows)


def _check_weight_options(settings: Calibrate) -> None:
    """Raise where rows have weights that no certificate covers, or that nothing bounds."""
    if (settings.weight is None) != (settings.max_weight is None):
        missing = "weight" if settings.weight is None else "max_weight"
        raise InvalidSettingsError(
            f"{missing} is missing: weighted errors are not binomial, and the bets that test them "
            "need the column weight and max_weight, the highest weight that a row can have"
        )
    if settings.weight is None:
        return
    reasons = {
        "group": "rows have groups and weights, which no certificate covers",
        "path_data": "rows without labels have no weights, so they would draw another path",
    }
    for name, reason in reasons.items():
        if getattr(settings, name) is not None:
            raise InvalidSettingsError(f"{reason}; leave out {name} or weight")
    if settings.engine != "local":
        raise InvalidSettingsError("weight needs engine=local; Spark does not read weights here")


def as_calibrate(settings: Settings) -> Calibrate:
    """Return the options of a calibration of the same rows, which is why they are split alike."""
    return Calibrate(**settings.model_dump(include=set(Calibrate.model_fields)))


def targets_of(settings: Calibrate) -> Targets:
    """Return the targets that the options ask for."""
    return Targets(**settings.model_dump(include=TARGETS | {"penalty"}), **_groups(settings))


def _groups(settings: Calibrate) -> dict[str, Any]:
    """Return the risk groups by the name of the core's option."""
    if settings.risk_groups is None:
        return {}
    return {"risk_groups": group_targets(risk_groups(settings.risk_groups))}


def rows_request(settings: Calibrate) -> engines.RowsRequest:
    """Return which rows the options ask for, and how they are scored."""
    rows = {"data", "certify_data", "path_data", "key", "group", "certify_fraction", "waive"}
    rows |= {"weight", "max_weight"}
    how = {"label", "classes", "scores_from", "score_transform", "batch_rows", "seed"}
    how |= {"max_invalid"}
    scored = settings.model_dump(include=how)
    return engines.RowsRequest(
        **settings.model_dump(include=rows),
        certify=settings.mode == "certified",
        drop_repeated=settings.duplicates == "drop",
        scoring=scoring.ScoreOptions(targets=targets_of(settings), **scored),
    )


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
    rule = _told_rule(settings)
    rule = choose_rule(scores) if rule == "auto" else rule
    LOGGER.info(f"rule={rule}, of rule=auto")
    return settings.model_copy(update={"rule": rule})


def register_logged(
    logged_uri: str, stored: Stored, run_id: str, name: str, alias: str
) -> Calibration:
    """Register the set classifier that a run has logged.

    One that was to be certified and is not takes no alias from a certified version.
    """
    if stored.record.mode == "certified" and not stored.record.certified:
        alias = "" if models.is_certified(name, alias) else alias
    version = models.register(
        logged_uri,
        name,
        alias,
        tags=models.version_tags(stored, run_id),
        description=words.description(stored.record, run_id),
        about=ABOUT.format(base=stored.record.base.name),
    )
    return Calibration(
        name=name,
        version=version,
        alias=alias,
        model_uri=f"models:/{name}/{version}",
        run_id=run_id,
        classifier=stored.record,
    )


def find_base(model_uri: str | None) -> Base:
    """Return the classifier that a URI means, if the stores answer and MLflow can call it."""
    with stores.short_waits():
        stores.check_stores()
        if model_uri is None:
            return SCORES_ONLY
        base = stores.find_model(model_uri)
        scoring.check_is_base(base)
    return base


def _log_inputs(tables: engines.Tables[Any], settings: Calibrate) -> None:
    """Log every table as what it is for; one that is split is for both."""
    contexts = {"data": ["fit"], "certify_data": ["certify"], "path_data": ["path"]}
    if settings.mode == "certified" and tables.certify is None:
        contexts["data"].append("certify")
    for table in tables.all():
        for context in contexts[table.what]:
            runs.log_table_input(table.some_rows(), table.record, table.label, context)


class Fitted(NamedTuple):
    """The rule that is deployed, and what proves it; nothing does in mode=paper."""

    fit: Fit  # how the rule does on the fit rows
    recalibration: Recalibration | None = None
    certificate: Certificate | None = None
    path: PathRecord | None = None
    use: LedgerEntry | None = None
    group_test: GroupTest | None = None  # where rows come in groups
    advice: Advice | None = None  # where nothing was certified


def _make_record(
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
    fitted = _fit(settings, base, parts, sample, run_id)
    rule = fitted.fit.rule
    how = fitted.group_test
    groups = risk_groups(settings.risk_groups)
    measured = rule, classes, settings.confidence, how, groups
    fit_report = engines.report_rule(parts.fit, *measured)
    certify_report = None
    if parts.certify is not None:
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
    )


def find_unscored(parts: engines.CalibrationRows) -> Unscored | None:
    """Return which rows could not be scored, None where all could."""
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


def leave_out_unscored(rows: Scored) -> Scored:
    """Return the rows that could be scored, with a word on the others."""
    if rows.unscored is not None:
        LOGGER.warning(
            f"{rows.n_invalid:,} rows could not be scored and are left out; calibrate counts them "
            f"as abstentions: {rows.unscored.first} ({rows.unscored.reason})"
        )
    return rows.scorable()


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


def _fit(
    settings: Calibrate, base: Base, parts: engines.CalibrationRows, sample: Sample, run_id: str
) -> Fitted:
    """Return the last rule of a path that passes, a plain fit where none does or in mode=paper.

    The sample is what the search sees of the fit rows. The use of the rows and the path are written
    down before the labels of the certify rows are read.
    """
    classes, certify, certify_data = parts.classes, parts.certify, parts.certify_data
    if settings.mode == "paper" or certify is None or certify_data is None:
        fit = _fit_plain(settings, parts, sample)
        return Fitted(replace(fit, rule=_with_candidates(settings, fit.rule, parts.fit)))
    plan = plan_certify(settings, classes, parts.fit, certify)
    runs.log_texts_and_figures({"plan.json": to_json(plan)}, {})
    if impossible(plan):
        LOGGER.info(plan_sentence(plan))
    path_scores = None
    if parts.path is not None:
        most = settings.max_fit_rows
        path_scores = engines.sorted_sample(parts.path, most, by_class=False).scores
    labels = labels_for(sample.labels, classes)
    constraints = make_constraints(targets_of(settings), classes)
    asked = (settings.group_test, settings.group_cap, settings.max_group_rows)
    how = choose_group_test(parts.fit.group_codes(), parts.fit.labels, constraints, *asked)
    tested = _tested(settings, base, parts)
    level = 1 - settings.confidence
    use = ledger.enter(run_id, certify_data.digest, tested, level, settings.ledger)
    drawing = {
        "rule": settings.rule,
        "certify_rows": expected_rows(
            certify.n_rows - certify.n_invalid, use.level, parts.fit.weights, how
        ),
        "classes": classes,
        **target_options(settings),
        **loss_options(settings),
        "confidence": 1 - use.level,
        "group_cap": None if how is None else int(how.cap),
    }
    with ledger.not_counted_if_it_fails(run_id):
        path = draw_path(
            sample.scores,
            labels,
            **drawing,
            path_scores=path_scores,
            groups=sample.groups,
            sample_weight=sample.weights,
            progress=lambda steps: progress(steps, what="drawing the path", unit="steps"),
        )
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
    rule = _with_candidates(settings, rule, certify, path.recalibration)
    rows = check_rows(sample.scores, labels, classes, sample.weights, least_rows=1)
    ambiguity = Ambiguity(**settings.model_dump(include=WEIGHTS | {"error_weight"}))
    fit = describe_rule("path", rule, rows, targets_of(settings), ambiguity)
    advice = None
    if outcome.chosen is None and not impossible(plan):
        try:
            advice = _advise(sample, classes, drawing, fit, constraints)
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


def _advise(
    sample: Sample,
    classes: tuple[str, ...],
    drawing: Mapping[str, Any],
    fit: Fit,
    constraints: Sequence[Constraint],
) -> Advice:
    """Return what would help, as some fit rows tell; a rule's worst risks are suspected first."""
    LOGGER.info("looking for targets that could be certified, on the fit rows")
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
        return draw_path(scores, labels, **asked, groups=groups, sample_weight=weights)

    rates = {each.name: each.rate / each.target for each in fit.constraints if each.kind == "risk"}
    suspects = sorted(rates, key=lambda name: -np.nan_to_num(rates[name], nan=np.inf))
    return advise(draw, {claim.name: claim.target for claim in claimed(constraints)}, suspects)


def _tested(settings: Calibrate, base: Base, parts: engines.CalibrationRows) -> str:
    """Return everything that the outcome depends on, as text."""
    records = (parts.fit_data, parts.certify_data, parts.path_data)
    chosen = settings.model_dump(mode="json", exclude=NO_MATTER) | {"answers": answers(settings)}
    used = [(record.digest, record.n_used) for record in records if record is not None]
    return json.dumps([scrib_mlflow.__version__, base.uri, base.model_id, chosen, used])


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
        measured = engines.sorted_sample(parts.certify, most, by_class=False).scores
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


def _log(
    stored: Stored,
    tables: engines.Tables[Any],
    parts: engines.CalibrationRows,
    settings: Calibrate,
    name: str,
    run_id: str,
) -> None:
    """Log everything but the model to the run."""
    record = stored.record
    metrics = {"certified": float(record.certified), "fit_loss": record.fit.loss}
    metrics |= runs.fit_metrics(record.fit_report, alone=record.certify_report is None)
    measured, prefix = (parts.fit, "fit_") if parts.certify is None else (parts.certify, "")
    metrics[f"{prefix}n_invalid"] = float(measured.n_invalid)
    if record.certify_report is not None:
        metrics |= runs.report_metrics(record.certify_report)
    if record.certificate is not None:
        metrics |= runs.certificate_metrics(record.certificate, record.classes)
    metrics |= runs.gap_metrics(record.gap, prefix=prefix)
    runs.log_metrics(metrics)
    page = calibration_report(record, tables, parts, settings.model_dump(), name, run_id)
    note = words.describe(record, page.facts, "More is in the artifact report.html.")
    digest = {"scrib.data_digest": record.fit_data.digest}
    runs.set_tags(models.version_tags(stored, run_id) | digest, note)
    runs.log_rows(page.facts.table.records(), "classes.json")
    runs.log_row_hashes(parts.cases)
    documents, drawn = page_files(page)
    documents |= {"scrib.json": stored.text, "description.md": note}
    if record.certificate is not None:
        documents["certificate.json"] = to_json(record.certificate)
    runs.log_texts_and_figures(documents, drawn)


def _try_serving(base: Base, model: Any, parts: engines.CalibrationRows) -> None:
    """Let a made-up rule answer rows as served, before labels of certify rows are spent."""
    if parts.tried is None:
        return
    LOGGER.info("trying to serve it")
    rows, scores = parts.tried
    low, high = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    # halfway, where no score is likely to be
    rule = ThresholdRule(thresholds=tuple(np.where(high > low, (low + high) / 2, low - 1).tolist()))
    served = {
        "classes": parts.classes,
        "rule": asdict(rule),
        "scores": asdict(parts.scores),
        "class_miscoverage": [0.0] * len(parts.classes),
    }
    inputs, expected = model.metadata.get_input_schema(), _expected(rule, parts.classes, scores)
    models.try_rule(served, base.uri, inputs, rows, rows.iloc[:EXAMPLE_ROWS], expected)


def _expected(rule: Rule, classes: Sequence[str], scores: Floats) -> models.Expected:
    """Return the members of the set of each row, and the classes that it names."""
    names, plain = np.array(classes, dtype=np.object_), asdict(rule)
    counted = {
        "prediction_set": rule_sets(plain, scores),
        "candidates": candidate_sets(plain, scores),
    }
    return {name: [names[row].tolist() for row in rows] for name, rows in counted.items()}


def _log_model(
    stored: Stored, model: Any, tried: engines.SmokeTest | None, example: Any, run_id: str
) -> str:
    """Log the set classifier and let it answer rows; a model that fails is deleted."""
    record, inputs = stored.record, model.metadata.get_input_schema()
    rows = example if tried is None else tried.features
    kept = example if tried is None else tried.features.iloc[:EXAMPLE_ROWS]
    try:
        logged = models.log_model(stored, inputs, rows, kept)
        if tried is not None:
            expected = _expected(record.rule, record.classes, tried.scores)
            models.try_model(logged.model_uri, tried.features, expected)
    except BaseException:
        models.delete_logged(run_id)
        raise
    return logged.model_uri


def summary(done: Calibration) -> str:
    """Return what a person wants to see at the end."""
    names = done.name, done.version, done.alias
    where = words.logged(*runs.place_of(done.run_id))
    if not done.name:
        return words.terminal(words.scores_summary(done.classifier, done.model_uri, where))
    return words.terminal(words.calibration_summary(done.classifier, *names, where))
