"""Errors that tell a user what is wrong, where, and what to do about it."""

from __future__ import annotations

from scrib_mlflow.messages import bounded


class ScribError(ValueError):
    """Something that the user can put right; its text shows no secret, and ends somewhere."""

    def __init__(self, text: str = "") -> None:
        """Keep the text as it may be printed and stored."""
        super().__init__(bounded(text))


class InvalidScoresError(ScribError):
    """Scores that cannot be used."""


class InvalidLabelsError(ScribError):
    """Labels or classes that cannot be used."""


class MissingLabelsError(InvalidLabelsError):
    """Rows without a label."""


class InvalidTargetsError(ScribError):
    """Targets, penalties or weights of the loss that cannot be used."""


class InvalidWeightsError(ScribError):
    """Sample weights that cannot be used."""


class SearchMismatchError(RuntimeError):
    """The search counted other rows than the served rule does: a defect of this package."""


class InvalidSettingsError(ScribError):
    """Parameters of a command that cannot be used."""


class InvalidDataError(ScribError):
    """A table that cannot be read, or lacks what is needed."""


class OutputError(ScribError):
    """A folder that cannot be written, or holds something else."""


class StoreError(ScribError):
    """A tracking store or model registry that does not answer, or refuses."""


class ModelError(ScribError):
    """A model that is not there, or gives no scores."""


class NotCertifiedError(ScribError):
    """A set classifier that is there, but without the certificate that was required."""
