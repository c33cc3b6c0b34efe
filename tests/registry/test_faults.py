"""One call goes wrong, whichever it is: nothing is lost or overclaimed, and once more finishes it.

The slow tests walk through the calls of a command and let them fail one by one, in every way that
`tests/proxy.py` knows. They print their figures in the summary of pytest; `SCRIB_EVERY_FAULT=1`
tries every fault at every call, which takes hours.
"""

import pytest

from tests.registry import trials
from tests.registry.trials import FRESH, NAME, gating, predicting, walk

GATE = ["gate", "--model_uri", f"models:/{NAME}/2"]


def check(figures, record_property):
    record_property("figures", figures.table())
    assert not figures.broken, figures.table()


@pytest.mark.slow
def test_a_fault_in_any_call_of_a_gate_leaves_the_alias_where_its_exit_code_says(
    site, record_property
):
    check(walk(site, "gate", gating(GATE)), record_property)


@pytest.mark.slow
def test_so_it_does_with_fresh_rows(site, record_property):
    promises = gating([*GATE, *FRESH])
    check(walk(site, "gate with data", promises, all_writes=False), record_property)


@pytest.mark.slow
def test_a_fault_in_any_call_of_predict_leaves_the_output_whole_or_none(site, record_property):
    check(walk(site, "predict", predicting()), record_property)
