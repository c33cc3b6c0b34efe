"""The split of a Spark table into fit rows and certify rows, as `core.split` defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

from scrib_mlflow.adapters.spark_columns import Roles
from scrib_mlflow.adapters.spark_sums import looked_up, lowest
from scrib_mlflow.core import split
from scrib_mlflow.core.checks import as_number
from scrib_mlflow.errors import InvalidDataError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_keys(slim: DataFrame, roles: Roles) -> None:
    """Raise where a key stands more than once."""
    if roles.key is None:
        return
    repeated = slim.groupBy("key").agg(F.count("*").alias("n"), F.min("name").alias("name"))
    value = repeated.filter(F.col("n") > 1).agg(F.min("name")).collect()[0][0]
    if value is not None:
        msg = (
            f"key {roles.key!r} does not identify the rows of {roles.what}: {value!r} stands more "
            "than once; name another column, or use group for rows that belong together"
        )
        raise InvalidDataError(msg)


def class_sizes(slim: DataFrame, k: int) -> NDArray[np.int64]:
    """Return (k,) how many rows each class has."""
    sizes = np.zeros(k, dtype=np.int64)
    for row in slim.groupBy("label").count().collect():
        sizes[row["label"]] = row["count"]
    return sizes


def certifies(
    ordered: DataFrame,
    sizes: NDArray[np.int64],  # (k,)
    fraction: float,
    *,
    grouped: bool,
    names: Sequence[str],
    waived: Sequence[str],
) -> Column:
    """Return which rows certify: a fraction of each class, or of the groups."""
    as_number("certify_fraction", fraction, low=0, high=1)
    needed = split.check_sizes(sizes, names, waived)
    if grouped:
        chosen = F.col("group_order") <= _group_cut(ordered, int(sizes.sum()), fraction)
        _check_parts(ordered, chosen, needed, names)
        return chosen
    shares = {j: split.share(int(n), fraction) for j, n in enumerate(sizes) if n}
    cuts = lowest(ordered, "label", "order", {j: n for j, n in shares.items() if n})
    return F.coalesce(F.col("order") <= looked_up(cuts, "label"), F.lit(False))


def _group_cut(ordered: DataFrame, n_rows: int, fraction: float) -> int:
    """Return the order of the last group that certifies."""
    groups = ordered.select("grouped", "group_order").distinct().withColumn("all", F.lit(0))
    n = groups.count()
    split.check_groups_suffice(n, n_rows)
    return lowest(groups, "all", "group_order", {0: split.share(n, fraction)})[0]


def _check_parts(
    ordered: DataFrame, chosen: Column, needed: NDArray[np.bool_], names: Sequence[str]
) -> None:
    """Raise for a class that a part has no rows of."""
    found = ordered.groupBy("label").agg(
        F.count_if(chosen).alias("certify"),
        F.count_if(~chosen).alias("fit"),
        F.count_distinct("grouped").alias("groups"),
    )
    rows = sorted(found.collect(), key=lambda row: row["label"])
    for part in ("certify", "fit"):
        for row in rows:
            if needed[row["label"]] and not row[part]:
                raise split.no_group_with(row["label"], part, row["groups"], names)
