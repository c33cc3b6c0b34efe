"""Which targets can be afforded: what is logged, printed, left unread and counted as a use."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.errors import ScribError
from scrib_mlflow.rows.hashes import key_hashes
from scrib_mlflow.workflows import frontier
from tests.conftest import copy_folder, using
from tests.models import CLASSES, FEATURES, case_hashes, draw_mixture, fit_pipeline


@pytest.fixture(scope="module")
def rows():
    """Rows in groups of ten."""
    return draw_mixture(1200, seed=5, apart=2.0).assign(who=np.arange(1200) // 10)


@pytest.fixture(scope="module")
def folder(mixture_folder, tmp_path_factory):
    return copy_folder(mixture_folder, tmp_path_factory.mktemp("frontier"))


@pytest.fixture
def base(folder, rows):
    """The classifier, in its store, beside the file of rows."""
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        rows.to_parquet("rows.parquet")
        yield "models:/base/1"


def explore(uri, **options):
    return scrib_mlflow.frontier(uri, "rows.parquet", "label", **{"points": 5, **options})


def test_a_run_holds_the_table_the_figures_and_the_metrics(base, rows):
    done = explore(base, risk_targets={"hard": 0.2, "default": 0.1})
    assert mlflow.active_run() is None
    found = done.frontier
    left = sum(int(0.7 * n + 0.5) for n in rows["label"].value_counts())
    assert found.classes == CLASSES
    assert found.n_fitted + found.n_held_out == done.data.n_used == 1200 - left
    assert found.certify_rows == left
    assert found.swept == CLASSES
    assert done.use is None
    run = mlflow.get_run(done.run_id)
    assert run.info.run_name == "frontier base"
    assert run.data.params["points"] == "5"
    assert run.data.params["use_certify_rows"] == "false"
    assert run.data.tags["scrib.used_certify_rows"] == "false"
    assert "scrib.ledger_digest" not in run.data.tags
    assert run.inputs.dataset_inputs[0].dataset.name == "frontier"
    metrics = run.data.metrics
    assert metrics["abstention_rate"] == found.chosen.held_out.abstention_rate
    assert metrics["fit_risk/hard"] == found.chosen.fitted.by_class["hard"].risk
    note = run.data.tags["mlflow.note.content"]
    assert "20.0 %" in note
    assert "| target" in note
    path = Path(mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path=""))
    assert sorted(item.name for item in (path / "figures").iterdir()) == [
        "class_abstention.png",
        "frontier.png",
        "one_class.png",
    ]
    table = json.loads((path / "frontier.json").read_text(encoding="utf-8"))
    assert len(table["data"]) == 5 * 4 + 3 * 5 * 2
    text = (path / "target_frontier.json").read_text(encoding="utf-8")
    assert scrib_mlflow.to_json(scrib_mlflow.from_json(text)) == text


def test_labels_of_certify_rows_change_nothing(base, rows):
    def explored():
        return scrib_mlflow.to_json(explore(base, group="who").frontier)

    before = explored()
    hashes = key_hashes(rows["who"])
    certify = split_rows(hashes, np.zeros(len(rows), dtype=np.int32), 0.7, 0, groups=hashes)
    others = {name: CLASSES[(j + 1) % 3] for j, name in enumerate(CLASSES)}
    corrupt = rows["label"].where(~certify, rows["label"].map(others))
    rows.assign(label=corrupt).to_parquet("rows.parquet")
    assert explored() == before
    rows.assign(label=rows["label"].where(certify, corrupt.map(others))).to_parquet("rows.parquet")
    assert explored() != before


class SeenError(Exception):
    """Raised in place of the work, with what it was given."""


def watch(monkeypatch):
    def instead(scores, labels, **options):
        raise SeenError(scores, labels, options)

    monkeypatch.setattr(frontier, "draw_frontier", instead)


def test_the_rows_are_those_that_calibrate_fits_in_whatever_order(base, rows, monkeypatch):
    done = scrib_mlflow.calibrate(base, "rows.parquet", "label", seed=3, risk_targets=0.3)
    watch(monkeypatch)
    with pytest.raises(SeenError) as seen:
        explore(base, seed=3, risk_targets=0.3, empty_weight=1.5)
    scores, labels, options = seen.value.args
    path = mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="rows.parquet")
    hashes = pd.read_parquet(path).query("part == 'fit'")["hash"]
    indices = np.array([CLASSES.index(name) for name in rows["label"]])
    fit = np.isin(case_hashes(rows[FEATURES], indices), hashes)
    assert len(labels) == fit.sum() == done.classifier.fit_data.n_used
    assert options["certify_rows"] == (~fit).sum()
    assert (options["risk_targets"], options["empty_weight"], options["seed"]) == (0.3, 1.5, 3)
    wanted = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(rows[FEATURES][fit])
    assert np.sort(scores, axis=0) == pytest.approx(np.sort(wanted, axis=0))
    assert sorted(labels.tolist()) == sorted(indices[fit].tolist())
    rows.iloc[::-1].to_parquet("rows.parquet")
    with pytest.raises(SeenError) as again:
        explore(base, seed=3, risk_targets=0.3, empty_weight=1.5)
    assert again.value.args[0].tolist() == scores.tolist()
    assert again.value.args[1].tolist() == labels.tolist()


def test_looking_at_the_certify_rows_is_recorded_and_counts_as_a_use(mixture, rows):
    base = mixture
    rows.to_parquet("rows.parquet")
    done = explore(base, use_certify_rows=True, group="who")
    assert done.frontier.n_fitted + done.frontier.n_held_out == done.data.n_used == 1200
    assert (done.frontier.certify_rows, done.frontier.certify_groups) == (840, 84)
    assert done.use.number == 1
    run = mlflow.get_run(done.run_id)
    assert run.data.params["use_certify_rows"] == "true"
    assert run.data.tags["scrib.used_certify_rows"] == "true"
    assert run.data.tags["scrib.ledger_digest"] == done.data.digest
    assert "no longer holds as stated" in run.data.tags["mlflow.note.content"]
    assert "no longer holds as stated" in frontier.summary(done)
    assert explore(base, use_certify_rows=True, group="who").use.number == 1  # again
    explore(base)  # leaves them alone
    later = scrib_mlflow.calibrate(base, "rows.parquet", "label", risk_targets=0.3)
    assert later.classifier.use.number == 2
    assert later.classifier.use.total == pytest.approx(0.1)
    note = mlflow.MlflowClient().get_model_version(later.name, later.version).description
    assert "use 2 of these rows" in note
    assert later.classifier.use.n_looks == 1
    assert "frontier has looked at the labels of these rows" in note


def test_another_seed_of_calibrate_is_a_later_use_of_rows_that_were_looked_at(mixture, rows):
    base = mixture
    rows.to_parquet("rows.parquet")
    assert explore(base, use_certify_rows=True, seed=3).use.number == 1
    later = scrib_mlflow.calibrate(base, "rows.parquet", "label", risk_targets=0.3, seed=4)
    assert later.classifier.use.number == 2
    assert later.classifier.use.total == pytest.approx(0.1)


def test_the_command_prints_what_targets_cost_and_what_was_not_read(base):
    words = ["frontier", "--model_uri", base, "--data", "rows.parquet", "--label", "label"]
    words += ["--risk_targets", "{hard: 0.2, default: 0.1}", "--points", "20", "--group", "who"]
    done = CliRunner().invoke(main, [*words, "--rule", "optimal"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("At the chosen targets (10.0 %, hard 20.0 %)")
    assert "180 rows to fit and 180 held out, by 36 groups that stay whole" in done.stdout
    start = lines.index("") + 1
    assert lines[start].split()[:4] == ["target", "of", "most", "abstains"]
    assert "the others move with it in proportion: hard 2 times" in done.stdout
    table = lines[start : lines.index("", start)]
    assert len(table) > 9
    assert len({len(line) for line in table}) == 1
    assert len(lines) <= 40
    assert "10.0 % *" in done.stdout
    assert "The other 840 rows are those that calibrate would certify on" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 3}, "points is 3"),
        ({"lowest": 0.3}, "the chosen one, 0.1, must lie between"),
        ({"rule": "optimal", "empty_weight": 1.1}, "empty_weight is for rule=thresholds"),
        ({"rule": "optimal", "scores_from": "decision_function"}, "no probabilities"),
        ({"group": "doctor"}, "no column 'doctor'"),
        ({"waive": list(CLASSES)}, "no target to sweep"),
        ({"repeats": 3}, "frontier has no parameter 'repeats'"),
        ({"certify_fraction": 0.9999}, "class 'easy' has 1 row among the fit rows"),
    ],
)
def test_bad_options_are_told_in_a_sentence(base, options, message):
    with pytest.raises(ScribError, match=message):
        explore(base, **options)
    assert mlflow.active_run() is None
