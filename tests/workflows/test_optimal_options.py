"""Options of rule=optimal: what it takes, what it refuses, and what it says."""

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import scrib_mlflow
from scrib_mlflow.cli import main
from tests.models import CLASSES, FEATURES, draw_mixture

TARGET = 0.05


@pytest.fixture
def mixed(mixture):
    """A registered classifier and fewer rows for it."""
    draw_mixture(1500, seed=1).to_parquet("rows.parquet")
    return mixture


def test_paper_mode_fits_all_rows_and_says_that_nothing_is_proved(mixed):
    done = scrib_mlflow.calibrate(
        mixed, "rows.parquet", "label", risk_targets=TARGET, rule="optimal", mode="paper"
    )
    record = done.classifier
    assert not record.certified
    assert record.fit.method == "optimal"
    assert record.fit_report.n == 1500
    for name in CLASSES:
        assert record.fit_report.by_class[name].risk <= TARGET + 0.004
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["fit_abstention_bound"] == record.gap.bound
    assert "abstention_bound" not in metrics
    text = mlflow.MlflowClient().get_model_version(done.name, done.version).description
    assert "on the rows that were fitted, which proves nothing" in text


def test_groups_overall_targets_and_coverage_reach_the_rule(mixed):
    rows = pd.read_parquet("rows.parquet").assign(patient=np.arange(1500) // 5)
    rows.to_parquet("grouped.parquet")
    done = scrib_mlflow.calibrate(
        mixed,
        "grouped.parquet",
        "label",
        risk_targets={"hard": 0.15, "default": 0.2},
        overall_target=0.06,
        rule="optimal",
        group="patient",
        waive=["easy"],
        candidate_coverage=0.6,
    )
    record = done.classifier
    assert record.candidate_coverage == 0.6
    assert [claim.name for claim in record.certificate.claims] == ["hard", "middle", "overall"]
    assert record.certificate.approximate
    # the overall target is a price of its own, so charges are no multiple of class targets
    assert record.rule.charges[0] > 0
    text = mlflow.MlflowClient().get_model_version(done.name, done.version).description
    assert "those of a group are not, so this is approximate" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rule", "optimal", "--empty_weight", "1.1"], "empty_weight is for rule=thresholds"),
        (["--rule", "optimal", "--penalty", "10"], "penalty is for rule=thresholds"),
        (["--rule", "best"], "rule"),
        (
            ["--rule", "optimal", "--scores_from", "decision_function"],
            "the scores are no probabilities, which the optimal rule needs",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["certified", "paper"])
def test_what_the_rule_cannot_take_is_refused_and_nothing_is_registered(
    mixed, options, message, mode
):
    done = CliRunner().invoke(
        main,
        [
            *("calibrate", "--model_uri", mixed, "--data", "rows.parquet", "--label", "label"),
            *("--mode", mode, *options),
        ],
    )
    assert done.exit_code != 0
    assert message in done.output
    assert "Traceback" not in done.output
    assert [each.name for each in mlflow.MlflowClient().search_registered_models()] == ["base"]


def test_logits_are_taken_where_a_softmax_is_asked_for(mixed):
    done = scrib_mlflow.calibrate(
        mixed,
        "rows.parquet",
        "label",
        rule="optimal",
        scores_from="decision_function",
        score_transform="softmax",
    )
    assert done.classifier.certified
    rows = draw_mixture(50, seed=9)[FEATURES]
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(rows)
    assert not answers["abstain"].all()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "optimal"),
        ({"scores_from": "decision_function"}, "thresholds"),  # no probabilities
        ({"empty_weight": 1.1}, "thresholds"),  # which the optimal rule has not
        ({"mode": "paper"}, "thresholds"),
    ],
)
def test_auto_takes_the_optimal_rule_where_it_can(mixed, options, kind):
    done = scrib_mlflow.calibrate(mixed, "rows.parquet", "label", **options)
    assert done.classifier.rule.kind == kind
    assert mlflow.get_run(done.run_id).data.params["rule"] == "auto"


def test_auto_keeps_thresholds_for_two_classes_whatever_is_asked_of_candidates(mixed):
    rows = pd.read_parquet("rows.parquet")
    rows = rows[rows["label"] != "hard"]
    model = LogisticRegression().fit(rows[FEATURES], rows["label"])
    with mlflow.start_run():
        mlflow.sklearn.log_model(model, name="model", registered_model_name="two")
    rows.to_parquet("two.parquet")
    given = "models:/two/1", "two.parquet", "label"
    assert scrib_mlflow.calibrate(*given).classifier.rule.kind == "thresholds"
    asked = scrib_mlflow.calibrate(*given, candidate_coverage=0.9).classifier
    assert asked.rule.kind == "thresholds"
    assert asked.candidate_coverage == 0.9
