"""A status says no more than is true."""

import numpy as np

import scrib_mlflow
from scrib_mlflow.report import facts

CLASSES = ["safe", "unclear", "bad", "silent", "absent", "free"]
TARGETS = dict.fromkeys(CLASSES[:5], 0.1)


def measure():
    """Rows of which each class has a fate of its own."""
    certain = {"safe": (100, 2), "unclear": (20, 1), "bad": (50, 20), "free": (10, 5)}
    sets, labels = [], []
    for name, (n, wrong) in certain.items():
        j = CLASSES.index(name)
        for i in range(n):
            row = [0.0] * 6
            row[(j + 1) % 6 if i < wrong else j] = 1.0
            sets.append(row)
            labels.append(name)
    sets += [[0.0] * 6] * 5
    labels += ["silent"] * 5
    return scrib_mlflow.evaluate_sets(np.array(sets), labels, [0.5] * 6, classes=CLASSES)


def statuses(found):
    return {line.name: line.status for line in found}


def test_a_measured_status_compares_bound_risk_and_target():
    found = statuses(facts.measured_lines(measure(), TARGETS, 0.1, proves=True))
    assert found == {
        "safe": "bound within target",
        "unclear": "bound above target",
        "bad": "risk above target",
        "silent": "silent",
        "absent": "no rows",
        "free": "no target",
        "overall": "risk above target",
    }


def test_where_bounds_mean_nothing_there_are_none_and_nothing_is_within():
    found = facts.measured_lines(measure(), TARGETS, None, proves=False)
    assert all(np.isnan(line.upper) for line in found)
    assert statuses(found)["safe"] == statuses(found)["unclear"] == "nothing proved"
    assert statuses(found)["bad"] == "risk above target"
    assert not any(line.tone == "good" for line in found)


def test_the_sentence_of_a_measurement_counts_what_is_within_and_names_what_is_above():
    found = facts.measured_lines(measure(), TARGETS, None, proves=True)
    told = facts.measured_sentence(found, fitted=False)
    assert told == (
        "Measured: the upper bound is within its target for 1 of 5 risks; measured above it: "
        "bad (40.0 %)."
    )
    assert "Nothing is proved" in facts.measured_sentence(found, fitted=True)


def test_fresh_rows_certify_what_the_policy_asks_for():
    labels = ["safe"] * 100 + ["bad"] * 50
    scores = np.zeros((150, 6))
    scores[:100, 0] = scores[100:, 2] = 1
    scores[100:120, 2], scores[100:120, 3] = 0, 1
    waived = ["unclear", "silent", "absent", "free"]
    certificate = scrib_mlflow.certify_sets(
        scores, labels, [0.5] * 6, {"safe": 0.1, "bad": 0.1}, classes=CLASSES, waive=waived
    )
    found = statuses(facts.certificate_lines(measure(), certificate, without="not asked"))
    assert found["free"] == "not asked"
    assert found["bad"] == "not certified"
    assert found["safe"] == "passes alone"


def test_what_is_refuted_stands_beside_the_target_that_the_version_claims():
    found = facts.refuted_lines(measure(), {"safe": 0.2, "bad": 0.07}, None, ["bad"])
    by_name = {line.name: line for line in found}
    assert (by_name["bad"].target, by_name["bad"].status) == (0.07, "refuted")
    assert (by_name["safe"].target, by_name["safe"].status) == (0.2, "not refuted")
    assert by_name["free"].status == "no target"
    assert by_name["bad"].tone == "bad"
