"""Register: finish a calibrate run whose model the registry had refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow import messages
from scrib_mlflow.errors import StoreError
from scrib_mlflow.options import Register
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import models, runs, stores
from scrib_mlflow.registry.models import Stored
from scrib_mlflow.results import SetClassifier, from_json
from scrib_mlflow.workflows.calibrate import Calibration, register_logged, summary

LOGGER = logging.getLogger(__name__)

__all__ = ["register", "run", "summary"]


def register(run_id: str, **parameters: Any) -> Calibration:
    """Register the set classifier that a calibrate run has logged.

    Parameters
    ----------
    run_id : str
        A run of `calibrate` that could not register its model.
    **parameters
        Those of ``python -m scrib_mlflow register --help``.

    Returns
    -------
    Calibration
        As `calibrate` would have returned.
    """
    return run(read_settings(Register, {"run_id": run_id, **parameters}))


def run(settings: Register) -> Calibration:
    """Do what `register` does."""
    with stores.short_waits():
        stores.check_stores()
    try:
        tags = mlflow.get_run(settings.run_id).data.tags
        path = mlflow.artifacts.download_artifacts(
            run_id=settings.run_id, artifact_path="scrib.json"
        )
    except (MlflowException, OSError) as error:
        raise StoreError(
            f"run {settings.run_id} holds no set classifier: {messages.reason(error)}"
        ) from error
    text = Path(path).read_text(encoding="utf-8")
    record = from_json(text)
    if isinstance(record, SetClassifier) and not record.base.uri:
        raise StoreError(
            f"run {settings.run_id} was calibrated on scores in columns, without a model, so there "
            f"is nothing to serve; evaluate takes it as runs:/{settings.run_id}"
        )
    if not isinstance(record, SetClassifier) or runs.MODEL_URI not in tags:
        raise StoreError(f"run {settings.run_id} has logged no model; run calibrate again")
    name = settings.registered_model_name or tags[runs.NAME]
    alias = settings.alias or tags[runs.ALIAS]
    models.check_names(name, alias, record.base)
    logged_uri = tags[runs.MODEL_URI]
    LOGGER.info(f"registering {logged_uri}")
    return register_logged(logged_uri, Stored(record, text), settings.run_id, name, alias)
