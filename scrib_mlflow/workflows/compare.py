"""Compare: SCRIB beside other methods, on rows that calibrate would fit and none that certify."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scrib_mlflow.core.inputs import check_trust, labels_for
from scrib_mlflow.core.studies import Comparison, compare_rules
from scrib_mlflow.engines.local import LocalEngine, choose_as_calibrate
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.messages import progress
from scrib_mlflow.options import Compare
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import Base, DataRecord
from scrib_mlflow.registry import runs
from scrib_mlflow.report import comparison, facts, words
from scrib_mlflow.results import to_json
from scrib_mlflow.rows import scoring, tables
from scrib_mlflow.rows.scored import Scored
from scrib_mlflow.rows.tables import GivenRows
from scrib_mlflow.workflows.calibrate import (
    as_calibrate,
    check_options,
    find_base,
    leave_out_unscored,
    rows_request,
)

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What methods reach with a classifier's scores, and where that is logged."""

    run_id: str
    model_uri: str
    data: DataRecord  # of which `n_used` rows were compared on
    comparison: Comparison


def compare(
    model_uri: str | None = None,
    data: GivenRows | None = None,
    label: str | None = None,
    **parameters: Any,
) -> Compared:
    """Compare SCRIB with other methods on the scores of a registered classifier.

    All methods are fitted on the same random half of the rows that calibrate would fit, and
    measured on the other half, several times. Rows that calibrate would certify on take no part.

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
        Those of ``python -m scrib_mlflow compare --help``, for example ``repeats=50``.

    Returns
    -------
    Compared
        For each method and repeat: excess over the targets, abstention, set sizes, overall risk;
        accuracy-ambiguity curves of some repeats.
    """
    values = {"model_uri": model_uri, "data": data, "label": label, **parameters}
    return run(read_settings(Compare, values))


def run(settings: Compare) -> Compared:
    """Do what `compare` does."""
    alike = as_calibrate(settings)
    check_options(alike)
    base = find_base(settings.model_uri)
    request = rows_request(alike)
    table = _with_trust(LocalEngine().read_tables(request).data, settings)
    with runs.open_run(f"compare {base.name}", base.name) as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        runs.log_table_input(table.some_rows(), table.record, settings.label, "compare")
        LOGGER.info(f"loading {base.uri or base.name}")
        ready, chosen = choose_as_calibrate(base, table, request)
        fit = scoring.score(ready, request.scoring, ~chosen)
        done = Compared(
            run_id=run_id,
            model_uri=base.uri or base.name,
            data=fit.record,
            comparison=_compare(settings, leave_out_unscored(fit)),
        )
        _log(done, base)
    return done


def _with_trust(table: tables.Table, settings: Compare) -> tables.Table:
    """Return the rows with trust as a column that is no input of the model."""
    trust = settings.trust
    if trust is None:
        return table
    if trust == settings.label:
        raise InvalidSettingsError(
            f"trust names the label {settings.label!r}; name a column that does not know it"
        )
    named = tables.named_columns("data", {"trust": trust}, table.source.columns)
    return replace(table, beside=(*table.beside, *named.values()))


def _compare(settings: Compare, scored: Scored) -> Comparison:
    def told(turns: Iterable[int]) -> Iterable[int]:
        n = len([*turns])
        drawn = min(settings.curves, n)
        which = "first split" if drawn == 1 else f"first {drawn} splits"
        also = f", and drawing curves of the {which}" * (drawn > 0)
        LOGGER.info(f"comparing on {len(scored.labels):,} rows, {n} time{'s' * (n > 1)}{also}")
        bar: Iterable[int] = progress(turns, what="comparing", unit="splits")
        return bar

    trust = {}
    if settings.trust is not None:
        column = scored.table.source.take(scored.places, [settings.trust])[settings.trust]
        values = column.to_numpy(dtype=np.object_, na_value=np.nan)
        trust[settings.trust] = check_trust(values, len(values))
    return compare_rules(
        scored.scores,
        labels_for(scored.labels, scored.classes),
        settings.risk_targets,
        classes=scored.classes,
        overall_target=settings.overall_target,
        waive=settings.waive,
        answers=settings.answers,
        trust=trust,
        groups=scored.groups,
        repeats=settings.repeats,
        curves=settings.curves,
        seed=settings.seed,
        progress=told,
    )


def _log(done: Compared, base: Base) -> None:
    found = done.comparison
    for method in found.methods:
        runs.log_child(method, {"method": method}, found.means(method))
    runs.log_rows(comparison.trial_rows(found), "compare.json")
    figures = {
        "figures/excess.png": comparison.excess_figure(found, base.name),
        "figures/risks.png": comparison.risk_figure(found, base.name),
        "figures/abstention.png": comparison.abstention_figure(found, base.name),
        "figures/tradeoff.png": comparison.tradeoff_figure(found, base.name),
    }
    if found.curves:
        figures["figures/curves.png"] = comparison.curve_figure(
            found.curves, f"{base.name}, {found.n_rows:,} fit rows"
        )
    runs.log_texts_and_figures({"comparison.json": to_json(found)}, figures)
    note = words.note(_summary(done, "compare.json has every repeat."))
    runs.set_tags(runs.base_tags(base, done.data), note)


def summary(done: Compared) -> str:
    """Return what a person wants to see at the end."""
    look = words.look(*runs.place_of(done.run_id))
    where = f"Logged to run {done.run_id}{look}, with a run inside it for each method."
    return words.terminal(_summary(done, where))


def _summary(done: Compared, where: str) -> facts.Summary:
    return comparison.summary(done.comparison, done.model_uri, words.unread(done.data), where)
