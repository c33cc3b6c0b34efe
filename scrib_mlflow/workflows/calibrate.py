"""Calibrate: from a registered classifier and labelled rows to a registered set classifier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import mlflow
import numpy as np

import scrib_mlflow
from scrib_mlflow.adapters import (
    plans,
    registration,
    rule_texts,
    runs,
    scoring,
    stores,
    texts,
    verdicts,
)
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.adapters.report import REPORT
from scrib_mlflow.errors import NotCertifiedError
from scrib_mlflow.results import Base, SetClassifier, to_json
from scrib_mlflow.serving import rule_sets
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.calibrate_log import log_calibration
from scrib_mlflow.workflows.certify import certify
from scrib_mlflow.workflows.engines import doing, open_engine
from scrib_mlflow.workflows.fitting import find_gap, fit_rule, wanted_coverage
from scrib_mlflow.workflows.parts import Parts, Tables, Tried, check_options, sorted_sample
from scrib_mlflow.workflows.plan import plan_parts
from scrib_mlflow.workflows.rows import enforced
from scrib_mlflow.workflows.served import report_rule

EXAMPLE_ROWS = 2  # kept with the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A registered set classifier and where it stands."""

    name: str
    version: str
    alias: str
    model_uri: str
    run_id: str
    classifier: SetClassifier


