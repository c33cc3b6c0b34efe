"""What the commands can be told that look before anything is registered."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from scrib_mlflow.options import (
    BASE,
    BATCH,
    CLASSES,
    GROUP,
    KEY,
    LABEL,
    LEDGER,
    LIST,
    MAPPING,
    OVERALL,
    RISKS,
    ROWS,
    SCORES_FROM,
    WAIVE,
    Confidence,
    Ledger,
    Names,
    Rate,
    Rates,
    Settings,
    Transform,
    Weight,
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


class Reproduce(Settings):
    """Options of `reproduce`."""

    experiments: Names | None = Field(
        None,
        description="which: class_risks, by_group, overall_risk, unequal_targets, one_threshold, "
        f"correlation, optimisers; default: all; {LIST}",
    )
    outputs: str | None = Field(
        None,
        description="folder of saved model outputs to run on in place of the data at hand: npz "
        "files with probs (n, k) and y (n,), perhaps groups (n,) and class_names (k,)",
    )
    size: Literal["small", "full"] = Field(
        "small", description="small: minutes; full: more data and as many repeats as in the paper"
    )
    repeats: Annotated[int, Field(ge=2, le=1000)] | None = Field(
        None, description="random splits of each data set; default: 3, with size=full 20"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the data, the splits and the searches")
