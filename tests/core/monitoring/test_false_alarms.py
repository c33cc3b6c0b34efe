"""How often a monitor is wrong, by simulation, with the slack that chance needs."""

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.monitoring import Batch, add_batch, evidence, evidence_of
from scrib_mlflow.core.monitoring.baseline import without_baseline

from .rows import baseline, draw, labelled, monitor, names, served

LEVEL, TARGET = 0.2, 0.1
CERTAINTY = 1e-4  # that a right monitor fails a test here


def most(runs, level=LEVEL):
    """Return how many alarms a right monitor may raise in so many runs."""
    return stats.binom.ppf(1 - CERTAINTY, runs, level)


def streams(risk, rows, batches, runs, random):
    """Return which of many monitors of one claim ever raise an alarm."""
    lost, won = (
        evidence.error_growth(TARGET, np.array([each]), np.ones(1), 1.0) for each in (1.0, 0.0)
    )
    wealth, highest = evidence.begin(runs, len(lost)), np.zeros(runs)
    for _ in range(batches):
        wrong = random.binomial(rows, risk, runs)
        wealth = evidence.new_batch(wealth, np.full(runs, True))
        grown = np.outer(wrong, lost) + np.outer(rows - wrong, won)
        wealth = wealth._replace(accounts=wealth.accounts + grown)
        highest = np.maximum(highest, evidence.log_evidence(wealth))
    return highest >= -np.log(LEVEL)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "batches"), [(1, 2_000), (50, 500), (5_000, 60)])
@pytest.mark.parametrize("risk", [TARGET, 0.8 * TARGET])
def test_a_risk_at_its_target_or_below_is_seldom_an_alarm(risk, rows, batches, record_property):
    alarms = streams(risk, rows, batches, 5_000, np.random.default_rng(31))
    record_property("figures", f"risk {risk:.2f}, {rows} rows: {alarms.mean():.2%} alarms")
    assert alarms.sum() <= most(len(alarms))
    above = streams(3 * TARGET, rows, batches, 50, np.random.default_rng(32))
    assert above.all()


def raised(after):
    return {alarm.what for alarm in after.alarms}


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "groups"])
def test_a_monitor_whose_rows_have_not_changed_seldom_raises_an_alarm(grouped, record_property):
    runs, batches, n = 150, 40, 120
    count = dict.fromkeys(("drift", "risk", "candidates"), 0)
    for run in range(runs):
        random = np.random.default_rng([33, run])
        after = monitor(
            baseline(random, n=600, grouped=grouped),
            level=LEVEL,
            miss_target=TARGET,
            seed=run,
            group_test=GroupTest(1) if grouped else None,
        )
        for t in range(batches):
            rows, order, labels = draw(random, n, risk=TARGET)
            groups = None
            if grouped:  # three rows that are all alike
                rows = type(rows)(*(part.repeat(3) for part in rows))
                order, labels = random.permuted(order.repeat(3)), labels.repeat(3)
                groups = (np.arange(n) + n * t).astype(np.uint64).repeat(3)
            named = (random.random(n) >= TARGET).repeat(3 if grouped else 1)
            after = add_batch(after, Batch(rows, order, labels, named, groups), "t")
        alarms = raised(after)
        count["drift"] += bool(alarms & {"scores", "sets"})
        count["risk"] += "risk" in alarms
        count["candidates"] += "candidates" in alarms
    record_property("figures", f"alarms in {runs} runs at level {LEVEL}: {count}")
    assert max(count.values()) <= most(runs)


