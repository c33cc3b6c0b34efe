"""Kinds of values that options have, and what is said of those that several commands share."""

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
