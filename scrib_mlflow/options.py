"""What the commands can be told that look before anything is registered."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(gt=0, lt=1)]
Confidence = Annotated[float, Field(gt=0.5, lt=1)]
Rates = Rate | dict[str, Rate]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Names = tuple[str, ...]
Ledger = Literal["report", "spend"]
Transform = Literal["none", "softmax", "sigmoid"]
EngineName = Literal["local", "spark"]
SparkOptions = dict[str, str | bool | int | float]
MODEL = "models:/NAME/VERSION, models:/NAME@ALIAS or models:/m-ID"
TABLE = "parquet or csv: a path, or a URI that MLflow can download"
MAPPING = "a number, inline YAML ('{N1: 0.2, default: 0.1}') or a YAML file"
LIST = "inline YAML ('[W, N1, N2]'), 'W,N1,N2' or a YAML file"
BASE = f"the registered classifier: {MODEL}"
ROWS = f"labelled rows, {TABLE}"
LABEL = "column of the true class: names, or indices from 0"
RISKS = f"how often a class may be wrong when it is answered: {MAPPING}"
OVERALL = "how often an answer may be wrong, all classes taken together"
GROUP = "column of what rows belong together, such as patients; never split"
KEY = "column that identifies a row; default: what the row holds"
WAIVE = f"classes whose target is not enforced: {LIST}"
CLASSES = f"class names in the order of the scores, if the model has none: {LIST}"
SCORES_FROM = (
    "where scores come from: auto; a method of the native model (decision_function); an entry of "
    "the model's output, or its columns ('[p_a, p_b]'); 'columns' or 'columns:[p_a, p_b]' for data "
    "that holds them already"
)
BATCH = "rows scored at a time"
ENGINE = (
    "local: rows are read and scored here, batch by batch; spark: by Spark, where data may also be "
    "a table of its catalog (pip install 'scrib_mlflow[spark]')"
)
SPARK_OPTIONS = (
    "of engine=spark: settings of the session, such as '{spark.master: \"spark://host:7077\"}': "
    "inline YAML or a YAML file; default: those of spark-submit, or all cores here"
)
LEDGER = (
    "certificates on the same rows: report how many there are and what that means, or spend: "
    "let each have a smaller part of the error probability"
)


class Settings(BaseModel):
    """Options of a command."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Calibrate(Settings):
    """Options of `calibrate`."""

    model_uri: str = Field(description=BASE)
    data: str = Field(description=ROWS)
    label: str = Field(description=LABEL)
    risk_targets: Rates = Field(0.1, description=RISKS)
    overall_target: Rate | None = Field(None, description=OVERALL)
    confidence: Confidence = Field(0.95, description="of the upper bounds")
    rule: Literal["thresholds", "optimal"] = Field(
        "thresholds",
        description="thresholds: a score that makes a class a member, for each class; optimal: "
        "what a right answer is worth, for each class, which needs probabilities and abstains less "
        "where there are three classes or more",
    )
    mode: Literal["certified", "paper"] = Field(
        "certified",
        description="certified: some rows draw a path of set classifiers, the others test it; "
        "paper: fit on all rows of data, as published, which certifies nothing",
    )
    certify_fraction: Rate | None = Field(
        None,
        description="share of the rows of data that certify and are never fitted; default: 0.7, "
        "and 0.9 with path_data",
    )
    certify_data: str | None = Field(
        None,
        description=f"rows that certify, in a table of their own: {TABLE}",
    )
    path_data: str | None = Field(
        None,
        description="unlabelled rows that draw the path; data then only recalibrates scores and "
        f"certifies: {TABLE}",
    )
    group: str | None = Field(None, description=GROUP)
    key: str | None = Field(None, description=KEY)
    waive: Names = Field((), description=WAIVE)
    max_class_abstention: Rates | None = Field(
        None, description=f"how often the rows of a class may abstain at most: {MAPPING}"
    )
    candidate_coverage: Rate | None = Field(
        None,
        description="of rule=optimal: how often the candidates of an abstention hold the true "
        "class, for each class; default: the confidence",
    )
    require_certificate: bool = Field(
        False, description="end with exit code 1 where nothing could be certified"
    )
    ledger: Ledger = Field("report", description=LEDGER)
    classes: Names | None = Field(None, description=CLASSES)
    scores_from: str = Field("auto", description=SCORES_FROM)
    score_transform: Transform = Field(
        "none",
        description="applied to the scores here and when served; logits need softmax for "
        "rule=optimal, and none for thresholds",
    )
    penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1e4, description="of rule=thresholds: what a squared excess over a target costs"
    )
    chance_weight: Weight = Field(1.0, description="of rule=thresholds: cost of an ambiguous set")
    size_weight: Weight = Field(0.0, description="of rule=thresholds: cost of each member of a set")
    empty_weight: Weight = Field(
        1.0,
        description="of rule=thresholds: cost of an empty set; 1.1 prefers sets that name "
        "candidates",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the search")
    registered_model_name: str | None = Field(
        None, description="name to register under; default: the classifier's, with -scrib"
    )
    alias: str = Field("candidate", description="registry alias that the new version gets")
    max_fit_rows: int = Field(
        1_000_000,
        ge=1000,
        description="fit rows that the search sees at most: all rows of rare classes and a share "
        "of the others, weighted; certify rows are always counted all",
    )
    batch_rows: int = Field(10_000, ge=1, description=BATCH)
    engine: EngineName = Field("local", description=ENGINE)
    spark_options: SparkOptions | None = Field(None, description=SPARK_OPTIONS)


class Evaluate(Settings):
    """Options of `evaluate`."""

    model_uri: str = Field(description=f"a registered set classifier: {MODEL}")
    data: str = Field(description=ROWS)
    label: str = Field(description=LABEL)
    confidence: Confidence = Field(0.95, description="of the upper bounds")
    group: str | None = Field(
        None, description="column of what rows belong together; default: calibrate's, if there"
    )
    batch_rows: int = Field(10_000, ge=1, description=BATCH)
    engine: EngineName = Field("local", description=ENGINE)
    spark_options: SparkOptions | None = Field(None, description=SPARK_OPTIONS)


class Gate(Settings):
    """Options of `gate`."""

    model_uri: str = Field(
        description="the set classifier to promote: models:/NAME/VERSION or models:/NAME@ALIAS"
    )
    alias: str = Field("champion", description="registry alias that moves to it when it passes")
    data: str | None = Field(None, description=f"fresh labelled rows, {TABLE}")
    label: str | None = Field(None, description="column of the true class in data")
    evidence: Literal["certificate", "fresh"] = Field(
        "certificate",
        description="certificate: the version's own must hold, and data, if given, must not "
        "refute it; fresh: the rows of data alone must certify it",
    )
    risk_targets: Rates | None = Field(
        None,
        description="how often a class may be wrong at most, by this policy; default: what the "
        f"version was made for; {MAPPING}",
    )
    overall_target: Rate | None = Field(
        None, description="how often an answer may be wrong at most, by this policy"
    )
    confidence: Confidence | None = Field(
        None, description="that is asked of the evidence; default: the version's"
    )
    waive: Names = Field((), description=f"classes whose risk is not asked about: {LIST}")
    max_abstention: Rate | None = Field(None, description="how often it may abstain at most")
    max_class_abstention: Rates | None = Field(
        None, description=f"how often the rows of a class may abstain at most: {MAPPING}"
    )
    max_abstention_increase: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None,
        description="how much more often than the present holder of the alias it may abstain on "
        "the rows of data, 0.02 for two points",
    )
    allow_overlap: bool = Field(
        False, description="take data although the version was fitted or certified on such rows"
    )
    ledger: Ledger = Field("report", description=LEDGER)
    group: str | None = Field(
        None, description="column of what rows belong together; default: calibrate's, if there"
    )
    batch_rows: int = Field(10_000, ge=1, description=BATCH)
    engine: EngineName = Field("local", description=ENGINE)
    spark_options: SparkOptions | None = Field(None, description=SPARK_OPTIONS)


