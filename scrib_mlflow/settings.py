"""What every command can be told: the one place where options are listed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(gt=0, lt=1)]
Rates = Rate | dict[str, Rate]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Names = tuple[str, ...]

MODEL = "models:/NAME/VERSION, models:/NAME@ALIAS or models:/m-ID"
TABLE = "parquet or csv: a path, or a URI that MLflow can download"
MAPPING = "a number, inline YAML ('{N1: 0.2, default: 0.1}') or a YAML file"
LIST = "inline YAML ('[W, N1, N2]'), 'W,N1,N2' or a YAML file"


class Settings(BaseModel):
    """Options of a command."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Calibrate(Settings):
    """Options of `calibrate`."""

    model_uri: str = Field(description=f"the registered classifier: {MODEL}")
    data: str = Field(description=f"labelled rows, {TABLE}")
    label: str = Field(description="column of the true class: names, or indices from 0")
    risk_targets: Rates = Field(
        0.1, description=f"how often a class may be wrong when it is answered: {MAPPING}"
    )
    overall_target: Rate | None = Field(
        None, description="how often an answer may be wrong, all classes taken together"
    )
    confidence: Rate = Field(0.95, description="of the upper bounds")
    mode: Literal["paper"] = Field(
        "paper", description="paper: fit on all rows of data, as published; certifies nothing"
    )
    certify_data: str | None = Field(
        None, description=f"further labelled rows, only measured, never fitted: {TABLE}"
    )
    waive: Names = Field((), description=f"classes whose target is not enforced: {LIST}")
    max_class_abstention: Rates | None = Field(
        None, description=f"how often the rows of a class may abstain at most: {MAPPING}"
    )
    classes: Names | None = Field(
        None, description=f"class names in the order of the scores, if the model has none: {LIST}"
    )
    scores_from: str = Field(
        "auto",
        description="where scores come from: auto; a method of the native model "
        "(decision_function); an entry of the model's output, or its columns ('[p_a, p_b]'); "
        "'columns' or 'columns:[p_a, p_b]' for data that holds them already",
    )
    score_transform: Literal["none", "softmax", "sigmoid"] = Field(
        "none", description="applied to the scores here and when served; logits need none"
    )
    penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1e4, description="what a squared excess over a target costs"
    )
    chance_weight: Weight = Field(1.0, description="cost of an ambiguous set")
    size_weight: Weight = Field(0.0, description="cost of each member of a set")
    empty_weight: Weight = Field(
        1.0, description="cost of an empty set; 1.1 prefers sets that name candidates"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the search")
    registered_model_name: str | None = Field(
        None, description="name to register under; default: the classifier's, with -scrib"
    )
    alias: str = Field("candidate", description="registry alias that the new version gets")
    batch_rows: int = Field(10_000, ge=1, description="rows scored at a time")


class Evaluate(Settings):
    """Options of `evaluate`."""

    model_uri: str = Field(description=f"a registered set classifier: {MODEL}")
    data: str = Field(description=f"labelled rows, {TABLE}")
    label: str = Field(description="column of the true class: names, or indices from 0")
    confidence: Rate = Field(0.95, description="of the upper bounds")
    batch_rows: int = Field(10_000, ge=1, description="rows scored at a time")


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
