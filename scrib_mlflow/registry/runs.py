"""Runs: what a command leaves behind in MLflow's tracking store."""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mlflow
import numpy as np
import pandas as pd
from mlflow.data.meta_dataset import MetaDataset
from mlflow.data.pandas_dataset import PandasDataset, from_pandas
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

from scrib_mlflow import errors, messages
from scrib_mlflow.core.certificate import Certificate
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.targets import overall_name
from scrib_mlflow.records import Base, DataRecord, frame_name
from scrib_mlflow.registry import ledger, seals, stores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGER = logging.getLogger(__name__)

REPORT_METRICS = (  # what people compare; the rest is in the JSON of a report
    "abstention_rate",
    "empty_rate",
    "size_ambiguity",
    "overall_risk",
    "overall_risk_upper",
    "overall_top1_risk",
    "candidate_coverage",
    "mean_candidates",
)
CLASS_METRICS = {  # and the fields of a class's report
    "risk": "risk",
    "risk_upper": "risk_upper",
    "abstention": "abstention_rate",
    "top1_risk": "top1_risk",
    "candidate_coverage": "candidate_coverage",
}
BESIDE = ("abstention_rate", "overall_risk")  # of fit rows, where other rows are measured as well
ROW_HASHES = "rows.parquet"
DUPLICATE = re.compile("unique|duplicate", re.IGNORECASE)  # how databases refuse a second row
NOTE = "mlflow.note.content"  # tag of a run's description
MODEL_URI = "scrib.model_uri"  # tag of a run that has made or measured something
SELECTION_DIGEST = "scrib.selection_digest"  # tag of a run of select: that of selection.json
NAME, ALIAS = "scrib.registered_model_name", "scrib.alias"  # tags of a calibrate run


@contextmanager
def open_run(name: str, classifier: str = "") -> Iterator[str]:
    """Yield the id of the run to log to: the one that is open, `mlflow run`'s, or a new one.

    A new one stands in the experiment of the classifier, unless another is chosen. Where it cannot
    be ended, what was done in it is done all the same, and what failed in it is what is said.
    """
    stack = ExitStack()
    try:
        run = mlflow.active_run()
        if run is None and "MLFLOW_RUN_ID" in os.environ:
            run = stack.enter_context(mlflow.start_run())
        elif run is None:
            place = experiment_of(classifier)
            run = stack.enter_context(mlflow.start_run(run_name=name, experiment_id=place))
        tags = mlflow.get_run(run.info.run_id).data.tags
        if MODEL_URI in tags or ledger.DIGEST in tags:  # another command has used it
            run = stack.enter_context(_start_inside(run, name))
    except (MlflowException, OSError, ValueError) as error:
        with suppress(MlflowException, OSError):
            stack.close()
        hint = "; set MLFLOW_EXPERIMENT_NAME to the experiment that runs shall be in"
        hint *= "experiment" in str(error).lower()  # such as the default one, which may be gone
        raise errors.StoreError(f"no run can be started: {messages.reason(error)}{hint}") from error
    run_id = str(run.info.run_id)
    try:
        yield run_id
    except BaseException as error:
        with suppress(MlflowException, OSError):
            stack.__exit__(type(error), error, error.__traceback__)
        raise
    try:
        stack.close()
    except (MlflowException, OSError) as error:
        reason = messages.reason(error)
        LOGGER.warning(f"run {run_id} could not be ended, but all else is done: {reason}")


def _start_inside(run: Run, name: str) -> mlflow.ActiveRun:
    """Start a run inside another, in the same experiment whatever is chosen for others."""
    return mlflow.start_run(run_name=name, nested=True, experiment_id=run.info.experiment_id)