class Predict(Settings):
    """Options of `predict`."""

    model_uri: str = Field(description=f"a registered set classifier: {MODEL}")
    data: str = Field(description=f"rows to answer, without labels or with: {TABLE}")
    output: str = Field(description="folder to write parquet files to, which must not be there yet")
    key: Names = Field((), description=f"columns to keep beside the answers: {LIST}")
    explain: bool = Field(
        False, description="add the scores, what they were compared with, and mis-coverages"
    )
    overwrite: bool = Field(False, description="replace an output that predict wrote")
    batch_rows: int = Field(10_000, ge=1, description=BATCH)
    engine: EngineName = Field("local", description=ENGINE)
    spark_options: SparkOptions | None = Field(None, description=SPARK_OPTIONS)


class Register(Settings):
    """Options of `register`."""

    run_id: str = Field(description="a calibrate run whose model is not registered")
    registered_model_name: str | None = Field(
        None, description="name to register under; default: the one that calibrate was told"
    )
    alias: str | None = Field(
        None,
        description="registry alias of the new version; default: the one that calibrate was told",
    )


class Demo(Settings):
    """Options of `demo`."""

    folder: str = Field("scrib_demo", description="folder for the demo's store, made anew")


class Plan(Settings):
    """Options of `plan`."""

    data: str = Field(description=ROWS)
    label: str = Field(description="column of the true class")
    risk_targets: Rates = Field(0.1, description=RISKS)
    confidence: Confidence = Field(0.95, description="of the certificate")
    certify_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        0.7, description="share of the rows that certify; 1 where other rows draw the path"
    )
    group: str | None = Field(
        None, description="column of what rows belong together, such as patients"
    )
    waive: Names = Field((), description=WAIVE)
    abstention: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="how often the rows of a class are assumed to abstain"
    )
    risk_share: Rate = Field(
        0.5, description="the true risk that is assumed, as a share of its target"
    )


