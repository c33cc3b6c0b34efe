"""What the commands can be told that look before anything is registered."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scrib_mlflow.options import (
    BASE,
    BATCH,
    CLASSES,
    GROUP,
    KEY,
    LABEL,
    OVERALL,
    RISKS,
    ROWS,
    SCORES_FROM,
    WAIVE,
    Confidence,
    Names,
    Rate,
    Rates,
    Settings,
    Transform,
)


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
