"""The parts of a report as plain values, ready for its page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.adapters.charts import MOST_SETS
from scrib_mlflow.adapters.lines import Line
from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.answers import Answers, SetCount, choose_examples, outcome_counts
from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.rules import Rule, ThresholdRule
from scrib_mlflow.serving import served_columns

MOST_EXAMPLES = 12
MOST_MEMBERS = 6  # of a set in a line
OUTCOMES = ("right", "wrong", "ambiguous", "empty")
WORDS = {
    "right": "certain, right",
    "wrong": "certain, wrong",
    "ambiguous": "ambiguous: several candidates",
    "empty": "empty set",
    "open": "abstains",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labelled rows that a set classifier has answered, and how to find them again."""

    answers: Answers
    table: str  # the file
    places: NDArray[np.int64] | None  # (n,) the number of each row in its table, from 0
    keys: NDArray[np.object_] | None  # (n,) what identifies each row


class Folded(NamedTuple):
    """Lines to be seen at once, and others behind a fold."""

    shown: list[Any]
    folded: list[Any]


class Bar(NamedTuple):
    """A share of rows for each outcome."""

    name: str
    n: int | float
    abstains: float
    parts: list[tuple[str, float]]  # outcome and share


class Candidate(NamedTuple):
    """A class that a person should look at."""

    name: str
    score: str
    true: bool


class Example(NamedTuple):
    """A row that abstains."""

    row: int | None  # None where rows have no number
    key: str
    label: str
    reason: str
    candidates: list[Candidate]
    n_more: int


def number(value: float) -> str:
    """Return a score in as few digits as tell it apart."""
    return f"{value:,.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def certificate(lines: Sequence[Line], classes: Sequence[str], shown: Sequence[str]) -> Folded:
    """Return lines with the places of risk, bound and target on a common scale, in percent."""
    known = [line for line in lines if line.n_certain]
    ends = [x for line in known for x in (line.risk, line.upper, line.target) if not math.isnan(x)]
    scale = max([*ends, 1e-9])

    def place(value: float) -> float | None:
        return None if math.isnan(value) else round(100 * min(value / scale, 1), 2)

    drawn = [(line, place(line.risk), place(line.upper), place(line.target)) for line in lines]
    return _fold(drawn, classes, shown)


def outcomes(report: SetReport, answers: Answers | None, shown: Sequence[str]) -> Folded:
    """Return what becomes of the rows, of all first and then class by class."""
    found = []
    counts = None if answers is None else outcome_counts(answers)
    for j, (name, each) in enumerate(report.by_class.items()):
        if counts is None:
            right = each.n_certain - each.n_wrong
            parts = [("right", right), ("wrong", each.n_wrong), ("open", each.n - each.n_certain)]
        else:
            scale = each.n / max(int(counts[j].sum()), 1)  # where only some rows are at hand
            parts = [*zip(OUTCOMES, (scale * counts[j]).tolist(), strict=True)]
        found.append(_bar(name, each.n, each.abstention_rate, parts))
    folded = _fold(found, list(report.by_class), shown)
    certain = report.n_certain - report.n_wrong
    whole = [
        ("right", certain),
        ("wrong", report.n_wrong),
        ("ambiguous", report.chance_ambiguity * report.n),
        ("empty", report.empty_rate * report.n),
    ]
    if answers is None:
        whole = [*whole[:2], ("open", report.n - report.n_certain)]
    total = _bar("all rows", report.n, report.abstention_rate, whole)
    return Folded([total, *folded.shown], folded.folded)


def _bar(name: str, n: float, abstains: float, parts: Sequence[tuple[str, float]]) -> Bar:
    shares = [(what, round(100 * count / n, 3) if n else 0.0) for what, count in parts]
    return Bar(name, n, abstains, [(what, share) for what, share in shares if share > 0])


def _fold(values: Sequence[Any], names: Sequence[str], shown: Sequence[str]) -> Folded:
    """Return the values of the classes shown, in their order, and of the others, in class order.

    Values beyond those of the classes are of all of them together, and always shown.
    """
    by_name = dict(zip(names, values, strict=False))
    hidden = set(names) - set(shown)
    return Folded(
        [*(by_name[name] for name in shown), *values[len(names) :]],
        [by_name[name] for name in names if name in hidden],
    )


def sets(counts: Sequence[SetCount], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return which sets occur: certain ones together, empty ones, and the frequent others."""
    total = sum(each.n for each in counts)
    certain = [each for each in counts if len(each.members) == 1]
    several = [each for each in counts if len(each.members) > 1]
    rest = several[MOST_SETS:]
    found = [
        _set("one class: certain", [], certain, total),
        *(_set("", _members(each.members, classes), [each], total) for each in several[:MOST_SETS]),
    ]
    if rest:
        found.append(_set(f"{len(rest):,} other combinations", [], rest, total))
    empty = [each for each in counts if not each.members]
    if empty:
        line = _set("empty: no class reaches its threshold", [], empty, total)
        found.insert(1, line | {"held": NAN})
    return found


def _set(words: str, members: list[str], counts: Sequence[SetCount], total: int) -> dict[str, Any]:
    n = sum(each.n for each in counts)
    return {
        "words": words,
        "kind": {0: "empty", 1: "right"}.get(len(counts[0].members) if counts else 1, "other"),
        "members": members,
        "n": n,
        "share": n / total if total else NAN,
        "held": sum(each.n_held for each in counts) / n if n else NAN,
    }


def _members(members: Sequence[int], classes: Sequence[str]) -> list[str]:
    names = [classes[j] for j in members[:MOST_MEMBERS]]
    more = len(members) - MOST_MEMBERS
    return [*names, f"and {more} more"] if more > 0 else names


def confusion(
    names: Sequence[str], answers: Sequence[str], counts: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the cells of a table: counts, and which share of its class each is."""
    lines = []
    for name, row in zip(names, counts.tolist(), strict=True):
        total = sum(row)
        cells = []
        for answer, n in zip(answers, row, strict=True):
            kind = "abstain" if answer is answers[-1] else "right" if answer == name else "wrong"
            share = n / total if total else 0.0
            cells.append({"n": n, "kind": kind, "share": round(share, 3), "told": percent(share)})
        lines.append({"name": name, "cells": cells})
    return {"answers": list(answers), "lines": lines}


def examples(rows: Rows, rule: Rule, classes: Sequence[str]) -> list[Example]:
    """Return rows that abstain, with the candidates that are served for them; no inputs."""
    answers = rows.answers
    chosen = choose_examples(answers, MOST_EXAMPLES)
    if not len(chosen):
        return []
    scores = answers.scores[chosen]
    served = served_columns(asdict(rule), scores, classes)
    limits = rule.thresholds if isinstance(rule, ThresholdRule) else None
    index = {name: j for j, name in enumerate(classes)}
    found = []
    for i, row in enumerate(chosen.tolist()):
        label = classes[answers.labels[row]]
        named = served["candidates"][i]
        shown = [
            Candidate(name, _score(scores[i, index[name]], limits, index[name]), name == label)
            for name in named[:MOST_MEMBERS]
        ]
        found.append(
            Example(
                None if rows.places is None else int(rows.places[row]),
                "" if rows.keys is None else str(rows.keys[row]),
                label,
                served["reason"][i],
                shown,
                max(len(named) - MOST_MEMBERS, 0),
            )
        )
    return found


def _score(score: float, limits: Sequence[float] | None, j: int) -> str:
    if limits is None or not math.isfinite(limits[j]):
        return number(score)
    sign = "\u2265" if score >= limits[j] else "<"
    return f"{number(score)} {sign} {number(limits[j])}"
