"""Evaluate: measure a registered set classifier on labelled rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import serving
from scrib_mlflow.adapters import digests, figures, runs, scoring, stores, tables, texts
from scrib_mlflow.adapters.metrics import report_metrics
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.evaluate import SetReport, measure_sets
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.results import SetClassifier, from_json, to_json
from scrib_mlflow.settings import Evaluate
from scrib_mlflow.workflows.rows import MOST_SHARED, Table, read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a set classifier did on labelled rows."""

    model_uri: str
    run_id: str
    classifier: SetClassifier
    report: SetReport
    n_invalid: int  # rows that the model could not score; they abstain
    n_shared: int | None  # rows that equal a row of the fit; None where that cannot be told
    fitted: bool  # whether most do, so that bounds prove nothing


def evaluate(model_uri: str, data: str, label: str, **parameters: Any) -> Evaluation:
    """Measure a registered set classifier on labelled rows.

    Parameters
    ----------
    model_uri : str
        A set classifier that `calibrate` registered: ``models:/NAME/VERSION``,
        ``models:/NAME@ALIAS`` or ``models:/m-ID``.
    data : str
        Labelled rows: a parquet or csv file, by path or URI.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow evaluate --help``.

    Returns
    -------
    Evaluation
        The report, with exact upper bounds; they hold for rows that the fit has not seen.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Evaluate, values), say=lambda _: None)


def run(settings: Evaluate, say: Callable[[str], None]) -> Evaluation:
    """Do what `evaluate` does, saying what it is at."""
    with stores.short_waits():
        stores.check_stores()
        found = stores.find_model(settings.model_uri)
        record = read_record(found.uri)
    table = read_rows("data", settings.data, settings.label)
    place = f"column {settings.label!r} of data"
    labels = tables.label_indices(table.rows[settings.label], record.classes, place=place)
    with runs.open_run(f"evaluate {found.name}") as run_id:
        runs.log_settings(run_id, settings)
        runs.log_table_input(table.rows, table.record, settings.label, "evaluate")
        say(f"loading {found.uri}")
        model = scoring.load_model(found.uri)
        features = _features(model, table, settings)
        n_shared = _count_shared(found.uri, features, labels)
        sets, n_invalid = _served_sets(model, features, record, settings)
        rows = check_rows(
            sets.astype(np.float64),  # in place of scores, which sets have made superfluous
            labels_for(labels, record.classes),
            record.classes,
            None,
            least_rows=1,
        )
        done = Evaluation(
            model_uri=found.uri,
            run_id=run_id,
            classifier=record,
            report=measure_sets(sets, rows, settings.confidence),
            n_invalid=n_invalid,
            n_shared=n_shared,
            fitted=(n_shared or 0) > MOST_SHARED * len(labels),
        )
        _log(done)
    return done


def read_record(uri: str) -> SetClassifier:
    """Return what `scrib.json` of a registered set classifier says."""
    try:
        artifacts = Model.load(uri).flavors["python_function"].get("artifacts", {})
        place = artifacts["scrib"]["path"]
        path = mlflow.artifacts.download_artifacts(artifact_uri=f"{uri}/{place}")
    except (KeyError, MlflowException, OSError) as error:
        msg = f"{uri} is no set classifier of scrib_mlflow; make one of it with calibrate"
        raise ModelError(msg) from error
    record = from_json(Path(path).read_text(encoding="utf-8"))
    if not isinstance(record, SetClassifier):
        msg = f"scrib.json of {uri} holds a {type(record).__name__}, not a set classifier"
        raise ModelError(msg)
    return record


def _features(model: PyFuncModel, table: Table, settings: Evaluate) -> pd.DataFrame:
    """Return what the model takes of a table."""
    inputs = model.metadata.get_input_schema()
    features = tables.features(table.rows, inputs, [settings.label])
    if features is None:
        msg = f"data cannot be scored: {tables.missing_features(table.rows, inputs)}"
        raise InvalidDataError(msg)
    return features


def _count_shared(uri: str, features: pd.DataFrame, labels: NDArray[np.int32]) -> int | None:
    """Return how many rows equal a row of the fit, None where its rows are not known any more."""
    run_id = stores.model_info(uri).run_id
    seen = runs.read_cases(run_id) if run_id else None
    if seen is None:
        return None
    return digests.count_shared(seen, digests.case_hashes(features, labels))


def _served_sets(
    model: PyFuncModel, features: pd.DataFrame, record: SetClassifier, settings: Evaluate
) -> tuple[NDArray[np.bool_], int]:
    """Return the sets that the model serves, and how many rows it could not score."""
    index = {name: j for j, name in enumerate(record.classes)}
    sets = np.zeros((len(features), len(index)), dtype=np.bool_)
    n_invalid = 0
    for start, batch in scoring.batches(features, settings.batch_rows, "data"):
        try:
            answers: Any = model.predict(batch)
        except MlflowException as error:
            if serving.NONE_SCORED in str(error) and len(batch) < len(features):
                n_invalid += len(batch)
                continue
            msg = f"the model refuses rows {start} to {start + len(batch) - 1} of data: "
            raise InvalidDataError(msg + stores.reason(error)) from error
        n_invalid += int((answers["reason"] == "invalid_scores").sum())
        for row, members in enumerate(answers["prediction_set"], start):
            sets[row, [index[name] for name in members]] = True
    return sets, n_invalid


def _log(done: Evaluation) -> None:
    record, report = done.classifier, done.report
    prefix = "fit_" if done.fitted else ""
    counts = {"n_invalid": done.n_invalid, "n_shared": done.n_shared}
    metrics = {f"{prefix}{name}": float(n) for name, n in counts.items() if n is not None}
    runs.log_metrics(metrics | report_metrics(report, prefix=prefix))
    runs.set_tags(
        {"scrib.model_uri": done.model_uri, "scrib.base_model": record.base.name},
        f"{done.model_uri} on {report.n:,} rows. {texts.abstentions(report)}\n\n"
        + texts.class_markdown(report, record.risk_targets, bounds=not done.fitted),
    )
    runs.log_class_table(report, record.risk_targets, "classes.json")
    title = f"{done.model_uri}, {report.n:,} rows"
    figure = figures.class_figure(report, record.risk_targets, title=title, bounds=not done.fitted)
    runs.log_texts_and_figures({"report.json": to_json(report)}, {"figures/classes.png": figure})


def summary(done: Evaluation) -> str:
    """Return what a person wants to see at the end."""
    report, targets = done.report, done.classifier.risk_targets
    table = texts.class_rows(report, targets, bounds=not done.fitted, most=texts.MOST_PRINTED)
    if done.fitted:
        meaning = "These are the rows of the fit: risks on new rows are higher."
    else:
        meaning = (
            f"Each upper bound holds by itself at confidence {report.confidence:g}, for rows drawn "
            "like these, if the fit has not seen them." + texts.shared_caveat(done.n_shared or 0)
        )
    lines = [
        f"{done.model_uri} on {report.n:,} rows:",
        "",
        texts.plain_table(table),
        *texts.folded(report, texts.MOST_PRINTED),
        "",
        texts.abstentions(report),
        meaning,
    ]
    if done.n_shared is None:
        lines.append("The rows of the fit are not at hand, so nothing tells whether it saw these.")
    if done.n_invalid:
        lines.append(f"{done.n_invalid:,} rows abstain because the model could not score them.")
    return "\n".join([*lines, f"logged to run {done.run_id}"])
