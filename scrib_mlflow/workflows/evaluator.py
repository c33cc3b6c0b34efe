"""`scrib`, a plugin of `mlflow.models.evaluate`: what `evaluate` measures, by MLflow's own call.

It stands apart from `evaluate` because MLflow's base class loads matplotlib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation import EvaluationResult, ModelEvaluator
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact
from mlflow.pyfunc import PyFuncModel

from scrib_mlflow import errors
from scrib_mlflow.core.certificate.claims import group_test_of
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.engines.base import report_sets
from scrib_mlflow.engines.local import answer
from scrib_mlflow.options import Evaluate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import models, runs
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import class_table
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.rows import hashes, tables

KNOWN = ("confidence", "batch_rows")  # of evaluator_config
FOLDER = "scrib"


class ScribEvaluator(ModelEvaluator):
    """Measures a set classifier on labelled rows, as the command `evaluate` does."""

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:
        """Return whether this is a classifier."""
        return model_type == "classifier"

    def evaluate(
        self,
        *,
        dataset: Any,
        run_id: str,
        evaluator_config: dict[str, Any] | None,
        model: PyFuncModel | None = None,
        model_id: str | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Log metrics, a table, a figure and a report to the run, and return them."""
        try:
            return _evaluate(dataset, run_id, evaluator_config or {}, model, model_id)
        except errors.ScribError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


def _evaluate(
    dataset: Any,
    run_id: str,
    config: dict[str, Any],
    model: PyFuncModel | None,
    model_id: str | None,
) -> EvaluationResult:
    unknown = sorted(set(config) - set(KNOWN))
    if unknown:
        raise errors.ScribError(
            f"evaluator_config has no {unknown[0]!r}; known are {', '.join(KNOWN)}"
        )
    if model is None or dataset.labels_data is None:
        raise errors.ScribError(
            "the scrib evaluator needs a model and labels: give the model's URI and targets"
        )
    none = {"model_uri": "-", "data": "-", "label": "-"}  # MLflow passes these in its own way
    settings = read_settings(Evaluate, none | config)
    record = _read_record(model)
    report, n_invalid = _measure(model, record, dataset, settings)
    metrics = runs.report_metrics(report) | {"n_invalid": float(n_invalid)}
    defined = {name: value for name, value in metrics.items() if not np.isnan(value)}
    title = f"{record.base.name}, {report.n:,} rows"
    table = class_table(report, record.named_targets)
    figure = figures.class_figure(table, title=title)
    path, text = f"{FOLDER}/report.json", to_json(report)
    with runs.resumed(run_id):
        runs.log_metrics(defined, model_id=model_id or model.metadata.model_id)
        runs.log_rows(table.records(), f"{FOLDER}/classes.json")
        runs.log_texts_and_figures({path: text}, {f"{FOLDER}/classes.png": figure})
    artifact = JsonEvaluationArtifact(uri=f"runs:/{run_id}/{path}", content=text)
    return EvaluationResult(metrics=defined, artifacts={"scrib_report": artifact})


def _read_record(model: PyFuncModel) -> SetClassifier:
    """Return what a loaded model says of itself."""
    model_id = model.metadata.model_id
    if not (model.metadata.metadata or {}).get("scrib_schema_version") or not model_id:
        raise errors.ScribError(
            "the scrib evaluator measures set classifiers; make one of this model with calibrate"
        )
    return models.read_stored(f"models:/{model_id}").record


def _measure(
    model: PyFuncModel, record: SetClassifier, dataset: Any, settings: Evaluate
) -> tuple[SetReport, int]:
    """Return what the sets that the model serves are worth, and how many rows it cannot score."""
    columns, classes = pd.DataFrame(dataset.features_data), record.classes
    inputs = model.metadata.get_input_schema()
    names = tables.feature_names("data", columns, inputs, [])
    features = tables.as_typed(columns[names], inputs)
    values = pd.Series(np.asarray(dataset.labels_data))
    labels = tables.label_indices(values, classes, place="targets")
    sets, named = np.zeros((2, len(features), len(classes)), dtype=np.bool_)
    scores = np.empty(sets.shape)
    for start in range(0, len(features), settings.batch_rows):
        batch = features.iloc[start : start + settings.batch_rows].reset_index(drop=True)
        alone = len(batch) == len(features)
        part = slice(start, start + len(batch))
        answered = answer(model, batch, classes, start, "data", alone=alone)
        scores[part], sets[part], named[part] = answered
    groups = None
    if record.group is not None and record.group in columns:
        groups = tables.group_codes(hashes.key_hashes(columns[record.group]))
    how = group_test_of(record.certificate)
    measured = labels, scores, groups, classes, settings.confidence, how, record.risk_groups
    report = report_sets(lambda of: sets[of], lambda of: named[of], *measured)
    return report, int(np.isnan(scores).all(axis=1).sum())
