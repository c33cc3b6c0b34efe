"""Arrays in, a certificate out: the split, the path and the test of it in one call."""

import dataclasses

import numpy as np
import pytest
from scipy import special

import scrib_mlflow
from scrib_mlflow.core.certificate import certified, split_rows
from scrib_mlflow.core.certificate.path import PathTest
from scrib_mlflow.core.inputs import hash_names
from scrib_mlflow.core.rules import OptimalRule, place_candidates, weighted_rank
from scrib_mlflow.errors import (
    InvalidDataError,
    InvalidLabelsError,
    InvalidTargetsError,
    InvalidWeightsError,
    ScribError,
)
from scrib_mlflow.synthetic import draw_scores

NAMES = ("wake", "light", "deep")


def draw(n, seed=0):
    """Return scores of three classes that are the true probabilities, and labels."""
    return draw_scores(n, noise=1.0, signal=(5.0, 4.0, 4.0), seed=seed)


SCORES, LABELS = draw(3_000)


@pytest.fixture(scope="module")
def fitted():
    return scrib_mlflow.fit_certified(SCORES, LABELS, 0.15, classes=NAMES)


def certify_rows(scores, labels, keys=None, fraction=0.7, seed=0):
    """Return which rows certify."""
    hashes = certified.hash_scores(scores)
    if keys is not None:
        hashes = hash_names("keys", keys, len(scores))
    return split_rows(hashes, labels.astype(np.int32), fraction, seed)


def test_easy_targets_are_certified_on_the_rows_held_out(fitted):
    assert fitted.certificate.passed
    assert fitted.chosen == len([p for p in fitted.p_values if p <= 0.05]) - 1
    plain = dataclasses.replace(
        fitted.path.steps[fitted.chosen].rule, recalibration=fitted.path.recalibration
    )
    held = certify_rows(SCORES, LABELS)
    assert fitted.rule == place_candidates(plain, SCORES[held], LABELS[held], 0.95)
    assert fitted.predicted_power == fitted.path.steps[0].power
    assert (fitted.fit_rows, fitted.certify_rows) == (900, 2_100)
    assert fitted.classes == NAMES
    held = certify_rows(SCORES, LABELS)
    sets = scrib_mlflow.predict_sets(SCORES[held], fitted.rule)
    certain = sets.sum(axis=1) == 1
    assert fitted.abstention_rate == pytest.approx(1 - certain.mean())
    wrong = certain & ~sets[np.arange(len(sets)), LABELS[held]]
    for j, claim in enumerate(fitted.certificate.claims):
        of = LABELS[held] == j
        counts = claim.n, claim.n_certain, claim.n_wrong
        assert counts == (of.sum(), (of & certain).sum(), (of & wrong).sum())
        assert claim.n_tested <= claim.n_certain


def test_labels_of_certify_rows_decide_nothing_but_the_test():
    groups = np.arange(len(LABELS))  # which split without regard to labels
    hashes = hash_names("groups", groups, len(groups))
    held = np.flatnonzero(split_rows(hashes, LABELS.astype(np.int32), 0.7, 0, hashes))
    other = LABELS.copy()
    other[held] = LABELS[np.random.default_rng(0).permutation(held)]
    found, again = (
        scrib_mlflow.fit_certified(SCORES, labels, 0.15, groups=groups)
        for labels in (LABELS, other)
    )
    assert again.path == found.path
    assert found.certificate.passed
    assert not again.certificate.passed
    assert again.chosen is None
    assert again.rule not in [step.rule for step in again.path.steps]  # a plain fit
    assert again.rule == scrib_mlflow.fit_certified(SCORES, other, 0.15, groups=groups).rule
    assert not again.certificate.passed
    assert "certified" not in {claim.status for claim in again.certificate.claims}


def test_the_order_of_rows_does_not_matter(fitted):
    order = np.random.default_rng(1).permutation(len(LABELS))
    again = scrib_mlflow.fit_certified(SCORES[order], LABELS[order], 0.15, classes=NAMES)
    assert again == fitted


def test_keys_decide_the_split_and_text_is_what_counts():
    numbers = np.arange(len(LABELS))
    options = {"risk_targets": 0.15, "seed": 3}
    a = scrib_mlflow.fit_certified(SCORES, LABELS, keys=numbers, **options)
    b = scrib_mlflow.fit_certified(SCORES, LABELS, keys=numbers.astype(str), **options)
    c = scrib_mlflow.fit_certified(SCORES, LABELS, **options)
    assert a == b
    assert a.path != c.path
    held = certify_rows(SCORES, LABELS, numbers, seed=3)
    assert a.certify_rows == held.sum()
    with pytest.raises(InvalidDataError, match=r"keys\[1\] is missing"):
        scrib_mlflow.fit_certified(SCORES[:3], LABELS[:3], keys=["a", None, "b"])
    with pytest.raises(InvalidDataError, match="keys must be one for each of the 3 rows"):
        scrib_mlflow.fit_certified(SCORES[:3], LABELS[:3], keys=["a", "b"])


