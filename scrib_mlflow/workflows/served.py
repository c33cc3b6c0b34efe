"""A registered set classifier, as it is stored and as it answers labelled rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from numpy.typing import NDArray

from scrib_mlflow import serving
from scrib_mlflow.adapters import digests, runs, scoring, stores, tables
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.checks import labels_for
from scrib_mlflow.core.evaluate import SetReport, measure_sets
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.tally import tally_sets
from scrib_mlflow.core.targets import OVERALL, Targets, make_constraints
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.results import SetClassifier, from_json
from scrib_mlflow.workflows.rows import UNLABELLED, Table


class Served(NamedTuple):
    """What a model answers to rows."""

    scores: NDArray[np.float64]  # (n, k) NaN in rows that it could not score
    sets: NDArray[np.bool_]  # (n, k)
    n_invalid: int  # rows that it could not score


class Stored(NamedTuple):
    """A set classifier, and the text of `scrib.json` that says so."""

    record: SetClassifier
    text: str


def read_stored(uri: str) -> Stored:
    """Return what `scrib.json` of a registered set classifier says."""
    try:
        info = mlflow.models.get_model_info(uri)  # unlike Model.load, it takes models:/m-ID
        artifacts = info.flavors["python_function"].get("artifacts", {})
        place = artifacts["scrib"]["path"]
        path = mlflow.artifacts.download_artifacts(artifact_uri=f"{_files(uri)}/{place}")
    except (KeyError, MlflowException, OSError) as error:
        msg = f"{uri} is no set classifier of scrib_mlflow; make one of it with calibrate"
        raise ModelError(msg) from error
    text = Path(path).read_text(encoding="utf-8")
    record = from_json(text)
    if not isinstance(record, SetClassifier):
        msg = f"scrib.json of {uri} holds a {type(record).__name__}, not a set classifier"
        raise ModelError(msg)
    return Stored(record, text)


def _files(uri: str) -> str:
    """Return where a model's files are; MLflow finds none by models:/m-ID with a path."""
    model_id = uri.removeprefix("models:/")
    if "/" in model_id or not model_id.startswith("m-"):
        return uri
    return str(mlflow.MlflowClient().get_logged_model(model_id).artifact_location)


def label_indices(table: Table, classes: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the labels of a table as class indices."""
    place = f"column {table.label!r} of {table.what}"
    return tables.label_indices(table.rows[table.label], classes, place=place)


def model_features(model: PyFuncModel, table: Table) -> pd.DataFrame:
    """Return what the model takes of a table."""
    inputs = model.metadata.get_input_schema()
    features = tables.features(table.rows, inputs, [str(table.label), *table.beside])
    if features is None:
        msg = f"{table.what} cannot be scored: {tables.missing_features(table.rows, inputs)}"
        raise InvalidDataError(msg)
    return features


def answer(
    model: PyFuncModel, features: pd.DataFrame, classes: tuple[str, ...], batch_rows: int
) -> Served:
    """Return the sets that the model serves, with the scores that it made them from."""
    index = {name: j for j, name in enumerate(classes)}
    sets = np.zeros((len(features), len(index)), dtype=np.bool_)
    scores = np.full(sets.shape, NAN)
    n_invalid = 0
    for start, batch in scoring.batches(features, batch_rows, "data"):
        try:
            answers: Any = model.predict(batch, params={"explain": True})
        except MlflowException as error:
            if serving.NONE_SCORED in str(error) and len(batch) < len(features):
                n_invalid += len(batch)
                continue
            msg = f"the model refuses rows {start} to {start + len(batch) - 1} of data: "
            raise InvalidDataError(msg + stores.reason(error)) from error
        scored = np.flatnonzero(answers["reason"] != "invalid_scores")
        n_invalid += len(batch) - len(scored)
        if len(scored):
            given = answers["scores"].to_numpy()
            scores[start + scored] = given[scored].tolist()
        for row, members in enumerate(answers["prediction_set"], start):
            sets[row, [index[name] for name in members]] = True
    return Served(scores, sets, n_invalid)


def report_sets(
    sets: NDArray[np.bool_],
    labels: NDArray[np.int32],
    classes: tuple[str, ...],
    confidence: float,
    groups: NDArray[np.int64] | None = None,
) -> SetReport:
    """Measure sets on the labelled rows they were made for.

    Where rows come in groups the upper bounds heed them; the paper's cannot, and is undefined.
    """
    rows = check_rows(
        sets.astype(np.float64),  # in place of scores, which sets have made superfluous
        labels_for(labels, classes),
        classes,
        None,
        least_rows=1,
    )
    report = measure_sets(sets, rows, confidence)
    if groups is None:
        return report
    any_target = Targets(risk_targets=0.5, overall_target=0.5)  # bounds do not depend on it
    claimed = make_constraints(any_target, classes)
    tally = tally_sets(sets, labels, claimed, groups)
    found = make_certificate(tally, claimed, classes, level=1 - confidence)
    bounds = {claim.name: claim.risk_upper for claim in found.claims}
    return replace(
        report,
        overall_risk_upper=bounds[OVERALL],
        by_class={
            name: replace(each, risk_upper=bounds[name], risk_upper_kl=NAN)
            for name, each in report.by_class.items()
        },
    )


def compare_with_calibration(
    run_id: str, table: Table, labels: NDArray[np.int32], features: pd.DataFrame
) -> digests.Overlap | None:
    """Compare rows with those that a calibration used, None where these are not at hand.

    Rows that drew a path have no label, so their comparison leaves labels out.
    """
    known = runs.read_cases(run_id) if run_id else {}
    asked = {
        ("fit", "certify"): digests.case_hashes(features, labels),
        ("path",): digests.case_hashes(features, np.full_like(labels, UNLABELLED)),
    }
    if table.keys is not None:
        asked[("fit keys", "certify keys", "path keys")] = table.keys
    found = []
    for parts, hashes in asked.items():
        seen = [known[part] for part in parts if part in known]
        if seen:
            modulus = max(kept for _, kept in seen)
            used = np.concatenate([kept for kept, _ in seen])
            found.append(digests.compare_rows(used, hashes, modulus))
    return max(found, key=lambda each: (each.excessive, each.n_shared), default=None)
