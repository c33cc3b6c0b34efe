"""The options of every command, and what help and the reference say of each: once, by its name.

`--help` is drawn from here; `make options` writes MLproject and the reference's tables from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator

Rate = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Confidence = Annotated[float, Field(gt=0.5, lt=1)]
Rates = Rate | dict[str, Rate]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Cost = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[int, Field(ge=1)]
Names = tuple[str, ...]
Rule = Literal["auto", "thresholds", "optimal"]
Answers = Literal["top", "any"]
Ledger = Literal["report", "spend"]
GroupTestName = Literal["approximate", "exact"]
Transform = Literal["none", "softmax", "sigmoid"]
EngineName = Literal["local", "spark"]
SparkOptions = dict[str, str | bool | int | float]


def _as_given(value: Any, read: Callable[[Any], str]) -> str:
    """Return text of whatever class as it is: that of a frame holds its rows."""
    return value if isinstance(value, str) else read(value)


Data = Annotated[str, WrapValidator(_as_given)]  # a path or a URI; in Python also a `Frame`
DATA = ("data", "certify_data", "path_data", "pool")


class RiskGroup(BaseModel):
    """Classes that have one target together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    classes: Annotated[Names, Field(min_length=1)]
    target: Rate


def _named_pair(value: Any) -> Any:
    """Return (class names, target), as the core takes a risk group, by its names."""
    pair = isinstance(value, tuple | list) and len(value) == 2
    return dict(zip(("classes", "target"), value, strict=True)) if pair else value


RiskGroups = dict[str, Annotated[RiskGroup, BeforeValidator(_named_pair)]]


