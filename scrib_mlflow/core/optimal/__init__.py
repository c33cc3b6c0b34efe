"""The optimal rule: of all rules that keep the targets, the one that abstains least.

It needs calibrated probabilities, so recalibration lives here too.
"""

from scrib_mlflow.core.optimal.fit import AbstentionGap, fit_optimal, measure_gap
from scrib_mlflow.core.optimal.recalibration import fit_recalibration, recalibrate

__all__ = ["AbstentionGap", "fit_optimal", "fit_recalibration", "measure_gap", "recalibrate"]
