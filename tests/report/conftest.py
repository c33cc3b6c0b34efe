"""Reports are drawn in full here."""

import pytest


@pytest.fixture(autouse=True)
def _with_figures(real_page):
    pass
