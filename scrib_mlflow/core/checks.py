"""Checks of what users pass in; everything behind them may trust its arrays."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.errors import (
    InvalidLabelsError,
    InvalidScoresError,
    InvalidWeightsError,
    ScribError,
)

WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
SHOWN = 12
MOST_WEIGHT = 1e100


def as_floats(name: str, values: Any) -> NDArray[np.float64]:
    """Return numbers as a C-ordered float64 array."""
    try:
        if np.iscomplexobj(values) or np.ma.is_masked(values):
            msg = "complex or masked values"
            raise TypeError(msg)  # noqa: TRY301  # told like what numpy cannot convert
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be numbers: {error}"
        raise ScribError(msg) from error


def as_number(name: str, value: object, *, low: float, high: float) -> float:
    """Return a number strictly between low and high."""
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError) as error:
        msg = f"{name} is {value!r}, but must be a number"
        raise ScribError(msg) from error
    if not low < number < high:
        limits = f"lie between {low:g} and {high:g}" if high < np.inf else f"be above {low:g}"
        msg = f"{name} must {limits}, got {number:g}"
        raise ScribError(msg)
    return number


def check_trust(trust: object, n: int) -> NDArray[np.float64]:
    """Return the trust of each row."""
    checked = as_floats("trust", trust)
    if checked.shape != (n,) or np.isnan(checked).any():
        msg = (
            f"trust must be {n} numbers, one a row, got shape {checked.shape} "
            f"with {int(np.isnan(checked).sum())} NaN"
        )
        raise ScribError(msg)
    return checked


def check_scores(scores: ArrayLike, *, least_rows: int = 2) -> NDArray[np.float64]:
    """Return scores as a C-ordered (n, k) float64 array, or say what is wrong with them."""
    try:
        array = as_floats("scores", scores)
    except ScribError as error:
        raise InvalidScoresError(*error.args) from error
    if array.ndim != 2:
        msg = (
            f"scores must have two dimensions, rows and classes, got shape {array.shape}; "
            "for a binary model with one score p pass np.column_stack([1 - p, p])"
        )
        raise InvalidScoresError(msg)
    n, k = array.shape
    if k < 2:
        msg = f"scores must have a column for each of 2 or more classes, got {k}"
        raise InvalidScoresError(msg)
    if n < least_rows:
        msg = f"scores have {n} rows, but at least {least_rows} are needed"
        raise InvalidScoresError(msg)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        msg = (
            f"scores[{row}, {column}] is {array[row, column]}; "
            "drop or impute rows without a finite score for every class"
        )
        raise InvalidScoresError(msg)
    return array


def check_classes(classes: Sequence[object] | None, k: int) -> tuple[str, ...]:
    """Return the class names as text; without names, the column numbers."""
    if classes is None:
        return tuple(str(j) for j in range(k))
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        msg = f"classes must be a list of names in column order, got {classes!r}"
        raise InvalidLabelsError(msg)
    names = tuple(str(name) for name in classes)
    if len(names) != k:
        msg = (
            f"classes names {len(names)} classes but scores have {k} columns; "
            "name them in column order"
        )
        raise InvalidLabelsError(msg)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"classes must differ, but {_listed(twice)} stand more than once"
        raise InvalidLabelsError(msg)
    if not all(name.strip() for name in names):
        msg = f"a class is named {next(n for n in names if not n.strip())!r}; give it a name"
        raise InvalidLabelsError(msg)
    if "default" in names:
        msg = (
            "a class is named 'default', the word for all classes without a target of their own; "
            "rename it"
        )
        raise InvalidLabelsError(msg)
    return names


def check_labels(labels: ArrayLike, classes: tuple[str, ...], n: int) -> NDArray[np.int32]:
    """Return labels as class indices.

    A label equal to a class name as text is that class; whole numbers are indices only where no
    class name is a whole number.
    """
    try:
        array = np.asarray(labels)
    except ValueError as error:
        msg = f"labels must be one for each of the {n} rows of scores: {error}"
        raise InvalidLabelsError(msg) from error
    if array.shape != (n,):
        msg = f"labels must be one for each of the {n} rows of scores, got shape {array.shape}"
        raise InvalidLabelsError(msg)
    numbered = all(name == str(j) for j, name in enumerate(classes))
    named = not numbered and any(WHOLE.fullmatch(name) for name in classes)
    if array.dtype.kind in "iu" and not named:
        inside = (array >= 0) & (array < len(classes))
        if not inside.all():
            raise _unknown_label(array, int(np.argmin(inside)), classes)
        return array.astype(np.int32)
    index = {name: j for j, name in enumerate(classes)}
    if array.dtype.kind == "O":
        found = np.array([_class_of(value, index, named=named) for value in array.tolist()])
    else:
        values, inverse = np.unique(array, return_inverse=True)
        known = [_class_of(value, index, named=named) for value in values.tolist()]
        found = np.array(known)[inverse]
    if (found < 0).any():
        raise _unknown_label(array, int(np.argmax(found < 0)), classes)
    return found.astype(np.int32)


def labels_for(indices: NDArray[np.int32], classes: tuple[str, ...]) -> NDArray[np.generic]:
    """Return labels that `check_labels` reads as these indices, whatever the classes are called."""
    if any(WHOLE.fullmatch(name) for name in classes):
        return np.array(classes)[indices]
    return indices


def _class_of(value: object, index: dict[str, int], *, named: bool) -> int:
    """Return the class that a label means, -1 for none."""
    if value is None or value != value:  # noqa: PLR0124  # NaN, of whatever type
        return -1
    texts = [str(value)]
    number = -1
    if isinstance(value, int | float) and math.isfinite(value) and int(value) == value:
        number = int(value)
        texts += [str(number), f"{number}.0"]
    for text in texts:
        if text in index:
            return index[text]
    if isinstance(value, bool):  # true is no index
        return -1
    return number if not named and 0 <= number < len(index) else -1


def check_soft_labels(labels: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return an (n, k) matrix of label weights."""
    soft = as_floats("soft labels", labels)
    if soft.shape != shape:
        msg = f"soft labels must have the shape of scores {shape}, got {soft.shape}"
        raise InvalidLabelsError(msg)
    if not (np.isfinite(soft) & (soft >= 0)).all():
        row, column = np.argwhere(~(np.isfinite(soft) & (soft >= 0)))[0]
        msg = (
            f"soft labels[{row}, {column}] is {soft[row, column]}; "
            "weights must be finite and not negative"
        )
        raise InvalidLabelsError(msg)
    _check_scale("soft labels", soft)
    return soft


