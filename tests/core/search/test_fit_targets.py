"""Every kind of target, weight and threshold group, each against the plain loss."""

import numpy as np
import pytest

from scrib_mlflow import evaluate_sets, fit_label, fit_thresholds
from scrib_mlflow.core.search import fit
from scrib_mlflow.errors import SearchMismatchError
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_loss

SCORES, LABELS = draw_scores(700, seed=3)
CLASSES = ("W", "N1", "N2", "N3", "REM")
SINGLE = [("risk", (j,), 0.1) for j in range(5)]
EVERYONE = (0, 1, 2, 3, 4)
CASES = {
    "one number": ({}, {"groups": SINGLE}),
    "by name": (
        {"risk_targets": {"N1": 0.2, "default": 0.05}},
        {"groups": [("risk", (j,), 0.2 if j == 1 else 0.05) for j in range(5)]},
    ),
    "overall alone": (
        {"risk_targets": None, "overall_target": 0.08},
        {"groups": [("risk", EVERYONE, 0.08)]},
    ),
    "class and overall": (
        {"risk_targets": {"N1": 0.1}, "overall_target": 0.05},
        {"groups": [("risk", (1,), 0.1), ("risk", EVERYONE, 0.05)]},
    ),
    "overlapping groups": (
        {
            "risk_targets": None,
            "risk_groups": {"light": (("N1", "N2"), 0.1), "all but W": (CLASSES[1:], 0.08)},
            "waive": ["W"],
        },
        {"groups": [("risk", (1, 2), 0.1), ("risk", (1, 2, 3, 4), 0.08)]},
    ),
    "waived": ({"waive": ["N1"]}, {"groups": [SINGLE[j] for j in (0, 2, 3, 4)]}),
    "soft penalty": ({"penalty": 5.0}, {"groups": SINGLE, "penalty": 5.0}),
    "two-sided": ({"two_sided_penalty": 2.0}, {"groups": SINGLE, "two_sided": 2.0}),
    "costly empty sets": ({"empty_weight": 1.5}, {"groups": SINGLE, "empty": 1.5}),
    "set sizes": ({"size_weight": 0.3}, {"groups": SINGLE, "size": 0.3}),
    "costly errors": ({"error_weight": 3.0}, {"groups": SINGLE, "error": 3.0}),
    "costly errors alone": (
        {"risk_targets": None, "waive": CLASSES, "error_weight": 3.0},
        {"groups": [], "error": 3.0},
    ),
    "abstention cap": (
        {"max_class_abstention": {"N1": 0.3}},
        {"groups": [*SINGLE, ("abstention", (1,), 0.3)]},
    ),
    "mis-coverage": (
        {"miscoverage_targets": 0.07},
        {"groups": [("miscoverage", (j,), 0.07) for j in range(5)]},
    ),
    "margin": ({"confidence": 0.9}, {"groups": SINGLE, "margin": (0.9, 1.0)}),
    "margin for more rows": (
        {"confidence": 0.95, "certify_rows": 1_750},
        {"groups": SINGLE, "margin": (0.95, 2.5)},
    ),
    "penalties by name": (
        {"overall_target": 0.05, "penalty": {"N1": 3.0, "overall": 7.0, "default": 50.0}},
        {
            "groups": [*SINGLE, ("risk", EVERYONE, 0.05)],
            "penalty": [50.0, 3.0, 50.0, 50.0, 50.0, 7.0],
        },
    ),
    "two-sided by name": (
        {"two_sided_penalty": {"N1": 4.0, "default": 1.0}, "penalty": 20.0},
        {"groups": SINGLE, "penalty": 20.0, "two_sided": [1.0, 4.0, 1.0, 1.0, 1.0]},
    ),
    "mis-coverage with a margin": (
        {"miscoverage_targets": 0.1, "confidence": 0.9},
        {"groups": [("miscoverage", (j,), 0.1) for j in range(5)], "margin": (0.9, 1.0)},
    ),
    "one threshold": ({"threshold_groups": "all"}, {"groups": SINGLE}),
    "some share a threshold": ({"threshold_groups": ["N1", "W"]}, {"groups": SINGLE}),
    "much at once": (
        {
            "risk_targets": {"N1": 0.3},
            "overall_target": 0.1,
            "size_weight": 0.1,
            "error_weight": 0.5,
            "max_class_abstention": 0.7,
            "threshold_groups": ["N1"],
            "confidence": 0.8,
        },
        {
            "groups": [
                ("risk", (1,), 0.3),
                ("risk", EVERYONE, 0.1),
                *(("abstention", (j,), 0.7) for j in range(5)),
            ],
            "size": 0.1,
            "error": 0.5,
            "margin": (0.8, 1.0),
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("decimals", [17, 1], ids=["distinct", "tied"])
def test_loss_is_that_of_the_formula(case, decimals):
    options, oracle = CASES[case]
    scores = np.round(SCORES, decimals)
    fit = fit_thresholds(scores, np.array(CLASSES)[LABELS], classes=CLASSES, **options)
    loss = naive_loss(scores, LABELS, fit.thresholds, **oracle)
    assert fit.loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    shared = [t for name, t in zip(CLASSES, fit.thresholds, strict=True) if name not in ("N1", "W")]
    if "threshold_groups" in options and "W" in options["threshold_groups"]:
        assert len(set(shared)) == 1


@pytest.mark.parametrize("case", ["one number", "class and overall", "set sizes", "mis-coverage"])
def test_weights_count_like_repeated_rows(case):
    options, _ = CASES[case]
    weights = np.random.default_rng(0).integers(0, 4, len(SCORES))
    repeated = np.repeat(np.arange(len(SCORES)), weights)
    names = np.array(CLASSES)[LABELS]
    weighted = fit_thresholds(SCORES, names, classes=CLASSES, sample_weight=weights, **options)
    same = fit_thresholds(SCORES[repeated], names[repeated], classes=CLASSES, **options)
    report = evaluate_sets(SCORES[repeated], names[repeated], weighted)
    again = evaluate_sets(SCORES, names, weighted, sample_weight=weights)
    assert again.overall_risk == pytest.approx(report.overall_risk)
    assert again.size_ambiguity == pytest.approx(report.size_ambiguity)
    assert weighted.loss == pytest.approx(same.loss, rel=0.02)


SOFT = [
    "one number",
    "overall alone",
    "set sizes",
    "costly errors",
    "abstention cap",
    "margin for more rows",
]


@pytest.mark.parametrize("case", SOFT)
@pytest.mark.parametrize("labels", [SCORES, LABELS], ids=["soft", "hard"])
def test_weighted_rows_give_the_loss_of_the_formula(case, labels):
    options, oracle = CASES[case]
    weights = np.random.default_rng(1).random(len(SCORES))
    fit = fit_thresholds(SCORES, labels, classes=CLASSES, sample_weight=weights, **options)
    if "margin" in oracle:
        oracle = {**oracle, "margin": (0.95, 1_750 / weights.sum())}
    loss = naive_loss(SCORES, labels, fit.thresholds, weights=weights, **oracle)
    assert fit.loss == pytest.approx(loss, rel=1e-9)


def test_soft_labels_on_samples_and_windows_give_the_loss_of_the_formula():
    scores, _ = draw_scores(6_000, seed=8)
    fit = fit_thresholds(scores, scores, effort=0.2)
    loss = naive_loss(scores, scores, fit.thresholds, groups=SINGLE)
    assert fit.loss == pytest.approx(loss, rel=1e-9)
    abstention = 1 - evaluate_sets(scores, scores, fit).n_certain / 6_000
    assert abstention < 0.4


def test_rates_are_those_of_the_report():
    options = {"max_class_abstention": 0.3, "overall_target": 0.05}
    fit = fit_thresholds(SCORES, LABELS, classes=CLASSES, **options)
    report = evaluate_sets(SCORES, LABELS, fit)
    for constraint in fit.constraints:
        if constraint.kind == "abstention":
            wanted = report.by_class[constraint.name].abstention_rate
        elif constraint.name == "overall":
            wanted = report.overall_risk
        else:
            wanted = report.by_class[constraint.name].risk
        assert constraint.rate == pytest.approx(wanted, abs=1e-12)
        assert constraint.excess == pytest.approx(max(wanted - constraint.target, 0), abs=1e-12)
    covered = fit_thresholds(SCORES, LABELS, classes=CLASSES, miscoverage_targets=0.2)
    report = evaluate_sets(SCORES, LABELS, covered)
    for constraint in covered.constraints:
        assert constraint.rate == pytest.approx(report.by_class[constraint.name].miscoverage)


def test_a_rate_at_its_target_meets_it():
    labels = np.repeat([0, 1], [100, 100])
    scores = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    scores[:29] = [0.1, 0.9]
    fit = fit_thresholds(scores, labels, 0.29)
    assert fit.constraints[0].rate == 0.29
    assert fit.constraints[0].met
    assert fit.loss < 1e-12


def test_a_search_that_counts_other_rows_than_are_served_is_caught(monkeypatch):
    def elsewhere(data, thresholds):
        return data.by_class(thresholds) + 0.05

    monkeypatch.setattr(fit, "centre", elsewhere)
    for weights in (None, SCORES[:, 0] + 0.5):
        with pytest.raises(SearchMismatchError, match="please report this"):
            fit_thresholds(SCORES, LABELS, effort=0.1, sample_weight=weights)


def test_soft_labels_that_are_certain_are_labels():
    hard = fit_thresholds(SCORES, LABELS)
    soft = fit_thresholds(SCORES, np.eye(5)[LABELS])
    assert soft.loss == pytest.approx(hard.loss, rel=0.01)


def test_miscoverage_with_sizes_is_label():
    for seed in range(5):
        scores, labels = draw_scores(400, seed=seed)
        scores = np.round(scores, 2 if seed % 2 else 17)
        fit = fit_thresholds(
            scores,
            labels,
            miscoverage_targets=0.1,
            penalty=1e9,
            chance_weight=0.0,
            size_weight=1.0,
            empty_weight=0.0,
        )
        label = fit_label(scores, labels, 0.1)
        assert fit.thresholds == label.thresholds
        assert fit.loss == pytest.approx(label.loss)


def test_a_class_that_is_never_certain_is_charged_and_undefined():
    scores = np.array([[0.6, 0.6, 0.1]] * 30 + [[0.9, 0.1, 0.2]] * 30 + [[0.1, 0.2, 0.9]] * 30)
    labels = np.repeat([1, 0, 2], 30)
    fit = fit_thresholds(scores, labels, penalty=100.0, threshold_groups="all")
    report = evaluate_sets(scores, labels, fit)
    assert report.by_class["1"].n_certain == 0
    assert np.isnan(report.by_class["1"].risk)
    assert report.by_class["1"].risk_upper == 1.0
    silent = fit.constraints[1]
    assert np.isnan(silent.rate)
    assert silent.excess == pytest.approx(0.9)
    assert not silent.met


def test_all_rows_certain_where_classes_are_separated():
    scores = np.eye(4)[np.arange(400) % 4] * 0.9 + 0.02
    fit = fit_thresholds(scores, np.arange(400) % 4)
    assert fit.loss == 0.0
    assert all(constraint.met and constraint.rate == 0 for constraint in fit.constraints)


def test_logits_are_as_good_as_probabilities():
    logits = np.log(SCORES)
    fit = fit_thresholds(logits, LABELS)
    assert np.isnan(fit.abstention_bound)
    assert fit.loss == pytest.approx(fit_thresholds(SCORES, LABELS).loss, rel=0.02)


def test_a_start_given_is_never_lost():
    for n in (len(SCORES), 9_000):
        scores, labels = draw_scores(n, seed=3)
        good = fit_thresholds(scores, labels, effort=2, seed=5)
        fit = fit_thresholds(scores, labels, effort=0.1, initial=good.thresholds)
        assert fit.loss <= good.loss + 1e-12


def test_never_is_a_threshold_only_where_allowed():
    scores = np.array([[0.9, 0.5], [0.8, 0.5], [0.7, 0.5], [0.6, 0.5]] * 10)
    labels = np.array([0, 0, 0, 1] * 10)
    options = {"waive": ["1"], "risk_targets": 0.3}
    usual = fit_thresholds(scores, labels, **options)
    allowed = fit_thresholds(scores, labels, allow_never=True, **options)
    assert np.isfinite(max(usual.thresholds)) or max(usual.thresholds) == -np.inf
    assert allowed.thresholds[1] == np.inf
    assert allowed.loss < usual.loss
