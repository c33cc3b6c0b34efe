"""Words and metric names, within MLflow's limits."""

import ast
import html
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest

import scrib_mlflow
from scrib_mlflow.messages import chance_percent, safe_names
from scrib_mlflow.registry.runs import report_metrics
from scrib_mlflow.report import words
from scrib_mlflow.report.facts import Summary, class_table
from scrib_mlflow.results import Check
from scrib_mlflow.workflows import demo, policy

NAMES = ["~", "a/b", "a:b", "A_B", "", ".", "..", "x" * 300, "größe", "n 1", "100%", "a\nb"]


def report_of(classes, n=600):
    """Return a report over classes with these names."""
    random = np.random.default_rng(0)
    scores = random.random((n, len(classes)))
    labels = np.array(classes)[np.arange(n) % len(classes)]
    thresholds = [0.9] * len(classes)
    return scrib_mlflow.evaluate_sets(scores, labels, thresholds, classes=classes)


def test_any_class_name_can_be_logged_as_a_metric(store):
    safe = safe_names(NAMES)
    assert len({name.lower() for name in safe}) == len(NAMES)
    with mlflow.start_run() as run:
        mlflow.log_metrics({f"risk/{name}": 0.5 for name in safe})
    assert len(mlflow.get_run(run.info.run_id).data.metrics) == len(NAMES)


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        *((0.0, "<1 %"), (0.004, "<1 %"), (0.0099, "<1 %"), (0.01, "1 %"), (0.568, "57 %")),
        *((0.99, "99 %"), (0.9901, ">99 %"), (0.996, ">99 %"), (1.0, ">99 %")),
    ],
)
def test_no_predicted_chance_is_printed_as_sure(chance, text):
    assert chance_percent(chance) == text


def test_metrics_of_the_fit_carry_a_prefix_and_the_names_promised():
    metrics = report_metrics(report_of(["a", "b"]), prefix="fit_")
    by_class = "risk risk_upper abstention top1_risk candidate_coverage"
    overall = (
        "abstention_rate size_ambiguity empty_rate overall_risk overall_risk_upper "
        "overall_top1_risk candidate_coverage mean_candidates"
    )
    expected = {f"fit_{name}/{label}" for name in by_class.split() for label in "ab"}
    assert set(metrics) == expected | {f"fit_{name}" for name in overall.split()}


@pytest.mark.parametrize("k", [2, 20, 150])
def test_a_table_in_markdown_stays_within_the_limit_and_says_what_it_leaves_out(k):
    classes = [f"class number {j} with a rather long name" for j in range(k)]
    report = report_of(classes)
    table = words.text_table(class_table(report, dict.fromkeys(classes, 0.1)))
    text = words.note(Summary(verdict="Measured.", tables=(table,), where="There."))
    assert len(text) <= words.MOST_CHARACTERS
    shown = len(re.findall(r"^\| class number", text, re.MULTILINE))
    assert shown >= 2
    assert (f"of {k} classes" in text) == (shown < k)


def test_a_folded_table_keeps_the_classes_with_the_greatest_excess():
    report = report_of([f"c{j}" for j in range(30)], n=30_000)
    targets = dict.fromkeys(report.classes, 0.999) | {"c7": 0.001}
    rows, said = words.fold(words.text_table(class_table(report, targets, 0.1)), 1)
    assert [row[0] for row in rows] == ["class", "c7", "overall"]
    assert said.startswith("The 1 of 30 classes with the greatest excess")


def test_an_undefined_risk_is_a_dash_and_bars_in_names_break_no_table():
    report = scrib_mlflow.evaluate_sets(
        [[0.9, 0.9], [0.9, 0.9]], ["a|b", "c"], [0.5, 0.5], classes=["a|b", "c"]
    )
    rows = words.text_table(class_table(report, {"c": 0.1})).rows
    assert rows[1][4] == "-"
    assert rows[1][8] == "none"
    assert r"a\|b" in words.markdown_table(rows)


def test_a_terminal_shows_the_verdict_first_and_a_table_of_at_most_a_dozen_classes():
    report = report_of([f"c{j}" for j in range(30)], n=30_000)
    table = words.text_table(class_table(report, dict.fromkeys(report.classes, 0.1)))
    summary = Summary(
        verdict="Measured.",
        sentences=("One proviso.",),
        tables=(table,),
        notes=("It answers.",),
        steps=(("gate it", "gate"), ("serve", "serve it")),
        where="There.",
    )
    lines = words.terminal(summary).splitlines()
    assert lines[:4] == ["Measured.", "One proviso.", "", lines[3]]
    assert lines[3].split()[:2] == ["class", "rows"]
    assert lines[-6:] == ["", "It answers.", "", "gate it  gate", "serve    serve it", "There."]
    assert len(lines) == 23


