"""Targets as users give them."""

import pytest

from scrib_mlflow import certify_sets
from scrib_mlflow.core.targets import Targets, as_given, by_name, make_constraints, own_targets
from scrib_mlflow.errors import InvalidTargetsError
from scrib_mlflow.synthetic import draw_scores

CREDIT = ("default", "late", "paid")


@pytest.mark.parametrize(
    ("by_class", "given", "wanted"),
    [
        ({"a": 0.1, "b": 0.1}, 0.1, {"default": 0.1}),
        ({"a": 0.1, "b": 0.1}, {"a": 0.1, "default": 0.1}, {"a": 0.1, "default": 0.1}),
        ({"a": 0.2, "b": 0.1, "c": 0.1}, 0.1, {"a": 0.2, "default": 0.1}),
        ({"a": 0.2}, {"a": 0.1}, {"a": 0.2}),
        ({}, None, None),
    ],
)
def test_targets_by_class_keep_which_ones_were_named(by_class, given, wanted):
    assert as_given(by_class, given, ("a", "b", "c")) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0.1, (0.1, 0.1, 0.1)),
        ({"=default": 0.05, "default": 0.1}, (0.05, 0.1, 0.1)),
        ({"=default": 0.05, "late": 0.2, "paid": 0.1}, (0.05, 0.2, 0.1)),
        ({"late": 0.2, "paid": 0.1, "default": 0.05}, (0.05, 0.2, 0.1)),  # the same either way
    ],
)
def test_a_class_may_be_named_default(given, wanted):
    assert tuple(by_name("risk_targets", given, CREDIT).values()) == wanted
    targets = dict(zip(CREDIT, wanted, strict=True))
    again = as_given(targets, given, CREDIT)
    assert tuple(by_name("risk_targets", again, CREDIT).values()) == wanted


def test_a_mapping_that_can_mean_the_class_default_or_the_others_is_refused():
    for given in ({"default": 0.1}, {"late": 0.2, "default": 0.1}):
        with pytest.raises(InvalidTargetsError, match="'=default' for the class"):
            by_name("risk_targets", given, CREDIT)
    with pytest.raises(InvalidTargetsError, match="unknown class '=default'"):
        by_name("risk_targets", {"=default": 0.1, "a": 0.1}, ("a", "b"))


def test_a_waived_class_named_default_stays_waived_where_targets_are_given_again():
    again = as_given({"late": 0.2, "paid": 0.1}, {"late": 0.2, "default": 0.1}, CREDIT)
    found = make_constraints(Targets(risk_targets=again, waive=["default"]), CREDIT)
    assert {each.name: each.target for each in found} == {"late": 0.2, "paid": 0.1}


def test_a_class_is_given_by_its_name_whatever_it_is_called():
    assert own_targets({"=default": 0.1, "late": 0.1, "default": 0.2}) == {"default", "late"}
    assert own_targets(0.1) == frozenset()


def test_penalties_tell_the_class_default_from_the_others():
    found = make_constraints(Targets(penalty={"=default": 5.0, "default": 2.0}), CREDIT)
    assert [each.penalty for each in found] == [5.0, 2.0, 2.0]


def test_a_class_named_overall_has_a_claim_apart_from_that_of_all_classes():
    scores, labels = draw_scores(2000)
    classes = ("overall", "default", "c", "d", "e")
    made = certify_sets(scores, labels, [0.5] * 5, 0.4, classes=classes, overall_target=0.3)
    claims = {claim.name: (claim.classes, claim.target) for claim in made.claims}
    assert len(claims) == len(made.claims) == 6
    assert claims["overall"] == (("overall",), 0.4)
    assert claims["overall (all classes)"] == (classes, 0.3)


@pytest.mark.parametrize("name", ["late", "default", "=default", "overall"])
def test_a_risk_group_is_named_like_no_class_and_no_word_for_classes(name):
    wanted = Targets(risk_groups={name: (["late", "paid"], 0.1)})
    with pytest.raises(InvalidTargetsError, match=f"a group named '{name}'.*take another name"):
        make_constraints(wanted, CREDIT)
