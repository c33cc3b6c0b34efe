"""Methods side by side, against the same numbers counted by hand."""

import json

import numpy as np
import pytest

from scrib_mlflow import (
    ScribError,
    fit_label,
    fit_optimal,
    fit_sgr,
    fit_shared_threshold,
    fit_thresholds,
    fit_top1,
    from_json,
    predict_sets,
    to_json,
)
from scrib_mlflow.core.inputs import check_rows
from scrib_mlflow.core.studies import compare, compare_rules, draw_curves
from scrib_mlflow.synthetic import draw_scores

SCORES, LABELS = draw_scores(600, seed=4)
CLASSES = ("a", "b", "c", "d", "e")
TARGETS = {"b": 0.2, "default": 0.1}
BY_CLASS = np.array([0.1, 0.2, 0.1, 0.1, 0.1])


@pytest.fixture(scope="module")
def split():
    """A comparison of one repeat, and which rows it fitted."""
    halves = []
    halve = compare.halve

    def watched(*given):
        halves.append(halve(*given))
        return halves[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "halve", watched)
        found = compare_rules(SCORES, LABELS, TARGETS, classes=CLASSES, repeats=1)
    return found, halves[0]


def test_each_method_is_fitted_on_one_half_and_measured_on_the_other(split):
    found, fitted = split
    mean_target = float((BY_CLASS * np.bincount(LABELS)).sum() / len(LABELS))
    assert found.sgr_target == pytest.approx(mean_target)
    rows = SCORES[fitted], LABELS[fitted]
    fits = {
        "SCRIB": fit_thresholds(*rows, TARGETS, classes=CLASSES),
        "optimal": fit_optimal(*rows, TARGETS, classes=CLASSES),
        "SCRIB-": fit_shared_threshold(*rows, risk_targets=TARGETS, classes=CLASSES),
        "SGR": fit_sgr(*rows, mean_target),
        "LABEL": fit_label(*rows, TARGETS, classes=CLASSES),
        "top-1": fit_top1(*rows),
    }
    assert found.methods == tuple(fits)
    assert [trial.method for trial in found.trials] == [*fits]
    labels = LABELS[~fitted]
    for trial, fit in zip(found.trials, fits.values(), strict=True):
        sets = predict_sets(SCORES[~fitted], fit)
        sizes = sets.sum(axis=1)
        certain = sizes == 1
        wrong = certain & ~sets[np.arange(len(labels)), labels]
        assert trial.abstention_rate == pytest.approx(1 - certain.mean())
        assert trial.size_ambiguity == pytest.approx(sizes.mean())
        assert trial.empty_rate == pytest.approx((sizes == 0).mean())
        assert trial.overall_risk == pytest.approx(wrong.sum() / certain.sum())
        risks = np.array([wrong[labels == j].sum() / certain[labels == j].sum() for j in range(5)])
        excess = np.maximum(risks - BY_CLASS, 0)
        assert [*trial.risk.values()] == pytest.approx(risks.tolist())
        assert [*trial.excess.values()] == pytest.approx(excess.tolist())
        assert trial.mean_excess == pytest.approx(excess.mean())
        assert trial.worst_excess == pytest.approx(excess.max())
        assert trial.n_silent == 0
        assert trial.fit_seconds_ratio > 0


