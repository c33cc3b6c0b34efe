"""The paper's experiments end to end, on outputs small enough for a test."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pytest
from click.testing import CliRunner

from experiments import quoted
from experiments.__main__ import main
from experiments.experiments import EXPERIMENTS
from experiments.reproduce import Reproduce, reproduce
from scrib_mlflow.errors import ScribError
from scrib_mlflow.synthetic import draw_scores

QUICK = [name for name in EXPERIMENTS if name != "optimisers"]


@pytest.fixture
def outputs(store, tmp_path):
    """A folder with two saved outputs, one of them in groups, and one of too many classes."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    scores, labels = draw_scores(400, noise=3**0.5, signal=(5.0, 2.0, 3.0))
    np.savez(folder / "grouped.npz", probs=scores, y=labels, groups=np.arange(400) // 20)
    np.savez(folder / "plain.npz", probs=scores[:300], y=labels[:300])
    random = np.random.default_rng(0)
    many = random.dirichlet(np.ones(25), 200)
    np.savez(folder / "many.npz", probs=many, y=np.arange(200) % 25)
    return folder


@pytest.mark.slow
def test_every_experiment_gives_its_table_beside_the_papers(outputs):
    done = reproduce(outputs=str(outputs), repeats=2, experiments=QUICK)
    tables = {table.name: table for table in done.tables}
    assert {"data", "excess", "excess_by_group", "ambiguity", "auc", "rmse"} <= set(tables)
    assert {"unequal_plain", "one_threshold", "correlation"} <= set(tables)
    for table in done.tables:
        assert {len(row) for row in table.rows} == {len(table.header)}, table.name
    excess = {row[0]: row for row in tables["excess"].rows}
    assert list(excess) == ["grouped", "many", "plain", *(f"paper: {n}" for n in quoted.EXCESS)]
    assert tables["excess_by_group"].rows[0][0] == "grouped"
    assert excess["paper: ECG"][1:5] == ("46.23", "21.58", "7.71", "0.90")
    assert any("many is left out" in note for note in tables["one_threshold"].notes)
    assert mlflow.active_run() is None
    run = mlflow.get_run(done.run_id)
    assert run.data.params["repeats"] == "2"
    path = Path(mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path=""))
    assert {f"{name}.json" for name in tables} == {
        item.name for item in (path / "tables").iterdir()
    }
    logged = json.loads((path / "tables" / "excess.json").read_text(encoding="utf-8"))
    assert logged["data"][0] == list(excess["grouped"])
    text = (path / "paper.md").read_text(encoding="utf-8")
    assert text.count("## ") == len(done.tables)
    assert (path / "figures" / "unequal_plain.png").exists()
    inside = mlflow.search_runs(filter_string=f"tags.mlflow.parentRunId = '{done.run_id}'")
    assert len(inside) == 3 * 6
    of_scrib = inside[(inside["params.data"] == "plain") & (inside["params.method"] == "SCRIB")]
    told = float(excess["plain"][4]) / 100
    assert of_scrib["metrics.mean_excess"].item() == pytest.approx(told, abs=1e-4)


def test_optimisers_are_told_by_loss_and_time(outputs):
    for name in ("many", "plain"):
        (outputs / f"{name}.npz").unlink()
    words = ["--outputs", str(outputs), "--experiments", "optimisers"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    place = lines.index("Final loss of optimisers")
    assert lines[place + 2].split()[0] == "data"
    row = lines[place + 3].split()
    assert row[0] == "grouped"
    losses = [float(cell) for cell in row[2:]]
    assert losses[-1] == min(losses)  # ours
    assert lines.index("Seconds of one processor") > place


def test_what_is_left_out_is_said_even_where_no_table_is_left(outputs):
    for name in ("grouped", "plain"):
        (outputs / f"{name}.npz").unlink()
    chosen = ["by_group", "overall_risk", "unequal_targets", "one_threshold", "correlation"]
    done = reproduce(outputs=str(outputs), repeats=2, experiments=chosen)
    (table,) = done.tables
    assert table.name == "data"
    many = "many is left out: it has more than 20 classes."
    assert table.notes[1:] == (
        "by_group: no data set has groups.",
        *(f"{name}: {many}" for name in chosen[1:]),
    )
    text = mlflow.artifacts.load_text(f"runs:/{done.run_id}/paper.md")
    assert "by_group: no data set has groups." in text


def test_nobody_is_told_to_waive_a_class_where_nothing_can_be_waived(outputs):
    scores, labels = draw_scores(60, noise=1.0, signal=(5.0, 2.0, 3.0))
    labels[labels == 1] = 0
    labels[7] = 1
    np.savez(outputs / "grouped.npz", probs=scores, y=labels, groups=np.arange(60) // 20)
    (outputs / "many.npz").unlink()
    options = {"outputs": str(outputs), "repeats": 2, "experiments": ["by_group"]}
    (table,) = reproduce(**options).tables
    (note,) = (note for note in table.notes if note.startswith("by_group: grouped is left out"))
    assert "class '1' has 1 group" in note
    assert "waive" not in note


def test_help_names_every_experiment():
    text = Reproduce.model_fields["experiments"].description
    assert text.partition(": ")[2].split(", ") == list(EXPERIMENTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experiments": ["clas_risks"]}, "experiments has no 'clas_risks'; did you mean"),
        ({"outputs": "nowhere"}, "outputs nowhere is no folder"),
        ({"repeats": 1}, "repeats"),
        ({"size": "huge"}, "size"),
    ],
)
def test_bad_options_are_told_in_a_sentence(store, options, message):
    with pytest.raises(ScribError, match=message):
        reproduce(**options)
    assert mlflow.active_run() is None
