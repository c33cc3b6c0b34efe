"""The tables and figures of the paper's experiments."""

from dataclasses import replace

import pytest
from scipy import stats

from experiments import figures, tables
from experiments.risks import UnequalRisks
from tests.report.test_comparisons import make
from tests.report.test_curves import curve

NAN = float("nan")
LONG = "a class whose name is far too long for the room below a bar"


def compared(silent):
    """Return a comparison in which methods have so many silent classes."""
    found = make(2, methods=tuple(silent))
    trials = tuple(replace(trial, n_silent=silent[trial.method]) for trial in found.trials)
    return replace(found, trials=trials)


def test_methods_that_keep_targets_by_silence_are_named():
    quiet = compared({"SCRIB": 0, "SGR": 2, "LABEL": 0, "SCRIB-": 1})
    none = compared({"SCRIB": 0, "SGR": 0, "LABEL": 0, "SCRIB-": 0})
    table = tables.excess_table({"x": quiet, "y": none}, by_group=False)
    assert table.notes[1:] == ("Classes without certain rows, on average: x: SGR 2.0, SCRIB- 1.0.",)
    assert len(tables.excess_table({"y": none}, by_group=False).notes) == 1


def test_the_area_of_scrib_is_held_against_that_of_sgr():
    areas = {"SCRIB": (0.90, 0.92, 0.91), "SGR": (0.88, 0.89, 0.90), "SCRIB-": (0.5, 0.6, 0.4)}
    splits = [[curve(method, auc=values[j]) for method, values in areas.items()] for j in range(3)]
    table = tables.curve_tables({"x": splits})[0]
    truth = stats.ttest_ind(areas["SCRIB"], areas["SGR"], equal_var=False).pvalue
    assert float(table.rows[0][-1]) == pytest.approx(truth, abs=0.005)
    assert table.rows[0][1:4:2] == ("89.00 \u00b1 1.00", "91.00 \u00b1 1.00")


def test_a_silent_class_is_said_and_not_drawn_as_a_risk_of_nothing():
    found = UnequalRisks(
        data="x",
        targets={"a": 0.05, LONG: 0.15},
        risks={"SGR": {"a": 0.0, LONG: 0.3}, "SCRIB": {"a": 0.04, LONG: NAN}},
        overall_risk={"SGR": 0.05, "SCRIB": 0.04},
        abstention_rate={"SGR": 0.2, "SCRIB": 0.3},
        repeats=2,
    )
    figure = figures.risk_bars(found)
    axes = figure.axes[0]
    (word,) = axes.texts
    assert word.get_text() == "silent"
    assert word.xy == pytest.approx((1.2, 0))  # the second of two bars of the second class
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == ["a", "a class whose name is far t\u2026", "overall"]
