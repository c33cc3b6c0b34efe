"""Parameters as a command line or a Python call gives them, read into settings."""

from __future__ import annotations

import os
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.messages import brief, nearest, reason, share_hint
from scrib_mlflow.options import DATA, Settings
from scrib_mlflow.records import Frame

Kind = TypeVar("Kind", bound=Settings)
MOST_YAML = 1_000_000  # characters
DEEPEST_YAML = 10  # levels; no option has more than three
BRANCHES = ("float", "constrained-float", "dict[str,constrained-float]", "tuple[str, ...]")


def read_settings(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Return settings from values by name.

    Text for a mapping or a list may be inline YAML or the path of a YAML file. None and empty text
    mean "no value"; MLflow passes empty text for a parameter without one.
    """
    read: dict[str, Any] = {}
    for name, value in values.items():
        field = kind.model_fields.get(name)
        if field is None:
            hint = nearest(name, kind.model_fields)
            raise InvalidSettingsError(f"{kind.__name__.lower()} has no parameter {name!r}; {hint}")
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if name in DATA:
            read[name] = read_data(name, value)
        else:
            read[name] = read_value(name, value, _containers(field.annotation))
    try:
        settings = kind.model_validate(read)
    except ValidationError as error:
        raise InvalidSettingsError(_message(error)) from None
    _check_engine(settings)
    return settings


def read_data(name: str, value: Any) -> str:
    """Return where rows are: a path or a URI as text, or the rows of a pandas frame."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(value).__mro__]
    if ("pandas", "DataFrame") in kinds:  # without importing pandas
        return Frame(value)
    raise InvalidSettingsError(
        f"{name} is {brief(value)}; give the path or the URI of a parquet or csv file, or a "
        "pandas DataFrame"
    )


def _check_engine(settings: Settings) -> None:
    """Raise where Spark would have to read a frame of this process."""
    for name in DATA:
        place = getattr(settings, name, None)
        if isinstance(place, Frame) and getattr(settings, "engine", "local") == "spark":
            raise InvalidSettingsError(
                f"{name} is {place}, which engine=spark cannot read; leave engine out, or write "
                "the frame as parquet where Spark can read it"
            )


def read_value(name: str, value: Any, containers: set[type]) -> Any:
    """Return a parameter's value, read as YAML if it may be a mapping or a list."""
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
        if len(named) < len(value):
            raise InvalidSettingsError(
                f"{name} names a class twice: {brief(list(value))} are the same as text"
            )
        return named
    if isinstance(value, str | Path) and containers:
        return _read_text(name, str(value).strip(), containers)
    if list in containers and isinstance(value, Iterable) and not isinstance(value, str):
        return [str(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _read_text(name: str, text: str, containers: set[type]) -> Any:
    """Return the number, the inline YAML, the YAML file or the list with commas of a text."""
    inline = text[0] in "{["
    if not inline and dict in containers:
        with suppress(ValueError):
            float(text)
            return text
    if not inline and not os.path.isfile(text):  # noqa: PTH113  # Path fails where text is long
        if list in containers:
            return [part.strip() for part in text.split(",")]
        raise InvalidSettingsError(
            f"{name} is {brief(text)}, which is neither a number, nor inline YAML such as "
            f"'{{A: 0.2, default: 0.1}}', nor a file in {Path.cwd()}"
        )
    try:
        written = text if inline else _start_of(Path(text))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettingsError(
            f"{name} is the file {brief(text)}, which cannot be read as YAML: {error}"
        ) from error
    content = parse_yaml(name, written)
    if not content:
        raise InvalidSettingsError(f"{name} is {brief(text)}, which is empty")
    return content


def _start_of(path: Path) -> str:
    """Return a file's text, as far as is needed to see that it is too long."""
    with path.open(encoding="utf-8") as file:
        return file.read(MOST_YAML + 1)


class _PlainLoader(yaml.BaseLoader):
    """Reads YAML with every scalar as text, of bearable depth, and without aliases.

    A few lines of aliases can stand for gigabytes.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return a value, which may hold others down to some depth."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*) are not read here; write the value out")
        if self.depth == DEEPEST_YAML:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST_YAML} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(name: str, text: str) -> Any:
    """Return YAML with every scalar as text, so that classes named ~, no or 1 keep their names."""
    if len(text) > MOST_YAML:
        raise InvalidSettingsError(
            f"{name} is longer than {MOST_YAML:,} characters, which is too long to be read as YAML"
        )
    try:
        loader = _PlainLoader(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except Exception as error:  # pyyaml has errors of many kinds for what is no YAML
        raise InvalidSettingsError(f"{name} is not YAML: {reason(error)}") from error
    if isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = sorted(key for key, n in keys.items() if n > 1)
        if twice:
            raise InvalidSettingsError(f"{name} names {brief(twice[0])} more than once")
    return content


def _containers(annotation: Any) -> set[type]:
    """Return which of dict and list a field of this type can be."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*(_containers(part) for part in get_args(annotation)))
    return {dict} if origin is dict else {list} if origin is tuple else set()


def _message(error: ValidationError) -> str:
    """Return the first problem, the one deepest inside a value, in a line."""
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    place = ".".join(str(part) for part in first["loc"] if part not in BRANCHES)
    if first["type"] == "missing":
        return f"{place} is missing; it has no default"
    problem = first["msg"][0].lower() + first["msg"][1:]
    return f"{place} is {brief(first['input'])}, but {problem}{_hint(first, place)}"


def _hint(problem: ErrorDetails, place: str) -> str:
    """Return what a number may mean that is too high for a share."""
    limits = problem.get("ctx", {})
    if 1 not in {limits.get("lt"), limits.get("le")}:
        return ""
    lowest = 0.5 if place == "confidence" else 0.0
    return share_hint(float(problem["input"]), low=lowest)
