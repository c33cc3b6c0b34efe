"""Class-specific risk control with abstention for registered models.

Public names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrib_mlflow.core.baselines import (
        fit_label as fit_label,
    )
    from scrib_mlflow.core.baselines import (
        fit_sgr as fit_sgr,
    )
    from scrib_mlflow.core.baselines import (
        fit_shared_threshold as fit_shared_threshold,
    )
    from scrib_mlflow.core.baselines import (
        fit_top1 as fit_top1,
    )
    from scrib_mlflow.core.candidates import with_candidates as with_candidates
    from scrib_mlflow.core.certificate import Certificate as Certificate
    from scrib_mlflow.core.certificate import Claim as Claim
    from scrib_mlflow.core.certificate import certify_path as certify_path
    from scrib_mlflow.core.certificate import certify_sets as certify_sets
    from scrib_mlflow.core.compare import Comparison as Comparison
    from scrib_mlflow.core.evaluate import (
        ClassReport as ClassReport,
    )
    from scrib_mlflow.core.evaluate import (
        SetReport as SetReport,
    )
    from scrib_mlflow.core.evaluate import (
        evaluate_sets as evaluate_sets,
    )
    from scrib_mlflow.core.fit import fit_thresholds as fit_thresholds
    from scrib_mlflow.core.fits import ConstraintFit as ConstraintFit
    from scrib_mlflow.core.fits import Fit as Fit
    from scrib_mlflow.core.frontier import TargetFrontier as TargetFrontier
    from scrib_mlflow.core.optimal import fit_optimal as fit_optimal
    from scrib_mlflow.core.path import Path as Path
    from scrib_mlflow.core.path import draw_path as draw_path
    from scrib_mlflow.core.plan import Plan as Plan
    from scrib_mlflow.core.plan import make_plan as make_plan
    from scrib_mlflow.core.rules import (
        OptimalRule as OptimalRule,
    )
    from scrib_mlflow.core.rules import (
        SelectiveRule as SelectiveRule,
    )
    from scrib_mlflow.core.rules import (
        ThresholdRule as ThresholdRule,
    )
    from scrib_mlflow.core.rules import (
        TopRule as TopRule,
    )
    from scrib_mlflow.core.rules import (
        predict_sets as predict_sets,
    )
    from scrib_mlflow.core.tally import tally_sets as tally_sets
    from scrib_mlflow.errors import ScribError as ScribError
    from scrib_mlflow.results import Decision as Decision
    from scrib_mlflow.results import Predictions as Predictions
    from scrib_mlflow.results import SetClassifier as SetClassifier
    from scrib_mlflow.results import from_json as from_json
    from scrib_mlflow.results import to_json as to_json
    from scrib_mlflow.workflows.calibrate import Calibration as Calibration
    from scrib_mlflow.workflows.calibrate import calibrate as calibrate
    from scrib_mlflow.workflows.compare import Compared as Compared
    from scrib_mlflow.workflows.compare import compare as compare
    from scrib_mlflow.workflows.evaluate import Evaluation as Evaluation
    from scrib_mlflow.workflows.evaluate import evaluate as evaluate
    from scrib_mlflow.workflows.frontier import Explored as Explored
    from scrib_mlflow.workflows.frontier import frontier as frontier
    from scrib_mlflow.workflows.gate import Gated as Gated
    from scrib_mlflow.workflows.gate import gate as gate
    from scrib_mlflow.workflows.plan import Planned as Planned
    from scrib_mlflow.workflows.plan import plan as plan
    from scrib_mlflow.workflows.predict import Predicted as Predicted
    from scrib_mlflow.workflows.predict import predict as predict
    from scrib_mlflow.workflows.register import register as register
    from scrib_mlflow.workflows.reproduce import Reproduced as Reproduced
    from scrib_mlflow.workflows.reproduce import reproduce as reproduce

__version__ = "0.1.0"

_HOMES = {
    "Calibration": "workflows.calibrate",
    "Certificate": "core.certificate",
    "Claim": "core.certificate",
    "ClassReport": "core.evaluate",
    "Compared": "workflows.compare",
    "Comparison": "core.compare",
    "ConstraintFit": "core.fits",
    "Decision": "results",
    "Evaluation": "workflows.evaluate",
    "Explored": "workflows.frontier",
    "Fit": "core.fits",
    "Gated": "workflows.gate",
    "OptimalRule": "core.rules",
    "Path": "core.path",
    "Plan": "core.plan",
    "Planned": "workflows.plan",
    "Predicted": "workflows.predict",
    "Predictions": "results",
    "Reproduced": "workflows.reproduce",
    "ScribError": "errors",
    "SelectiveRule": "core.rules",
    "SetClassifier": "results",
    "SetReport": "core.evaluate",
    "TargetFrontier": "core.frontier",
    "ThresholdRule": "core.rules",
    "TopRule": "core.rules",
    "calibrate": "workflows.calibrate",
    "certify_path": "core.certificate",
    "certify_sets": "core.certificate",
    "compare": "workflows.compare",
    "draw_path": "core.path",
    "evaluate": "workflows.evaluate",
    "evaluate_sets": "core.evaluate",
    "fit_label": "core.baselines",
    "fit_optimal": "core.optimal",
    "fit_sgr": "core.baselines",
    "fit_shared_threshold": "core.baselines",
    "fit_thresholds": "core.fit",
    "fit_top1": "core.baselines",
    "from_json": "results",
    "frontier": "workflows.frontier",
    "gate": "workflows.gate",
    "make_plan": "core.plan",
    "plan": "workflows.plan",
    "predict": "workflows.predict",
    "predict_sets": "core.rules",
    "register": "workflows.register",
    "reproduce": "workflows.reproduce",
    "tally_sets": "core.tally",
    "to_json": "results",
    "with_candidates": "core.candidates",
}

__all__ = [*_HOMES]  # noqa: PLE0604  # names are listed once, above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
