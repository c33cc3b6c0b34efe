"""Counts are those that a loop over rows gives, and those of parts add up."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from scrib_mlflow import evaluate_sets
from scrib_mlflow.core import groups, inputs
from scrib_mlflow.core.certificate import tally_sets
from scrib_mlflow.core.counts import add_counts, count_sets
from scrib_mlflow.core.reports import count_top1, report_counts
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.serving import threshold_sets
from scrib_mlflow.synthetic import draw_scores
from tests.oracles import naive_counts

CLASSES = ("a", "b", "c")
CLAIMS = make_constraints(
    Targets(
        risk_targets=0.2, overall_target=0.1, risk_groups={"some": (("a", "c"), 0.1)}, waive=("b",)
    ),
    CLASSES,
)
GROUPS = 5
row = st.tuples(*[st.booleans()] * 3, st.integers(0, 2), st.integers(0, GROUPS - 1))
NO_SOFT = np.zeros((0, 5))


@given(st.lists(row, min_size=1, max_size=40), st.integers(1, 50), st.booleans())
def test_a_tally_counts_the_rows_of_each_claim_in_all_by_group_and_by_blocks(rows, size, grouped):
    table = np.array(rows)
    sets, labels, codes = table[:, :3].astype(bool), table[:, 3], table[:, 4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "BLOCK_ROWS", size)
        patch.setattr(groups, "MANY_ROWS", size)
        found = tally_sets(sets, labels, CLAIMS, codes if grouped else None)
    certain = sets.sum(axis=1) == 1
    for c, of in enumerate(claim.classes for claim in CLAIMS):
        own = np.isin(labels, of)
        wrong = own & certain & ~sets[np.arange(len(rows)), labels]
        counted = (found.n[c], found.n_certain[c], found.n_wrong[c])
        assert counted == (own.sum(), (own & certain).sum(), wrong.sum())
        if grouped:
            by_group = [
                ((own & certain & (codes == g)).sum(), (wrong & (codes == g)).sum())
                for g in range(GROUPS)
            ]
            counted = found.groups.by_claim[c]
            found_by_group = sorted(zip(counted.certain, counted.wrong, strict=True))
            assert found_by_group == sorted((n, e) for n, e in by_group if n)
    assert (found.groups is not None) == grouped
    assert not grouped or found.groups.total == len(set(codes.tolist()))
    assert found.n.dtype == np.int64


@given(st.integers(0, 10_000), st.lists(st.integers(0, 90), max_size=4))
def test_counts_of_parts_add_up_to_those_of_all_rows_and_so_does_their_report(seed, cuts):
    scores, labels = draw_scores(90, seed=seed)
    thresholds = np.random.default_rng(seed).random(5)
    bounds = [0, *sorted(cuts), 90]
    found = add_counts(
        count_sets(
            threshold_sets(scores[low:high], thresholds),
            labels[low:high].astype(np.int32),
            NO_SOFT,
            np.ones(high - low),
        )
        for low, high in itertools.pairwise(bounds)
        if low < high
    )
    by_class, empty, size = naive_counts(scores, labels, thresholds)
    np.testing.assert_array_equal(found[:4], by_class)
    assert found[4:] == (by_class[1].sum(), empty, size)
    certain = threshold_sets(scores, thresholds).sum(axis=1) == 1
    top1 = count_top1(scores, labels, certain, np.ones(90))
    report = report_counts(found, tuple("01234"), 0.9, counted=True, top1=top1)
    assert report == evaluate_sets(scores, labels, thresholds, confidence=0.9)
    assert np.isnan(report_counts(found, tuple("01234"), 0.9, counted=False).overall_risk_upper)
