"""How a model gives its scores: found once, on a few rows, when it is calibrated.

Serving does not guess. It follows the `ScoreSource` that stands in `scrib.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.adapters.outputs import UNREADABLE, locate, read_numbers
from scrib_mlflow.adapters.parameters import parse_yaml
from scrib_mlflow.errors import ModelError
from scrib_mlflow.results import ScoreSource
from scrib_mlflow.serving import (
    call_model,
    native_model,
    read_scores,
    row_count,
    rows_between,
    score_rows,
)

Transform = Literal["none", "softmax", "sigmoid"]


def find_source(
    model: Any, rows: Any, *, wanted: str, classes: Sequence[str] | None, transform: Transform
) -> tuple[ScoreSource, tuple[str, ...]]:
    """Return where the model's scores are and what its classes are called."""
    native = native_model(model)
    call, entry = _call_for(native, wanted)
    _check_not_pairwise(native, call)
    rows, output = _call(model, native, call, rows)
    found = locate(output, entry, classes)
    values = read_numbers(output, found)
    if len(values) != row_count(rows):
        msg = f"the model gives {len(values)} rows of scores for {row_count(rows)} rows"
        raise ModelError(msg)
    source = ScoreSource(
        call=call,
        key=found.key,
        columns=found.columns,
        single=_single(values, transform),
        transform=transform,
    )
    k = 2 if source.single else values.shape[1]
    own = found.names or _own_names(native)
    names = class_names(own, classes, k)
    scores = read_scores(output, asdict(source), k)
    if own is None:
        _check_labels(output, scores, names)
    return source, names


def _call_for(native: Any, wanted: str) -> tuple[str, str | list[str] | None]:
    """Return how to call the model, and the entry of its output that is asked for."""
    is_session = hasattr(native, "get_inputs") and hasattr(native, "run")
    whole = "session" if is_session else "predict"
    if wanted == "auto":
        proba = callable(getattr(native, "predict_proba", None))
        return ("predict_proba" if proba else whole), None
    if wanted == "predict":
        return whole, None
    if wanted.startswith("["):
        return whole, [str(name) for name in parse_yaml("scores_from", wanted)]
    if callable(getattr(native, wanted, None)):
        return wanted, None
    return whole, wanted


def _check_not_pairwise(native: Any, call: str) -> None:
    """Raise for pairs of classes in place of classes: three classes have three pairs as well."""
    settings = native.get_params() if hasattr(native, "get_params") else {}
    shapes = [value for name, value in settings.items() if name.endswith("decision_function_shape")]
    if "ovo" in shapes and call in {"decision_function", "predict"}:
        msg = (
            "the model has decision_function_shape='ovo', so its scores are of pairs of classes; "
            "log it with 'ovr'"
        )
        raise ModelError(msg)


def _call(model: Any, native: Any, call: str, rows: Any) -> tuple[Any, Any]:
    """Return the rows that the model can take, and what it returns for them."""
    try:
        return rows, call_model(model, native, {"call": call}, rows)
    except Exception as error:
        good = _good_rows(lambda part: call_model(model, native, {"call": call}, part), rows)
        if good is not None:  # the others are named when all rows are scored
            return good, call_model(model, native, {"call": call}, good)
        way_out = "" if call in {"predict", "session"} else ", or set scores_from"
        msg = (
            f"the model fails on the first rows of the data, asked for {call}: "
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; check that the columns "
            f"are those it was trained with{way_out}"
        )
        raise ModelError(msg) from error


def _good_rows(call: Callable[[Any], Any], rows: Any) -> Any:
    """Return the first rows, one after another, on which a call does not fail; None without any."""

    def answer(part: Any) -> NDArray[np.float64]:
        call(part)
        return np.zeros((row_count(part), 1))

    _, failed = score_rows(answer, rows, 1)
    good = [row for row in range(row_count(rows)) if row not in failed]
    if not good:
        return None
    end = next((row for row in range(good[0], row_count(rows)) if row in failed), row_count(rows))
    return rows_between(rows, good[0], end)


def _single(values: np.ndarray, transform: Transform) -> Literal["", "probability", "margin"]:
    """Return what kind of score a binary model with one column gives, "" for others."""
    if values.ndim == 2 and values.shape[1] > 1:
        return ""
    if transform == "softmax":
        msg = (
            "score_transform is 'softmax', but the model gives one score a row; for the logit of "
            "the second of two classes it is 'sigmoid'"
        )
        raise ModelError(msg)
    inside = ((values >= 0) & (values <= 1)).all()
    return "probability" if inside or transform == "sigmoid" else "margin"


def _own_names(native: Any) -> tuple[str, ...] | None:
    """Return the names that a native classifier keeps in the order of its scores."""
    own = getattr(native, "classes_", None)
    return None if own is None else tuple(str(name) for name in np.asarray(own).tolist())


def class_names(
    own: tuple[str, ...] | None, given: Sequence[str] | None, k: int
) -> tuple[str, ...]:
    """Return the names of the k classes: the model's own, or those given for a model without.

    A model whose classes are the numbers from 0 has no names of its own.
    """
    numbers = tuple(str(j) for j in range(k))
    if given is not None and len(given) != k:
        msg = f"classes names {len(given)} classes, but the model gives {k} scores a row"
        raise ModelError(msg)
    if own is None:
        return numbers if given is None else tuple(given)
    if len(own) != k:
        msg = f"the model names {len(own)} classes, but gives {k} scores a row"
        raise ModelError(msg)
    if given is None or tuple(given) == own:
        return own
    if own == numbers and set(given) != set(own):
        return tuple(given)
    msg = (
        f"classes are {[*given]}, but the model's own are {[*own]}, in this order; "
        "leave classes out"
    )
    raise ModelError(msg)


def _check_labels(output: Any, scores: NDArray[np.float64], names: tuple[str, ...]) -> None:
    """Raise where labels in the output show that names were given in another order."""
    entries = (
        [] if not (hasattr(output, "columns") or isinstance(output, Mapping)) else list(output)
    )
    for entry in entries:
        labels = _texts(output[entry])
        if labels is None or not set(labels) <= set(names):
            continue
        own = scores[np.arange(len(scores)), [names.index(label) for label in labels]]
        if (own >= scores.max(axis=1)).mean() < 0.5:
            msg = (
                f"the model's {entry!r} is the class with the highest score on few rows if the "
                f"scores are of {[*names]}; give classes in the order of the scores"
            )
            raise ModelError(msg)


def _texts(values: Any) -> list[str] | None:
    """Return values that are one text a row, None for others."""
    try:
        array = np.asarray(values)
    except UNREADABLE:
        return None
    plain = array.tolist()
    is_text = array.ndim == 1 and all(isinstance(value, str) for value in plain)
    return plain if is_text else None