class Compare(Settings):
    """Options of `compare`."""

    model_uri: str = Field(description=BASE)
    data: str = Field(description=f"{ROWS}; those that calibrate would certify on are left out")
    label: str = Field(description=LABEL)
    risk_targets: Rates = Field(0.1, description=f"{RISKS}; LABEL takes them for mis-coverages")
    overall_target: Rate | None = Field(
        None,
        description=f"{OVERALL}; default for SGR: the mean of the risk targets, weighted by the "
        "rows of the classes",
    )
    certify_fraction: Rate | None = Field(
        None,
        description="share of the rows that calibrate certifies on, whose labels stay unread here; "
        "default: 0.7",
    )
    group: str | None = Field(None, description=GROUP)
    key: str | None = Field(None, description=KEY)
    waive: Names = Field((), description=WAIVE)
    classes: Names | None = Field(None, description=CLASSES)
    scores_from: str = Field("auto", description=SCORES_FROM)
    score_transform: Transform = Field(
        "none", description="applied to the scores; logits need softmax for the optimal rule"
    )
    trust: str | None = Field(
        None,
        description="column that says how sure a row is, higher means surer, for example from "
        "dropout; SGR is fitted on it as well",
    )
    repeats: int = Field(
        10, ge=1, le=1000, description="random splits into a half to fit and a half to measure"
    )
    curves: int = Field(
        1,
        ge=0,
        le=1000,
        description="of how many of these splits accuracy-ambiguity curves are drawn, which takes "
        "as long as several splits each; 0 draws none",
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**32,
        description="of the splits and the searches; as calibrate's, so that "
        "both leave the same rows to certify",
    )
    batch_rows: int = Field(10_000, ge=1, description=BATCH)


class Frontier(Settings):
    """Options of `frontier`."""

    model_uri: str = Field(description=BASE)
    data: str = Field(description=f"{ROWS}; those that calibrate would certify on are left out")
    label: str = Field(description=LABEL)
    risk_targets: Rates = Field(
        0.1, description=f"the targets to look around; {RISKS}; unequal ones keep their proportions"
    )
    overall_target: Rate | None = Field(None, description=OVERALL)
    confidence: Confidence = Field(
        0.95, description="of the certificate that is predicted, and of each band by itself"
    )
    rule: Literal["thresholds", "optimal"] = Field("thresholds", description="as of calibrate")
    certify_fraction: Rate | None = Field(
        None,
        description="share of the rows that calibrate certifies on, whose labels stay unread here; "
        "default: 0.7",
    )
    group: str | None = Field(None, description=GROUP)
    key: str | None = Field(None, description=KEY)
    waive: Names = Field((), description=WAIVE)
    max_class_abstention: Rates | None = Field(
        None, description=f"how often the rows of a class may abstain at most: {MAPPING}"
    )
    points: int = Field(30, ge=5, le=200, description="targets in a sweep")
    lowest: Rate | None = Field(
        None, description="target to sweep from; default: a tenth of the chosen one"
    )
    highest: Rate | None = Field(
        None,
        description="target to sweep to; default: where the top class alone keeps all targets, at "
        "most 0.5",
    )
    use_certify_rows: bool = Field(
        False,
        description="sweep all rows, certify rows too; the ledger counts that as a use of them, "
        "and a certificate on them no longer holds as stated for targets picked by it",
    )
    ledger: Ledger = Field("report", description=f"with use_certify_rows: {LEDGER}")
    classes: Names | None = Field(None, description=CLASSES)
    scores_from: str = Field("auto", description=SCORES_FROM)
    score_transform: Transform = Field(
        "none", description="applied to the scores; logits need softmax for rule=optimal"
    )
    penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1e4, description="of rule=thresholds: what a squared excess over a target costs"
    )
    chance_weight: Weight = Field(1.0, description="of rule=thresholds: cost of an ambiguous set")
    size_weight: Weight = Field(0.0, description="of rule=thresholds: cost of each member of a set")
    empty_weight: Weight = Field(1.0, description="of rule=thresholds: cost of an empty set")
    seed: int = Field(
        0,
        ge=0,
        lt=2**32,
        description="of the halves and the searches; as calibrate's, so that both leave the same "
        "rows to certify",
    )
    batch_rows: int = Field(10_000, ge=1, description=BATCH)
