"""Reproduce: the paper's experiments on data at hand, their tables beside the paper's."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from experiments import datasets, tables
from experiments.experiments import EXPERIMENTS, Effort, Findings
from experiments.outputs import Outputs
from experiments.tables import PaperTable
from scrib_mlflow.core.targets import DEFAULT
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.messages import nearest
from scrib_mlflow.options import Names, Rates, Seed, Settings
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import runs, stores
from scrib_mlflow.report import words

LOGGER = logging.getLogger(__name__)

SMALL = (
    "digits",
    "digits, network",
    "page-blocks",
)  # of the data that are shipped; the others take longer
REPEATS, FULL_REPEATS = 3, 20
OPTIMISER_REPEATS, FULL_OPTIMISER_REPEATS = 1, 3  # Bayesian optimisation takes a minute each
UNSAFE = re.compile(r"[^\w.-]+")  # in the name of an artifact


class Reproduce(Settings):
    """Options of `reproduce`."""

    experiments: Names | None = Field(
        None,
        description="which experiments to run: class_risks, by_group, overall_risk, "
        "unequal_targets, one_threshold, correlation, optimisers",
        json_schema_extra={"unset": "all"},
    )
    outputs: str | None = Field(
        None,
        description="folder of saved model outputs to use in place of the data at hand: npz files "
        "with probs (n, k) and y (n,), perhaps groups (n,) and class_names (k,)",
        json_schema_extra={"value": "FOLDER"},
    )
    targets: Rates = Field(
        datasets.TARGET,
        description="risk target of every class; where they differ, by the name of a saved output "
        "(its file without .npz), such as '{ecg: 0.15, default: 0.1}'",
    )
    size: Literal["small", "full"] = Field(
        "small", description="small: minutes; full: more data and as many repeats as in the paper"
    )
    repeats: Annotated[int, Field(ge=2, le=1000)] | None = Field(
        None,
        description="random splits of each data set",
        json_schema_extra={"unset": "3, or 20 with size=full"},
    )
    seed: Seed = Field(0, description="seed of the data, the splits and the searches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """The tables of the experiments, and where they are logged."""

    run_id: str
    tables: tuple[PaperTable, ...]


def reproduce(**parameters: Any) -> Reproduced:
    """Run the paper's experiments, and put its figures beside what came out.

    Parameters
    ----------
    **parameters
        Those of ``python -m experiments --help``, for example ``size="full"`` or
        ``outputs="folder"`` for saved model outputs.

    Returns
    -------
    Reproduced
        Tables as text; the run holds them with figures, and a run inside for each method.
    """
    return run(read_settings(Reproduce, parameters))


def run(settings: Reproduce) -> Reproduced:
    """Do what `reproduce` does."""
    chosen = _chosen(settings)
    with stores.short_waits():
        stores.check_stores()
    data, left = _data(settings)
    repeats = settings.repeats or (REPEATS if settings.size == "small" else FULL_REPEATS)
    effort = Effort(
        repeats=repeats,
        optimiser_repeats=(
            OPTIMISER_REPEATS if settings.size == "small" else FULL_OPTIMISER_REPEATS
        ),
        seed=settings.seed,
    )
    with runs.open_run("reproduce") as run_id:
        runs.log_parameters(run_id, settings.model_dump())
        made = [tables.data_table(data).with_notes(left)]
        _log_table(made[0])
        for name in chosen:
            LOGGER.info(f"{name}: {len(data)} data sets")
            found = EXPERIMENTS[name](data, effort)
            _log(found)
            made[0] = made[0].with_notes([f"{name}: {note}" for note in found.notes])
            made += found.tables
            runs.log_texts_and_figures({"paper.md": markdown(made)}, {})  # kept if the next fails
        runs.set_tags({}, _note(made, repeats))
    return Reproduced(run_id=run_id, tables=tuple(made))


def _chosen(settings: Reproduce) -> Sequence[str]:
    """Return the experiments that are asked for, in their own order."""
    asked = settings.experiments or tuple(EXPERIMENTS)
    unknown = [name for name in asked if name not in EXPERIMENTS]
    if unknown:
        raise InvalidSettingsError(
            f"experiments has no {unknown[0]!r}; {nearest(unknown[0], EXPERIMENTS)}"
        )
    return [name for name in EXPERIMENTS if name in asked]


def _data(settings: Reproduce) -> tuple[list[Outputs], list[str]]:
    """Return the data to run on, and in words what is not to be had."""
    if settings.outputs is not None:
        targets = settings.targets
        by_name = targets if isinstance(targets, dict) else {DEFAULT: targets}
        return [*datasets.saved(settings.outputs, by_name)], []
    if settings.targets != datasets.TARGET:
        raise InvalidSettingsError("targets is for saved outputs; name their folder with outputs")
    data, left = [*datasets.generated(settings.seed)], []
    for name, make in datasets.SHIPPED.items():
        if settings.size == "small" and name not in SMALL:
            left.append(f"{name} takes part with size=full.")
            continue
        try:
            data.append(make())
        except datasets.NotInstalledError as error:
            left.append(f"{name} is left out: {error}.")
    return data, left


def _log(found: Findings) -> None:
    """Log tables and figures, and a run for each method on each data set."""
    for table in found.tables:
        _log_table(table)
    figures = {f"figures/{_safe(name)}.png": figure for name, figure in found.figures.items()}
    runs.log_texts_and_figures({}, figures)
    for data, comparison in found.comparisons.items():
        for method in comparison.methods:
            params = {"data": data, "method": method}
            runs.log_child(f"{data}: {method}", params, comparison.means(method))


def _log_table(table: PaperTable) -> None:
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    runs.log_rows(rows, f"tables/{_safe(table.name)}.json")


def _safe(name: str) -> str:
    return UNSAFE.sub("_", name)


def markdown(tables: Sequence[PaperTable]) -> str:
    """Return the tables as a document."""
    parts = []
    for table in tables:
        cells = words.markdown_table([table.header, *table.rows])
        parts += [f"## {table.title}", cells.replace("\u00a0", "")]  # a document needs no room
        parts += table.notes
    return "\n\n".join(parts) + "\n"


def _note(tables: Sequence[PaperTable], repeats: int) -> str:
    """Return what the run's page says, with the first table that fits."""
    head = f"The paper's experiments, {repeats} random splits each; all tables are in paper.md."
    note = "\n\n".join([head, markdown(tables[:2])])
    return note if len(note) <= words.MOST_CHARACTERS else head


def summary(done: Reproduced) -> str:
    """Return what a person wants to see at the end."""
    parts = []
    for table in done.tables:
        rows = [table.header, *table.rows]
        cells = words.plain_table(rows, left=table.name == "data")
        parts += [table.title, "", cells, "", *table.notes, ""]
    return "\n".join([*parts, f"logged to run {done.run_id}, as Markdown in paper.md"])
