"""One call of what registers versions goes wrong: no version claims more than it has."""

import pytest

from tests.registry.test_faults import check
from tests.registry.trials import (
    LATE,
    NAME,
    calibrate_words,
    registering,
    unregistered_run,
    walk,
)

pytestmark = pytest.mark.slow


def test_a_fault_in_any_call_of_calibrate_leaves_nothing_that_claims_too_much(
    site, record_property
):
    promises = registering(calibrate_words("--seed", "2"), NAME)
    check(walk(site, "calibrate", promises, most=40), record_property)


def test_a_fault_in_any_call_of_register_can_be_finished_by_itself(site, record_property):
    run_id = unregistered_run(site)
    site.save()
    words = ["register", "--run_id", run_id]
    check(walk(site, "register", registering(words, LATE, run_id=run_id), most=40), record_property)