def test_halves_are_halves_of_each_class(split):
    _, fitted = split
    sizes, of_fitted = np.bincount(LABELS), np.bincount(LABELS[fitted])
    assert of_fitted.tolist() == ((sizes + 1) // 2).tolist()


def test_a_silent_class_counts_as_no_excess_and_is_counted():
    found = compare_rules(SCORES, LABELS, 0.01, overall_target=0.001, repeats=1)
    (sgr,) = found.of("SGR")
    assert sgr.abstention_rate == 1
    assert (sgr.n_silent, sgr.mean_excess, sgr.worst_excess) == (5, 0, 0)
    assert np.isnan(sgr.overall_risk)
    assert np.isnan(found.means("SGR")["overall_risk"])
    assert found.sgr_target == 0.001


def test_waived_classes_have_no_excess_and_need_no_rows():
    some = LABELS != 1
    found = compare_rules(
        SCORES[some], LABELS[some], TARGETS, classes=CLASSES, waive="b", repeats=1
    )
    assert [*found.targets] == ["a", "c", "d", "e"]
    assert [*found.trials[0].excess] == ["a", "c", "d", "e"]
    assert found.sgr_target == pytest.approx(0.1)


def test_the_seed_says_what_comes_out_and_json_gives_it_back():
    one, two, other = (
        compare_rules(SCORES[:200], LABELS[:200], 0.3, repeats=2, seed=seed) for seed in (1, 1, 2)
    )
    assert one == two
    assert one != other
    assert one.trials[0] != one.trials[6]
    assert to_json(from_json(to_json(one))) == to_json(one)
    assert from_json(to_json(one)).trials[0] == one.trials[0]


def test_curves_are_drawn_of_the_first_splits_on_the_halves_of_their_trials(monkeypatch):
    halves = []
    halve = compare.halve
    monkeypatch.setattr(compare, "halve", lambda *given: halves.append(halve(*given)) or halves[-1])
    trust = {"score": SCORES.max(axis=1)}
    found = compare_rules(SCORES, LABELS, 0.2, trust=trust, repeats=2, curves=1)
    (drawn,) = found.curves
    assert [curve.method for curve in drawn] == [
        "SCRIB",
        "optimal",
        "SCRIB-",
        "SGR",
        "SGR on score",
    ]
    fitted = halves[0]
    rows = SCORES[fitted], LABELS[fitted], SCORES[~fitted], LABELS[~fitted]
    assert draw_curves(*rows, methods=["SGR"])[0] == drawn[3]
    assert found.curves_of("SGR") == (drawn[3],)
    means = found.means("SGR")
    assert (means["auc"], means["overall_rmse"]) == (drawn[3].auc, drawn[3].rmse)
    assert "auc" not in found.means("LABEL")
    assert to_json(from_json(to_json(found))) == to_json(found)
    assert from_json(to_json(found)).curves[0][0].method == "SCRIB"


def test_a_comparison_from_before_curves_is_still_read():
    fields = json.loads(to_json(compare_rules(SCORES[:200], LABELS[:200], 0.3, repeats=1)))
    del fields["curves"]
    for trial in fields["trials"]:
        del trial["risk"]
    found = from_json(json.dumps(fields))
    assert found.curves == ()
    assert found.trials[0].risk == {}


def test_scores_that_are_no_probabilities_leave_the_optimal_rule_out_and_say_why():
    found = compare_rules(np.log(SCORES), LABELS, repeats=1)
    assert "optimal" not in found.methods
    assert "no probabilities" in found.skipped["optimal"]


def test_a_column_of_trust_adds_an_sgr_that_ranks_by_it():
    right = (SCORES.argmax(axis=1) == LABELS).astype(float)
    trust = {"oracle": right, "score": SCORES.max(axis=1)}
    found = compare_rules(SCORES, LABELS, 0.1, trust=trust, repeats=1)
    assert found.methods[-2:] == ("SGR on oracle", "SGR on score")
    (oracle,), (score,), (plain,) = map(found.of, ("SGR on oracle", "SGR on score", "SGR"))
    assert oracle.overall_risk == 0
    assert oracle.abstention_rate < plain.abstention_rate
    assert (score.abstention_rate, score.excess) == (plain.abstention_rate, plain.excess)
    with pytest.raises(ScribError, match="trust must be 600 numbers"):
        compare_rules(SCORES, LABELS, trust={"short": right[:5]}, repeats=1)


def test_groups_stay_whole_and_each_class_is_in_both_halves(monkeypatch):
    groups = np.arange(600) // 20
    halves = []
    halve = compare.halve
    monkeypatch.setattr(compare, "halve", lambda *given: halves.append(halve(*given)) or halves[-1])
    found = compare_rules(SCORES, LABELS, 0.2, groups=groups, repeats=2)
    assert found.n_groups == 30
    for fitted in halves:
        shares = np.bincount(groups, fitted) / 20
        assert set(shares.tolist()) == {0.0, 1.0}
        assert shares.sum() == 15
        assert set(LABELS[fitted]) == set(LABELS[~fitted]) == set(range(5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"waive": CLASSES}, "every class is waived"),
        ({"repeats": 0}, "repeats is 0"),
        ({"groups": [1, 2]}, "groups must be one for each"),
        ({"groups": np.where(LABELS == 1, 0, np.arange(600))}, "class 'b' has 1 group among"),
        ({"risk_targets": {"a": 0.1}}, "no target covers class 'b'"),
        ({"labels": np.where(LABELS == 1, 0, LABELS)}, "class 'b' has 0 rows among"),
    ],
)
def test_what_cannot_be_compared_is_told_with_what_to_do(changed, message):
    given = {"scores": SCORES, "labels": LABELS, "classes": CLASSES, **changed}
    with pytest.raises(ScribError, match=message):
        compare_rules(**given)


def test_groups_that_cannot_be_halved_with_every_class_on_both_sides_are_told():
    pairs = [(0, 2), (0, 1), (1, 2)]  # of classes, a pair a group: two groups share one
    labels = np.array([pairs[i % 3][i % 2] for i in range(600)])
    with pytest.raises(ScribError, match="of 100 random splits of the 3 groups none has class"):
        compare_rules(SCORES[:, :3], labels, groups=np.arange(600) % 3, repeats=1)


def test_no_split_comes_twice_and_where_few_exist_all_are_taken():
    groups = np.arange(600) % 2
    found = compare_rules(SCORES, LABELS, 0.2, groups=groups, repeats=10, curves=1)
    assert (found.repeats, found.all_splits) == (2, True)
    assert {trial.repeat for trial in found.trials} == {0, 1}
    fewer = compare_rules(SCORES, LABELS, 0.2, groups=np.arange(600) % 4, repeats=5)
    assert (fewer.repeats, fewer.all_splits) == (5, False)
    rates = [trial.abstention_rate for trial in fewer.of("SCRIB")]
    assert len(set(rates)) > 1


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2, 2, 3, 3]])
def test_splits_are_listed_as_they_are_drawn(groups):
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    rows = check_rows(np.eye(2)[labels], labels)
    codes = None if groups is None else np.array(groups)
    random = np.random.default_rng(0)
    drawn = {compare.halve(rows, codes, [0, 1], random).tobytes() for _ in range(500)}
    listed = compare.list_splits(rows, codes, [0, 1], 100)
    assert {each.tobytes() for each in listed} == drawn
    assert len(listed) == len(drawn) == (36 if groups is None else 6)
    assert compare.list_splits(rows, codes, [0, 1], len(drawn) - 1) is None
