"""Broken and hostile input: read, or refused in a line that ends; never a traceback of ours.

Each campaign has a quick version, and a slow one of thousands of inputs that prints its counts.
Seeds are fixed, so that what fails can be done again.
"""

import io
import random
import re
import socket
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from scrib_mlflow import preflight
from scrib_mlflow.options import Calibrate, Evaluate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.registry import stores
from scrib_mlflow.rows import tables
from tests.fuzz import SIZES, STRANGE, broken_records, campaign, mutated, read_back
from tests.models import draw_table


def varied(n=40):
    """Return rows with columns of many types."""
    rows = draw_table(n)
    days = pd.date_range("2026-01-01", periods=n)
    return rows.assign(
        n=np.arange(n),
        time=days,
        flag=rows["x0"] > 0,
        text=[f"text é {i}" for i in range(n)],
        kind=pd.Categorical(["a", "b"] * (n // 2)),
        deep=[[i, i + 1] for i in range(n)],
    )


def read_all(path):
    table = tables.read_rows("data", str(path), "label", key="text", group="kind")
    assert sum(len(rows) for rows in table.source.batches(7)) == table.source.n_rows
    tables.label_indices(table.labels.values, ("easy", "hard", "middle"), place="column 'label'")


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_parquet_file_is_read_or_refused_in_a_line(size, tmp_path, record_property):
    chance, path = random.Random(1), tmp_path / "rows.parquet"
    originals = []
    for options in ({}, {"compression": None}, {"row_group_size": 9}, {"use_dictionary": False}):
        file = io.BytesIO()
        varied().to_parquet(file, **options)
        originals.append(file.getvalue())
    footer = [int.from_bytes(content[-8:-4], "little") + 8 for content in originals]

    def files():
        for i in range(4000 if size == "many" else 60):
            content, end = originals[i % 4], footer[i % 4]
            if i % 3:  # most of the damage in the metadata
                yield content[:-end] + mutated(content[-end:], chance)
            else:
                yield mutated(content, chance)

    def read(content):
        path.write_bytes(content)
        read_all(path)

    campaign("parquet", files(), read, record_property)


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_csv_file_is_read_or_refused_in_a_line(size, tmp_path, record_property):
    chance, path = random.Random(2), tmp_path / "rows.csv"
    content = varied(12).to_csv(index=False).encode()
    extra = [b'"', b"\0", b",", b"\r", b"\n", b"\xff\xfe", b"1e999", b"9" * 400, b"," * 3000]
    header = content.index(b"\n")

    def files():
        for i in range(4000 if size == "many" else 100):
            damaged = mutated(content, chance)
            if i % 2:
                at = chance.randrange(header if i % 4 == 1 else len(damaged) + 1)
                damaged = damaged[:at] + chance.choice(extra) + damaged[at:]
            yield damaged

    def read(content):
        path.write_bytes(content)
        read_all(path)

    campaign("csv", files(), read, record_property)


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_scrib_json_is_read_or_refused_in_a_line(size, certified_folder, record_property):
    paths = sorted(certified_folder.rglob("scrib.json"))
    texts = {path.read_text(encoding="utf-8") for path in paths}
    for i, text in enumerate(sorted(texts)):
        campaign("scrib.json", broken_records(text, size, 10 + i), read_back, record_property)


HOSTILE = [
    "!!python/object/apply:os.system ['touch x']",
    "!!python/object/new:subprocess.Popen [['touch', 'x']]",
    "{a: !!python/name:os.system }",
    "{? [a, b] : 1}",
    "{{a: 1}: 2}",
    "{a: &b [1], c: *b}",
    "{a: 1, <<: {b: 2}}",
    "%YAML 9.9\n---\na: 1",
    "a: 1\n---\nb: 2",
    "{a: .inf, b: .nan}",
    "&a [*a]",
    "\ufeffa: 0.1",
    "{a: 0x1F, b: 1_000, c: 1:30, d: 2026-01-01}",
]


def alias_bomb(depth):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "{" + ", ".join(lines) + "}"


def yaml_texts(size):
    chance = random.Random(30)
    good = b"{N1: 0.2, W: 0.1, 'a b': 0.05, =default: 0.3, default: 0.1}"
    yield from HOSTILE
    yield from (alias_bomb(depth) for depth in (2, 5, 9, 40))
    for deep in (50, 500, 100_000):
        yield from (opening * deep for opening in ("[", "{a: ", "- ", "{? "))
    yield "{" + ", ".join(f"c{i}: 0.1" for i in range(3000)) + "}"
    yield "{a: " + "9" * 5000 + "}"
    parts = [*STRANGE, *HOSTILE, "{", "}", "[", "]", ", ", ": ", "- ", "? ", "0.1", "a", "&x", "*x"]
    for i in range(4000 if size == "many" else 150):
        if i % 2:
            yield mutated(good, chance).decode(errors="replace")
        else:
            text = "".join(chance.choices(parts, k=chance.randrange(1, 12)))
            yield chance.choice(("", "{", "[")) + text + chance.choice(("", "}", "]"))


@pytest.mark.parametrize("size", SIZES)
def test_targets_in_broken_yaml_are_read_or_refused_in_a_line(
    size, tmp_path, monkeypatch, record_property
):
    monkeypatch.chdir(tmp_path)
    needed = {"model_uri": "models:/a/1", "data": "rows.csv", "label": "y"}
    chance, path = random.Random(31), Path("targets.yaml")

    def read(text):
        option = chance.choice(("risk_targets", "waive", "risk_groups", "classes", "spark_options"))
        read_settings(Calibrate, {**needed, option: text})

    def read_file(text):
        path.write_bytes(text.encode(errors="surrogatepass"))
        read_settings(Calibrate, {**needed, "risk_targets": str(path)})

    campaign("YAML", yaml_texts(size), read, record_property)
    campaign("YAML files", yaml_texts(size), read_file, record_property)
    assert [each.name for each in tmp_path.iterdir()] == ["targets.yaml"]


def broken_uris(size, originals, seed):
    chance = random.Random(seed)
    yield from originals
    for _ in range(2000 if size == "many" else 60):
        parts = re.split(r"([:/@?#.=]+)", chance.choice(originals))
        for _ in range(chance.choice((1, 1, 2, 3))):
            parts[chance.randrange(len(parts))] = chance.choice(STRANGE)
        yield "".join(parts)


@pytest.fixture
def offline(monkeypatch):
    """No name is looked up and nothing is asked but this machine."""

    def look_up(host, *_, **__):
        raise socket.gaierror(-2, f"Name or service not known: {host!r}")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_uri_of_data_is_refused_in_a_line(size, store, offline, record_property):
    originals = ["https://u:pw@127.0.0.1:9/d.csv?sig=x", "file:///no/d.csv", "s3://b/d.parquet"]
    originals += ["runs:/0a/d.csv", "models:/m/1", "mlflow-artifacts:/d.csv", "ftp://h:21/d.csv"]
    originals += ["dir/d.parquet", "hdfs://h:8020/d.parquet", "abfss://c@a.dfs.core.windows.net/d"]

    def read(uri):
        settings = {"model_uri": "models:/a/1", "data": uri, "label": "y"}
        preflight._check_file("data", uri, "y")
        tables.open_table("data", read_settings(Evaluate, settings).data, "y")

    campaign("URIs of data", broken_uris(size, originals, 40), read, record_property)


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_uri_of_a_store_is_refused_in_a_line(
    size, offline, tmp_path, monkeypatch, record_property
):
    monkeypatch.chdir(tmp_path)
    originals = ["postgresql://u:pw@h:5432/d?x=1", "mysql+pymysql://u:pw@h:3306/d", "mssql://h/d"]
    originals += ["http://u:pw@127.0.0.1:9", "https://h.example:5000/a", "databricks://profile"]

    def read(uri):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        preflight.check(Evaluate(model_uri="models:/a/1", data="s3://b/d.csv", label="y"))
        with stores.short_waits():
            stores.check_stores()

    mlflow.set_tracking_uri(None)
    uris = (uri for uri in broken_uris(size, originals, 41) if "\0" not in uri)  # of a variable
    campaign(
        "URIs of stores", (uri.replace("\ud800", "\udc80") for uri in uris), read, record_property
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_uri_of_a_model_is_refused_in_a_line(size, base, record_property):
    originals = ["models:/base/1", "models:/base@champion", f"models:/m-{'0a' * 16}", "runs:/0a/m"]

    def read(uri):
        preflight.check(Evaluate(model_uri=uri, data="s3://b/d.csv", label="y"))
        stores.find_model(uri)

    campaign("URIs of models", broken_uris(size, originals, 42), read, record_property)