def test_json_is_small_and_read_back_bit_for_bit(fitted):
    text = scrib_mlflow.to_json(fitted)
    assert scrib_mlflow.from_json(text) == fitted
    assert len(text) < 30_000
    assert '"type": "certified_fit"' in text


def test_an_optimal_rule_gets_candidates_from_the_certify_rows():
    found = scrib_mlflow.fit_certified(SCORES, LABELS, 0.15, rule="optimal", confidence=0.9)
    assert found.certificate.passed
    assert found.certificate.confidence == pytest.approx(0.9)
    held = certify_rows(SCORES, LABELS)
    plain = found.path.steps[found.chosen].rule
    assert found.rule == place_candidates(plain, SCORES[held], LABELS[held], 0.9)
    assert isinstance(found.rule, OptimalRule)


def test_groups_stay_whole_and_the_cap_is_typical_of_the_fit_rows():
    random = np.random.default_rng(5)
    groups = np.array([f"p{g}" for g in random.integers(0, 300, 6_000)])
    scores, labels = draw(6_000, seed=5)
    found = scrib_mlflow.fit_certified(scores, labels, 0.15, groups=groups)
    certificate = found.certificate
    assert certificate.passed
    assert certificate.n_groups == 210
    assert certificate.group_test == "approximate"
    hashes = hash_names("groups", groups, len(groups))
    held = split_rows(hashes, labels.astype(np.int32), 0.7, 0, hashes)
    rows = [np.bincount(np.unique(groups[~held & (labels == j)], return_inverse=True)[1])
            for j in range(3)]  # fmt: skip
    assert certificate.group_cap == int(min(np.median(each) for each in rows))
    assert len({*groups[held]} & {*groups[~held]}) == 0
    exact = scrib_mlflow.fit_certified(
        scores, labels, 0.3, groups=groups, group_test="exact", group_cap=5
    )
    assert (exact.certificate.group_test, exact.certificate.group_cap) == ("exact", 5)
    declared = scrib_mlflow.fit_certified(
        scores, labels, 0.3, groups=groups, group_test="exact", max_group_rows=60
    )
    assert declared.certificate.max_group_rows == 60
    assert declared.certificate.group_cap is None


def test_weights_of_0_and_1_leave_rows_out():
    kept = np.random.default_rng(2).random(len(LABELS)) < 0.8
    groups = np.arange(len(LABELS)) // 10
    for options in ({"keys": groups}, {"groups": groups}):
        some = {name: values[kept] for name, values in options.items()}
        a = scrib_mlflow.fit_certified(SCORES[kept], LABELS[kept], 0.2, **some)
        b = scrib_mlflow.fit_certified(
            SCORES, LABELS, 0.2, sample_weight=kept.astype(float), **options
        )
        assert a == b


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_weighted_rows_are_tested_by_bets(rule):
    random = np.random.default_rng(3)
    weights = random.choice([0.5, 1.0, 2.0], len(LABELS))
    found = scrib_mlflow.fit_certified(
        SCORES, LABELS, 0.25, rule=rule, sample_weight=weights, max_weight=2.0
    )
    assert found.certificate.passed
    claim = found.certificate.claims[0]
    assert claim.n_tested is None
    assert np.isnan(claim.risk_upper)
    held = certify_rows(SCORES, LABELS)
    certificate = scrib_mlflow.certify_sets(
        SCORES[held],
        LABELS[held],
        found.rule,
        0.25,
        sample_weight=weights[held],
        max_weight=2.0,
    )
    assert certificate.p_value == pytest.approx(found.certificate.p_value)
    sets = scrib_mlflow.predict_sets(SCORES[held], found.rule)
    certain = sets.sum(axis=1) == 1
    rate = 1 - np.average(certain, weights=weights[held])
    assert found.abstention_rate == pytest.approx(rate)


def test_weights_that_no_certificate_covers_are_refused():
    weights = np.random.default_rng(4).choice([0.5, 1.0], len(LABELS))
    with pytest.raises(InvalidWeightsError, match="Pass max_weight"):
        scrib_mlflow.fit_certified(SCORES, LABELS, sample_weight=weights)
    with pytest.raises(InvalidWeightsError, match=r"more than max_weight = 0\.8"):
        scrib_mlflow.fit_certified(SCORES, LABELS, sample_weight=weights, max_weight=0.8)
    with pytest.raises(InvalidWeightsError, match="groups and weights"):
        scrib_mlflow.fit_certified(
            SCORES, LABELS, sample_weight=weights, max_weight=1, groups=LABELS
        )


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.97])
def test_candidates_of_weighted_rows_are_those_of_repeated_rows_or_more(coverage):
    random = np.random.default_rng(6)
    shares = random.choice([0.25, 1.0], 200)
    m = weighted_rank(shares, coverage)
    below = shares[: m - 1].sum()
    limit = (1 - coverage) * (shares.sum() + 1)
    assert below + 1 <= limit + 1e-9
    assert below + shares[m - 1] + 1 > limit
    ones = np.ones(200)
    assert weighted_rank(ones, coverage) == int(np.floor((1 - coverage) * 201 + 1e-9))
    assert weighted_rank(ones[:3], coverage) == 0


