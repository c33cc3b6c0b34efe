"""More rows than a search wants or a page can show: read by parts, sampled, and all counted."""

import json
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scrib_mlflow
from scrib_mlflow.core import inputs
from scrib_mlflow.engines import base
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError
from scrib_mlflow.registry import models
from scrib_mlflow.results import to_json
from scrib_mlflow.rows import scoring, tables
from tests.models import CLASSES, FEATURES, draw_mixture, fit_pipeline
from tests.oracles import keep_top
from tests.pages import Page

OPTIONS = {"risk_targets": 0.1, "rule": "thresholds"}


def test_the_parts_of_a_file_and_of_the_work_change_nothing(mixture):
    rows = pd.read_parquet("rows.parquet")
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), "small.parquet", 137)
    folder = mixture_folder_of_files(rows)
    rows.to_csv("rows.csv", index=False)
    found = [
        scrib_mlflow.calibrate("models:/base/1", name, "label", batch_rows=size, **OPTIONS)
        for name, size in (("rows.parquet", 10_000), ("small.parquet", 64), (folder, 999))
    ]
    found.append(scrib_mlflow.calibrate("models:/base/1", "rows.csv", "label", **OPTIONS))
    first, *others = [done.classifier for done in found]
    assert first.certified
    for other in others:
        assert other.certify_data.digest == first.certify_data.digest
        assert other.certify_data.n_used == first.certify_data.n_used
        np.testing.assert_allclose(other.rule.thresholds, first.rule.thresholds, rtol=1e-9)
        assert [c.n_wrong for c in other.certificate.claims] == [
            c.n_wrong for c in first.certificate.claims
        ]


def mixture_folder_of_files(rows):
    for part in range(3):
        path = f"folder/part-{part}.parquet"
        Path(path).parent.mkdir(exist_ok=True)
        rows.iloc[part::3].to_parquet(path)
    return "folder"


def test_a_search_that_sees_some_rows_keeps_rare_ones_and_everything_is_counted(mixture, caplog):
    rows = draw_mixture(6000, seed=1)
    rare = rows["label"] == "hard"
    rows = pd.concat([rows[~rare], rows[rare].head(300)])
    rows.to_parquet("rows.parquet")
    caplog.set_level("INFO", "scrib_mlflow")
    done = scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", max_fit_rows=1000, **OPTIONS
    )
    record = done.classifier
    n_fit = record.fit_data.n_used
    assert n_fit > 1000
    assert f"sees 1,000 of {n_fit:,} fit rows" in caplog.text
    assert record.fit.n_rows == 1000
    assert record.fit_report.n == n_fit
    assert record.certify_report.n == record.certify_data.n_used
    labels = np.array([CLASSES.index(name) for name in rows["label"]])
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(rows[FEATURES])
    sets = keep_top(scores >= np.array(record.rule.thresholds), scores)
    certain = sets.sum(axis=1) == 1
    for j, name in enumerate(CLASSES):
        measured = [record.fit_report.by_class[name], record.certify_report.by_class[name]]
        assert sum(each.n_certain for each in measured) == np.sum(certain & (labels == j))
    whole = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **OPTIONS)
    assert whole.classifier.fit.n_rows == n_fit
    assert record.certify_report.abstention_rate == pytest.approx(
        whole.classifier.certify_report.abstention_rate, abs=0.08
    )


def test_a_sample_holds_all_of_rare_classes_and_its_weights_add_up(mixture):
    rows = draw_mixture(3000, seed=1)
    rows = pd.concat([rows[rows["label"] != "hard"], rows[rows["label"] == "hard"].head(20)])
    rows.to_parquet("rows.parquet")
    scored = scored_rows()
    sample = scored.sample(400, by_class=True)
    sizes = np.bincount(scored.labels)
    kept = np.bincount(sample.labels)
    assert kept.tolist() == [190, 20, 190]
    np.testing.assert_allclose(np.bincount(sample.labels, sample.weights), sizes)
    np.testing.assert_array_equal(scored.scores[sample.places], sample.scores)
    plain = scored.sample(400, by_class=False)
    assert len(plain.labels) == 400
    assert plain.weights is None


