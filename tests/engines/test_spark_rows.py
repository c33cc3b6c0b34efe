"""Rows in Spark against the local engine's functions on the same file: the same numbers."""

import mlflow
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from scrib_mlflow.core.certificate import split, tally_sets
from scrib_mlflow.core.certificate.split import class_quotas, class_weights, keep_rows
from scrib_mlflow.core.counts import count_sets
from scrib_mlflow.core.inputs import labels_for
from scrib_mlflow.core.rules import OptimalRule, ThresholdRule, predict_sets, with_candidates
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.engines.spark import columns, rows, udfs
from scrib_mlflow.errors import InvalidDataError, ModelError
from scrib_mlflow.rows import hashes, scoring, tables
from tests.conftest import copy_store, using
from tests.engines.spark import small_session
from tests.models import FEATURES, draw_table, register_pipeline

pytestmark = pytest.mark.slow
SEED, K = 3, 3
RULES = [ThresholdRule(thresholds=(low, low, 0.3)) for low in (0.2, 0.4, 0.6)]
OPTIMAL = OptimalRule(
    multipliers=(9.0, 8.0, 7.0),
    charges=(8.0, 9.0, 9.0),
    recalibration=None,
    candidate_thresholds=(float("inf"),) * 3,
)


class Local:
    """The same rows as arrays."""

    def __init__(self, table, scorer, key, group):
        self.scores = scoring.score_rows(scorer, table[FEATURES], table.index, "data")
        self.labels = tables.label_indices(table["label"], scorer.classes, place="data")
        self.rows = hashes.row_hashes(table, text=["label"])
        self.keys = self.rows if key is None else hashes.key_hashes(table[key])
        self.groups = None if group is None else hashes.key_hashes(table[group])
        self.codes = None
        if group is not None:
            self.codes = np.unique(self.groups, return_inverse=True)[1]
        self.cases = hashes.case_hashes(table[FEATURES], self.labels)
        self.order = split.order_rows(self.keys, self.labels, SEED)
        self.classes = scorer.classes


@pytest.fixture(scope="module")
def uri(empty_store, tmp_path_factory):
    """A registered classifier, in a store that is the current one."""
    folder = tmp_path_factory.mktemp("spark")
    with using(copy_store(empty_store, folder), folder):
        yield register_pipeline()


@pytest.fixture(scope="module")
def spark(uri):
    with small_session() as session:
        yield session


@pytest.fixture(scope="module", params=["plain", "grouped and keyed"])
def both(request, spark, uri, tmp_path_factory):
    """Rows in Spark and the same rows as arrays."""
    whole = request.param != "plain"
    key, group = ("id", "patient") if whole else (None, None)
    table = draw_table(700, seed=1)
    table = pd.concat([table, table[:60]], ignore_index=True)  # equal rows
    if whole:
        table = table.assign(id=np.arange(len(table)), patient=[f"p{i % 41}" for i in table.index])
    path = str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    table.to_parquet(path)
    scorer = find_scorer(uri, table)
    roles = columns.Roles(what="data", label="label", key=key, group=group)
    frame = columns.read(spark, "data", path, "label").repartition(3)
    slim = make_slim(frame, uri, roles, scorer)
    ordered = columns.with_order(slim, SEED, keyed=whole)
    kept = rows.keep(ordered, grouped=whole)
    made = rows.SparkRows(frame=kept, k=K, grouped=whole, keyed=whole)
    yield made, Local(table, scorer, key, group)
    kept.unpersist()


def find_scorer(uri, table):
    model = scoring.load_model(uri)
    return scoring.make_scorer(
        model, table[FEATURES][:50], wanted="auto", classes=None, transform="none"
    )


def make_slim(frame, uri, roles, scorer):
    """Return slim rows with the scores of a registered classifier."""
    inputs = scorer.model.metadata.get_input_schema()
    beside = [name for name in (roles.label, roles.key, roles.group) if name]
    names = udfs.feature_names(frame, inputs, beside)
    labels = columns.find_labels(frame, roles, scorer.classes)
    scored = udfs.with_scores(frame, uri, names, inputs, scorer.classes, scorer.source)
    return columns.identify(scored, roles, labels, names, inputs, K)


