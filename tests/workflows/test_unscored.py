"""Rows that cannot be scored: they count as abstentions, up to a share of the rows."""

import logging

import mlflow
import numpy as np
import pandas as pd
import pytest

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.workflows.calibrate import summary
from tests.models import CLASSES, FEATURES, draw_mixture, fit_pipeline


def with_holes(n, rows, seed):
    """Return rows of which some lack a value that the model needs."""
    table = draw_mixture(n, seed=seed)
    table.loc[rows, "x1"] = np.nan
    return table


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_rows_without_scores_abstain_and_change_nothing_else(mixture, rule):
    fit, certify = with_holes(1200, [3, 70, 500], 1), with_holes(2000, [0, 9, 40, 999], 2)
    path = with_holes(800, [7], 3).drop(columns="label")
    options = {"rule": rule, "risk_targets": 0.1}
    done = scrib_mlflow.calibrate(
        mixture, fit, "label", certify_data=certify, path_data=path, **options
    )
    whole = scrib_mlflow.calibrate(
        mixture,
        fit.dropna(),
        "label",
        certify_data=certify.dropna(),
        path_data=path.dropna(),
        **options,
    )
    record, other = done.classifier, whole.classifier
    assert record.certified
    assert record.rule == other.rule
    counts = [
        [(claim.n_certain, claim.n_wrong, claim.p_value) for claim in each.certificate.claims]
        for each in (record, other)
    ]
    assert counts[0] == counts[1]
    assert record.gap == other.gap
    lacking = certify["x1"].isna()
    for name in CLASSES:
        own, without = record.certify_report.by_class[name], other.certify_report.by_class[name]
        assert own.n == (certify["label"] == name).sum()
        assert own.n - without.n == (lacking & (certify["label"] == name)).sum()
        assert (own.n_certain, own.risk) == (without.n_certain, without.risk)
        assert own.abstention_rate == pytest.approx(1 - own.n_certain / own.n)
    assert record.fit_report.n == 1200
    assert (record.unscored.n_fit, record.unscored.n_certify, record.unscored.n_path) == (3, 4, 1)
    assert other.unscored is None
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["n_invalid"] == 4


def test_the_certificate_counts_what_scikit_learn_says_of_the_other_rows(mixture):
    certify = with_holes(2000, [0, 9, 40, 999], 2)
    done = scrib_mlflow.calibrate(
        mixture, "rows.parquet", "label", certify_data=certify, rule="thresholds", answers="any"
    )
    known = certify.dropna()
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(known[FEATURES])
    sets = scores >= np.array(done.classifier.rule.thresholds)
    certain = sets.sum(axis=1) == 1
    for j, name in enumerate(CLASSES):
        own = certain & (known["label"] == name).to_numpy()
        report = done.classifier.certify_report.by_class[name]
        assert (report.n_certain, report.n_wrong) == (own.sum(), (own & ~sets[:, j]).sum())


def test_they_are_named_where_people_look_and_abstain_when_served(mixture, caplog):
    data = with_holes(3000, [5, 17], 1)
    with caplog.at_level(logging.WARNING, "scrib_mlflow"):
        done = scrib_mlflow.calibrate(mixture, data, "label", rule="thresholds")
    told = done.classifier.unscored
    assert told.first == "rows 5, 17 of data"
    assert told.reason.startswith("ValueError: Input X contains NaN")
    words = "2 rows could not be scored"
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    page = mlflow.artifacts.load_text(f"runs:/{done.run_id}/report.html")
    for text in (caplog.text, summary(done), version.description, page):
        assert words in text
        assert "count as abstentions: rows 5, 17 of data (ValueError: Input X contains NaN" in text
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(data[FEATURES].head(6))
    assert answers["reason"].tolist()[5] == "invalid_scores"
    assert "invalid_scores" not in answers["reason"].tolist()[:5]


@pytest.mark.parametrize(("rows", "most"), [([5], 0), ([5, 6, 7], 0.002), (range(100), 0.01)])
def test_more_of_them_than_may_be_stop_the_command(mixture, rows, most):
    data = with_holes(1000, [*rows], 1)
    others = [scrib_mlflow.frontier, scrib_mlflow.compare] if len(rows) > 10 else []
    for command in (scrib_mlflow.calibrate, *others):  # which score only the fit rows
        with pytest.raises(ScribError, match=r"cannot be scored: ValueError.*raise max_invalid"):
            command(mixture, data, "label", max_invalid=most)


def test_scores_in_columns_that_are_missing_are_treated_alike(mixture):
    table = draw_mixture(3000, seed=1)
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(table[FEATURES])
    given = table.join(pd.DataFrame(scores, columns=CLASSES))
    given.loc[[4, 8], "easy"] = np.nan
    given.loc[20, "hard"] = np.inf
    options = {"rule": "thresholds", "scores_from": "columns"}
    done = scrib_mlflow.calibrate(mixture, given, "label", **options).classifier
    assert done.unscored.first == "rows 4, 8, 20 of data"
    assert done.unscored.reason == "it has the score nan in column 'easy'"
    assert done.unscored.n_fit + done.unscored.n_certify == 3
    assert done.fit_report.n + done.certify_report.n == 3000
    with pytest.raises(ScribError, match=r"rows 4, 8, 20 of data cannot be scored: it has the"):
        scrib_mlflow.calibrate(mixture, given, "label", max_invalid=0, **options)


def test_frontier_and_compare_leave_them_out_with_a_word(mixture, caplog):
    table = draw_mixture(3000, seed=1)
    data = table.copy()
    data.loc[range(20), "x1"] = np.nan
    with caplog.at_level(logging.WARNING, "scrib_mlflow"):
        compared = scrib_mlflow.compare(mixture, data, "label", repeats=1, curves=0)
        seen = scrib_mlflow.frontier(mixture, data, "label", points=5, rule="thresholds")
    left = compared.data.n_used - compared.comparison.n_rows
    assert 0 < left < 20  # the others would certify
    assert caplog.text.count(f"{left} rows could not be scored and are left out") == 2
    assert seen.frontier.n_fitted + seen.frontier.n_held_out == compared.comparison.n_rows
    unread = f"The other {3000 - compared.data.n_used:,} rows are those that calibrate would"
    assert unread in mlflow.get_run(compared.run_id).data.tags["mlflow.note.content"]
