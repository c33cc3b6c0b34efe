"""Small texts that every room needs."""

import pytest

from scrib_mlflow.messages import percent, percents


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.1, "10.0 %"),
        (0.12345, "12.3 %"),
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.01, "1.0 %"),
        (0.004, "0.4 %"),
        (0.0044, "0.44 %"),
        (0.0005, "0.05 %"),
        (0.000512, "0.051 %"),
        (0.00001, "0.001 %"),
        (0.9996, "99.96 %"),
        (float("nan"), "-"),
    ],
)
def test_a_percentage_has_one_decimal_and_near_0_and_100_as_many_as_it_needs(rate, text):
    assert percent(rate) == text


def test_percentages_that_are_compared_look_different_where_they_differ():
    assert percents(0.10004, 0.1) == ["10.004 %", "10.0 %"]
    assert percents(0.1, 0.1) == ["10.0 %", "10.0 %"]
    assert percents(0.2, float("nan")) == ["20.0 %", "-"]
    assert len({*percents(0.004, 0.00449, 0.0045)}) == 3
