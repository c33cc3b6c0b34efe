"""Errors that tell a user what is wrong, where, and what to do about it."""

from __future__ import annotations


class ScribError(ValueError):
    """Something that the user can put right."""


class InvalidScoresError(ScribError):
    """Scores that cannot be used."""


class InvalidLabelsError(ScribError):
    """Labels or classes that cannot be used."""


class InvalidTargetsError(ScribError):
    """Targets, penalties or weights of the loss that cannot be used."""


class InvalidWeightsError(ScribError):
    """Sample weights that cannot be used."""


class SearchMismatchError(RuntimeError):
    """The search counted other rows than the served rule does: a defect of this package."""
