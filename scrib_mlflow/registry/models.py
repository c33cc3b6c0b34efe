"""The set classifier as an MLflow model: read, logged, tried, and registered or not at all."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import pandas as pd
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature, infer_signature
from mlflow.models.model import ModelInfo
from mlflow.pyfunc import PyFuncModel
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

from scrib_mlflow import serving
from scrib_mlflow.errors import InvalidSettingsError, ModelError, StoreError
from scrib_mlflow.messages import reason
from scrib_mlflow.records import Base, seal
from scrib_mlflow.results import SCHEMA_VERSION, SetClassifier, from_json

NEEDED = ("mlflow", "numpy", "pandas")  # by the served file
MODEL_NAME = "set_classifier"
CERTIFICATE_DIGEST = "scrib.certificate_digest"  # tag of a run and of its version
ALIAS = re.compile(r"[A-Za-z0-9_-]{1,150}")
OUTPUTS = [
    ColSpec(DataType.string, "prediction"),
    ColSpec(DataType.boolean, "abstain"),
    ColSpec(DataType.string, "reason"),
    ColSpec(Array(DataType.string), "prediction_set"),
    ColSpec(DataType.long, "set_size"),
    ColSpec(Array(DataType.string), "candidates"),
]
MORE = ColSpec(DataType.long, "more_candidates")  # where a row may have more than it names
PARAMETERS = ParamSchema(
    [ParamSpec(name, DataType.boolean, False) for name in ("explain", "exhaustive")]
)


Expected = Mapping[str, Sequence[Sequence[str]]]  # class names by row, of served columns


class Stored(NamedTuple):
    """A set classifier and the text of its `scrib.json`, whose digest shows any change."""

    record: SetClassifier
    text: str


def load_model(uri: str) -> PyFuncModel:
    """Return a registered model, or say what is missing to load it."""
    try:
        return mlflow.pyfunc.load_model(uri)
    except ImportError as error:
        program = f"import mlflow; print(mlflow.pyfunc.get_model_dependencies({json.dumps(uri)}))"
        raise ModelError(
            f"{uri} cannot be loaded: {error}; install what it needs with "
            f'pip install -r "$({shlex.join(["python", "-c", program])})"'
        ) from error
    except Exception as error:
        raise ModelError(
            f"{uri} cannot be loaded: {type(error).__name__}: {reason(error)}"
        ) from error


def read_stored(uri: str) -> Stored:
    """Return what `scrib.json` of a registered set classifier says."""
    try:
        info = mlflow.models.get_model_info(uri)  # unlike Model.load, it takes models:/m-ID
        artifacts = info.flavors["python_function"].get("artifacts", {})
        file = artifacts["scrib"]["path"]
        folder = uri
        if re.fullmatch(
            r"models:/m-[^/]+", uri
        ):  # MLflow finds no file by models:/m-ID with a path
            logged = mlflow.MlflowClient().get_logged_model(uri.removeprefix("models:/"))
            folder = str(logged.artifact_location)
        path = mlflow.artifacts.download_artifacts(artifact_uri=f"{folder}/{file}")
    except (KeyError, MlflowException, OSError) as error:
        raise ModelError(
            f"{uri} is no set classifier of scrib_mlflow; make one of it with calibrate"
        ) from error
    text = Path(path).read_text(encoding="utf-8")
    record = from_json(text)
    if not isinstance(record, SetClassifier):
        raise ModelError(
            f"scrib.json of {uri} holds a {type(record).__name__}, not a set classifier"
        )
    return Stored(record, text)


def read_run(run_id: str) -> Stored:
    """Return what `scrib.json` of a calibrate run says; it may have no model."""
    try:
        path = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="scrib.json")
    except (MlflowException, OSError) as error:
        raise ModelError(f"run {run_id} holds no set classifier: {reason(error)}") from error
    text = Path(path).read_text(encoding="utf-8")
    record = from_json(text)
    if not isinstance(record, SetClassifier):
        raise ModelError(f"scrib.json of run {run_id} holds a {type(record).__name__}")
    return Stored(record, text)


def served_parameters(schema: ParamSchema | None, *, explain: bool) -> dict[str, bool]:
    """Return the inference parameters of commands: no row may be left out to save time.

    Versions of before know no other way, and no parameter for it.
    """
    known = set() if schema is None else {each.name for each in schema.params}
    return {"explain": explain} | ({"exhaustive": True} if "exhaustive" in known else {})


def check_alias(alias: str) -> None:
    """Raise for an alias that the registry would refuse at the end."""
    if not ALIAS.fullmatch(alias) or re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise InvalidSettingsError(
            f"alias is {alias!r}, but must be of up to 150 letters, digits, - and _, and neither "
            "'latest' nor 'v' with a number"
        )


def check_names(name: str, alias: str, base: Base) -> None:
    """Raise for names that the registry would refuse at the end, or that belong to others."""
    if name == base.name:
        raise InvalidSettingsError(
            f"registered_model_name is {name!r}, the classifier's own; choose another"
        )
    if not name.strip() or set(name) & set("/:@'"):
        raise InvalidSettingsError(
            f"registered_model_name is {name!r}, but must not be empty or hold any of / : @ '"
        )
    check_alias(alias)
    held = _alias(mlflow.MlflowClient(), name, alias)
    if held is not None and "scrib.base_model" not in held.tags:
        raise InvalidSettingsError(
            f"the alias {alias!r} of {name!r} is on version {held.version}, which is no set "
            "classifier; choose another alias or registered_model_name"
        )


@contextmanager
def _packed(
    text: str, base_uri: str, inputs: Schema | None, rows: Any, example: Any
) -> Iterator[dict[str, Any]]:
    """Yield what MLflow needs to save or log a set classifier.

    `text` is its `scrib.json`. Without a signature of the classifier, the inputs are inferred from
    the rows.
    """
    if inputs is None and rows is not None:
        inputs = infer_signature(rows).inputs
    served = json.loads(text)
    more = serving.counts_more(served["rule"], len(served["classes"]))
    outputs = Schema([*OUTPUTS, MORE] if more else [*OUTPUTS])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scrib.json"
        path.write_text(text, encoding="utf-8")
        yield {
            "python_model": serving.__file__,
            "artifacts": {"base_model": base_uri, "scrib": str(path)},
            "signature": ModelSignature(inputs=inputs, outputs=outputs, params=PARAMETERS),
            "input_example": example,
            "pip_requirements": requirements(base_uri),
            "metadata": {"scrib_schema_version": SCHEMA_VERSION},
        }


def log_model(stored: Stored, inputs: Schema | None, rows: Any, example: Any) -> ModelInfo:
    """Log the set classifier as a model of the active run; it is not registered yet."""
    with _packed(stored.text, stored.record.base.uri, inputs, rows, example) as packed:
        return mlflow.pyfunc.log_model(name=MODEL_NAME, **packed)


def try_rule(
    served: Mapping[str, Any],
    base_uri: str,
    inputs: Schema | None,
    rows: Any,
    example: Any,
    expected: Expected,
) -> None:
    """Raise unless a set classifier can be saved and answers rows as expected; nothing is logged.

    `served` is what the served file reads of `scrib.json`.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/model"
        try:
            with _packed(json.dumps(served), base_uri, inputs, rows, example) as packed:
                mlflow.pyfunc.save_model(place, **packed)
        except (MlflowException, TypeError, ValueError) as error:
            raise ModelError(
                f"MLflow cannot save a set classifier over {base_uri}: {reason(error)}; check the "
                "types of the data's columns"
            ) from error
        try_model(place, rows, expected)


