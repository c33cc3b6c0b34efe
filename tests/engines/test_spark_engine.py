"""The Spark engine against the local one: on the same rows, the same results."""

import os
import subprocess
import sys
from dataclasses import replace

import mlflow
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

import scrib_mlflow
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.results import to_json
from tests.conftest import copy_store, using
from tests.engines.spark import small_session
from tests.models import CLASSES, FEATURES, draw_mixture, register_mixture

WHO = {"group": "patient", "key": "id"}
OPTIONS = {
    "thresholds": {"risk_targets": 0.1, "duplicates": "drop"},
    "optimal": {"risk_targets": 0.1, "rule": "optimal", "overall_target": 0.08},
    "thresholds, grouped and keyed": {"risk_targets": 0.2, **WHO},
    "optimal, grouped and keyed": {"risk_targets": 0.2, "rule": "optimal", **WHO},
}
QUICK = "thresholds"  # the others take a minute each


@pytest.fixture(scope="module")
def spark():
    """A session that all runs of this module find active."""
    with small_session() as session:
        yield session


@pytest.fixture(scope="module")
def uri(spark, empty_store, tmp_path_factory):
    """A registered classifier and files of rows, in a store that is the current one."""
    folder = tmp_path_factory.mktemp("engines")
    with using(copy_store(empty_store, folder), folder):
        for seed, name in enumerate(["rows", "fresh"]):
            table = draw_mixture(2500, seed=seed)
            table = pd.concat([table, table[:50]], ignore_index=True)  # some are equal
            table.to_parquet(f"{name}.parquet")
            known = {"id": [f"{name}-{i}" for i in table.index], "patient": table.index % 150}
            table.assign(**known).to_parquet(f"known_{name}.parquet")
        yield register_mixture()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=() if name == QUICK else pytest.mark.slow)
        for name, options in OPTIONS.items()
    ],
)
def test_both_engines_calibrate_and_gate_alike(uri, options):
    known = "known_" if "key" in options else ""
    data, fresh = f"{known}rows.parquet", f"{known}fresh.parquet"
    engines = ({}, {"engine": "spark"})
    local, other = (
        scrib_mlflow.calibrate(uri, data, "label", **options, **engine) for engine in engines
    )
    assert local.classifier.certified
    assert to_json(other.classifier) == to_json(local.classifier)
    ours, theirs = (
        scrib_mlflow.gate(
            local.model_uri,
            alias=engine.get("engine", "local"),  # of its own, so that neither meets a champion
            data=fresh,
            label="label",
            **engine,
        )
        for engine in engines
    )
    assert ours.decision.passed
    told = [
        to_json(replace(each, decided_at="", policy=replace(each.policy, alias="")))
        for each in (ours.decision, theirs.decision)
    ]
    assert told[0] == told[1]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_both_engines_evaluate_alike(uri, options):
    known = "known_" if "key" in options else ""
    local = scrib_mlflow.calibrate(uri, f"{known}rows.parquet", "label", **options)
    ours, theirs = (
        scrib_mlflow.evaluate(local.model_uri, f"{known}fresh.parquet", "label", **engine)
        for engine in ({}, {"engine": "spark"})
    )
    assert to_json(theirs.report) == to_json(ours.report)
    assert (theirs.n_shared, theirs.n_invalid) == (ours.n_shared, ours.n_invalid)


@pytest.mark.slow
def test_rows_beyond_the_budget_are_sampled_alike(uri):
    options = {"risk_targets": 0.1, "max_fit_rows": 1000, "certify_fraction": 0.4}
    local, other = (
        scrib_mlflow.calibrate(uri, "rows.parquet", "label", **options, **engine)
        for engine in ({}, {"engine": "spark"})
    )
    assert local.classifier.fit_data.n_used > 1000
    assert to_json(other.classifier) == to_json(local.classifier)


@pytest.mark.slow
def test_tables_of_their_own_certify_and_draw_the_path_alike(uri):
    draw_mixture(1500, seed=7).drop(columns="label").to_parquet("path.parquet")
    draw_mixture(1500, seed=8).to_parquet("certify.parquet")
    options = {"risk_targets": 0.1, "certify_data": "certify.parquet", "path_data": "path.parquet"}
    local, other = (
        scrib_mlflow.calibrate(uri, "rows.parquet", "label", **options, **engine)
        for engine in ({}, {"engine": "spark"})
    )
    assert to_json(other.classifier) == to_json(local.classifier)


