"""The bounded Newton method against scipy's."""

import numpy as np
import pytest
from scipy import optimize, special

from scrib_mlflow.core.newton import Point, minimise


def valley(seed, *, sharpness):
    """Return a convex function that is nearly piecewise linear, with its derivatives."""
    rng = np.random.default_rng(seed)
    slopes, heights = rng.normal(size=(12, 4)), rng.normal(size=12)

    def function(x):
        shares = special.softmax(sharpness * (slopes @ x + heights))
        value = special.logsumexp(sharpness * (slopes @ x + heights)) / sharpness
        gradient = shares @ slopes + 0.02 * x
        second = sharpness * (slopes.T * shares) @ slopes + 0.02 * np.eye(4)
        second -= sharpness * np.outer(shares @ slopes, shares @ slopes)
        return Point(x, value + 0.01 * x @ x, gradient, second)

    return function


@pytest.mark.parametrize("sharpness", [1.0, 30.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_least_within_bounds_is_found(seed, sharpness):
    function = valley(seed, sharpness=sharpness)
    low, high = np.full(4, -0.3), np.full(4, 0.5)
    found = minimise(function, np.full(4, 5.0), low, high, least_fall=1e-9, most_steps=200)
    wanted = optimize.minimize(
        lambda x: function(x)[1:3], np.zeros(4), jac=True, bounds=list(zip(low, high, strict=True))
    )
    assert found.value <= wanted.fun + 1e-5  # scipy's method may end higher
    assert (low <= found.x).all()
    assert (found.x <= high).all()


def test_steps_end_after_as_many_as_allowed():
    seen = []
    function = valley(0, sharpness=30.0)

    def counted(x):
        seen.append(x)
        return function(x)

    minimise(counted, np.full(4, 9.0), np.full(4, -9.0), np.full(4, 9.0),
             least_fall=0.0, most_steps=7)  # fmt: skip
    assert len(seen) <= 8