def experiment_of(classifier: str) -> str | None:
    """Return the id of a classifier's experiment, and make it if it is new.

    None leaves the choice to MLflow: where the user has chosen (`mlflow.set_experiment` sets the
    same variable), where names are paths, and where that experiment was deleted.
    """
    chosen = any(name in os.environ for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"))
    if chosen or not classifier or mlflow.get_tracking_uri().startswith("databricks"):
        return None
    name = f"{classifier}-scrib"
    found = mlflow.get_experiment_by_name(name)
    if found is None:
        with suppress(MlflowException):  # somebody else was faster, or nobody may make one
            return str(mlflow.create_experiment(name))
        found = mlflow.get_experiment_by_name(name)
    return (
        str(found.experiment_id)
        if found and found.lifecycle_stage == LifecycleStage.ACTIVE
        else None
    )


@contextmanager
def resumed(run_id: str) -> Iterator[None]:
    """Make a run the active one, if it is not."""
    active = mlflow.active_run()
    same = active is not None and active.info.run_id == run_id
    with nullcontext() if same else mlflow.start_run(run_id=run_id, nested=active is not None):
        yield


def log_parameters(run_id: str, parameters: Mapping[str, Any]) -> None:
    """Log parameters that the run does not have, without secrets.

    `mlflow run` logs those of its command line itself, as they are.
    """
    known = mlflow.get_run(run_id).data.params
    values = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in messages.shown_options(parameters).items()
        if value is not None and name not in known
    }
    mlflow.log_params(values)


class TableDataset(MetaDataset):
    """A table as MLflow shows it: where it is, what its columns are, and how much it holds."""

    def __init__(self, like: PandasDataset, record: DataRecord) -> None:
        """Describe all rows of a record, some of which are at hand."""
        self._size = {"num_rows": record.n_rows, "num_elements": record.n_rows * like.df.shape[1]}
        super().__init__(like.source, name=like.name, digest=record.digest, schema=like.schema)

    @property
    def profile(self) -> dict[str, int]:
        """How much it holds."""
        return self._size

    def to_dict(self) -> dict[str, str]:
        """Return what MLflow stores."""
        return {**super().to_dict(), "profile": json.dumps(self.profile)}


def log_table_input(
    some_rows: pd.DataFrame, record: DataRecord, label: str | None, context: str
) -> None:
    """Log which rows were used, under a digest of all of them; some tell what the columns are."""
    named: dict[str, Any] = {"targets": label, "name": context}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of whole numbers, and of local paths
        if record.source != frame_name(record.n_rows):  # such rows are nowhere that has a name
            named["source"] = record.source
        try:
            like = from_pandas(some_rows, **named)
        except MlflowException:  # no reader for this kind of URI; the parameters hold it as well
            like = from_pandas(some_rows, targets=label, name=context)
        _log_input(TableDataset(like, record), context)


def _log_input(dataset: TableDataset, context: str, tries: int = 3) -> None:
    """Log a dataset; where another run writes its row at the same moment, it is there next time.

    MLflow looks whether the row is there and then adds it, so databases with several connections
    refuse one of two.
    """
    try:
        mlflow.log_input(dataset, context=context)
    except MlflowException as error:
        if tries == 1 or not DUPLICATE.search(str(error)):
            raise
        _log_input(dataset, context, tries - 1)


class LoggedDataset(NamedTuple):
    """A dataset that a run has logged, as far as the store describes it."""

    digest: str  # as MLflow computes it
    context: str  # what it was for, as its logger said
    source: str  # path or URI, "" where it has none
    n_rows: int | None
    columns: tuple[str, ...]  # none where they have no names
    n_features: int | None  # of arrays