@pytest.mark.slow
@pytest.mark.parametrize("known", [{}, WHO], ids=["by content", "grouped and keyed"])
def test_both_engines_select_the_same_rows_to_label_and_certify_them_alike(uri, known, tmp_path):
    few, pool = f"{tmp_path}/few.parquet", f"{tmp_path}/pool.parquet"
    names = {"id": lambda t: [f"few-{i}" for i in t.index], "patient": lambda t: -1 - t.index % 60}
    draw_mixture(400, seed=21).assign(**names).to_parquet(few)
    truth = pd.read_parquet("known_rows.parquet")  # with rows that are equal but for their names
    rows = truth.drop(columns="label") if known else truth[FEATURES]
    rows.to_parquet(pool)
    options = {"rows": 600, "risk_targets": 0.2, **known}
    local, other = (
        scrib_mlflow.select(
            uri, few, "label", pool, output=f"{tmp_path}/{name}", engine=name, **options
        )
        for name in ("local", "spark")
    )
    told = [replace(each.selection, rows_digest="") for each in (local, other)]
    assert to_json(told[1]) == to_json(told[0])
    assert other.selection.rows_digest == local.selection.rows_digest
    ours, theirs = (pd.read_parquet(each.labelled) for each in (local, other))
    hidden = "scrib_selection"
    pd.testing.assert_frame_equal(theirs.drop(columns=hidden), ours.drop(columns=hidden))
    by = "id" if known else "x1"
    labels = truth.drop_duplicates(by).set_index(by)["label"]
    theirs["label"] = labels.loc[theirs[by]].to_numpy()
    theirs.to_parquet(other.labelled)
    done = scrib_mlflow.calibrate(
        selection=other.run_id, certify_data=other.labelled, label="label"
    )
    assert done.classifier.certificate is not None
    assert done.classifier.selection.n_drawn == len(theirs)


@pytest.mark.slow
def test_scores_without_a_model_are_certified_and_evaluated_alike(uri):
    for name in ("rows", "fresh"):
        table = pd.read_parquet(f"known_{name}.parquet")
        scores = mlflow.sklearn.load_model(uri).predict_proba(table[FEATURES])
        scores[9, 1] = np.nan
        given = pd.DataFrame(scores, columns=CLASSES).assign(label=table["label"], id=table["id"])
        given.to_parquet(f"scores_{name}.parquet")
    named = {"scores_from": "columns", "classes": CLASSES, "key": "id"}
    engines = ({}, {"engine": "spark"})
    local, other = (
        scrib_mlflow.calibrate(data="scores_rows.parquet", label="label", **named, **engine)
        for engine in engines
    )
    assert local.classifier.certified
    told = replace(other.classifier, unscored=local.classifier.unscored)
    assert to_json(told) == to_json(local.classifier)
    ours, theirs = (
        scrib_mlflow.evaluate(local.model_uri, "scores_fresh.parquet", "label", **engine)
        for engine in engines
    )
    assert to_json(theirs.report) == to_json(ours.report)
    assert (theirs.n_invalid, theirs.n_shared) == (ours.n_invalid, ours.n_shared)


@pytest.mark.slow
def test_rows_that_certify_must_not_be_fitted(uri):
    with pytest.raises(InvalidDataError, match="would prove nothing"):
        scrib_mlflow.calibrate(
            uri, "rows.parquet", "label", certify_data="rows.parquet", engine="spark"
        )
    with pytest.raises(InvalidDataError, match=r"patient '?\d+'? has rows among those"):
        scrib_mlflow.calibrate(
            uri,
            "known_rows.parquet",
            "label",
            certify_data="known_fresh.parquet",
            group="patient",
            engine="spark",
        )


def test_a_bad_row_is_named_by_its_key_or_else_by_its_contents(uri):
    table = pd.read_parquet("known_rows.parquet")
    table.loc[[5, 7], "x0"] = np.nan
    table.to_parquet("bad.parquet")
    given = {"engine": "spark", "max_invalid": 0}
    and_more = "of data and 1 more cannot be scored: ValueError"
    with pytest.raises(ModelError, match=f"the row with id 'rows-5' {and_more}"):
        scrib_mlflow.calibrate(uri, "bad.parquet", "label", key="id", **given)
    table.drop(columns=["id", "patient"]).to_parquet("bad.parquet")
    with pytest.raises(ModelError, match=rf"the row \{{'x0': nan.* {and_more}"):
        scrib_mlflow.calibrate(uri, "bad.parquet", "label", **given)


