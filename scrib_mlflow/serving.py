"""The served file: from what a model returns to scores, from scores to sets, and the served model.

Search, evaluation and serving share these lines, and MLflow copies this one file into every
registered set classifier. So its upper part needs the standard library and NumPy only, its lower
part, which the package itself skips, mlflow and pandas, and no part anything else of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LOWEST = float(np.finfo(np.float64).min)  # stands for -inf where JSON is written
SUM_TOLERANCE = 0.01  # of probabilities that are served: further off they are none
NONE_SCORED = "the model can score none of these rows"
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

    A rule of the top class answers that one. Candidates are the two classes worth most, and every
    class that is probable enough.
    """
    probabilities, worth, value = answer_values(rule, scores)
    sets = top_sets(scores if only_top(rule) else worth)
    asked = ~(value >= 0)
    if asked.any():
        first = top_sets(worth[asked])
        others = np.where(first, -np.inf, worth[asked])
        shown = threshold_sets(probabilities[asked], rule["candidate_thresholds"])
        sets[asked] = first | top_sets(others) | shown
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
    valid = np.isfinite(scores).all(axis=1)
    if rule["kind"] == "optimal":
        with np.errstate(invalid="ignore"):
            near = np.abs(scores.sum(axis=1) - 1) <= SUM_TOLERANCE
            inside = (scores >= -SUM_TOLERANCE) & (scores <= 1 + SUM_TOLERANCE)
            valid &= near & inside.all(axis=1)
    return np.asarray(valid)


def served_columns(
    rule: Mapping[str, Any], scores: NDArray[np.float64], classes: Sequence[str]
) -> dict[str, Any]:
    """Return the columns that a set classifier answers with, one value a row in each.

    Every list is a new one, so that callers may change it.
    """
    names = np.array(classes, dtype=np.object_)
    sets = rule_sets(rule, scores)
    size = sets.sum(axis=1, dtype=np.int64)
    abstain = size != 1
    prediction = names[sets.argmax(axis=1)]
    members = [[name] for name in prediction.tolist()]
    candidates = [[name] for name in prediction.tolist()]
    reason = np.full(len(size), "", dtype=np.object_)
    open_rows = np.flatnonzero(abstain)
    if len(open_rows):
        prediction[open_rows] = ""
        count = size[open_rows]
        invalid = ~valid_rows(rule, scores[open_rows])
        # picked from an array of objects, the same three texts serve all rows
        reasons = np.array(["ambiguous", "empty", "invalid_scores"], dtype=np.object_)
        reason[open_rows] = reasons[np.where(invalid, 2, count == 0)]
        shown = np.where(invalid, 0, np.where(count == 0, 2, count))
        ranked = names[_nearest_first(rule, scores[open_rows], sets[open_rows])]
        ordered = zip(
            open_rows.tolist(), ranked.tolist(), count.tolist(), shown.tolist(), strict=True
        )
        for row, nearest, in_set, in_view in ordered:
            members[row] = nearest[:in_set]
            candidates[row] = nearest[:in_view]
    return {
        "prediction": prediction,
        "abstain": abstain,
        "reason": reason,
        "prediction_set": members,
        "set_size": size,
        "candidates": candidates,
    }