def are_soft(labels: ArrayLike) -> bool:
    """Return whether labels are a matrix."""
    try:
        return np.ndim(labels) == 2
    except ValueError:  # rows of different lengths, which `check_labels` refuses
        return False


def check_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Return one weight a row; without weights, ones."""
    if sample_weight is None:
        return np.ones(n)
    weights = as_floats("sample_weight", sample_weight)
    if weights.shape != (n,):
        msg = f"sample_weight must be one for each of the {n} rows, got shape {weights.shape}"
        raise InvalidWeightsError(msg)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        msg = (
            f"sample_weight[{bad[0]}] is {weights[bad[0]]}; weights must be finite and not negative"
        )
        raise InvalidWeightsError(msg)
    if not weights.any():
        msg = "sample_weight is 0 in every row; leave it out, or give some row a weight"
        raise InvalidWeightsError(msg)
    _check_scale("sample_weight", weights)
    return weights


def _check_scale(name: str, weights: NDArray[np.float64]) -> None:
    """Refuse weights whose sums leave the range of numbers."""
    if not 1 / MOST_WEIGHT < weights.max() < MOST_WEIGHT:
        msg = f"the highest of {name} is {weights.max():g}; scale them to about 1 a row"
        raise InvalidWeightsError(msg)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name most like this one, or the list of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _unknown_label(
    array: NDArray[np.generic], row: int, classes: tuple[str, ...]
) -> InvalidLabelsError:
    value = array[row].item() if isinstance(array[row], np.generic) else array[row]
    return InvalidLabelsError(
        f"labels[{row}] is {value!r}, which is no class; use a class name, or an index from 0 to "
        f"{len(classes) - 1} where no name is a number; the classes are {_listed(classes)}"
    )
