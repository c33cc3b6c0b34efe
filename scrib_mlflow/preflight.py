"""What can be told before MLflow is loaded, which takes seconds: typos in files, labels and models.

Only what is certainly wrong is told here, in a second. Where there is any doubt, such as a registry
that is no sqlite file and no server, the command goes on and finds out for itself.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import url2pathname, urlopen

from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.messages import nearest, reason, shown
from scrib_mlflow.options import DATA, Settings

MODEL_URI = re.compile(
    r"models:/(?:(?P<id>m-[0-9a-f]{32})|(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[^/@]+)))"
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
FILE = re.compile("file:(?://[^/?#]*)?([^?#]*).*", re.IGNORECASE | re.DOTALL)
SECONDS = 2.0  # to wait for a registry
SQLITE = "sqlite:///"
REST = "/api/2.0/mlflow/registered-models"
CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN", "MLFLOW_WORKSPACE")


def check(settings: Settings) -> None:
    """Raise for what is certainly wrong with the options of a command."""
    values = dict(settings)
    if values.get("engine", "local") == "local":
        for name in DATA:
            if values.get(name):
                label = None if name == "path_data" else values.get("label")
                _check_file(name, values[name], label)
    uri = values.get("model_uri")
    match = MODEL_URI.fullmatch(uri) if uri else None
    if match is not None and match["name"]:
        _check_name(str(uri), match["name"])
    elif uri and match is None and not uri.startswith("runs:/"):
        raise no_model_uri(uri)


def no_model_uri(uri: str) -> ModelError:
    """Return the error of what is no URI of a model."""
    of_run = "; only evaluate takes runs:/RUN_ID, of a calibrate run without a model, and such "
    of_run += "a run has nothing to serve, to gate or to answer with"
    return ModelError(
        f"model_uri is {uri!r}, but must be models:/NAME/VERSION, models:/NAME@ALIAS or "
        "models:/m-ID" + of_run * uri.startswith("runs:/")
    )


def is_remote(place: str) -> bool:
    """Return whether a place is a URI; one letter and a colon are a Windows drive."""
    return SCHEME.match(place) is not None


def local_path(place: str) -> str | None:
    """Return a path of this machine's file system, None where a URI means another one."""
    of_file = FILE.fullmatch(place)
    if of_file is not None:
        return url2pathname(of_file[1])
    return None if is_remote(place) else place


def check_exists(named: str, place: str) -> Path:
    """Return the path of a file, which must be there."""
    path = Path(place)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidDataError(
            f"{named} does not exist; a relative path is looked up in {Path.cwd()}"
        ) from error
    except (OSError, ValueError) as error:  # a name that is too long, a folder that is not ours
        raise InvalidDataError(f"{named} cannot be read: {reason(error)}") from error
    return path


def check_column(named: str, label: str, columns: list[str]) -> None:
    """Raise where no column has the label's name."""
    if label not in columns:
        raise InvalidDataError(
            f"{named} has no column {label!r} for the labels; {nearest(label, columns)}"
        )


def _check_file(name: str, place: str, label: str | None) -> None:
    """Raise where a local file is missing, or lacks the label's column."""
    if hasattr(place, "rows") or is_remote(place):  # a frame, or to be downloaded
        return
    named = f"{name} {place}"
    path = check_exists(named, place)
    if label is not None and path.suffix.lower() == ".csv":
        with suppress(OSError, UnicodeDecodeError, StopIteration, csv.Error):
            with path.open(encoding="utf-8-sig", newline="") as file:
                columns = next(csv.reader(file))
            check_column(named, label, columns)


def _check_name(uri: str, name: str) -> None:
    """Raise where a registry that can be asked without MLflow has no model of a name."""
    given = os.environ.get("MLFLOW_REGISTRY_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    store = given or f"{SQLITE}mlflow.db"  # MLflow's own default
    known: list[str] | None = None
    with suppress(Exception):  # whatever is wrong with the store, the command finds out for itself
        if store.startswith(SQLITE):
            known = _names_in_file(store.removeprefix(SQLITE), name)
        elif store.startswith(("http://", "https://")):
            known = _names_on_server(store.rstrip("/"), name)
    if known is not None and name not in known:
        hint = nearest(name, known)
        if not known:
            hint = "this registry is empty: is MLFLOW_TRACKING_URI the one you mean?"
        raise ModelError(f"{uri} is not in the registry at {shown(store)}; {hint}")


def _names_in_file(path: str, name: str) -> list[str]:
    """Return the names in a registry, this one among them if it is there."""
    database = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=SECONDS)
    with closing(database):
        order = "SELECT name FROM registered_models ORDER BY name = ? DESC, name LIMIT 1000"
        return [str(row[0]) for row in database.execute(order, [name])]


def _names_on_server(server: str, name: str) -> list[str] | None:
    """Return names in a registry if it lacks this one, None where it has it or does not say."""
    if any(variable in os.environ for variable in CREDENTIALS):
        return None
    try:
        urlopen(f"{server}{REST}/get?name={quote(name)}", timeout=SECONDS).close()  # noqa: S310
    except HTTPError as error:
        if json.load(error).get("error_code") != "RESOURCE_DOES_NOT_EXIST":
            return None
    else:
        return None
    with urlopen(f"{server}{REST}/search?max_results=100", timeout=SECONDS) as answer:  # noqa: S310
        return [each["name"] for each in json.load(answer).get("registered_models", [])]
