"""How a model gives its scores: found once, on a few rows, when it is calibrated.

Serving does not guess. It follows the `ScoreSource` that stands in `scrib.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow import serving
from scrib_mlflow.errors import ModelError
from scrib_mlflow.messages import reason
from scrib_mlflow.parameters import parse_yaml
from scrib_mlflow.records import ScoreSource

UNREADABLE = (TypeError, ValueError, KeyError, RuntimeError)  # what odd values raise as numbers
ADVICE = (
    "log it so that predict returns one score for each class (for scikit-learn: "
    "pyfunc_predict_fn='predict_proba'), or say with scores_from which method, output or columns "
    "hold them"
)
Names = dict[str, str | int]  # of columns, as JSON can hold them, by their text
Transform = Literal["none", "softmax", "sigmoid"]


class Location(NamedTuple):
    """Where scores stand in an output, and the names of the classes where it has them."""

    key: str | int | None
    columns: tuple[str | int, ...] | None
    names: tuple[str, ...] | None


def find_source(
    model: Any,
    rows: Any,
    *,
    wanted: str,
    classes: Sequence[str] | None,
    transform: Transform,
    categorical: Sequence[str] = (),
) -> tuple[ScoreSource, tuple[str, ...]]:
    """Return where the model's scores are and what its classes are called.

    `categorical` are columns that the data hold as pandas categoricals, and the rows as values.
    """
    native = serving.native_model(model)
    call, entry = _call_for(native, wanted)
    _check_not_pairwise(native, call)
    how: dict[str, Any] = {"call": call, "one_column": takes_a_series(native, call, rows)}
    how["categorical"] = _category_columns(model, native, how, rows, categorical)
    rows, output = _call(model, native, how, rows)
    location = locate(output, entry, classes)
    values = read_numbers(output, location)
    if len(values) != serving.row_count(rows):
        raise ModelError(
            f"the model gives {len(values)} rows of scores for {serving.row_count(rows)} rows; a "
            "pipeline that begins with text takes one column: log it with an input_example that "
            "has only that one, such as frame[['text']], or choose the column in the pipeline with "
            "a ColumnTransformer"
        )
    source = ScoreSource(
        key=location.key,
        columns=location.columns,
        single=_single(values, transform),
        transform=transform,
        **how,
    )
    k = 2 if source.single else values.shape[1]
    own = location.names
    if own is None and getattr(native, "classes_", None) is not None:  # in the order of the scores
        own = tuple(str(name) for name in np.asarray(native.classes_).tolist())
    names = class_names(own, classes, k)
    scores = serving.read_scores(output, asdict(source), k)
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
        raise ModelError(
            "the model has decision_function_shape='ovo', so its scores are of pairs of classes; "
            "log it with 'ovr'"
        )


def takes_a_series(native: Any, call: str, rows: Any) -> bool:
    """Return whether a model wants its one column of text as a Series, as a vectorizer does.

    A vectorizer takes a frame for a list of its column names, one text each.
    """
    ours = call in {"predict", "session"} or getattr(rows, "shape", ())[1:] != (1,)
    if ours or not hasattr(rows, "iloc") or rows.dtypes.iloc[0].kind in "biufcM":
        return False
    known = rows.dropna()
    if known.empty:
        return False
    two = known.iloc[[0, 0]]

    def answers_both(given: Any) -> bool:
        with suppress(Exception):  # whatever the model raises, it does not take that
            return len(getattr(native, call)(given)) == len(two)
        return False

    return not answers_both(two) and answers_both(two.iloc[:, 0])


def _category_columns(
    model: Any, native: Any, how: Mapping[str, Any], rows: Any, categorical: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that a model takes as categoricals only, or scores otherwise as such.

    They are those of the data or, where a model refuses plain values, all columns of text, or all
    of text and whole numbers: parquet has categoricals of text only, csv and requests have none.
    """
    if not hasattr(rows, "dtypes"):
        return ()
    whole = rows.dropna()
    rows = rows if whole.empty else whole

    def answer(names: Sequence[str]) -> Any:
        with suppress(Exception):  # whatever the model raises, it does not take that
            source = {**how, "categorical": names}
            return np.asarray(serving.call_model(model, native, source, rows), dtype=np.object_)
        return None

    plain = answer(())
    kinds = {name: rows[name].dtype.kind for name in rows.columns}
    tried = [list(categorical)]
    if plain is None:
        tried += [[name for name in kinds if kinds[name] not in but] for but in ("biufcmM", "fcmM")]
    for names in tried:
        scores = answer(names) if names else None
        if scores is not None and not np.array_equal(scores, plain):
            return tuple(names)
    return ()


def input_columns(native: Any) -> list[str]:
    """Return the columns that a model was trained on, where it knows their names."""
    for name in ("feature_names_in_", "feature_name_", "feature_names_"):
        with suppress(Exception):  # of a model that is not fitted, or by code of its own
            return [str(column) for column in getattr(native, name)]
    return []


