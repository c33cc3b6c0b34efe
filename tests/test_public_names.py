"""Public names are a promise: a change here is a change for users."""

import dataclasses
import inspect
import json

import mlflow

import scrib_mlflow
from scrib_mlflow import options
from scrib_mlflow.core.studies import Curve, draw_frontier
from scrib_mlflow.core.studies.compare import Trial
from scrib_mlflow.synthetic import draw_scores
from tests.models import CLASSES, draw_mixture

NAMES = [
    "Calibration",
    "Certificate",
    "CertifiedFit",
    "Claim",
    "ClassReport",
    "Compared",
    "Comparison",
    "ConstraintFit",
    "Decision",
    "Evaluation",
    "Explored",
    "Fit",
    "Gated",
    "Monitored",
    "OptimalRule",
    "Path",
    "Plan",
    "Planned",
    "Predicted",
    "Predictions",
    "ScribClassifier",
    "ScribError",
    "Selected",
    "Selection",
    "SelectiveRule",
    "SetClassifier",
    "SetReport",
    "TargetFrontier",
    "ThresholdRule",
    "TopRule",
    "calibrate",
    "certify_path",
    "certify_sets",
    "compare",
    "draw_path",
    "evaluate",
    "evaluate_sets",
    "fit_certified",
    "fit_label",
    "fit_optimal",
    "fit_sgr",
    "fit_shared_threshold",
    "fit_thresholds",
    "fit_top1",
    "from_json",
    "frontier",
    "gate",
    "make_plan",
    "monitor",
    "plan",
    "predict",
    "predict_candidates",
    "predict_sets",
    "register",
    "select",
    "tally_sets",
    "to_json",
    "with_candidates",
]
PARAMETERS = {
    "fit_thresholds": """
        scores labels risk_targets classes overall_target risk_groups miscoverage_targets
        max_class_abstention waive penalty two_sided_penalty chance_weight size_weight empty_weight
        error_weight answers threshold_groups sample_weight confidence certify_rows allow_never
        initial seed effort threads
    """,
    "fit_optimal": """
        scores labels risk_targets classes overall_target risk_groups max_class_abstention waive
        penalty error_weight answers share_multipliers candidate_coverage sample_weight seed
    """,
    "with_candidates": "rule scores labels coverage classes max_candidates",
    "predict_candidates": "scores rule",
    "predict_sets": "scores rule trust",
    "evaluate_sets": "scores labels rule confidence classes sample_weight trust",
    "fit_sgr": "scores labels overall_target delta trust classes waive",
    "fit_label": "scores labels miscoverage_targets conformal classes waive",
    "fit_top1": "scores labels risk_targets classes overall_target waive",
    "fit_shared_threshold": "scores labels options",
    "certify_sets": """
        scores labels rule risk_targets confidence classes overall_target risk_groups waive groups
        group_cap group_test max_group_rows sample_weight max_weight trust seed
    """,
    "draw_path": """
        scores labels risk_targets rule certify_rows answered_only classes overall_target
        risk_groups max_class_abstention waive penalty chance_weight size_weight empty_weight
        error_weight answers confidence path_scores groups group_cap sample_weight seed threads
        progress
    """,
    "fit_certified": """
        scores labels risk_targets rule classes overall_target risk_groups max_class_abstention
        waive confidence certify_fraction path_scores groups group_cap group_test max_group_rows
        keys sample_weight max_weight error_weight answers seed threads progress
    """,
    "certify_path": "tallies constraints classes level waived",
    "tally_sets": "sets labels constraints groups weights group_test order level",
    "make_plan": "class_rows targets level abstention risk_share wanted n_groups",
    "calibrate": "model_uri data label parameters",
    "gate": "model_uri parameters",
    "plan": "data label parameters",
    "compare": "model_uri data label parameters",
    "frontier": "model_uri data label parameters",
    "evaluate": "model_uri data label parameters",
    "monitor": "model_uri data parameters",
    "predict": "model_uri data output parameters",
    "register": "run_id parameters",
    "select": "model_uri data label pool parameters",
}
FIELDS = {
    "Fit": """
        method rule classes loss constraints n_rows start_losses abstention_bound primal_gap seed
    """,
    "ConstraintFit": "name kind classes target rate excess",
    "SetReport": """
        classes n n_certain n_wrong abstention_rate chance_ambiguity size_ambiguity empty_rate
        overall_risk overall_risk_upper confidence by_class overall_top1_risk
        overall_top1_risk_certain candidate_coverage mean_candidates by_risk_group
    """,
    "ClassReport": """
        n n_certain n_wrong risk risk_upper risk_upper_kl miscoverage abstention_rate top1_risk
        top1_risk_certain n_named candidate_coverage
    """,
    "ThresholdRule": """
        thresholds answers recalibration candidate_thresholds max_candidates kind
    """,
    "OptimalRule": """
        multipliers charges recalibration candidate_thresholds answers max_candidates kind
    """,
    "SelectiveRule": "threshold on kind",
    "TopRule": "kind",
    "SetClassifier": """
        classes rule scores class_miscoverage risk_targets overall_target waived confidence mode
        certified base fit_data certify_data path_data group key certificate path use fit
        fit_report certify_report n_shared package_version gap candidate_coverage
        advice error_weight risk_groups weight max_weight n_repeated n_dropped unscored
        selection
    """,
    "Claim": """
        name classes target n n_certain n_wrong risk p_value risk_upper risk_upper_simultaneous
        risk_upper_kl status n_groups n_effective p_value_iid risk_upper_iid n_tested
        n_tested_wrong group_sums log_capital
    """,
    "Certificate": """
        confidence level passed p_value approximate n_groups claims waived group_test group_cap
        max_group_rows
    """,
    "CertifiedFit": """
        classes rule certificate abstention_rate predicted_power path p_values chosen fit_rows
        certify_rows seed
    """,
    "Path": "classes steps recalibration n_rows seed answered_rate",
    "Plan": "confidence level wanted chance abstention n_groups by_class",
    "Decision": """
        model_uri passed checks policy champion fresh decided_at package_version
    """,
    "Gated": "name version alias run_id moved decision classifier",
    "Monitored": """
        model_uri run_id monitor_run_id source number repeated labels_only alarms failed demoted
        monitor
    """,
    "Planned": "run_id plan",
    "Predicted": "output already kept logged predictions answers",
    "Predictions": """
        model_uri certificate_digest data key explain engine n_rows n_abstained reasons columns
        parts run_id written_at package_version
    """,
    "Compared": "run_id model_uri data comparison",
    "Comparison": """
        classes targets overall_target sgr_target n_rows n_groups repeats methods skipped trials
        curves all_splits
    """,
    "Explored": "run_id model_uri data use frontier",
    "TargetFrontier": """
        classes targets overall_target reference rule_kind confidence wanted n_fitted n_held_out
        n_groups certify_rows certify_groups swept points certifiable
    """,
    "Selection": """
        classes base scores inputs settings path group_test fit_data pool_data rows_digest n_path
        n_open n_answered n_drawn n_groups curve unscored package_version
    """,
    "Selected": "run_id output labelled selection",
    "Calibration": "name version alias model_uri run_id classifier",
    "Evaluation": "model_uri run_id classifier report n_invalid n_shared fitted grouped",
}
TRIAL = """
    method repeat abstention_rate size_ambiguity empty_rate overall_risk mean_excess worst_excess
    n_silent excess risk fit_seconds_ratio
"""
OPTIONS = {
    "Calibrate": """
        model_uri data label selection risk_targets overall_target risk_groups confidence rule
        answers mode certify_fraction certify_data path_data group group_cap group_test
        max_group_rows key weight max_weight duplicates allow_overlap waive max_class_abstention
        candidate_coverage max_candidates require_certificate ledger classes scores_from
        score_transform max_invalid
        penalty chance_weight size_weight empty_weight error_weight seed registered_model_name alias
        max_fit_rows batch_rows engine spark_options
    """,
    "Select": """
        model_uri data label pool rows output format risk_targets overall_target risk_groups
        confidence rule answers path_fraction group group_cap group_test max_group_rows key
        duplicates allow_overlap waive max_class_abstention classes scores_from score_transform
        max_invalid penalty chance_weight size_weight empty_weight error_weight seed max_fit_rows
        batch_rows engine spark_options
    """,
    "Gate": """
        model_uri alias data label evidence risk_targets overall_target risk_groups confidence waive
        max_abstention max_class_abstention max_abstention_increase min_candidate_coverage
        allow_overlap ledger group group_cap group_test batch_rows engine spark_options
    """,
    "Plan": """
        data label risk_targets confidence certify_fraction group waive abstention risk_share
    """,
    "Compare": """
        model_uri data label risk_targets overall_target certify_fraction group key waive classes
        scores_from score_transform max_invalid answers trust repeats curves seed batch_rows
    """,
    "Frontier": """
        model_uri data label risk_targets overall_target confidence rule answers certify_fraction
        group key waive max_class_abstention points lowest highest use_certify_rows ledger classes
        scores_from score_transform max_invalid penalty chance_weight size_weight empty_weight
        error_weight seed batch_rows
    """,
    "Evaluate": "model_uri data label confidence group verify batch_rows engine spark_options",
    "Predict": """
        model_uri data output key explain overwrite verify batch_rows engine spark_options
    """,
    "Monitor": """
        model_uri data label late_labels key group time audit_probability least_audit_probability
        false_alarms alarms fail_on_alarm on_alarm restart verify seed batch_rows engine
        spark_options
    """,
    "Register": "run_id registered_model_name alias",
    "Demo": "folder",
}
TAGS = """
    scrib.base_model scrib.base_version scrib.certified scrib.confidence scrib.rule scrib.run_id
    scrib.certificate_digest scrib.files_digest
"""
GATE_TAGS = """
    scrib.gate scrib.gate_run_id scrib.gate_reasons scrib.gate_allow_overlap
    scrib.previous_champion
"""
MONITOR_TAGS = """
    scrib_monitor scrib_monitor_since scrib_monitor_reasons scrib_monitor_run_id
"""
MONITOR_METRICS = """
    n_rows n_labelled alarm abstention_rate ambiguous_rate empty_rate not_scored_rate
    evidence_scores evidence_sets
"""
METRICS = """
    certified p_value abstention_rate empty_rate size_ambiguity overall_risk overall_risk_upper
    overall_top1_risk candidate_coverage mean_candidates cost_rate abstention_bound
    abstention_bound_at_risks fit_loss fit_abstention_rate fit_overall_risk n_invalid
"""
CLASS_METRICS = "risk risk_upper abstention top1_risk candidate_coverage p_value"
ARTIFACTS = """
    classes.json description.md figures/classes.png figures/confusion.png figures/risk_coverage.png
    figures/sets.png figures/thresholds.png files.json report.html rows.parquet scrib.json
"""
SERVED = "prediction abstain reason prediction_set set_size candidates"
DEFAULTS = {
    "risk_targets": 0.1,
    "classes": None,
    "overall_target": None,
    "penalty": 1e4,
    "two_sided_penalty": 0.0,
    "chance_weight": 1.0,
    "size_weight": 0.0,
    "empty_weight": 1.0,
    "threshold_groups": "class",
    "sample_weight": None,
    "seed": 0,
}


