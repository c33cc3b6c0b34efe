"""Studies before a calibration: methods side by side, and what targets cost."""

from scrib_mlflow.core.studies.baselines import fit_label, fit_sgr, fit_shared_threshold, fit_top1
from scrib_mlflow.core.studies.compare import Comparison, compare_rules
from scrib_mlflow.core.studies.curves import Curve, draw_curves
from scrib_mlflow.core.studies.frontier import TargetFrontier, draw_frontier

__all__ = [
    "Comparison",
    "Curve",
    "TargetFrontier",
    "compare_rules",
    "draw_curves",
    "draw_frontier",
    "fit_label",
    "fit_sgr",
    "fit_shared_threshold",
    "fit_top1",
]
