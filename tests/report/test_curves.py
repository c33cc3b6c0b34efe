"""Curves in words and in a figure."""

import numpy as np
import pytest

from scrib_mlflow.core.studies import Curve
from scrib_mlflow.report import comparison
from tests.report.test_comparisons import make

NAN = float("nan")


def curve(method, *, targets=(0.1, 0.2), risk=(0.1, 0.2), ambiguity=(0.5, 0.25), auc=0.9):
    return Curve(
        method=method,
        targets=targets,
        ambiguity=ambiguity,
        risk=risk,
        top_risk=0.4,
        auc=auc,
        rmse=0.01,
    )


def lines(axes):
    return {
        line.get_label().split(",")[0]: line
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def test_lines_are_means_of_the_splits_from_one_end_point_to_the_other():
    drawn = ((curve("SCRIB"),), (curve("SCRIB", risk=(0.2, 0.2), auc=0.8),))
    figure = comparison.curve_figure(drawn, "$x_$")
    accuracy, realised = figure.axes
    line = lines(accuracy)["SCRIB"]
    across, up = line.get_xdata(), line.get_ydata()
    heights = [
        np.interp([0, 25, 50, 75, 100], [0, 25, 50, 100], [60, 80, h, 100]) for h in (90, 80)
    ]
    places = np.searchsorted(across, [0, 25, 50, 75, 100])
    assert up[places] == pytest.approx(np.mean(heights, axis=0))
    squares = accuracy.get_lines()[-1]
    assert squares.get_xydata().tolist() == [[0, 60], [100, 100]]
    assert line.get_label() == "SCRIB, AUC 85.00"
    asked = lines(realised)["SCRIB"].get_xydata()
    assert asked == pytest.approx(np.array([[10, 15], [20, 20]]))


def test_splits_that_hit_their_own_targets_lie_on_the_diagonal():
    few, many = (0.04, 0.08, 0.12), (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07)
    drawn = [
        (curve("SCRIB", targets=each, risk=each, ambiguity=(0.5,) * len(each)),)
        for each in (few, many)
    ]
    line = lines(comparison.curve_figure(drawn, "x").axes[1])["SCRIB"].get_xydata()
    assert line[:, 0] == pytest.approx([4, 5, 6, 7])
    assert line[:, 1] == pytest.approx(line[:, 0])


def test_a_target_at_which_a_split_is_never_certain_leaves_a_gap_there_alone():
    drawn = [(curve("SCRIB", risk=(NAN, 0.2)),), (curve("SCRIB"),)]
    line = lines(comparison.curve_figure(drawn, "x").axes[1])["SCRIB"].get_xydata()
    assert line.tolist() == [[10, pytest.approx(NAN, nan_ok=True)], [20, 20]]


def test_a_method_that_is_never_certain_is_named_without_a_line():
    never = curve("LABEL", risk=(NAN, NAN), ambiguity=(1.0, 1.0), auc=NAN)
    found = make(1, curves=((curve("SCRIB"), never),))
    figure = comparison.curve_figure(found.curves, "x")
    drawn = lines(figure.axes[0])
    assert drawn["LABEL"].get_label() == "LABEL, never certain"
    assert len(drawn["LABEL"].get_xdata()) == 0
    rows = comparison.method_rows(found)
    assert rows[0][-1] == "AUC"
    assert [row[-1] for row in rows[1:]] == ["90.00", "-", "-"]
    assert comparison.legend(found)[-1].startswith("AUC ")


def test_sentences_state_the_end_points_and_what_sgr_may_miss():
    first, second = comparison.curve_sentences(make(2, curves=((curve("SCRIB"),),)))
    assert "of the first split:" in first
    assert "10.0 % up to 20.0 %" in first
    assert "begin at the accuracy of top-1, without abstention, and end at accuracy 1" in first
    assert "SGR may miss a target with probability 0.8" in second
    assert "LABEL has no target of the overall risk" in second
    assert comparison.curve_sentences(make(2)) == []
