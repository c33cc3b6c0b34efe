"""Checked inputs: what the core takes, and what it says of inputs that it cannot take.

Shapes used throughout the core::

    scores   (n, k) float64  score of class k for row n, higher means more of the class
    labels   (n,)   int32    true class; soft labels are (n, k) weights of classes
    weights  (n,)   float64  how many rows a row stands for
    groups   (n,)   int64    what rows belong together, as codes from 0
    sets     (n, k) bool     whether class k is in the prediction set of row n
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from scrib_mlflow import errors
from scrib_mlflow.messages import _listed, share_hint

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32] | NDArray[np.int64]
Progress = Callable[[Iterable[int]], Iterable[int]]

NAN = float("nan")  # one object, so that results with undefined numbers equal themselves
SLACK = 1e-9  # a number that should be whole may fall short of it
RANGE_TOLERANCE = 1e-6  # float32 leaves [0, 1] by as much
SUM_TOLERANCE = 2e-3  # float16 sums as badly
LEAST_DISTINCT = 0.9  # share of distinct scores: saturated ones and votes are no continuum
MOST_CERTIFY_ROWS = 1e9
MOST_THREADS = 8
MOST_WEIGHT = 1e100
BLOCK_ROWS = 65_536
MOST_IN_MEMORY = 2**26  # bytes of an array; a larger one lies in a temporary file
WITHOUT_LABEL = (
    "drop them; or let them draw the path, which needs no labels: path_data of calibrate, "
    "path_scores in Python"
)
WHOLE = re.compile(r"[+-]?\d+(\.0*)?")


def as_number(name: str, value: object, *, low: float, high: float) -> float:
    """Return a number strictly between low and high."""
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError) as error:
        raise errors.ScribError(f"{name} is {value!r}, but must be a number") from error
    if not low < number < high:
        limits = f"lie between {low:g} and {high:g}" if high < np.inf else f"be above {low:g}"
        hint = share_hint(number, low=low) if high == 1 else ""
        raise errors.ScribError(f"{name} must {limits}, got {number:g}{hint}")
    return number


def as_floats(name: str, values: Any, kind: type[errors.ScribError] = errors.ScribError) -> Floats:
    """Return numbers as a C-ordered float64 array, or raise an error of a kind."""
    try:
        if np.iscomplexobj(values) or np.ma.is_masked(values):
            raise TypeError("complex or masked values")  # noqa: TRY301  # as numpy does
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise kind(f"{name} must be numbers: {error}") from error


def check_seed(seed: int) -> int:
    """Return a seed, or say what is wrong with it."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise errors.ScribError(f"seed is {seed!r}, but must be a whole number, 0 or more")
    return int(seed)


def count_threads(threads: int | None) -> int:
    """Return this number of threads; without one as many as this process may use, at most 8."""
    if threads is not None:
        return int(as_number("threads", threads, low=0.999, high=1000))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(usable or 1, MOST_THREADS)


def row_blocks(n: int) -> Iterator[slice]:
    """Yield slices that cover n rows in order."""
    for start in range(0, n, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n))


