"""Result values as JSON, and back, bit for bit.

Infinite and undefined numbers are the strings "Infinity", "-Infinity" and "NaN", so that the text
is JSON for every reader.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from scrib_mlflow.core.certificate import Certificate, CertifiedFit, Path, Plan
from scrib_mlflow.core.certificate.advice import Advice
from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.monitoring import Baseline, Monitor
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.rules import Fit, Rule
from scrib_mlflow.core.studies import Comparison, TargetFrontier
from scrib_mlflow.errors import ScribError
from scrib_mlflow.records import (
    Base,
    DataRecord,
    LedgerEntry,
    RiskGroup,
    ScoreSource,
    SelectionRecord,
    Unscored,
)

SCHEMA_VERSION = 8
READABLE = (2, 3, 4, 5, 6, 7, 8)  # what a newer version adds has defaults
FIRST_SEALED = 7  # from here on the digest of a model's files is noted where it is registered
DEEPEST = 30  # levels of a result's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRecord:
    """How a path of set classifiers was tested, in its fixed order, until one failed."""

    digest: str  # of path.json, written before the labels of the certify rows were read
    n_steps: int
    power: float  # chance that its first passes, as predicted when it was drawn
    p_values: tuple[float, ...]  # of those tested
    chosen: int | None  # the last that passed; None where not even the first did


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClassifier:
    """A set classifier as `scrib.json` holds it: what serving needs, and where it comes from."""

    classes: tuple[str, ...]
    rule: Rule
    scores: ScoreSource
    class_miscoverage: tuple[float, ...]  # on certify rows where there are any
    risk_targets: dict[str, float]  # of the classes that have one enforced
    overall_target: float | None
    waived: tuple[str, ...]
    confidence: float
    mode: str
    certified: bool
    base: Base
    fit_data: DataRecord
    certify_data: DataRecord | None
    path_data: DataRecord | None
    group: str | None
    key: str | None
    certificate: Certificate | None  # of the rule, or where nothing passed of the path's first
    path: PathRecord | None
    use: LedgerEntry | None
    fit: Fit
    fit_report: SetReport
    certify_report: SetReport | None
    n_shared: int  # certify rows that have an equal row among the fit rows
    package_version: str
    gap: AbstentionGap | None = None  # to the best possible; None in files of schema version 2
    candidate_coverage: float | None = None  # asked of candidates, for each class
    advice: Advice | None = None  # where nothing was certified
    error_weight: float = 0.0  # abstentions that a wrong answer costs
    risk_groups: dict[str, RiskGroup] = field(default_factory=dict)
    weight: str | None = None  # column of what rows count for
    max_weight: float | None = None  # that a row can have, as declared
    n_repeated: int = 0  # certify rows that equal another one in all columns, and have no key
    n_dropped: int = 0  # such rows that were left out, as duplicates=drop asks
    unscored: Unscored | None = None  # rows that could not be scored, where there are any
    selection: SelectionRecord | None = None  # where certify rows were drawn to be labelled

    @property
    def named_targets(self) -> dict[str, float]:
        """The targets of classes and of risk groups, by name."""
        groups = {name: group.target for name, group in self.risk_groups.items()}
        return self.risk_targets | groups


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPoint:
    """What so many labels are predicted to prove."""

    labels: int
    chance: float  # that every target passes
    expected_abstention: float  # 1 where nothing is certified
    answered_rate: float  # share of the rows that some rule of the path answers
    chances: dict[str, float]  # of each risk by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows that were drawn to be labelled, and all that their test needs, fixed before."""

    classes: tuple[str, ...]
    base: Base
    scores: ScoreSource
    inputs: tuple[str, ...]  # columns that the model takes; none where only scores are given
    settings: dict[str, Any]  # options that calibrate will use
    path: Path
    group_test: GroupTest | None  # None where rows are not grouped
    fit_data: DataRecord
    pool_data: DataRecord
    rows_digest: str  # of selection.parquet, which holds the rows
    n_path: int  # rows of the pool that drew the path
    n_open: int  # the others
    n_answered: int  # of these, answered by some rule of the path
    n_drawn: int
    n_groups: int | None
    curve: tuple[LabelPoint, ...]  # by rising labels
    unscored: Unscored | None
    package_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a gate asks for."""

    alias: str
    evidence: Literal["certificate", "fresh"]
    risk_targets: dict[str, float]
    overall_target: float | None
    confidence: float
    max_abstention: float | None
    max_class_abstention: dict[str, float]
    max_abstention_increase: float | None
    allow_overlap: bool
    ledger: Literal["report", "spend"]
    risk_groups: dict[str, RiskGroup] = field(default_factory=dict)
    min_candidate_coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What a set classifier did on fresh rows."""

    data: DataRecord
    report: SetReport
    certificate: Certificate  # of the policy's targets
    refuted: tuple[str, ...]  # claims of the version's certificate that these rows disprove
    n_shared: int | None  # rows that were fitted or certified on; None where that is unknown
    n_compared: int
    n_expected: float  # that equal one by chance, judging by repeats among the known rows
    overlapping: bool  # whether more do than chance explains
    use: LedgerEntry | None  # where they certify
    champion_abstention: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One question that a gate asks, and the answer."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a version may have the alias, and why."""

    model_uri: str
    passed: bool
    checks: tuple[Check, ...]
    policy: Policy
    champion: str  # the version that had the alias, "" for none
    fresh: Fresh | None
    decided_at: str  # UTC
    package_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """A file of answers."""

    name: str
    n_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """A folder of answers, as its `_scrib.json` says, which is written last."""

    model_uri: str  # with a version's number, never with an alias
    certificate_digest: str  # of scrib.json of the model that answered
    data: DataRecord
    key: tuple[str, ...]
    explain: bool
    engine: Literal["local", "spark"]
    n_rows: int
    n_abstained: int
    reasons: dict[str, int]  # rows that abstained, by reason
    columns: dict[str, str]  # types by name, as Arrow calls them
    parts: tuple[PartRecord, ...]
    run_id: str
    written_at: str  # UTC
    package_version: str


