"""Libraries that only the paper's experiments need, behind the extra `paper`."""

from __future__ import annotations

from importlib.util import find_spec

from scrib_mlflow.errors import ScribError


def why_missing(module: str) -> str:
    """Return why a library cannot be used and what to do, nothing where it can."""
    if find_spec(module) is not None:
        return ""
    return f"{module} is not installed; pip install 'scrib_mlflow[paper]'"


def require(module: str) -> None:
    """Raise where a library is not installed."""
    reason = why_missing(module)
    if reason:
        raise ScribError(reason)
