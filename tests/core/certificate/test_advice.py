"""Advice where nothing was certified."""

import numpy as np

from scrib_mlflow import draw_path
from scrib_mlflow.core.certificate.advice import advise
from scrib_mlflow.synthetic import draw_scores

CLASSES = tuple("abcde")
SCORES, LABELS = draw_scores(1_500, noise=1.0, seed=3)


def draw(targets, more):
    rows = round(more * 3_500)
    return draw_path(
        SCORES, LABELS, targets, rule="optimal", certify_rows=rows, classes=CLASSES, answers="top"
    )


def test_the_class_whose_target_is_out_of_reach_is_named_and_its_nearest_target():
    targets = dict.fromkeys(CLASSES, 0.2) | {"c": 0.0005}
    asked = []

    def noted(*question):
        asked.append(question)
        return draw(*question)

    advice = advise(noted, targets, ["c", "a", "b"])
    assert advice.blocking == "c"
    assert advice.chance_without >= 0.8
    assert {name for name in CLASSES if advice.targets[name] != targets[name]} == {"c"}
    assert draw(advice.targets, 1.0).power >= 0.8
    assert 0 <= advice.abstention_rate < 1
    assert len(asked) <= 8  # each takes a path
    assert np.isclose(advice.abstention_rate, draw(advice.targets, 1.0).expected_abstention)


def test_where_no_single_class_is_in_the_way_all_targets_are_loosened_together():
    targets = dict.fromkeys(CLASSES, 0.004)
    advice = advise(draw, targets, CLASSES)
    assert advice.blocking is None
    assert np.isnan(advice.chance_without)
    assert len({*advice.targets.values()}) == 1
    assert advice.targets["a"] > 0.004
    assert advice.more_rows in {4, 16, None}
