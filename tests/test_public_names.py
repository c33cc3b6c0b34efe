"""Public names are a promise: a change here is a change for users."""

import dataclasses
import inspect
import json

import scrib_mlflow
from scrib_mlflow.synthetic import draw_scores

NAMES = [
    "ClassReport",
    "ConstraintFit",
    "Fit",
    "ScribError",
    "SelectiveRule",
    "SetReport",
    "ThresholdRule",
    "TopRule",
    "evaluate_sets",
    "fit_label",
    "fit_sgr",
    "fit_shared_threshold",
    "fit_thresholds",
    "fit_top1",
    "from_json",
    "predict_sets",
    "to_json",
]
PARAMETERS = {
    "fit_thresholds": """
        scores labels risk_targets classes overall_target risk_groups miscoverage_targets
        max_class_abstention waive penalty two_sided_penalty chance_weight size_weight empty_weight
        threshold_groups sample_weight confidence certify_rows allow_never initial seed effort
        threads
    """,
    "predict_sets": "scores rule trust",
    "evaluate_sets": "scores labels rule confidence classes sample_weight trust",
    "fit_sgr": "scores labels overall_target delta trust classes",
    "fit_label": "scores labels miscoverage_targets conformal classes waive",
    "fit_top1": "scores labels risk_targets classes overall_target waive",
    "fit_shared_threshold": "scores labels options",
}
FIELDS = {
    "Fit": """
        method rule classes loss constraints n_rows start_losses abstention_bound seed
    """,
    "ConstraintFit": "name kind classes target rate excess",
    "SetReport": """
        classes n n_certain n_wrong abstention_rate chance_ambiguity size_ambiguity empty_rate
        overall_risk overall_risk_upper confidence by_class
    """,
    "ClassReport": """
        n n_certain n_wrong risk risk_upper risk_upper_kl miscoverage abstention_rate
    """,
    "ThresholdRule": "thresholds kind",
    "SelectiveRule": "threshold on kind",
    "TopRule": "kind",
}
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


def test_json_keys_are_those_promised():
    scores, labels = draw_scores(100)
    fit = scrib_mlflow.fit_thresholds(scores, labels, effort=0.1)
    keys = list(json.loads(scrib_mlflow.to_json(fit)))
    assert keys == ["schema_version", "type", *FIELDS["Fit"].split()]
    assert json.loads(scrib_mlflow.to_json(fit))["rule"]["kind"] == "thresholds"
