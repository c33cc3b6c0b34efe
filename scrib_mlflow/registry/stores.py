"""Tracking stores and registries: whether they answer, hold the model, and can be written."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.models.model import ModelInfo

from scrib_mlflow.errors import ModelError, StoreError
from scrib_mlflow.messages import nearest, reason, shown
from scrib_mlflow.records import Base

SECONDS = 10  # to wait for a server that should answer at once
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
MODEL_URI = re.compile(
    r"models:/(?:(?P<id>m-[0-9a-f]{32})|(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[^/@]+)))"
)
CANNOT_WRITE = ("READ", "USE", "NO_PERMISSIONS", "DENY")


@contextmanager
def short_waits() -> Iterator[None]:
    """Let MLflow give up in seconds on a server that does not answer, not in minutes."""
    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(SECONDS)}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def check_stores() -> None:
    """Raise unless the tracking store and the registry answer."""
    places = dict.fromkeys([mlflow.get_tracking_uri(), mlflow.get_registry_uri()])
    for uri in places:
        _check_place(uri)
    try:
        client = mlflow.MlflowClient()
        client.search_experiments(max_results=1)
        client.search_registered_models(max_results=1)
    except Exception as error:  # of MLflow, of a database or of the network
        raise StoreError(
            f"the MLflow store at {' and '.join(map(shown, places))} does not answer: "
            f"{reason(error)}; check MLFLOW_TRACKING_URI, that the server runs, and your "
            "user name and password"
        ) from error


def _check_place(uri: str) -> None:
    """Raise at once where MLflow would try again and again to open a database."""
    scheme = urlsplit(uri).scheme.split("+")[0]
    if scheme == "sqlite":
        path = Path(uri.split("///", 1)[-1])
        if path.is_dir():
            raise StoreError(
                f"the store {uri} cannot be opened: {path} is a folder, not a database"
            )
        if not path.parent.is_dir():
            raise StoreError(f"the store {uri} cannot be opened: there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise StoreError(
                f"the store {uri} cannot be written: ask its owner for write access to {path}"
            )
    elif scheme in DATABASE_PORTS:
        parts = urlsplit(uri)
        address = (parts.hostname or "localhost", parts.port or DATABASE_PORTS[scheme])
        try:
            socket.create_connection(address, timeout=SECONDS).close()
        except OSError as error:
            raise StoreError(
                f"the database at {shown(uri)} does not answer: {error}; check that it runs"
            ) from error


def find_model(uri: str) -> Base:
    """Return the model that a URI means now, an alias resolved to its version."""
    found = MODEL_URI.fullmatch(uri)
    if found is None:
        raise ModelError(
            f"model_uri is {uri!r}, but must be models:/NAME/VERSION, models:/NAME@ALIAS or "
            "models:/m-ID"
        )
    client = mlflow.MlflowClient()
    name, version, alias = found["name"], found["version"], found["alias"]
    try:
        if found["id"]:
            logged = client.get_logged_model(found["id"])
            return Base(uri=uri, name=logged.name, version="", model_id=found["id"])
        client.get_registered_model(name)  # says more plainly than the version that it is missing
        if alias:
            version = str(client.get_model_version_by_alias(name, alias).version)
        client.get_model_version(name, version)
    except MlflowException as error:
        raise ModelError(_not_found(client, uri, name, error)) from error
    pinned = f"models:/{name}/{version}"
    return Base(uri=pinned, name=name, version=version, model_id=model_info(pinned).model_id or "")


def model_info(uri: str) -> ModelInfo:
    """Return what MLflow keeps with a model's files."""
    try:
        return mlflow.models.get_model_info(uri)
    except (MlflowException, OSError) as error:
        raise ModelError(f"the files of {uri} cannot be read: {reason(error)}") from error


def _not_found(
    client: mlflow.MlflowClient, uri: str, name: str | None, error: MlflowException
) -> str:
    store = shown(mlflow.get_registry_uri())
    msg = f"{uri} is not in the registry at {store}: {reason(error)}"
    known = [model.name for model in client.search_registered_models(max_results=100)]
    if not known:
        return f"{msg}; this registry is empty: is MLFLOW_TRACKING_URI the one you mean?"
    if name is None:
        return msg
    if name not in known:
        return f"{msg}; {nearest(name, known)}"
    aliases = sorted(client.get_registered_model(name).aliases)
    return f"{msg}; its aliases are {', '.join(aliases) or 'none'}"


def check_may_register(name: str) -> None:
    """Raise where the server says, without being written to, that this user may not register."""
    uri = mlflow.get_registry_uri()
    if urlsplit(uri).scheme not in {"http", "https"}:
        return
    user = _get(uri, "2.0/mlflow/users/current", {}).get("user", {})
    if not user or user.get("is_admin"):
        return
    asked = {"username": user["username"], "resource_type": "registered_model"}
    try:
        mlflow.MlflowClient().get_registered_model(name)
    except MlflowException:
        return  # whoever may not make a new one is told at the end
    answer = _get(uri, "3.0/mlflow/users/permissions/get", {**asked, "resource_id": name})
    permission = str(answer.get("permission", ""))
    if permission.upper() in CANNOT_WRITE:
        raise StoreError(
            f"user {user['username']!r} has {permission} on the registered model {name!r}, but "
            "registering a version needs EDIT; ask for it, or choose another registered_model_name"
        )


def _get(uri: str, path: str, query: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return a server's answer, empty where it has none to give."""
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), None
    headers = {}
    if user:
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    elif token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = requests.get(
            f"{uri.rstrip('/')}/api/{path}",
            params=query,
            headers=headers,
            auth=(user, password) if user and password is not None else None,
            timeout=SECONDS,
        )
        return answer.json() if answer.ok else {}
    except (requests.RequestException, ValueError):
        return {}
