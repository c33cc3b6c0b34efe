"""The search: thresholds that keep the targets with the least ambiguity, fast."""

from scrib_mlflow.core.search.fit import fit_thresholds

__all__ = ["fit_thresholds"]
