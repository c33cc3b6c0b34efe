"""Figures are tested on what they draw, not on pixels."""

import numpy as np
import pytest

import scrib_mlflow
from scrib_mlflow.core.reports import Answers, RiskCoverage, SetCount, confusion_counts
from scrib_mlflow.report import figures
from scrib_mlflow.report.facts import class_table
from tests.pages import Page


def measure(k=4, n=400):
    random = np.random.default_rng(0)
    labels = random.integers(0, k, n).astype(np.int32)
    scores = random.random((n, k))
    scores[np.arange(n), labels] += 0.6
    classes = [f"c{j}" for j in range(k)]
    rule = scrib_mlflow.ThresholdRule(thresholds=(0.9,) * k)
    report = scrib_mlflow.evaluate_sets(scores, labels, rule, classes=classes)
    return Answers(scores, labels, scores >= 0.9, scores >= 0.5), report, rule


def test_the_confusion_figure_shades_shares_of_each_class_and_ends_with_abstentions():
    answers, report, _ = measure()
    counts = confusion_counts(answers)
    axes = figures.confusion_figure(counts, class_table(report, {})).axes[0]
    drawn = axes.images[0].get_array()
    assert np.asarray(drawn) == pytest.approx(counts / counts.sum(axis=1, keepdims=True))
    assert [text.get_text() for text in axes.get_xticklabels()] == [*report.classes, "abstain"]
    assert {text.get_text() for text in axes.texts} == {f"{n:,}" for n in counts.ravel() if n}


def test_many_classes_are_folded_without_losing_a_row():
    answers, report, _ = measure(k=40, n=2000)
    counts = confusion_counts(answers)
    targets = dict.fromkeys(report.classes, 0)
    shown, columns, table = figures.fold_confusion(counts, class_table(report, targets))
    assert len(shown) == figures.MOST_CLASSES
    assert columns == [*shown, "others", "abstain"]
    rows = [report.classes.index(name) for name in shown]
    assert table.sum(axis=1).tolist() == counts[rows].sum(axis=1).tolist()
    assert table[3, 3] == counts[rows[3], rows[3]]


def test_the_coverage_figure_draws_the_curve_and_the_own_point():
    curve = RiskCoverage((0.25, 0.5, 1.0), (0.0, 0.1, 0.2))
    axes = figures.coverage_figure(curve, (0.6, 0.05), "mine").axes[0]
    line, point = axes.lines
    assert line.get_xydata() == pytest.approx(np.array([[25, 0], [50, 10], [100, 20]]))
    assert point.get_xydata() == pytest.approx(np.array([[60, 5]]))
    assert len(figures.coverage_figure(curve, (0.0, float("nan")), "mine").axes[0].lines) == 1


def test_the_sets_figure_draws_the_frequent_ones_with_empty_ones_named():
    counts = [SetCount((0,), 60, 50), SetCount((), 30, 0), SetCount((0, 1), 10, 9)]
    axes = figures.sets_figure(counts, ["a", "b"]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [60, 30, 10]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "empty", "a, b"]


def test_histograms_have_every_row_and_the_threshold():
    answers, report, rule = measure()
    figure = figures.rule_figure(rule, answers.scores, answers.labels, class_table(report, {}))
    for axes in figure.axes:
        for stairs in axes.patches:
            assert np.sum(stairs.get_data().values ** 2) == pytest.approx(1)
        assert axes.lines[0].get_xdata() == pytest.approx([0.9, 0.9])


def test_a_threshold_that_no_score_decides_is_told_in_words():
    answers, report, _ = measure()
    rule = scrib_mlflow.ThresholdRule(thresholds=(-np.inf, np.inf, 0.5, 0.5))
    table = class_table(report, {})
    drawn = figures.rule_figure(rule, answers.scores, answers.labels, table).axes
    assert [axes.get_xlabel() for axes in drawn[:3]] == ["always a member", "never a member", ""]


def test_figures_on_one_page_share_no_ids_and_follow_its_colours():
    answers, report, rule = measure()
    table = class_table(report, {})
    pages = [
        figures.inline_svg(
            figures.rule_figure(rule, answers.scores, answers.labels, table), name, "words"
        )
        for name in ("one", "two")
    ]
    both = Page("".join(pages))
    assert len(both.ids) == len(set(both.ids)) > 10
    for text in pages:
        assert "currentColor" in text
        assert "#000000" not in text
        assert figures.BLUE.lower() not in text
