"""Monitor: batches of answers are counted once, in order, and speak for or against a version."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.core import monitoring as core
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, ModelError, StoreError
from scrib_mlflow.registry import monitoring as kept
from scrib_mlflow.results import from_json, to_json
from tests.clients import ONCE, client_pool
from tests.models import CLASSES, FEATURES, draw_mixture

URI = "models:/base-scrib/1"
ALIAS = "models:/base-scrib@candidate"


def batch(seed, n=400, apart=2.5, **columns):
    return draw_mixture(n, seed=seed, apart=apart).assign(id=range(n), **columns)


def tags(number=1):
    return mlflow.MlflowClient().get_model_version("base-scrib", str(number)).tags


def counted(done):
    """Return what the store says of the batches that were counted."""
    params = mlflow.get_run(done.monitor_run_id).data.params
    return {key: value.split(" ") for key, value in params.items() if key.startswith("batch_")}


def history(done):
    return [record.n_rows for record in done.monitor.history]


def test_rows_like_those_that_certify_are_ok_and_the_state_goes_on_from_batch_to_batch(certified):
    for seed in (31, 32, 33):
        done = scrib_mlflow.monitor(URI, batch(seed), label="label")
    assert history(done) == [400, 400, 400]
    assert done.number == 3
    assert not done.alarms
    assert tags()["scrib_monitor"] == "ok"
    assert tags()["scrib_monitor_run_id"] == done.monitor_run_id
    state = json.loads(mlflow.artifacts.load_text(f"runs:/{done.monitor_run_id}/monitor.json"))
    assert state["n_rows"] == 1200
    assert from_json(json.dumps(state)) == done.monitor
    steps = mlflow.MlflowClient().get_metric_history(done.monitor_run_id, "abstention_rate")
    assert [each.step for each in steps] == [1, 2, 3]
    assert mlflow.get_run(done.run_id).data.tags["mlflow.parentRunId"] == done.monitor_run_id


def test_risks_above_their_targets_raise_an_alarm_that_stays(certified):
    scrib_mlflow.monitor(URI, batch(31), label="label")
    for seed in (41, 42, 43):
        bad = scrib_mlflow.monitor(URI, batch(seed, 1000, apart=1.0), label="label")
    assert {(a.what, a.name) for a in bad.alarms} >= {("risk", name) for name in CLASSES}
    first = min(alarm.batch for alarm in bad.alarms)
    assert first > 1
    good = scrib_mlflow.monitor(URI, batch(44), label="label")
    assert set(bad.alarms) <= set(good.alarms)
    assert tags()["scrib_monitor"] == "alarm"
    assert tags()["scrib_monitor_since"] == good.alarms[0].time
    assert mlflow.get_run(good.monitor_run_id).data.metrics["alarm"] == 1


def test_a_change_of_inputs_is_seen_without_labels(certified):
    rows = [batch(seed, 1000, apart=1.0)[FEATURES] for seed in (41, 42, 43)]
    for each in rows:
        done = scrib_mlflow.monitor(URI, each)
    assert {alarm.what for alarm in done.alarms} <= {"scores", "sets"}
    assert done.alarms


def test_answers_of_predict_say_the_same_as_inputs_that_are_answered_now(certified):
    rows = batch(31)
    rows.to_parquet("batch.parquet")
    scrib_mlflow.predict(URI, "batch.parquet", "out", key="id", explain=True)
    of_answers = scrib_mlflow.monitor(URI, "out", key="id").monitor
    of_inputs = scrib_mlflow.monitor(URI, rows, key="id", restart=True).monitor
    assert of_answers.history[0].kinds == of_inputs.history[0].kinds
    assert of_answers.bins == of_inputs.bins


def test_a_log_of_requests_holds_inputs_and_answers_and_a_csv_lists_as_json(certified):
    rows = batch(31)
    answers = scrib_mlflow.predict(URI, rows).answers
    for name in ("prediction_set", "candidates"):
        answers[name] = [json.dumps(list(each)) for each in answers[name]]
    log = pd.concat([rows, answers], axis=1)
    log.to_csv("log.csv", index=False)
    done = scrib_mlflow.monitor(URI, "log.csv", label="label")
    expected = scrib_mlflow.monitor(URI, rows, label="label", restart=True)
    ours, theirs = done.monitor.history[0], expected.monitor.history[0]
    assert ours.kinds == theirs.kinds
    assert (ours.certain, ours.wrong) == (theirs.certain, theirs.wrong)
    assert (ours.asked, ours.missed) == (theirs.asked, theirs.missed)


def test_counts_of_labels_are_those_of_the_answers(certified):
    rows = batch(31, 600)
    done = scrib_mlflow.monitor(URI, rows, label="label").monitor.history[0]
    answers = scrib_mlflow.predict(URI, rows).answers
    for j, name in enumerate(CLASSES):
        of = answers[rows["label"] == name]
        assert done.certain[j] == (~of["abstain"]).sum()
        assert done.wrong[j] == (~of["abstain"] & (of["prediction"] != name)).sum()
        asked = of[of["abstain"]]
        assert done.asked[j] == len(asked)
        assert done.missed[j] == sum(name not in each for each in asked["candidates"])


def test_a_batch_that_comes_twice_is_counted_once(certified):
    rows = batch(31)
    first = scrib_mlflow.monitor(URI, rows)
    again = scrib_mlflow.monitor(URI, rows.sample(frac=1, random_state=1))
    assert again.repeated
    assert again.number == 1
    assert again.monitor == first.monitor
    assert len(counted(again)) == 1


@pytest.mark.parametrize("options", [{}, {"key": "id"}])
def test_labels_that_come_later_are_counted_with_their_batch_and_once(certified, options):
    rows = batch(31)
    scrib_mlflow.monitor(URI, rows.drop(columns="label"), **options)
    later = scrib_mlflow.monitor(URI, rows, label="label", **options)
    assert not later.repeated
    assert history(later) == [400, 0]
    assert later.monitor.n_rows == 400
    assert sum(later.monitor.certain) > 0
    again = scrib_mlflow.monitor(URI, rows, label="label", **options)
    assert again.repeated
    assert again.monitor == later.monitor


def test_with_keys_labels_may_trickle_in_and_without_they_may_not(certified):
    rows = batch(31)
    some = rows.assign(label=rows["label"].where(rows["id"] < 100))
    scrib_mlflow.monitor(URI, some, label="label", key="id")
    done = scrib_mlflow.monitor(URI, rows, label="label", key="id")
    assert [record.n_labelled for record in done.monitor.history] == [100, 300]
    audited = rows[rows["id"] < 200]
    again = scrib_mlflow.monitor(URI, audited, label="label", key="id", late_labels=True)
    assert again.monitor.history[-1].n_labelled == 0
    some_rows = scrib_mlflow.monitor(URI, some, label="label", restart=True)
    assert some_rows.monitor.history[0].n_labelled == 100
    with pytest.raises(InvalidDataError, match="give key"):
        scrib_mlflow.monitor(URI, rows, label="label")


def test_late_labels_of_rows_from_several_batches_count_as_labels_only(certified):
    first, second = batch(31), batch(32).assign(id=range(400, 800))
    for rows in (first, second):
        scrib_mlflow.monitor(URI, rows.drop(columns="label"), key="id")
    audited = pd.concat([first[:50], second[:70]])
    done = scrib_mlflow.monitor(URI, audited, label="label", key="id", late_labels=True)
    assert history(done) == [400, 400, 0]
    assert done.monitor.history[-1].n_labelled == 120


def test_batches_at_the_same_time_are_all_counted(certified):
    """Forks of one Python begin at once, so each is refused its number by those before it."""
    commands = []
    with client_pool(Path.cwd()) as pool:
        for seed in range(31, 36):
            batch(seed, 200).to_parquet(f"{seed}.parquet")
            words = ["monitor", "--model_uri", URI, "--data", f"{seed}.parquet"]
            where = ONCE | {"MLFLOW_TRACKING_URI": certified}
            commands.append(pool.start(words, Path.cwd(), where))
        ended = [command.wait() for command in commands]
    assert {each.code for each in ended} == {0}, "\n".join(each.text for each in ended if each.code)
    done = scrib_mlflow.monitor(URI, "31.parquet")
    assert done.repeated
    assert done.monitor.n_rows == 1000
    assert len(counted(done)) == 5


@pytest.mark.parametrize("broken", ["log", "log_page", "tag_version", "commit"])
def test_a_command_that_is_killed_loses_nothing_and_counts_nothing_twice(
    certified, broken, monkeypatch
):
    first = scrib_mlflow.monitor(URI, batch(31), label="label")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kept, broken, killed)
        with pytest.raises(KeyboardInterrupt):
            scrib_mlflow.monitor(URI, batch(32), label="label")
    while mlflow.active_run():
        mlflow.end_run()
    done = scrib_mlflow.monitor(URI, batch(32), label="label")
    assert done.repeated == (broken != "commit")
    assert done.monitor.n_rows == 800
    third = scrib_mlflow.monitor(URI, batch(33), label="label")
    steps = mlflow.MlflowClient().get_metric_history(first.monitor_run_id, "abstention_rate")
    assert {each.step for each in steps} == {1, 2, 3}
    assert third.monitor.n_rows == 1200


def test_a_damaged_state_is_an_error_and_no_new_beginning(certified):
    done = scrib_mlflow.monitor(URI, batch(31))
    folder = Path(mlflow.artifacts.download_artifacts(run_id=done.monitor_run_id))
    (state,) = (folder / "states").iterdir()
    state.write_text(state.read_text().replace('"n_rows": 400', '"n_rows": 401'))
    with pytest.raises(StoreError, match="damaged"):
        scrib_mlflow.monitor(URI, batch(32))
    assert scrib_mlflow.monitor(URI, batch(32), restart=True).monitor.n_rows == 400


def test_each_version_has_a_monitor_of_its_own(certified):
    first = scrib_mlflow.monitor(URI, batch(31))
    second = scrib_mlflow.monitor("models:/base-scrib/2", batch(31))  # of mode=paper
    assert second.number == 1
    assert second.monitor_run_id != first.monitor_run_id
    assert scrib_mlflow.monitor(URI, batch(32)).number == 2


def test_the_exit_code_says_that_there_is_an_alarm_only_where_asked(certified):
    batch(41, 3000, apart=0.8).to_parquet("bad.parquet")
    words = ["monitor", "--model_uri", URI, "--data", "bad.parquet", "--label", "label"]
    assert CliRunner().invoke(main, words).exit_code == 0
    again = CliRunner().invoke(main, [*words, "--fail_on_alarm", "true"])
    assert again.exit_code == 5
    assert "ALARM" in again.output.upper()
    drift = CliRunner().invoke(main, [*words, "--fail_on_alarm", "true", "--alarms", "candidates"])
    assert drift.exit_code == 0


def test_demote_moves_the_alias_back_once_and_only_to_what_passes_the_gate(certified):
    scrib_mlflow.gate(URI)
    newer = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", risk_targets=0.15)
    assert scrib_mlflow.gate(newer.model_uri).moved
    champion = "models:/base-scrib@champion"
    options = {"label": "label", "on_alarm": "demote", "alarms": "risk"}
    done = scrib_mlflow.monitor(champion, batch(41, 3000, apart=0.8), **options)
    assert done.model_uri == newer.model_uri
    client = mlflow.MlflowClient()
    assert client.get_registered_model("base-scrib").aliases["champion"] in {1, "1"}
    assert done.demoted == "1"
    bad = scrib_mlflow.monitor(champion, batch(42, 3000, apart=0.8), **options)
    assert bad.model_uri == "models:/base-scrib/1"
    assert bad.alarms
    assert client.get_registered_model("base-scrib").aliases["champion"] in {1, "1"}
    assert not bad.demoted


def test_rows_in_groups_count_once_for_each_group(certified):
    rows = draw_mixture(2000, seed=7).assign(patient=np.arange(2000) // 10)
    made = scrib_mlflow.calibrate(
        "models:/base/1", rows, "label", group="patient", risk_targets=0.25
    )
    uri = made.model_uri
    fresh = draw_mixture(600, seed=8).assign(patient=np.arange(600) // 10)
    with pytest.raises(InvalidDataError, match="no column 'patient'"):
        scrib_mlflow.monitor(uri, fresh.drop(columns="patient"))
    done = scrib_mlflow.monitor(uri, fresh, label="label").monitor
    assert sum(done.kinds) - sum(done.baseline.kinds) == 60
    more = draw_mixture(600, seed=9).assign(patient=np.arange(600) // 10 + 30)
    after = scrib_mlflow.monitor(uri, more, label="label").monitor
    assert sum(after.kinds) - sum(done.kinds) == 30
    assert after.history[-1].n_labelled == 300


def test_a_version_without_a_baseline_is_compared_with_its_first_batches(certified, monkeypatch):
    from scrib_mlflow.registry import models  # noqa: PLC0415

    monkeypatch.setattr(models, "read_baseline", lambda _: None)
    done = scrib_mlflow.monitor(URI, batch(31, 2000), label="label")
    assert not done.monitor.bins
    assert sum(done.monitor.kinds) == 2000
    changed = scrib_mlflow.monitor(URI, batch(32, 2000).query("label == 'easy'"), label="label")
    assert {alarm.what for alarm in changed.alarms} == {"sets"}


def test_labels_of_abstained_rows_alone_say_nothing_of_class_risks(certified):
    rows = batch(31, 2000, apart=1.5)
    answers = scrib_mlflow.predict(URI, rows).answers
    rows["label"] = rows["label"].where(answers["abstain"])
    done = scrib_mlflow.monitor(URI, rows, label="label")
    assert sum(done.monitor.certain) == 0
    assert done.monitor.history[0].n_labelled > 0
    assert done.monitor.history[0].n_answered_labelled == 0


def test_audited_rows_are_weighted_by_how_likely_they_were(certified):
    rows = batch(31, 4000)
    random = np.random.default_rng(5)
    probability = np.where(rows["x0"] > 0.5, 0.8, 0.4)
    rows["label"] = rows["label"].where(random.random(4000) < probability)
    rows["p"] = probability
    audit = {"audit_probability": "p", "least_audit_probability": 0.4}
    done = scrib_mlflow.monitor(URI, rows, label="label", **audit).monitor
    answers = scrib_mlflow.predict(URI, rows).answers
    easy = (rows["label"] == "easy") & ~answers["abstain"]
    assert done.certain[0] == pytest.approx((0.4 / rows["p"][easy]).sum())
    with pytest.raises(InvalidDataError, match=r"has 0\.1 for a labelled row"):
        scrib_mlflow.monitor(URI, batch(32, p=0.1), label="label", **audit)
    with pytest.raises(InvalidSettingsError, match=r"began with 0\.4"):
        scrib_mlflow.monitor(
            URI, batch(33, p=0.8), label="label", **audit | {"least_audit_probability": 0.3}
        )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"late_labels": True}, "give label"),
        ({"late_labels": True, "label": "label"}, "needs key"),
        ({"audit_probability": "x0", "least_audit_probability": 0.1}, "give label"),
        ({"audit_probability": "x0", "label": "label"}, "go together"),
        ({"alarms": "risks"}, "names some of"),
        ({"on_alarm": "demote"}, "NAME@ALIAS"),
        ({"key": "no"}, "no column 'no'"),
        ({"label": "no"}, "no column 'no'"),
        ({"time": "x0"}, "holds numbers"),
    ],
)
def test_options_that_mean_nothing_are_refused(certified, options, told):
    with pytest.raises((InvalidSettingsError, InvalidDataError), match=told):
        scrib_mlflow.monitor(URI, batch(31), **options)


def test_what_is_fixed_with_the_first_batch_cannot_be_changed(certified):
    scrib_mlflow.monitor(URI, batch(31), false_alarms=0.01)
    assert scrib_mlflow.monitor(URI, batch(32)).monitor.level == 0.01
    with pytest.raises(InvalidSettingsError, match=r"began with 0\.01"):
        scrib_mlflow.monitor(URI, batch(33), false_alarms=0.05)
    with pytest.raises(InvalidSettingsError, match="key is 'id'"):
        scrib_mlflow.monitor(URI, batch(33), key="id")


def test_rows_of_another_version_or_without_anything_to_read_are_refused(certified):
    scrib_mlflow.predict("models:/base-scrib/2", "rows.parquet", "out")
    with pytest.raises(InvalidDataError, match="are of models:/base-scrib/2"):
        scrib_mlflow.monitor(URI, "out")
    with pytest.raises(InvalidDataError, match="holds no answers"):
        scrib_mlflow.monitor(URI, batch(31)[["x0", "label"]])
    other = scrib_mlflow.predict(URI, batch(31)).answers.assign(prediction="who")
    with pytest.raises(InvalidDataError, match="'who'"):
        scrib_mlflow.monitor(URI, other)
    with pytest.raises(ModelError):
        scrib_mlflow.monitor("models:/base/1", batch(31))


def test_rows_that_were_not_scored_are_counted_as_such(certified):
    rows = batch(31)
    rows.loc[:9, "x0"] = np.nan
    done = scrib_mlflow.monitor(URI, rows)
    assert done.monitor.history[0].kinds[-1] == 10


def test_the_time_of_a_batch_is_that_of_its_latest_row(certified):
    times = pd.date_range("2026-01-01", periods=400, freq="min", tz="Europe/Berlin")
    done = scrib_mlflow.monitor(URI, batch(31, asked=times), time="asked")
    assert done.monitor.history[0].time == "2026-01-01T05:39:00+00:00"
    (metric,) = mlflow.MlflowClient().get_metric_history(done.monitor_run_id, "abstention_rate")
    assert metric.timestamp == times[-1].timestamp() * 1000


def test_states_and_baselines_are_json_that_reads_back(certified):
    done = scrib_mlflow.monitor(URI, batch(31), label="label")
    for value in (done.monitor, done.monitor.baseline):
        assert from_json(to_json(value)) == value
    assert isinstance(done.monitor.baseline, core.Baseline)


def discrete(seed, n=3000):
    """Return rows of which many are equal."""
    rows = draw_mixture(n, seed=seed)
    return rows.assign(**{name: rows[name].round() for name in FEATURES})


def test_equal_rows_do_not_stand_together_as_if_they_had_come_one_after_the_other(certified):
    made = scrib_mlflow.calibrate("models:/base/1", discrete(50), "label", risk_targets=0.3)
    for seed in range(51, 57):
        done = scrib_mlflow.monitor(made.model_uri, discrete(seed)[FEATURES])
        answers = scrib_mlflow.predict(made.model_uri, discrete(seed + 50), explain=True).answers
        done = scrib_mlflow.monitor(made.model_uri, answers)
    assert done.number == 12
    assert not done.alarms


def test_rows_that_could_not_be_scored_do_not_count_as_candidates_that_fail(certified):
    rows = batch(31, 2000)
    rows.loc[:300, "x0"] = np.nan
    done = scrib_mlflow.monitor(URI, rows, label="label")
    assert "candidates" not in {alarm.what for alarm in done.alarms}
    assert sum(done.monitor.asked) == sum(done.monitor.history[0].kinds[len(CLASSES) : -1])


def test_candidates_are_held_to_what_their_calibration_can_have_shown(certified):
    done = scrib_mlflow.monitor(URI, batch(31), label="label").monitor
    report = scrib_mlflow.from_json(
        mlflow.artifacts.load_text(f"runs:/{tags()['scrib.run_id']}/scrib.json")
    ).certify_report
    for name, limit in zip(CLASSES, done.miss_limits, strict=True):
        n, held = report.by_class[name].n_named, report.by_class[name].candidate_coverage
        upper = stats.beta.ppf(1 - 0.05 / 6, n - round(n * held) + 1, round(n * held))
        assert limit == pytest.approx(min(max(done.miss_target, upper), 0.999))


def test_columns_that_answers_would_replace_are_refused(certified):
    rows = batch(31).rename(columns={"label": "prediction"})
    with pytest.raises(InvalidSettingsError, match="'prediction' is also a column"):
        scrib_mlflow.monitor(URI, rows, label="prediction")


def test_scores_of_some_rows_only_are_not_compared(certified):
    answers = scrib_mlflow.predict(URI, batch(31, 1000, apart=1.5), explain=True).answers
    answers["scores"] = answers["scores"].where(answers["abstain"], None)
    done = scrib_mlflow.monitor(URI, answers)
    assert done.monitor.scores.batches == (0,)


def test_scores_are_read_from_json_and_from_lists_of_fixed_length(certified):
    rows = batch(31)
    answers = scrib_mlflow.predict(URI, rows, explain=True).answers.assign(id=rows["id"])
    expected = scrib_mlflow.monitor(URI, answers, key="id").monitor.bins
    fixed = pa.table(answers[["id", "prediction", "reason", "prediction_set"]])
    scores = pa.array(answers["scores"].tolist(), pa.list_(pa.float64(), 3))
    pq.write_table(fixed.append_column("scores", scores), "fixed.parquet")
    told = answers[["id", "prediction", "reason"]].copy()
    for name in ("prediction_set", "scores"):
        told[name] = [json.dumps(list(each)) for each in answers[name]]
    told.to_csv("told.csv", index=False)
    for data in ("fixed.parquet", "told.csv"):
        done = scrib_mlflow.monitor(URI, data, key="id", restart=True)
        assert done.monitor.bins == expected


def test_keys_that_begin_again_each_night_are_told(certified):
    scrib_mlflow.monitor(URI, batch(31), key="id")
    with pytest.raises(InvalidDataError, match="but with other answers; if these are other rows"):
        scrib_mlflow.monitor(URI, batch(32), key="id")
    with pytest.raises(InvalidDataError, match="keys must be unique over all batches"):
        scrib_mlflow.monitor(URI, batch(32, 401), key="id")
    longer = pd.concat([batch(31), batch(32).assign(id=range(400, 800))])
    with pytest.raises(InvalidDataError, match="% of the keys of data were in earlier"):
        scrib_mlflow.monitor(URI, longer, key="id")
    twice = batch(33).assign(id=7)
    with pytest.raises(InvalidDataError, match="stand more than once"):
        scrib_mlflow.monitor(URI, twice, key="id")


def test_groups_are_refused_where_the_version_was_certified_without(certified):
    with pytest.raises(InvalidSettingsError, match="certified by rows, without groups"):
        scrib_mlflow.monitor(URI, batch(31), group="id")


def test_requests_without_an_answer_are_not_scored_and_contradictions_are_told(certified):
    rows = batch(31)
    log = pd.concat([rows, scrib_mlflow.predict(URI, rows).answers], axis=1)
    failed = log.copy()
    failed.loc[:49, ["prediction", "reason", "prediction_set", "candidates"]] = None
    done = scrib_mlflow.monitor(URI, failed)
    assert done.monitor.history[0].kinds[-1] == 50
    with pytest.raises(InvalidDataError, match="'zzz' that its prediction"):
        scrib_mlflow.monitor(URI, log.assign(reason="zzz"))


@pytest.mark.parametrize(
    "changed",
    [
        {"prediction": [{"a": 1}] * 400},
        {"reason": [["a"]] * 400},
        {"scores": [["a"]] * 400},
        {"label": [["a"]] * 400},
        {"asked": ["1500-01-01"] * 400},
        {"prediction_set": ["['a']"] * 400},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_columns_of_an_odd_kind_are_told_in_a_line(certified, changed):
    rows = batch(31)
    log = pd.concat([rows, scrib_mlflow.predict(URI, rows).answers], axis=1).assign(**changed)
    options = {"time": "asked"} if "asked" in changed else {}
    with pytest.raises(InvalidDataError):
        scrib_mlflow.monitor(URI, log, label="label", **options)


def test_a_deleted_monitor_says_how_to_go_on(certified):
    done = scrib_mlflow.monitor(URI, batch(31))
    mlflow.delete_run(done.monitor_run_id)
    with pytest.raises(StoreError, match="mlflow runs restore"):
        scrib_mlflow.monitor(URI, batch(32))
    assert scrib_mlflow.monitor(URI, batch(32), restart=True).number == 1


def test_a_command_that_comes_late_with_its_tags_takes_back_no_alarm(certified, monkeypatch):
    tag, begun = kept.tag_version, []

    def held_up(*given):
        if not begun:
            begun.append(True)
            scrib_mlflow.monitor(URI, batch(41, 3000, apart=0.8), label="label")
        tag(*given)

    monkeypatch.setattr(kept, "tag_version", held_up)
    assert not scrib_mlflow.monitor(URI, batch(31)).alarms
    assert tags()["scrib_monitor"] == "alarm"


def test_the_lowest_audit_probability_may_be_named_with_the_first_labels(certified):
    scrib_mlflow.monitor(URI, batch(31)[FEATURES])
    audit = {"audit_probability": "p", "least_audit_probability": 0.5}
    done = scrib_mlflow.monitor(URI, batch(32, p=0.5), label="label", **audit)
    assert done.monitor.audit_floor == 0.5
