"""The set classifier as an MLflow model: read, logged, tried, and registered or not at all."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from scrib_mlflow.core.monitoring import Baseline
from scrib_mlflow.errors import InvalidSettingsError, ModelError, StoreError, UnreadableModelError
from scrib_mlflow.messages import reason
from scrib_mlflow.records import Base, seal
from scrib_mlflow.registry import runs, seals
from scrib_mlflow.registry.stores import is_absent, is_unanswered
from scrib_mlflow.results import SCHEMA_VERSION, SetClassifier, from_json

NEEDED = ("mlflow", "numpy", "pandas")  # by the served file
MODEL_NAME = "set_classifier"
CREATED_BY = "scrib.created_by_run"  # tag of a registered model that one of our runs has made
LINKS = "mlflow.modelVersions"  # tag of a logged model, by which MLflow's pages show its versions
EXISTS = ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS")
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
    baseline: str = ""  # text of its `baseline.json`, where it is at hand


def load_model(uri: str) -> PyFuncModel:
    """Return a registered model, or say what is missing to load it."""
    try:
        return mlflow.pyfunc.load_model(uri)
    except ImportError as error:
        program = f"import mlflow; print(mlflow.pyfunc.get_model_dependencies({json.dumps(uri)}))"
        raise UnreadableModelError(
            f"{uri} cannot be loaded: {error}; install what it needs with "
            f'pip install -r "$({shlex.join(["python", "-c", program])})"'
        ) from error
    except Exception as error:
        raise UnreadableModelError(
            f"{uri} cannot be loaded: {type(error).__name__}: {reason(error)}"
        ) from error


def read_stored(uri: str) -> Stored:
    """Return what `scrib.json` of a registered set classifier says."""
    text = _read_artifact(uri, "scrib")
    if text is None:
        raise ModelError(f"{uri} is no set classifier of scrib_mlflow; make one with calibrate")
    return Stored(_set_classifier(text, uri), text)


def read_baseline(uri: str) -> Baseline | None:
    """Return what answers looked like at calibration, None where a version does not say."""
    text = _read_artifact(uri, "baseline")
    found = None if text is None else from_json(text)
    if found is not None and not isinstance(found, Baseline):
        raise ModelError(f"baseline.json of {uri} holds a {type(found).__name__}")
    return found


def _read_artifact(uri: str, name: str) -> str | None:
    """Return the text of a file of a logged model, None where it has no such file."""
    try:
        info = mlflow.models.get_model_info(uri)  # unlike Model.load, it takes models:/m-ID
        artifacts = info.flavors.get("python_function", {}).get("artifacts") or {}
        if name not in artifacts:
            return None
        file, folder = artifacts[name]["path"], uri
        if re.fullmatch(
            r"models:/m-[^/]+", uri
        ):  # MLflow finds no file by models:/m-ID with a path
            logged = mlflow.MlflowClient().get_logged_model(uri.removeprefix("models:/"))
            folder = str(logged.artifact_location)
        path = mlflow.artifacts.download_artifacts(artifact_uri=f"{folder}/{file}")
        return Path(path).read_text(encoding="utf-8")
    except (MlflowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"the files of {uri} cannot be read: {reason(error)}") from error


def _set_classifier(text: str, where: str) -> SetClassifier:
    """Return the set classifier that a `scrib.json` holds."""
    record = from_json(text)
    if not isinstance(record, SetClassifier):
        raise ModelError(
            f"scrib.json of {where} holds a {type(record).__name__}, not a set classifier"
        )
    return record


def read_run(run_id: str) -> Stored:
    """Return what `scrib.json` of a calibrate run says; it may have no model."""
    tags = runs.read_tags(run_id)
    if tags is None:
        raise ModelError(f"there is no run {run_id} in this store")
    if seals.CERTIFICATE_DIGEST not in tags:
        raise ModelError(f"run {run_id} holds no set classifier; give a run of calibrate")
    with runs.read_artifacts(run_id, "scrib.json") as (path,):
        text = path.read_text(encoding="utf-8")
    return Stored(_set_classifier(text, f"run {run_id}"), text)


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
    held = _holder(mlflow.MlflowClient(), name, alias)
    if held is not None and "scrib.base_model" not in held.tags:
        raise InvalidSettingsError(
            f"the alias {alias!r} of {name!r} is on version {held.version}, which is no set "
            "classifier; choose another alias or registered_model_name"
        )


@contextmanager
def _packed(
    text: str, baseline: str, base_uri: str, inputs: Schema | None, rows: Any, example: Any
) -> Iterator[dict[str, Any]]:
    """Yield what MLflow needs to save or log a set classifier.

    `text` is its `scrib.json`, `baseline` its `baseline.json`, "" for none. Without a signature of
    the classifier, the inputs are inferred from the rows.
    """
    if inputs is None and rows is not None:
        inputs = infer_signature(rows).inputs
    served = json.loads(text)
    more = serving.counts_more(served["rule"], len(served["classes"]))
    outputs = Schema([*OUTPUTS, MORE] if more else [*OUTPUTS])
    with tempfile.TemporaryDirectory() as folder:
        artifacts = {"base_model": base_uri}
        for name, content in {"scrib": text, "baseline": baseline}.items():
            if content:
                path = Path(folder) / f"{name}.json"
                path.write_text(content, encoding="utf-8")
                artifacts[name] = str(path)
        yield {
            "python_model": serving.__file__,
            "artifacts": artifacts,
            "signature": ModelSignature(inputs=inputs, outputs=outputs, params=PARAMETERS),
            "input_example": example,
            "pip_requirements": requirements(base_uri),
            "metadata": {"scrib_schema_version": SCHEMA_VERSION},
        }


def log_model(stored: Stored, inputs: Schema | None, rows: Any, example: Any) -> ModelInfo:
    """Log the set classifier as a model of the active run; it is not registered yet."""
    files = stored.text, stored.baseline, stored.record.base.uri
    with _packed(*files, inputs, rows, example) as packed:
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
            with _packed(json.dumps(served), "", base_uri, inputs, rows, example) as packed:
                mlflow.pyfunc.save_model(place, **packed)
        except (MlflowException, OSError, TypeError, ValueError) as error:
            if is_unanswered(error) or isinstance(error, OSError):
                raise StoreError(
                    f"{base_uri} cannot be read: {reason(error)}; try again"
                ) from error
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
        if is_unanswered(error):
            raise StoreError(f"{model_uri} cannot be read: {reason(error)}; try again") from error
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


def try_example(folder: str) -> None:
    """Raise unless a model answers the example that it was logged with, if there is one."""
    try:
        rows = mlflow.models.Model.load(folder).load_input_example(folder)
        if rows is not None:
            mlflow.pyfunc.load_model(folder, suppress_warnings=True).predict(rows)
    except Exception as error:
        raise ModelError(
            f"it does not answer its own example: {type(error).__name__}: {reason(error)}"
        ) from error


def version_tags(stored: Stored, run_id: str) -> dict[str, str]:
    """Return the tags of a registered version; a gate adds a few, and scrib.json says the rest."""
    record, text, _ = stored
    return {
        "scrib.base_model": record.base.name,
        "scrib.base_version": record.base.version or record.base.model_id,
        "scrib.certified": str(record.certified).lower(),
        "scrib.confidence": f"{record.confidence:g}",
        "scrib.rule": record.rule.kind,
        "scrib.run_id": run_id,
        seals.CERTIFICATE_DIGEST: seal(text),
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

    With "" for an alias none is set. `about` describes a registered model that is new. Where an
    earlier try has left a version of the same run, that one is finished.
    """
    client, run_id = mlflow.MlflowClient(), tags["scrib.run_id"]
    began: _Before | None = None
    try:
        before = _holder(client, name, alias)
        new = _create(client, name, about, run_id)
        known = _versions(client, name, run_id)
        began = _Before(before, known, new=new)
        if known:
            version = min(known, key=int)
            client.update_model_version(name, version, description=description)
        else:
            version = _create_version(client, model_uri, name, tags, description)
        if alias:
            client.set_registered_model_alias(name, alias, version)
    except BaseException as error:
        left = "" if began is None else _undo(client, name, alias, began, run_id)
        if not isinstance(error, MlflowException | OSError | StoreError):
            raise
        finish = ["python", "-m", "scrib_mlflow", "register", "--run_id", run_id]
        finish += ["--registered_model_name", name, *(["--alias", alias] if alias else [])]
        raise StoreError(
            f"{name} could not be registered: {reason(error)}; {left}the model and its report are "
            f"kept in run {run_id}; finish with: {shlex.join(finish)}"
        ) from error
    return version