def scored_rows():
    uri = "models:/base/1"
    options = scoring.ScoreOptions(label="label")
    table = tables.read_rows("data", "rows.parquet", "label")
    (ready,) = scoring.prepare(models.load_model(uri), scoring.input_example(uri), [table], options)
    return scoring.score(ready, options)


def test_a_page_that_shows_some_rows_says_so_and_counts_all(mixture, monkeypatch):
    monkeypatch.setattr(base, "SHOWN_SCORES", 3 * 500)
    done = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **OPTIONS)
    n = done.classifier.certify_data.n_used
    text = mlflow.artifacts.load_text(f"runs:/{done.run_id}/report.html")
    words = " ".join("".join(Page(text).texts).split())
    assert f"count all {n:,} rows" in words
    assert "are of 500 of them" in words
    claims = json.loads(mlflow.artifacts.load_text(f"runs:/{done.run_id}/certificate.json"))
    assert sum(claim["n"] for claim in claims["claims"]) == n


def test_a_file_that_breaks_off_in_the_middle_is_an_error_that_names_it(mixture):
    rows = draw_mixture(3000, seed=1)
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), "rows.parquet", 500)
    path = Path("rows.parquet")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(InvalidDataError, match="parquet cannot be read"):
        scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **OPTIONS)


def test_an_index_without_a_name_is_no_column_and_one_with_a_name_is(tmp_path):
    rows = pd.DataFrame({"x": [1.0, 2.0]}, index=[7, 9])
    rows.to_parquet(tmp_path / "unnamed.parquet")
    rows.rename_axis("patient").to_parquet(tmp_path / "named.parquet")
    found = [
        tables.open_table("data", str(tmp_path / f"{name}.parquet"), None).columns
        for name in ("unnamed", "named")
    ]
    assert found == [("x",), ("x", "patient")]


def test_a_file_that_changes_while_it_is_read_is_an_error(mixture, monkeypatch):
    def swap(*arguments, **options):
        draw_mixture(3000, seed=5).to_parquet("rows.parquet")
        return make_scorer(*arguments, **options)

    make_scorer = scoring.make_scorer
    monkeypatch.setattr(scoring, "make_scorer", swap)
    with pytest.raises(InvalidDataError, match="changed while it was read"):
        scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **OPTIONS)


def test_the_folder_that_a_file_lies_in_adds_no_column_and_its_own_folders_do(tmp_path):
    place = tmp_path / "year=2026"
    (place / "month=1").mkdir(parents=True)
    pd.DataFrame({"x": [1.0]}).to_parquet(place / "month=1" / "rows.parquet")
    alone = tables.open_table("data", str(place / "month=1" / "rows.parquet"), None)
    whole = tables.open_table("data", str(place), None)
    assert (alone.columns, whole.columns) == (("x",), ("x", "month"))


def test_labels_that_are_lists_are_no_classes(tmp_path):
    pd.DataFrame({"x": [1.0], "y": [[1, 2]]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InvalidLabelsError, match="column 'y' of data holds ndarray values"):
        tables.read_rows("data", str(tmp_path / "rows.parquet"), "y")


def test_a_folder_without_files_is_told(tmp_path):
    with pytest.raises(InvalidDataError, match="there are no parquet files in it"):
        tables.open_table("data", str(tmp_path), "y")


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_arrays_on_the_disk_change_nothing(mixture, monkeypatch, rule):
    rows = draw_mixture(1500, seed=1)
    rows = pd.concat([rows, rows[:50]], ignore_index=True)  # some are equal
    rows.assign(patient=rows.index % 100, id=rows.index).to_parquet("rows.parquet")
    options = {"risk_targets": 0.2, "rule": rule, "group": "patient", "key": "id"}
    first = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **options)
    told = scrib_mlflow.evaluate(first.model_uri, "rows.parquet", "label")
    monkeypatch.setattr(inputs, "MOST_IN_MEMORY", 100)
    monkeypatch.setattr(inputs, "BLOCK_ROWS", 97)
    again = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", **options)
    gap = first.classifier.gap  # a mean over blocks, whose last bits depend on them
    assert to_json(replace(again.classifier, gap=gap)) == to_json(first.classifier)
    measured = scrib_mlflow.evaluate(first.model_uri, "rows.parquet", "label")
    assert to_json(measured.report) == to_json(told.report)
    assert (measured.n_shared, measured.n_invalid) == (told.n_shared, told.n_invalid)