def _call(model: Any, native: Any, how: Mapping[str, Any], rows: Any) -> tuple[Any, Any]:
    """Return the rows that the model can take, and what it returns for them."""
    call = how["call"]

    def answer(part: Any) -> Any:
        return serving.call_model(model, native, how, part)

    try:
        return rows, answer(rows)
    except Exception as error:
        good = _good_rows(answer, rows)
        if good is not None:  # the others are named when all rows are scored
            return good, answer(good)
        way_out = "" if call in {"predict", "session"} else ", or set scores_from"
        raise ModelError(
            f"the model fails on the first rows of the data, asked for {call}: "
            f"{type(error).__name__}: {reason(error)}; check that the columns are those it was "
            f"trained with{way_out}"
        ) from error


def _good_rows(call: Callable[[Any], Any], rows: Any) -> Any:
    """Return the first rows, one after another, on which a call does not fail; None without any."""

    def answer(part: Any) -> NDArray[np.float64]:
        call(part)
        return np.zeros((serving.row_count(part), 1))

    _, failed = serving.score_rows(answer, rows, 1)
    n = serving.row_count(rows)
    start = next((row for row in range(n) if row not in failed), None)
    if start is None:
        return None
    end = next((row for row in range(start, n) if row in failed), n)
    return serving.rows_between(rows, start, end)


def locate(output: Any, entry: str | list[str] | None, classes: Sequence[str] | None) -> Location:
    """Return where in an output the scores stand: the entry or columns asked for, if any."""
    is_frame = hasattr(output, "columns")
    if is_frame or isinstance(output, Mapping):
        by_text = _by_text(output.columns if is_frame else output)
        if isinstance(entry, list):
            return _named_columns(by_text, entry, classes)
        return (_in_frame if is_frame else _in_mapping)(output, by_text, entry, classes)
    if isinstance(entry, list) and _has_mappings(output):
        return _named_columns(_row_keys(output), entry, classes)
    if entry is not None:
        raise ModelError(
            f"scores_from is {entry!r}, which is no method of the model and no entry of its "
            f"output; that is {described(output)}"
        )
    return Location(None, *_rows(output, classes))


def read_numbers(output: Any, location: Location) -> np.ndarray:
    """Return the numbers at a location, or say why they are not scores."""
    value = output if location.key is None else output[location.key]
    try:
        array = serving.as_numbers(value, location.columns)
    except UNREADABLE as error:
        raise ModelError(
            f"the model returns {described(output)}, which are no scores ({error}); {ADVICE}"
        ) from error
    flat = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if flat and _whole(array):
        raise ModelError(
            f"the model returns {described(output)}, which are labels, not scores; {ADVICE}"
        )
    if array.ndim not in {1, 2}:
        raise ModelError(
            f"the model returns {described(output)}, not one row of scores for each row; {ADVICE}"
        )
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


def _in_frame(
    frame: Any, by_text: Names, entry: str | None, classes: Sequence[str] | None
) -> Location:
    if entry is not None or len(by_text) == 1:
        key = next(iter(by_text)) if entry is None else entry
        if key not in by_text:
            raise ModelError(
                f"scores_from is {entry!r}, which is no method of the model and no column of its "
                f"output; that has {[*by_text]}"
            )
        return Location(by_text[key], *_rows(frame[by_text[key]], classes))
    columns = tuple(by_text.values())
    if columns == tuple(range(len(columns))):  # an array with a frame around it
        return Location(None, columns, None)
    if classes and set(classes) <= set(by_text):
        return Location(None, tuple(by_text[name] for name in classes), tuple(classes))
    if classes:
        raise ModelError(
            f"classes are {[*classes]}, but the model returns the columns {[*by_text]}; say with "
            f"scores_from, such as '[{', '.join(by_text)}]', which column is whose"
        )
    _check_are_scores({name: frame[column] for name, column in by_text.items()})
    return Location(None, columns, tuple(by_text))


def _in_mapping(
    output: Mapping[Any, Any], by_text: Names, entry: str | None, classes: Sequence[str] | None
) -> Location:
    if entry is None:
        likely = [name for name, key in by_text.items() if _is_score_table(output[key])]
        if len(likely) != 1:
            raise ModelError(
                f"the model returns {[*by_text]}, of which {len(likely)} look like scores; say "
                "with scores_from which one holds them, or, such as "
                f"'[{', '.join(by_text)}]', which ones"
            )
        entry = likely[0]
    if entry not in by_text:
        raise ModelError(f"scores_from is {entry!r}, but the model's output has {[*by_text]}")
    return Location(by_text[entry], *_rows(output[by_text[entry]], classes))


