"""Frontiers in tables, words and figures, for few and many classes."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest

from scrib_mlflow.core.reports import ClassRates, PartRates
from scrib_mlflow.core.studies import TargetFrontier
from scrib_mlflow.core.studies.frontier import Certifiable, FrontierPoint
from scrib_mlflow.report import frontier
from scrib_mlflow.report.words import plain_table

NAN = float("nan")
GRID = (0.02, 0.05, 0.1, 0.15, 0.2)


def part(rate, names, band):
    """A part in which every class abstains alike, its bands so wide to either side."""
    low_high = (max(rate - band, 0.0), min(rate + band, 1.0)) if band else (NAN, NAN)
    rates = ClassRates(
        n=100,
        n_certain=round(100 - 100 * rate),
        n_wrong=1,
        abstention_rate=rate,
        abstention_band=low_high,
        risk=0.04,
        risk_band=low_high,
    )
    return PartRates(
        n=200,
        n_certain=round(200 - 200 * rate),
        n_wrong=2,
        abstention_rate=rate,
        abstention_band=low_high,
        empty_rate=0.0,
        overall_risk=0.05,
        overall_risk_band=low_high,
        by_class=dict.fromkeys(names, rates),
    )


def make(
    names=("a", "$b_$"),
    *,
    certify=True,
    swept=None,
    grid=GRID,
    band=0.1,
    slope=1.0,
    silent_below=0.05,
    **changed,
):
    """Abstention of 0.9 less 3 times the target; of one class alone by its number less."""
    swept = names if swept is None else swept
    points = []
    for sweep in (None, *swept):
        for target in grid:
            steep = slope * (names.index(sweep) + 1.0) if sweep else 3.0
            rate = 0.6 + steep * (0.1 - target) if sweep else 0.9 - 3.0 * target
            shown = names if sweep is None else (sweep,)
            points.append(
                FrontierPoint(
                    swept=sweep,
                    target=target,
                    loss=rate,
                    fitted=part(rate - 0.01, shown, band=None),
                    held_out=part(rate, shown, band=band),
                    silent=("a",) if target < silent_below else (),
                )
            )
    able = [
        Certifiable(
            target=target,
            chance=0.9 if certify and target > 0.02 else 0.1,
            abstention_rate=1 - 3 * target if certify and target > 0.02 else NAN,
        )
        for target in grid
    ]
    fields = {
        "confidence": 0.95,
        "overall_target": None,
        "n_groups": None,
        "certify_groups": None,
        **changed,
    }
    return TargetFrontier(
        classes=tuple(names),
        targets=dict.fromkeys(names, 0.1),
        reference=0.1,
        rule_kind="thresholds",
        wanted=0.8,
        n_fitted=500,
        n_held_out=499,
        certify_rows=2100,
        swept=tuple(swept),
        points=tuple(points),
        certifiable=tuple(able),
        **fields,
    )


def drawn(figure):
    target = io.BytesIO()
    figure.savefig(target, format="png")
    assert target.getvalue().startswith(b"\x89PNG")


def line(axes, start):
    return next(each for each in axes.get_lines() if str(each.get_label()).startswith(start))


def test_the_main_figure_draws_both_parts_the_band_and_what_can_be_certified():
    found = make()
    figure = frontier.frontier_figure(found, "$x_$")
    drawn(figure)
    (axes,) = figure.axes
    held, fitted = line(axes, "held-out"), line(axes, "rows of the fit")
    targets = [100 * target for target in GRID]
    assert held.get_xdata() == pytest.approx(targets)
    assert held.get_ydata() == pytest.approx([90 - 3 * target for target in targets])
    assert fitted.get_ydata() == pytest.approx([89 - 3 * target for target in targets])
    able = line(axes, "predicted")
    assert able.get_xdata()[:-1] == pytest.approx(targets[1:])
    assert line(axes, "chosen").get_xdata() == pytest.approx([10, 10])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(94)


def test_the_certifiable_curve_never_rises():
    curve = frontier.certifiable_curve(make())
    assert [target for target, _ in curve] == sorted(target for target, _ in curve)
    assert (np.diff([rate for _, rate in curve]) < 0).all()
    assert frontier.certifiable_curve(make(certify=False)) == []
    drawn(frontier.frontier_figure(make(certify=False), "x"))


def test_small_figures_have_a_panel_a_class_the_costliest_first():
    found = make()
    panels = frontier.sweep_figure(found, "x").axes
    assert [axes.get_title() for axes in panels] == [
        "\\$b_\\$\n15.0 % saves 10.0 points",
        "a\n15.0 % saves 5.0 points",
    ]
    rates = line(panels[0], "all rows").get_ydata()
    assert rates == pytest.approx([60 + 2 * (10 - 100 * target) for target in GRID])
    by_class = frontier.class_figure(found, "x")
    assert [axes.get_title() for axes in by_class.axes] == ["a", r"\$b_\$"]
    drawn(by_class)
    assert frontier.sweep_figure(make(swept=()), "x") is None


def test_many_classes_are_folded_and_told():
    names = tuple(f"class {j}" for j in range(40))
    found = make(names, swept=names[:12])
    by_class = frontier.class_figure(found, "x")
    one = frontier.sweep_figure(found, "x")
    assert (len(by_class.axes), len(one.axes)) == (20, 12)
    assert "20 that abstain most" in by_class.get_suptitle()
    assert "12 of 40 classes" in one.get_suptitle()
    assert "Of 40 classes, the 12 with the most" in " ".join(frontier.sentences(found))
    assert len(frontier.class_rows(found)) == 9


def test_tables_have_a_row_a_target_and_a_row_a_class():
    found = make()
    rows = frontier.target_rows(found)
    assert rows[0] == frontier.TARGET_HEADER
    assert rows[1] == ("2.0 %", "84.0 %", "74.0 - 94.0 %", "5.0 %", "1", "10 %", "-")
    assert rows[3][0] == "10.0 % *"
    assert rows[3][-2:] == ("90 %", "70.0 %")
    assert frontier.class_rows(found)[1] == (
        *("$b_$", "10.0 %", "4.0 %", "60.0 %", "5.0 %", "10.0", "15.0 %", "10.0"),
    )
    cells = frontier.point_rows(found)
    assert len(cells) == 5 * 3 + 2 * 5 * 2
    assert {row["sweep"] for row in cells} == {"all", "a", "$b_$"}
    assert cells[0]["fit_abstention"] == pytest.approx(0.83)
    assert cells[0]["certifiable_chance"] == pytest.approx(0.1)
    assert cells[3]["certifiable_abstention"] == pytest.approx(0.85)


def test_sentences_answer_which_targets_can_be_afforded():
    words = " ".join(frontier.sentences(make(band=0.05)))
    assert "At the chosen targets (10.0 %) 60.0 % of the held-out rows abstain, 55.0 to 65" in words
    assert "of 5 targets tried that is predicted to be certifiable is 5.0 %, at 85.0 %" in words
    assert "the chosen ones are, at 70.0 % abstention" in words
    assert "no certificate" in words
    assert "Class '$b_$' costs the most abstention: a target of 15.0 % in place of 10.0 %" in words


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"silent_below": 1.0}, "class 'a' is never certain among the held-out rows"),
        ({"certify_groups": 9, "n_groups": 4}, "9 groups certify, but a certificate needs 30"),
        ({}, "up to 20.0 %, none has a chance of 80 % with 2,100 certify rows"),
    ],
)
def test_what_cannot_be_certified_is_told_with_the_reason(changed, message):
    words = frontier.certify_sentence(make(certify=False, **changed))
    assert "No target here is predicted to be certifiable" in words
    assert message in words


def test_another_target_of_a_class_is_never_the_chosen_one():
    for grid, cells in (
        ((0.01, 0.1, 0.9), ("1.0 %", "9.0", "90.0 %", "80.0")),
        ((0.09, 0.1), ("9.0 %", "1.0", "-", "-")),
        ((0.1, 0.11), ("-", "-", "11.0 %", "1.0")),
    ):
        found = make(grid=grid)
        by_class = {name: rest for name, *rest in frontier.class_rows(found)}
        assert by_class["a"][3:] == list(cells)
        drawn(frontier.sweep_figure(found, "x"))
    panels = frontier.sweep_figure(make(grid=(0.09, 0.1)), "x").axes
    assert [axes.get_title() for axes in panels] == ["a\n", "\\$b_\\$\n"]


def test_a_class_costs_the_most_only_where_it_saves_a_point_and_more_than_the_noise():
    # of '$b_$' a looser target saves 10 points times the slope, of 'a' half of that
    def words(**changed):
        return frontier.class_sentences(make(**changed))[0]

    assert "Class '$b_$' costs the most" in words(band=0.095)
    assert "within their noise" in words(band=0.1)
    assert "as far as 499 held-out rows show" in words(band=0.04, slope=-1.0)
    assert "Class '$b_$' costs the most" in words(band=0.001, slope=0.11)
    assert "saves less than a point of abstention" in words(band=0.001, slope=0.09)
    # a band of 68.27 % is one standard error wide to either side, and two are asked for
    assert "costs the most" in words(band=0.049, confidence=0.6827)
    assert "noise" in words(band=0.051, confidence=0.6827)


def test_where_some_classes_are_swept_no_more_is_said_of_the_others():
    some = make(("a", "b", "c"), swept=("a", "b"), band=0.3)
    assert "No class of those swept costs much" in " ".join(frontier.sentences(some))
    every = make(("a", "b", "c"), band=0.3)
    assert "No class costs much" in " ".join(frontier.sentences(every))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (0.1, "10.0 %"),
        (0.0002, "0.02 %"),
        (0.001, "0.1 %"),
        (0.00125, "0.125 %"),
        (0.123, "12.3 %"),
        (0.1234, "12.34 %"),
        (0.999, "99.9 %"),
        (NAN, "-"),
    ],
)
def test_targets_are_printed_with_the_digits_they_have(target, text):
    assert frontier.target_percent(target) == text


def test_small_targets_are_told_apart_in_the_tables_and_sentences():
    found = make(grid=(0.0002, 0.0004, 0.1))
    assert [row[0] for row in frontier.target_rows(found)[1:]] == ["0.02 %", "0.04 %", "10.0 % *"]
    assert "certifiable is 10.0 %" in frontier.certify_sentence(found)
    assert frontier.class_rows(found)[1][4] == "0.04 %"


def test_long_names_and_control_characters_stay_within_tables_and_figures():
    names = ("first\nsecond\tthird", "x" * 300)
    found = make(names, band=0.05)
    lines = plain_table(frontier.class_rows(found)).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 100
    words = " ".join(frontier.sentences(found))
    assert f"'{'x' * 27}\u2026'" in words
    assert max(map(len, words.split())) < 40
    silent = make(names[1:], certify=False, silent_below=1.0)
    assert len(frontier.certify_sentence(silent)) < 150
    for figure in (
        frontier.frontier_figure(found, "y" * 300),
        frontier.class_figure(found, "y" * 300),
        frontier.sweep_figure(found, "y" * 300),
    ):
        drawn(figure)
        assert len(figure.get_suptitle()) < 90
        for axes in figure.axes:
            assert max(map(len, axes.get_title().split("\n"))) <= 24
            assert axes.get_title().replace("\n", "").isprintable()


def test_metrics_are_of_the_chosen_targets_and_leave_out_what_is_undefined():
    found = frontier.metrics(make())
    assert found["abstention_rate"] == pytest.approx(0.6)
    assert found["fit_abstention_rate"] == pytest.approx(0.59)
    assert found["certifiable_target"] == pytest.approx(0.05)
    assert found["certifiable_abstention_rate"] == pytest.approx(0.7)
    assert {"risk/a", "abstention/a", "fit_risk/_b__", "overall_risk"} <= set(found)
    assert not any(map(math.isnan, found.values()))
    assert "certifiable_target" not in frontier.metrics(make(certify=False))


def test_targets_that_differ_are_said_to_move_in_proportion():
    found = make(("a", "b", "c"), overall_target=0.05)
    unequal = replace(found, targets={"a": 0.1, "b": 0.1, "c": 0.2})
    assert frontier.target_rows(unequal)[0][0] == "target of most"
    told = frontier.summary(unequal, "uri", "rows", "where").legend[0]
    assert "the others move with it in proportion: c 2 times, the overall target 0.5 times" in told
    equal = make(("a", "b"))
    assert frontier.target_rows(equal)[0][0] == "target"
    legend = frontier.summary(equal, "uri", "rows", "where").legend
    assert not any("proportion" in line for line in legend)
