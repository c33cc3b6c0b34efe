"""A monitor in words, tables and figures."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from scrib_mlflow.core.groups import GroupTest
from scrib_mlflow.core.monitoring import add_batch
from scrib_mlflow.report import measured, monitor_figures, monitoring, words
from scrib_mlflow.report.monitoring import Seen
from tests.pages import Page, read_tables
from tests.report.monitors import LEVEL, batch_of, draw_rows, start, watch
from tests.report.test_report import HOSTILE, names

SLEEP = ("W", "N1", "N2", "REM")
SECTIONS = ["risks", "rates", "drift", "sets", "candidates", "run"]


def seen(monitor, **given):
    return Seen(monitor=monitor, model_uri="models:/sleep-scrib/3", source="nights.csv", **given)


def said(monitor, **given):
    summary = monitoring.monitoring_summary(seen(monitor, **given), "There.")
    return summary.verdict, " ".join(summary.sentences)


def drawn_batch(k, n, *, seed, share):
    """Return rows, and a batch of them in which a share is labelled."""
    random = np.random.default_rng(seed)
    labels, sets, scored, top = draw_rows(k, n, random, wrong=0.2)
    labelled = random.random(n) < share
    batch = batch_of(labels, sets, scored, top, random, labelled=labelled, missed=0.3)
    return labels, sets, scored, labelled, batch


def test_without_an_alarm_it_says_ok_and_that_this_is_no_proof():
    verdict, rest = said(watch(start(SLEEP), 3, share=0.3))
    assert verdict == "ok: no alarm in 3 batches (3,000 rows)."
    assert "no proof" in rest
    verdict, rest = said(watch(start(SLEEP), 1))
    assert verdict == "ok: no alarm in 1 batch (1,000 rows)."
    assert "No answered row has a label so far" in rest
    assert "keeps its target" not in rest


def test_an_alarm_says_which_risk_is_above_which_target_and_since_when():
    calm = watch(start(SLEEP, targets=[0.1, 0.2, 0.1, 0.1]), 4, share=0.3)
    rows = {"wrong": [0.05, 0.6, 0.05, 0.05], "frequencies": None}
    monitor = watch(calm, 6, share=0.3, seed=2, **rows)
    verdict, rest = said(monitor, demoted="2")
    found = re.match(r"ALARM since batch (\d+) \((2026-[\d: -]+)\): (.*)", verdict)
    assert 5 <= int(found[1]) <= 10
    assert monitor.history[int(found[1]) - 1].time == found[2]
    assert found[3].startswith("the risk of N1 is above its target of 20.0 %")
    assert "Rows of N1 that are answered are wrong more often than the certificate says" in rest
    assert "class risks still hold" not in rest
    assert rest.endswith("The alias was moved back to version 2.")


def test_an_alarm_of_candidates_says_which_classes_and_how_often_they_should_hold():
    verdict, rest = said(watch(start(SLEEP), 10, share=0.5, missed=0.3))
    assert re.search(
        r"candidates of (?=.*W)(?=.*N1).* hold the true class less often than", verdict
    )
    assert "95.0 %" in verdict
    assert "answers are not concerned" in rest


def test_other_class_frequencies_are_named_as_one_explanation_and_not_as_proof():
    monitor = watch(start(SLEEP), 8, frequencies=[0.1, 0.7, 0.1, 0.1])
    verdict, rest = said(monitor)
    assert re.search(r"more often than at calibration: N1\b.*less often: .*(W|N2|REM)", verdict)
    assert re.search(r"consistent with other class frequencies alone.*N1 at 7\d\.\d % \(cal", rest)
    assert "that is no proof" in rest
    assert "class risks still hold, but overall risk and abstention do not" in rest


def test_what_class_frequencies_do_not_explain_puts_the_class_risks_in_doubt():
    verdict, rest = said(watch(start(SLEEP), 8, shift=0.3))
    assert "scores come from elsewhere" in verdict
    assert "Other class frequencies alone do not explain" in rest
    assert "class risks are in doubt" in rest
    assert "still hold" not in rest


def test_without_labels_of_the_calibration_an_explanation_cannot_be_told():
    monitor = watch(start(SLEEP), 8, shift=0.3)
    unknown = replace(monitor, baseline=replace(monitor.baseline, by_class=()))
    assert "cannot be told" in said(unknown)[1]


def test_of_labels_of_abstentions_alone_it_says_that_no_risk_can_be_estimated():
    monitor = watch(start(SLEEP), 2, share=0.5, only_open=True)
    _, rest = said(monitor)
    n = monitor.history[-1].n_labelled
    assert f"All {n} labelled rows of this batch are abstentions" in rest
    assert "class risks cannot be estimated from them" in rest
    wanted = max(monitoring.audit_rows(monitor).values())
    assert f"audit about {int(np.ceil(wanted))} answered rows of each batch" in rest


def test_auditing_so_many_answered_rows_notices_a_doubled_risk_in_about_so_many_batches():
    monitor = start(SLEEP, frequencies=[0.4, 0.1, 0.3, 0.2])
    wanted = monitoring.audit_rows(monitor, batches=10)
    assert max(wanted, key=wanted.get) == "N1"
    for name in ("N1", "N2"):
        j, noticed = SLEEP.index(name), []
        rows = int(wanted[name])
        for seed in range(20):
            wrong = np.full(4, 0.05)
            wrong[j] = 0.2
            after, random = monitor, np.random.default_rng(seed)
            for _ in range(20):
                drawn = draw_rows(
                    4, 3 * rows, random, wrong=wrong, frequencies=[0.4, 0.1, 0.3, 0.2]
                )
                one = np.flatnonzero(drawn[1].sum(axis=1) == 1)[:rows]
                labels, sets, scored, top = (values[one] for values in drawn)
                labelled = np.full(len(one), True)
                after = add_batch(
                    after, batch_of(labels, sets, scored, top, random, labelled=labelled), ""
                )
            noticed += [alarm.batch for alarm in after.alarms if alarm.name == name]
        assert 5 <= np.median(noticed) <= 15
        assert len(noticed) >= 18


def test_a_class_that_is_never_answered_cannot_be_audited_and_is_left_out():
    monitor = start(SLEEP, frequencies=[0.5, 0.0, 0.3, 0.2])
    none = list(monitor.baseline.kinds)
    none[1] = 0
    monitor = replace(monitor, baseline=replace(monitor.baseline, kinds=tuple(none)))
    assert monitoring.audit_rows(monitor)["N1"] == np.inf
    assert "audit about" in said(watch(monitor, 1))[1]


def test_the_first_table_holds_the_counts_of_the_batch_beside_those_at_calibration():
    monitor = start(SLEEP)
    _, sets, scored, _, batch = drawn_batch(4, 800, seed=5, share=0.5)
    monitor = add_batch(monitor, batch, "2026-01-01")
    table = monitoring.rate_table(monitor)
    sizes = sets.sum(axis=1)
    certain = sizes == 1
    counts = [certain.sum(), *(sets[certain].sum(axis=0)), (sizes > 1).sum()]
    counts += [(scored & (sizes == 0)).sum(), (~scored).sum()]
    assert table.rows[0][0] == "batch 1, 800 rows"
    assert [int(row[1]) for row in table.rows[1:]] == counts
    known = np.array(monitor.baseline.kinds) / 5000
    shares = [row[3] for row in table.rows[1:]]
    assert shares[1] == f"{100 * known[0]:.1f} %"
    assert shares[0] == f"{100 * known[:4].sum():.1f} %"


def test_of_many_classes_the_first_table_keeps_those_that_changed_most_and_all_other_rows():
    monitor = watch(start(tuple(names(30))), 1, frequencies=[0.3, *[0.7 / 29] * 29])
    rows, told = words.fold(monitoring.rate_table(monitor), 12)
    assert [row[0] for row in rows if not row[0].startswith("  ")][1:] == [
        "answered",
        "ambiguous",
        "empty",
        "not scored",
    ]
    assert len(rows) == 1 + 12 + 4
    assert "  c0" in {row[0] for row in rows}
    assert told.startswith("The 12 of 30 classes")


def interval(wrong, n):
    """Return the risks against which a Beta(1/2, 1/2) mixture has not won, on a grid."""
    grid = np.linspace(1e-5, 1 - 1e-5, 200_001)
    mixed = stats.betabinom.logpmf(wrong, n, 0.5, 0.5)
    kept = grid[mixed - stats.binom.logpmf(wrong, n, grid) < -np.log(LEVEL)]
    return kept[0], kept[-1]


def test_the_second_table_holds_the_counts_and_the_interval_of_each_risk():
    monitor, certain, wrong = start(SLEEP), np.zeros(4, int), np.zeros(4, int)
    for seed in range(3):
        labels, sets, _, labelled, batch = drawn_batch(4, 900, seed=seed, share=0.4)
        monitor = add_batch(monitor, batch, "2026-01-01")
        some = labelled & (sets.sum(axis=1) == 1)
        certain += np.bincount(labels[some], minlength=4)
        missed = some & ~sets[np.arange(900), labels]
        wrong += np.bincount(labels[missed], minlength=4)
    header, *rows = monitoring.claim_table(monitor).rows
    assert header[:5] == ("risk of", "labelled", "wrong", "risk", "between")
    for row, n, errors in zip(rows, certain, wrong, strict=True):
        assert row[1:4] == (str(n), str(errors), f"{100 * errors / n:.1f} %")
        low, high = interval(errors, n)
        told = [float(x) for x in re.fullmatch(r"([\d.]+) to ([\d.]+) %", row[4]).groups()]
        assert told == pytest.approx([100 * low, 100 * high], abs=0.06)
        assert row[5] == "10.0 %"
        assert row[7] == "80"  # four risks at level 0.05


@pytest.mark.parametrize(
    "change", [{"group_test": GroupTest(3)}, {"certain": (10.5, 7.0, 3.0, 2.0)}]
)
def test_there_is_no_interval_where_rows_come_in_groups_or_counts_are_not_whole(change):
    monitor = replace(watch(start(SLEEP), 2, share=0.3), **change)
    first, *_ = monitoring.risks(monitor)
    assert np.isnan([first.low, first.high]).all()
    assert first.rate == monitor.wrong[0] / monitor.certain[0]
    kept = [f"risk_lower/{name}" in monitoring.metrics(monitor) for name in SLEEP]
    assert kept == [False] * 4 if "group_test" in change else [False, True, True, True]


def test_the_usual_range_holds_about_95_percent_of_batches():
    random = np.random.default_rng(0)
    for share, rows, known in [(0.2, 1000, 5000), (0.02, 500, 2000), (0.9, 200, 400)]:
        before = random.binomial(known, share, 4000)
        now = random.binomial(rows, share, 4000) / rows
        bands = np.array([measured.usual_range(x / known, rows, known) for x in before])
        inside = np.mean((bands[:, 0] <= now) & (now <= bands[:, 1]))
        assert 0.93 < inside < 0.98


def test_metrics_are_those_of_the_batch_and_leave_out_what_was_not_observed():
    monitor = start(("W", "a/b:c", "N2"))
    _, sets, scored, _, batch = drawn_batch(3, 500, seed=2, share=0.0)
    logged = monitoring.metrics(add_batch(monitor, batch, "2026-01-01"))
    sizes = sets.sum(axis=1)
    assert logged["abstention_rate"] == pytest.approx(np.mean(sizes != 1))
    assert logged["ambiguous_rate"] == np.mean(sizes > 1)
    assert logged["empty_rate"] == np.mean(scored & (sizes == 0))
    assert logged["not_scored_rate"] == np.mean(~scored)
    assert logged["n_rows"] == 500
    assert logged["n_labelled"] == logged["alarm"] == 0
    assert {name for name in logged if "/" in name} == set()
    labels, sets, scored, labelled, batch = drawn_batch(3, 900, seed=3, share=0.6)
    monitor = add_batch(monitor, batch, "2026-01-01")
    logged = monitoring.metrics(monitor)
    own = labelled & (labels == 1) & (sets.sum(axis=1) == 1)
    assert logged["risk/a_b_c"] == pytest.approx(np.mean(~sets[own, 1]))
    open_rows = labelled & scored & (labels == 1) & (sets.sum(axis=1) != 1)
    assert logged["candidate_coverage/a_b_c"] == pytest.approx(np.mean(batch.named[open_rows]))
    assert logged["risk_lower/a_b_c"] < logged["risk/a_b_c"] < logged["risk_upper/a_b_c"]
    assert logged["evidence_risk/a_b_c"] == monitor.history[-1].risk[1]
    assert logged["alarm"] == float(bool(monitor.alarms))
    assert np.isfinite(list(logged.values())).all()


def test_labels_that_come_later_leave_the_rates_of_the_last_answers_in_the_table():
    monitor = watch(start(SLEEP), 2)
    table = monitoring.rate_table(monitor)
    *_, batch = drawn_batch(4, 300, seed=4, share=1.0)
    monitor = add_batch(monitor, batch, "2026-02-01", labels_only=True)
    assert monitoring.rate_table(monitor) == table
    assert "abstention_rate" not in monitoring.metrics(monitor)
    assert "only their labels are new" in said(monitor, labels_only=True)[1]


def test_a_batch_that_was_counted_before_is_said_to_be_one():
    assert (
        "These rows equal batch 1, so nothing was counted again."
        in (said(watch(start(SLEEP), 2), repeated=1)[1])
    )


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("batches", [1, 25])
@pytest.mark.parametrize("k", [2, 25])
def test_the_page_loads_and_runs_nothing(k, batches, share):
    monitor = watch(start(tuple(names(k)), rows=2000), batches, n=300, share=share)
    text, drawn = monitoring.page(seen(monitor), [("run", "r")])
    shown = Page(text)
    wanted = SECTIONS if share else [name for name in SECTIONS if name != "candidates"]
    assert list(shown.sections) == wanted
    assert shown.loads == []
    assert shown.scripts == 0
    assert len(set(shown.ids)) == len(shown.ids)
    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text
    for figure in drawn.values():
        target = io.BytesIO()
        figure.savefig(target, format="png", dpi=30)
        assert target.getvalue().startswith(b"\x89PNG")


def test_names_are_text_on_the_page_and_in_the_note_which_fits_into_mlflow():
    alarmed = watch(start(HOSTILE), 6, share=0.5, wrong=0.5, missed=0.5)
    text, drawn = monitoring.page(seen(alarmed), [])
    assert drawn
    shown = "".join(Page(text).texts)
    for name in HOSTILE[:3] + HOSTILE[5:6]:
        assert name in shown
    assert not set("\x00\x1b\u202e") & set(shown)
    long = tuple(f"{j} {'long name ' * 20}" for j in range(40))
    for monitor in (alarmed, watch(start(long), 3, share=0.5, wrong=0.6)):
        note = words.note(monitoring.monitoring_summary(seen(monitor), "There."))
        assert len(note) < 4000
        assert note.startswith("ALARM since batch")
        assert "There." in note


def test_the_page_shows_the_table_of_risks_and_folds_many_with_the_worst_first():
    rows = {"wrong": [0.6, *[0.05] * 29], "share": 0.5}
    monitor = watch(start(tuple(names(30))), 8, **rows)
    text, _ = monitoring.page(seen(monitor), [])
    shown, folded = read_tables(text)[:2]
    assert len(shown) - 1 == 20
    assert len(folded) - 1 == 10
    assert shown[1][0] == "c0"
    assert shown[1][8].startswith("alarm since batch")
    drawn = monitor_figures.evidence_figure(monitor, "risk", "").axes[0].lines
    assert len(drawn) == 12 + 1  # and the alarm


def test_where_a_figure_fails_the_page_still_says_the_verdict(monkeypatch):
    monkeypatch.setattr(monitoring, "draw", lambda _: 1 / 0)
    text, drawn = monitoring.page(seen(watch(start(SLEEP), 1)), [])
    assert "ok: no alarm in 1 batch" in text
    assert drawn == {}


@pytest.mark.parametrize(
    ("log", "text"),
    [(0, "1.0"), (np.log10(40), "40"), (np.log10(0.0123), "0.012"), (3, "1,000"), (17.2, "10^17")],
)
def test_evidence_is_shown_as_a_factor_in_few_digits(log, text):
    assert monitoring.factor(log) == text
