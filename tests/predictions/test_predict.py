"""Predict: every row is answered, and the folder of answers is whole or not there."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.errors import InvalidDataError, OutputError, ScribError
from scrib_mlflow.predictions import answers as predictions
from tests.conftest import PATIENCE
from tests.models import CLASSES, FEATURES, draw_table

SERVED = {
    "prediction": pa.string(),
    "abstain": pa.bool_(),
    "reason": pa.string(),
    "prediction_set": pa.list_(pa.string()),
    "set_size": pa.int64(),
    "candidates": pa.list_(pa.string()),
}


def numbered(n, seed=11):
    """Return rows with two columns that name them, one of them beyond what floats can hold."""
    rows = draw_table(n, seed=seed)
    names = [f"r{i}" for i in range(n)]
    numbers = pd.array([2**60 + i for i in range(n)], dtype="Int64")
    return rows.assign(name=names, number=numbers)


def expected(model_uri, rows, **params):
    """Return what the served model answers to all rows at once."""
    answers = mlflow.pyfunc.load_model(model_uri).predict(rows[FEATURES], params=params)
    return answers.to_dict(orient="records")


def names():
    """Return the names of outputs, and of all that was left of them."""
    return sorted(path.name for path in Path().glob("out*"))


def answers(folder):
    """Return the answers in a folder, without the keys."""
    found = pq.read_table(folder).to_pylist()
    return [{name: row[name] for name in SERVED} for row in found]


@pytest.fixture
def rows(loose):
    """Rows in a file of several row groups, one of which cannot be scored."""
    table = numbered(400)
    table.loc[7, "x1"] = math.nan
    table.loc[9, "number"] = pd.NA
    table.to_parquet("rows.parquet", row_group_size=70)
    return table


def test_every_row_is_answered_beside_its_key_with_the_types_of_the_signature(loose, rows):
    done = scrib_mlflow.predict(
        loose.model_uri, "rows.parquet", "out", key="number,name", batch_rows=9
    )
    found = pq.read_table("out")
    assert found.schema.names == ["number", "name", *SERVED]
    types = {"number": pa.int64(), "name": pa.string(), **SERVED}
    assert {name: found.schema.field(name).type for name in types} == types
    assert (
        found.column("number").to_pylist()
        == rows["number"].astype(object).where(rows["number"].notna(), None).tolist()
    )
    assert found.column("name").to_pylist() == rows["name"].tolist()
    assert answers("out") == expected(loose.model_uri, rows)
    assert set(done.predictions.reasons) == {"ambiguous", "empty", "invalid_scores"}
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "_scrib.json",
        *(f"part-{i:05d}.parquet" for i in range(5)),
    ]
    assert names() == ["out"]


def test_no_answers_are_written_into_a_copy_of_a_project_that_mlflow_has_made(
    loose, rows, tmp_path, monkeypatch
):
    copy = tmp_path / "tmpab_cd123"  # as MLflow names the folder of a project that it fetches
    copy.mkdir()
    (copy / "MLproject").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    data = str(tmp_path / "rows.parquet")
    with pytest.raises(OutputError, match=rf"{copy}/out, in the temporary copy .* absolute path"):
        scrib_mlflow.predict(loose.model_uri, data, "out")
    monkeypatch.delenv("MLFLOW_RUN_ID")  # such as a folder that a person has made
    assert scrib_mlflow.predict(loose.model_uri, data, "out").predictions.n_rows == len(rows)


def test_pandas_reads_the_folder_of_answers(loose, rows):
    scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key=["name"])
    found = pd.read_parquet("out")
    assert found["abstain"].dtype == np.bool_
    assert found["set_size"].dtype == np.int64
    assert [list(members) for members in found["prediction_set"]] == [
        row["prediction_set"] for row in expected(loose.model_uri, rows)
    ]


def test_the_manifest_says_what_answered_which_rows(loose, rows):
    done = scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name", batch_rows=20)
    said = json.loads(Path("out/_scrib.json").read_text(encoding="utf-8"))
    assert said["schema_version"] == 8
    assert said["type"] == "predictions"
    assert said["model_uri"] == "models:/base-scrib/1"
    version = mlflow.MlflowClient().get_model_version("base-scrib", "1")
    assert said["certificate_digest"] == version.tags["scrib.certificate_digest"]
    assert said["data"]["source"] == "rows.parquet"
    assert [(part["name"], part["n_rows"]) for part in said["parts"]] == [
        ("part-00000.parquet", 200),
        ("part-00001.parquet", 200),
    ]
    counts = pd.Series([row["reason"] for row in expected(loose.model_uri, rows)]).value_counts()
    assert said["reasons"] == {name: n for name, n in counts.items() if name}
    assert said["n_abstained"] == sum(said["reasons"].values())
    assert list(said["columns"]) == ["name", *SERVED]
    assert scrib_mlflow.from_json(Path("out/_scrib.json").read_text()) == done.predictions


def test_a_run_says_how_often_the_model_abstained(loose, rows):
    done = scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name")
    run = mlflow.get_run(done.predictions.run_id)
    share = np.mean([row["abstain"] for row in expected(loose.model_uri, rows)])
    assert run.data.metrics["abstention_rate"] == pytest.approx(share)
    assert run.data.metrics["n_invalid"] == 1
    assert run.data.tags["scrib.model_uri"] == loose.model_uri
    assert run.data.params["output"] == "out"
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.digest == done.predictions.data.digest


def test_explained_answers_have_scores_and_thresholds(loose, rows):
    scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", explain=True, batch_rows=8)
    found = pq.read_table("out").to_pylist()
    wanted = expected(loose.model_uri, rows, explain=True)
    for given, row in zip(found, wanted, strict=True):  # a batch's size can change last bits
        assert given.pop("scores") == pytest.approx(row.pop("scores"), abs=1e-12)
        assert given == row
    assert answers("out")[7]["reason"] == "invalid_scores"


def test_a_csv_is_answered_like_parquet(loose, rows):
    rows.drop(columns="number").to_csv("rows.csv", index=False)
    scrib_mlflow.predict(loose.model_uri, "rows.csv", "out", key="name", batch_rows=13)
    assert answers("out") == expected(loose.model_uri, rows)


def test_batches_without_a_row_that_can_be_scored_abstain(loose):
    table = numbered(30)
    table.loc[10:19, "x0"] = math.nan
    table.to_parquet("rows.parquet")
    scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name", batch_rows=5)
    found = answers("out")
    assert [row["reason"] == "invalid_scores" for row in found] == [10 <= i < 20 for i in range(30)]
    assert found == expected(loose.model_uri, table)


def test_a_table_without_a_row_that_can_be_scored_is_an_error_and_no_output(loose):
    table = numbered(30)
    table["x0"] = math.nan
    table.to_parquet("rows.parquet")
    with pytest.raises(InvalidDataError, match="not one row of data") as error:
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", batch_rows=5)
    assert "NaN" in str(error.value)
    assert names() == []


class Counting(mlflow.pyfunc.PythonModel):
    """Gives scores by a whole number and a truth."""

    def predict(self, context, model_input, params=None):
        assert model_input["count"].dtype == np.int32
        assert model_input["sure"].dtype == np.bool_
        high = 0.5 + 0.4 * model_input["sure"] * (model_input["count"] % 2)
        return pd.DataFrame({"a": high, "b": 1 - high})


def register_counting():
    inputs = Schema([ColSpec(DataType.integer, "count"), ColSpec(DataType.boolean, "sure")])
    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model",
            python_model=Counting(),
            signature=ModelSignature(inputs=inputs),
            registered_model_name="counting",
            pip_requirements=["mlflow"],
        )
    return "models:/counting/1"


@pytest.mark.parametrize("batch_rows", [10_000, 1])
def test_a_missing_whole_number_costs_the_answer_of_its_own_row_only(store, batch_rows):
    uri = register_counting()
    table = pd.DataFrame({"count": np.arange(60), "sure": True})
    table["label"] = np.where(table["count"] % 2, "a", "b")
    table.to_parquet("fit.parquet")
    made = scrib_mlflow.calibrate(uri, "fit.parquet", "label", mode="paper", risk_targets=0.5)
    fields = {
        "count": pa.array([1, None, 2, 3, 4], pa.int32()),
        "sure": pa.array([True, True, None, True, False]),
    }
    pq.write_table(pa.table(fields), "rows.parquet")
    options = {"key": "count", "batch_rows": batch_rows}
    scrib_mlflow.predict(made.model_uri, "rows.parquet", "out", **options)
    whole = pd.DataFrame({"count": [1, 3, 4], "sure": [True, True, False]})
    given = mlflow.pyfunc.load_model(made.model_uri).predict(whole.astype({"count": np.int32}))
    found = answers("out")
    assert [found[i] for i in (0, 3, 4)] == given.to_dict(orient="records")
    assert [row["reason"] for row in found[1:3]] == ["invalid_scores", "invalid_scores"]
    assert pq.read_table("out").column("count").to_pylist() == [1, None, 2, 3, 4]


def test_an_output_that_is_there_is_refused_unless_it_may_be_replaced(loose, rows):
    first = scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name")
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    with pytest.raises(OutputError, match="output out is there; replace it with overwrite=true"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name")
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    rows.iloc[1:].to_parquet("rows.parquet")
    done = scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name", overwrite=True)
    assert (done.already, done.kept) == (first.already, first.kept) == (False, 0)
    assert answers("out") == expected(loose.model_uri, rows.iloc[1:].reset_index(drop=True))
    assert names() == ["out"]


def test_an_empty_folder_is_no_output(loose, rows):
    Path("out").mkdir()
    scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out")
    assert answers("out") == expected(loose.model_uri, rows)
    assert names() == ["out"]


def test_what_predict_did_not_write_is_never_replaced(loose, rows):
    Path("out").mkdir()
    Path("out/precious.txt").write_text("mine", encoding="utf-8")
    Path("out.txt").write_text("mine", encoding="utf-8")
    for name in ("out", "out.txt"):
        with pytest.raises(OutputError, match="was not written by predict"):
            scrib_mlflow.predict(loose.model_uri, "rows.parquet", name, overwrite=True)
    Path("out.link").symlink_to("out")
    with pytest.raises(OutputError, match="is a link"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out.link", overwrite=True)
    assert Path("out/precious.txt").read_text(encoding="utf-8") == "mine"
    assert Path("out.txt").read_text(encoding="utf-8") == "mine"
    assert names() == ["out", "out.link", "out.txt"]


def test_what_lies_next_to_the_output_stays_and_leftovers_are_named(loose, rows, caplog):
    others = ["out.partial", "out.partial-0123", "out.replaced", "out.replaced-4567", "out2"]
    for name in others:
        Path(name).mkdir()
        Path(name, "_scrib.json").write_text("mine", encoding="utf-8")
    for _ in range(2):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", overwrite=True)
        assert names() == sorted(["out", *others])
    assert all(Path(name, "_scrib.json").read_text(encoding="utf-8") == "mine" for name in others)
    told = [text for text in caplog.messages if "is left of a predict that was killed" in text]
    assert [text.split()[0] for text in told] == ["out.partial-0123", "out.replaced-4567"] * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_uri": "models:/base/1"}, "is no set classifier"),
        ({"data": "nowhere.parquet"}, "does not exist"),
        ({"key": "nmae"}, "has no column 'nmae', which key names; did you mean 'name'?"),
        ({"key": "name,name"}, "key names 'name' more than once"),
        ({"key": "prediction", "data": "named.parquet"}, "is also a column of the answers"),
        ({"data": "less.parquet"}, "lacks the model's inputs 'x1', 'x2'"),
        ({"data": "folder", "output": "folder/out"}, "inside the data folder"),
        ({"data": "folder", "output": "folder"}, "holds the data"),
        ({"output": "rows.parquet/out"}, "inside the data folder"),
        ({"output": "named.parquet/out"}, "cannot be written: Not a directory"),
        ({"output": "s3://bucket/out"}, "engine=local writes to a local folder"),
        ({"data": "texts.parquet"}, "of data: Incompatible input types for column x0"),
        ({"output": "."}, "name a folder that is not there yet"),
        ({"output": ".."}, "name a folder that is not there yet"),
        ({"engine": "dask"}, "engine is 'dask'"),
        ({"spark_options": {"spark.master": "local"}}, "spark_options are for engine=spark"),
    ],
)
def test_bad_input_is_told_in_a_sentence_and_writes_nothing(loose, rows, change, words):
    rows.assign(prediction="x").to_parquet("named.parquet")
    rows.drop(columns=["x1", "x2"]).to_parquet("less.parquet")
    rows.assign(x0="text").to_parquet("texts.parquet")
    Path("folder").mkdir()
    rows.to_parquet("folder/rows.parquet")
    before = sorted(Path().rglob("*"))
    given = {"model_uri": loose.model_uri, "data": "rows.parquet", "output": "out", **change}
    with pytest.raises(ScribError) as error:
        scrib_mlflow.predict(**given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(Path().rglob("*")) == before


@pytest.fixture(params=["new", "there"])
def before(request, loose, rows):
    """What the output holds before a run that fails: nothing, or answers to be replaced."""
    if request.param == "there":
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="number")
    return contents("out")


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).glob("*")}


def test_a_full_disk_is_an_error_and_leaves_what_was_there(loose, before, monkeypatch):
    write_table, written = pq.write_table, []

    def full(table, file):
        if len(written) == 2:
            file.write(b"PAR1 and no more")
            raise OSError(28, "No space left on device")
        write_table(table, file)
        written.append(file.name)

    monkeypatch.setattr(predictions.pq, "write_table", full)
    with pytest.raises(OutputError, match="out cannot be written: No space left on device; make"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", batch_rows=10, overwrite=True)
    assert len(written) == 2
    assert names() == (["out"] if before else [])
    assert contents("out") == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interruption_in_the_middle_leaves_what_was_there(loose, before, monkeypatch, error):
    answer = predictions.answer

    def stop(model, rows, request, start):
        if start > 200:
            raise error
        return answer(model, rows, request, start)

    monkeypatch.setattr(predictions, "answer", stop)
    with pytest.raises(error):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", batch_rows=10, overwrite=True)
    assert names() == (["out"] if before else [])
    assert contents("out") == before


def test_an_output_is_put_back_where_the_new_one_cannot_take_its_name(loose, rows, monkeypatch):
    scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="number")
    before, rename = contents("out"), Path.rename

    def refuse(path, target):
        if ".partial-" in path.name:
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OutputError, match="Permission denied"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", overwrite=True)
    assert names() == ["out"]
    assert contents("out") == before


def test_of_two_runs_the_later_one_does_not_replace_the_earlier(loose, rows, monkeypatch):
    write_manifest = predictions.write_manifest

    def meanwhile(*rest):
        monkeypatch.setattr(predictions, "write_manifest", write_manifest)
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="name")
        write_manifest(*rest)

    monkeypatch.setattr(predictions, "write_manifest", meanwhile)
    with pytest.raises(OutputError, match="output out is there"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", key="number")
    assert names() == ["out"]
    assert pq.read_schema("out/part-00000.parquet").names[0] == "name"


def test_data_that_changes_while_it_is_read_is_refused(loose, rows, monkeypatch):
    count = predictions.count_reasons

    def change(table):
        os.utime("rows.parquet", ns=(1, 1))
        return count(table)

    monkeypatch.setattr(predictions, "count_reasons", change)
    with pytest.raises(InvalidDataError, match="changed while it was read"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", batch_rows=10)
    assert names() == []


class Slow(mlflow.pyfunc.PythonModel):
    """Takes its time with each batch."""

    def predict(self, context, model_input, params=None):
        if len(model_input) == 10:
            time.sleep(0.2)
        first = 1 / (1 + np.exp(-model_input["x0"]))
        return pd.DataFrame({"easy": first / 2, "hard": (1 - first) / 2, "middle": 0.5})


@pytest.mark.slow
def test_a_run_that_is_ended_leaves_no_output_and_a_killed_one_its_folder(store):
    table = numbered(600)
    table.to_parquet("rows.parquet")
    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model",
            python_model=Slow(),
            signature=mlflow.models.infer_signature(table[FEATURES]),
            registered_model_name="slow",
            pip_requirements=["mlflow"],
        )
    options = {"mode": "paper", "risk_targets": 0.5, "classes": CLASSES}
    made = scrib_mlflow.calibrate("models:/slow/1", "rows.parquet", "label", **options)
    words = ["predict", "--model_uri", made.model_uri, "--data", "rows.parquet", "--output", "out"]
    words += ["--key", "name", "--batch_rows", "10"]
    command = [sys.executable, "-m", "scrib_mlflow", *words]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store}
    for sent, code, left in ((signal.SIGTERM, 143, 0), (signal.SIGKILL, -signal.SIGKILL, 1)):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not [*Path().glob("out.partial-*/part-00001*")]:
            time.sleep(0.05)
        process.send_signal(sent)
        process.communicate()
        assert process.returncode == code
        assert len(names()) == left
    (killed,) = names()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"{killed} is left of a predict that was killed" in done.stderr
    assert "answered 600 rows into out: 6 parquet files" in done.stdout
    assert names() == ["out", killed]
    scrib_mlflow.predict(made.model_uri, "rows.parquet", "other", key="name", batch_rows=100)
    assert pq.read_table("out").equals(pq.read_table("other"))


@pytest.mark.parametrize("refused", ["INSERT ON metrics", "UPDATE ON runs", "INSERT ON datasets"])
def test_a_whole_output_is_a_success_where_only_its_logging_fails(certified, refused, capsys):
    file = Path(certified.removeprefix("sqlite:///"))
    with sqlite3.connect(file) as database:  # a store that is full, or goes away at the end
        words = "SELECT RAISE(ABORT, 'the store is full')"
        database.execute(f"CREATE TRIGGER full BEFORE {refused} BEGIN {words}; END")
    database.close()
    options = ["--model_uri", "models:/base-scrib/1", "--data", "fresh.parquet", "--output", "out"]
    with pytest.raises(SystemExit) as ended:
        main(["predict", *options])
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    assert "the store is full" in told.err
    if refused == "UPDATE ON runs":  # which then stays unfinished, with all that was logged
        assert "could not be ended, but all else is done" in told.err
    else:
        assert "out is whole, but run" in told.err
        assert "not all of it is logged to run" in told.out
    assert len(pd.read_parquet("out")) == 2000
    assert "Traceback" not in told.err


def test_an_error_before_the_output_is_whole_is_still_one(loose, rows, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(predictions, "write_manifest", fail)
    with pytest.raises(OSError, match="the disk is full"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out")
    assert names() == []
