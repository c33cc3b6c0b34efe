"""The evaluator plugin: `mlflow.models.evaluate(..., evaluators=["scrib"])`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation import EvaluationResult, ModelEvaluator
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow.core.certificate import tally_sets
from scrib_mlflow.core.reports import report_counts
from scrib_mlflow.core.targets import make_constraints
from scrib_mlflow.engines.base import ANY_TARGET, with_groups
from scrib_mlflow.engines.local import answer
from scrib_mlflow.errors import ScribError
from scrib_mlflow.options import Evaluate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import runs
from scrib_mlflow.registry.models import read_stored
from scrib_mlflow.registry.runs import report_metrics
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import class_table
from scrib_mlflow.results import SetClassifier, to_json
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.scored import count_answers
from scrib_mlflow.rows.tables import group_codes

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
        model_type: str,
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
        except ScribError as error:
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
        raise ScribError(f"evaluator_config has no {unknown[0]!r}; known are {', '.join(KNOWN)}")
    none = {"model_uri": "-", "data": "-", "label": "-"}  # MLflow passes these in its own way
    chosen = read_settings(Evaluate, none | config)
    if model is None or dataset.labels_data is None:
        raise ScribError(
            "the scrib evaluator needs a model and labels: give the model's URI and targets"
        )
    record = _record(model)
    features = pd.DataFrame(dataset.features_data)
    inputs = model.metadata.get_input_schema()
    typed = tables.features(features, inputs, [])
    if typed is None:
        raise ScribError(f"data cannot be scored: {tables.missing_features(features, inputs)}")
    values = pd.Series(np.asarray(dataset.labels_data))
    labels = tables.label_indices(values, record.classes, place="targets")
    groups = None
    if record.group is not None and record.group in features.columns:
        groups = group_codes(hashes.key_hashes(features[record.group]))
    sets, n_invalid = _sets(model, typed, record.classes, chosen.batch_rows)
    report = report_counts(
        count_answers(sets, labels), record.classes, chosen.confidence, counted=True
    )
    if groups is not None:
        claims = make_constraints(ANY_TARGET, record.classes)
        report = with_groups(report, tally_sets(sets, labels, claims, groups))
    metrics = report_metrics(report) | {"n_invalid": float(n_invalid)}
    known = {name: value for name, value in metrics.items() if not np.isnan(value)}
    linked = model_id or model.metadata.model_id
    with runs.resumed(run_id):
        runs.log_metrics(known, model_id=linked)
        table = class_table(report, record.risk_targets)
        runs.log_rows(table.records(), f"{FOLDER}/classes.json")
        title = f"{record.base.name}, {report.n:,} rows"
        figure = figures.class_figure(table, title=title)
        place = f"{FOLDER}/report.json"
        runs.log_texts_and_figures({place: to_json(report)}, {f"{FOLDER}/classes.png": figure})
    artifact = JsonEvaluationArtifact(uri=f"runs:/{run_id}/{place}", content=to_json(report))
    return EvaluationResult(metrics=known, artifacts={"scrib_report": artifact})


def _sets(
    model: PyFuncModel, features: pd.DataFrame, classes: tuple[str, ...], batch_rows: int
) -> tuple[NDArray[np.bool_], int]:
    """Return the sets that the model serves, and how many rows it could not score."""
    found, n_invalid = [], 0
    for start in range(0, len(features), batch_rows):
        batch = features.iloc[start : start + batch_rows].reset_index(drop=True)
        alone = len(batch) == len(features)
        _, sets, invalid = answer(model, batch, classes, start, "data", alone=alone)
        found.append(sets)
        n_invalid += invalid
    return np.concatenate(found), n_invalid


def _record(model: PyFuncModel) -> SetClassifier:
    """Return what a loaded model says of itself."""
    found = model.metadata.model_id
    if not (model.metadata.metadata or {}).get("scrib_schema_version") or not found:
        raise ScribError(
            "the scrib evaluator measures set classifiers; make one of this model with calibrate"
        )
    return read_stored(f"models:/{found}").record