def logged_datasets(run_id: str) -> list[LoggedDataset]:
    """Return the datasets that a run has logged as inputs."""
    inputs = mlflow.get_run(run_id).inputs
    found = []
    for each in inputs.dataset_inputs if inputs else ():
        tags = {tag.key: tag.value for tag in each.tags}
        source, schema, profile = map(
            _fields, (each.dataset.source, each.dataset.schema, each.dataset.profile)
        )
        place = next((source[name] for name in ("uri", "url", "path") if source.get(name)), "")
        shape = profile.get("features_shape")
        shape = shape if isinstance(shape, list) and shape else None
        columns = schema.get("mlflow_colspec") or []
        found.append(
            LoggedDataset(
                digest=each.dataset.digest,
                context=tags.get("mlflow.data.context", ""),
                source=str(place),
                n_rows=shape[0] if shape else profile.get("num_rows"),
                columns=tuple(str(column.get("name", "")) for column in columns),
                n_features=int(np.prod(shape[1:])) if shape else None,
            )
        )
    return found


def _fields(text: str | None) -> dict[str, Any]:
    """Return what a JSON text holds, nothing where it is none."""
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def report_metrics(report: SetReport, *, prefix: str = "") -> dict[str, float]:
    """Return metrics by name; on rows of the fit the prefix is ``fit_``."""
    values = {f"{prefix}{name}": float(getattr(report, name)) for name in REPORT_METRICS}
    parts = report.by_class | report.by_risk_group
    for name, safe in zip(parts, messages.safe_names([*parts]), strict=True):
        of_class = parts[name]
        for metric, field in CLASS_METRICS.items():
            values[f"{prefix}{metric}/{safe}"] = float(getattr(of_class, field))
    return values


def fit_metrics(report: SetReport, *, alone: bool) -> dict[str, float]:
    """Return metrics of the fit rows: all where these are measured alone, else a few."""
    if alone:
        return report_metrics(report, prefix="fit_")
    return {f"fit_{name}": float(getattr(report, name)) for name in BESIDE}


def certificate_metrics(
    certificate: Certificate, classes: Sequence[str], *, prefix: str = ""
) -> dict[str, float]:
    """Return p-values by class and of the whole."""
    overall = overall_name(classes)
    others = [c.name for c in certificate.claims if c.name not in {*classes, overall}]
    names = [*classes, *others]
    safe = dict(zip(names, messages.safe_names(names), strict=True))
    values = {f"{prefix}p_value": certificate.p_value}
    for claim in certificate.claims:
        if claim.name in safe:
            values[f"{prefix}p_value/{safe[claim.name]}"] = claim.p_value
        elif claim.name == overall:
            values[f"{prefix}overall_p_value"] = claim.p_value
    return values


def gap_metrics(gap: AbstentionGap | None, *, prefix: str = "") -> dict[str, float]:
    """Return the least abstention that is possible, at the targets and at the rule's risks."""
    if gap is None:
        return {}
    values = {
        "abstention_bound": gap.bound,
        "abstention_bound_at_risks": gap.bound_at_risks,
        "cost_rate": gap.cost_rate,
    }
    return {f"{prefix}{name}": value for name, value in values.items()}


def log_metrics(values: Mapping[str, float], model_id: str | None = None) -> None:
    """Log metrics to the active run, linked to a model where one is named."""
    mlflow.log_metrics(dict(values), model_id=model_id)