def calibrate(model_uri: str, data: str, label: str, **parameters: Any) -> Calibration:
    """Make a registered classifier a set classifier that keeps a risk for every class.

    Scores the labelled rows with the registered model, finds a rule that turns scores into sets,
    logs what came of it to the open run (or a new one), and registers a model that serves sets.

    Parameters
    ----------
    model_uri : str
        ``models:/NAME/VERSION``, ``models:/NAME@ALIAS`` or ``models:/m-ID``.
    data : str
        Labelled rows: a parquet or csv file, by path or URI.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow calibrate --help``, for example
        ``risk_targets={"N1": 0.2, "default": 0.1}``.

    Returns
    -------
    Calibration
        Name and version in the registry, the run, and the set classifier with its reports.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Calibrate, values), say=lambda _: None)


def run(settings: Calibrate, say: Callable[[str], None]) -> Calibration:
    """Do what `calibrate` does, saying what it is at."""
    check_options(settings)
    base, name = _preflight(settings)
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
        tables = engine.read_tables(settings)
        run_id = stack.enter_context(runs.open_run(f"calibrate {base.name}"))
        runs.log_settings(run_id, settings)
        _log_inputs(tables, settings)
        say(f"loading {base.uri}")
        model = scoring.load_model(base.uri)
        example = scoring.input_example(base.uri)
        say(doing(settings.engine, sum(table.record.n_rows for table in tables.all())))
        parts = engine.make_parts(tables, model, base.uri, example, settings)
        record = _make_record(settings, base, parts, run_id, say)
        log_calibration(record, tables, parts, settings, name, run_id)
        say("logging the set classifier, and trying it")
        logged_uri = _log_model(record, model, parts.tried, example, run_id)
        runs.remember(logged_uri, name, settings.alias)
        version = registration.register(
            logged_uri, record, to_json(record), run_id, name, settings.alias
        )
    done = Calibration(
        name=name,
        version=version,
        alias=settings.alias,
        model_uri=f"models:/{name}/{version}",
        run_id=run_id,
        classifier=record,
    )
    if settings.require_certificate and not record.certified:
        say(f"\n{summary(done)}\n")
        msg = (
            f"{done.model_uri} is registered but not certified, which require_certificate asks "
            "for; the table above says which classes are in the way"
        )
        raise NotCertifiedError(msg)
    return done


def _log_inputs(tables: Tables[Any], settings: Calibrate) -> None:
    """Log every table as what it is for; one that is split is for both."""
    contexts = {"data": ["fit"], "certify_data": ["certify"], "path_data": ["path"]}
    if settings.mode == "certified" and tables.certify is None:
        contexts["data"].append("certify")
    for table in tables.all():
        for context in contexts[table.what]:
            runs.log_table_input(table.some_rows(), table.record, table.label, context)


def _preflight(settings: Calibrate) -> tuple[Base, str]:
    """Return the base model and the name to register under; whatever is amiss is told at once."""
    with stores.short_waits():
        stores.check_stores()
        base = stores.find_model(settings.model_uri)
        scoring.check_is_base(base)
        name = settings.registered_model_name or f"{base.name}-scrib"
        registration.check_names(name, settings.alias, base)
        stores.check_may_register(name)
    return base, name


def _make_record(
    settings: Calibrate, base: Base, parts: Parts, run_id: str, say: Callable[[str], None]
) -> SetClassifier:
    """Fit, and certify where asked for; the labels of certify rows are read last."""
    certified = None
    classes, fitted = parts.classes, parts.fit
    sample = sorted_sample(fitted, settings.max_fit_rows, by_class=True)
    if sample.weights is not None:
        say(
            f"the search sees {len(sample.labels):,} of {fitted.n_rows:,} fit rows, all of rare "
            "classes and the others weighted; max_fit_rows says how many"
        )
    if settings.mode == "certified":
        runs.log_texts_and_figures({"plan.json": to_json(plan := plan_parts(settings, parts))}, {})
        say(plans.plan_sentence(plan))
        certified = certify(settings, base, parts, sample, run_id, say)
    if certified is None:
        what = "multipliers" if settings.rule == "optimal" else "thresholds"
        say(f"fitting the {what} of {len(classes)} classes on {len(sample.labels):,} rows")
    fit = fit_rule(settings, sample, classes) if certified is None else certified.fit
    report = report_rule(fitted, fit.rule, classes, settings.confidence)
    certify_report = None
    if parts.certify is not None:
        certify_report = report_rule(parts.certify, fit.rule, classes, settings.confidence)
    newest = certify_report or report
    return SetClassifier(
        classes=classes,
        rule=fit.rule,
        scores=parts.scores,
        class_miscoverage=tuple(newest.by_class[name].miscoverage for name in classes),
        risk_targets=enforced(settings.risk_targets, classes, settings.waive),
        overall_target=settings.overall_target,
        waived=settings.waive,
        confidence=settings.confidence,
        mode=settings.mode,
        certified=certified is not None and certified.certificate.passed,
        base=base,
        fit_data=parts.fit_data,
        certify_data=parts.certify_data,
        path_data=parts.path_data,
        group=settings.group,
        key=settings.key,
        certificate=certified and certified.certificate,
        path=certified and certified.path,
        use=certified and certified.use,
        fit=fit,
        fit_report=report,
        certify_report=certify_report,
        n_shared=parts.n_shared,
        package_version=scrib_mlflow.__version__,
        gap=find_gap(settings, parts, sample, fit, certified and certified.recalibration),
        candidate_coverage=wanted_coverage(settings) if settings.rule == "optimal" else None,
    )


def _log_model(
    record: SetClassifier, model: Any, tried: Tried | None, example: Any, run_id: str
) -> str:
    """Log the set classifier and let it answer rows; a model that fails is deleted."""
    inputs = model.metadata.get_input_schema()
    rows = example if tried is None else tried.features
    kept = example if tried is None else tried.features.iloc[:EXAMPLE_ROWS]
    try:
        logged = registration.log_model(record, inputs, rows, kept)
        if tried is not None:
            sets = rule_sets(asdict(record.rule), tried.scores)
            names = np.array(record.classes, dtype=np.object_)
            expected = [names[row].tolist() for row in sets]
            registration.try_model(logged.model_uri, tried.features, expected)
    except BaseException:
        registration.delete_logged(run_id)
        raise
    return logged.model_uri


def summary(done: Calibration) -> str:
    """Return what a person wants to see at the end."""
    record = done.classifier
    report, which, _ = verdicts.shown_report(record)
    lines = [
        f"{done.name} version {done.version}, alias {done.alias}, on {which}:",
        "",
        texts.plain_table(verdicts.record_rows(record, texts.MOST_PRINTED)),
        *texts.folded(report, texts.MOST_PRINTED),
        "",
        texts.abstentions(report),
        *([texts.empty_hint(report)] if texts.empty_hint(report) else []),
        verdicts.verdict(record),
        *rule_texts.sentences(record),
        "",
        f"promote it    python -m scrib_mlflow gate --model_uri {done.model_uri} --alias champion",
        f"serve it      mlflow models serve -m models:/{done.name}@{done.alias} "
        "--env-manager local -p 5001",
        f"measure it    python -m scrib_mlflow evaluate --model_uri {done.model_uri} "
        "--data FILE --label COLUMN",
        f"look at it    mlflow ui --backend-store-uri {stores.shown(mlflow.get_tracking_uri())}"
        f"  (run {done.run_id}, artifact {REPORT})",
    ]
    return "\n".join(lines)
