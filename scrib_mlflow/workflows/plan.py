"""Plan: what can be certified with the rows at hand, before anything is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scrib_mlflow.core.certificate import Plan, make_plan, split_rows
from scrib_mlflow.core.inputs import check_classes, class_sizes, distinct_values
from scrib_mlflow.core.targets import enforced, known_classes
from scrib_mlflow.errors import InvalidLabelsError
from scrib_mlflow.options import Calibrate, Plan as PlanSettings
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.report import words
from scrib_mlflow.report.plan import plan_figure, plan_summary
from scrib_mlflow.results import to_json
from scrib_mlflow.rows import scored, tables
from scrib_mlflow.rows.tables import GivenRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What can be certified, and where that is logged."""

    run_id: str
    plan: Plan


def plan(data: GivenRows, label: str, **parameters: Any) -> Planned:
    """Say what can be certified with labelled rows, before anything is fitted.

    Parameters
    ----------
    data : str, Path or DataFrame
        Labelled rows: a parquet or csv file, by path or URI, or a pandas frame.
        Only their labels are looked at.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow plan --help``, for example ``risk_targets=0.05``.

    Returns
    -------
    Planned
        For each class the lowest target that its rows can certify, the certain rows that a target
        needs, and the chance of passing.
    """
    values = {"data": data, "label": label, **parameters}
    return run(read_settings(PlanSettings, values))


def run(settings: PlanSettings) -> Planned:
    """Do what `plan` does."""
    with stores.short_waits():
        stores.check_stores()
    table = tables.read_rows("data", settings.data, settings.label, group=settings.group)
    planned = _plan(settings, table)
    with runs.open_run("plan") as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        runs.log_table_input(table.some_rows(), table.record, settings.label, "plan")
        runs.log_metrics({"chance": planned.chance})
        runs.log_texts_and_figures(
            {"plan.json": to_json(planned)}, {"figures/plan.png": plan_figure(planned)}
        )
        runs.set_tags({}, words.note(plan_summary(planned, "plan.json has all figures.")))
    return Planned(run_id=run_id, plan=planned)


def _plan(settings: PlanSettings, table: tables.Table) -> Plan:
    values, codes = table.labels
    missing = values.isna().to_numpy()[codes]
    if missing.any():
        raise InvalidLabelsError(
            f"data has no label in row {np.argmax(missing)}; fill column {settings.label!r}"
        )
    names, numbers = np.unique(values.astype(str).to_numpy(dtype=np.str_), return_inverse=True)
    labels = numbers[codes]
    classes = check_classes([str(name) for name in names], len(names))
    known_classes("waive", settings.waive, classes)
    chosen = np.ones(len(labels), dtype=np.bool_)
    if settings.certify_fraction < 1:
        chosen = split_rows(
            table.identities(),
            labels,
            settings.certify_fraction,
            0,
            groups=table.groups,
            names=classes,
            waived=settings.waive,
        )
    counts = np.bincount(labels[chosen], minlength=len(classes))
    return make_plan(
        dict(zip(classes, counts.tolist(), strict=True)),
        enforced(settings.risk_targets, classes, settings.waive),
        level=1 - settings.confidence,
        abstention=settings.abstention,
        risk_share=settings.risk_share,
        n_groups=None if table.groups is None else len(np.unique(table.groups[chosen])),
    )


def plan_certify(
    settings: Calibrate, classes: tuple[str, ...], fit: scored.Scored, certify: scored.Scored
) -> Plan:
    """Return what certify rows can certify, judging by the labels of the fit rows alone."""
    counts = class_sizes(fit.labels, len(classes)) * (certify.n_rows / fit.n_rows)
    return make_plan(
        {name: round(float(count)) for name, count in zip(classes, counts, strict=True)},
        enforced(settings.risk_targets, classes, settings.waive),
        level=1 - settings.confidence,
        n_groups=None if certify.groups is None else len(distinct_values(certify.groups)),
    )


def summary(done: Planned) -> str:
    """Return what a person wants to see at the end."""
    return words.terminal(plan_summary(done.plan, f"Logged to run {done.run_id}."))
