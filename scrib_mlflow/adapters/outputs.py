"""Where in a model's output the scores stand: told by its form and its names, never guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scrib_mlflow.errors import ModelError
from scrib_mlflow.serving import as_numbers

UNREADABLE = (TypeError, ValueError, KeyError, RuntimeError)  # what odd values raise as numbers
ADVICE = (
    "log it so that predict returns one score for each class (for scikit-learn: "
    "pyfunc_predict_fn='predict_proba'), or say with scores_from which method, output or columns "
    "hold them"
)


class Found(NamedTuple):
    """A place in an output, and the names of the classes where it has them."""

    key: str | int | None
    columns: tuple[str | int, ...] | None
    names: tuple[str, ...] | None


def locate(output: Any, entry: str | list[str] | None, classes: Sequence[str] | None) -> Found:
    """Return where in an output the scores stand: the entry or columns asked for, if any."""
    if hasattr(output, "columns"):
        return _in_frame(output, entry, classes)
    if isinstance(output, Mapping):
        return _in_mapping(output, entry, classes)
    if isinstance(entry, list) and _has_mappings(output):
        return _named_columns(_row_keys(output), entry, classes)
    if entry is not None:
        msg = (
            f"scores_from is {entry!r}, which is no method of the model and no entry of its "
            f"output; that is {described(output)}"
        )
        raise ModelError(msg)
    return Found(None, *_rows(output, classes))


def read_numbers(output: Any, found: Found) -> np.ndarray:
    """Return the numbers at a place, or say why they are not scores."""
    value = output if found.key is None else output[found.key]
    try:
        array = as_numbers(value, found.columns)
    except UNREADABLE as error:
        msg = f"the model returns {described(output)}, which are no scores ({error}); {ADVICE}"
        raise ModelError(msg) from error
    flat = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if flat and _whole(array):
        msg = f"the model returns {described(output)}, which are labels, not scores; {ADVICE}"
        raise ModelError(msg)
    if array.ndim not in {1, 2}:
        msg = f"the model returns {described(output)}, not one row of scores for each row; {ADVICE}"
        raise ModelError(msg)
    return array


def described(output: Any) -> str:
    """Return what an output is, in words."""
    if isinstance(output, Mapping):
        return f"a mapping of {[*map(str, output)]}"
    if hasattr(output, "columns"):
        return f"the columns {[*map(str, output.columns)]}"
    array = np.asarray(output, dtype=np.object_) if isinstance(output, list) else output
    kind = getattr(array, "dtype", type(output).__name__)
    return f"values of type {kind} and shape {getattr(array, 'shape', None)}"


def _in_frame(frame: Any, entry: str | list[str] | None, classes: Sequence[str] | None) -> Found:
    by_text = _by_text(frame.columns)
    if isinstance(entry, list):
        return _named_columns(by_text, entry, classes)
    if entry is not None or len(by_text) == 1:
        key = next(iter(by_text)) if entry is None else entry
        if key not in by_text:
            msg = (
                f"scores_from is {entry!r}, which is no method of the model and no column of its "
                f"output; that has {[*by_text]}"
            )
            raise ModelError(msg)
        return Found(by_text[key], *_rows(frame[by_text[key]], classes))
    columns = tuple(by_text.values())
    if columns == tuple(range(len(columns))):  # an array with a frame around it
        return Found(None, columns, None)
    if classes and set(classes) <= set(by_text):
        return Found(None, tuple(by_text[name] for name in classes), tuple(classes))
    if classes:
        msg = (
            f"classes are {[*classes]}, but the model returns the columns {[*by_text]}; say with "
            f"scores_from, such as '[{', '.join(by_text)}]', which column is whose"
        )
        raise ModelError(msg)
    _check_are_scores({name: frame[column] for name, column in by_text.items()})
    return Found(None, columns, tuple(by_text))


def _in_mapping(
    output: Mapping[Any, Any], entry: str | list[str] | None, classes: Sequence[str] | None
) -> Found:
    by_text = _by_text(output)
    if isinstance(entry, list):
        return _named_columns(by_text, entry, classes)
    if entry is None:
        likely = [name for name, key in by_text.items() if _is_score_table(output[key])]
        if len(likely) != 1:
            msg = (
                f"the model returns {[*by_text]}, of which {len(likely)} look like scores; say "
                "with scores_from which one holds them, or, such as "
                f"'[{', '.join(by_text)}]', which ones"
            )
            raise ModelError(msg)
        entry = likely[0]
    if entry not in by_text:
        msg = f"scores_from is {entry!r}, but the model's output has {[*by_text]}"
        raise ModelError(msg)
    return Found(by_text[entry], *_rows(output[by_text[entry]], classes))


def _named_columns(
    by_text: Mapping[str, str | int], wanted: list[str], classes: Sequence[str] | None
) -> Found:
    """Return columns asked for by name; they name the classes unless these are given."""
    missing = [name for name in wanted if name not in by_text]
    if missing:
        msg = f"the model's output has no column {missing[0]!r}; it has {[*by_text]}"
        raise ModelError(msg)
    names = None if classes else tuple(wanted)
    return Found(None, tuple(by_text[name] for name in wanted), names)


def _rows(
    value: Any, classes: Sequence[str] | None
) -> tuple[tuple[str | int, ...] | None, tuple[str, ...] | None]:
    """Return the keys and the class names of rows that are mappings; None and None of others."""
    if not _has_mappings(value):
        return None, None
    by_text = _row_keys(value)
    if classes and set(classes) == set(by_text):
        return tuple(by_text[name] for name in classes), tuple(classes)
    _check_are_scores({name: [row[key] for row in value] for name, key in by_text.items()})
    return tuple(by_text.values()), tuple(by_text)


def _has_mappings(value: Any) -> bool:
    return isinstance(value, Iterable) and isinstance(next(iter(value), None), Mapping)


def _row_keys(rows: Any) -> dict[str, str | int]:
    """Return the keys that all rows must have."""
    keys = _by_text(next(iter(rows)))
    for i, row in enumerate(rows):
        if set(row) != set(keys.values()):
            msg = (
                f"the model returns {[*keys]} for the first row, but {[*map(str, row)]} for row "
                f"{i}; log it so that every row has a score for each class"
            )
            raise ModelError(msg)
    return keys


def _by_text(names: Iterable[Any]) -> dict[str, str | int]:
    """Return names, as JSON can hold them, by their text."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    for name in plain:
        if not isinstance(name, str | int):
            msg = f"the model names a score {name!r}; names must be text or whole numbers"
            raise ModelError(msg)
    by_text = {str(name): name for name in plain}
    if len(by_text) < len(plain):
        msg = f"the model's output has {[*map(str, plain)]}, where names stand more than once"
        raise ModelError(msg)
    return by_text


def _check_are_scores(columns: Mapping[str, Any]) -> None:
    """Raise for columns that cannot all be scores of classes: one of labels may be among them."""
    for name, values in columns.items():
        if not _may_be_scores(values):
            msg = (
                f"the model returns {[*columns]}, and {name!r} does not look like scores; name the "
                f"score of each class with scores_from, such as '[{', '.join(columns)}]', or, "
                "where these are the classes, give them with classes"
            )
            raise ModelError(msg)


def _may_be_scores(values: Any) -> bool:
    """Return whether values are floats with fractions; those of a rare class may all be 0."""
    try:
        array = as_numbers(values, None)
    except UNREADABLE:
        return False
    typed = np.asarray(values).dtype.kind not in "iub"
    return typed and array.ndim == 1 and (not _whole(array) or not array.any())


def _whole(array: np.ndarray) -> bool:
    return bool((array == np.round(array)).all())


def _is_score_table(value: Any) -> bool:
    if _has_mappings(value):
        return True
    try:
        array = np.asarray(value)
    except UNREADABLE:
        return False
    return array.ndim == 2 and np.issubdtype(array.dtype, np.floating)
