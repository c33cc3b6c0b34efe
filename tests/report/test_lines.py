"""A status says no more than is true."""

import numpy as np

import scrib_mlflow
from scrib_mlflow.report.facts import class_table
from scrib_mlflow.report.words import measured_sentence

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


def statuses(table):
    return {row.name: row.status for row in table.rows}


def test_a_measured_status_compares_bound_risk_and_target():
    found = statuses(class_table(measure(), TARGETS, 0.1))
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
    found = class_table(measure(), TARGETS, proves=False)
    assert all(np.isnan(row.bound) for row in found.rows)
    assert statuses(found)["safe"] == statuses(found)["unclear"] == "nothing proved"
    assert statuses(found)["bad"] == "risk above target"
    assert not any(row.tone == "good" for row in found.rows)


def test_the_sentence_of_a_measurement_counts_what_is_within_and_names_what_is_above():
    found = class_table(measure(), TARGETS)
    told = measured_sentence(found, fitted=False)
    assert told == (
        "Measured: the upper bound is within its target for 1 of 5 risks; measured above it: "
        "bad (40.0 %)."
    )
    assert "Nothing is proved" in measured_sentence(found, fitted=True)


def test_fresh_rows_certify_what_the_policy_asks_for():
    labels = ["safe"] * 100 + ["bad"] * 50
    scores = np.zeros((150, 6))
    scores[:100, 0] = scores[100:, 2] = 1
    scores[100:120, 2], scores[100:120, 3] = 0, 1
    waived = ["unclear", "silent", "absent", "free"]
    certificate = scrib_mlflow.certify_sets(
        scores, labels, [0.5] * 6, {"safe": 0.1, "bad": 0.1}, classes=CLASSES, waive=waived
    )
    table = class_table(measure(), {}, certificate=certificate, unclaimed="not asked")
    found = statuses(table)
    assert found["free"] == "not asked"
    assert found["bad"] == "not certified"
    assert found["safe"] == "passes alone"


def test_what_is_refuted_stands_beside_the_target_that_the_version_claims():
    found = class_table(measure(), {"safe": 0.2, "bad": 0.07}, refuted=["bad"])
    by_name = {row.name: row for row in found.rows}
    assert (by_name["bad"].target, by_name["bad"].status) == (0.07, "refuted")
    assert (by_name["safe"].target, by_name["safe"].status) == (0.2, "not refuted")
    assert by_name["free"].status == "no target"
    assert by_name["bad"].tone == "bad"


def test_a_version_that_was_changed_is_said_to_be_certified_nowhere():
    table = class_table(measure(), TARGETS, 0.1).changed()
    assert set(statuses(table).values()) == {"not as registered"}
    assert not any(row.tone == "good" for row in table.rows)


def test_the_logged_table_has_the_columns_promised_and_bounds_even_where_they_prove_nothing():
    measured = (
        "class rows certain wrong risk top1_risk_certain top1_risk risk_upper target miscoverage "
        "abstention candidate_coverage"
    )
    records = class_table(measure(), TARGETS, 0.1, proves=False).records()
    assert [record["class"] for record in records] == CLASSES
    assert all(list(record) == measured.split() for record in records)
    assert records[0]["risk_upper"] == measure().by_class["safe"].risk_upper
    certificate = scrib_mlflow.certify_sets(
        np.eye(6), CLASSES, [0.5] * 6, {"safe": 0.1}, classes=CLASSES, waive=CLASSES[1:]
    )
    records = class_table(measure(), {"safe": 0.1}, certificate=certificate).records()
    claimed = f"{measured} p_value risk_upper_simultaneous status"
    assert all(list(record) == claimed.split() for record in records)
    assert [record["status"] for record in records[1:]] == ["waived"] * 5
