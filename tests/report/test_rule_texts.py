"""What is said about the gap to the best possible."""

import pytest

from scrib_mlflow.core.optimal import AbstentionGap
from scrib_mlflow.report.words import gap_sentence


def gap(rate, bound, at_risks, n=10_000):
    return AbstentionGap(abstention_rate=rate, bound=bound, bound_at_risks=at_risks, n_rows=n)


@pytest.mark.parametrize(
    ("found", "kind", "certified", "said"),
    [
        (
            gap(0.47, 0.43, 0.43),
            "thresholds",
            False,
            [
                "Thresholds abstain on 47.0 % of the 10,000 fit rows",
                "the best possible at the targets is 43.0 %",
                "rule=optimal could gain up to 4.0 points",
            ],
        ),
        (gap(0.65, 0.43, 0.60), "thresholds", True, ["certify rows", "price of the certificate"]),
        (gap(0.32, 0.40, 0.31), "thresholds", False, ["the scores are not calibrated"]),
        (gap(0.429, 0.43, 0.428), "thresholds", False, ["within the noise"]),
        (gap(0.60, 0.43, 0.598), "optimal", True, ["no other rule of these scores would gain"]),
        (gap(0.60, 0.43, 0.55), "optimal", True, ["what remains is due to ties"]),
        (gap(1.0, 0.998, 0.998), "thresholds", True, ["force nearly total abstention"]),
    ],
)
def test_sentences_say_what_the_numbers_mean(found, kind, certified, said):
    rows = "certify" if certified else "fit"
    text = gap_sentence(found, kind, answers="any", rows=rows, certified=certified, kept=True)
    for words in said:
        assert words in text
    assert ("rule=optimal" in text) == (
        found.abstention_rate == 0.47 or found.bound_at_risks == 0.6
    )
    assert ("not calibrated" in text) == (found.abstention_rate == 0.32)


def test_a_rule_that_misses_its_targets_says_nothing_of_calibration():
    found = gap(0.18, 0.92, 0.18)
    text = gap_sentence(
        found, "optimal", answers="any", rows="certify", certified=False, kept=False
    )
    assert "because it does not keep them" in text
    assert "not calibrated" not in text
    assert "price of the certificate" not in text


def test_a_rule_that_answers_only_top_classes_is_compared_with_such_rules():
    found = gap(0.60, 0.43, 0.598)
    text = gap_sentence(found, "optimal", answers="top", rows="certify", certified=True, kept=True)
    assert "the best possible at the targets, answering only top classes, is 43.0 %" in text
    assert "no other such rule would gain much" in text
