"""Tables: reading, digests, labels and features."""

import threading
from base64 import b64encode
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from mlflow.types import ColSpec, DataType, Schema

from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.records import Frame
from scrib_mlflow.rows import tables
from tests.models import draw_table, read_table

ROWS = pd.DataFrame(
    {"x": [1.5, 2.0, np.nan], "n": [1, 2, 3], "s": ["a", "b", "c"], "y": ["NA", "None", "01"]}
)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_labels_that_look_like_nothing_are_names(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    ROWS.to_parquet(path) if ending == "parquet" else ROWS.to_csv(path, index=False)
    table = read_table("data", str(path), "y")
    assert table["y"].tolist() == ["NA", "None", "01"]
    assert np.isnan(table["x"][2])


def test_a_file_by_uri_is_read(tmp_path):
    ROWS.to_parquet(tmp_path / "rows.parquet")
    table = read_table("data", (tmp_path / "rows.parquet").as_uri(), "y")
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
        read_table("data", str(tmp_path / name), "y")
    assert words in str(error.value)


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
        (["1.0", "0.0"], ("a", "b"), [1, 0]),
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


def test_missing_labels_are_counted_and_the_first_is_named():
    codes = np.array([0, 1, 0, 2, 1], dtype=np.int32)
    for distinct in (["a", None, "b"], ["a", "", "b"], ["a", float("nan"), "b"]):
        with pytest.raises(InvalidLabelsError) as error:
            tables.label_indices(pd.Series(distinct), ("a", "b"), place="y of data", codes=codes)
        told = str(error.value)
        assert told.startswith("y of data: 2 of 5 rows have no label, the first is row 1, ")
        assert told.endswith("path_scores in Python")  # nothing about other names of classes


def test_features_are_the_signature_s_or_all_but_the_label():
    schema = Schema([ColSpec(DataType.double, "x"), ColSpec(DataType.string, "s", required=False)])
    assert list(tables.features(ROWS, schema, ["y"]).columns) == ["x", "s"]
    assert list(tables.features(ROWS.drop(columns="s"), schema, ["y"]).columns) == ["x"]
    assert tables.features(ROWS.drop(columns="x"), schema, ["y"]) is None
    assert list(tables.features(ROWS, None, ["y"]).columns) == ["x", "n", "s"]


def test_true_and_false_are_no_indices():
    with pytest.raises(InvalidLabelsError):
        tables.label_indices(pd.Series([True, False]), ("no", "yes"), place="y")
    found = tables.label_indices(pd.Series([True, False]), ("0", "1"), place="y")
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize("labels", [[["a"], ["b"]], [{}, {}]])
def test_labels_that_are_no_names_are_an_error(labels):
    with pytest.raises(InvalidLabelsError):
        tables.label_indices(pd.Series(labels), ("a", "b"), place="y")


def test_missing_labels_of_pandas_own_type_are_an_error():
    with pytest.raises(InvalidLabelsError):
        tables.label_indices(pd.Series(["a", None], dtype="string"), ("a", "b"), place="y")


def test_na_is_a_word_among_words_and_nothing_among_numbers(tmp_path):
    text = "region,size,y\nNA,NA,a\nEU,2,b\n,3,a\n"
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    table = read_table("data", str(tmp_path / "rows.csv"), "y")
    assert table["region"].tolist()[:2] == ["NA", "EU"]
    assert pd.isna(table["region"][2])
    assert np.isnan(table["size"][0])
    assert table["size"].tolist()[1:] == [2.0, 3.0]


def test_more_values_than_columns_are_an_error(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,2,a\n3,4,b\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match="cannot be read"):
        read_table("data", str(tmp_path / "rows.csv"), "y")


def test_a_label_in_the_index_of_a_parquet_file_is_found(tmp_path):
    ROWS.set_index("y").to_parquet(tmp_path / "rows.parquet")
    table = read_table("data", str(tmp_path / "rows.parquet"), "y")
    assert table["y"].tolist() == ROWS["y"].tolist()


def test_a_damaged_archive_is_told_in_a_sentence(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv.gz", index=False)
    whole = (tmp_path / "rows.csv.gz").read_bytes()
    (tmp_path / "rows.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidDataError, match="cannot be read"):
        read_table("data", str(tmp_path / "rows.csv.gz"), "y")


def test_a_bar_counts_the_rows_that_are_kept_only(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": range(10)}).to_parquet(path)
    source = tables.open_table("data", str(path), None)
    bars = []

    def watched(*, what, unit, total):
        bars.append([total])
        return nullcontext(SimpleNamespace(update=bars[-1].append))

    monkeypatch.setattr(tables, "progress", watched)
    kept = np.arange(10) % 3 == 0
    read = [(start, len(rows)) for start, rows in tables.counted(source, 4, "scoring", kept)]
    assert read == [(0, 4), (4, 4), (8, 2)]
    assert bars == [[4, 2, 1, 1]]
    assert len([*tables.counted(source, 4, "scoring")]) == 3
    assert bars[1] == [10, 4, 4, 2]


MANY_KINDS = pd.DataFrame(
    {
        "whole": pd.array([1, None, 2**40], dtype="Int64"),
        "flag": pd.array([True, None, False], dtype="boolean"),
        "text": pd.array(["a", None, "c"], dtype="string"),
        "kind": pd.Categorical(["x", "y", "x"]),
        "when": pd.to_datetime(["2026-01-01 00:00", None, "2026-03-01 12:00"]),
        "number": np.array([1.5, np.nan, -0.0], dtype=np.float32),
        "label": ["a", "b", "a"],
    }
)


def test_a_frame_is_read_as_the_parquet_file_that_pandas_writes(tmp_path):
    for index in (None, pd.Index([7, 9, 8], name="id"), pd.Index(["p", "q", "r"])):
        frame = MANY_KINDS if index is None else MANY_KINDS.set_index(index)
        before = frame.copy(deep=True)
        path = tmp_path / "rows.parquet"
        frame.to_parquet(path)
        of_file = tables.read_rows("data", str(path), "label", key=None)
        of_frame = tables.read_rows("data", Frame(frame), "label", key=None)
        assert of_frame.source.columns == of_file.source.columns
        assert of_frame.record.digest == of_file.record.digest
        assert of_frame.hashes.tolist() == of_file.hashes.tolist()
        rows = [table.some_rows() for table in (of_frame, of_file)]
        pd.testing.assert_frame_equal(*rows)
        pd.testing.assert_frame_equal(frame, before)
        assert ("id" in of_frame.source.columns) == (frame.index.name == "id")


def test_columns_of_a_frame_that_are_numbers_are_read_as_text():
    frame = pd.DataFrame([[1.0, "a"], [2.0, "b"]])
    assert read_table("data", Frame(frame), "1").columns.tolist() == ["0", "1"]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column 'a'; rename or drop"),
        (pd.DataFrame([[1, 2]], columns=["0", 0]), "more than one column '0'"),
        (
            pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
            "its columns have 2 levels of names; give each one name",
        ),
        (pd.DataFrame({"a": []}), "data, a frame of 0 rows, has no rows"),
        (pd.DataFrame({"a": [1, "x"]}), "data, a frame of 2 rows, cannot be read: .*column a"),
    ],
)
def test_a_frame_that_no_file_could_hold_is_told_in_a_sentence(frame, words):
    with pytest.raises(InvalidDataError, match=words):
        tables.open_table("data", Frame(frame), None)


class Files(BaseHTTPRequestHandler):
    """A web server with a file, which it gives to those who know the password."""

    def do_GET(self):
        wanted = f"Basic {b64encode(b'u:p@w').decode()}"
        content = Path("rows.csv").read_bytes()
        known = self.headers["Authorization"] == wanted and self.path == "/a%20b/rows.csv?x=1"
        short = self.path == "/short/rows.csv"
        self.send_response(200 if known or short else 401)
        self.send_header("Content-Length", str(len(content) + 9 * short))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


def test_a_file_on_the_web_is_read_or_it_is_told_why_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = draw_table(40)
    rows.to_csv("rows.csv", index=False)
    server = HTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{server.server_port}"
    try:
        found = read_table("data", f"http://u:p%40w@{place}/a%20b/rows.csv?x=1", "label")
        pd.testing.assert_frame_equal(found, rows, check_dtype=False)
        for uri, why in (
            (f"http://u:no@{place}/a%20b/rows.csv?x=1", "401"),
            (f"http://{place}/short/rows.csv", "the answer ended 9 bytes early"),
        ):
            with pytest.raises(InvalidDataError, match=f"cannot be downloaded: .*{why}"):
                read_table("data", uri, "label")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(InvalidDataError, match=r"cannot be downloaded: .*refused"):
        read_table("data", f"http://{place}/rows.csv", "label")