def constraints(local):
    return make_constraints(Targets(risk_targets=0.1, overall_target=0.1), local.classes)


def test_scores_hashes_and_orders_are_the_local_ones(both):
    rows, local = both
    found = rows.frame.toArrow().to_pandas()
    unsigned = {
        name: columns.as_unsigned(found[name].to_numpy())
        for name in ("row", "key", "case", "order")
    }
    by = np.lexsort([unsigned["order"]])
    own = np.lexsort([local.order])
    assert (unsigned["order"][by] == local.order[own]).all()
    assert (unsigned["row"][by] == local.rows[own]).all()
    assert (unsigned["key"][by] == local.keys[own]).all()
    assert (unsigned["case"][by] == local.cases[own]).all()
    assert (found["label"].to_numpy()[by] == local.labels[own]).all()
    assert (np.array(found["scores"].tolist())[by] == local.scores[own]).all()
    assert (rows.sizes == np.bincount(local.labels)).all()
    assert rows.n_rows == len(local.labels)
    assert rows.n_groups == (41 if rows.grouped else None)
    sums = columns.sum_over(
        rows.frame,
        lambda batch: hashes.digest_sums(columns.hash_column(batch, "row")),
        np.zeros(5, dtype=np.uint64),
    )
    assert (sums == hashes.digest_sums(local.rows)).all()


def test_the_rows_that_certify_are_the_local_ones(both):
    rows, local = both
    chosen = split.split_rows(
        local.keys, local.labels, 0.7, SEED, groups=local.groups, names=local.classes
    )
    certify = columns.certifies(
        rows.frame, rows.sizes, 0.7, grouped=rows.grouped, names=local.classes, waived=()
    )
    found = rows.frame.filter(certify).select("order").toArrow().column(0).to_numpy()
    expected = local.order[chosen]
    assert sorted(columns.as_unsigned(found).tolist()) == sorted(expected.tolist())


def test_tallies_and_counts_are_the_local_ones(both):
    rows, local = both
    rules = [*RULES, OPTIMAL]
    claims = constraints(local)
    for rule, found in zip(rules, rows.tallies(rules, claims), strict=True):
        sets = predict_sets(local.scores, rule)
        expected = tally_sets(sets, local.labels, claims, local.codes)
        for a, b in zip(found[:3], expected[:3], strict=True):
            assert (a == b).all()
        assert (found.groups is None) == (local.codes is None)
        if found.groups is not None:
            assert found.groups.total == expected.groups.total
            for a, b in zip(found.groups[1:], expected.groups[1:], strict=True):
                assert (a == b).all()
    sets = predict_sets(local.scores, OPTIMAL)
    expected = count_sets(sets, local.labels, np.zeros((0, 0)), np.ones(len(sets)))
    for a, b in zip(rows.count(OPTIMAL), expected, strict=True):
        assert np.array_equal(a, b)


def test_candidate_thresholds_are_the_local_ones(both):
    rows, local = both
    labels = labels_for(local.labels, local.classes)
    expected = with_candidates(OPTIMAL, local.scores, labels, 0.9, classes=local.classes)
    assert rows.with_candidates(OPTIMAL, 0.9) == expected


@pytest.mark.parametrize("most", [200, 10_000])
def test_samples_are_the_local_ones(both, most):
    rows, local = both
    sizes = np.bincount(local.labels)
    quotas = class_quotas(sizes, most)
    kept = keep_rows(local.order, local.labels, quotas)
    by_case = np.argsort(local.cases[kept], kind="stable")
    found = rows.sample(most, by_class=True)
    assert (found.cases == local.cases[kept][by_case]).all()
    assert (found.labels == local.labels[kept][by_case]).all()
    assert (found.scores == local.scores[kept][by_case]).all()
    if most < rows.n_rows:
        assert (found.weights == class_weights(sizes, quotas)[found.labels]).all()
        highest = np.sort(local.cases[np.argsort(local.order)[-most:]])  # orders are unique
        assert (rows.sample(most, by_class=False).cases == highest).all()
    else:
        assert found.weights is None
    if rows.grouped:
        assert len(np.unique(found.groups)) == len(np.unique(local.codes[kept]))


