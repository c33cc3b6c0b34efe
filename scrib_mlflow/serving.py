"""The served file: from what a model returns to scores, from scores to sets, and the served model.

Search, evaluation and serving share these lines, and MLflow copies this one file into every
registered set classifier. So its upper part needs the standard library and NumPy only, its lower
part, which the package itself skips, mlflow and pandas, and no part anything else of this package.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LOWEST = float(np.finfo(np.float64).min)  # stands for -inf where JSON is written
SUM_TOLERANCE = 0.01  # of probabilities that are served: further off they are none
NONE_SCORED = "the model can score none of these rows"
FEW_CALLS, MOST_CALLS = 16, 40  # of the model for a batch, to find the rows that it cannot score
ROWS_A_CALL = 50  # a large batch may take more calls, because a call for a part of it costs less
LONE_CALLS = 8  # of these, kept for rows one by one until any is scored
MOST_CANDIDATES = 10  # that an abstention names, unless a rule says how many
TENSOR_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


# From scores to sets.


def threshold_sets(scores: ArrayLike, thresholds: ArrayLike) -> NDArray[np.bool_]:
    """Return (n, k) membership: a class is in when its score reaches its threshold."""
    return np.asarray(scores, dtype=np.float64) >= np.asarray(thresholds, dtype=np.float64)


def top_sets(scores: ArrayLike) -> NDArray[np.bool_]:
    """Return (n, k) membership of the class with the highest score, the first of equal ones."""
    scores = np.asarray(scores, dtype=np.float64)
    sets = np.zeros(scores.shape, dtype=np.bool_)
    sets[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return sets


def keep_top(sets: NDArray[np.bool_], scores: ArrayLike) -> NDArray[np.bool_]:
    """Return the sets with the top class added where the one member is another class.

    Such a set is no answer then: it abstains.
    """
    top = top_sets(scores)
    other = (np.count_nonzero(sets, axis=1) == 1) & ~(sets & top).any(axis=1)
    return sets | (top & other[:, None])


def selective_sets(
    scores: ArrayLike, threshold: float, trust: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the top class where the trust reaches the threshold, all classes elsewhere.

    The trust is the highest score unless given.
    """
    scores = np.asarray(scores, dtype=np.float64)
    reached = (scores.max(axis=1) if trust is None else np.asarray(trust)) >= threshold
    return top_sets(scores) | ~reached[:, None]


