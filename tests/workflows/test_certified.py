"""Calibrate in its default mode: what is split, drawn, tested, counted and said."""

import json
import math
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.core.bounds import acceptance_rows
from scrib_mlflow.errors import ScribError
from scrib_mlflow.workflows.calibrate import summary
from scrib_mlflow.workflows.intact import find_damage
from tests.models import CLASSES, FEATURES, case_hashes, draw_mixture, fit_pipeline
from tests.oracles import keep_top


def calibrate(uri="models:/base/1", **options):
    return scrib_mlflow.calibrate(uri, "rows.parquet", "label", **options)


def read_artifact(run_id, name):
    path = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=name)
    return Path(path).read_text(encoding="utf-8")


def test_the_certificate_is_the_binomial_test_of_the_served_rule_on_rows_the_path_never_saw(
    mixture,
):
    done = calibrate(rule="thresholds")
    record = done.classifier
    assert record.certified
    rows = pd.read_parquet("rows.parquet")
    shares = [round(0.7 * count) for count in rows["label"].value_counts()]
    assert record.certify_data.n_used == sum(shares)
    assert record.fit_data.n_used == 3000 - sum(shares)
    assert record.fit_data.digest == record.certify_data.digest
    hashes = pd.read_parquet(
        mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="rows.parquet")
    )
    assert hashes["part"].value_counts()["certify"] == sum(shares)
    assert len(hashes) == 3000
    assert not set(hashes.query("part == 'fit'")["hash"]) & set(
        hashes.query("part == 'certify'")["hash"]
    )
    labels = np.array([CLASSES.index(name) for name in rows["label"]])
    certify = np.isin(
        case_hashes(rows[FEATURES], labels), hashes.query("part == 'certify'")["hash"]
    )
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(rows[FEATURES])
    sets = keep_top(scores >= np.array(record.rule.thresholds), scores)
    certain = certify & (sets.sum(axis=1) == 1)
    for j, claim in enumerate(record.certificate.claims):
        own = certain & (labels == j)
        wrong = own & ~sets[:, j]
        assert (claim.n_certain, claim.n_wrong) == (own.sum(), wrong.sum())
        assert claim.p_value_iid == pytest.approx(stats.binom.cdf(wrong.sum(), own.sum(), 0.1))
        assert claim.n_tested == acceptance_rows(claim.n_certain, 0.1, record.certificate.level)
        tested = claim.n_tested_wrong, claim.n_tested
        assert claim.p_value == pytest.approx(stats.binom.cdf(*tested, 0.1))
        assert claim.p_value <= 0.05
        assert claim.status == "certified"


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_the_model_s_answers_are_withheld_but_never_changed_unless_the_paper_s_rule_is_asked_for(
    mixture, rule
):
    fresh = draw_mixture(3000, seed=7)
    own = fit_pipeline(draw_mixture(600, seed=100)).predict(fresh[FEATURES])
    targets = {CLASSES[0]: 0.4, "default": 0.06}  # for which it pays to change answers
    for options, changes in (({}, False), ({"mode": "paper"}, True), ({"answers": "any"}, True)):
        done = calibrate(risk_targets=targets, rule=rule, **options)
        served = mlflow.pyfunc.load_model(done.model_uri).predict(fresh[FEATURES])
        answered = ~served["abstain"].to_numpy(dtype=bool)
        assert 0.5 < answered.mean() <= 1
        assert (served["prediction"].to_numpy()[answered] != own[answered]).any() == changes
        assert done.classifier.rule.answers == ("any" if changes else "top")
        note = mlflow.MlflowClient().get_model_version(done.name, done.version).description
        assert ("only with the class that the model scores highest" in note) == (not changes)


def test_the_last_of_the_path_that_passed_is_deployed(mixture):
    done = calibrate(rule="thresholds")
    path = scrib_mlflow.from_json(read_artifact(done.run_id, "path.json"))
    record = done.classifier
    step = path.steps[record.path.chosen].rule
    assert record.rule.thresholds == step.thresholds
    assert step.candidate_thresholds is None
    assert record.rule.recalibration == path.recalibration  # which ranks the candidates
    assert record.rule.max_candidates == 10
    assert all(p <= 0.05 for p in record.path.p_values[: record.path.chosen + 1])
    assert len(record.path.p_values) in {record.path.chosen + 1, record.path.chosen + 2}
    if len(record.path.p_values) > record.path.chosen + 1:
        assert record.path.p_values[-1] > 0.05