class _Before(NamedTuple):
    """What was there before a registration began."""

    holder: ModelVersion | None  # of the alias
    versions: set[str]  # of the same run
    new: bool  # whether this run certainly made the registered model


def _create(client: mlflow.MlflowClient, name: str, about: str, run_id: str) -> bool:
    """Make sure that there is a registered model; return whether this run certainly made it.

    Its tag is written together with it: so even where MLflow repeats a request whose answer was
    lost, and is told that the name exists, it says by whom it was made.
    """
    try:
        client.create_registered_model(name, tags={CREATED_BY: run_id}, description=about)
    except MlflowException as error:
        if error.error_code not in EXISTS:
            raise
        return bool(client.get_registered_model(name).tags.get(CREATED_BY) == run_id)
    return True


def _create_version(
    client: mlflow.MlflowClient, model_uri: str, name: str, tags: dict[str, str], description: str
) -> str:
    """Make a version, and delete the twin that a repeated request has made."""
    model_id = model_uri.removeprefix("models:/")
    made = client.create_model_version(
        name, source=model_uri, tags=tags, description=description, model_id=model_id
    )
    version = str(made.version)
    for twin in _versions(client, name, tags["scrib.run_id"]) - {version}:
        client.delete_model_version(name, twin)
    links = json.loads(client.get_logged_model(model_id).tags.get(LINKS, "[]"))
    links.append({"name": name, "version": made.version})
    client.set_logged_model_tags(model_id, {LINKS: json.dumps(links)})
    return version


