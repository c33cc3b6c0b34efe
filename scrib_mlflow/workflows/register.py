"""Register: finish a calibrate run whose model the registry had refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.adapters import registration, runs, stores
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.errors import StoreError
from scrib_mlflow.results import SetClassifier, from_json
from scrib_mlflow.settings import Register
from scrib_mlflow.workflows.calibrate import Calibration, summary

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
    settings = read_settings(Register, {"run_id": run_id, **parameters})
    return run(settings, say=lambda _: None)


def run(settings: Register, say: Callable[[str], None]) -> Calibration:
    """Do what `register` does."""
    with stores.short_waits():
        stores.check_stores()
    try:
        tags = mlflow.get_run(settings.run_id).data.tags
        path = mlflow.artifacts.download_artifacts(
            run_id=settings.run_id, artifact_path="scrib.json"
        )
    except (MlflowException, OSError) as error:
        msg = f"run {settings.run_id} holds no set classifier: {stores.reason(error)}"
        raise StoreError(msg) from error
    text = Path(path).read_text(encoding="utf-8")
    record = from_json(text)
    if not isinstance(record, SetClassifier) or runs.MODEL_URI not in tags:
        msg = f"run {settings.run_id} has logged no model; run calibrate again"
        raise StoreError(msg)
    name = settings.registered_model_name or tags[runs.NAME]
    alias = settings.alias or tags[runs.ALIAS]
    registration.check_names(name, alias, record.base)
    with stores.short_waits():
        stores.check_may_register(name)
    say(f"registering {tags[runs.MODEL_URI]}")
    version = registration.register(
        tags[runs.MODEL_URI], record, text, settings.run_id, name, alias
    )
    return Calibration(
        name=name,
        version=version,
        alias=alias,
        model_uri=f"models:/{name}/{version}",
        run_id=settings.run_id,
        classifier=record,
    )