def recalibrated(recalibration: Mapping[str, Any] | None, scores: ArrayLike) -> NDArray[np.float64]:
    """Return (n, k) probabilities: scores by the slope and the offset of their class, normalised.

    Without a recalibration the scores are probabilities already.
    """
    inputs = np.asarray(scores, dtype=np.float64)
    if recalibration is None:
        return inputs
    if recalibration["of"] == "log":
        inputs = np.log(np.maximum(inputs, recalibration["least_score"]))
    with np.errstate(invalid="ignore"):  # inf - inf: the row has no scores, and abstains
        logits = inputs * np.asarray(recalibration["slopes"], dtype=np.float64)
        logits += np.asarray(recalibration["offsets"], dtype=np.float64)
        logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def answer_values(
    rule: Mapping[str, Any], scores: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return (n, k) probabilities, (n, k) what each class is worth if right, (n,) the best value.

    It pays to answer where that value, of the best answer that the rule may give, is not negative.
    """
    probabilities = recalibrated(rule["recalibration"], scores)
    worth = probabilities * np.asarray(rule["multipliers"], dtype=np.float64)
    charges = np.asarray(rule["charges"], dtype=np.float64)
    # a product of matrices would round a row by the rows beside it
    charge = np.ascontiguousarray(probabilities * charges).sum(axis=1)
    best = worth.max(axis=1)
    if only_top(rule):
        best = worth[np.arange(len(worth)), np.asarray(scores, dtype=np.float64).argmax(axis=1)]
    return probabilities, worth, np.asarray(1.0 + best - charge)


def only_top(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule answers no class but the one with the highest score."""
    return rule.get("answers") == "top"  # rules of older versions may answer any


def optimal_sets(rule: Mapping[str, Any], scores: ArrayLike) -> NDArray[np.bool_]:
    """Return the class worth most where answering pays, and at least two candidates elsewhere.

    A rule of the top class answers that one.
    """
    probabilities, worth, value = answer_values(rule, scores)
    sets = top_sets(scores if only_top(rule) else worth)
    asked = ~(value >= 0)
    if not asked.any():
        return sets
    probabilities, worth = probabilities[asked], worth[asked]
    if rule.get("max_candidates") is None:  # of older versions: the two classes worth most
        first = top_sets(worth)
        second = top_sets(np.where(first, -np.inf, worth))
        sets[asked] = first | second | threshold_sets(probabilities, rule["candidate_thresholds"])
    else:
        ranked, count, _ = rank_candidates(rule, probabilities)
        sets[asked] = _as_sets(ranked, count, sets.shape[1])
    return sets


def rank_candidates(
    rule: Mapping[str, Any],
    probabilities: NDArray[np.float64],  # (m, k) as the rule recalibrates them
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the candidates of rows that abstain: classes, how many count, how many are left out.

    They are the two most probable classes and every class that reaches its candidate threshold,
    the most probable first, and no more than `max_candidates`.
    """
    k = probabilities.shape[1]
    most = min(rule.get("max_candidates") or MOST_CANDIDATES, k)
    thresholds = rule.get("candidate_thresholds")
    reached = np.asarray(np.inf if thresholds is None else thresholds, dtype=np.float64)
    ranks = np.where(probabilities >= reached, probabilities, -np.inf)
    rows, left = np.arange(len(ranks)), probabilities.copy()
    for _ in range(min(2, k)):
        top = left.argmax(axis=1)
        ranks[rows, top] = left[rows, top]
        left[rows, top] = -np.inf
    total = (ranks > -np.inf).sum(axis=1)
    count = np.minimum(total, most)
    return _highest(ranks, int(count.max(initial=0))), count, total - count


def _highest(values: NDArray[np.float64], width: int) -> NDArray[np.intp]:
    """Return (m, width) where the highest values of each row are, the highest first."""
    if 4 * width >= values.shape[1]:
        return np.argsort(-values, axis=1, kind="stable")[:, :width]
    some = np.sort(np.argpartition(-values, width, axis=1)[:, :width], axis=1)
    order = np.argsort(-np.take_along_axis(values, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def candidate_sets(rule: Mapping[str, Any], scores: ArrayLike) -> NDArray[np.bool_]:
    """Return (n, k) which classes are named: the answer of a certain row, else its candidates.

    A row without valid scores has none.
    """
    scores = np.asarray(scores, dtype=np.float64)
    named = rule_sets(rule, scores)
    asked = (np.count_nonzero(named, axis=1) != 1) & valid_rows(rule, scores)
    if asked.any():
        probabilities = recalibrated(rule.get("recalibration"), scores[asked])
        ranked, count, _ = rank_candidates(rule, probabilities)
        named[asked] = _as_sets(ranked, count, named.shape[1])
    return named


def _as_sets(ranked: NDArray[np.intp], count: NDArray[np.intp], k: int) -> NDArray[np.bool_]:
    """Return (m, k) membership of the first classes of each row, as many as are counted."""
    sets = np.zeros((len(ranked), k), dtype=np.bool_)
    np.put_along_axis(sets, ranked, np.arange(ranked.shape[1]) < count[:, None], axis=1)
    return sets


def rule_sets(
    rule: Mapping[str, Any], scores: ArrayLike, trust: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return the sets of a rule given as plain values, the way JSON holds it.

    A row without valid scores gets the empty set: it is never certain.
    """
    kind = rule["kind"]
    if kind == "thresholds":
        sets = threshold_sets(scores, rule["thresholds"])
        sets = keep_top(sets, scores) if only_top(rule) else sets
    elif kind == "selective":
        sets = selective_sets(scores, rule["threshold"], trust)
    elif kind == "top1":
        sets = top_sets(scores)
    elif kind == "optimal":
        sets = optimal_sets(rule, scores)
    else:
        known = "'thresholds', 'optimal', 'selective' and 'top1'"
        raise ValueError(f"unknown kind of rule {kind!r}; known are {known}")
    return sets & valid_rows(rule, scores)[:, None]


def valid_rows(rule: Mapping[str, Any], scores: ArrayLike) -> NDArray[np.bool_]:
    """Return which rows have finite scores, and probabilities where a rule needs them."""
    scores = np.asarray(scores, dtype=np.float64)
    if rule["kind"] != "optimal":
        return np.asarray(np.isfinite(scores).all(axis=1))
    with np.errstate(invalid="ignore"):  # NaN fails every comparison
        near = np.abs(scores.sum(axis=1) - 1) <= SUM_TOLERANCE
        inside = (scores >= -SUM_TOLERANCE) & (scores <= 1 + SUM_TOLERANCE)
    return np.asarray(near & inside.all(axis=1))


def served_columns(
    rule: Mapping[str, Any],
    scores: NDArray[np.float64],
    classes: Sequence[str] | NDArray[np.object_],
    not_tried: Sequence[int] = (),  # rows that nobody asked the model about
) -> dict[str, Any]:
    """Return the columns that a set classifier answers with, one value a row in each.

    Every list is a new one, so that callers may change it. How many candidates are left out is a
    column only where there are more classes than a row may name.
    """
    names = np.asarray(classes, dtype=np.object_)
    valid = valid_rows(rule, scores)
    own_sets = rule["kind"] != "optimal" or rule.get("max_candidates") is None
    if own_sets:
        sets = rule_sets(rule, scores)
        size = np.count_nonzero(sets, axis=1)
        certain, answer = size == 1, sets.argmax(axis=1)
    else:  # its set is its answer or its candidates
        probabilities, worth, value = answer_values(rule, scores)
        answer = (scores if only_top(rule) else worth).argmax(axis=1)
        certain = (value >= 0) & valid
        size = certain.astype(np.int64)
    answered, asked = np.flatnonzero(certain), np.flatnonzero(~certain)
    prediction, reason, members, candidates = np.empty((4, len(size)), dtype=np.object_)
    more = np.zeros(len(size), dtype=np.int64)
    prediction[answered], prediction[asked], reason[answered] = names[answer[answered]], "", ""
    for column in (members, candidates):
        lists = names[answer[answered], None].tolist()
        column[answered] = np.fromiter(lists, dtype=np.object_, count=len(lists))
    if len(asked):
        if own_sets:
            probabilities = recalibrated(rule.get("recalibration"), scores[asked])
        else:
            probabilities = probabilities[asked]
        ranked, count, left_out = rank_candidates(rule, probabilities)
        count, more[asked] = count * valid[asked], left_out * valid[asked]
        _put_lists(candidates, asked, names[ranked], count)
        if own_sets:
            inside = np.where(sets[asked], scores[asked], -np.inf)
            ordered = np.argsort(-inside, axis=1, kind="stable")
            _put_lists(members, asked, names[ordered], size[asked])
        else:
            size[asked] = count
            _put_lists(members, asked, names[ranked], count)
        # picked from an array of objects, the same texts serve all rows
        reasons = np.array(["ambiguous", "empty", "invalid_scores"], dtype=np.object_)
        reason[asked] = reasons[np.where(valid[asked], size[asked] == 0, 2)]
        reason[np.asarray(not_tried, dtype=np.intp)] = "not_scored"
    columns = {
        "prediction": prediction,
        "abstain": ~certain,
        "reason": reason,
        "prediction_set": members,
        "set_size": size,
        "candidates": candidates,
    }
    if counts_more(rule, len(classes)):
        columns["more_candidates"] = more
    return columns


def counts_more(rule: Mapping[str, Any], k: int) -> bool:
    """Return whether answers say how many candidates they leave out: where that may happen."""
    most = rule.get("max_candidates")  # older versions name all candidates
    return most is not None and k > most


def _put_lists(
    column: NDArray[np.object_],
    rows: NDArray[np.intp],
    names: NDArray[np.object_],  # (m, w)
    count: NDArray[np.intp],  # (m,)
) -> None:
    """Put the first names of each row into a column, as a list."""
    for length in np.flatnonzero(np.bincount(count)).tolist():
        same = np.flatnonzero(count == length)
        lists = names[same, :length].tolist()
        column[rows[same]] = np.fromiter(lists, dtype=np.object_, count=len(lists))


def with_arrays(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule with arrays of floats where JSON has lists, and words such as "-Infinity"."""
    return {
        name: with_arrays(value)
        if isinstance(value, dict)
        else np.array(value, dtype=np.float64)
        if isinstance(value, list)
        else value
        for name, value in rule.items()
    }


def explained_columns(
    rule: Mapping[str, Any],
    scores: NDArray[np.float64],
    miscoverage: Sequence[float],
    classes: Sequence[str] | NDArray[np.object_],
) -> dict[str, list[list[Any]]]:
    """Return the columns that `explain` adds: the classes, and numbers in their order.

    These are the same for every row but for the scores, which are left out where not finite.
    """
    finite = np.asarray(np.isfinite(scores).all(axis=1))
    numbers = zip(scores.tolist(), finite.tolist(), strict=True)
    missed = [None if value != value else value for value in miscoverage]  # noqa: PLR0124  # NaN
    columns: dict[str, list[list[Any]]] = {"classes": [list(classes) for _ in finite]}
    columns["scores"] = [row if good else [] for row, good in numbers]
    if rule["kind"] == "thresholds":
        limits = np.nan_to_num(rule["thresholds"], neginf=LOWEST, posinf=-LOWEST).tolist()
        columns["thresholds"] = [list(limits) for _ in finite]
    elif rule["kind"] == "optimal":
        prices = np.asarray(rule["multipliers"]).tolist()
        columns["multipliers"] = [list(prices) for _ in finite]
    columns["class_miscoverage"] = [list(missed) for _ in finite]
    return columns


# From what a model returns to scores.


def call_model(
    model: Any, native: Any, source: Mapping[str, Any], data: Any
) -> Any:  # what a model takes and returns is anything
    """Return what the model gives for rows, called the way the source says."""
    if source.get("categorical"):  # versions of before have no such entry
        data = data.astype({name: "category" for name in source["categorical"] if name in data})
    if source["call"] == "predict":
        return model.predict(data)
    if source["call"] == "session":
        return run_session(native, data)
    if source.get("one_column"):
        data = data.iloc[:, 0]
    return getattr(native, source["call"])(data)


def native_model(model: Any) -> Any:
    """Return the model inside a pyfunc model, None where there is no way to it."""
    try:
        return model.get_raw_model()
    except (NotImplementedError, AttributeError):
        return None


def run_session(session: Any, data: Any) -> dict[str, Any]:
    """Return the outputs of an ONNX session by name."""
    inputs = session.get_inputs()
    feeds: dict[str, NDArray[Any]] = {}
    if len(inputs) == 1:
        values = next(iter(data.values())) if isinstance(data, dict) else data
        feeds[inputs[0].name] = np.asarray(values).astype(TENSOR_TYPES[inputs[0].type])
    else:
        for tensor in inputs:
            column: NDArray[Any] = np.asarray(data[tensor.name]).astype(TENSOR_TYPES[tensor.type])
            feeds[tensor.name] = column.reshape(-1, 1) if len(tensor.shape) == 2 else column
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def read_scores(output: Any, source: Mapping[str, Any], k: int) -> NDArray[np.float64]:
    """Return (n, k) scores from what a model returned, as the source says."""
    value = output if source["key"] is None else output[source["key"]]
    scores = as_numbers(value, source["columns"])
    if scores.ndim == 2 and scores.shape[1] == 1 and source["single"]:
        scores = scores[:, 0]
    if source["transform"] == "sigmoid":
        small = np.exp(-np.abs(scores))  # of either sign, so that nothing overflows
        scores = np.where(scores >= 0, 1, small) / (1 + small)
    if scores.ndim == 1 and source["single"]:
        rest = 1 - scores if source["single"] == "probability" else -scores
        scores = np.column_stack([rest, scores])
    if source["transform"] == "softmax":
        with np.errstate(invalid="ignore"):  # inf - inf: the row has no scores, and abstains
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
    if scores.ndim != 2 or scores.shape[1] != k:
        raise ValueError(f"the model gave scores of shape {scores.shape}, not (rows, {k})")
    return scores


def as_numbers(value: Any, columns: Sequence[Any] | None) -> NDArray[np.float64]:
    """Return a float64 array from an array, a frame, or rows of lists or mappings."""
    if columns is None:
        return _floats(value)
    if hasattr(value, "columns") or isinstance(value, Mapping):
        return np.column_stack([_floats(value[name]) for name in columns])
    return _floats([[row[name] for name in columns] for row in value])


def _floats(value: Any) -> NDArray[np.float64]:
    """Return numbers as float64; text stays text, be it "1.5"."""
    array = np.asarray(value)
    if array.dtype == np.object_:
        array = np.array(array.tolist())
    if array.dtype.kind not in "fiubO":
        raise TypeError(f"values of type {array.dtype} are not numbers")
    return array.astype(np.float64)


class NotTriedError(Exception):
    """The error of a row that was left when the calls of the model ran out."""


class _Calls:
    """Calls of a model for some of the rows of a batch, and what came of them."""

    def __init__(
        self, score: Callable[[Any], NDArray[np.float64]], data: Any, k: int, most: float
    ) -> None:
        self.score, self.data, self.most, self.done = score, data, most, 0
        self.scores = np.full((row_count(data), k), np.nan)
        self.scored = np.zeros(len(self.scores), dtype=np.bool_)
        self.kept = LONE_CALLS  # for single rows, until the model has scored any
        self.errors: dict[int, Exception] = {}
        self.failing: list[tuple[int, int, NDArray[np.intp]]] = []  # parts, the largest first

    def error(self, rows: NDArray[np.intp]) -> Exception | None:
        """Score some rows; return what the model raises, None where it scores them all."""
        self.done += 1
        whole = len(rows) == len(self.scores)
        try:
            found = self.score(self.data if whole else rows_at(self.data, rows))
            if len(found) != len(rows):
                msg = f"the model gave {len(found)} rows of scores for {len(rows)} rows"
                raise ValueError(msg)  # noqa: TRY301  # a model that loses rows fails like another
        except Exception as error:  # whatever the model raises, the others go on
            return error
        self.scores[rows], self.scored[rows], self.kept = found, True, 0
        return None

    def give_up(self, rows: NDArray[np.intp], error: Exception) -> None:
        """Note the same error for some rows, but for those that were scored alone."""
        self.errors |= dict.fromkeys(rows[~self.scored[rows]].tolist(), error)

    def note(self, rows: NDArray[np.intp], error: Exception | None) -> None:
        """Note what the model raised for some rows: one alone is given up, others are for later."""
        if error is not None and len(rows) == 1:
            self.give_up(rows, error)
        elif error is not None:
            heapq.heappush(self.failing, (-len(rows), int(rows[0]), rows))


def score_rows(
    score: Callable[[Any], NDArray[np.float64]],
    data: Any,
    k: int,
    most_calls: float = math.inf,
) -> tuple[NDArray[np.float64], dict[int, Exception]]:
    """Return (n, k) scores and the errors by row; the scores of rows with an error are NaN.

    Where the model raises, rows with a gap that it does not take are set apart, and the others are
    halved, the largest part first, until those that it cannot score stand alone. Rows that are left
    when the calls run out have a `NotTriedError`.
    """
    calls = _Calls(score, data, k, most_calls)
    rows = np.arange(len(calls.scores))
    error = calls.error(rows) if len(rows) else None
    if error is not None:
        found = gaps(data)
        if found is None or not found.any():
            calls.note(rows, error)
        else:
            _set_gaps_apart(calls, found)
        _halve(calls, error)
    return calls.scores, dict(sorted(calls.errors.items()))


def call_limit(n: int) -> int:
    """Return how many calls of the model a batch of n rows may take when it is served."""
    return min(FEW_CALLS + n // ROWS_A_CALL, MOST_CALLS)


def _set_gaps_apart(calls: _Calls, found: NDArray[np.bool_]) -> None:
    """Score the rows without gaps, and those with gaps unless the model does not take them.

    That is learnt, gap by gap, from the first and the last of the rows with the fewest others.
    """
    number = np.count_nonzero(found, axis=1)
    whole, others = np.flatnonzero(number == 0), number > 0
    if len(whole):
        calls.note(whole, calls.error(whole))
    for j in np.argsort(-np.count_nonzero(found, axis=0), kind="stable"):
        rows = np.flatnonzero(found[:, j] & others)
        if not len(rows) or calls.done + 2 > calls.most / 2:
            break
        alike = rows[number[rows] == number[rows].min()]
        error = calls.error(alike[:1])
        if error is not None and (len(alike) == 1 or calls.error(alike[-1:]) is not None):
            calls.give_up(rows, error)
            others[rows] = False
    left = np.flatnonzero(others)
    if len(left):
        calls.note(left, calls.error(left))


def _halve(calls: _Calls, error: Exception) -> None:
    """Score the good ones of the rows that fail together."""
    while calls.failing and calls.done + 2 + calls.kept <= calls.most:
        first, second = np.array_split(heapq.heappop(calls.failing)[2], 2)
        raised = calls.error(first)
        calls.note(first, raised)
        # some row fails: if none of the first half does, a call for the second can be saved
        saved = raised is None and len(second) > 1
        calls.note(second, error if saved else calls.error(second))
    if calls.failing:
        left = np.sort(np.concatenate([part for _, _, part in calls.failing]))
        calls.give_up(left, NotTriedError(f"{calls.most} calls of the model did not reach it"))
        if calls.kept:
            _try_alone(calls, left)


def _try_alone(calls: _Calls, rows: NDArray[np.intp]) -> None:
    """Ask for a few rows one by one, so that it is known whether the model scores any."""
    most = min(LONE_CALLS, len(rows))
    # at random, because bad rows may come in a rhythm, and in the same way each time
    for row in np.random.default_rng(len(rows)).choice(rows, most, replace=False):
        error = calls.error(np.array([row]))
        calls.errors.pop(int(row))
        if error is not None:
            calls.errors[int(row)] = error


def gaps(data: Any) -> NDArray[np.bool_] | None:
    """Return (n, c) which rows have a missing value, or an infinite one, column by column.

    None for data of another kind than frames, arrays and dictionaries of arrays.
    """
    if isinstance(data, dict):
        parts = [found for value in data.values() if (found := gaps(value)) is not None]
        return np.hstack(parts) if parts else None
    if hasattr(data, "iloc"):
        columns = [data.iloc[:, j] for j in range(data.shape[1])]
        numbers = [column for column in columns if column.dtype in (np.float32, np.float64)]
        marks = [column.isna() for column in columns] + [np.isinf(column) for column in numbers]
        return np.column_stack(marks) if marks else None
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "fO" or not data.ndim:
        return None
    values = data.reshape(len(data), -1)
    if data.dtype.kind == "O":
        missing = [value is None or value != value for value in values.flat]  # noqa: PLR0124  # NaN
        return np.array(missing, dtype=np.bool_).reshape(values.shape)
    whole = data.ndim > 2  # pictures and the like: which pixel it is does not matter
    both = np.isnan(values), np.isinf(values)
    return np.column_stack([each.any(axis=1) for each in both] if whole else both)


def row_count(data: Any) -> int:
    """Return how many rows a frame, an array or a dictionary of arrays has."""
    return len(next(iter(data.values()))) if isinstance(data, dict) else len(data)


def rows_at(data: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows, in order, of a frame, an array, a list or a dictionary of arrays."""
    if isinstance(data, dict):
        return {name: rows_at(value, rows) for name, value in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if isinstance(data, list):
        return [data[row] for row in rows]
    return data[rows]


def rows_between(data: Any, start: int, stop: int) -> Any:
    """Return some rows of a frame, an array, a list or a dictionary of arrays."""
    return rows_at(data, np.arange(start, stop))


if __name__ != "scrib_mlflow.serving":  # MLflow runs this file under a name of its own
    import gc
    import json
    import sys
    from collections.abc import Iterator
    from contextlib import contextmanager

    import mlflow
    import pandas as pd
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import PythonModel

    IN_SERVER = "mlflow.pyfunc.scoring_server.app" in sys.modules  # of `mlflow models serve`

    class SetClassifier(PythonModel):
        """Serves sets: one label where the rule is certain, candidates where it abstains."""

        def load_context(self, context: Any) -> None:
            """Read the rule, and load the model that gives the scores."""
            with open(context.artifacts["scrib"], encoding="utf-8") as file:  # noqa: PTH123
                record = json.load(file)
            self.classes = np.array(record["classes"], dtype=np.object_)
            self.rule = with_arrays(record["rule"])
            self.source = record["scores"]
            self.miscoverage = [float(value) for value in record["class_miscoverage"]]
            self.base = mlflow.pyfunc.load_model(
                context.artifacts["base_model"], suppress_warnings=True
            )
            self.native = native_model(self.base)
            if IN_SERVER:
                gc.freeze()  # it stays for good, and is no garbage when large answers are written

        def predict(
            self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
        ) -> pd.DataFrame:
            """Return one answer a row, in order, under the index of the rows if they have one."""
            asked = params or {}
            most = math.inf if asked.get("exhaustive") else call_limit(row_count(model_input))
            scores, failed = score_rows(self._score, model_input, len(self.classes), most)
            left = [row for row, error in failed.items() if isinstance(error, NotTriedError)]
            if failed and len(failed) == len(scores):
                error = next(e for e in failed.values() if not isinstance(e, NotTriedError))
                what = NONE_SCORED
                if left:
                    what = f"none of the rows that were tried can be scored, of {len(left):,} "
                    what += "others nothing is known; send fewer rows at a time"
                msg = f"{what}: {type(error).__name__}: {error}"
                raise MlflowException.invalid_parameter_value(msg) from None
            index = model_input.index if isinstance(model_input, pd.DataFrame) else None
            with _no_collection():
                columns = served_columns(self.rule, scores, self.classes, left)
                if asked.get("explain"):
                    columns |= explained_columns(self.rule, scores, self.miscoverage, self.classes)
                return _frame(columns, index)

        def _score(self, rows: Any) -> NDArray[np.float64]:
            output = call_model(self.base, self.native, self.source, rows)
            return read_scores(output, self.source, len(self.classes))

    @contextmanager
    def _no_collection() -> Iterator[None]:
        """Keep Python from looking for garbage while it makes a list for every row.

        It would look through all that a process has loaded, which takes longer than to answer.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()

    class Answers(pd.DataFrame):
        """A frame that MLflow's server turns into rows of JSON in a third of the time."""

        def to_dict(self, orient: Any = "dict", *args: Any, **kwargs: Any) -> Any:
            """Return what every frame does, but rows all at once."""
            if orient != "records" or args or kwargs:
                return super().to_dict(orient, *args, **kwargs)
            names = self.columns.tolist()
            rows = self.to_numpy(dtype=np.object_).tolist()
            return [dict(zip(names, row, strict=True)) for row in rows]

    def _frame(columns: dict[str, Any], index: pd.Index | None) -> pd.DataFrame:
        """Return the columns as a frame, with texts and lists as plain objects."""
        # One table of objects is quicker than a series for each column, and keeps pandas from
        # looking through texts and lists for a type of its own.
        table = np.empty((len(columns), len(columns["set_size"])), dtype=np.object_)
        for values, cells in zip(columns.values(), table, strict=True):
            cells[:] = values
        # pandas 3 would keep the names in Arrow, which is slow when MLflow takes the frame apart
        names = pd.Index(list(columns), dtype=np.object_)
        if IN_SERVER:  # which asks for no types
            return Answers(table.T, index, names, dtype=np.object_, copy=False)
        frame = pd.DataFrame(table.T, index, names, dtype=np.object_, copy=False)
        for position, name in enumerate(columns):
            if name in {"abstain", "set_size", "more_candidates"}:
                frame.isetitem(position, columns[name])
        return frame

    mlflow.models.set_model(SetClassifier())