def test_a_certified_version_says_so_in_tags_metrics_and_words(mixture):
    done = calibrate()
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert version.tags["scrib.certified"] == "true"
    assert version.tags["scrib.certificate_digest"]
    assert version.description.replace("\u00a0", "").count("| certified |") == 3
    assert "Certified: at confidence 95 %" in version.description
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["certified"] == 1
    assert metrics["p_value"] == done.classifier.certificate.p_value
    assert metrics["p_value/hard"] == done.classifier.certificate.claims[1].p_value
    assert {"abstention_rate", "fit_abstention_rate", "risk_upper/easy"} <= set(metrics)


def test_what_cannot_be_certified_is_registered_as_such_with_reasons(mixture):
    done = calibrate(risk_targets={"hard": 0.001, "default": 0.1})
    record = done.classifier
    assert not record.certified
    assert record.path.chosen is None
    statuses = {claim.name: claim.status for claim in record.certificate.claims}
    assert statuses["hard"] in {"not certified", "silent"}
    assert "certified" not in statuses.values()
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert version.tags["scrib.certified"] == "false"
    assert "Not certified" in version.description
    assert "Class hard needs" in version.description
    path = scrib_mlflow.from_json(read_artifact(done.run_id, "path.json"))
    assert record.rule not in [step.rule for step in path.steps]  # but fitted to the targets
    assert record.advice is None  # more rows are needed first
    assert done.alias == "candidate"
    assert calibrate().alias == "candidate"
    assert calibrate(risk_targets={"hard": 0.001, "default": 0.1}).alias == ""
    held = mlflow.MlflowClient().get_model_version_by_alias(done.name, "candidate")
    assert held.version == 2


def test_where_nothing_passes_fit_rows_say_which_target_is_in_the_way(mixture):
    targets = {"hard": 0.006, "default": 0.15}
    done = calibrate(risk_targets=targets, rule="thresholds")
    record = done.classifier
    assert not record.certified
    assert record.advice.blocking == "hard"
    assert record.advice.chance_without >= 0.8
    assert record.advice.targets["easy"] == record.advice.targets["middle"] == 0.15
    assert 0.006 < record.advice.targets["hard"] <= 0.5
    assert record.certify_report.abstention_rate < 0.9
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert "hard is in the way" in version.description
    again = calibrate(risk_targets=record.advice.targets, rule="thresholds", seed=1).classifier
    assert again.certified


def test_require_certificate_registers_all_the_same_and_ends_with_exit_code_1(mixture):
    done = CliRunner().invoke(
        main,
        [
            *("calibrate", "--model_uri", mixture, "--data", "rows.parquet", "--label", "label"),
            *("--risk_targets", "0.001", "--require_certificate", "true"),
        ],
    )
    assert done.exit_code == 1
    assert "registered but not certified" in done.output
    assert "Traceback" not in done.output
    version = mlflow.MlflowClient().get_model_version("base-scrib", "1")
    assert version.tags["scrib.certified"] == "false"


def test_the_split_depends_on_rows_and_seed_and_not_on_their_order(mixture):
    first = calibrate().classifier
    rows = pd.read_parquet("rows.parquet")
    rows.sample(frac=1, random_state=0).to_parquet("rows.parquet")
    again = calibrate().classifier
    assert again.certificate == first.certificate
    assert again.use.number == 1  # the same test again is no new use
    other = calibrate(seed=5).classifier
    assert other.certificate != first.certificate
    assert other.use.number == 2


def test_rows_of_their_own_certify_where_they_are_given(mixture):
    draw_mixture(1500, seed=2).to_parquet("certify.parquet")
    record = calibrate(certify_data="certify.parquet").classifier
    assert (record.fit_data.n_used, record.certify_data.n_used) == (3000, 1500)
    assert record.certified
    assert record.use.digest == record.certify_data.digest
    with pytest.raises(ScribError, match="exclude each other"):
        calibrate(certify_data="certify.parquet", certify_fraction=0.5)
    with pytest.raises(ScribError, match="3,000 of the 3,000 rows that certify stand in data"):
        calibrate(certify_data="rows.parquet")


