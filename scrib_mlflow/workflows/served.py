"""A registered set classifier as it is stored, and what its answers to labelled rows amount to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException

from scrib_mlflow.adapters import digests, runs
from scrib_mlflow.adapters.digests import Hashes
from scrib_mlflow.core.certificate import make_certificate
from scrib_mlflow.core.evaluate import SetReport, report_counts
from scrib_mlflow.core.fits import NAN
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.core.tally import Tally
from scrib_mlflow.core.targets import OVERALL, Targets, make_constraints
from scrib_mlflow.errors import ModelError
from scrib_mlflow.results import SetClassifier, from_json
from scrib_mlflow.workflows.engines import Answered
from scrib_mlflow.workflows.parts import Rows


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


ANY_TARGET = Targets(risk_targets=0.5, overall_target=0.5)  # bounds do not depend on it


def report_rule(rows: Rows, rule: Rule, classes: tuple[str, ...], confidence: float) -> SetReport:
    """Measure a rule on all rows of a part."""
    report = report_counts(rows.count(rule), classes, confidence, counted=True)
    if rows.n_groups is None:
        return report
    (tally,) = rows.tallies([rule], make_constraints(ANY_TARGET, classes))
    return with_groups(report, tally)


def report_answers(rows: Answered, classes: tuple[str, ...], confidence: float) -> SetReport:
    """Measure the sets that rows were served."""
    report = report_counts(rows.count(), classes, confidence, counted=True)
    if not rows.grouped:
        return report
    return with_groups(report, rows.tally(make_constraints(ANY_TARGET, classes)))


def with_groups(report: SetReport, tally: Tally) -> SetReport:
    """Return a report whose bounds heed the groups of rows; the paper's cannot, and is undefined.

    The tally is of claims about each class and about all of them.
    """
    claimed = make_constraints(ANY_TARGET, report.classes)
    found = make_certificate(tally, claimed, report.classes, level=1 - report.confidence)
    bounds = {claim.name: claim.risk_upper for claim in found.claims}
    return replace(
        report,
        overall_risk_upper=bounds[OVERALL],
        by_class={
            name: replace(each, risk_upper=bounds[name], risk_upper_kl=NAN)
            for name, each in report.by_class.items()
        },
    )


def compare_with_calibration(run_id: str, rows: Answered) -> digests.Overlap | None:
    """Compare rows with those that a calibration used, None where these are not at hand.

    Rows that drew a path have no label, so their comparison leaves labels out.
    """
    known = runs.read_cases(run_id) if run_id else {}
    asked: list[tuple[tuple[str, ...], Hashes | None]] = [
        (("fit", "certify"), rows.cases(labelled=True)),
        (("path",), rows.cases(labelled=False)),
        (("fit keys", "certify keys", "path keys"), rows.keys()),
    ]
    found = []
    for parts, hashes in asked:
        seen = [known[part] for part in parts if part in known]
        if seen and hashes is not None:
            modulus = max(hashes.modulus, *(kept for _, kept in seen))
            used = np.concatenate([kept for kept, _ in seen])
            found.append(digests.compare_rows(used, hashes.values, modulus))
    return max(found, key=lambda each: (each.excessive, each.n_shared), default=None)
