"""Predict with Spark: the answers of the local engine, and a folder that is whole or not there."""

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.predictions import spark
from tests.predictions.test_predict import SERVED, numbered

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

SPARK = {
    "engine": "spark",
    "spark_options": {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "2"},
}


@pytest.fixture(scope="module", autouse=True)
def session():
    """One session for all tests, which is faster."""
    from scrib_mlflow.engines.spark.session import session  # noqa: PLC0415

    with session(SPARK["spark_options"]) as found:
        yield found


@pytest.fixture
def rows(loose):
    """Rows in three files, some of which cannot be scored: among them all of a whole batch."""
    table = numbered(300)
    table.loc[[7, *range(100, 130)], "x1"] = math.nan
    Path("rows").mkdir()
    for i in range(3):
        table.iloc[100 * i : 100 * i + 100].to_parquet(f"rows/{i}.parquet")
    return table


def by_name(folder):
    found = pq.read_table(folder)
    return found.take(pa.compute.sort_indices(found, [("name", "ascending")]))


@pytest.mark.parametrize("explain", [False, True])
def test_spark_writes_what_the_local_engine_writes(loose, rows, explain):
    options = {"key": "name,number", "explain": explain, "batch_rows": 10}
    done = scrib_mlflow.predict(loose.model_uri, "rows", "far", **options, **SPARK)
    near = scrib_mlflow.predict(loose.model_uri, "rows", "near", **options)
    first, second = by_name("far").to_pylist(), by_name("near").to_pylist()
    for mine, yours in zip(first, second, strict=True):
        assert mine.pop("scores", []) == pytest.approx(yours.pop("scores", []), abs=1e-12)
    assert first == second
    assert done.predictions.reasons == near.predictions.reasons
    assert done.predictions.reasons["invalid_scores"] == 31
    assert done.predictions.data.digest == near.predictions.data.digest
    assert done.predictions.columns == near.predictions.columns
    found = pq.read_table("far").schema
    types = {"name": pa.string(), "number": pa.int64(), **SERVED}
    assert {name: found.field(name).type for name in types} == types
    assert found.names == pq.read_table("near").schema.names
    assert sorted(path.name for path in Path("far").iterdir()) == [
        "_scrib.json",
        *(f"part-{i:05d}-00000.parquet" for i in range(3)),
    ]
    assert scrib_mlflow.predict(loose.model_uri, "rows", "far", **options, **SPARK).already


def test_a_csv_and_a_table_of_the_catalog_are_answered(loose, rows, session):
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    rows.drop(columns="number").to_csv("rows.csv", index=False)
    scrib_mlflow.predict(loose.model_uri, "rows.csv", "csv", key="name", **SPARK)
    session.read.parquet(Path("rows").absolute().as_uri()).createOrReplaceTempView("nights")
    scrib_mlflow.predict(loose.model_uri, "nights", "table", key="name", **SPARK)
    assert by_name("csv").to_pylist() == by_name("near").to_pylist()
    assert by_name("table").to_pylist() == by_name("near").to_pylist()


def test_paths_may_hold_what_means_something_to_spark(loose, rows):
    odd = Path("a b%20 {1}[x]*?ü#")
    Path("rows").rename(odd)
    done = scrib_mlflow.predict(loose.model_uri, str(odd), f"{odd} out", key="name", **SPARK)
    scrib_mlflow.predict(loose.model_uri, str(odd), "near", key="name")
    assert by_name(done.output).to_pylist() == by_name("near").to_pylist()
    assert sorted(path.name for path in Path().iterdir()) == sorted(
        [str(odd), f"{odd} out", "near"]
    )


