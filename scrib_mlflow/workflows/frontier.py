"""Frontier: which targets can be afforded, by rows that calibrate would fit."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scrib_mlflow
from scrib_mlflow.core.inputs import labels_for
from scrib_mlflow.core.studies import TargetFrontier, draw_frontier
from scrib_mlflow.engines.local import LocalEngine, choose_as_calibrate
from scrib_mlflow.messages import progress
from scrib_mlflow.options import Frontier
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import Base, DataRecord, LedgerEntry
from scrib_mlflow.registry import ledger, runs
from scrib_mlflow.report import facts, frontier as frontier_report, words
from scrib_mlflow.results import to_json
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.rows.scoring import score
from scrib_mlflow.rows.tables import GivenRows
from scrib_mlflow.workflows import calibrate, fitting

LOGGER = logging.getLogger(__name__)

NO_MATTER = {
    "model_uri",
    "data",
    "batch_rows",
    "max_invalid",
}  # options that change nothing about what is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What targets cost with a classifier's scores, and where that is logged."""

    run_id: str
    model_uri: str
    data: DataRecord  # of which `n_used` rows were looked at
    use: LedgerEntry | None  # of the certify rows, where these were looked at as well
    frontier: TargetFrontier


def frontier(
    model_uri: str | None = None,
    data: GivenRows | None = None,
    label: str | None = None,
    **parameters: Any,
) -> Explored:
    """Say how often a set classifier would abstain at which targets.

    Set classifiers are fitted at many targets to half of the rows that calibrate would fit, and
    measured on the other half. Rows that calibrate would certify on take no part, unless
    ``use_certify_rows`` is set.

    Parameters
    ----------
    model_uri : str, optional
        ``models:/NAME/VERSION``, ``models:/NAME@ALIAS`` or ``models:/m-ID``. Without one,
        ``scores_from="columns:[p_a, p_b]"`` names the columns of ``data`` that hold scores.
    data : str, Path or DataFrame
        Labelled rows: a parquet or csv file, by path or URI, or a pandas frame;
        the table that calibrate is given.
    label : str
        Column of the true class.
    **parameters
        Those of ``python -m scrib_mlflow frontier --help``, for example ``risk_targets=0.05``.

    Returns
    -------
    Explored
        For each target: abstention and risks with their bands, and what is predicted to be
        certifiable.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Frontier, values))


def run(settings: Frontier) -> Explored:
    """Do what `frontier` does."""
    alike = calibrate.as_calibrate(settings)
    calibrate.check_options(alike)
    base = calibrate.find_base(settings.model_uri)
    request = calibrate.rows_request(alike)
    table = LocalEngine().read_tables(request).data
    with runs.open_run(f"frontier {base.name}", base.name) as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        runs.log_table_input(table.some_rows(), table.record, settings.label, "frontier")
        LOGGER.info(f"loading {base.uri or base.name}")
        ready, chosen = choose_as_calibrate(base, table, request)
        use, digest = None, table.record.digest
        if settings.use_certify_rows:  # entered before anything is made of their labels
            seen = settings.model_dump(mode="json", exclude=NO_MATTER)
            tested = ["frontier", scrib_mlflow.__version__, base.uri, base.model_id, seen, digest]
            level, text = 1 - settings.confidence, json.dumps(tested)
            use = ledger.enter(run_id, digest, text, level, settings.ledger, looks=True)
        scored = score(ready, request.scoring, None if settings.use_certify_rows else ~chosen)
        done = Explored(
            run_id=run_id,
            model_uri=base.uri or base.name,
            data=scored.record,
            use=use,
            frontier=_draw(settings, calibrate.leave_out_unscored(scored), chosen),
        )
        _log(done, base)
    return done


def _draw(settings: Frontier, scored: Scored, chosen: NDArray[np.bool_]) -> TargetFrontier:
    """Sweep targets over rows in an order of their own, so that a table's does not matter.

    `chosen` are the rows of the table that would certify.
    """
    alike = fitting.with_rule(calibrate.as_calibrate(settings), scored.scores)
    order = np.argsort(scored.cases(), kind="stable")
    codes, groups = scored.group_codes(), scored.table.groups
    LOGGER.info(f"sweeping {settings.points} targets over {len(scored.labels):,} rows")
    classes = scored.classes
    return draw_frontier(
        scored.scores[order],
        labels_for(scored.labels[order], classes),
        rule="optimal" if alike.rule == "optimal" else "thresholds",
        certify_rows=int(np.count_nonzero(chosen)),
        certify_groups=None if groups is None else len(np.unique(groups[chosen])),
        classes=classes,
        **fitting.target_options(alike),
        **fitting.loss_options(alike),
        confidence=settings.confidence,
        points=settings.points,
        lowest=settings.lowest,
        highest=settings.highest,
        groups=None if codes is None else codes[order],
        progress=lambda turns: progress(turns, what="sweeping targets", unit="steps"),
    )


def _log(done: Explored, base: Base) -> None:
    found = done.frontier
    runs.log_metrics(frontier_report.metrics(found))
    runs.log_rows(frontier_report.point_rows(found), "frontier.json")
    figures = {
        "figures/frontier.png": frontier_report.frontier_figure(found, base.name),
        "figures/class_abstention.png": frontier_report.class_figure(found, base.name),
        "figures/one_class.png": frontier_report.sweep_figure(found, base.name),
    }
    runs.log_texts_and_figures(
        {"target_frontier.json": to_json(found)},
        {path: figure for path, figure in figures.items() if figure is not None},
    )
    tags = {
        **runs.base_tags(base, done.data),
        ledger.LOOKED: "false" if done.use is None else "true",
    }
    runs.set_tags(tags, words.note(_summary(done, "frontier.json has every point.")))


def rows_used(done: Explored) -> str:
    """Return in a sentence what this means for a certificate on the same rows."""
    if done.use is not None:
        return (
            "The certify rows were looked at too (use_certify_rows), and the ledger counts that "
            f"as use {done.use.number} of them: a certificate on these rows, for targets picked by "
            "this table, no longer holds as stated."
        )
    return words.unread(done.data)


def summary(done: Explored) -> str:
    """Return what a person wants to see at the end."""
    look = words.look(*runs.place_of(done.run_id))
    return words.terminal(_summary(done, f"Logged to run {done.run_id}{look}."))


def _summary(done: Explored, where: str) -> facts.Summary:
    return frontier_report.summary(done.frontier, done.model_uri, rows_used(done), where)
