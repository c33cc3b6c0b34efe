"""A small Spark on this machine, for tests."""

from scrib_mlflow.engines.spark import session

OPTIONS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "2",
    "spark.python.worker.reuse": "true",
}


def small_session():
    """Return the context of a session with few partitions."""
    return session.session(OPTIONS)
