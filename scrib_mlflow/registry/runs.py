"""Runs: what a command leaves behind in MLflow's tracking store."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from mlflow.data.meta_dataset import MetaDataset
from mlflow.data.pandas_dataset import PandasDataset, from_pandas
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

from scrib_mlflow import errors, messages
from scrib_mlflow.core.certificate import Certificate
from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.core.reports import SetReport
from scrib_mlflow.core.targets import OVERALL
from scrib_mlflow.records import Base, DataRecord, frame_name
from scrib_mlflow.registry import ledger

REPORT_METRICS = (
    "abstention_rate",
    "chance_ambiguity",
    "size_ambiguity",
    "empty_rate",
    "overall_risk",
    "overall_risk_upper",
    "overall_top1_risk",
    "overall_top1_risk_certain",
)
CLASS_METRICS = {  # and the fields of a class's report
    "risk": "risk",
    "risk_upper": "risk_upper",
    "risk_upper_kl": "risk_upper_kl",
    "miscoverage": "miscoverage",
    "abstention": "abstention_rate",
    "n_certain": "n_certain",
    "top1_risk": "top1_risk",
    "top1_risk_certain": "top1_risk_certain",
}
ROW_HASHES = "rows.parquet"
NOTE = "mlflow.note.content"  # tag of a run's description
MODEL_URI = "scrib.model_uri"  # tag of a run that has made or measured something
NAME, ALIAS = "scrib.registered_model_name", "scrib.alias"  # tags of a calibrate run


@contextmanager
def open_run(name: str) -> Iterator[str]:
    """Yield the id of the run to log to: the one that is open, `mlflow run`'s, or a new one."""
    with ExitStack() as stack:
        try:
            run = mlflow.active_run()
            if run is None:
                started = None if "MLFLOW_RUN_ID" in os.environ else name
                run = stack.enter_context(mlflow.start_run(run_name=started))
            tags = mlflow.get_run(run.info.run_id).data.tags
            if MODEL_URI in tags or ledger.DIGEST in tags:  # another command has used it
                run = stack.enter_context(mlflow.start_run(run_name=name, nested=True))
        except (MlflowException, OSError) as error:
            raise errors.StoreError(f"no run can be started: {messages.reason(error)}") from error
        yield str(run.info.run_id)


@contextmanager
def resumed(run_id: str) -> Iterator[None]:
    """Make a run the active one, if it is not."""
    active = mlflow.active_run()
    same = active is not None and active.info.run_id == run_id
    with nullcontext() if same else mlflow.start_run(run_id=run_id, nested=active is not None):
        yield


def log_parameters(run_id: str, parameters: Mapping[str, Any]) -> None:
    """Log parameters that the run does not have; `mlflow run` logs those of its command line."""
    known = mlflow.get_run(run_id).data.params
    values = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in parameters.items()
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
        mlflow.log_input(TableDataset(like, record), context=context)


def report_metrics(report: SetReport, *, prefix: str = "") -> dict[str, float]:
    """Return metrics by name; on rows of the fit the prefix is ``fit_``."""
    values = {f"{prefix}{name}": float(getattr(report, name)) for name in REPORT_METRICS}
    parts = report.by_class | report.by_risk_group
    for name, safe in zip(parts, messages.safe_names([*parts]), strict=True):
        of_class = parts[name]
        for metric, field in CLASS_METRICS.items():
            values[f"{prefix}{metric}/{safe}"] = float(getattr(of_class, field))
    return values


def certificate_metrics(
    certificate: Certificate, classes: Sequence[str], *, prefix: str = ""
) -> dict[str, float]:
    """Return p-values by class and of the whole."""
    others = [c.name for c in certificate.claims if c.name not in {*classes, OVERALL}]
    names = [*classes, *others]
    safe = dict(zip(names, messages.safe_names(names), strict=True))
    values = {f"{prefix}p_value": certificate.p_value}
    for claim in certificate.claims:
        if claim.name in safe:
            values[f"{prefix}p_value/{safe[claim.name]}"] = claim.p_value
        elif claim.name == OVERALL:
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
    with mlflow.start_run(run_name=name, nested=True):
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
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path=ROW_HASHES, dst_path=folder
            )
        except (MlflowException, OSError):
            return {}
        table = pd.read_parquet(path)
    return {
        str(part): (rows["hash"].to_numpy(dtype=np.uint64), int(rows["modulus"].iloc[0]))
        for part, rows in table.groupby("part")
    }


def log_texts_and_figures(texts: Mapping[str, str], figures: Mapping[str, Figure]) -> None:
    """Log texts and figures as artifacts of the active run."""
    for path, text in texts.items():
        mlflow.log_text(text, path)
    for path, figure in figures.items():
        mlflow.log_figure(figure, path, save_kwargs={"dpi": 150})


def read_tags(run_id: str) -> dict[str, str] | None:
    """Return the tags of a run, None where it is gone."""
    try:
        return dict(mlflow.get_run(run_id).data.tags) if run_id else None
    except MlflowException:
        return None


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
