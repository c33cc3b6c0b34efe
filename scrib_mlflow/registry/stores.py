"""Tracking stores and registries: whether they answer, and which model a URI means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.models.model import ModelInfo

from scrib_mlflow.errors import ModelError, StoreError, UnreadableModelError
from scrib_mlflow.messages import nearest, reason, shown
from scrib_mlflow.preflight import MODEL_URI, no_model_uri
from scrib_mlflow.records import Base

SHORT_WAITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",  # drivers of other databases wait no longer by default
}
DATABASES = {"sqlite", "postgresql", "mysql", "mssql"}


ABSENT = "RESOURCE_DOES_NOT_EXIST"


def is_absent(error: Exception) -> bool:
    """Return whether a store says that something is not there; any other error leaves it open."""
    return isinstance(error, MlflowException) and error.error_code == ABSENT


def is_unanswered(error: BaseException | None) -> bool:
    """Return whether an error comes of a server that gave no answer, or not the one asked for."""
    while error is not None and not isinstance(error, requests.RequestException):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def short_waits() -> Iterator[None]:
    """Let MLflow give up in seconds on a server that does not answer, not in minutes."""
    before = {name: os.environ[name] for name in SHORT_WAITS if name in os.environ}
    os.environ.update(SHORT_WAITS)
    try:
        yield
    finally:
        for name in SHORT_WAITS:
            del os.environ[name]
        os.environ.update(before)


def check_stores() -> None:
    """Raise unless the tracking store and the registry answer."""
    uris: dict[str, None] = {}
    try:
        uris = dict.fromkeys([mlflow.get_tracking_uri(), mlflow.get_registry_uri()])
        for uri in uris:
            if urlsplit(uri).scheme.split("+")[0] in DATABASES:
                import sqlalchemy  # noqa: PLC0415  # a server needs none of it

                engine = sqlalchemy.create_engine(uri)  # MLflow would try ten times, for minutes
                engine.connect().close()
                engine.dispose()
        client = mlflow.MlflowClient()
        client.search_experiments(max_results=1)
        client.search_registered_models(max_results=1)
    except Exception as error:  # of MLflow, of a database or of the network
        raise StoreError(
            f"the MLflow store at {' and '.join(map(shown, uris)) or 'this URI'} does not answer: "
            f"{reason(error)}; check MLFLOW_TRACKING_URI, that the server runs, and your "
            "user name and password"
        ) from error


def find_model(uri: str) -> Base:
    """Return the model that a URI means now, an alias resolved to its version."""
    match = MODEL_URI.fullmatch(uri)
    if match is None:
        raise no_model_uri(uri)
    client = mlflow.MlflowClient()
    name, version, alias = match["name"], match["version"], match["alias"]
    try:
        if match["id"]:
            logged = client.get_logged_model(match["id"])
            return Base(uri=uri, name=logged.name, version="", model_id=match["id"])
        # says more plainly than the version that it is missing
        aliases = client.get_registered_model(name).aliases
        if alias and alias not in aliases:
            known = ", ".join(sorted(aliases)) or "none"
            raise ModelError(
                f"{uri} is not in the registry at {shown(mlflow.get_registry_uri())}; "
                f"its aliases are {known}"
            )
        version = str(aliases[alias]) if alias else version
        client.get_model_version(name, version)
    except (MlflowException, OSError) as error:
        if not is_absent(error):
            raise StoreError(f"{uri} cannot be looked up: {reason(error)}; try again") from error
        raise ModelError(_not_found(client, uri, name, error)) from error
    pinned = f"models:/{name}/{version}"
    return Base(uri=pinned, name=name, version=version, model_id=model_info(pinned).model_id or "")


def version_tags(version: Base) -> dict[str, str]:
    """Return the tags of a registered version."""
    try:
        found = mlflow.MlflowClient().get_model_version(version.name, version.version)
    except (MlflowException, OSError) as error:
        raise StoreError(f"{version.uri} cannot be read: {reason(error)}; try again") from error
    return dict(found.tags)


def model_info(uri: str) -> ModelInfo:
    """Return what MLflow keeps with a model's files."""
    try:
        return mlflow.models.get_model_info(uri)
    except (MlflowException, OSError) as error:
        raise UnreadableModelError(f"the files of {uri} cannot be read: {reason(error)}") from error


def _not_found(client: mlflow.MlflowClient, uri: str, name: str | None, error: Exception) -> str:
    store = shown(mlflow.get_registry_uri())
    msg = f"{uri} is not in the registry at {store}: {reason(error)}"
    known = [model.name for model in client.search_registered_models(max_results=100)]
    if not known:
        return f"{msg}; this registry is empty: is MLFLOW_TRACKING_URI the one you mean?"
    if name is None:
        return msg
    return msg if name in known else f"{msg}; {nearest(name, known)}"