def _named_columns(by_text: Names, wanted: list[str], classes: Sequence[str] | None) -> Location:
    """Return columns asked for by name; they name the classes unless these are given."""
    missing = [name for name in wanted if name not in by_text]
    if missing:
        raise ModelError(f"the model's output has no column {missing[0]!r}; it has {[*by_text]}")
    names = None if classes else tuple(wanted)
    return Location(None, tuple(by_text[name] for name in wanted), names)


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


def _row_keys(rows: Any) -> Names:
    """Return the keys that all rows must have."""
    keys = _by_text(next(iter(rows)))
    for i, row in enumerate(rows):
        if set(row) != set(keys.values()):
            raise ModelError(
                f"the model returns {[*keys]} for the first row, but {[*map(str, row)]} for row "
                f"{i}; log it so that every row has a score for each class"
            )
    return keys


def _by_text(names: Iterable[Any]) -> Names:
    """Return names, as JSON can hold them, by their text."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    for name in plain:
        if not isinstance(name, str | int):
            raise ModelError(
                f"the model names a score {name!r}; names must be text or whole numbers"
            )
    by_text = {str(name): name for name in plain}
    if len(by_text) < len(plain):
        raise ModelError(
            f"the model's output has {[*map(str, plain)]}, where names stand more than once"
        )
    return by_text


def _check_are_scores(columns: Mapping[str, Any]) -> None:
    """Raise for columns that cannot all be scores of classes: one of labels may be among them."""
    for name, values in columns.items():
        if not _may_be_scores(values):
            raise ModelError(
                f"the model returns {[*columns]}, and {name!r} does not look like scores; name the "
                f"score of each class with scores_from, such as '[{', '.join(columns)}]', or, "
                "where these are the classes, give them with classes"
            )


def _may_be_scores(values: Any) -> bool:
    """Return whether values are floats with fractions; those of a rare class may all be 0."""
    try:
        array = serving.as_numbers(values, None)
    except UNREADABLE:
        return False
    typed = np.asarray(values).dtype.kind not in "iub"
    return typed and array.ndim == 1 and (not _whole(array) or not array.any())


def _whole(array: np.ndarray) -> bool:
    known = array[np.isfinite(array)]  # rows that the model cannot score tell nothing
    return len(known) > 0 and bool((known == np.round(known)).all())


def _is_score_table(value: Any) -> bool:
    if _has_mappings(value):
        return True
    array = _array(value)
    return array is not None and array.ndim == 2 and np.issubdtype(array.dtype, np.floating)


def _array(value: Any) -> np.ndarray | None:
    with suppress(*UNREADABLE):
        return np.asarray(value)
    return None


def _single(values: np.ndarray, transform: Transform) -> Literal["", "probability", "margin"]:
    """Return what kind of score a binary model with one column gives, "" for others."""
    if values.ndim == 2 and values.shape[1] > 1:
        return ""
    if transform == "softmax":
        raise ModelError(
            "score_transform is 'softmax', but the model gives one score a row; for the logit of "
            "the second of two classes it is 'sigmoid'"
        )
    known = values[np.isfinite(values)]
    inside = ((known >= 0) & (known <= 1)).all()
    return "probability" if inside or transform == "sigmoid" else "margin"


def class_names(
    own: tuple[str, ...] | None, names: Sequence[str] | None, k: int
) -> tuple[str, ...]:
    """Return the names of the k classes: the model's own, or those named for a model without.

    A model whose classes are the numbers from 0 has no names of its own.
    """
    numbers = tuple(str(j) for j in range(k))
    if names is not None and len(names) != k:
        raise ModelError(
            f"classes names {len(names)} classes, but the model gives {k} scores a row"
        )
    if own is None:
        return numbers if names is None else tuple(names)
    if len(own) != k:
        raise ModelError(f"the model names {len(own)} classes, but gives {k} scores a row")
    if names is None or tuple(names) == own:
        return own
    if own == numbers and set(names) != set(own):
        return tuple(names)
    raise ModelError(
        f"classes are {[*names]}, but the model's own are {[*own]}, in this order; "
        "leave classes out"
    )


def _check_labels(output: Any, scores: NDArray[np.float64], names: tuple[str, ...]) -> None:
    """Raise where labels in the output show that names were given in another order."""
    if not (hasattr(output, "columns") or isinstance(output, Mapping)):
        return
    for entry in list(output):
        labels = _texts(output[entry])
        if labels is None or not set(labels) <= set(names):
            continue
        own = scores[np.arange(len(scores)), [names.index(label) for label in labels]]
        if (own >= scores.max(axis=1)).mean() < 0.5:
            raise ModelError(
                f"the model's {entry!r} is the class with the highest score on few rows if the "
                f"scores are of {[*names]}; give classes in the order of the scores"
            )


def _texts(values: Any) -> list[str] | None:
    """Return values that are one text a row, None for others."""
    array = _array(values)
    if array is None or array.ndim != 1:
        return None
    plain = array.tolist()
    return plain if all(isinstance(value, str) for value in plain) else None
