"""Tables: reading, digests, labels and features."""

import numpy as np
import pandas as pd
import pytest
from mlflow.types import ColSpec, DataType, Schema

from scrib_mlflow.adapters import tables
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

ROWS = pd.DataFrame(
    {"x": [1.5, 2.0, np.nan], "n": [1, 2, 3], "s": ["a", "b", "c"], "y": ["NA", "None", "01"]}
)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_labels_that_look_like_nothing_are_names(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    ROWS.to_parquet(path) if ending == "parquet" else ROWS.to_csv(path, index=False)
    table = tables.read_table("data", str(path), "y")
    assert table["y"].tolist() == ["NA", "None", "01"]
    assert np.isnan(table["x"][2])


def test_a_file_by_uri_is_read(tmp_path):
    ROWS.to_parquet(tmp_path / "rows.parquet")
    table = tables.read_table("data", (tmp_path / "rows.parquet").as_uri(), "y")
    assert len(table) == 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "does not exist; a relative path is looked up in"),
        ("rows.xlsx", "x", "is none of .parquet"),
        ("rows.parquet", "not parquet", "cannot be read"),
        ("rows.csv", "a,b\n1,2\n", "has no column 'y' for the labels; known are 'a', 'b'"),
        ("rows.csv", "", "cannot be read"),
        ("rows.csv", "x,y\n", "has no rows"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InvalidDataError) as error:
        tables.read_table("data", str(tmp_path / name), "y")
    assert words in str(error.value)


def test_a_digest_depends_on_every_row_and_on_no_order():
    rows = pd.DataFrame({"x": np.arange(30_000.0), "s": ["a", "b", "c"] * 10_000})
    changed = rows.assign(x=rows["x"].where(rows.index != 20_001, -1.0))
    assert tables.digest(rows) != tables.digest(changed)
    shuffled = rows.sample(frac=1, random_state=0)[["s", "x"]]
    assert tables.digest(rows) == tables.digest(shuffled)
    assert tables.digest(rows) != tables.digest(rows.rename(columns={"x": "z"}))
    assert tables.digest(rows) != tables.digest(pd.concat([rows, rows.head(1)]))


def test_a_digest_does_not_depend_on_the_kind_of_file(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    found = {
        tables.digest(tables.read_table("data", str(tmp_path / name), "y"))
        for name in ("rows.csv", "rows.parquet")
    }
    assert len(found) == 1


def test_a_digest_tells_a_value_from_the_same_value_in_another_column():
    left = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    right = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert tables.digest(left) != tables.digest(right)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["b", "a"], ("a", "b"), [1, 0]),
        ([1, 0], ("a", "b"), [1, 0]),
        (["1", "0"], ("a", "b"), [1, 0]),
        ([2, 1], ("1", "2"), [1, 0]),
        (["2", "1"], ("1", "2"), [1, 0]),
        ([True, False], ("False", "True"), [1, 0]),
        (["01", "1"], ("1", "01"), [1, 0]),
    ],
)
def test_labels_are_names_or_indices(labels, classes, expected):
    found = tables.label_indices(pd.Series(labels), classes, place="y")
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", ["object", "str", "category"])
def test_labels_of_any_pandas_type_are_read(dtype):
    series = pd.Series(["b", "a", "b"], dtype=dtype)
    assert tables.label_indices(series, ("a", "b"), place="y").tolist() == [1, 0, 1]


def test_a_label_that_is_no_class_is_named_with_its_column():
    with pytest.raises(InvalidLabelsError, match=r"column 'y' of data: labels\[1\] is 'c'"):
        tables.label_indices(pd.Series(["a", "c"]), ("a", "b"), place="column 'y' of data")


def test_a_missing_label_is_an_error():
    with pytest.raises(InvalidLabelsError):
        tables.label_indices(pd.Series(["a", None]), ("a", "b"), place="y")


def test_features_are_the_signature_s_or_all_but_the_label():
    schema = Schema([ColSpec(DataType.double, "x"), ColSpec(DataType.string, "s", required=False)])
    assert list(tables.features(ROWS, schema, ["y"]).columns) == ["x", "s"]
    assert list(tables.features(ROWS.drop(columns="s"), schema, ["y"]).columns) == ["x"]
    assert tables.features(ROWS.drop(columns="x"), schema, ["y"]) is None
    assert list(tables.features(ROWS, None, ["y"]).columns) == ["x", "n", "s"]


def test_shared_rows_are_counted():
    certified = pd.concat([ROWS.head(2), ROWS.tail(1).assign(n=99)])
    assert tables.count_shared(ROWS, certified) == 2
