"""The command line, and MLproject, which only calls it."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from click.testing import CliRunner

from docs import write_options
from experiments import reproduce
from scrib_mlflow import options
from scrib_mlflow.cli import Command, describe, main
from tests.conftest import PATIENCE, using
from tests.models import draw_table, register_pipeline

ROOT = Path(__file__).parent.parent
KINDS = {
    "select": options.Select,
    "calibrate": options.Calibrate,
    "main": options.Calibrate,
    "evaluate": options.Evaluate,
    "gate": options.Gate,
    "predict": options.Predict,
    "monitor": options.Monitor,
    "plan": options.Plan,
    "frontier": options.Frontier,
    "compare": options.Compare,
    "reproduce": reproduce.Reproduce,
    "register": options.Register,
    "demo": options.Demo,
}


@pytest.mark.parametrize(
    "words",
    [[], *([name] for name in KINDS if name not in {"main", "reproduce"})],
)
def test_help_teaches_by_example_and_loads_nothing_slow(words):
    script = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from scrib_mlflow.cli import main\n"
        f"print(CliRunner().invoke(main, {[*words, '--help']!r}).output)\n"
        "print([n for n in ('mlflow', 'pandas', 'numpy', 'numba') if n in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *text, loaded = run.stdout.strip().splitlines()
    assert loaded == "[]"
    assert any("python -m scrib_mlflow" in line for line in text)


@pytest.mark.parametrize("name", sorted({*KINDS} - {"main"}))
def test_help_says_of_every_option_what_it_is_and_what_to_type(name):
    kind = KINDS[name]
    listed = [option for options in describe(kind).values() for option in options]
    assert sorted(option.name for option in listed) == sorted(kind.model_fields)
    for option in listed:
        assert option.text
        assert bool(option.value) == (kind.model_fields[option.name].annotation is not bool)


@pytest.mark.parametrize("table", ["VALUES", "UNSET", *options.SECTIONS])
def test_no_text_is_left_of_an_option_that_is_gone(table):
    fields = {f"{name}.{field}" for name, kind in KINDS.items() for field in kind.model_fields}
    fields |= {field.partition(".")[2] for field in fields}
    assert {*(options.SECTIONS.get(table) or getattr(options, table))} <= fields


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "calibrate",
            [
                "Most used: --model_uri URI the registered classifier",
                "--rule [auto|thresholds|optimal] thresholds: a score threshold for each class;",
                "--confidence FLOAT confidence level of the certificate [default: 0.95; 0.5<x<1]",
                "--seed INTEGER seed of the split and the search [default: 0; 0<=x<4294967296]",
                "--require_certificate end with exit code 1 if nothing could be certified",
                "the fit never sees them [default: 0.7, or 0.9 with path_data; 0<x<1]",
                "--waive NAMES classes whose target is not enforced --",
            ],
        ),
        ("gate", ["--risk_targets NUMBER|YAML|FILE the policy's", "--data FILE|URI fresh"]),
        ("predict", ["--key NAMES columns", "--output FOLDER new", "--spark_options YAML|FILE"]),
    ],
)
def test_help_shows_choices_types_ranges_and_defaults(command, lines):
    text = " ".join(invoke(command, "--help").output.split())
    assert [line for line in lines if line not in text] == []
    assert "TEXT" not in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (False, 0)),
        (["--require_certificate"], (True, 0)),
        (["--require_certificate", "--seed", "3"], (True, 3)),
        (["--require_certificate", "true", "--seed", "3"], (True, 3)),
        (["--require_certificate", "False"], (False, 0)),
        (["--require_certificate", "", "--seed", "", "--rule", "", "--confidence", ""], (False, 0)),
    ],
)
def test_a_flag_needs_no_value_and_empty_text_is_none(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("y\n", encoding="utf-8")
    workflow = ModuleType("workflow")
    workflow.run = lambda settings: (settings.require_certificate, settings.seed)
    workflow.summary = str
    monkeypatch.setitem(sys.modules, "workflow", workflow)
    command = Command("calibrate", options.Calibrate, "Help.", "workflow")
    needed = ["--model_uri", "models:/a/1", "--data", "x.csv", "--label", "y"]
    for line in ([*needed, *words], [*words, *needed]):
        assert CliRunner().invoke(command, line).stdout == f"{expected}\n"


def test_relative_paths_start_where_here_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "stand").mkdir()
    Path("stand/targets.yaml").write_text("{a: 0.2, default: 0.1}", encoding="utf-8")
    Path("stand/x.csv").write_text("y\n", encoding="utf-8")
    workflow = ModuleType("workflow")
    workflow.run = lambda read: (read.risk_targets, str(Path.cwd()), os.environ["PYTHONPATH"])
    workflow.summary = str
    monkeypatch.setitem(sys.modules, "workflow", workflow)
    command = Command("plan", options.Plan, "Help.", "workflow")
    words = ["--risk_targets", "targets.yaml", "--data", "x.csv", "--label", "y"]
    done = CliRunner().invoke(command, [*words, "--here", "stand"])
    expected = {"a": 0.2, "default": 0.1}, str(tmp_path / "stand"), str(tmp_path)
    assert done.stdout == f"{expected}\n"
    refused = CliRunner().invoke(command, [*words, "--here", "nowhere"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: here is 'nowhere', but must be a folder")


def test_mlproject_and_the_reference_are_as_make_options_writes_them():
    assert (ROOT / "MLproject").read_text(encoding="utf-8") == write_options.mlproject()
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert text == write_options.reference(text)
    for name in write_options.KINDS:
        assert f"<!-- options of {name} -->" in text


@pytest.mark.parametrize("name", KINDS)
def test_mlproject_passes_every_setting_under_its_own_name_with_its_default(name):
    project = yaml.safe_load((ROOT / "MLproject").read_text(encoding="utf-8"))
    entry = project["entry_points"][name]
    fields = KINDS[name].model_fields
    assert entry["parameters"].pop("here") == {"type": "path", "default": "."}
    assert list(entry["parameters"]) == list(fields)
    command = "calibrate" if name == "main" else name
    pairs = " ".join(f"--{field} {{{field}}}" for field in [*fields, "here"])
    program = "experiments" if name == "reproduce" else f"scrib_mlflow {command}"
    assert entry["command"] == f"python -m {program} {pairs}"
    for field, declared in entry["parameters"].items():
        default = fields[field].get_default()
        if fields[field].is_required():
            assert "default" not in declared
        elif default in {None, ()}:
            assert declared["default"] == ""
        else:
            assert str(declared["default"]) == str(default)


@pytest.mark.parametrize("name", ["calibrate", "evaluate"])
def test_mlproject_leaves_tables_of_a_catalog_to_spark(name):
    points = yaml.safe_load((ROOT / "MLproject").read_text(encoding="utf-8"))["entry_points"]
    table, usual = points[f"{name}_table"], points[name]
    assert table["command"] == usual["command"]
    assert table["parameters"] == {**usual["parameters"], "data": {"type": "string"}}
    optional = {"type": "string", "default": ""}  # a selection has its data
    assert usual["parameters"]["data"] == (optional if name == "calibrate" else {"type": "path"})


def test_conda_yaml_lists_every_dependency_in_its_pip_section():
    import tomllib  # noqa: PLC0415  # Python 3.11 has it, 3.10 skips below

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    conda = yaml.safe_load((ROOT / "conda.yaml").read_text(encoding="utf-8"))
    pip = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert sorted(pip) == sorted(project["project"]["dependencies"])


def invoke(*words):
    return CliRunner().invoke(main, list(words))


def test_a_command_prints_the_table_the_version_and_what_to_do_next(store):
    register_pipeline()
    draw_table(400, seed=2).to_csv("rows.csv", index=False)
    done = invoke(
        *("calibrate", "--model_uri", "models:/base/1", "--data", "rows.csv"),
        *("--label", "label", "--risk_targets", "{hard: 0.2, default: 0.1}"),
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert lines[0].startswith("Not certified")
    assert "base-scrib version 1, alias candidate, answers" in done.stdout
    assert "of the 281 certify rows" in done.stdout
    assert "what would help  " in done.stdout
    assert "a certificate has a predicted chance" in done.stdout
    assert "scrib_mlflow frontier" in done.stdout
    looked = invoke(
        *("evaluate", "--model_uri", "models:/base-scrib/1", "--data", "rows.csv"),
        *("--label", "label"),
    )
    assert looked.exit_code == 0
    assert "these are the rows of its calibration" in looked.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "--model_uri", "models:/nope/1", "--data", "x.csv", "--label", "y"),
        ("calibrate", "--model_uri", "nope", "--data", "x.csv", "--label", "y"),
        ("evaluate", "--model_uri", "models:/nope/1", "--data", "x.csv", "--label", "y"),
        ("gate", "--model_uri", "models:/nope/1"),
        ("gate", "--model_uri", "models:/nope/1", "--evidence", "fresh"),
        ("predict", "--model_uri", "models:/nope/1", "--data", "x.csv", "--output", "out"),
        ("plan", "--data", "x.csv", "--label", "y"),
        ("frontier", "--model_uri", "models:/nope/1", "--data", "x.csv", "--label", "y"),
        ("compare", "--model_uri", "models:/nope/1", "--data", "x.csv", "--label", "y"),
        ("register", "--run_id", "0" * 32),
        ("calibrate", "--model_uri", "models:/a/1", "--data", "x", "--label", "y", "--seed", "x"),
        ("calibrate", "--model_uri", "models:/a/1", "--data", "x", "--label", "y", "--seed", "-1"),
        ("calibrate", "--model_uri", "models:/a/1", "--data", "x", "--label", "y", "--rule", "x"),
    ],
)
def test_what_a_user_can_put_right_is_one_line_and_a_failure(store, words):
    done = invoke(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("store", ["folder", "file", "scheme", "text"])
def test_a_store_that_cannot_be_one_is_told_in_a_sentence(store, tmp_path, monkeypatch):
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "text.db").write_text("no database " * 100, encoding="utf-8")
    places = {
        "folder": f"sqlite:///{tmp_path / 'folder.db'}",
        "file": str(tmp_path / "mlruns"),
        "scheme": "nowhere://x",
        "text": f"sqlite:///{tmp_path / 'text.db'}",
    }
    rows = str(tmp_path / "text.db")
    with using(places[store], tmp_path):
        done = invoke(*("calibrate", "--model_uri", "models:/a/1"), "--data", rows, "--label", "y")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: the ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("calibrate",), ("calibrate", "--zz", "3"), ("nothing",)],
)
def test_a_misused_option_is_a_failure_that_names_it(words):
    done = invoke(*words)
    assert done.exit_code == 2
    assert "Error" in done.stderr


def test_a_server_that_does_not_answer_is_told_in_seconds(tmp_path):
    (tmp_path / "x.csv").write_text("y\n", encoding="utf-8")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "scrib_mlflow", "calibrate", "--model_uri", "models:/a/1"]
    command += ["--data", "x.csv", "--label", "y"]
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import mlflow"], check=True, timeout=PATIENCE)
    loading, start = time.monotonic() - start, time.monotonic()
    run = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    assert time.monotonic() - start < 100 + 10 * loading  # MLflow alone would try for minutes
    assert run.returncode == 3
    (line,) = run.stderr.strip().splitlines()
    assert line.startswith("error: the MLflow store at http://127.0.0.1:9 does not answer")


def test_a_machine_without_git_runs_a_command(certified, tmp_path):
    place = tmp_path / "nothing"
    place.mkdir()
    environment = {**os.environ, "MLFLOW_TRACKING_URI": certified, "PATH": str(place)}
    command = [sys.executable, "-m", "scrib_mlflow", "gate", "--model_uri", "models:/base-scrib/1"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr  # MLflow warns that it cannot name the commit
