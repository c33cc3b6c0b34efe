"""The served model on a standalone Spark cluster of two workers."""

import json
import math

import mlflow
import pyarrow.parquet as pq
import pytest

import scrib_mlflow
from tests.clusters import cluster, elsewhere
from tests.models import FEATURES, draw_table

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

SERVED = {
    "prediction": "string",
    "abstain": "boolean",
    "reason": "string",
    "prediction_set": "array<string>",
    "set_size": "bigint",
    "candidates": "array<string>",
}
ASK = """
import json, os, sys
import mlflow
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

uri, store, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
mlflow.set_tracking_uri(store)
builder = SparkSession.builder
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

@pandas_udf("string")
def place(numbers):
    return numbers.map(lambda _: os.getcwd())  # an executor's own folder, below its worker's

answer = mlflow.pyfunc.spark_udf(spark, uri, env_manager="local")
rows = spark.read.parquet("rows.parquet").repartition(4)
frame = rows.select("number", place("number").alias("place"), answer().alias("answer"))
frame = frame.select("number", "place", "answer.*").orderBy("number")
print(json.dumps({"types": frame.dtypes, "rows": [row.asDict() for row in frame.collect()]}))
spark.stop()
"""
PREDICT = """
import json, sys
import mlflow, scrib_mlflow

uri, store, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
mlflow.set_tracking_uri(store)
done = scrib_mlflow.predict(
    uri, "rows.parquet", "far", key="number", batch_rows=50, engine="spark", spark_options=options
)
print(json.dumps(done.predictions.reasons))
"""


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_a_cluster_of_two_workers_gives_the_answers_of_one_process(two_workers, loose, tmp_path):
    rows = draw_table(400, seed=11)[FEATURES]
    rows.loc[7, "x1"] = math.nan
    expected = mlflow.pyfunc.load_model(loose.model_uri).predict(rows)
    rows.assign(number=range(400)).to_parquet(tmp_path / "rows.parquet")
    words = (loose.model_uri, mlflow.get_tracking_uri(), json.dumps(two_workers.options()))
    found = json.loads(elsewhere(ASK, *words, folder=tmp_path).splitlines()[-1])
    assert dict(found["types"][2:]) == SERVED
    assert [name for name, _ in found["types"][2:]] == [*SERVED]
    given = [{name: row[name] for name in SERVED} for row in found["rows"]]
    assert given == expected.to_dict(orient="records")
    assert {row["reason"] for row in given} == {"", "ambiguous", "empty", "invalid_scores"}
    places = [row["place"] for row in found["rows"]]
    answered = {name for name in ("worker-0", "worker-1") if any(name in at for at in places)}
    assert answered == {"worker-0", "worker-1"}


def test_predict_on_a_cluster_writes_what_one_process_writes(two_workers, loose, tmp_path):
    rows = draw_table(400, seed=11)[FEATURES].assign(number=range(400))
    rows.loc[[7, *range(100, 250)], "x1"] = math.nan  # whole batches of them
    rows.to_parquet(tmp_path / "rows.parquet")
    words = (loose.model_uri, mlflow.get_tracking_uri(), json.dumps(two_workers.options()))
    reasons = json.loads(elsewhere(PREDICT, *words, folder=tmp_path).splitlines()[-1])
    near = scrib_mlflow.predict(loose.model_uri, "rows.parquet", "near", key="number")
    assert reasons == near.predictions.reasons
    found = pq.read_table("far").sort_by("number").to_pylist()
    assert found == pq.read_table("near").to_pylist()
