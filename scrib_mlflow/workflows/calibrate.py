"""Calibrate: from a registered classifier and labelled rows to a registered set classifier."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from mlflow.pyfunc import PyFuncModel

from scrib_mlflow.core.groups import make_group_test
from scrib_mlflow.core.inputs import Floats
from scrib_mlflow.core.rules import Rule, ThresholdRule
from scrib_mlflow.engines import base as engines, doing, open_engine
from scrib_mlflow.errors import InvalidSettingsError, NotCertifiedError
from scrib_mlflow.options import Calibrate, Settings
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import SCORES_ONLY, Base, seal as digest_of
from scrib_mlflow.registry import ledger, models, runs, seals, stores
from scrib_mlflow.registry.models import Stored
from scrib_mlflow.report import words
from scrib_mlflow.report.page import calibration_report, page_files
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.rows import leakage, scoring
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.rows.tables import GivenRows, TableLike
from scrib_mlflow.serving import candidate_sets, rule_sets
from scrib_mlflow.workflows import fitting, selected
from scrib_mlflow.workflows.selected import Drawn

LOGGER = logging.getLogger(__name__)

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
    drawn = None
    if settings.selection is not None:
        drawn = selected.read_selection(settings.selection)
        settings = selected.with_selected(settings, drawn)
    check_options(settings)
    base = find_base(settings.model_uri)
    if drawn is not None:
        selected.check_base(base, drawn)
    name = settings.registered_model_name or f"{base.name}-scrib"
    if base.uri:
        with stores.short_waits():
            models.check_names(name, settings.alias, base)
    with ExitStack() as stack:
        tables, make_parts = _open_rows(stack, settings, base, drawn)
        run_id = stack.enter_context(runs.open_run(f"calibrate {base.name}", base.name))
        runs.log_parameters(run_id, settings.model_dump())
        _log_inputs(tables, settings)
        model, example = load_base(base)
        parts = make_parts(model, example)
        unscored = fitting.find_unscored(parts)
        if unscored is not None:
            LOGGER.warning(words.unscored_sentence(unscored))
        _warn_of_leakage(settings, tables.data, parts)
        if model is not None:
            _try_serving(base, model, parts)
        stack.enter_context(_told_if_counted(run_id))
        record = fitting.make_record(settings, base, parts, run_id)
        baseline = fitting.make_baseline(record, parts) if model is not None else None
        stored = Stored(record, to_json(record), to_json(baseline) if baseline else "")
        _log(stored, tables, parts, settings, name if base.uri else base.name, run_id)
        if model is None:
            runs.remember(f"runs:/{run_id}", "", "")
            done = _not_registered(record, run_id)
        else:
            LOGGER.info("logging the set classifier, and trying it")
            logged_uri, sealed = _log_model(stored, model, parts.tried, example, run_id)
            runs.remember(logged_uri, name, settings.alias)
            done = register_logged(logged_uri, stored, sealed, run_id, name, settings.alias)
    if settings.require_certificate and not record.certified:
        LOGGER.info(f"\n{summary(done)}\n")
        raise NotCertifiedError(
            f"{done.model_uri} is {'registered but ' * bool(base.uri)}not certified, which "
            "require_certificate asks for; the table above says which classes are in the way"
        )
    return done


MakeParts = Callable[[PyFuncModel | None, Any], engines.CalibrationRows]


def _open_rows(
    stack: ExitStack, settings: Calibrate, base: Base, drawn: Drawn | None
) -> tuple[engines.Tables[Any], MakeParts]:
    """Return the tables, and what scores their rows; those that were drawn have scores already."""
    if drawn is not None:
        labelled = selected.read_labelled(settings, drawn)
        return labelled, lambda model, _: selected.make_parts(settings, drawn, labelled.data, model)
    engine = stack.enter_context(open_engine(settings.engine, settings.spark_options))
    request = rows_request(settings)
    tables = engine.read_tables(request)
    if base.uri:
        known = [each for each in (tables.data, tables.certify) if each is not None]
        leakage.check_untrained(base.uri, known, allowed=settings.allow_overlap)

    def make_parts(model: PyFuncModel | None, example: Any) -> engines.CalibrationRows:
        LOGGER.info(doing(settings.engine, sum(table.record.n_rows for table in tables.all())))
        return engine.make_parts(tables, model, base.uri, example, request)

    return tables, make_parts


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
        LOGGER.warning(
            words.repeated(parts.n_repeated, parts.certify.n_rows, drawn=parts.selected is not None)
        )
    if settings.mode == "certified" and settings.group is None and parts.selected is None:
        inputs = () if parts.tried is None else parts.tried.features.columns
        leakage.hint_at_groups(data, inputs)


def load_base(base: Base) -> tuple[PyFuncModel | None, Any]:
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
    rule = fitting.told_rule(settings)
    for name in sorted(fitting.THRESHOLD_OPTIONS):
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
    if settings.data is None and settings.selection is None:
        raise InvalidSettingsError("data is missing; it has no default")
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
        scoring=scoring.ScoreOptions(targets=fitting.targets_of(settings), **scored),
    )


def register_logged(
    logged_uri: str, stored: Stored, seal: seals.Seal, run_id: str, name: str, alias: str
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
        tags=models.version_tags(stored, run_id) | seal.tags(),
        description=words.description(stored.record, run_id),
        about=words.escaped(ABOUT.format(base=stored.record.base.name)),
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


def leave_out_unscored(rows: Scored) -> Scored:
    """Return the rows that could be scored, with a word on the others."""
    if rows.unscored is not None:
        LOGGER.warning(
            f"{rows.n_invalid:,} rows could not be scored and are left out; calibrate counts them "
            f"as abstentions: {rows.unscored.first} ({rows.unscored.reason})"
        )
    return rows.scorable()


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
) -> tuple[str, seals.Seal]:
    """Log the set classifier, seal its files and let it answer rows; delete a model that fails."""
    record, inputs = stored.record, model.metadata.get_input_schema()
    rows = example if tried is None else tried.features
    kept = example if tried is None else tried.features.iloc[:EXAMPLE_ROWS]
    try:
        logged = models.log_model(stored, inputs, rows, kept)
        with seals.downloaded(logged.model_uri) as folder:
            sealed = runs.log_seal(seals.file_digests(folder), digest_of(stored.text))
            if tried is not None:
                expected = _expected(record.rule, record.classes, tried.scores)
                models.try_model(str(folder), tried.features, expected)
    except BaseException:
        models.delete_logged(run_id)
        raise
    return logged.model_uri, sealed


def summary(done: Calibration) -> str:
    """Return what a person wants to see at the end."""
    names = done.name, done.version, done.alias
    where = words.logged(*runs.place_of(done.run_id))
    if not done.name:
        return words.terminal(words.scores_summary(done.classifier, done.model_uri, where))
    return words.terminal(words.calibration_summary(done.classifier, *names, where))