def test_path_scores_draw_the_path_and_must_be_other_rows(fitted):
    further, _ = draw(2_000, seed=9)
    found = scrib_mlflow.fit_certified(SCORES, LABELS, 0.15, path_scores=further)
    assert (found.fit_rows, found.certify_rows) == (300, 2_700)
    assert found.path.n_rows == 2_000
    with pytest.raises(InvalidDataError, match="stand in path_scores as well"):
        scrib_mlflow.fit_certified(SCORES, LABELS, 0.15, path_scores=SCORES)


def test_several_targets_become_claims():
    found = scrib_mlflow.fit_certified(
        SCORES,
        LABELS,
        {"wake": 0.2, "default": 0.15},
        classes=NAMES,
        overall_target=0.15,
        risk_groups={"asleep": (["light", "deep"], 0.15)},
        waive=["deep"],
    )
    targets = {claim.name: claim.target for claim in found.certificate.claims}
    assert targets == {"wake": 0.2, "light": 0.15, "overall": 0.15, "asleep": 0.15}
    assert found.certificate.waived == ("deep",)


def test_what_cannot_be_is_said():
    with pytest.raises(InvalidTargetsError, match="no target covers"):
        scrib_mlflow.fit_certified(SCORES, LABELS, None)
    with pytest.raises(ScribError, match="confidence must lie between"):
        scrib_mlflow.fit_certified(SCORES, LABELS, confidence=0.4)
    with pytest.raises(InvalidLabelsError, match="has 1 row"):
        scrib_mlflow.fit_certified(SCORES[:4], [0, 0, 0, 1])
    with pytest.raises(ScribError, match="certify_fraction"):
        scrib_mlflow.fit_certified(SCORES, LABELS, certify_fraction=1.0)
    with pytest.raises(ScribError, match="seed is"):
        scrib_mlflow.fit_certified(SCORES, LABELS, seed=-1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rows", "groups", "weights"])
def test_rules_above_a_target_are_certified_at_most_as_often_as_allowed(how):
    """Scores that promise twice what they keep, where a rule that passes may well be above."""
    false = passed = 0
    draws, target = 300, 0.1
    fresh, truth, _, fresh_weights = _overconfident(200_000, 10_000)
    for seed in range(draws):
        scores, labels, groups, weights = _overconfident(1_200, seed)
        options = {"groups": {"groups": groups, "group_test": "exact"}, "rows": {}}.get(
            how, {"sample_weight": weights, "max_weight": 1.0}
        )
        found = scrib_mlflow.fit_certified(scores, labels, target, seed=seed, **options)
        if found.certificate.passed:
            passed += 1
            given = fresh_weights if how == "weights" else None
            report = scrib_mlflow.evaluate_sets(fresh, truth, found.rule, sample_weight=given)
            false += max(each.risk for each in report.by_class.values()) > target
    assert passed > draws / 20
    assert false <= 0.05 * draws + 2 * np.sqrt(0.05 * 0.95 * draws)


def _overconfident(n, seed):
    random = np.random.default_rng([11, seed])
    logits = random.normal(0, 2.0, (n, 2))
    true = special.softmax(logits, axis=1)
    labels = (random.random(n) < true[:, 1]).astype(int)
    weights = np.where(np.abs(logits[:, 0] - logits[:, 1]) > 2, 0.6, 1.0)
    return special.softmax(2 * logits, axis=1), labels, np.arange(n) // 2, weights


def test_fields_are_numbers_and_tuples_only(fitted):
    for field in dataclasses.fields(fitted):
        assert not isinstance(getattr(fitted, field.name), np.ndarray | np.generic)


def test_a_plain_fit_is_never_certified_even_where_its_rows_would_pass(fitted):
    """It is deployed because the path failed; its own rows were not to test it."""
    outcome = PathTest((0.2,), None, fitted.certificate)
    plain = fitted.path.steps[0].rule
    assert fitted.certificate.passed
    rule, found = certified.deploy(
        fitted.path, outcome, lambda: plain, lambda _: None, lambda _: fitted.certificate
    )
    assert rule == plain
    assert not found.passed
    assert {claim.status for claim in found.claims} == {"passes alone"}


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_answers_are_those_of_the_model_unless_any_class_may_be_answered(rule):
    scores, labels = draw_scores(6_000, noise=3**0.5, seed=2)
    changed = {}
    for options in ({}, {"answers": "any"}):
        fitted = scrib_mlflow.fit_certified(scores, labels, 0.3, rule=rule, threads=1, **options)
        assert fitted.certificate.passed
        sets = scrib_mlflow.predict_sets(scores, fitted.rule)
        certain = sets.sum(axis=1) == 1
        other = sets[certain].argmax(axis=1) != scores[certain].argmax(axis=1)
        changed[fitted.rule.answers] = other.any()
    assert changed == {"top": False, "any": True}
    hopeless = scrib_mlflow.fit_certified(scores[:300], labels[:300], 0.01, rule=rule)
    assert hopeless.chosen is None
    assert hopeless.rule.answers == "top"  # a plain fit as well