class Settings(BaseModel):
    """Options of a command."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Calibrate(Settings):
    """Options of `calibrate`."""

    model_uri: str | None = None
    data: Data | None = None
    label: str
    selection: str | None = None
    risk_targets: Rates = 0.1
    overall_target: Rate | None = None
    risk_groups: RiskGroups | None = None
    confidence: Confidence = 0.95
    rule: Rule = "auto"
    answers: Answers | None = None
    mode: Literal["certified", "paper"] = "certified"
    certify_fraction: Rate | None = None
    certify_data: Data | None = None
    path_data: Data | None = None
    group: str | None = None
    group_cap: Positive | None = None
    group_test: GroupTestName = "approximate"
    max_group_rows: Positive | None = None
    key: str | None = None
    weight: str | None = None
    max_weight: Cost | None = None
    duplicates: Literal["keep", "drop"] = "keep"
    allow_overlap: bool = False
    waive: Names = ()
    max_class_abstention: Rates | None = None
    candidate_coverage: Rate | None = None
    max_candidates: Annotated[int, Field(ge=2)] = 10
    require_certificate: bool = False
    ledger: Ledger = "report"
    classes: Names | None = None
    scores_from: str = "auto"
    score_transform: Transform = "none"
    max_invalid: Share = 0.01
    penalty: Cost = 1e4
    chance_weight: Weight = 1.0
    size_weight: Weight = 0.0
    empty_weight: Weight = 1.0
    error_weight: Weight = 0.0
    seed: Seed = 0
    registered_model_name: str | None = None
    alias: str = "candidate"
    max_fit_rows: Annotated[int, Field(ge=1000)] = 1_000_000
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Select(Settings):
    """Options of `select`."""

    model_uri: str | None = None
    data: Data
    label: str
    pool: Data
    rows: Positive = 1000
    output: str
    format: Literal["parquet", "csv", "label_studio"] = "parquet"
    risk_targets: Rates = 0.1
    overall_target: Rate | None = None
    risk_groups: RiskGroups | None = None
    confidence: Confidence = 0.95
    rule: Rule = "auto"
    answers: Answers | None = None
    path_fraction: Rate = 0.3
    group: str | None = None
    group_cap: Positive | None = None
    group_test: GroupTestName = "approximate"
    max_group_rows: Positive | None = None
    key: str | None = None
    duplicates: Literal["keep", "drop"] = "keep"
    allow_overlap: bool = False
    waive: Names = ()
    max_class_abstention: Rates | None = None
    classes: Names | None = None
    scores_from: str = "auto"
    score_transform: Transform = "none"
    max_invalid: Share = 0.01
    penalty: Cost = 1e4
    chance_weight: Weight = 1.0
    size_weight: Weight = 0.0
    empty_weight: Weight = 1.0
    error_weight: Weight = 0.0
    seed: Seed = 0
    max_fit_rows: Annotated[int, Field(ge=1000)] = 50_000
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Evaluate(Settings):
    """Options of `evaluate`."""

    model_uri: str
    data: Data
    label: str
    confidence: Confidence = 0.95
    group: str | None = None
    verify: bool = False
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Gate(Settings):
    """Options of `gate`."""

    model_uri: str
    alias: str = "champion"
    data: Data | None = None
    label: str | None = None
    evidence: Literal["certificate", "fresh"] = "certificate"
    risk_targets: Rates | None = None
    overall_target: Rate | None = None
    risk_groups: RiskGroups | None = None
    confidence: Confidence | None = None
    waive: Names = ()
    max_abstention: Rate | None = None
    max_class_abstention: Rates | None = None
    max_abstention_increase: Share | None = None
    min_candidate_coverage: Rate | None = None
    allow_overlap: bool = False
    ledger: Ledger = "report"
    group: str | None = None
    group_cap: Positive | None = None
    group_test: GroupTestName | None = None
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Predict(Settings):
    """Options of `predict`."""

    model_uri: str
    data: Data
    output: str
    key: Names = ()
    explain: bool = False
    overwrite: bool = False
    verify: bool = False
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Monitor(Settings):
    """Options of `monitor`."""

    model_uri: str
    data: Data
    label: str | None = None
    late_labels: bool = False
    key: str | None = None
    group: str | None = None
    time: str | None = None
    audit_probability: str | None = None
    least_audit_probability: Annotated[float, Field(gt=0, le=1)] | None = None
    false_alarms: Rate | None = None
    alarms: Names = ()
    fail_on_alarm: bool = False
    on_alarm: Literal["report", "demote"] = "report"
    restart: bool = False
    verify: bool = False
    seed: Seed | None = None
    batch_rows: Positive = 10_000
    engine: EngineName = "local"
    spark_options: SparkOptions | None = None


class Register(Settings):
    """Options of `register`."""

    run_id: str
    registered_model_name: str | None = None
    alias: str | None = None


class Demo(Settings):
    """Options of `demo`."""

    folder: str = "scrib_demo"


class Plan(Settings):
    """Options of `plan`."""

    data: Data
    label: str
    risk_targets: Rates = 0.1
    confidence: Confidence = 0.95
    certify_fraction: Annotated[float, Field(gt=0, le=1)] = 0.7
    group: str | None = None
    waive: Names = ()
    abstention: Share = 0.5
    risk_share: Rate = 0.5


class Compare(Settings):
    """Options of `compare`."""

    model_uri: str | None = None
    data: Data
    label: str
    risk_targets: Rates = 0.1
    overall_target: Rate | None = None
    certify_fraction: Rate | None = None
    group: str | None = None
    key: str | None = None
    waive: Names = ()
    classes: Names | None = None
    scores_from: str = "auto"
    score_transform: Transform = "none"
    max_invalid: Share = 0.01
    answers: Answers = "top"
    trust: str | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] = 10
    curves: Annotated[int, Field(ge=0, le=1000)] = 1
    seed: Seed = 0
    batch_rows: Positive = 10_000


class Frontier(Settings):
    """Options of `frontier`."""

    model_uri: str | None = None
    data: Data
    label: str
    risk_targets: Rates = 0.1
    overall_target: Rate | None = None
    confidence: Confidence = 0.95
    rule: Rule = "auto"
    answers: Answers = "top"
    certify_fraction: Rate | None = None
    group: str | None = None
    key: str | None = None
    waive: Names = ()
    max_class_abstention: Rates | None = None
    points: Annotated[int, Field(ge=5, le=200)] = 30
    lowest: Rate | None = None
    highest: Rate | None = None
    use_certify_rows: bool = False
    ledger: Ledger = "report"
    classes: Names | None = None
    scores_from: str = "auto"
    score_transform: Transform = "none"
    max_invalid: Share = 0.01
    penalty: Cost = 1e4
    chance_weight: Weight = 1.0
    size_weight: Weight = 0.0
    empty_weight: Weight = 1.0
    error_weight: Weight = 0.0
    seed: Seed = 0
    batch_rows: Positive = 10_000


URIS = "models:/NAME/VERSION, models:/NAME@ALIAS or models:/m-ID"
NO_MODEL = "none; scores_from then names columns of data, and nothing is served"
RISK = "highest share of wrong answers among the answered rows of a class"
FIT_ROWS = "labelled rows; those that calibrate would certify on are left out"
GROUP = "column that says which rows belong together, such as a patient"
FRACTION = "share of the rows that calibrate certifies on; they are left out here"
LEFT_OUT = "highest share of the rows that cannot be scored: they are left out here"
SEED = "seed of the splits and searches; with calibrate's seed, the same rows are left to certify"

MOST_USED = {
    "calibrate": "model_uri data label risk_targets group rule",
    "select": "model_uri data label pool rows output risk_targets group key",
    "evaluate": "model_uri data label",
    "gate": "model_uri alias data label risk_targets max_abstention",
    "predict": "model_uri data output key",
    "monitor": "model_uri data label key fail_on_alarm on_alarm",
    "plan": "data label risk_targets group",
    "frontier": "model_uri data label risk_targets group",
    "compare": "model_uri data label risk_targets group",
}
SECTIONS = {  # COMMAND.OPTION where a command gives an option a meaning of its own
    "Model and data": {
        "model_uri": f"the registered classifier: {URIS}",
        "evaluate.model_uri": f"the registered set classifier: {URIS}; or runs:/RUN_ID, of a "
        "calibrate run without a model, for data that holds scores in the same columns",
        "gate.model_uri": "the set classifier to promote: models:/NAME/VERSION or "
        "models:/NAME@ALIAS",
        "predict.model_uri": f"the registered set classifier: {URIS}",
        "data": "labelled rows",
        "select.data": "a few labelled rows, others than those of pool: they recalibrate the "
        "scores, and tell how likely a certificate is",
        "pool": "rows without labels, from where new rows will come; some of them are drawn to be "
        "labelled",
        "selection": "run of select that drew the rows of certify_data; model, data and all that "
        "is tested are as they were fixed then",
        "gate.data": "fresh labelled rows",
        "predict.data": "rows to answer, with or without labels",
        "monitor.model_uri": "the set classifier to watch: models:/NAME/VERSION or "
        "models:/NAME@ALIAS",
        "monitor.data": "a batch of its answers, as predict writes them or as a log of requests "
        "holds them, with or without inputs; or inputs alone, which it answers now",
        "monitor.label": "column of the true class; rows may lack it",
        "late_labels": "the rows of data were counted before; only their labels are new",
        "monitor.key": "column that identifies a row, so that no row's label counts twice",
        "monitor.group": GROUP,
        "time": "column of when a row was asked; the latest is the time of the batch",
        "audit_probability": "column of the probability with which a row was chosen to be "
        "labelled, where that differs between rows",
        "least_audit_probability": "the lowest of these probabilities by your plan; fixed with the "
        "first batch",
        "frontier.data": FIT_ROWS,
        "compare.data": FIT_ROWS,
        "label": "column of the true class: names, or indices from 0",
        "group": f"{GROUP}; a group is never split, and the bounds allow for groups",
        "evaluate.group": GROUP,
        "gate.group": GROUP,
        "key": "column that identifies a row",
        "select.key": "column that identifies a row of pool, by which labels come back",
        "weight": "column of how much each row counts, a function of the row; risks are weighted "
        "then, and tested by bets, which prove less",
    },
    "Targets": {
        "risk_targets": RISK,
        "gate.risk_targets": "the policy's risk targets: the version must be certified for "
        "targets as strict as these; targets are compared, not bounds",
        "frontier.risk_targets": f"targets to look around: {RISK}; unequal ones keep their "
        "proportions",
        "compare.risk_targets": f"{RISK}; for LABEL, the highest mis-coverage",
        "overall_target": "highest share of wrong answers, all classes together",
        "gate.overall_target": "the policy's target for all classes together",
        "risk_groups": "classes that share a target, by a name of your own: highest share of wrong "
        "answers among their answered rows taken together, such as "
        "'{asleep: {classes: [N1, N2, N3], target: 0.05}}'",
        "gate.risk_groups": "the policy's targets for classes taken together, as calibrate's: they "
        "must follow from what is certified",
        "waive": "classes whose target is not enforced",
        "gate.waive": "classes whose risk is not checked",
        "max_abstention": "highest share of rows that may abstain; measured on data, or without "
        "data on the certify rows",
        "max_class_abstention": "highest share of the rows of a class that may abstain",
        "max_abstention_increase": "how much more often than the alias's present version it may "
        "abstain on the rows of data; 0.02 is two points",
        "candidate_coverage": "how often the candidates of an abstention contain the true class, "
        "for each class",
        "max_candidates": "most candidates that an abstention names; the answer counts the others",
        "min_candidate_coverage": "how often the candidates of an abstention must contain the true "
        "class; refused where the rows refute that for a class",
    },
    "Guarantee": {
        "confidence": "confidence level of the certificate",
        "evaluate.confidence": "confidence level of the upper bounds",
        "gate.confidence": "lowest confidence level of the evidence",
        "frontier.confidence": "confidence level of the predicted certificate and of each band",
        "mode": "certified: fit on some rows and certify on the others; paper: fit on all rows, "
        "as published, and certify nothing",
        "evidence": "certificate: the version's certificate must hold, and data must not refute "
        "it; fresh: the rows of data alone must certify the version",
        "group_cap": "rows of a class that one group counts for at most in the certificate: larger "
        "groups count for as many, their errors in proportion, so that a few of them cannot decide",
        "gate.group_cap": "with evidence=fresh: rows of a class that one group counts for at most",
        "group_test": "approximate: by the design effect, where the chance of a false certificate "
        "can be about twice what confidence allows; exact: by bets, for any groups, less powerful",
        "gate.group_test": "with evidence=fresh: how groups are tested, approximate or exact",
        "max_group_rows": "the most rows of a class that any group can have; the certificate is "
        "then about rows, without a cap, and needs group_test=exact",
        "max_weight": "with weight: the highest weight that any row can have, fixed before the "
        "weights were looked at",
        "certify_fraction": "share of the rows that certify; the fit never sees them",
        "plan.certify_fraction": "share of the rows that certify; 1 if other rows draw the path",
        "frontier.certify_fraction": FRACTION,
        "compare.certify_fraction": FRACTION,
        "certify_data": "labelled rows that certify, in a table of their own; with mode=paper "
        "they are only measured",
        "path_data": "unlabelled rows that draw the path of set classifiers to test; data then "
        "only recalibrates scores and certifies",
        "false_alarms": "highest chance that a kind of alarm is ever raised by chance, however "
        "many batches come; fixed with the first batch",
        "path_fraction": "share of pool that draws the path; rows to label come from the others",
        "rows": "rows to label; with group about so many, in whole groups",
        "require_certificate": "end with exit code 1 if nothing could be certified; the version "
        "is registered all the same",
        "duplicates": "certify rows that equal another one in all columns: keep, where they are "
        "further cases; drop, where they are copies",
        "select.duplicates": "rows of pool that equal another one in all columns: keep, where they "
        "are further cases; drop, where they are copies",
        "allow_overlap": "accept rows that the run of the model has logged as its training rows",
        "gate.allow_overlap": "accept data that the version was fitted or certified on, or that "
        "its model was trained on; a tag records it",
        "use_certify_rows": "sweep the certify rows too; the ledger counts that as a use of them, "
        "and a certificate on them no longer holds as stated for targets that you choose by it",
        "ledger": "when rows serve more than one certificate: report counts the uses and says "
        "what they mean; spend gives each use a smaller part of the error probability",
    },
    "Study": {
        "abstention": "assumed share of the rows of a class that abstain",
        "risk_share": "assumed true risk, as a share of its target",
        "points": "number of targets in a sweep",
        "lowest": "lowest target of the sweep",
        "highest": "highest target of the sweep",
        "repeats": "random splits into a half to fit and a half to measure; all where fewer exist",
        "curves": "how many of these splits also get accuracy-ambiguity curves; each takes as "
        "long as several splits, and 0 draws none",
    },
    "Scores": {
        "classes": "class names in the order of the scores",
        "scores_from": "where the scores come from: auto; a method of the native model "
        "(decision_function); an entry of the model's output, or its columns ('[p_a, p_b]'); "
        "columns, or 'columns:[p_a, p_b]', for data that already holds the scores, also those of a "
        "model that MLflow does not have (then without model_uri)",
        "score_transform": "transform of the scores, here and when served; logits need softmax "
        "for the optimal rule and none for thresholds",
        "max_invalid": "highest share of the rows of a table that cannot be scored: they count as "
        "abstentions, as when served; more of them stop the command",
        "frontier.max_invalid": LEFT_OUT,
        "compare.max_invalid": LEFT_OUT,
        "trust": "column that says how sure a row is, higher is surer, for example from dropout; "
        "adds SGR on this column",
    },
    "Search": {
        "rule": "thresholds: a score threshold for each class; optimal: a price for each class, "
        "which needs probabilities and mostly abstains less; auto: optimal for probabilities of "
        "three classes or more, else thresholds, and so with mode=paper or options that only "
        "these have",
        "answers": "top: answer only with the model's own top class, so that answers are never "
        "more wrong than top-1's; any: the paper's, which may answer another class",
        "seed": "seed of the split and the search",
        "monitor.seed": "seed of what breaks ties between equal scores",
        "frontier.seed": SEED,
        "compare.seed": SEED,
        "select.max_fit_rows": "most rows that the search uses, of data and of pool each",
        "max_fit_rows": "most fit rows that the search uses: all rows of rare classes, a weighted "
        "share of the others; certify rows are always all counted",
        "penalty": "with rule=thresholds: cost of a squared excess over a target",
        "chance_weight": "with rule=thresholds: cost of an ambiguous set",
        "size_weight": "with rule=thresholds: cost of each class in a set",
        "error_weight": "how many abstentions a wrong answer costs; 2 answers only what is more "
        "likely right than wrong, at 0 only the targets count errors",
        "empty_weight": "with rule=thresholds: cost of an empty set; 1.1 prefers sets of several "
        "classes",
    },
    "Registry": {
        "run_id": "the calibrate run whose model is not registered",
        "registered_model_name": "name of the registered set classifier",
        "alias": "alias of the new version",
        "gate.alias": "alias that moves to the version if it passes",
        "alarms": "alarms that count for fail_on_alarm and on_alarm: drift, risk, candidates",
        "fail_on_alarm": "end with exit code 5 if there is an alarm",
        "on_alarm": "report: only say so; demote: move the alias back to the version that had it "
        "before, if that passes the gate",
        "restart": "begin a new monitor of this version, after an alarm was looked into",
        "verify": "refuse a version whose files are not those that were registered",
    },
    "Output": {
        "output": "new folder for the parquet files with the answers",
        "select.output": "new folder for the rows to label, and a sheet that says what to do",
        "format": "file of the rows to label: parquet, csv, or tasks for Label Studio",
        "predict.key": "columns to copy next to the answers",
        "explain": "add the scores, the thresholds or multipliers, and the mis-coverage by class",
        "overwrite": "replace an existing output that predict wrote",
        "folder": "folder for the demo's store; made anew",
    },
    "Engine": {
        "engine": "local: read and score the rows here, batch by batch; spark: let Spark do it "
        "(pip install 'scrib_mlflow[spark]'); data may then be a table of its catalog",
        "spark_options": "settings of the Spark session, such as "
        "'{spark.master: \"spark://host:7077\"}'",
        "batch_rows": "rows to score at a time",
    },
}
VALUES = {  # what to type, where the type does not say it
    "model_uri": "URI",
    "data": "FILE|URI",
    "certify_data": "FILE|URI",
    "path_data": "FILE|URI",
    "pool": "FILE|URI",
    "selection": "RUN_ID",
    "label": "COLUMN",
    "group": "COLUMN",
    "key": "COLUMN",
    "weight": "COLUMN",
    "trust": "COLUMN",
    "time": "COLUMN",
    "audit_probability": "COLUMN",
    "scores_from": "SOURCE",
    "run_id": "RUN_ID",
    "registered_model_name": "NAME",
    "alias": "ALIAS",
    "output": "FOLDER",
    "folder": "FOLDER",
}
VALUE_NOTES = {
    "FILE|URI": "parquet or csv: a path, or a URI that MLflow can download; a relative path starts "
    "in the folder where you stand, also under mlflow run",
    "FOLDER": "a path; a relative one starts in the folder where you stand, also under mlflow run",
    "NUMBER|YAML|FILE": "a number for all classes, inline YAML such as "
    "'{N1: 0.2, default: 0.1}', or a YAML file; default means all classes that are not named, and "
    "=default a class of that name",
    "YAML|FILE": "inline YAML, or a YAML file",
    "NAMES": "'W,N1,N2', inline YAML such as '[W, N1, N2]', or a YAML file",
}
UNSET = {  # what happens without a value
    "calibrate.model_uri": NO_MODEL,
    "calibrate.data": "required, unless selection is given",
    "select.model_uri": NO_MODEL,
    "frontier.model_uri": NO_MODEL,
    "compare.model_uri": NO_MODEL,
    "evaluate.group": "calibrate's, if data has it",
    "gate.group": "calibrate's, if data has it",
    "group_cap": "the median of the fit rows' groups, for the class with the fewest",
    "select.group_cap": "the median of the groups that draw the path, for the class with the "
    "fewest rows by the model's own answers",
    "gate.group_cap": "the version's",
    "gate.group_test": "the version's",
    "max_group_rows": "none; group_cap applies",
    "key": "the content of the row",
    "predict.key": "none",
    "monitor.key": "the content of the row",
    "monitor.group": "calibrate's",
    "time": "now",
    "alarms": "all",
    "false_alarms": "0.05, or as the first batch said",
    "monitor.seed": "0, or as the first batch said",
    "audit_probability": "the same for all",
    "select.answers": "top",
    "gate.risk_targets": "the version's",
    "gate.overall_target": "the version's",
    "gate.risk_groups": "the version's",
    "gate.confidence": "the version's",
    "candidate_coverage": "the confidence",
    "compare.overall_target": "none; for SGR, the mean of the risk targets, weighted by class size",
    "certify_fraction": "0.7, or 0.9 with path_data",
    "frontier.certify_fraction": "0.7",
    "compare.certify_fraction": "0.7",
    "answers": "top, or any with mode=paper",
    "lowest": "a tenth of the chosen target",
    "highest": "where the top class alone meets all targets, at most 0.5",
    "classes": "the model's",
    "registered_model_name": "the classifier's name with -scrib",
    "register.registered_model_name": "calibrate's",
    "register.alias": "calibrate's",
    "spark_options": "those of spark-submit, or all cores of this machine",
}


def section_of(command: str, name: str) -> str:
    """Return the heading under which an option of a command stands."""
    for key in (f"{command}.{name}", name):
        for heading, texts in SECTIONS.items():
            if key in texts:
                return heading
    raise KeyError(f"{name} of {command} has no text in SECTIONS")