@pytest.mark.parametrize(
    "columns",
    [pytest.param(False, id="scored"), pytest.param(True, id="columns", marks=pytest.mark.slow)],
)
def test_rows_without_scores_abstain_alike_in_a_calibration(uri, columns):
    table = pd.read_parquet("rows.parquet")
    if columns:
        scores = mlflow.sklearn.load_model(uri).predict_proba(table[FEATURES])
        table = table.join(pd.DataFrame(scores, columns=CLASSES))
        table.loc[[5, 7], "hard"] = [np.nan, np.inf]
    else:
        table.loc[[5, 7], "x0"] = np.nan
    table.to_parquet("holes.parquet")
    options = {"risk_targets": 0.1, "scores_from": "columns" if columns else "auto"}
    local, other = (
        scrib_mlflow.calibrate(uri, "holes.parquet", "label", **options, **engine).classifier
        for engine in ({}, {"engine": "spark"})
    )
    assert local.certified
    assert local.unscored.n_fit + local.unscored.n_certify == 2
    assert other.unscored.first == ""  # its contents stay in the log
    told = replace(other.unscored, first=local.unscored.first, reason=local.unscored.reason)
    assert to_json(replace(other, unscored=told)) == to_json(local)


@pytest.mark.slow
def test_a_key_that_stands_twice_is_named(uri):
    table = pd.read_parquet("known_rows.parquet")
    table.loc[7, "id"] = "rows-5"
    table.to_parquet("twice.parquet")
    with pytest.raises(InvalidDataError, match="'rows-5' stands more than once"):
        scrib_mlflow.calibrate(uri, "twice.parquet", "label", key="id", engine="spark")


@pytest.mark.slow
def test_rows_that_cannot_be_scored_abstain_alike_and_scores_in_columns_are_taken(uri):
    made = scrib_mlflow.calibrate(uri, "rows.parquet", "label", risk_targets=0.1)
    fresh = draw_mixture(500, seed=5)
    fresh.loc[[7, 31], "x0"] = np.nan
    fresh.to_parquet("gaps.parquet")
    ours, theirs = (
        scrib_mlflow.evaluate(made.model_uri, "gaps.parquet", "label", **engine)
        for engine in ({}, {"engine": "spark"})
    )
    assert ours.n_invalid == theirs.n_invalid == 2
    assert to_json(theirs.report) == to_json(ours.report)
    table = pd.read_parquet("rows.parquet")
    scores = mlflow.sklearn.load_model(uri).predict_proba(table[FEATURES])
    names = [f"p.{name}" for name in CLASSES]
    table = table.assign(**dict(zip(names, scores.T, strict=True)))
    table.to_parquet("scored.parquet")
    options = {"risk_targets": 0.1, "scores_from": f"columns:[{', '.join(names)}]"}
    local, other = (
        scrib_mlflow.calibrate(uri, "scored.parquet", "label", **options, **engine)
        for engine in ({}, {"engine": "spark"})
    )
    assert to_json(other.classifier) == to_json(local.classifier)
    table.loc[2400, names[1]] = np.inf  # beyond the rows that are tried first
    table.to_parquet("scored.parquet")
    with pytest.raises(ModelError, match=r"it has no finite score in column p\.hard"):
        scrib_mlflow.calibrate(
            uri, "scored.parquet", "label", engine="spark", max_invalid=0, **options
        )


MORE_THAN_FITS = """
import os, pyarrow as pa
from scrib_mlflow.engines.spark import scoring, session

def megabytes(batches):
    for batch in batches:
        for _ in range(batch.num_rows):
            yield pa.RecordBatch.from_pydict({"chunk": [os.urandom(2**20)]})

with session.session({"spark.master": "local[2]"}) as spark:
    chunks = spark.range(700, numPartitions=2).mapInArrow(megabytes, "chunk binary")
    chunks = chunks.repartition(70)
    print(sum(len(chunk) for chunk in scoring._part_by_part(chunks)))
"""


@pytest.mark.slow
def test_more_than_fits_into_the_drivers_memory_is_handed_over():
    options = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell"}
    environment = {**os.environ, **options, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", MORE_THAN_FITS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(700 * 2**20), done.stderr[-2000:]


@pytest.mark.parametrize("what", ["answers", "inputs"])
def test_both_engines_monitor_alike(uri, what):
    made = scrib_mlflow.calibrate(uri, "rows.parquet", "label", risk_targets=0.1)
    data, options = "known_fresh.parquet", {"key": "id", "label": "label"}
    if what == "answers":
        scrib_mlflow.predict(made.model_uri, data, "served", key="id,label", explain=True)
        data = "served"
    ours, theirs = (
        scrib_mlflow.monitor(made.model_uri, data, restart=True, **options, **engine).monitor
        for engine in ({}, {"engine": "spark"})
    )
    assert ours.n_rows == 2550
    assert sum(ours.certain) > 2000
    # times differ
    assert [replace(each, time="") for each in ours.history] == [
        replace(each, time="") for each in theirs.history
    ]
    assert (ours.bins, ours.kinds, ours.risk) == (theirs.bins, theirs.kinds, theirs.risk)
