"""A registered classifier, and files of rows for it."""

import pytest

from tests.models import draw_table, register_pipeline


@pytest.fixture
def base(store):
    """A registered classifier, and files of rows for it."""
    uri = register_pipeline()
    draw_table(600, seed=2).to_parquet("fit.parquet")
    draw_table(500, seed=3).to_csv("other.csv", index=False)
    return uri