def _nearest_first(
    rule: Mapping[str, Any], scores: NDArray[np.float64], sets: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return (n, k) class indices: members by falling score, then the others by their distance.

    What counts as the score under an optimal rule is what a class is worth.
    """
    if rule["kind"] == "optimal":
        _, scores, _ = answer_values(rule, scores)
    lowest = np.where(sets, -scores, np.inf)
    missing = -scores
    if rule["kind"] == "thresholds":
        with np.errstate(invalid="ignore"):  # infinite scores, in rows that get no candidates
            missing = np.asarray(rule["thresholds"], dtype=np.float64) - scores
    return np.lexsort((missing, lowest), axis=1)


def explained_columns(
    rule: Mapping[str, Any], scores: NDArray[np.float64], miscoverage: Sequence[float]
) -> dict[str, list[list[float | None]]]:
    """Return the columns that `explain` adds: numbers in class order, the same for every row but
    the scores, which are left out where they are not finite.
    """  # noqa: D205  # one sentence
    finite = np.asarray(np.isfinite(scores).all(axis=1))
    numbers = zip(scores.tolist(), finite.tolist(), strict=True)
    missed = [None if value != value else value for value in miscoverage]  # noqa: PLR0124  # NaN
    columns = {"scores": [row if good else [] for row, good in numbers]}
    if rule["kind"] == "thresholds":
        limits = np.nan_to_num(rule["thresholds"], neginf=LOWEST, posinf=-LOWEST).tolist()
        columns["thresholds"] = [list(limits) for _ in finite]
    elif rule["kind"] == "optimal":
        columns["multipliers"] = [list(rule["multipliers"]) for _ in finite]
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


def score_rows(
    score: Callable[[Any], NDArray[np.float64]], data: Any, k: int
) -> tuple[NDArray[np.float64], dict[int, Exception]]:
    """Return (n, k) scores and the errors by row.

    Where the model raises, the rows are halved until those that it cannot score stand alone; their
    scores are NaN.
    """
    n = row_count(data)
    scores = np.full((n, k), np.nan)
    failed: dict[int, Exception] = {}
    parts = [(0, n)] if n else []
    while parts:
        start, stop = parts.pop()
        part = data if stop - start == n else rows_between(data, start, stop)
        try:
            found = score(part)
            if len(found) != stop - start:
                msg = f"the model gave {len(found)} rows of scores for {stop - start} rows"
                raise ValueError(msg)  # noqa: TRY301  # a model that loses rows fails like another
        except Exception as error:  # whatever the model raises, the others go on
            if stop - start == 1:
                failed[start] = error
                continue
            middle = (start + stop) // 2
            parts += [(middle, stop), (start, middle)]
        else:
            scores[start:stop] = found
    return scores, failed


def row_count(data: Any) -> int:
    """Return how many rows a frame, an array or a dictionary of arrays has."""
    return len(next(iter(data.values()))) if isinstance(data, dict) else len(data)


def rows_between(data: Any, start: int, stop: int) -> Any:
    """Return some rows of a frame, an array, a list or a dictionary of arrays."""
    if isinstance(data, dict):
        return {name: value[start:stop] for name, value in data.items()}
    return data.iloc[start:stop] if hasattr(data, "iloc") else data[start:stop]


if __name__ != "scrib_mlflow.serving":  # MLflow runs this file under a name of its own
    import json

    import mlflow
    import pandas as pd
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import PythonModel

    class SetClassifier(PythonModel):
        """Serves sets: one label where the rule is certain, candidates where it abstains."""

        def load_context(self, context: Any) -> None:
            """Read the rule, and load the model that gives the scores."""
            with open(context.artifacts["scrib"], encoding="utf-8") as file:  # noqa: PTH123
                record = json.load(file)
            self.classes = record["classes"]
            self.rule = _with_floats(record["rule"])
            self.source = record["scores"]
            self.miscoverage = [float(value) for value in record["class_miscoverage"]]
            self.base = mlflow.pyfunc.load_model(
                context.artifacts["base_model"], suppress_warnings=True
            )
            self.native = native_model(self.base)

        def predict(
            self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
        ) -> pd.DataFrame:
            """Return one answer a row, in order."""
            scores, failed = score_rows(self._score, model_input, len(self.classes))
            if failed and len(failed) == len(scores):
                error = failed[min(failed)]
                msg = f"{NONE_SCORED}: {type(error).__name__}: {error}"
                raise MlflowException.invalid_parameter_value(msg) from None
            columns = served_columns(self.rule, scores, self.classes)
            if (params or {}).get("explain"):
                columns |= explained_columns(self.rule, scores, self.miscoverage)
            return _frame(columns)

        def _score(self, rows: Any) -> NDArray[np.float64]:
            output = call_model(self.base, self.native, self.source, rows)
            return read_scores(output, self.source, len(self.classes))

    def _frame(columns: dict[str, Any]) -> pd.DataFrame:
        """Return the columns as a frame, with texts and lists as plain objects."""
        # One table of objects is quicker than a series for each column, and keeps pandas from
        # looking through texts and lists for a type of its own.
        table = np.empty((len(columns), len(columns["set_size"])), dtype=np.object_)
        for values, cells in zip(columns.values(), table, strict=True):
            cells[:] = values
        # pandas 3 would keep the names in Arrow, which is slow when MLflow takes the frame apart
        names = pd.Index(list(columns), dtype=np.object_)
        frame = pd.DataFrame(table.T, columns=names, dtype=np.object_, copy=False)
        for position, name in enumerate(columns):
            if name in {"abstain", "set_size"}:
                frame.isetitem(position, columns[name])
        return frame

    def _with_floats(rule: dict[str, Any]) -> dict[str, Any]:
        """Return the rule with numbers where JSON has words, such as "-Infinity"."""
        names = {"thresholds": "thresholds", "optimal": "candidate_thresholds"}
        if rule["kind"] not in names:
            return rule
        name = names[rule["kind"]]
        return rule | {name: [float(value) for value in rule[name]]}

    mlflow.models.set_model(SetClassifier())