def new_array(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros; a large one lies in a file that vanishes with it.

    What the system holds of such a file in memory it gives back when memory is short.
    """
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size <= MOST_IN_MEMORY:
        return np.zeros(shape, dtype=kind)
    with tempfile.TemporaryFile() as file:
        try:
            if hasattr(os, "posix_fallocate"):  # a disk that fills up later would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype=kind, mode="w+", shape=shape))
        except OSError as error:
            raise errors.InvalidDataError(
                f"{tempfile.gettempdir()} cannot hold a temporary file of {size / 2**30:.1f} GiB: "
                f"{error}; name a folder on a larger disk in TMPDIR"
            ) from error


def fill_rows(n: int, kind: DTypeLike, values: Callable[[slice], ArrayLike]) -> NDArray[Any]:
    """Return an array of n values, which a function gives for each block of rows."""
    filled = new_array((n,), kind)
    for of in row_blocks(n):
        filled[of] = values(of)
    return filled


def take_rows(values: NDArray[Any], chosen: Bools) -> NDArray[Any]:
    """Return the rows that are chosen, in order."""
    taken = new_array((int(np.count_nonzero(chosen)), *values.shape[1:]), values.dtype)
    done = 0
    for of in row_blocks(len(values)):
        some = values[of][chosen[of]]
        taken[done : done + len(some)] = some
        done += len(some)
    return taken


def sorted_values(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in ascending order."""
    ordered = fill_rows(len(values), values.dtype, lambda of: values[of])
    ordered.sort()
    return ordered


def distinct_values(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values in ascending order."""
    ordered = sorted_values(values)
    return take_rows(ordered, np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])


def class_sizes(labels: Labels, k: int, chosen: Bools | None = None) -> Ints:
    """Return (k,) how many rows each class has, of all rows or of those chosen."""
    sizes = np.zeros(k, dtype=np.int64)
    for of in row_blocks(len(labels)):
        sizes += np.bincount(labels[of] if chosen is None else labels[of][chosen[of]], minlength=k)
    return sizes


def mix(values: ArrayLike) -> NDArray[np.uint64]:
    """Return one step of splitmix64 from each value: a permutation that looks like chance."""
    mixed = np.atleast_1d(np.asarray(values, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def text_hash(text: str) -> np.uint64:
    """Return a hash of a text, the same in every process."""
    hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return np.uint64(int.from_bytes(hashed.digest(), "big"))


def text_of(value: object) -> str:
    """Return a value as text: whole numbers without a fraction, midnight without a time.

    A time with a zone is written as of UTC, because files and engines keep the instant only.
    """
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime):
        value = value if value.tzinfo is None else value.astimezone(timezone.utc)
        return str(value).removesuffix(" 00:00:00")
    return str(value)


def hash_names(option: str, names: ArrayLike, n: int) -> NDArray[np.uint64]:
    """Return a hash of what names each row or its group, as text; 7, 7.0 and "7" are one name."""
    values = np.asarray(names)
    if values.shape != (n,):
        raise errors.InvalidDataError(
            f"{option} must be one for each of the {n} rows, got shape {values.shape}"
        )
    if values.dtype.kind == "M":  # finer ones become numbers
        values = values.astype("datetime64[us]")
    listed = values.tolist()
    missing = next((row for row, value in enumerate(listed) if is_missing(value)), None)
    if missing is not None:
        raise errors.InvalidDataError(
            f"{option}[{missing}] is missing; give every row a name, "
            "and a row that stands alone one of its own"
        )
    known: dict[str, np.uint64] = {}
    hashes = np.empty(n, dtype=np.uint64)
    for row, text in enumerate(map(text_of, listed)):
        if text not in known:
            known[text] = text_hash(text)
        hashes[row] = known[text]
    return mix(hashes)


def is_missing(value: object) -> bool:
    """Return whether a value is None or differs from itself: NaN, NaT, pandas.NA."""
    differs = value != value  # noqa: PLR0124
    return value is None or not isinstance(differs, bool | np.bool_) or bool(differs)


def is_blank(value: object) -> bool:
    """Return whether a value is missing, or a text without letters; no class is called so."""
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def count_up(codes: NDArray[np.intp]) -> Ints:
    """Return the number, from 0, of each code among those like it."""
    by_code = np.argsort(codes, kind="stable")
    ordered = codes[by_code]
    numbers = np.empty(len(codes), dtype=np.int64)
    numbers[by_code] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return numbers


def is_among(values: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> Bools:
    """Return which values stand among others that are in ascending order."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)

    def among(of: slice) -> Bools:
        return ordered.take(np.searchsorted(ordered, values[of]), mode="clip") == values[of]

    return fill_rows(len(values), np.bool_, among)


class Labelled(NamedTuple):
    """Checked rows; `labels` are hard, or empty where they are soft."""

    scores: Floats  # (n, k)
    labels: NDArray[np.int32]  # (n,) or (0,)
    soft: Floats  # (0, k) or (n, k)
    weights: Floats  # (n,)
    classes: tuple[str, ...]
    used: Bools  # (rows before the check,) those with a weight above 0

    @property
    def counted(self) -> bool:
        """Whether every row counts as one."""
        return len(self.soft) == 0 and bool((self.weights == 1.0).all())

    def take(self, which: Bools) -> Labelled:
        """Return some of the rows."""
        return self._replace(
            scores=self.scores[which],
            labels=self.labels[which] if len(self.labels) else self.labels,
            soft=self.soft[which] if len(self.soft) else self.soft,
            weights=self.weights[which],
        )

    def class_weight(self) -> Floats:
        """Return the weight of each class's rows."""
        if len(self.soft):
            return self.soft.sum(axis=0)
        return np.bincount(self.labels, self.weights, len(self.classes)).astype(np.float64)


def check_rows(
    scores: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[object] | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    least_rows: int = 2,
    hard: bool = False,  # refuse soft labels
) -> Labelled:
    """Return checked rows, without those of weight 0."""
    checked = check_scores(scores, least_rows=least_rows)
    n, k = checked.shape
    names = check_classes(classes, k)
    weights = check_weights(sample_weight, n)
    indices, soft = np.zeros(0, dtype=np.int32), np.zeros((0, k))
    try:
        array = np.asarray(labels)
    except ValueError as error:  # rows of different lengths
        raise errors.InvalidLabelsError(
            f"labels must be one for each of the {n} rows of scores: {error}"
        ) from error
    if array.ndim != 2:
        indices = check_labels(array, names, n)
    elif hard:
        raise errors.InvalidLabelsError("labels must be one class a row, not soft labels")
    else:
        soft = as_floats("soft labels", labels)
        if soft.shape != (n, k):
            raise errors.InvalidLabelsError(
                f"soft labels must have the shape of scores {(n, k)}, got {soft.shape}"
            )
        soft = _check_amounts("soft labels", soft, errors.InvalidLabelsError) * weights[:, None]
        weights = soft.sum(axis=1)
    used = weights > 0
    if np.count_nonzero(used) < least_rows:
        raise errors.InvalidWeightsError(
            f"only {np.count_nonzero(used)} rows have a weight above 0, "
            f"but at least {least_rows} are needed"
        )
    rows = Labelled(checked, indices, soft, weights, names, used)
    return rows if used.all() else rows.take(used)


def check_scores(scores: ArrayLike, *, least_rows: int = 2) -> Floats:
    """Return scores as a C-ordered (n, k) float64 array, or say what is wrong with them."""
    array = as_floats("scores", scores, errors.InvalidScoresError)
    if array.ndim != 2:
        raise errors.InvalidScoresError(
            f"scores must have two dimensions, rows and classes, got shape {array.shape}; "
            "for a binary model with one score p pass np.column_stack([1 - p, p])"
        )
    n, k = array.shape
    if k < 2:
        raise errors.InvalidScoresError(
            f"scores must have a column for each of 2 or more classes, got {k}"
        )
    if n < least_rows:
        raise errors.InvalidScoresError(
            f"scores have {n} rows, but at least {least_rows} are needed"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise errors.InvalidScoresError(
            f"scores[{row}, {column}] is {array[row, column]}; "
            "drop or impute rows without a finite score for every class"
        )
    return array


def are_probabilities(scores: Floats) -> bool:
    """Return whether scores lie in [0, 1] and every row sums to one, but for rounding."""
    if scores.min() < -RANGE_TOLERANCE or scores.max() > 1 + RANGE_TOLERANCE:
        return False
    sums = scores @ np.ones(scores.shape[1])
    return bool(np.abs(sums - 1).max() <= SUM_TOLERANCE)


def check_probabilities(scores: Floats) -> Floats:
    """Return the scores, or say why they cannot be probabilities."""
    if are_probabilities(scores):
        return scores
    far = np.abs(np.clip(scores, 0.0, 1.0) - scores).max(axis=1)
    worst = int(np.argmax(far))
    what = "leaves [0, 1]"
    advice = "make probabilities of logits by softmax (score_transform=softmax)"
    if not far[worst] > RANGE_TOLERANCE:
        worst = int(np.argmax(np.abs(scores.sum(axis=1) - 1)))
        what = f"sums to {scores[worst].sum():g}"
        advice = "let the model give every class its probability"
    raise errors.InvalidScoresError(
        f"the scores are no probabilities, which the optimal rule needs: row {worst} {what}; "
        f"{advice}, or fit thresholds, which take any scores (rule=thresholds)"
    )


def are_tied(scores: Floats) -> bool:
    """Return whether many scores are equal, as counted votes and saturated ones are."""
    return len(np.unique(scores)) < LEAST_DISTINCT * scores.size


def check_trust(trust: object, n: int) -> Floats:
    """Return the trust of each row."""
    checked = as_floats("trust", trust)
    if checked.shape != (n,) or np.isnan(checked).any():
        raise errors.ScribError(
            f"trust must be {n} numbers, one a row, got shape {checked.shape} "
            f"with {int(np.isnan(checked).sum())} NaN"
        )
    return checked


def check_classes(classes: Sequence[object] | None, k: int) -> tuple[str, ...]:
    """Return the class names as text; without names, the column numbers."""
    if classes is None:
        return tuple(str(j) for j in range(k))
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise errors.InvalidLabelsError(
            f"classes must be a list of names in column order, got {classes!r}"
        )
    names = tuple(str(name) for name in classes)
    if len(names) != k:
        raise errors.InvalidLabelsError(
            f"classes names {len(names)} classes but scores have {k} columns; "
            "name them in column order"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.InvalidLabelsError(
            f"classes must differ, but {_listed(twice)} stand more than once"
        )
    if not all(name.strip() for name in names):
        raise errors.InvalidLabelsError(
            f"a class is named {next(n for n in names if not n.strip())!r}; give it a name"
        )
    return names


def check_labels(labels: ArrayLike, classes: tuple[str, ...], n: int) -> NDArray[np.int32]:
    """Return labels as class indices.

    A label equal to a class name as text is that class; whole numbers are indices only where no
    class name is a whole number.
    """
    array = np.asarray(labels)
    if array.shape != (n,):
        raise errors.InvalidLabelsError(
            f"labels must be one for each of the {n} rows of scores, got shape {array.shape}"
        )
    numbered = all(name == str(j) for j, name in enumerate(classes))
    named = not numbered and any(WHOLE.fullmatch(name) for name in classes)
    if array.dtype.kind in "iu" and not named:
        inside = (array >= 0) & (array < len(classes))
        indices = np.where(inside, array.astype(np.int64), -1)
    else:
        values, inverse = array, np.arange(n)
        if array.dtype.kind != "O":
            values, inverse = np.unique(array, return_inverse=True)
        index = {name: j for j, name in enumerate(classes)}
        meant = [_class_of(value, index, named=named) for value in values.tolist()]
        indices = np.array(meant, dtype=np.int64)[inverse]
    unknown = np.flatnonzero(indices < 0)
    if len(unknown):
        empty = [row for row in unknown.tolist() if is_blank(array[row : row + 1].tolist()[0])]
        if empty:
            raise errors.MissingLabelsError(
                f"{len(empty):,} of {n:,} rows {'have' if len(empty) > 1 else 'has'} no label, the "
                f"first is row {empty[0]:,}, counted from 0; {WITHOUT_LABEL}"
            )
        row = unknown[0]
        raise errors.InvalidLabelsError(
            f"labels[{row}] is {array[row:][:1].tolist()[0]!r}, which is no class; use a class "
            f"name, or an index from 0 to {len(classes) - 1} where no name is a number; the "
            f"classes are {_listed(classes)}"
        )
    return indices.astype(np.int32)


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


def check_weights(sample_weight: ArrayLike | None, n: int) -> Floats:
    """Return one weight a row; without weights, ones."""
    if sample_weight is None:
        return np.ones(n)
    weights = as_floats("sample_weight", sample_weight)
    if weights.shape != (n,):
        raise errors.InvalidWeightsError(
            f"sample_weight must be one for each of the {n} rows, got shape {weights.shape}"
        )
    if not weights.any():
        raise errors.InvalidWeightsError(
            "sample_weight is 0 in every row; leave it out, or give some row a weight"
        )
    return _check_amounts("sample_weight", weights, errors.InvalidWeightsError)


def _check_amounts(name: str, weights: Floats, kind: type[errors.ScribError]) -> Floats:
    """Refuse negative weights, and those whose sums leave the range of numbers."""
    bad = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        index, value = ", ".join(map(str, bad[0])), weights[tuple(bad[0])]
        raise kind(f"{name}[{index}] is {value}; weights must be finite and not negative")
    if not 1 / MOST_WEIGHT < weights.max() < MOST_WEIGHT:
        raise errors.InvalidWeightsError(
            f"the highest of {name} is {weights.max():g}; scale them to about 1 a row"
        )
    return weights
