"""Class-specific risk control with abstention for registered models.

Public names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrib_mlflow.core.certificate import (
        Certificate as Certificate,
        CertifiedFit as CertifiedFit,
        Claim as Claim,
        Path as Path,
        Plan as Plan,
        certify_path as certify_path,
        certify_sets as certify_sets,
        draw_path as draw_path,
        fit_certified as fit_certified,
        make_plan as make_plan,
        tally_sets as tally_sets,
    )
    from scrib_mlflow.core.optimal import fit_optimal as fit_optimal
    from scrib_mlflow.core.reports import (
        ClassReport as ClassReport,
        SetReport as SetReport,
        evaluate_sets as evaluate_sets,
    )
    from scrib_mlflow.core.rules import (
        ConstraintFit as ConstraintFit,
        Fit as Fit,
        OptimalRule as OptimalRule,
        SelectiveRule as SelectiveRule,
        ThresholdRule as ThresholdRule,
        TopRule as TopRule,
        predict_candidates as predict_candidates,
        predict_sets as predict_sets,
        with_candidates as with_candidates,
    )
    from scrib_mlflow.core.search import fit_thresholds as fit_thresholds
    from scrib_mlflow.core.studies import (
        Comparison as Comparison,
        TargetFrontier as TargetFrontier,
        fit_label as fit_label,
        fit_sgr as fit_sgr,
        fit_shared_threshold as fit_shared_threshold,
        fit_top1 as fit_top1,
    )
    from scrib_mlflow.errors import ScribError as ScribError
    from scrib_mlflow.estimator import ScribClassifier as ScribClassifier
    from scrib_mlflow.results import (
        Decision as Decision,
        Predictions as Predictions,
        Selection as Selection,
        SetClassifier as SetClassifier,
        from_json as from_json,
        to_json as to_json,
    )
    from scrib_mlflow.workflows.calibrate import Calibration as Calibration, calibrate as calibrate
    from scrib_mlflow.workflows.compare import Compared as Compared, compare as compare
    from scrib_mlflow.workflows.evaluate import Evaluation as Evaluation, evaluate as evaluate
    from scrib_mlflow.workflows.frontier import Explored as Explored, frontier as frontier
    from scrib_mlflow.workflows.gate import Gated as Gated, gate as gate
    from scrib_mlflow.workflows.monitor import Monitored as Monitored, monitor as monitor
    from scrib_mlflow.workflows.plan import Planned as Planned, plan as plan
    from scrib_mlflow.workflows.predict import Predicted as Predicted, predict as predict
    from scrib_mlflow.workflows.register import register as register
    from scrib_mlflow.workflows.select import Selected as Selected, select as select

__version__ = "0.1.0"

_NAMES = {  # public names by the module that defines them
    "core.certificate": "Certificate CertifiedFit Claim Path Plan certify_path certify_sets "
    "draw_path fit_certified make_plan tally_sets",
    "core.optimal": "fit_optimal",
    "core.reports": "ClassReport SetReport evaluate_sets",
    "core.rules": "ConstraintFit Fit OptimalRule SelectiveRule ThresholdRule TopRule "
    "predict_candidates predict_sets with_candidates",
    "core.search": "fit_thresholds",
    "core.studies": "Comparison TargetFrontier fit_label fit_sgr fit_shared_threshold fit_top1",
    "errors": "ScribError",
    "estimator": "ScribClassifier",
    "results": "Decision Predictions Selection SetClassifier from_json to_json",
    "workflows.calibrate": "Calibration calibrate",
    "workflows.compare": "Compared compare",
    "workflows.evaluate": "Evaluation evaluate",
    "workflows.frontier": "Explored frontier",
    "workflows.gate": "Gated gate",
    "workflows.monitor": "Monitored monitor",
    "workflows.plan": "Planned plan",
    "workflows.predict": "Predicted predict",
    "workflows.register": "register",
    "workflows.select": "Selected select",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]  # noqa: PLE0604  # names are listed once, above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