def alarms_of_groups(group_test, target, runs):
    """Return how many monitors raise an alarm; a tenth of small groups' rows are wrong."""
    alarms = 0
    for run in range(runs):
        random = np.random.default_rng([34, run])
        after = monitor(
            without_baseline(names()), target=target, level=LEVEL, group_test=group_test
        )
        for t in range(60):
            sizes = random.choice([1, 30], 2)
            wrong = random.random(2) < np.where(sizes == 1, 0.5, 0.1)  # all rows of a group alike
            groups = np.repeat(np.arange(2) + 2 * t, sizes).astype(np.uint64)
            batch = labelled(wrong.repeat(sizes).astype(int), np.zeros(sizes.sum(), int))
            after = add_batch(after, batch._replace(groups=groups), "t")
        alarms += "risk" in raised(after)
    return alarms


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 5, 30, None])
def test_groups_whose_size_tells_their_risk_seldom_raise_an_alarm(cap):
    counted = cap or 1  # of a large group; without a cap each group counts for a row
    target = (0.5 + 0.1 * counted) / (1 + counted)
    group_test, runs = None if cap is None else GroupTest(cap), 60
    assert alarms_of_groups(group_test, target, runs) <= most(runs, LEVEL / 3)
    assert alarms_of_groups(group_test, 0.2 * target, 10) >= 5


def alarms_of_audits(runs, risk, *, weights):
    """Return how many monitors raise an alarm; doubtful answers are audited more often."""
    alarms = 0
    for run in range(runs):
        random = np.random.default_rng([35, run])
        after = monitor(without_baseline(names()), level=LEVEL)
        object.__setattr__(after, "audit_floor", 0.2)
        for _ in range(30):
            doubtful = random.random(300) < 0.3
            wrong = random.random(300) < np.where(doubtful, 3 * risk, risk / 7)
            audit = np.where(doubtful, 1.0, 0.2)
            labels = np.where(random.random(300) < audit, 0, -1)
            batch = Batch(
                served(wrong.astype(int)), random.integers(0, 2**62, 300).astype(np.uint64), labels
            )
            after = add_batch(after, batch._replace(audit=audit if weights else None), "t")
        alarms += "risk" in raised(after)
    return alarms


@pytest.mark.slow
def test_audits_that_depend_on_the_answer_seldom_raise_an_alarm():
    runs = 60  # the risk is 0.3 * 3 + 0.7 / 7 times the target: the target itself
    assert alarms_of_audits(runs, TARGET, weights=True) <= most(runs, LEVEL / 3)
    assert alarms_of_audits(10, TARGET, weights=False) == 10
    assert alarms_of_audits(10, 2 * TARGET, weights=True) == 10


@pytest.mark.slow
def test_rows_to_notice_is_about_what_it_takes():
    random, rows, runs = np.random.default_rng(36), 10, 400
    for quiet in (0, 100):
        for risk in (0.15, 0.2, 0.3):
            lost, won = (
                evidence.error_growth(TARGET, np.array([each]), np.ones(1), 1.0)
                for each in (1.0, 0.0)
            )
            wealth, first = evidence.begin(runs, len(lost)), np.full(runs, np.inf)
            for t in range(quiet + 400):
                wrong = random.binomial(rows, 0.05 if t < quiet else risk, runs)
                wealth = evidence.new_batch(wealth, np.full(runs, True))
                grown = np.outer(wrong, lost) + np.outer(rows - wrong, won)
                wealth = wealth._replace(accounts=wealth.accounts + grown)
                over = evidence.log_evidence(wealth) >= np.log(20)
                first = np.where(over & np.isinf(first), rows * (t + 1 - quiet), first)
            said = evidence.rows_to_notice(TARGET, risk, 20, quiet)
            assert 0.5 < np.median(first) / said < 1.5, (quiet, risk, np.median(first), said)


def test_evidence_of_a_change_that_comes_late_is_soon_found():
    after = monitor(without_baseline(names()))
    for _ in range(100):
        after = add_batch(after, labelled([0] * 95 + [1] * 5, [0] * 100), "t")
    assert evidence_of(after, "risk")[0] == pytest.approx(-np.log(101), abs=0.2)
    for _ in range(6):
        after = add_batch(after, labelled([0] * 70 + [1] * 30, [0] * 100), "t")
    assert raised(after) == {"risk", "sets"}
