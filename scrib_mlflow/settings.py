"""What the commands that make, measure and promote set classifiers can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from scrib_mlflow.options import (
    BASE,
    BATCH,
    CLASSES,
    ENGINE,
    GROUP,
    KEY,
    LABEL,
    LEDGER,
    LIST,
    MAPPING,
    MODEL,
    OVERALL,
    RISKS,
    ROWS,
    SCORES_FROM,
    SPARK_OPTIONS,
    TABLE,
    WAIVE,
    Confidence,
    EngineName,
    Ledger,
    Names,
    Rate,
    Rates,
    Settings,
    SparkOptions,
    Transform,
    Weight,
)


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
    overwrite: bool = Field(
        False, description="replace output, once everything that takes its place is there"
    )
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
