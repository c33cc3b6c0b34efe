"""Predict with Spark: the answers of the local engine, whole where `_scrib.json` is."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.predictions import spark
from tests.predictions.test_predict import SERVED, numbered

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


def outputs():
    return sorted(path.name for path in Path().iterdir() if path.name not in {"rows", "near"})


@pytest.mark.parametrize("explain", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_spark_writes_what_the_local_engine_writes(loose, rows, explain):
    options = {"key": "name,number", "explain": explain, "batch_rows": 10}
    far = "far" if explain else (Path.cwd() / "far").as_uri()
    done = scrib_mlflow.predict(loose.model_uri, "rows", far, **options, **SPARK)
    near = scrib_mlflow.predict(loose.model_uri, "rows", "near", **options)
    first, second = by_name("far").to_pylist(), by_name("near").to_pylist()
    for mine, yours in zip(first, second, strict=True):
        assert mine.pop("scores", []) == pytest.approx(yours.pop("scores", []), abs=1e-12)
    assert first == second
    assert done.predictions.reasons == near.predictions.reasons
    assert done.predictions.reasons["invalid_scores"] == 31
    assert done.predictions.data == near.predictions.data
    assert done.predictions.columns == near.predictions.columns
    schema = pq.read_table("far").schema
    types = {"name": pa.string(), "number": pa.int64(), **SERVED}
    assert {name: schema.field(name).type for name in types} == types
    assert schema.names == pq.read_table("near").schema.names
    manifest = Path("far/_scrib.json").read_text(encoding="utf-8")
    assert scrib_mlflow.from_json(manifest) == done.predictions
    written = {path.name: pq.read_metadata(path).num_rows for path in Path("far").glob("part-*")}
    assert {part.name: part.n_rows for part in done.predictions.parts} == written
    assert Path("far/_SUCCESS").exists()
    assert outputs() == ["far"]


@pytest.mark.slow
def test_a_table_of_the_catalog_is_answered(loose, rows, session):
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    session.read.parquet(Path("rows").absolute().as_uri()).createOrReplaceTempView("nights")
    scrib_mlflow.predict(loose.model_uri, "nights", "table", key="name", **SPARK)
    assert by_name("table").to_pylist() == by_name("near").to_pylist()


@pytest.mark.slow
def test_paths_may_hold_what_means_something_to_spark(loose, rows):
    odd = Path("a b%20 {1}[x]*?ü#")
    Path("rows").rename(odd)
    done = scrib_mlflow.predict(loose.model_uri, str(odd), f"{odd} out", key="name", **SPARK)
    scrib_mlflow.predict(loose.model_uri, str(odd), "near", key="name")
    assert by_name(done.output).to_pylist() == by_name("near").to_pylist()
    assert outputs() == sorted([str(odd), f"{odd} out"])


@pytest.mark.slow
def test_a_table_without_a_row_that_can_be_scored_is_an_error_and_no_output(loose):
    table = numbered(30)
    table["x0"] = math.nan
    table.to_parquet("rows.parquet")
    with pytest.raises(ScribError, match="not one row of data"):
        scrib_mlflow.predict(loose.model_uri, "rows.parquet", "out", **SPARK)
    assert outputs() == ["rows.parquet"]


@pytest.mark.slow
def test_a_job_that_fails_leaves_nothing_in_the_way_of_the_next(loose, rows):
    rows.assign(x0="text").to_parquet("texts.parquet")
    with pytest.raises(ScribError, match=r"the model refuses .*'x0': 'text'") as error:
        scrib_mlflow.predict(loose.model_uri, "texts.parquet", "out", **SPARK)
    assert "Incompatible input types for column x0" in str(error.value)
    assert "\n" not in str(error.value)
    assert not [*Path("out").glob("*")]
    scrib_mlflow.predict(loose.model_uri, "rows", "out", key="name", **SPARK)
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    assert by_name("out").to_pylist() == by_name("near").to_pylist()


@pytest.mark.slow
def test_an_output_with_other_rows_than_the_data_gets_no_manifest(loose, rows, monkeypatch):
    read_back = spark.read_back

    def others(answers, place, *rest):
        answers.limit(7).write.mode("append").parquet(place)
        return read_back(answers, place, *rest)

    monkeypatch.setattr(spark, "read_back", others)
    with pytest.raises(ScribError, match="data had 300 rows, but 307 answers were written"):
        scrib_mlflow.predict(loose.model_uri, "rows", "out", **SPARK)
    assert not Path("out/_scrib.json").exists()
    with pytest.raises(ScribError, match="was not written by predict, or not to its end"):
        scrib_mlflow.predict(loose.model_uri, "rows", "out", overwrite=True, **SPARK)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["here", "where only Spark can write"])
def test_only_what_predict_wrote_is_replaced_and_nothing_else_is_lost(
    loose, rows, session, tmp_path, place
):
    store = tmp_path / "store"
    (store / "own").mkdir(parents=True)
    (store / "own" / "mine.txt").write_text("mine")
    conf = session.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.far.link./store", store.as_uri())
    folder = "store" if place == "here" else "viewfs://far/store"
    done = scrib_mlflow.predict(loose.model_uri, "rows", f"{folder}/out", key="name", **SPARK)
    assert done.predictions.n_rows == 300
    scrib_mlflow.predict(loose.model_uri, "rows", "near", key="name")
    assert by_name(store / "out").to_pylist() == by_name("near").to_pylist()
    with pytest.raises(ScribError, match="is there; replace it with overwrite=true"):
        scrib_mlflow.predict(loose.model_uri, "rows", f"{folder}/out", key="name", **SPARK)
    replaced = scrib_mlflow.predict(
        loose.model_uri, "rows", f"{folder}/out", key="number", overwrite=True, **SPARK
    )
    assert replaced.predictions.key == ("number",)
    assert pq.read_table(store / "out").schema.names[0] == "number"
    assert pq.read_table(store / "out").num_rows == 300
    with pytest.raises(ScribError, match="was not written by predict"):
        scrib_mlflow.predict(loose.model_uri, "rows", f"{folder}/own", overwrite=True, **SPARK)
    with pytest.raises(ScribError, match=r"lie in each other|holds the data"):
        scrib_mlflow.predict(
            loose.model_uri, f"{folder}/out", f"{folder}/out/", overwrite=True, **SPARK
        )
    assert (store / "own" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in store.iterdir()) == ["out", "own"]
