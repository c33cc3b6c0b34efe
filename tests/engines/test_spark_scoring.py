"""What a model is given in Spark, against what it is given locally."""

import numpy as np
import pandas as pd
import pytest
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from scrib_mlflow.engines.spark import columns, udfs
from scrib_mlflow.rows import tables
from tests.engines.spark import small_session
from tests.models import read_table

pytestmark = pytest.mark.slow
NAMED = Schema(
    [
        ColSpec(DataType.float, "narrow"),
        ColSpec(DataType.double, "whole"),
        ColSpec(DataType.integer, "fits"),
        ColSpec(DataType.integer, "too big"),
        ColSpec(DataType.integer, "gaps"),
        ColSpec(DataType.string, "text"),
        ColSpec(DataType.boolean, "absent", required=False),
    ]
)
TENSOR = Schema([TensorSpec(np.dtype(np.float32), (-1, 2))])


@pytest.fixture(scope="module")
def spark():
    with small_session() as session:
        yield session


def test_inputs_are_cast_as_the_local_engine_casts_them(spark, tmp_path):
    table = pd.DataFrame(
        {
            "narrow": [0.1, 1e30, np.nan],
            "whole": [1, 2, 3],
            "fits": [1, -2, 3],
            "too big": [1, 2, 2**40],
            "gaps": pd.array([1, None, 3], dtype="Int64"),
            "text": ["1", "2", None],
            "label": ["a", "b", "a"],
        }
    )
    table.to_parquet(tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    rows = read_table("data", str(tmp_path / "rows.parquet"), "label")
    for inputs, left_out in ((NAMED, ["label"]), (TENSOR, [*table.columns[2:]]), (None, ["label"])):
        names = udfs.feature_names(frame, inputs, left_out)
        expected = tables.features(rows, inputs, left_out)
        assert names == list(expected.columns)
        found = frame.select(*udfs._as_typed(frame, names, inputs)).toArrow().to_pandas()
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert udfs.feature_names(frame.drop("fits"), NAMED, ["label"]) is None


def test_scores_in_columns_are_taken_as_they_are_and_gaps_are_told(spark):
    rows = [(0.25, 0.75), (None, 1.0), (float("inf"), 0.5), (0.5, float("nan"))]
    frame = spark.createDataFrame(rows, "`p.a` double, b double")
    given = udfs.given_scores(frame, ["p.a", "b"]).select(columns.SCORES)
    found = [row[0].asDict() for row in given.collect()]
    assert found[0] == {"s0": 0.25, "s1": 0.75, "error": ""}
    told = [row["error"].removeprefix("it has no finite score in column ") for row in found[1:]]
    assert told == ["p.a", "p.a", "b"]
