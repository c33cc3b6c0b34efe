"""Digests, and rows that two tables share."""

import numpy as np
import pandas as pd

from scrib_mlflow.adapters import digests, tables
from tests.adapters.test_tables import ROWS


def test_a_digest_depends_on_every_row_and_on_no_order():
    rows = pd.DataFrame({"x": np.arange(30_000.0), "s": ["a", "b", "c"] * 10_000})
    changed = rows.assign(x=rows["x"].where(rows.index != 20_001, -1.0))
    assert digests.digest(rows) != digests.digest(changed)
    shuffled = rows.sample(frac=1, random_state=0)[["s", "x"]]
    assert digests.digest(rows) == digests.digest(shuffled)
    assert digests.digest(rows) != digests.digest(rows.rename(columns={"x": "z"}))
    assert digests.digest(rows) != digests.digest(pd.concat([rows, rows.head(1)]))


def test_a_digest_does_not_depend_on_the_kind_of_file(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    found = {
        digests.digest(tables.read_table("data", str(tmp_path / name), "y"))
        for name in ("rows.csv", "rows.parquet")
    }
    assert len(found) == 1


def test_a_digest_tells_a_value_from_the_same_value_in_another_column():
    left = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    right = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert digests.digest(left) != digests.digest(right)


def test_shared_rows_are_counted_by_what_the_model_is_given_and_the_class():
    rows = pd.DataFrame({"x": [0.1, 0.2, 0.3], "s": ["a", "b", "c"]})
    seen = digests.case_hashes(rows, np.array([0, 1, 2]))
    again = digests.case_hashes(rows[["s", "x"]].iloc[[2, 0]], np.array([2, 1]))
    assert digests.count_shared(seen, again) == 1  # the other has another class
    narrow = digests.case_hashes(rows.astype({"x": np.float32}), np.array([0, 1, 2]))
    assert digests.count_shared(seen, narrow) == 3