def log_rows(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Log rows as a table that the MLflow UI can sort."""
    mlflow.log_table(pd.DataFrame([*rows]), path)


def log_child(name: str, params: Mapping[str, str], metrics: Mapping[str, float]) -> None:
    """Log a run inside the active one, so that the MLflow UI can compare it with its siblings."""
    active = mlflow.active_run()
    with mlflow.start_run(run_name=name) if active is None else _start_inside(active, name):
        mlflow.log_params(dict(params))
        log_metrics(metrics)


def log_row_hashes(parts: Mapping[str, tuple[NDArray[np.uint64], int]]) -> None:
    """Log the hashes of the rows that were used, so that a gate can tell fresh rows from them."""
    if not parts:
        return
    frames = [
        pd.DataFrame({"hash": hashes, "part": part, "modulus": modulus})
        for part, (hashes, modulus) in parts.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ROW_HASHES
        pd.concat(frames).to_parquet(path, index=False)
        mlflow.log_artifact(str(path))


def read_row_hashes(run_id: str) -> dict[str, tuple[NDArray[np.uint64], int]]:
    """Return the hashes of the rows that a run used and their modulus, by part; {} where gone."""
    client = mlflow.MlflowClient()
    try:
        if ROW_HASHES not in [each.path for each in client.list_artifacts(run_id)]:
            return {}
    except (MlflowException, OSError) as error:
        if stores.is_absent(error):
            return {}
        raise _unreadable(run_id, error) from error
    with read_artifacts(run_id, ROW_HASHES) as (path,):
        try:
            table = pd.read_parquet(path, columns=["hash", "part", "modulus"])
        except Exception as error:  # pyarrow has errors of many kinds for a broken file
            raise errors.StoreError(
                f"{ROW_HASHES} of run {run_id} is damaged, so nothing tells which rows it used: "
                f"{messages.reason(error)}; restore the file, or calibrate again"
            ) from error
    return {
        str(part): (rows["hash"].to_numpy(dtype=np.uint64), int(rows["modulus"].iloc[0]))
        for part, rows in table.groupby("part")
    }


@contextmanager
def read_artifacts(run_id: str, *names: str) -> Iterator[list[Path]]:
    """Yield the paths of artifacts of a run, which must be there."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = [
                mlflow.artifacts.download_artifacts(
                    run_id=run_id, artifact_path=name, dst_path=folder
                )
                for name in names
            ]
        except (MlflowException, OSError) as error:
            raise _unreadable(run_id, error) from error
        yield [Path(path) for path in paths]


def _unreadable(run_id: str, error: Exception) -> errors.StoreError:
    return errors.StoreError(f"run {run_id} cannot be read: {messages.reason(error)}; try again")


def log_bytes(content: bytes, name: str) -> None:
    """Log a file's content as an artifact of the active run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        mlflow.log_artifact(str(path))


def log_texts_and_figures(texts: Mapping[str, str], figures: Mapping[str, Figure]) -> None:
    """Log texts and figures as artifacts of the active run."""
    for path, text in texts.items():
        mlflow.log_text(text, path)
    for path, figure in figures.items():
        mlflow.log_figure(figure, path, save_kwargs={"dpi": 150})


def log_seal(digests: Mapping[str, str], certificate_digest: str) -> seals.Seal:
    """Seal a model with these files, in the active run; return the seal."""
    sealed = seals.make_seal(digests, certificate_digest)
    mlflow.log_text(seals.files_text(digests), seals.FILES)
    mlflow.set_tags(sealed.tags())
    return sealed


def place_of(run_id: str) -> tuple[str, str, str]:
    """Return a run's id, its store and its experiment, "" where the store no longer answers."""
    experiment_id = ""
    with suppress(MlflowException, OSError):
        experiment_id = str(mlflow.get_run(run_id).info.experiment_id)
    return run_id, mlflow.get_tracking_uri(), experiment_id


def read_tags(run_id: str) -> dict[str, str] | None:
    """Return the tags of a run, None where the store says that there is no such run."""
    try:
        return dict(mlflow.get_run(run_id).data.tags) if run_id else None
    except (MlflowException, OSError) as error:
        if stores.is_absent(error):
            return None
        raise _unreadable(run_id, error) from error


def remember(model_uri: str, name: str, alias: str) -> None:
    """Write down which model was logged and where it is to be registered."""
    mlflow.set_tags({MODEL_URI: model_uri, NAME: name, ALIAS: alias})


def base_tags(base: Base, data: DataRecord) -> dict[str, str]:
    """Return tags that say which classifier was looked at, and on which rows."""
    return {
        MODEL_URI: base.uri,
        "scrib.base_model": base.name,
        "scrib.base_version": base.version,
        "scrib.data_digest": data.digest,
    }


def set_tags(tags: Mapping[str, Any], note: str) -> None:
    """Set tags on the active run, and its description."""
    mlflow.set_tags({**tags, NOTE: note})
