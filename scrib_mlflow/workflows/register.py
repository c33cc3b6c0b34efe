"""Register: finish a calibrate run whose model the registry had refused."""

from __future__ import annotations

import logging
from typing import Any

from scrib_mlflow.errors import ModelError
from scrib_mlflow.options import Register
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import models, runs, seals, stores
from scrib_mlflow.results import is_sealed
from scrib_mlflow.workflows.calibrate import Calibration, register_logged, summary
from scrib_mlflow.workflows.intact import find_damage

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
    run_id = settings.run_id
    stored = models.read_run(run_id)
    tags = runs.read_tags(run_id) or {}
    if not stored.record.base.uri:
        raise ModelError(
            f"run {run_id} was calibrated on scores in columns, without a model, so there "
            f"is nothing to serve; evaluate takes it as runs:/{run_id}"
        )
    if runs.MODEL_URI not in tags:
        raise ModelError(f"run {run_id} has logged no model; run calibrate again")
    name = settings.registered_model_name or tags[runs.NAME]
    alias = settings.alias or tags[runs.ALIAS]
    models.check_names(name, alias, stored.record.base)
    logged_uri = tags[runs.MODEL_URI]
    damage = find_damage(stored.record, stored.text, {"the run": tags[seals.CERTIFICATE_DIGEST]})
    sealed = seals.read_seal(tags)
    with seals.downloaded(logged_uri) as folder:
        digests = seals.file_digests(folder)
    if not sealed.files and not is_sealed(stored.text):  # logged before files were sealed
        with runs.resumed(run_id):
            sealed = runs.log_seal(digests, tags[seals.CERTIFICATE_DIGEST])
    damage = damage or seals.find_changes(digests, {"the run": sealed.files}, run_id)
    if damage:
        raise ModelError(f"the model of run {run_id} is not registered: {damage}; calibrate again")
    LOGGER.info(f"registering {logged_uri}")
    return register_logged(logged_uri, stored, sealed, run_id, name, alias)
