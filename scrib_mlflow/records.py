"""Small records that every room may pass on: which model, which rows, which use of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The classifier that a set classifier is made from, as the registry names it."""

    uri: str  # with a version's number, never with an alias
    name: str
    version: str  # "" for a logged model that has none
    model_id: str


SCORES_ONLY = Base(uri="", name="scores of the data", version="", model_id="")  # no model gave them


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecord:
    """Which rows were used."""

    source: str  # where they are, or `frame_name`
    digest: str  # of all rows of the table, whatever their order
    n_rows: int
    n_used: int  # fewer where only a part of them was


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSource:
    """How a model is asked for scores, and where they stand in what it returns."""

    call: str  # a method of the native model, "session" (ONNX), "predict" (pyfunc) or "columns"
    key: str | int | None = None  # entry or column of the output
    columns: tuple[str | int, ...] | None = None  # of the output, in class order
    single: Literal["", "probability", "margin"] = ""  # one score, of the second of two classes
    transform: Literal["none", "softmax", "sigmoid"] = "none"
    one_column: bool = False  # the model takes the one column of the rows as a Series, such as text
    categorical: tuple[str, ...] = ()  # columns that the model takes as pandas categoricals only


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One certification against rows, as the ledger counts them."""

    digest: str  # of all rows of the table
    key: str  # of what was tested; the same test again is no new use
    number: int
    level: float  # error probability spent
    total: float  # spent by all uses up to this one
    ledger: Literal["report", "spend"]
    n_looks: int = 0  # other uses that showed the labels of the rows and certified nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRecord:
    """How the rows that certify were drawn, where only some of a pool were labelled."""

    run_id: str  # of select
    digest: str  # of its selection.json
    n_pool: int
    n_path: int  # rows of the pool that drew the path
    n_open: int  # the others, of which some were to be labelled
    n_answered: int  # of these, answered by some rule of the path: rows were drawn among them
    n_drawn: int
    n_unlabelled: int  # drawn rows that came back without a label: errors of what they could be
    n_groups: int | None  # that were drawn, whole; None where rows were drawn one by one
    n_beyond: int  # labelled fit rows that no rule of the path answers


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskGroup:
    """Classes that have one target together."""

    classes: tuple[str, ...]
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """Rows that could not be scored when a rule was made: they count as abstentions."""

    n_fit: int
    n_certify: int
    n_path: int
    first: str  # the first of them in words; "" where only their contents would name them
    reason: str  # why the very first has no scores


class Frame(str):
    """Rows in memory, given where others name a file; as text it is what they are called."""

    rows: Any  # a pandas DataFrame

    def __new__(cls, rows: Any) -> Frame:
        """Call rows what they are."""
        made = super().__new__(cls, frame_name(len(rows)))
        made.rows = rows
        return made


def frame_name(n: int) -> str:
    """Return what rows in memory are called: they have no path."""
    return f"a frame of {n:,} row{'s' * (n != 1)}"


def risk_groups(groups: Mapping[str, Any] | None) -> dict[str, RiskGroup]:
    """Return risk groups as they are stored, from what an option says."""
    return {
        name: RiskGroup(classes=group.classes, target=group.target)
        for name, group in (groups or {}).items()
    }


def group_targets(groups: Mapping[str, RiskGroup]) -> dict[str, tuple[tuple[str, ...], float]]:
    """Return risk groups as the core takes them."""
    return {name: (group.classes, group.target) for name, group in groups.items()}


def seal(text: str) -> str:
    """Return the digest of a JSON text, by which a change of it is noticed."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