def delete_logged(run_id: str) -> None:
    """Delete what a run has logged of a set classifier that is not to be."""
    experiment = mlflow.get_run(run_id).info.experiment_id
    for model in mlflow.search_logged_models(
        experiment_ids=[experiment],
        filter_string=f"source_run_id = '{run_id}'",
        output_format="list",
    ):
        if model.name == MODEL_NAME:
            mlflow.MlflowClient().delete_logged_model(model.model_id)


def requirements(base_uri: str) -> list[str]:
    """Return what the base model needs, as it says it, and what the served file needs besides."""
    path = mlflow.pyfunc.get_model_dependencies(base_uri)
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    lines = [_with_file(line, base_uri) for line in lines if line and not line.startswith("#")]
    named = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in lines}
    return lines + [f"{name}=={installed(name)}" for name in NEEDED if name not in named]


def _with_file(line: str, base_uri: str) -> str:
    """Return a requirement with the path of a file of constraints that stands with the model."""
    word, _, name = line.partition(" ")
    if word not in {"-c", "-r", "--constraint", "--requirement"}:
        return line
    path = mlflow.artifacts.download_artifacts(artifact_uri=f"{base_uri}/{name.strip()}")
    return f"{word} {path}"


def try_model(model_uri: str, rows: Any, expected: Expected) -> None:
    """Raise unless the logged model answers rows with the classes that were counted."""
    try:
        model = mlflow.pyfunc.load_model(model_uri, suppress_warnings=True)
        answers: pd.DataFrame = model.predict(rows)
        served = {name: [sorted(names) for names in answers[name]] for name in expected}
    except Exception as error:
        raise ModelError(
            f"the set classifier does not answer: {type(error).__name__}: {reason(error)}"
        ) from error
    for column, counted in expected.items():
        for row, names in enumerate(counted):
            if sorted(names) != served[column][row]:
                raise ModelError(
                    f"row {row} gets the {column} {served[column][row]} when served, but "
                    f"{sorted(names)} when counted; the model gives other scores alone than in a "
                    "batch, or for rows as MLflow passes them"
                )