Record = SetClassifier | Selection | Decision | Predictions | Baseline | Monitor
Study = Plan | Comparison | TargetFrontier
Result = Fit | SetReport | Certificate | CertifiedFit | Path | Rule | Record | Study

TYPES: dict[str, type[Any]] = {  # by the name of the class, in snake case
    re.sub("(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind for kind in get_args(Result)
}


def to_json(value: Result) -> str:
    """Return a result as JSON text that `from_json` reads back, every bit the same."""
    name = next((name for name, kind in TYPES.items() if type(value) is kind), None)
    if name is None:
        raise ScribError(
            f"a {type(value).__name__} has no JSON form; pass a fit, a rule or another result"
        )
    fields = {"schema_version": SCHEMA_VERSION, "type": name, **dataclasses.asdict(value)}
    return json.dumps(_strict(fields), allow_nan=False, indent=2, ensure_ascii=False)


def from_json(text: str) -> Result:
    """Return the result that `to_json` wrote."""
    try:
        fields = json.loads(text)
        check_depth(fields)
        version, name = fields.pop("schema_version"), fields.pop("type")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ScribError(
            f"this is not a result of scrib_mlflow: {type(error).__name__}: {error}"
        ) from error
    if version not in READABLE or not isinstance(name, str) or name not in TYPES:
        raise ScribError(
            f"schema version {version} of {name!r} is unknown here, where versions "
            f"{' and '.join(map(str, READABLE))} of {', '.join(TYPES)} are; use the scrib_mlflow "
            "that wrote it, or a newer one"
        )
    known = {field.name for field in dataclasses.fields(TYPES[name])}
    rule = fields.get("rule", {"kind": None})
    if set(fields) - known or not isinstance(rule, dict) or "kind" not in rule:
        raise ScribError(
            f"the {name} is damaged: it has {sorted(fields)}, of which {sorted(known)} are known"
        )
    try:
        return _reader(name).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ScribError(f"the {name} is damaged at {field!r}: {first['msg']}") from error


def is_sealed(text: str) -> bool:
    """Return whether the files of the model that holds this record must have been sealed."""
    return bool(json.loads(text)["schema_version"] >= FIRST_SEALED)


def check_depth(value: object, most: int = DEEPEST) -> None:
    """Raise where a value of JSON holds others that hold others, and so on, too deep to be ours."""
    level = [value]
    for _ in range(most):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise ValueError(f"it is nested more than {most} levels deep")


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[name])


def _strict(value: object) -> object:
    """Return the value with numbers that JSON lacks as strings.

    pydantic's own writer would do, but for 1e-7 where the digests of stored texts are of 1e-07.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
