"""Figures are drawn for any classes there may be."""

import io
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.text import Text

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


NAMES = ("正常", "心房細動", "ST上昇")


def draw_names():
    scores = np.random.default_rng(0).random((900, 3))
    labels = np.arange(900) % 3
    report = scrib_mlflow.evaluate_sets(scores, labels, [0.9] * 3, classes=range(3))
    report = replace(
        report, classes=NAMES, by_class=dict(zip(NAMES, report.by_class.values(), strict=True))
    )
    return figures.class_figure(class_table(report, {}), title="$x$ 正常")


def written(figure, **options):
    """Return the texts of a figure after it was saved, in which no letter may be missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO(), **options)
    return {text.get_text() for text in figure.findobj(Text)}


def test_letters_that_no_font_has_are_written_as_codes_and_said_once(monkeypatch, caplog):
    caplog.set_level("INFO")
    figures.tell_lacking.cache_clear()
    monkeypatch.setattr(figures, "font_of", lambda letter: "" if letter < "\u3000" else None)
    for _ in range(2):
        found = written(draw_names(), format="png")
        assert {"U+6B63 U+5E38", "STU+4E0A U+6607", r"\$x\$ U+6B63 U+5E38"} <= found
        assert not any(letter in text for letter in "正心上" for text in found)
    assert len(caplog.records) == 1
    assert "install a font that has them" in caplog.text


def test_a_browser_gets_the_letters_themselves(monkeypatch):
    monkeypatch.setattr(figures, "font_of", lambda _: None)
    text = figures.inline_svg(draw_names(), "name", "words")
    assert all(name in text for name in NAMES)
    assert "U+" not in text


def test_letters_come_from_another_font_that_has_them():
    figures.font_of.cache_clear()
    assert figures.font_of("ß") == ""
    name = figures.font_of("正")
    if name is None:
        pytest.skip("no installed font has Chinese letters (Debian: fonts-wqy-zenhei)")
    figure = draw_names()
    assert set(NAMES) <= written(figure, format="png")
    assert all(name in text.get_fontfamily() for text in figure.findobj(Text))


def test_a_font_that_is_gone_or_shows_boxes_has_no_letters(monkeypatch, tmp_path):
    figures.font_of.cache_clear()
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    gone = [("Noto Sans A", tmp_path / "broken.ttf"), ("Noto Sans B", tmp_path / "gone.ttf")]
    entries = [SimpleNamespace(name=name, fname=str(path)) for name, path in gone]
    kept = [e for e in font_manager.fontManager.ttflist if e.name.startswith("Last Resort")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*entries, *kept])
    monkeypatch.setattr(figures.font_manager, "findSystemFonts", list)
    assert figures.font_of("正") is None
    figures.font_of.cache_clear()