def test_names_are_those_promised():
    assert sorted(scrib_mlflow.__all__) == NAMES
    assert set(NAMES) <= set(dir(scrib_mlflow))


def test_parameters_are_those_promised():
    for name, promised in PARAMETERS.items():
        assert list(inspect.signature(getattr(scrib_mlflow, name)).parameters) == promised.split()
    parameters = inspect.signature(scrib_mlflow.fit_thresholds).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


def test_fields_are_those_promised():
    for name, promised in FIELDS.items():
        fields = dataclasses.fields(getattr(scrib_mlflow, name))
        assert [field.name for field in fields] == promised.split()


def test_trials_and_curves_of_a_comparison_have_the_fields_promised():
    names = [field.name for field in dataclasses.fields(Trial)]
    assert names == TRIAL.split()
    names = [field.name for field in dataclasses.fields(Curve)]
    assert names == ["method", "targets", "ambiguity", "risk", "top_risk", "auc", "rmse"]


def test_options_of_commands_are_those_promised():
    for name, promised in OPTIONS.items():
        assert list(getattr(options, name).model_fields) == promised.split()


def test_tags_and_served_columns_are_those_promised(calibrated):
    version = mlflow.MlflowClient().get_model_version(calibrated.name, calibrated.version)
    assert sorted(version.tags) == sorted(TAGS.split())
    outputs = mlflow.models.get_model_info(calibrated.model_uri).signature.outputs
    assert outputs.input_names() == SERVED.split()


