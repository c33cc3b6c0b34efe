"""Figures are drawn for any classes there may be."""

import io

import numpy as np
import pytest

import scrib_mlflow
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import class_table


@pytest.mark.parametrize("k", [2, 7, 150])
@pytest.mark.parametrize("name", ["c", "$a_$", "größe\n"])
def test_figures_are_drawn_for_few_and_many_classes_of_any_name(k, name):
    classes = [f"{name}{j}" for j in range(k)]
    random = np.random.default_rng(0)
    scores = random.random((900, k))
    labels = np.arange(900) % k
    thresholds = (-np.inf, *[0.9] * (k - 1))
    report = scrib_mlflow.evaluate_sets(
        scores, np.array(classes)[labels], thresholds, classes=classes
    )
    table = class_table(report, dict.fromkeys(classes[1:], 0.1))
    rules = [
        scrib_mlflow.ThresholdRule(thresholds=thresholds),
        scrib_mlflow.OptimalRule(
            multipliers=(2.0,) * k,
            charges=(1.5,) * k,
            recalibration=None,
            candidate_thresholds=(0.1,) * k,
        ),
    ]
    drawn = [
        figures.class_figure(table, title=f"{name} rows"),
        *(figures.rule_figure(rule, scores, labels, table) for rule in rules),
    ]
    for figure in drawn:
        target = io.BytesIO()
        figure.savefig(target, format="png")
        assert target.getvalue().startswith(b"\x89PNG")
        assert len(figure.axes) <= figures.MOST_CLASSES