def test_whole_slices_of_a_run_that_was_stopped_are_kept(loose, rows, monkeypatch):
    write_slice = spark.write_slice
    options = {"key": "name", **SPARK}

    def stop(frame, folder, number, sealed):
        if number == 2:
            raise KeyboardInterrupt
        return write_slice(frame, folder, number, sealed)

    with monkeypatch.context() as patch:
        patch.setattr(spark, "write_slice", stop)
        with pytest.raises(KeyboardInterrupt):
            scrib_mlflow.predict(loose.model_uri, "rows", "out", **options)
    assert not Path("out").exists()
    broken = Path("out.partial/part-00001-00000.parquet")
    broken.write_bytes(broken.read_bytes()[:-20])
    done = scrib_mlflow.predict(loose.model_uri, "rows", "out", **options)
    assert done.kept == 1
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    assert by_name("out").to_pylist() == by_name("near").to_pylist()


def test_a_slice_of_a_file_that_has_changed_is_made_anew(loose, rows, monkeypatch):
    write_slice = spark.write_slice

    def stop(frame, folder, number, sealed):
        if number == 2:
            raise KeyboardInterrupt
        return write_slice(frame, folder, number, sealed)

    with monkeypatch.context() as patch:
        patch.setattr(spark, "write_slice", stop)
        with pytest.raises(KeyboardInterrupt):
            scrib_mlflow.predict(loose.model_uri, "rows", "out", key="name", **SPARK)
    pd.read_parquet("rows/0.parquet").iloc[:50].to_parquet("rows/0.parquet")
    done = scrib_mlflow.predict(loose.model_uri, "rows", "out", key="name", **SPARK)
    assert done.kept == 1
    assert done.predictions.n_rows == 250


def test_a_table_without_a_row_that_can_be_scored_is_an_error_and_no_output(loose):
    table = numbered(30)
    table["x0"] = math.nan
    table.to_parquet("rows.parquet")
    with pytest.raises(ScribError, match="not one row of data"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", **SPARK)
    assert not Path("out").exists()
    assert not Path("out.partial").exists()


def test_rows_of_another_kind_are_told_with_one_of_them(loose, rows):
    rows.assign(x0="text").to_parquet("texts.parquet")
    with pytest.raises(ScribError, match=r"the model refuses .*'x0': 'text'") as error:
        scrib_mlflow.predict(loose.model_uri, "texts.parquet", "out", **SPARK)
    assert "Incompatible input types for column x0" in str(error.value)
    assert "\n" not in str(error.value)
    assert not [*Path().glob("out*")]


def test_where_only_spark_can_write_it_is_whole_or_not_there_and_nothing_else_is_lost(
    loose, rows, session, tmp_path
):
    conf = session.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "store" / "own").mkdir(parents=True)
    (tmp_path / "store" / "own" / "mine.txt").write_text("mine")
    conf.set("fs.viewfs.mounttable.far.link./store", (tmp_path / "store").as_uri())
    place = "viewfs://far/store/out"
    done = scrib_mlflow.predict(loose.model_uri, "rows", place, key="name", **SPARK)
    assert done.predictions.n_rows == 300
    again = scrib_mlflow.predict(loose.model_uri, "rows", place, key="name", **SPARK)
    assert again.already
    assert again.predictions == done.predictions
    with pytest.raises(ScribError, match="overwrite=true"):
        scrib_mlflow.predict(loose.model_uri, "rows", place, key="number", **SPARK)
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    assert by_name(tmp_path / "store" / "out").to_pylist() == by_name("near").to_pylist()
    replaced = scrib_mlflow.predict(
        loose.model_uri, "rows", place, key="number", overwrite=True, **SPARK
    )
    assert replaced.predictions.key == ("number",)
    with pytest.raises(ScribError, match="predict has not written it"):
        scrib_mlflow.predict(
            loose.model_uri, "rows", "viewfs://far/store/own", overwrite=True, **SPARK
        )
    with pytest.raises(ScribError, match="lie in each other"):
        scrib_mlflow.predict(loose.model_uri, place, f"{place}/", overwrite=True, **SPARK)
    assert (tmp_path / "store" / "own" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["out", "own"]
