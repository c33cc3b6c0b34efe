"""Tables as Spark reads them, against the local engine: the same columns, the same hashes."""

import datetime
import decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from scrib_mlflow.engines.spark import tables as spark_tables
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.rows import hashes
from tests.engines.spark import small_session
from tests.models import read_table

pytestmark = pytest.mark.slow
TWO = decimal.Decimal(2)


@pytest.fixture(scope="module")
def spark():
    with small_session() as session:
        yield session


def hashes_in_spark(frame):
    """Return the hashes of each column alone, computed in Spark's workers, as text."""

    def each(batches):
        for batch in batches:
            rows = spark_tables.rows_of(batch)
            found = {name: hashes.row_hashes(rows[[name]]).astype(str) for name in rows.columns}
            yield pa.RecordBatch.from_pydict(found)

    schema = ", ".join(f"`{name}` string" for name in frame.columns)
    packed = frame.select(spark_tables.packed(frame))
    return packed.mapInArrow(each, schema).toArrow().to_pandas()


def make_table():
    """Return a table with a column of every type, as files hold them, some with gaps."""
    day = datetime.date(2024, 3, 1)
    moment = datetime.datetime(2024, 3, 1, 12, 30, 15, 250000)
    midnight = datetime.datetime(2024, 3, 1)
    utc = datetime.timezone.utc
    columns = {
        "float": pa.array([0.1, -0.0, float("nan"), None, 1e300], pa.float64()),
        "float32": pa.array([0.1, 2.0, None, 4.0, 5.0], pa.float32()),
        "whole": pa.array([1, 2, 3, 2**53 + 1, -5], pa.int64()),
        "whole with gaps": pa.array([1, None, 3, 4, 5], pa.int32()),
        "TINY": pa.array([5, 4, 3, 2, 1], pa.int16()),
        "tiny": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "truth": pa.array([True, False, True, True, False]),
        "truth with gaps": pa.array([True, None, False, None, True]),
        "text": pa.array(["a", "", "ä\0b", None, "1.0"]),
        "coded.text": pa.array(["a", "b", None, "a", "b"]).dictionary_encode(),
        "coded numbers": pa.array([7, 8, None, 7, 8]).dictionary_encode(),
        "day": pa.array([day, None, day, day, day], pa.date32()),
        "naive": pa.array([moment, midnight, None, moment, moment], pa.timestamp("us")),
        "instant": pa.array(
            [moment.replace(tzinfo=utc), midnight.replace(tzinfo=utc), None, None, None],
            pa.timestamp("us", tz="UTC"),
        ),
        "zoned": pa.array([moment.replace(tzinfo=utc)] * 5, pa.timestamp("us", tz="Asia/Tokyo")),
        "money": pa.array([decimal.Decimal("1.50"), None, *[TWO] * 3], pa.decimal128(9, 2)),
        "bytes": pa.array([b"a", b"", None, b"\xff", b"a"]),
        "list": pa.array([[1.5, 2.0], [], None, [3.0], [4.0]]),
    }
    return pa.table(columns)


def test_every_type_of_column_has_the_hashes_of_the_local_engine(spark, tmp_path):
    pq.write_table(make_table(), tmp_path / "rows.parquet")
    table = read_table("data", str(tmp_path / "rows.parquet"), None)
    frame = spark_tables.read(spark, "data", str(tmp_path / "rows.parquet")).repartition(3)
    found = hashes_in_spark(frame)
    assert list(found.columns) == list(table.columns)
    for name in table.columns:
        expected = hashes.row_hashes(table[[name]]).astype(str)
        assert sorted(found[name]) == sorted(expected), name


def test_indices_of_pandas_are_no_columns(spark, tmp_path):
    pd.DataFrame({"a": [1, 2, 3]}, index=[5, 1, 7]).to_parquet(tmp_path / "rows.parquet")
    assert spark_tables.read(spark, "data", str(tmp_path / "rows.parquet")).columns == ["a"]


def test_a_table_of_the_catalog_is_read_by_its_name(spark):
    spark.range(3).withColumnRenamed("id", "label").createOrReplaceTempView("numbers")
    table = spark_tables.read_table(spark, "data", "numbers", "label", key=None, group=None)
    assert table.record.n_rows == 3
    assert table.labels.tolist() == [0, 1, 2]


def test_what_cannot_be_read_is_told(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"stage": ["a"], "x": [1]}).to_parquet("rows.parquet")
    pd.DataFrame({"x": []}).to_parquet("none.parquet")
    (tmp_path / "broken.parquet").write_text("no parquet")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    for place, label, told in (
        ("rows.parquet", "stages", "did you mean 'stage'"),
        ("none.parquet", None, "none.parquet has no rows"),
        ("nowhere.parquet", None, "does not exist; a relative path is looked up in"),
        ("broken.parquet", None, "broken.parquet cannot be read"),
        ("rows.csv", None, "use engine=local, or write it as parquet"),
        ("nowhere.table", None, "no table in Spark's catalog"),
        ("runs:/abc/rows.parquet", None, "use engine=local"),
    ):
        with pytest.raises(InvalidDataError, match=told) as caught:
            spark_tables.read_table(spark, "data", place, label, key=None, group=None)
        assert len(str(caught.value)) < 600
        assert "at org.apache" not in str(caught.value)


def test_a_missing_value_is_told_with_its_row(spark):
    frame = spark.createDataFrame([(1, "a", 2.0), (2, None, 3.0)], "id int, stage string, x double")
    with pytest.raises(InvalidDataError, match=r'1 rows of data have no label.*"id":2'):
        spark_tables.check_columns(frame, "data", {"label": "stage", "key": "id"})
    with pytest.raises(InvalidDataError, match="no column 'patient', which group names"):
        spark_tables.check_columns(frame, "data", {"label": None, "group": "patient"})
