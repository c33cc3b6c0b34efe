"""A monitor, batch by batch, against sums and ratios in plain Python."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.monitoring import (
    Batch,
    add_batch,
    alarm_at,
    begin,
    evidence,
    evidence_of,
    explain_drift,
    monitor as module,
)
from scrib_mlflow.core.monitoring.baseline import without_baseline
from scrib_mlflow.errors import InvalidDataError

from .rows import LEVEL, TARGET, baseline, draw, labelled, monitor, names

RISKS = np.minimum(TARGET * evidence.MULTIPLES, TARGET + evidence.HIGHEST * (1 - TARGET))
STAKES = (RISKS - TARGET) / (TARGET * (1 - TARGET))


def restarted(batches):
    """Return the logarithm of the evidence of batches, each a list of what one unit won."""
    batches = [batch for batch in batches if batch]
    t = len(batches)
    total = 1 / (t + 1)
    for begins in range(t):
        units = [unit for batch in batches[begins:] for unit in batch]
        money = np.mean([math.prod(1 + stake * unit for unit in units) for stake in STAKES])
        total += money / ((begins + 1) * (begins + 2))
    return math.log(total)


def test_a_claim_bets_on_the_answered_rows_of_its_classes():
    answers, labels = [0, 1, -1, 2, 0, 0], [0, 0, 0, 1, -1, 2]
    after = add_batch(monitor(), labelled(answers, labels), "t")
    right, wrong = -TARGET, 1 - TARGET
    wanted = [restarted([[right, wrong]]), restarted([[wrong]]), restarted([[wrong]])]
    np.testing.assert_allclose(evidence_of(after, "risk"), wanted)
    assert after.certain == (2, 1, 1)
    assert after.wrong == (1, 1, 1)
    record = after.history[-1]
    assert (record.n_rows, record.n_labelled, record.n_answered_labelled) == (6, 5, 4)
    assert record.risk == pytest.approx(np.array(wanted) / math.log(10))


def test_batches_carry_on():
    batches = [([0, 0, 1], [0, 0, 0]), ([1], [2]), ([1, 0], [0, 0])]
    after = monitor()
    for batch in batches:
        after = add_batch(after, labelled(*batch), "t")
    wrong, right = 1 - TARGET, -TARGET
    assert evidence_of(after, "risk")[0] == pytest.approx(
        restarted([[right, right, wrong], [], [wrong, right]])
    )
    assert evidence_of(after, "risk")[1] == 0
    assert after.n_batches == 3
    assert after.n_rows == 6


def test_candidates_are_judged_on_abstentions_only():
    batch = labelled([-1, -1, 0, -1], [0, 0, 0, -1], named=np.array([True, False, False, False]))
    after = add_batch(monitor(miss_target=TARGET), batch, "t")
    assert after.asked == (2, 0, 0)
    assert after.missed == (1, 0, 0)
    wanted = restarted([[-TARGET, 1 - TARGET]])
    np.testing.assert_allclose(evidence_of(after, "candidates"), [wanted, 0, 0])
    np.testing.assert_allclose(evidence_of(after, "risk"), [restarted([[-TARGET]]), 0, 0])
    assert add_batch(monitor(miss_target=None), batch, "t").asked == (0, 0, 0)


def test_a_claim_about_several_classes_has_the_rows_of_all():
    first, second, third = monitor().members
    several = replace(monitor(), members=((*first, *second), third, (*first, *second, *third)))
    after = add_batch(several, labelled([0, 0, 2, 1], [0, 1, 2, 2]), "t")
    assert after.certain == (2, 2, 4)
    assert after.wrong == (1, 1, 2)


def test_labels_that_come_later_count_as_if_they_had_come_at_once():
    random = np.random.default_rng(1)
    rows, order, labels = draw(random, 200)
    now = labels.copy()
    now[::2] = -1
    later = np.where(now == -1, labels, -1)
    apart = add_batch(monitor(), Batch(rows, order, now), "t")
    apart = add_batch(apart, Batch(rows, order, later), "t", labels_only=True)
    once = add_batch(monitor(), Batch(rows, order, labels), "t")
    assert apart.certain == once.certain
    assert apart.wrong == once.wrong
    for part in ("scores", "sets", "kinds", "bins", "cells", "n_rows"):
        assert getattr(apart, part) == getattr(once, part)
    assert apart.history[-1].n_rows == sum(apart.history[-1].kinds) == 0


def test_only_abstentions_with_labels_say_nothing_of_the_risks():
    after = add_batch(monitor(), labelled([-1, -1, 0], [0, 1, -1]), "t")
    assert (evidence_of(after, "risk") == 0).all()
    assert after.history[-1].n_labelled == 2
    assert after.history[-1].n_answered_labelled == 0


@pytest.mark.parametrize("labels", [None, np.full(40, -1)], ids=["no column", "no values"])
def test_a_batch_without_labels_bets_on_drift_only(labels):
    rows, order, _ = draw(np.random.default_rng(2), 40)
    after = add_batch(monitor(), Batch(rows, order, labels), "t")
    assert (evidence_of(after, "risk") == 0).all()
    assert evidence_of(after, "scores")[0] != 0
    assert (evidence_of(after, "sets") != 0).all()


@pytest.mark.parametrize("labels", [False, True])
def test_an_empty_batch_changes_nothing_but_the_count_of_batches(labels):
    rows, order, of = draw(np.random.default_rng(3), 0)
    before = add_batch(monitor(), labelled([0, 1], [0, 0]), "t")
    after = add_batch(before, Batch(rows, order, of if labels else None), "t")
    assert after.n_batches == before.n_batches + 1
    for part in ("scores", "sets", "risk", "candidates"):
        np.testing.assert_array_equal(evidence_of(after, part), evidence_of(before, part))
    assert after.n_rows == before.n_rows


@pytest.mark.parametrize("row", [0, -1], ids=["answer", "abstention"])
def test_a_batch_may_be_one_row(row):
    after = add_batch(monitor(), labelled([row], [0], named=np.array([True])), "t")
    assert after.n_rows == 1
    assert np.isfinite(evidence_of(after, "sets")).all()


def test_rows_without_scores_do_not_bet_on_them():
    rows, order, _ = draw(np.random.default_rng(4), 30)
    for top in (None, np.full(30, np.nan)):
        after = add_batch(monitor(), Batch(rows._replace(top=top), order), "t")
        assert evidence_of(after, "scores")[0] == 0
    assert after.bins == monitor().bins


def test_without_a_baseline_batches_are_compared_with_each_other():
    random = np.random.default_rng(5)
    after = monitor(without_baseline(names()))
    for share in (0.3, 0.3, 0.9):
        rows, order, _ = draw(random, 400, abstention=share)
        after = add_batch(after, Batch(rows, order), "t")
    assert {alarm.what for alarm in after.alarms} == {"sets"}
    assert {alarm.batch for alarm in after.alarms} == {3}
    assert "all abstentions" in {alarm.name for alarm in after.alarms}
    assert explain_drift(after) is None


def test_the_same_batches_give_the_same_evidence():
    rows, order, labels = draw(np.random.default_rng(6), 100)
    batch = Batch(rows, order, labels)
    assert add_batch(monitor(), batch, "t") == add_batch(monitor(), batch, "t")


def test_the_order_of_the_rows_in_a_table_does_not_matter():
    rows, order, labels = draw(np.random.default_rng(7), 100)
    other = np.random.default_rng(0).permutation(100)
    moved = Batch(type(rows)(*(part[other] for part in rows)), order[other], labels[other])
    one = add_batch(monitor(), Batch(rows, order, labels), "t")
    two = add_batch(monitor(), moved, "t")
    for what in ("scores", "sets", "risk"):
        np.testing.assert_allclose(evidence_of(one, what), evidence_of(two, what))


def test_every_kind_of_rows_has_its_part_of_the_level():
    of = monitor()
    features = len(evidence_of(of, "sets"))
    assert features == of.baseline.n_kinds + 1
    spent = {
        what: len(evidence_of(of, what)) / alarm_at(of, what)
        for what in ("scores", "sets", "risk", "candidates")
    }
    assert spent["scores"] + spent["sets"] == pytest.approx(LEVEL)
    assert spent["risk"] == pytest.approx(LEVEL)
    assert spent["candidates"] == pytest.approx(LEVEL / 2)  # their limits take the other half


def test_an_alarm_stays_and_is_raised_once():
    after = monitor()
    for time in ("one", "two", "three"):
        after = add_batch(after, labelled([1] * 10, [0] * 10), time)
    after = add_batch(after, labelled([0] * 500, [0] * 500), "four")
    assert [(alarm.what, alarm.name) for alarm in after.alarms if alarm.what == "risk"] == [
        ("risk", "class 0")
    ]
    alarm = next(alarm for alarm in after.alarms if alarm.what == "risk")
    limit = math.log(3 / LEVEL)
    first = next(t for t in (1, 2, 3) if restarted([[1 - TARGET] * 10] * t) >= limit)
    assert alarm.batch == first
    assert alarm.time == ("one", "two", "three")[first - 1]


def test_the_rows_since_evidence_was_lowest_are_those_of_a_change():
    random, after = np.random.default_rng(8), monitor(random=np.random.default_rng(8))
    for n in range(12):
        rows, order, _ = draw(random, 250, abstention=0.3 if n < 8 else 0.55)
        after = add_batch(after, Batch(rows, order), "t")
    assert 6 <= after.cells_since <= 10
    assert sum(after.cells) == 250 * (13 - after.cells_since)
    assert any(alarm.what == "sets" for alarm in after.alarms)


def test_a_change_of_class_frequencies_is_explained_and_another_one_not():
    random = np.random.default_rng(9)
    for explained in (True, False):
        after = monitor(baseline(np.random.default_rng(10), n=4_000))
        for _ in range(6):
            rows, order, labels = draw(random, 900, abstention=0.3 if explained else 0.6)
            kept = (labels == 0) | (random.random(900) < 0.3) if explained else labels >= 0
            rows = type(rows)(*(part[kept] for part in rows))
            after = add_batch(after, Batch(rows, order[kept]), "t")
        mixture = explain_drift(after)
        assert any(alarm.what == "sets" for alarm in after.alarms)
        assert (mixture.p_value > 0.01) == explained
        if explained:
            np.testing.assert_allclose(mixture.frequencies, [5 / 8, 3 / 16, 3 / 16], atol=0.05)


def test_drift_is_explained_by_kinds_alone_where_some_scores_are_unknown():
    rows, order, _ = draw(np.random.default_rng(11), 500)
    after = add_batch(monitor(), Batch(rows, order), "t")
    assert after.cells_scored
    after = replace(after, scores=replace(after.scores, accounts=((5.0, 5.0, 5.0),)))
    after = add_batch(after, Batch(rows._replace(top=None), order), "t")
    assert not after.cells_scored
    assert sum(after.cells) == 1_000
    assert explain_drift(after).p_value > 1e-4


def test_one_row_of_each_group_is_compared_and_each_group_once():
    random = np.random.default_rng(12)
    rows, order, _ = draw(random, 60)
    groups = np.repeat(np.arange(20), 3).astype(np.uint64)
    before = monitor(baseline(random, grouped=True))
    after = add_batch(before, Batch(rows, order, groups=groups), "t")
    assert sum(after.kinds) - sum(before.kinds) == sum(after.cells) == 20
    again = add_batch(after, Batch(rows, order, groups=groups), "t")
    assert again.kinds == after.kinds
    np.testing.assert_array_equal(evidence_of(again, "sets"), evidence_of(after, "sets"))
    more = add_batch(again, Batch(rows, order, groups=groups + np.uint64(10)), "t")
    assert sum(more.kinds) - sum(after.kinds) == 10


def grouped_batch(sizes, wrong, **more):
    """Return labelled rows of class 0 in groups, so many of each answered wrongly."""
    answers = [int(i < w) for n, w in zip(sizes, wrong, strict=True) for i in range(n)]
    groups = np.repeat(np.arange(len(sizes)), sizes).astype(np.uint64)
    return labelled(answers, [0] * len(answers), groups=groups, **more)


@pytest.mark.parametrize("cap", [1, 4, 20])
def test_a_group_counts_for_no_more_rows_than_the_cap(cap):
    sizes, wrong = (1, 4, 20), (1, 1, 10)
    after = monitor(group_test=GroupTest(cap))
    after = add_batch(after, grouped_batch(sizes, wrong), "t")
    counted = [min(n, cap) for n in sizes]
    errors = [w / n * c for w, n, c in zip(wrong, sizes, counted, strict=True)]
    units = [(e - TARGET * c) / cap for e, c in zip(errors, counted, strict=True)]
    assert evidence_of(after, "risk")[0] == pytest.approx(restarted([units]))
    assert after.certain[0] == pytest.approx(sum(counted))
    assert after.wrong[0] == pytest.approx(sum(errors))


def test_labels_of_a_group_count_once():
    after = monitor(group_test=GroupTest(5))
    after = add_batch(after, grouped_batch((3, 2), (1, 0)), "t")
    again = add_batch(after, grouped_batch((3, 2, 4), (3, 2, 0)), "t")
    assert again.certain[0] == after.certain[0] + 4
    assert again.wrong == after.wrong


@pytest.mark.parametrize("group_test", [None, GroupTest(np.inf)], ids=["none", "no cap"])
def test_without_a_cap_a_group_counts_for_a_row_whatever_others_come_with_it(group_test):
    small = add_batch(monitor(group_test=group_test), grouped_batch((2,), (1,)), "t")
    assert evidence_of(small, "risk")[0] == pytest.approx(restarted([[0.5 - TARGET]]))
    both = add_batch(monitor(group_test=group_test), grouped_batch((2, 30), (1, 0)), "t")
    assert evidence_of(both, "risk")[0] == pytest.approx(restarted([[0.5 - TARGET, -TARGET]]))


def audited(floor=0.25, **more):
    return replace(monitor(**more), audit_floor=floor)


def test_an_audited_row_counts_by_the_inverse_of_its_probability():
    audit = np.array([0.25, 0.5, 1.0, 0.25])
    batch = labelled([0, 1, 0, -1], [0, 0, 0, 0], audit=audit, named=np.zeros(4, bool))
    after = add_batch(audited(miss_target=TARGET), batch, "t")
    units = [-TARGET, (1 - TARGET) / 2, -TARGET / 4]
    assert evidence_of(after, "risk")[0] == pytest.approx(restarted([units]))
    assert after.certain[0] == pytest.approx(1 + 0.5 + 0.25)
    assert after.wrong[0] == pytest.approx(0.5)
    assert evidence_of(after, "candidates")[0] == pytest.approx(restarted([[1 - TARGET]]))


def test_audited_groups_count_by_the_inverse_of_their_probability():
    audit = np.repeat([0.25, 0.5], [2, 6])
    after = audited(group_test=GroupTest(3))
    after = add_batch(after, grouped_batch((2, 6), (1, 3), audit=audit), "t")
    units = [(1 - TARGET * 2) / 3, 0.5 * (1.5 - TARGET * 3) / 3]
    assert evidence_of(after, "risk")[0] == pytest.approx(restarted([units]))
    assert after.certain[0] == pytest.approx(2 + 0.5 * 3)


@pytest.mark.parametrize(
    ("floor", "audit"), [(None, 0.5), (0.25, 0.2), (0.25, 0.0), (0.25, 1.5), (0.25, np.nan)]
)
def test_an_audit_probability_below_the_lowest_one_is_refused(floor, audit):
    batch = labelled([0, 0], [0, 0], audit=np.array([0.5, audit]))
    with pytest.raises(InvalidDataError, match="audit probabilities must lie between"):
        add_batch(audited(floor), batch, "t")


def test_probabilities_of_rows_without_labels_are_not_looked_at():
    batch = labelled([0, 0], [0, -1], audit=np.array([0.5, 0.0]))
    assert add_batch(audited(), batch, "t").certain[0] == 0.5


def test_weights_make_audited_counts_unbiased():
    random, floor = np.random.default_rng(13), 0.2
    rows, order, labels = draw(random, 60_000, risk=0.3)
    wrong = rows.answers != labels
    audit = np.where(wrong, 0.9, floor)  # as if doubtful answers were audited more often
    seen = np.where(random.random(60_000) < audit, labels, -1)
    after = add_batch(audited(floor), Batch(rows, order, seen, audit=audit), "t")
    certain, errors = np.array(after.certain), np.array(after.wrong)
    for j in range(3):
        of = (rows.answers >= 0) & (labels == j)
        assert certain[j] / floor == pytest.approx(of.sum(), rel=0.05)
        assert errors[j] / floor == pytest.approx((of & wrong).sum(), rel=0.05)


def test_a_class_without_rows_in_the_baseline_is_monitored_all_the_same():
    random = np.random.default_rng(14)
    of = baseline(random)
    after = monitor(replace(of, by_class=(*of.by_class[:2], (0,) * len(of.by_class[2]))))
    for _ in range(3):
        rows, order, labels = draw(random, 300)
        after = add_batch(after, Batch(rows, order, labels), "t")
    assert after.certain[2] > 0
    assert np.isnan(explain_drift(after).frequencies).tolist() == [False, False, True]


def test_a_long_history_keeps_its_newer_half_whole(monkeypatch):
    monkeypatch.setattr(module, "MOST_HISTORY", 20)
    after = monitor()
    lengths = []
    for _ in range(60):
        after = add_batch(after, labelled([0], [0]), "t")
        lengths.append(len(after.history))
    assert max(lengths) == 20
    numbers = [record.number for record in after.history]
    assert numbers[0] == 1
    assert numbers[-5:] == [56, 57, 58, 59, 60]
    assert numbers == sorted(set(numbers))
    assert after.n_batches == 60


def test_many_classes_keep_a_shorter_history():
    assert len(module._thinned(monitor_history(30, 1_000))) < 30
    assert len(module._thinned(monitor_history(20, 1_000))) == 20
    assert len(module._thinned(monitor_history(400, 2))) == 400


def monitor_history(n, k):
    record = add_batch(monitor(), labelled([0], [0]), "t").history[0]
    wide = (0.0,) * k
    return (replace(record, risk=wide, candidates=wide, kinds=(0,) * k),) * n


def test_packed_hashes_come_back_in_order_and_once():
    hashes = np.array([2**64 - 1, 5, 0, 5], dtype=np.uint64)
    assert module.unpack(module.pack(hashes)).tolist() == [0, 5, 2**64 - 1]
    assert module.unpack("").tolist() == module.unpack(module.pack(hashes[:0])).tolist() == []


def test_the_order_of_rows_is_like_chance_and_always_the_same():
    hashes = np.arange(4_000, dtype=np.uint64)
    order = module.order_of(hashes, 1)
    np.testing.assert_array_equal(order, module.order_of(hashes, 1))
    assert len(set(order.tolist())) == 4_000
    ranks = np.argsort(np.argsort(order))
    assert abs(np.corrcoef(ranks, np.arange(4_000))[0, 1]) < 0.07
    other = np.argsort(np.argsort(module.order_of(hashes, 2)))
    assert abs(np.corrcoef(ranks, other)[0, 1]) < 0.07


@pytest.mark.parametrize(
    ("n", "k"), [(20_000, 1_000), pytest.param(10**6, 3, marks=pytest.mark.slow)]
)
def test_many_classes_and_many_rows_are_counted(n, k):
    random = np.random.default_rng(15)
    after = monitor(without_baseline(names(k)), k=k)
    rows, order, labels = draw(random, n, k=k)
    for _ in range(2):
        after = add_batch(after, Batch(rows, order, labels, random.random(n) < 0.9), "t")
    counted = np.bincount(labels[rows.answers >= 0], minlength=k)
    np.testing.assert_array_equal(after.certain, 2 * counted)
    np.testing.assert_array_equal(after.asked, 2 * (np.bincount(labels, minlength=k) - counted))
    assert explain_drift(after) is None


@pytest.mark.parametrize(
    ("n", "k"), [(10**5, 1_000), pytest.param(10**6, 3, marks=pytest.mark.slow)]
)
def test_memory_is_a_few_numbers_for_each_row(n, k):
    rows, order, labels = draw(np.random.default_rng(16), n, k=k)
    of, batch = monitor(without_baseline(names(k)), k=k), Batch(rows, order, labels, labels > 0)
    tracemalloc.start()
    add_batch(of, batch, "t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 * n


def test_where_nothing_is_claimed_drift_is_watched_all_the_same():
    rows, order, labels = draw(np.random.default_rng(3), 50)
    of, settings = baseline(np.random.default_rng(4)), {"miss_target": None, "level": LEVEL}
    nothing = begin(names(3), [], of, **settings, seed=0, group_test=None)
    after = add_batch(nothing, Batch(rows, order, labels), "t")
    assert after.history[0].risk == ()
    assert after.history[0].n_labelled == 50