def test_a_version_that_passed_a_gate_has_thirteen_tags(certified):
    scrib_mlflow.gate("models:/base-scrib/1")
    found = mlflow.MlflowClient().get_model_version("base-scrib", "1").tags
    assert sorted(found) == sorted([*TAGS.split(), *GATE_TAGS.split()])
    assert len(found) <= 13


def test_tags_metrics_and_artifacts_of_a_monitor_are_those_promised(certified, real_page):
    rows = draw_mixture(400, seed=3)
    done = scrib_mlflow.monitor("models:/base-scrib/1", rows, label="label")
    client = mlflow.MlflowClient()
    version = client.get_model_version("base-scrib", "1")
    assert sorted(version.tags) == sorted([*TAGS.split(), *MONITOR_TAGS.split()])
    found = mlflow.get_run(done.monitor_run_id).data.metrics
    of_risk = ["evidence_risk", "risk", "risk_lower", "risk_upper"]
    by_class = [f"{name}/{each}" for name in of_risk for each in CLASSES]
    of_asked = ("evidence_candidates/", "candidate_coverage/")  # of classes that abstain
    assert sorted(n for n in found if not n.startswith(of_asked)) == sorted(
        [*MONITOR_METRICS.split(), *by_class]
    )
    model_id = mlflow.models.get_model_info("models:/base-scrib/1").model_id
    of_model = client.get_logged_model(model_id).metrics
    assert {each.key for each in of_model} >= {*found}
    listed = [*client.list_artifacts(done.monitor_run_id)]
    assert [item.path for item in listed] == ["monitor.json", "report.html", "states"]
    batch = [*client.list_artifacts(done.run_id), *client.list_artifacts(done.run_id, "figures")]
    assert {item.path for item in batch} >= {"monitor.json", "report.html", "figures/rates.png"}


