"""Calibrate: from a registered classifier and labelled rows to a registered set classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import mlflow
import numpy as np

import scrib_mlflow
from scrib_mlflow.adapters import digests, figures, registration, runs, scoring, stores, texts
from scrib_mlflow.adapters.metrics import report_metrics
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.evaluate import SetReport, evaluate_sets
from scrib_mlflow.core.fit import fit_thresholds
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.targets import by_name
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.results import Base, SetClassifier, to_json
from scrib_mlflow.serving import rule_sets
from scrib_mlflow.settings import Calibrate
from scrib_mlflow.workflows.rows import MOST_SHARED, Scored, Table, read_rows, score_tables

TRIED_ROWS = 200  # answered by the logged model before it is registered
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

    Scores the labelled rows with the registered model, finds a threshold for each class, logs what
    came of it to the open run (or a new one), and registers a model that serves sets.

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
    base, name = _preflight(settings)
    read = [read_rows("data", settings.data, settings.label)]
    if settings.certify_data is not None:
        read.append(read_rows("certify_data", settings.certify_data, settings.label))
    with runs.open_run(f"calibrate {base.name}") as run_id:
        runs.log_settings(run_id, settings)
        for table, context in zip(read, ("fit", "certify"), strict=False):
            runs.log_table_input(table.rows, table.record, settings.label, context)
        say(f"loading {base.uri}")
        model = scoring.load_model(base.uri)
        example = scoring.input_example(base.uri)
        scored = score_tables(model, example, read, settings)
        n_shared = _count_shared(scored)
        n, k = scored[0].scores.shape
        say(
            f"fitting the thresholds of {k} classes on {n:,} rows; a first fit compiles for a while"
        )
        record = _make_record(settings, base, _fit(settings, scored[0]), read, scored, n_shared)
        _log(record, scored[0], run_id)
        say("logging the set classifier, and trying it")
        logged_uri = _log_model(record, model, scored[0], example, run_id)
        runs.remember(logged_uri, name, settings.alias)
        version = registration.register(logged_uri, record, run_id, name, settings.alias)
    return Calibration(
        name=name,
        version=version,
        alias=settings.alias,
        model_uri=f"models:/{name}/{version}",
        run_id=run_id,
        classifier=record,
    )


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


def _count_shared(scored: list[Scored]) -> int:
    """Return how many certify rows equal a fit row, as a few may by chance; refuse more."""
    if len(scored) == 1:
        return 0
    shared = digests.count_shared(scored[0].cases(), scored[1].cases())
    n = len(scored[1].labels)
    if shared > MOST_SHARED * n:
        msg = (
            f"{shared:,} of the {n:,} rows of certify_data stand in data as well, so measuring "
            "them would prove nothing; give rows that the fit does not see"
        )
        raise InvalidDataError(msg)
    return shared


def _fit(settings: Calibrate, scored: Scored) -> Fit:
    classes = scored.scorer.classes
    return fit_thresholds(
        scored.scores,
        labels_for(scored.labels, classes),
        settings.risk_targets,
        classes=classes,
        overall_target=settings.overall_target,
        max_class_abstention=settings.max_class_abstention,
        waive=settings.waive,
        penalty=settings.penalty,
        chance_weight=settings.chance_weight,
        size_weight=settings.size_weight,
        empty_weight=settings.empty_weight,
        seed=settings.seed,
    )


def _make_record(
    settings: Calibrate,
    base: Base,
    fit: Fit,
    read: list[Table],
    scored: list[Scored],
    n_shared: int,
) -> SetClassifier:
    classes = fit.classes
    reports = [_report(fit, each, settings.confidence) for each in scored]
    targets = by_name("risk_targets", settings.risk_targets, classes)
    newest = reports[-1]
    return SetClassifier(
        classes=classes,
        rule=fit.rule,
        scores=scored[0].scorer.source,
        class_miscoverage=tuple(newest.by_class[name].miscoverage for name in classes),
        risk_targets={
            classes[j]: target for j, target in targets.items() if classes[j] not in settings.waive
        },
        overall_target=settings.overall_target,
        waived=settings.waive,
        confidence=settings.confidence,
        mode=settings.mode,
        certified=False,
        base=base,
        fit_data=read[0].record,
        certify_data=read[1].record if len(read) > 1 else None,
        fit=fit,
        fit_report=reports[0],
        certify_report=reports[1] if len(reports) > 1 else None,
        n_shared=n_shared,
        package_version=scrib_mlflow.__version__,
    )


def _report(fit: Fit, scored: Scored, confidence: float) -> SetReport:
    labels = labels_for(scored.labels, fit.classes)
    return evaluate_sets(scored.scores, labels, fit, confidence=confidence)


def _log(record: SetClassifier, scored: Scored, run_id: str) -> None:
    """Log everything but the model to the run."""
    report, which, bounds = texts.shown_report(record)
    metrics = {"certified": 0.0, "fit_loss": record.fit.loss}
    metrics |= report_metrics(record.fit_report, prefix="fit_")
    if record.certify_report is not None:
        metrics |= report_metrics(record.certify_report)
    runs.log_metrics(metrics)
    note = texts.describe(record)
    runs.set_tags(registration.version_tags(record, run_id), note)
    runs.log_class_table(report, record.risk_targets, "classes.json")
    runs.log_cases(scored.cases())
    runs.log_texts_and_figures(
        {"scrib.json": to_json(record), "description.md": note},
        {
            "figures/classes.png": figures.class_figure(
                report, record.risk_targets, title=f"{record.base.name}, {which}", bounds=bounds
            ),
            "figures/thresholds.png": figures.threshold_figure(
                scored.scores, scored.labels, record.fit.thresholds, report, record.risk_targets
            ),
        },
    )


def _log_model(record: SetClassifier, model: Any, scored: Scored, example: Any, run_id: str) -> str:
    """Log the set classifier and let it answer rows; a model that fails is deleted."""
    inputs = model.metadata.get_input_schema()
    rows = scored.features
    kept = example if rows is None else rows.iloc[:EXAMPLE_ROWS]
    try:
        logged = registration.log_model(record, inputs, example if rows is None else rows, kept)
        if rows is not None:
            sets = rule_sets(asdict(record.rule), scored.scores[:TRIED_ROWS])
            names = np.array(record.classes, dtype=np.object_)
            expected = [names[row].tolist() for row in sets]
            registration.try_model(logged.model_uri, rows.iloc[:TRIED_ROWS], expected)
    except BaseException:
        registration.delete_logged(run_id)
        raise
    return logged.model_uri


def summary(done: Calibration) -> str:
    """Return what a person wants to see at the end."""
    record = done.classifier
    report, which, bounds = texts.shown_report(record)
    table = texts.class_rows(report, record.risk_targets, bounds=bounds, most=texts.MOST_PRINTED)
    lines = [
        f"{done.name} version {done.version}, alias {done.alias}, on {which}:",
        "",
        texts.plain_table(table),
        *texts.folded(report, texts.MOST_PRINTED),
        "",
        texts.abstentions(report),
        *([texts.empty_hint(report)] if texts.empty_hint(report) else []),
        texts.verdict(record),
        "",
        f"serve it      mlflow models serve -m models:/{done.name}@{done.alias} "
        "--env-manager local -p 5001",
        f"measure it    python -m scrib_mlflow evaluate --model_uri {done.model_uri} "
        "--data FILE --label COLUMN",
        f"look at it    mlflow ui --backend-store-uri {stores.shown(mlflow.get_tracking_uri())}"
        f"  (run {done.run_id})",
    ]
    return "\n".join(lines)
