"""Result values as JSON, and back, bit for bit.

Infinite and undefined numbers are the strings "Infinity", "-Infinity" and "NaN", so that the text
is JSON for every reader.
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.rules import SelectiveRule, ThresholdRule, TopRule
from scrib_mlflow.errors import ScribError

SCHEMA_VERSION = 1

Result = Fit | SetReport | ThresholdRule | SelectiveRule | TopRule
TYPES: dict[str, type[Any]] = {
    "fit": Fit,
    "set_report": SetReport,
    "threshold_rule": ThresholdRule,
    "selective_rule": SelectiveRule,
    "top_rule": TopRule,
}


def to_json(value: Result) -> str:
    """Return a result as JSON text that `from_json` reads back, every bit the same."""
    name = next((name for name, kind in TYPES.items() if type(value) is kind), None)
    if name is None:
        msg = f"a {type(value).__name__} has no JSON form; pass a fit, a report or a rule"
        raise ScribError(msg)
    fields = {"schema_version": SCHEMA_VERSION, "type": name, **dataclasses.asdict(value)}
    return json.dumps(_strict(fields), allow_nan=False, indent=2, ensure_ascii=False)


def from_json(text: str) -> Result:
    """Return the result that `to_json` wrote."""
    try:
        fields = json.loads(text)
        version, name = fields.pop("schema_version"), fields.pop("type")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        msg = f"this is not a result of scrib_mlflow: {type(error).__name__}: {error}"
        raise ScribError(msg) from error
    if version != SCHEMA_VERSION or not isinstance(name, str) or name not in TYPES:
        msg = (
            f"schema version {version} of {name!r} is unknown here, where version {SCHEMA_VERSION} "
            f"of {', '.join(TYPES)} is; use the scrib_mlflow that wrote it, or a newer one"
        )
        raise ScribError(msg)
    known = {field.name for field in dataclasses.fields(TYPES[name])}
    rule = fields.get("rule", {"kind": None})
    if set(fields) - known or not isinstance(rule, dict) or "kind" not in rule:
        msg = f"the {name} is damaged: it has {sorted(fields)}, of which {sorted(known)} are known"
        raise ScribError(msg)
    try:
        result: Result = _reader(name).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"the {name} is damaged at {place!r}: {first['msg']}"
        raise ScribError(msg) from error
    return result


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[name])


def _strict(value: object) -> object:
    """Return the value with numbers that JSON lacks as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
