"""Targets as users give them."""

import pytest

from scrib_mlflow.core.targets import as_given


@pytest.mark.parametrize(
    ("by_class", "given", "wanted"),
    [
        ({"a": 0.1, "b": 0.1}, 0.1, {"default": 0.1}),
        ({"a": 0.1, "b": 0.1}, {"a": 0.1, "default": 0.1}, {"a": 0.1, "default": 0.1}),
        ({"a": 0.2, "b": 0.1, "c": 0.1}, 0.1, {"a": 0.2, "default": 0.1}),
        ({"a": 0.2}, {"a": 0.1}, {"a": 0.2}),
        ({}, None, None),
    ],
)
def test_targets_by_class_keep_which_ones_were_named(by_class, given, wanted):
    assert as_given(by_class, given) == wanted