def is_certified(name: str, alias: str) -> bool:
    """Return whether the version that has an alias is certified."""
    held = _holder(mlflow.MlflowClient(), name, alias)
    return held is not None and held.tags.get("scrib.certified") == "true"


def _holder(client: mlflow.MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Return the version that an alias is on, None where there is certainly none."""
    try:
        version = client.get_registered_model(name).aliases.get(alias) if alias else None
        return client.get_model_version(name, str(version)) if version else None
    except (MlflowException, OSError) as error:
        if is_absent(error):
            return None
        raise StoreError(
            f"the registry does not say which version of {name} is {alias}: {reason(error)}"
        ) from error


def _versions(client: mlflow.MlflowClient, name: str, run_id: str | None = None) -> set[str]:
    """Return the versions that a name has, or those of one run: others may register as well."""
    return {
        str(version.version)
        for version in client.search_model_versions(f"name = '{name}'")
        if run_id is None or version.tags.get("scrib.run_id") == run_id
    }


def _undo(client: mlflow.MlflowClient, name: str, alias: str, began: _Before, run_id: str) -> str:
    """Delete what was half made and put the alias back; return what could not be, in words."""
    try:
        made = _versions(client, name, run_id) - began.versions
        now = _holder(client, name, alias)
        before = began.holder
        ours = made | began.versions
        if before is not None and now is not None and str(now.version) in ours:
            client.set_registered_model_alias(name, alias, str(before.version))
        for version in made:
            client.delete_model_version(name, version)
        if began.new and not _versions(client, name):
            client.delete_registered_model(name)
    except (MlflowException, OSError, StoreError) as error:
        return f"what it had made could not be undone ({reason(error)}); "
    return ""
