"""What `predict` leaves behind in a run, and in the folder that it writes."""

from __future__ import annotations

from datetime import datetime, timezone

import pandas as pd

import scrib_mlflow
from scrib_mlflow.adapters import runs
from scrib_mlflow.results import DataRecord, Predictions, to_json
from scrib_mlflow.settings import Predict

COUNTED = {"ambiguous": "n_ambiguous", "empty": "n_empty", "invalid_scores": "n_invalid"}


def make_record(
    settings: Predict, model_uri: str, certificate_digest: str, run_id: str
) -> Predictions:
    """Return a record of answers before any are counted."""
    return Predictions(
        model_uri=model_uri,
        certificate_digest=certificate_digest,
        data=DataRecord(source=settings.data, digest="", n_rows=0, n_used=0),
        key=settings.key,
        explain=settings.explain,
        engine=settings.engine,
        n_rows=0,
        n_abstained=0,
        reasons={},
        columns={},
        parts=(),
        run_id=run_id,
        written_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        package_version=scrib_mlflow.__version__,
    )


def log_predictions(record: Predictions, some_rows: pd.DataFrame, output: str) -> None:
    """Log which rows were answered, and how often the model abstained."""
    runs.log_table_input(some_rows, record.data, None, "predict")
    share = record.n_abstained / record.n_rows
    counts = {name: float(record.reasons.get(reason, 0)) for reason, name in COUNTED.items()}
    runs.log_metrics({"n_rows": float(record.n_rows), "abstention_rate": share, **counts})
    runs.set_tags(
        {runs.MODEL_URI: record.model_uri, "scrib.data_digest": record.data.digest},
        f"{record.model_uri} answered {record.n_rows:,} rows of {record.data.source} into "
        f"{output} and abstained on {share:.1%} of them.",
    )
    runs.log_texts_and_figures({"predictions.json": to_json(record)}, {})