def test_unlabelled_rows_draw_the_path_and_may_not_certify(mixture):
    draw_mixture(4000, seed=3).drop(columns="label").to_parquet("more.parquet")
    done = calibrate(path_data="more.parquet")
    record = done.classifier
    assert record.certified
    assert (record.fit_data.n_used, record.certify_data.n_used) == (300, 2700)
    assert record.path_data.n_used == 4000
    path = scrib_mlflow.from_json(read_artifact(done.run_id, "path.json"))
    assert path.n_rows == 4000
    pd.read_parquet("rows.parquet").drop(columns="label").to_parquet("same.parquet")
    with pytest.raises(ScribError, match="stand in path_data"):
        calibrate(path_data="same.parquet")


def grouped(n_groups, rows_each, *, seed):
    table = draw_mixture(n_groups * rows_each, seed=seed)
    return table.assign(patient=np.repeat([f"p{i}" for i in range(n_groups)], rows_each))


def test_groups_stay_together_and_the_certificate_says_that_it_is_approximate(mixture):
    grouped(120, 25, seed=4).to_parquet("rows.parquet")
    done = calibrate(group="patient")
    record = done.classifier
    assert record.certified
    certificate = record.certificate
    assert certificate.approximate
    assert certificate.n_groups == 84
    assert all(claim.n_groups >= 30 for claim in certificate.claims)
    for claim in certificate.claims:
        assert claim.risk_upper_iid <= claim.risk_upper
        assert record.certify_report.by_class[claim.name].risk_upper == claim.risk_upper
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert "approximate" in version.description
    assert math.isnan(record.certify_report.by_class["easy"].risk_upper_kl)


def test_each_group_counts_for_at_most_its_cap_and_every_text_says_so(mixture):
    grouped(120, 25, seed=4).to_parquet("rows.parquet")
    record = calibrate(group="patient").classifier
    fitted = pd.read_parquet("rows.parquet").groupby(["patient", "label"]).size()
    certificate = record.certificate
    assert certificate.group_test == "approximate"
    assert 1 <= certificate.group_cap <= fitted.groupby("label").median().min() + 1
    for claim in certificate.claims:
        assert claim.group_sums.certain <= claim.n_groups * certificate.group_cap
        assert claim.group_sums.certain <= claim.n_certain
    done = calibrate(group="patient", group_cap=3, group_test="exact", risk_targets=0.3)
    certificate = done.classifier.certificate
    assert done.classifier.certified
    assert (certificate.group_cap, certificate.group_test) == (3, "exact")
    assert not certificate.approximate
    version = mlflow.MlflowClient().get_model_version(done.name, done.version)
    assert (version.tags["scrib.group_cap"], version.tags["scrib.group_test"]) == ("3", "exact")
    sentence = "each patient counts for at most 3 rows of a class"
    assert sentence in version.description
    assert sentence in read_artifact(done.run_id, "report.html")
    rows = calibrate(group="patient", max_group_rows=25, group_test="exact", risk_targets=0.4)
    assert rows.classifier.certificate.max_group_rows == 25
    passed = scrib_mlflow.gate(done.model_uri, alias="champion")
    assert passed.decision.passed
    assert sentence in {check.name: check.detail for check in passed.decision.checks}["certified"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group_cap": 3}, "group_cap is about groups"),
        ({"group_test": "exact"}, "group_test is about groups"),
        ({"group": "patient", "max_group_rows": 9}, "add group_test=exact"),
        ({"group": "patient", "group_cap": 3, "max_group_rows": 9}, "exclude each other"),
    ],
)
def test_options_about_groups_that_cannot_be_meant_are_refused(options, text):
    with pytest.raises(ScribError, match=text):
        calibrate(**options)


