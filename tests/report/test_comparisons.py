"""Comparisons in tables, words and figures, for few and many repeats."""

import io
from dataclasses import replace

import pytest

from scrib_mlflow.core.studies import Comparison
from scrib_mlflow.core.studies.compare import Trial
from scrib_mlflow.report import comparison


def make(repeats, methods=("SCRIB", "LABEL", "SGR on $a_$ long name"), **changed):
    trials = tuple(
        Trial(
            method=method,
            repeat=repeat,
            abstention_rate=0.1 * place + 0.01 * repeat * place,
            size_ambiguity=1.0,
            empty_rate=0.0,
            overall_risk=float("nan"),
            mean_excess=0.01 * place,
            worst_excess=0.02 * place,
            n_silent=1,
            excess={"a": 0.02 * place, "b": 0.0},
            risk={"a": 0.1 + 0.02 * place, "b": 0.05 if repeat % 2 == 0 else float("nan")},
            fit_seconds_ratio=0.0123,
        )
        for repeat in range(repeats)
        for place, method in enumerate(methods)
    )
    fields = {"overall_target": None, "n_groups": None, "skipped": {}, **changed}
    return Comparison(
        classes=("a", "b"),
        targets={"a": 0.1, "b": 0.1},
        sgr_target=0.1,
        n_rows=1000,
        repeats=repeats,
        methods=methods,
        trials=trials,
        **fields,
    )


@pytest.mark.parametrize("repeats", [1, 4, 5, 30])
def test_figures_are_drawn_for_any_number_of_repeats(repeats):
    found = make(repeats)
    excess = comparison.excess_figure(found, "$x_$")
    abstention = comparison.abstention_figure(found, "x")
    tradeoff = comparison.tradeoff_figure(found, "x")
    risks = comparison.risk_figure(found, "x")
    for figure in (excess, abstention, tradeoff, risks):
        target = io.BytesIO()
        figure.savefig(target, format="png")
        assert target.getvalue().startswith(b"\x89PNG")
    assert len(excess.axes) == 2
    names = [text.get_text() for text in abstention.axes[0].get_xticklabels()]
    assert names[:2] == ["SCRIB", "LABEL"]
    marks = [tuple(line.get_xydata()[0]) for line in tradeoff.axes[0].get_lines()]
    assert marks[1] == pytest.approx((10 + (repeats - 1) / 2, 2.0))


def test_class_risks_stand_beside_their_targets_and_silent_repeats_are_said():
    figure = comparison.risk_figure(make(4), "x")
    first, second = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    dashed = first.get_lines()[0]
    assert (dashed.get_linestyle(), set(dashed.get_ydata())) == ("--", {10.0})
    points = [line.get_ydata().tolist() for line in second.get_lines() if line.get_marker() == "o"]
    assert points == [pytest.approx([5.0, 5.0])] * 3
    means = [line.get_ydata()[0] for line in first.get_lines() if line.get_marker() == "_"]
    assert means == pytest.approx([10, 12, 14])
    assert [text.get_text() for text in second.texts] == ["silent\n2 of 4"] * 3
    assert not first.texts


def test_long_names_are_shortened():
    long = "a very long name of a class or of a method that no figure has room for"
    found = make(2, methods=("SCRIB", f"SGR on {long}"))
    found = replace(
        found,
        targets={long: 0.1},
        trials=tuple(replace(t, excess={long: 0.0}, risk={long: 0.1}) for t in found.trials),
    )
    risks = comparison.risk_figure(found, long * 2)
    assert risks.axes[0].get_title(loc="left") == "a very long name of a class\u2026"
    drawn = [text.get_text() for text in risks.axes[0].get_xticklabels()]
    assert drawn == ["SCRIB", "SGR on a very long name of \u2026"]
    assert max(map(len, risks.get_suptitle().splitlines())) < 120
    words = comparison.excess_figure(found, "x").axes[1].get_xticklabels()[1].get_text()
    assert words.splitlines() == ["SGR on a very", "long name of a", "class or of a\u2026"]


def test_of_many_classes_those_most_above_their_target_are_drawn():
    names = [f"c{j}" for j in range(9)]
    found = make(2, methods=("SCRIB",))
    above = {name: 0.01 * j for j, name in enumerate(names)}
    trials = tuple(replace(trial, excess=above, risk=above) for trial in found.trials)
    many = replace(found, targets=dict.fromkeys(names, 0.1), trials=trials)
    figure = comparison.risk_figure(many, "x")
    assert [axes.get_title(loc="left") for axes in figure.axes] == names[3:]
    assert "the 6 classes most above their target; 3 more" in figure.get_suptitle()


def test_the_table_has_means_and_dashes_for_what_is_undefined():
    rows = comparison.method_rows(make(3))
    assert rows[0] == comparison.HEADER
    assert rows[2] == ("LABEL", "11.0 %", "2.0 %", "1.0 %", "-", "1.00", "1.0", "0.012")
    assert not any("AUC" in line for line in comparison.legend(make(3)))


def test_sentences_say_what_was_asked_of_sgr_and_what_is_missing():
    first, last = comparison.target_sentences(make(1, skipped={"optimal": "no reason"}))
    assert "10.0 %, the mean of the risk targets, weighted" in first
    assert last == "optimal is left out: no reason."
    (asked,) = comparison.target_sentences(make(1, overall_target=0.1))
    assert "10.0 %, as asked for" in asked
    assert "once" in comparison.split_sentence(make(1))
    assert "in 7 groups, which stay whole" in comparison.split_sentence(make(2, n_groups=7))


@pytest.mark.parametrize(
    ("repeats", "whole", "told"),
    [
        (2, True, "means over all 2 splits that there are."),
        (1, True, "the only split that there is."),
        (2, False, "means over 2 random splits."),
        (1, False, "once."),
    ],
)
def test_splits_are_said_to_be_all_where_no_other_exists(repeats, whole, told):
    found = make(repeats, n_groups=2, all_splits=whole)
    assert comparison.split_sentence(found).endswith(f"the other to measure; {told}")