def test_control_characters_of_a_name_reach_no_terminal():
    report = report_of(["a\x1b[2Jb", "c\nd"])
    text = words.plain_table(words.text_table(class_table(report, {})).rows)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("http://host:5000", "run r (http://host:5000/#/experiments/7/runs/r)"),
        ("https://me:secret@host/ml/", "run r (https://me:***@host/ml/#/experiments/7/runs/r)"),
        ("sqlite:///a.db", "run r (mlflow ui --backend-store-uri sqlite:///a.db)"),
        ("databricks", "run r"),
    ],
)
def test_a_run_is_shown_at_its_address_on_a_server_or_in_an_interface_of_one_s_own(store, told):
    assert words.logged("r", store, "7") == f"Report: artifact report.html of {told}"


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (["fresh rows"], "Refused, because fresh rows refute its certificate: the alias"),
        (["intact"], "Refused, because its files are not those that were registered: the"),
        (
            ["certified", "target of sick"],
            "it is not certified, and the target of sick does not follow from its certificate:",
        ),
    ],
)
def test_a_refusal_says_why_and_not_which_rule_it_broke(failed, told):
    checks = [Check(name, name not in failed, "") for name in [*failed, "confidence"]]
    asked = SimpleNamespace(alias="champion")
    decision = SimpleNamespace(
        passed=False, policy=asked, champion="", checks=checks, model_uri="models:/a/2"
    )
    assert told in words._decision(decision)


def test_every_check_that_can_fail_has_words_for_a_refusal():
    source = Path(policy.__file__).read_text()
    names = {*re.findall(r'Check\(\s*"([a-z ]+)"', source)} - {"repeats"}
    assert names == set(words.REFUSALS)


ODD = ("a|b", "<img src=x onerror=alert(1)>", "[click](http://x)", "*b* _i_ `c`", "line\nbreak")
ODD += ("&lt;script&gt;", "# heading", "1. item", "> quote", "~~gone~~", "| --- |", "snake_case")


def shown_as(text):
    """Return what a reader of Markdown sees of a line: our own few rules, the other way round."""
    plain = re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text)
    return html.unescape(plain)


@pytest.mark.parametrize("name", ODD)
def test_a_class_s_name_is_text_in_a_note_whatever_its_signs(name):
    report = report_of([name, "other"])
    table = words.text_table(class_table(report, {name: 0.1}))
    said = words.say("words.measured", fitted=False, rows=[1], above=[name], bounded=0, n_within=0)
    text = words.note(
        Summary(verdict=said, sentences=(name,), notes=(name,), tables=(table,), where="There.")
    )
    first, _, noted, *_ = text.splitlines()
    wanted = " ".join(name.split("\n"))
    assert shown_as(first) == f"{said} {wanted}"
    assert shown_as(noted) == wanted
    for line in (first, noted, *[row for row in text.splitlines() if "other" not in row]):
        assert not re.search(r"<[a-z/!]|(?<!\\)[*`\[\]~]|(?<![\\\w])_|&(?!lt;|amp;)", line), line
    assert not re.match(r"[#>]|\d+\.\s", noted)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    columns = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(columns) == 1


@pytest.mark.parametrize("name", ["a`b", "``", "plain", "`x"])
def test_a_name_in_code_ends_where_the_code_ends(name):
    text = words.code(name)
    fence = re.match("`+", text)[0]
    inside = text[len(fence) : -len(fence)]
    assert fence not in inside.strip()
    assert inside.strip() == name


HOSTILE = "a b$(touch x)`y`"


def words_of(command):
    """Return the words that a shell makes of a command."""
    script = f"printf '%s\\0' {command}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def test_every_command_that_is_printed_can_be_pasted_into_a_shell(
    tmp_path, monkeypatch, calibrated
):
    monkeypatch.chdir(tmp_path)
    record = calibrated.classifier
    summary = words.calibration_summary(record, HOSTILE, "1", "candidate", "There.")
    commands = [command for _, command in summary.steps if command.startswith(("python", "mlflow"))]
    if not record.certified:
        reasons = replace(words.calibration_facts(record), reasons=())
        monkeypatch.setattr(words, "calibration_facts", lambda _: reasons)
        summary = words.calibration_summary(record, HOSTILE, "1", "candidate", "There.")
        commands = [command for _, command in summary.steps]
    assert f"models:/{HOSTILE}/1" in words_of(commands[0])
    assert f"models:/{HOSTILE}@candidate" in words_of(commands[1])
    shown = words.scores_summary(record, f"runs:/{HOSTILE}", "There.").steps[1][1]
    assert f"runs:/{HOSTILE}" in words_of(shown)
    look = words.look("r", f"sqlite:///{HOSTILE}/m.db", "1").strip()[1:-1]
    assert words_of(look)[-1] == f"sqlite:///{HOSTILE}/m.db"
    decision = SimpleNamespace(
        passed=True, champion="1", model_uri="models:/x/2", policy=SimpleNamespace(alias="champion")
    )
    ((_, back),) = words.way_back(decision, HOSTILE + "'\"")
    *_, program = words_of(back)
    (call,) = [node for node in ast.walk(ast.parse(program)) if getattr(node, "args", None)]
    assert [each.value for each in call.args] == [HOSTILE + "'\"", "champion", "1"]
    told = demo.summary(demo.Shown(Path(HOSTILE).absolute(), {}, "1", {}, "2")).splitlines()
    assert words_of(told[-1].strip()) == ["rm", "-r", str(tmp_path / HOSTILE)]
    assert words_of(told[-2].strip())[-1] == f"sqlite:///{tmp_path / HOSTILE}/mlflow.db"
    assert list(tmp_path.iterdir()) == []
