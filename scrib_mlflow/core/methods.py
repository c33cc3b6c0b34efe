"""The methods that are set side by side: their names, and how each is fitted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.baselines import fit_label, fit_sgr, fit_shared_threshold, fit_top1
from scrib_mlflow.core.fit import fit_thresholds
from scrib_mlflow.core.fits import Fit
from scrib_mlflow.core.optimal import fit_optimal
from scrib_mlflow.core.pricing import check_probabilities
from scrib_mlflow.core.targets import Target
from scrib_mlflow.errors import InvalidScoresError

SCRIB, OPTIMAL, SHARED, SGR, LABEL, TOP = "SCRIB", "optimal", "SCRIB-", "SGR", "LABEL", "top-1"


class Method(NamedTuple):
    """How a method is fitted."""

    fit: Callable[..., Fit]
    trust: NDArray[np.float64] | None = None  # (n,) what it ranks rows by, if it is given


def make_methods(
    targets: dict[str, float],
    sgr_target: float,
    risk_targets: Target,
    overall_target: float | None,
    seed: int,
    common: dict[str, Any],
    sgr_delta: float,
) -> dict[str, Method]:
    """Return how each method is fitted, SCRIB first."""
    asked = {"risk_targets": risk_targets, "overall_target": overall_target, **common}
    free = tuple(name for name in common["classes"] if name not in targets)
    label = {"miscoverage_targets": targets, "classes": common["classes"], "waive": free}
    return {
        SCRIB: Method(partial(fit_thresholds, **asked, seed=seed)),
        OPTIMAL: Method(partial(fit_optimal, **asked, seed=seed)),
        SHARED: Method(partial(fit_shared_threshold, **asked, seed=seed)),
        SGR: Method(partial(fit_sgr, overall_target=sgr_target, delta=sgr_delta, **common)),
        LABEL: Method(partial(fit_label, **label)),
        TOP: Method(partial(fit_top1, **asked)),
    }


def skipped_methods(scores: NDArray[np.float64]) -> dict[str, str]:
    """Return the methods that scores do not allow, and why."""
    try:
        check_probabilities(scores)
    except InvalidScoresError as error:
        return {OPTIMAL: str(error)}
    return {}