def version_tags(stored: Stored, run_id: str) -> dict[str, str]:
    """Return the tags of a registered version; a gate adds a few, and scrib.json says the rest."""
    record, text = stored
    return {
        "scrib.base_model": record.base.name,
        "scrib.base_version": record.base.version or record.base.model_id,
        "scrib.certified": str(record.certified).lower(),
        "scrib.confidence": f"{record.confidence:g}",
        "scrib.rule": record.rule.kind,
        "scrib.run_id": run_id,
        CERTIFICATE_DIGEST: seal(text),
        **_group_tags(record),
        **({} if record.selection is None else {"scrib.selection": record.selection.run_id}),
    }


def _group_tags(record: SetClassifier) -> dict[str, str]:
    """Return how the certificate counts groups, where rows come in groups: it is its claim."""
    certificate = record.certificate
    if certificate is None or certificate.group_test is None:
        return {}
    counted = {"cap": certificate.group_cap, "max_rows": certificate.max_group_rows}
    known = {f"scrib.group_{name}": str(n) for name, n in counted.items() if n is not None}
    return {"scrib.group": str(record.group), "scrib.group_test": certificate.group_test, **known}


def register(
    model_uri: str, name: str, alias: str, *, tags: dict[str, str], description: str, about: str
) -> str:
    """Register a logged model under a name and an alias, all of it or nothing; return its version.

    With "" for an alias none is set. `about` describes a registered model that is new.
    """
    client, run_id = mlflow.MlflowClient(), tags["scrib.run_id"]
    new = not _exists(client, name)
    before = _alias(client, name, alias)
    known = _versions(client, name, run_id)
    try:
        version = str(mlflow.register_model(model_uri, name, tags=tags).version)
        client.update_model_version(name, version, description=description)
        if new:
            client.update_registered_model(name, about)
        if alias:
            client.set_registered_model_alias(name, alias, version)
    except BaseException as error:
        left = _undo(client, name, alias, before, _versions(client, name, run_id) - known, new=new)
        if not isinstance(error, MlflowException | OSError):
            raise
        finish = ["python", "-m", "scrib_mlflow", "register", "--run_id", run_id]
        finish += ["--registered_model_name", name, *(["--alias", alias] if alias else [])]
        raise StoreError(
            f"{name} could not be registered: {reason(error)}; {left}the model and its report are "
            f"kept in run {run_id}; finish with: {shlex.join(finish)}"
        ) from error
    return version


def is_certified(name: str, alias: str) -> bool:
    """Return whether the version that has an alias is certified."""
    held = _alias(mlflow.MlflowClient(), name, alias)
    return held is not None and held.tags.get("scrib.certified") == "true"


def _alias(client: mlflow.MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Return the version that an alias is on, None where there is none."""
    with suppress(MlflowException):
        return client.get_model_version_by_alias(name, alias) if alias else None
    return None


def _versions(client: mlflow.MlflowClient, name: str, run_id: str | None = None) -> set[str]:
    """Return the versions that a name has, or those of one run: others may register as well."""
    try:
        versions = client.search_model_versions(f"name = '{name}'")
    except (MlflowException, OSError):
        return set()
    return {
        str(version.version)
        for version in versions
        if run_id is None or version.tags.get("scrib.run_id") == run_id
    }


def _exists(client: mlflow.MlflowClient, name: str) -> bool:
    with suppress(MlflowException):
        return bool(client.get_registered_model(name))
    return False


def _undo(
    client: mlflow.MlflowClient,
    name: str,
    alias: str,
    before: ModelVersion | None,
    made: set[str],
    *,
    new: bool,
) -> str:
    """Delete what was half made and put the alias back; return what could not be, in words."""
    try:
        for version in made:
            client.delete_model_version(name, version)
        now = _alias(client, name, alias)
        if before is not None and (now is None or str(now.version) != str(before.version)):
            client.set_registered_model_alias(name, alias, str(before.version))
        if new and _exists(client, name) and not _versions(client, name):
            client.delete_registered_model(name)
    except (MlflowException, OSError) as error:
        return f"what it had made could not be undone ({reason(error)}); "
    return ""