def test_fewer_than_30_groups_never_certify(mixture):
    grouped(40, 75, seed=4).to_parquet("rows.parquet")
    record = calibrate(group="patient", risk_targets=0.3).classifier
    assert not record.certified
    assert {claim.status for claim in record.certificate.claims} == {"too few groups"}


def test_a_group_may_not_stand_on_both_sides(mixture):
    grouped(60, 25, seed=4).to_parquet("rows.parquet")
    grouped(60, 25, seed=5).to_parquet("certify.parquet")
    with pytest.raises(ScribError, match="patient 'p0' has rows among those that certify"):
        calibrate(group="patient", certify_data="certify.parquet")
    with pytest.raises(ScribError, match="no column 'doctor'"):
        calibrate(group="doctor")


def test_a_key_identifies_rows_and_must_do_so(mixture):
    rows = pd.read_parquet("rows.parquet").assign(number=range(3000), day=1)
    rows.to_parquet("rows.parquet")
    done = calibrate(key="number")
    assert done.classifier.certified
    fresh = draw_mixture(1000, seed=9).assign(number=range(2000, 3000))
    fresh.to_parquet("fresh.parquet")
    gated = scrib_mlflow.gate(done.model_uri, data="fresh.parquet", label="label")
    assert gated.decision.fresh.n_shared == 1000  # known by their keys, whatever they hold
    assert not gated.decision.passed
    with pytest.raises(ScribError, match="1 stands more than once"):
        calibrate(key="day")


def test_a_waived_class_is_not_claimed_and_an_overall_target_is(mixture):
    record = calibrate(waive=["hard"], overall_target=0.09).classifier
    assert [claim.name for claim in record.certificate.claims] == ["easy", "middle", "overall"]
    assert record.certificate.waived == ("hard",)


GROUPS = "{slow: {classes: [hard, middle], target: 0.09}}"


def test_classes_that_share_a_target_are_claimed_measured_and_gated_together(mixture):
    done = calibrate(risk_groups=GROUPS, waive=["hard"])
    record = done.classifier
    assert record.certified
    *_, claim = record.certificate.claims
    assert (claim.name, claim.classes, claim.target) == ("slow", ("hard", "middle"), 0.09)
    assert record.named_targets == {"easy": 0.1, "middle": 0.1, "slow": 0.09}
    by_class = record.certify_report.by_class
    assert claim.n_certain == by_class["hard"].n_certain + by_class["middle"].n_certain
    assert claim.n_wrong == by_class["hard"].n_wrong + by_class["middle"].n_wrong
    slow = record.certify_report.by_risk_group["slow"]
    assert (slow.n_certain, slow.n_wrong) == (claim.n_certain, claim.n_wrong)
    assert slow.risk_upper == claim.risk_upper_iid
    assert "slow" in summary(done)
    metrics = mlflow.get_run(done.run_id).data.metrics
    assert metrics["p_value/slow"] == claim.p_value
    assert metrics["risk/slow"] == slow.risk
    draw_mixture(2000, seed=9).to_parquet("fresh.parquet")
    rows = {"data": "fresh.parquet", "label": "label"}
    measured = scrib_mlflow.evaluate(done.model_uri, **rows)
    assert measured.report.by_risk_group["slow"].n_wrong > 0
    gated = scrib_mlflow.gate(done.model_uri, **rows)
    assert gated.decision.passed
    assert gated.decision.policy.risk_groups == record.risk_groups
    assert [check.name for check in gated.decision.checks].count("target of slow") == 1
    stricter = {"slow": (["hard", "middle"], 0.05)}
    gated = scrib_mlflow.gate(done.model_uri, risk_groups=stricter)
    assert [c.name for c in gated.decision.checks if not c.passed] == ["target of slow"]
    gated = scrib_mlflow.gate(
        done.model_uri, **rows, evidence="fresh", risk_targets=0.2, risk_groups=GROUPS
    )
    assert [claim.name for claim in gated.decision.fresh.certificate.claims] == [*CLASSES, "slow"]


def test_classes_that_share_a_target_reach_the_fit_of_the_paper(mixture):
    record = calibrate(risk_groups=GROUPS, mode="paper", rule="optimal").classifier
    assert [fit.name for fit in record.fit.constraints] == [*CLASSES, "slow"]
    assert record.fit_report.by_risk_group["slow"].risk <= 0.1