def test_metrics_of_a_calibration_are_those_promised(certified):
    version = mlflow.MlflowClient().get_model_version("base-scrib", "1")
    found = mlflow.get_run(version.tags["scrib.run_id"]).data.metrics
    by_class = [f"{name}/{each}" for name in CLASS_METRICS.split() for each in CLASSES]
    assert sorted(found) == sorted([*METRICS.split(), *by_class])
    assert len(METRICS.split()) + 5 * len(CLASS_METRICS.split()) <= 47  # of five classes


def test_artifacts_of_a_calibration_are_those_promised(calibrated):
    client = mlflow.MlflowClient()
    found = [*client.list_artifacts(calibrated.run_id)]
    found += client.list_artifacts(calibrated.run_id, "figures")
    assert sorted(item.path for item in found if not item.is_dir) == ARTIFACTS.split()


def test_the_json_of_a_set_classifier_is_that_promised(calibrated):
    found = json.loads(scrib_mlflow.to_json(calibrated.classifier))
    assert list(found) == ["schema_version", "type", *FIELDS["SetClassifier"].split()]
    assert found["schema_version"] == 8
    assert list(found["scores"]) == [
        "call",
        "key",
        "columns",
        "single",
        "transform",
        "one_column",
        "categorical",
    ]
    assert list(found["base"]) == ["uri", "name", "version", "model_id"]
    assert list(found["gap"]) == [
        *("abstention_rate", "bound", "bound_at_risks", "n_rows", "error_weight", "wrong_rate"),
    ]
    assert list(found["fit_data"]) == ["source", "digest", "n_rows", "n_used"]


def test_the_json_of_a_frontier_is_that_promised():
    scores, labels = draw_scores(100)
    found = draw_frontier(scores, labels, 0.3, certify_rows=200, points=5)
    fields = json.loads(scrib_mlflow.to_json(found))
    assert list(fields) == ["schema_version", "type", *FIELDS["TargetFrontier"].split()]
    assert fields["type"] == "target_frontier"
    point = fields["points"][0]
    assert list(point) == [
        *("swept", "target", "loss", "fitted", "held_out", "silent"),
    ]
    part = """
        n n_certain n_wrong abstention_rate abstention_band empty_rate overall_risk
        overall_risk_band by_class
    """
    assert list(point["held_out"]) == list(point["fitted"]) == part.split()
    rates = "n n_certain n_wrong abstention_rate abstention_band risk risk_band"
    assert list(point["held_out"]["by_class"]["0"]) == rates.split()
    able = fields["certifiable"][0]
    assert list(able) == ["target", "chance", "abstention_rate"]


def test_json_keys_are_those_promised():
    scores, labels = draw_scores(100)
    fit = scrib_mlflow.fit_thresholds(scores, labels, effort=0.1)
    keys = list(json.loads(scrib_mlflow.to_json(fit)))
    assert keys == ["schema_version", "type", *FIELDS["Fit"].split()]
    assert json.loads(scrib_mlflow.to_json(fit))["rule"]["kind"] == "thresholds"


def test_the_json_of_an_optimal_rule_is_that_promised():
    scores, labels = draw_scores(200)
    fit = scrib_mlflow.fit_optimal(scores, labels, 0.3)
    found = json.loads(scrib_mlflow.to_json(fit.rule))
    assert list(found) == ["schema_version", "type", *FIELDS["OptimalRule"].split()]
    assert found["kind"] == "optimal"
    assert list(found["recalibration"]) == ["slopes", "offsets", "of", "least_score"]