def test_a_row_that_the_model_cannot_score_is_named(spark, uri, tmp_path):
    table = draw_table(40, seed=2).assign(id=[f"r{i}" for i in range(40)])
    table.loc[[7, 31], "x1"] = np.nan
    table.to_parquet(tmp_path / "rows.parquet")
    scorer = find_scorer(uri, draw_table(40, seed=2))
    frame = columns.read(spark, "data", str(tmp_path / "rows.parquet"), "label")
    for key, told in (
        ("id", "the row with id 'r31' of data and 1 more: ValueError: Input X"),
        (None, r"the row \{'x0': .*'x1': nan.* of data and 1 more: ValueError"),
    ):
        roles = columns.Roles(what="data", label="label", key=key)
        given = frame if key else frame.drop("id")
        slim = make_slim(given.repartition(6), uri, roles, scorer)
        with pytest.raises(ModelError, match=told):
            udfs.check_scored(slim, "data", key)


def test_a_key_that_stands_twice_is_named(spark):
    frame = spark.createDataFrame([(5, "a"), (6, "b"), (5, "a")], "key long, name string")
    roles = columns.Roles(what="data", label=None, key="id")
    with pytest.raises(InvalidDataError, match="'a' stands more than once"):
        columns.check_keys(frame, roles)
    columns.check_keys(frame.distinct(), roles)


def test_sets_of_a_served_model_are_those_it_serves(spark, calibrated, tmp_path):
    table = draw_table(200, seed=5)
    table.loc[[7, 31], "x1"] = np.nan
    table.to_parquet(tmp_path / "rows.parquet")
    model = scoring.load_model(calibrated.model_uri)
    classes = calibrated.classifier.classes
    inputs = model.metadata.get_input_schema()
    roles = columns.Roles(what="data", label="label")
    frame = columns.read(spark, "data", str(tmp_path / "rows.parquet"), "label")
    labels = columns.find_labels(frame, roles, classes)
    scored = udfs.with_scores(
        frame.repartition(8), calibrated.model_uri, FEATURES, inputs, classes, None
    )
    slim = columns.identify(scored, roles, labels, FEATURES, inputs, K)
    ordered = columns.with_order(slim.coalesce(2), 0, keyed=False)
    kept = rows.keep(ordered, grouped=False)
    answered = rows.SparkAnswered(frame=kept, k=K, grouped=False, keyed=False)
    answers = model.predict(table[FEATURES])
    sets = np.array([[name in row for name in classes] for row in answers["prediction_set"]])
    own = tables.label_indices(table["label"], classes, place="data")
    claims = make_constraints(Targets(risk_targets=0.1), classes)
    expected = tally_sets(sets, own, claims)
    found = answered.tally(claims)
    assert all((a == b).all() for a, b in zip(found[:3], expected[:3], strict=True))
    counts = count_sets(sets, own, np.zeros((0, 0)), np.ones(len(sets)))
    assert all(np.array_equal(a, b) for a, b in zip(answered.count(), counts, strict=True))
    assert (answered.n_rows, answered.n_invalid) == (200, 2)
    sample, members = answered.sample(1000)
    by_case = np.argsort(hashes.case_hashes(table[FEATURES], own))
    assert (members == sets[by_case]).all()
    assert np.isnan(sample.scores).all(axis=1).sum() == 2
    few, _ = answered.sample(30)
    highest = np.argsort(hashes.row_hashes(table, text=["label"]))[-30:]
    assert (few.cases == np.sort(hashes.case_hashes(table[FEATURES], own)[highest])).all()
    used = answered.cases(labelled=True)
    assert (used.modulus, sorted(used.values)) == (1, sorted(sample.cases))
    assert answered.keys() is None
    assert mlflow.active_run() is None  # the model that Spark runs is not logged
    kept.unpersist()