def add_weights(name, **changes):
    rows = pd.read_parquet(name)
    weights = {"w": np.where(rows["x0"] > 0, 2.0, 1.0)}
    rows.assign(**(weights | changes)).to_parquet(name)


def test_weighted_rows_are_fitted_tested_by_bets_and_gated(mixture):
    add_weights("rows.parquet")
    done = calibrate(weight="w", max_weight=2.5, risk_targets=0.2, key=None)
    record = done.classifier
    assert record.certified
    assert (record.weight, record.max_weight, record.gap) == ("w", 2.5, None)
    rows = pd.read_parquet("rows.parquet")
    hashes = pd.read_parquet(
        mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="rows.parquet")
    )
    labels = np.array([CLASSES.index(name) for name in rows["label"]])
    certify = np.isin(
        case_hashes(rows[FEATURES], labels), hashes.query("part == 'certify'")["hash"]
    )
    held = rows[certify]
    scores = fit_pipeline(draw_mixture(600, seed=100)).predict_proba(held[FEATURES])
    wanted = scrib_mlflow.certify_sets(
        scores,
        held["label"],
        record.rule,
        0.2,
        classes=CLASSES,
        sample_weight=held["w"],
        max_weight=2.5,
    )
    for claim, own in zip(record.certificate.claims, wanted.claims, strict=True):
        assert claim.log_capital == pytest.approx(own.log_capital)
        assert claim.p_value == pytest.approx(math.exp(-max(claim.log_capital, 0)))
        assert claim.risk == pytest.approx(own.risk)
        assert math.isnan(claim.risk_upper)
    sets = scrib_mlflow.predict_sets(scores, record.rule)
    rate = 1 - np.average(sets.sum(axis=1) == 1, weights=held["w"])
    assert record.certify_report.abstention_rate == pytest.approx(rate)
    assert record.certify_report.n == len(held)
    assert "weighted by w, and hold if none weighs more than 2.5" in summary(done)
    gated = scrib_mlflow.gate(done.model_uri)
    assert gated.decision.passed
    (held_by,) = [each.detail for each in gated.decision.checks if each.name == "certified"]
    assert "rows weighted by w" in held_by
    with pytest.raises(ScribError, match="certified for rows weighted by 'w'"):
        scrib_mlflow.gate(done.model_uri, data="rows.parquet", label="label")
    draw_mixture(500, seed=9).to_parquet("fresh.parquet")
    measured = scrib_mlflow.evaluate(done.model_uri, "fresh.parquet", "label")
    assert measured.report.n == 500
    forged = [replace(claim, log_capital=1e4) for claim in record.certificate.claims]
    worse = replace(record, certificate=replace(record.certificate, claims=tuple(forged)))
    assert "counts do not give" in find_damage(worse, "", {})
    assert find_damage(replace(record, weight=None), "", {}) != ""
    assert find_damage(record, "", {}) == ""


