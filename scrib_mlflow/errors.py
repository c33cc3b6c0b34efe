"""Errors that tell a user what is wrong, where, and what to do about it.

Each has the exit code of a command that ends with it: 1 refused, as asked for; 2 what was given is
wrong, or not there; 3 a store, a model or data cannot be reached or read, so nothing is decided;
4 nobody knows whether the alias moved. (5, an alarm of a monitor, is no error.)
"""

from __future__ import annotations

from scrib_mlflow.messages import bounded


class ScribError(ValueError):
    """Something that the user can put right; its text shows no secret, and ends somewhere."""

    def __init__(self, text: str = "") -> None:
        """Keep the text as it may be printed and stored."""
        super().__init__(bounded(text))

    exit_code = 2


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
    """A table that lacks what is needed."""


class UnreadableDataError(InvalidDataError):
    """A table that cannot be read, or not be reached."""

    exit_code = 3


class OutputError(ScribError):
    """A folder that cannot be written, or holds something else."""


class StoreError(ScribError):
    """A tracking store or model registry that does not answer, or refuses."""

    exit_code = 3


class UnknownOutcomeError(StoreError):
    """An alias of which nobody knows whether it moved."""

    exit_code = 4


class ModelError(ScribError):
    """A model that is not there, or gives no scores."""


class UnreadableModelError(ModelError):
    """A model that is there, but cannot be read or loaded."""

    exit_code = 3


class ChangedModelError(ModelError):
    """A set classifier that is not as it was registered, or not signed."""

    exit_code = 1


class NotCertifiedError(ScribError):
    """A set classifier that is there, but without the certificate that was required."""

    exit_code = 1
