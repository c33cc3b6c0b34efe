"""The ledger: certificates on the same rows are counted, and may have to share."""

import math
import subprocess
import sys

import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow.errors import StoreError
from scrib_mlflow.registry import ledger


def calibrate(uri="models:/base/1", **options):
    return scrib_mlflow.calibrate(uri, "rows.parquet", "label", **options)


AGAIN = """
import sys, scrib_mlflow
done = scrib_mlflow.calibrate(
    "models:/base/1", "rows.parquet", "label", seed=int(sys.argv[1]), ledger=sys.argv[2]
)
use = done.classifier.use
print(use.number, use.level, use.total)
"""


def calibrate_elsewhere(seed, ledger="report"):
    """Calibrate in a process of its own and return what the ledger said."""
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, str(seed), ledger], check=True, capture_output=True
    )
    number, level, total = done.stdout.split()
    return int(number), float(level), float(total)


def test_uses_of_rows_are_counted_across_experiments(certified):
    mlflow.set_experiment("another")
    try:
        assert calibrate(seed=1).classifier.use.number == 2
    finally:
        mlflow.set_experiment(experiment_id="0")
    assert calibrate(rule="thresholds").classifier.use.number == 1  # again
    assert calibrate().classifier.use.number == 3
    assert calibrate(rule="optimal", answers="top").classifier.use.number == 3  # the defaults


@pytest.mark.slow
def test_uses_of_rows_are_counted_across_processes(certified):
    assert calibrate_elsewhere(2) == (2, pytest.approx(0.05), pytest.approx(0.1))
    number, level, total = calibrate_elsewhere(3)
    assert (number, level, total) == (3, pytest.approx(0.05), pytest.approx(0.15))
    note = mlflow.MlflowClient().get_model_version("base-scrib", "4").description
    assert "use 3 of these rows" in note
    assert "up to 15.0 %" in note
    assert "provided that neither targets nor candidates were chosen" in note


def test_spending_gives_each_use_a_smaller_part_with_which_it_passes_the_gate(mixture):
    levels = [calibrate(seed=seed, ledger="spend").classifier.use.level for seed in (0, 1)]
    assert levels == pytest.approx([0.05 * 6 / (math.pi * i) ** 2 for i in (1, 2)])
    assert levels[0] == pytest.approx(0.0304, abs=1e-4)
    done = scrib_mlflow.gate("models:/base-scrib/2", ledger="spend")
    assert done.decision.passed == done.decision.checks[1].passed


def test_uses_in_one_open_run_are_counted_each(mixture):
    with mlflow.start_run() as run:
        numbers = [calibrate(seed=seed).classifier.use.number for seed in (0, 1)]
    assert numbers == [1, 2]
    assert mlflow.get_run(run.info.run_id).data.tags["scrib.ledger_number"] == "1"


def test_uses_of_deleted_runs_and_of_crashed_ones_count(mixture, monkeypatch):
    first = calibrate()
    mlflow.delete_run(first.run_id)
    with monkeypatch.context() as patch:
        patch.setattr("scrib_mlflow.workflows.fitting.certify_path", interrupt)
        with pytest.raises(KeyboardInterrupt):
            calibrate(seed=1)
    assert calibrate(seed=2).classifier.use.number == 3
    assert calibrate(seed=2, risk_targets=0.2).classifier.use.number == 4


def test_a_use_that_failed_before_labels_were_read_does_not_count(mixture, monkeypatch):
    for name in ("fitting.draw_path", "calibrate._try_serving"):
        with monkeypatch.context() as patch:
            patch.setattr(f"scrib_mlflow.workflows.{name}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                calibrate(seed=1)
    assert calibrate().classifier.use.number == 1


def test_a_use_that_failed_after_labels_were_read_says_that_it_counts(mixture, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr("scrib_mlflow.registry.models.log_model", interrupt)
        with pytest.raises(KeyboardInterrupt):
            calibrate(seed=1)
    assert "counts as use 1 of them" in caplog.text
    assert calibrate().classifier.use.number == 2


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", ["", "abc", "nan", "-1", "9" * 4400])
@pytest.mark.parametrize("tag", ["scrib.ledger_number", "scrib.ledger_level"])
def test_a_tag_of_the_ledger_that_was_changed_into_nonsense_stops_the_next_use(store, tag, value):
    with mlflow.start_run() as first:
        ledger.enter(first.info.run_id, "rows", "test", 0.05, "report")
        mlflow.set_tag(tag, value)
    with mlflow.start_run() as again, pytest.raises(StoreError, match=f"the tag {tag} of run"):
        ledger.enter(again.info.run_id, "rows", "test", 0.05, "report")
    assert ledger.number_of(first.info.run_id) == (None if "number" in tag else 1)