def test_a_shared_target_or_weights_that_fail_are_told(mixture):
    add_weights("rows.parquet")
    done = calibrate(risk_groups="{slow: {classes: [hard, middle], target: 0.002}}")
    record = done.classifier
    assert not record.certified
    assert record.advice.targets["slow"] > 0.002
    assert record.advice.targets["easy"] == 0.1
    assert "slow at" in summary(done)
    done = calibrate(weight="w", max_weight=2, risk_targets=0.005)
    assert not done.classifier.certified
    assert {claim.log_capital is None for claim in done.classifier.certificate.claims} == {False}
    gated = scrib_mlflow.gate(done.model_uri)
    assert not gated.decision.passed
    (why,) = [each.detail for each in gated.decision.checks if each.name == "certified"]
    assert "weighted risk" in why


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({"max_weight": 1.5}, {}, "a row of data weighs 2, more than max_weight = 1.5"),
        ({"max_weight": 2}, {"w": "much"}, "column 'w' of data holds no numbers"),
        ({"max_weight": 2}, {"w": -1.0}, "data has the weight -1 in row 0"),
        ({}, {}, "max_weight is missing"),
        ({"max_weight": 2, "group": "x0"}, {}, "groups and weights, which no certificate"),
        ({"max_weight": 2, "path_data": "rows.parquet"}, {}, "rows without labels have no"),
        ({"max_weight": 2, "mode": "paper"}, {}, "weight is for mode=certified"),
        ({"max_weight": 2, "engine": "spark"}, {}, "weight needs engine=local"),
    ],
)
def test_weights_that_nothing_covers_are_refused(mixture, options, changes, words):
    add_weights("rows.parquet", **changes)
    with pytest.raises(ScribError, match=words):
        calibrate(weight="w", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk_groups": "{a: {classes: [hard], target: 2}}"}, r"risk_groups.a.target is '2'"),
        ({"risk_groups": "{a: {classes: [], target: 0.1}}"}, r"risk_groups.a.classes is \[\]"),
        ({"risk_groups": "{a: {target: 0.1}}"}, r"risk_groups.a.classes is missing"),
        ({"risk_groups": "{a: {classes: [soft], target: 0.1}}"}, "unknown class 'soft'"),
        ({"risk_groups": "{easy: {classes: [hard], target: 0.1}}"}, "take another name"),
        ({"risk_groups": "{overall: {classes: [hard], target: 0.1}}"}, "take another name"),
        ({"mode": "paper", "certify_fraction": 0.5}, "certify_fraction is for mode=certified"),
        ({"mode": "paper", "group": "x0"}, "group is for mode=certified"),
        ({"mode": "paper", "require_certificate": True}, "require_certificate needs"),
        ({"certify_fraction": 1.0}, "certify_fraction is 1.0"),
        ({"ledger": "burn"}, "ledger is 'burn'"),
        ({"path_data": "nowhere.parquet"}, "path_data nowhere.parquet does not exist"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_made(mixture, options, words):
    with pytest.raises(ScribError, match=words):
        calibrate(**options)
    found = mlflow.MlflowClient().search_registered_models()
    assert [model.name for model in found] == ["base"]


def test_a_class_with_one_row_is_named_before_rows_are_scored(mixture):
    rows = pd.read_parquet("rows.parquet")
    first = rows.index[rows["label"] == "hard"]
    rows.drop(index=first[1:]).to_parquet("rows.parquet")
    with pytest.raises(ScribError, match="'hard'"):
        calibrate()


def test_the_plan_is_logged_before_the_fit(mixture):
    done = calibrate()
    plan = json.loads(read_artifact(done.run_id, "plan.json"))
    assert plan["type"] == "plan"
    assert [each["name"] for each in plan["by_class"]] == list(CLASSES)


def test_the_same_rows_under_other_keys_are_seen(mixture):
    rows = pd.read_parquet("rows.parquet")
    rows.assign(number=range(3000)).to_parquet("rows.parquet")
    rows.assign(number=range(10_000, 13_000)).to_parquet("again.parquet")
    with pytest.raises(ScribError, match="stand in data"):
        calibrate(key="number", certify_data="again.parquet")
    done = calibrate(key="number")
    gated = scrib_mlflow.gate(done.model_uri, data="again.parquet", label="label")
    assert gated.decision.fresh.overlapping


def test_certify_rows_with_other_labels_are_seen(mixture):
    rows = pd.read_parquet("rows.parquet").head(1000)
    turned = rows.assign(label=rows["label"].map(dict(zip(CLASSES, CLASSES[::-1], strict=True))))
    turned.to_parquet("turned.parquet")
    with pytest.raises(ScribError, match="1,000 of the 1,000 rows that certify stand in data"):
        calibrate(certify_data="turned.parquet")


def test_groups_of_path_rows_may_not_certify(mixture):
    grouped(60, 25, seed=4).to_parquet("rows.parquet")
    grouped(60, 25, seed=5).drop(columns="label").to_parquet("more.parquet")
    with pytest.raises(ScribError, match="rows among those that certify and in path_data"):
        calibrate(group="patient", path_data="more.parquet")


def test_a_confidence_below_one_half_is_refused(mixture):
    with pytest.raises(ScribError, match=r"confidence is 0\.05"):
        calibrate(confidence=0.05)
