"""What a calibration works on, whichever engine holds the rows: some to fit, some to certify."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.core.counts import Counts
from scrib_mlflow.core.rules import OptimalRule, Rule
from scrib_mlflow.core.sample import Sample
from scrib_mlflow.core.tally import Tally
from scrib_mlflow.core.targets import Constraint
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.results import DataRecord, ScoreSource
from scrib_mlflow.settings import Calibrate

T = TypeVar("T")
CERTIFY, CERTIFY_WITH_PATH = 0.7, 0.9  # share of the rows, alone and with path_data
SHOWN_SCORES = 10_000_000  # rows times classes that figures are drawn of; counts are of all rows


class Rows(Protocol):
    """Scored rows of one part, wherever they are; what is counted is counted over all of them."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_groups(self) -> int | None:
        """How many groups they come in, None where they come in none."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each class has (k,)."""

    def tallies(self, rules: Sequence[Rule], constraints: Sequence[Constraint]) -> Iterable[Tally]:
        """Return the counts of each rule's sets, claim by claim."""

    def count(self, rule: Rule) -> Counts:
        """Return the counts of a rule's sets, class by class."""

    def with_candidates(self, rule: OptimalRule, coverage: float) -> OptimalRule:
        """Return the rule with candidates that hold the true class as often as asked for."""

    def sample(self, most: int, *, by_class: bool) -> Sample:
        """Return all rows or at most so many, by class with all rows of rare ones; in any order."""


class TableLike(Protocol):
    """A table that an engine has read, as far as logs and reports are concerned."""

    @property
    def what(self) -> str:
        """The parameter that names it."""

    @property
    def record(self) -> DataRecord:
        """Which rows it holds."""

    @property
    def label(self) -> str | None:
        """Its column of true classes."""

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are no inputs: those that identify and group rows."""

    def some_rows(self) -> pd.DataFrame:
        """Return a few rows, which tell what its columns are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Generic[T]):
    """The tables of a calibration, as its engine reads them."""

    data: T
    certify: T | None  # of its own; None where rows of `data` certify, or none do
    path: T | None

    def all(self) -> list[T]:
        """Return every table that there is."""
        return [each for each in (self.data, self.certify, self.path) if each is not None]


class Tried(NamedTuple):
    """Some rows to try a logged model on, and the scores that it must find."""

    features: pd.DataFrame
    scores: NDArray[np.float64]  # (n, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Scored rows by what they are for."""

    classes: tuple[str, ...]
    scores: ScoreSource  # where they come from
    fit: Rows  # in mode=certified: what recalibrates, and draws the path where nothing else does
    certify: Rows | None
    path: Rows | None
    fit_data: DataRecord
    certify_data: DataRecord | None
    path_data: DataRecord | None
    n_shared: int  # certify rows that equal a fit row
    cases: dict[str, Hashes]  # of all rows that were used, by what for
    tried: Tried | None  # fit rows; None where only scores are given


def without_missing(
    named: dict[str, str | None], columns: Collection[str], optional: Collection[str]
) -> dict[str, str | None]:
    """Return columns by the options that name them, None for optional ones that are not there."""
    return {
        option: None if option in optional and name not in columns else name
        for option, name in named.items()
    }


def sorted_sample(rows: Rows, most: int, *, by_class: bool) -> Sample:
    """Return a sample in an order of its own, so that neither a table's nor an engine's matters."""
    found = rows.sample(most, by_class=by_class)
    order = np.argsort(found.cases, kind="stable")
    return Sample(
        scores=found.scores[order],
        labels=found.labels[order],
        weights=None if found.weights is None else found.weights[order],
        groups=None if found.groups is None else found.groups[order],
        cases=found.cases[order],
        places=None if found.places is None else found.places[order],
        keys=None if found.keys is None else found.keys[order],
    )


def shown_rows(k: int) -> int:
    """Return how many rows of k classes figures are drawn of at most."""
    return SHOWN_SCORES // k


def check_options(settings: Calibrate) -> None:
    """Raise for options that exclude each other."""
    if settings.certify_fraction is not None and settings.certify_data is not None:
        msg = "certify_fraction and certify_data exclude each other; leave one of them out"
        raise InvalidSettingsError(msg)
    _check_rule(settings)
    if settings.mode == "certified":
        return
    for name in ("certify_fraction", "path_data", "group"):
        if getattr(settings, name) is not None:
            msg = f"{name} is for mode=certified; mode=paper fits all rows and certifies none"
            raise InvalidSettingsError(msg)
    if settings.require_certificate:
        msg = "require_certificate needs mode=certified; mode=paper certifies nothing"
        raise InvalidSettingsError(msg)


def _check_rule(settings: Calibrate) -> None:
    """Raise for options of the other rule."""
    if settings.rule == "thresholds":
        if settings.candidate_coverage is not None:
            msg = (
                "candidate_coverage is for rule=optimal; under rule=thresholds the candidates are "
                "the members of the set, or the nearest two"
            )
            raise InvalidSettingsError(msg)
        return
    for name in ("penalty", "chance_weight", "size_weight", "empty_weight"):
        if getattr(settings, name) != Calibrate.model_fields[name].default:
            msg = (
                f"{name} is for rule=thresholds; rule=optimal has no such weight, it keeps the "
                "targets with the least abstention, and its abstentions always name candidates"
            )
            raise InvalidSettingsError(msg)
