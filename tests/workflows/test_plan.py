"""The planner as a command: what rows can certify, before anything is fitted."""

import mlflow
import pytest
from click.testing import CliRunner

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.errors import ScribError
from tests.models import draw_mixture


@pytest.fixture
def rows(store):
    table = draw_mixture(1000, seed=1)
    table.to_csv("rows.csv", index=False)
    return table


def test_the_table_says_for_each_class_what_its_rows_can_certify(rows):
    done = scrib_mlflow.plan("rows.csv", "label", risk_targets={"hard": 0.02, "default": 0.1})
    by_class = {each.name: each for each in done.plan.by_class}
    hard = by_class["hard"]
    count = (rows["label"] == "hard").sum()
    assert hard.n == round(0.7 * count)
    assert hard.least_rows == 149
    assert hard.least_target == pytest.approx(1 - 0.05 ** (1 / hard.n))
    assert by_class["easy"].least_rows == 29
    assert by_class["easy"].chance > hard.chance
    files = {item.path for item in mlflow.MlflowClient().list_artifacts(done.run_id)}
    assert files == {"plan.json", "figures"}


def test_the_command_prints_a_table_and_a_verdict(rows):
    done = CliRunner().invoke(
        main, ["plan", "--data", "rows.csv", "--label", "label", "--risk_targets", "0.01"]
    )
    assert done.exit_code == 0
    assert "certain rows needed" in done.output
    assert "By the plan, nothing can be certified: too few certify rows of" in done.output
    assert "299" in done.output


def test_groups_that_are_too_few_are_told(rows):
    table = rows.assign(patient=[i % 20 for i in range(len(rows))])
    table.to_csv("rows.csv", index=False)
    done = scrib_mlflow.plan("rows.csv", "label", group="patient", certify_fraction=1)
    assert done.plan.n_groups == 20
    assert done.plan.chance == 0
    with pytest.raises(ScribError, match="no column 'doctor'"):
        scrib_mlflow.plan("rows.csv", "label", group="doctor")


def test_missing_labels_and_unknown_classes_are_told(rows):
    rows.assign(label=rows["label"].where(rows.index > 4)).to_parquet("gaps.parquet")
    with pytest.raises(ScribError, match="no label in row 0"):
        scrib_mlflow.plan("gaps.parquet", "label")
    with pytest.raises(ScribError, match="unknown class 'hrad'"):
        scrib_mlflow.plan("rows.csv", "label", waive=["hrad"])
