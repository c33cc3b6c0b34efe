"""The served model in Spark, column by column."""

import math
import sys

import mlflow
import pytest

import scrib_mlflow
from tests.models import FEATURES, draw_mixture, draw_table, register_mixture

pytestmark = pytest.mark.slow
sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed (extra: spark)")


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # or workers are the system's Python
        builder = sql.SparkSession.builder.master("local[1]")
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(name, "127.0.0.1")
        session = builder.config("spark.ui.enabled", "false").getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def optimal_uri(store):
    """The URI of a set classifier with an optimal rule."""
    uri = register_mixture()
    draw_mixture(900, seed=1).to_parquet("rows.parquet")
    options = {"rule": "optimal", "mode": "paper", "risk_targets": 0.02}
    return scrib_mlflow.calibrate(uri, "rows.parquet", "label", **options).model_uri


def test_spark_udf_needs_no_result_type_and_gives_the_same_answers(spark, calibrated):
    rows = draw_table(60, seed=11)[FEATURES]
    rows.loc[7, "x1"] = math.nan
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(rows)
    udf = mlflow.pyfunc.spark_udf(spark, calibrated.model_uri, env_manager="local")
    frame = spark.createDataFrame(rows).coalesce(1)
    answers = frame.select(udf(*FEATURES).alias("answer")).select("answer.*")
    assert answers.dtypes == [
        ("prediction", "string"),
        ("abstain", "boolean"),
        ("reason", "string"),
        ("prediction_set", "array<string>"),
        ("set_size", "bigint"),
        ("candidates", "array<string>"),
    ]
    found = [row.asDict() for row in answers.collect()]
    assert found == expected.to_dict(orient="records")
    assert {row["reason"] for row in found} >= {"", "empty", "invalid_scores"}


def test_explained_numbers_reach_spark(spark, calibrated):
    rows = draw_table(10, seed=11)[FEATURES]
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(
        rows, params={"explain": True}
    )
    udf = mlflow.pyfunc.spark_udf(
        spark,
        calibrated.model_uri,
        env_manager="local",
        result_type="prediction string, scores array<double>, thresholds array<double>",
        params={"explain": True},
    )
    answers = spark.createDataFrame(rows).coalesce(1).select(udf(*FEATURES).alias("answer"))
    found = [row.answer.asDict() for row in answers.collect()]
    names = ["prediction", "scores", "thresholds"]
    assert found == expected[names].to_dict(orient="records")


def test_an_optimal_rule_gives_the_same_columns_in_spark(spark, optimal_uri):
    rows = draw_mixture(60, seed=11)[FEATURES]
    rows.loc[7, "x1"] = math.nan
    expected = mlflow.pyfunc.load_model(optimal_uri).predict(rows)
    udf = mlflow.pyfunc.spark_udf(spark, optimal_uri, env_manager="local")
    frame = spark.createDataFrame(rows).coalesce(1)
    answers = frame.select(udf(*FEATURES).alias("answer")).select("answer.*")
    found = [row.asDict() for row in answers.collect()]
    assert found == expected.to_dict(orient="records")
    assert {row["reason"] for row in found} == {"", "ambiguous", "invalid_scores"}
