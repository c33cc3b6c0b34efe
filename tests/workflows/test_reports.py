"""What the report of each command says of a real run."""

import json
import re
from dataclasses import replace

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.errors import ScribError
from scrib_mlflow.registry.models import read_stored
from scrib_mlflow.report.words import verdict_sentences
from scrib_mlflow.workflows import calibrate
from scrib_mlflow.workflows.gate import summary
from tests.models import FEATURES, draw_mixture
from tests.pages import Page, read_tables
from tests.workflows.gates import NAME
from tests.workflows.test_gate_files import stored_file

pytestmark = pytest.mark.usefixtures("real_page")
SECTIONS = ["certificate", "abstention", "examples", "sets", "scores", "confusion"]
SECTIONS += ["risk-coverage", "run"]
FIGURES = {"classes", "confusion", "risk_coverage", "sets", "thresholds"}


def headline(record):
    return verdict_sentences(record)[0]


def load(run_id, name="report.html"):
    return mlflow.artifacts.load_text(f"runs:/{run_id}/{name}")


def words(text):
    return " ".join("".join(Page(text).texts).split())


def figures(run_id):
    found = mlflow.MlflowClient().list_artifacts(run_id, "figures")
    return {item.path.removeprefix("figures/").removesuffix(".png") for item in found}


def calibrated_by(version):
    return mlflow.MlflowClient().get_model_version(NAME, version).tags["scrib.run_id"]


@pytest.mark.usefixtures("certified")
def test_the_report_of_a_calibration_shows_its_certificate_and_what_was_run():
    run_id = calibrated_by("1")
    text = load(run_id)
    assert list(Page(text).sections) == SECTIONS
    assert figures(run_id) == FIGURES
    claims = json.loads(load(run_id, "certificate.json"))["claims"]
    for row, claim in zip(read_tables(text)[0][1:], claims, strict=True):
        assert row[0] == claim["name"]
        assert row[1:4] == [str(claim[name]) for name in ("n", "n_certain", "n_wrong")]
        assert row[7] == f"{100 * claim['risk_upper']:.1f} %"
        assert row[9] == claim["status"] == "certified"
    told = Page(text).sections["run"]
    record = json.loads(load(run_id, "scrib.json"))
    for wanted in (record["fit_data"]["digest"], "base version 1", "seed", run_id, "numpy"):
        assert wanted in told
    run = mlflow.get_run(run_id)
    used = {each.dataset.name: each.dataset.digest for each in run.inputs.dataset_inputs}
    assert used == dict.fromkeys(("fit", "certify"), record["fit_data"]["digest"])
    note = run.data.tags["mlflow.note.content"]
    version = mlflow.MlflowClient().get_model_version(NAME, "1")
    assert "report.html" in note
    assert f"run {run_id}: its artifact report.html" in version.description
    assert (
        "Set classifiers over base" in mlflow.MlflowClient().get_registered_model(NAME).description
    )


@pytest.mark.usefixtures("certified")
def test_examples_are_rows_of_the_table_and_show_none_of_its_inputs():
    text = load(calibrated_by("1"))
    rows = pd.read_parquet("rows.parquet")
    table = next(found for found in read_tables(text) if found[0][0] == "row")
    assert len(table) > 5
    for row, label, *_ in table[1:]:
        assert rows["label"].iloc[int(row)] == label
        for value in rows[FEATURES].iloc[int(row)]:
            assert f"{value:.4f}" not in Page(text).sections["examples"]


@pytest.mark.usefixtures("certified")
def test_mode_paper_is_stamped_as_not_certified_and_shows_no_bounds():
    text = load(calibrated_by("2"))
    assert "calibrate: base-scrib not certified: mode=paper" in words(text)
    assert "Not certified: mode=paper measures the rows that it has fitted" in words(text)
    for row in read_tables(text)[0][1:]:
        assert row[7] == "-"
        assert row[9] in {"nothing proved", "risk above target"}


@pytest.mark.usefixtures("certified")
def test_an_evaluation_claims_its_bounds_and_no_more():
    done = scrib_mlflow.evaluate(f"models:/{NAME}/1", "fresh.parquet", "label")
    text = load(done.run_id)
    assert list(Page(text).sections) == SECTIONS
    assert figures(done.run_id) == FIGURES
    for row in read_tables(text)[0][1:]:
        found = done.report.by_class[row[0]]
        assert row[1:4] == [f"{n:,}" for n in (found.n, found.n_certain, found.n_wrong)]
        within = found.risk_upper <= 0.1
        assert (row[9] == "bound within target") == within
    assert "Each upper bound holds by itself at confidence 0.95" in words(text)
    seen = scrib_mlflow.evaluate(f"models:/{NAME}/1", "rows.parquet", "label")
    text = load(seen.run_id)
    assert "Nothing is proved: these are the rows of its calibration" in words(text)
    assert {row[9] for row in read_tables(text)[0][1:]} <= {"nothing proved", "risk above target"}


@pytest.mark.usefixtures("certified")
def test_rows_that_cannot_be_scored_are_counted_and_not_shown():
    table = draw_mixture(200, seed=9)
    table.loc[:19, "x0"] = float("nan")
    table.to_parquet("holes.parquet")
    done = scrib_mlflow.evaluate(f"models:/{NAME}/1", "holes.parquet", "label")
    text = load(done.run_id)
    assert "20 rows could not be scored" in words(text)
    found = next(found for found in read_tables(text) if found[0][0] == "row")
    assert all(int(row[0]) >= 20 for row in found[1:])


@pytest.mark.usefixtures("certified")
def test_a_gate_shows_its_checks_and_the_fresh_rows():
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="fresh.parquet", label="label")
    text = load(done.run_id)
    assert list(Page(text).sections) == ["checks", *SECTIONS]
    assert figures(done.run_id) == FIGURES
    checks, claims = read_tables(text)[:2]
    assert [row[:2] for row in checks[1:]] == [[check.name, "ok"] for check in done.decision.checks]
    assert {row[9] for row in claims[1:]} == {"not refuted"}
    assert "Passed: the alias champion is on version 1 (new)." in words(text)


@pytest.mark.usefixtures("certified")
def test_a_gate_without_rows_says_so_and_where_they_are():
    done = scrib_mlflow.gate(f"models:/{NAME}/2")
    text = load(done.run_id)
    assert "Refused" in words(text)
    assert "only the stored certificate was checked" in words(text)
    assert f"report.html of run {calibrated_by('2')}" in words(text)
    assert list(Page(text).sections) == ["checks", "certificate", "abstention", "elsewhere", "run"]


@pytest.mark.usefixtures("certified")
def test_a_changed_version_is_not_said_to_be_certified():
    path = stored_file()
    path.write_text(path.read_text().replace('"n_wrong": ', '"n_wrong": 1'))
    done = scrib_mlflow.gate(f"models:/{NAME}/1")
    text = load(done.run_id)
    assert "Do not rely on what its scrib.json says" in words(text)
    assert "Certified" not in words(text)
    assert {row[9] for row in read_tables(text)[1][1:]} == {"not as registered"}


@pytest.mark.usefixtures("certified")
def test_an_alias_that_could_not_be_moved_is_no_pass_in_the_report(monkeypatch):
    def denied(*_):
        raise MlflowException("Permission denied")

    monkeypatch.setattr(mlflow.MlflowClient, "set_registered_model_alias", denied)
    with pytest.raises(ScribError, match="could not be moved"):
        scrib_mlflow.gate(f"models:/{NAME}/1")
    run = mlflow.search_runs(
        order_by=["start_time DESC"], output_format="list", search_all_experiments=True
    )[0]
    told = words(load(run.info.run_id))
    assert re.search("Not moved: version 1 passed every check, but the alias champion", told)
    assert "Passed:" not in told
    assert "Not moved" in run.data.tags["mlflow.note.content"]


@pytest.mark.usefixtures("certified")
def test_a_policy_stricter_than_the_version_is_not_said_to_stand_unrefuted():
    done = scrib_mlflow.gate(
        f"models:/{NAME}/1", data="fresh.parquet", label="label", risk_targets=0.001
    )
    assert not done.decision.passed
    claims = read_tables(load(done.run_id))[1]
    assert {(row[8], row[9]) for row in claims[1:]} == {("10.0 %", "not refuted")}
    table = [line.split() for line in summary(done).splitlines() if "not refuted" in line]
    assert [row[-6:-4] for row in table[-3:]] == [["10.0", "%"]] * 3


@pytest.mark.usefixtures("certified")
def test_rows_that_were_partly_fitted_prove_nothing():
    fitted, fresh = pd.read_parquet("rows.parquet"), pd.read_parquet("fresh.parquet")
    pd.concat([fitted.iloc[:300], fresh.iloc[:400]]).to_parquet("mixed.parquet")
    done = scrib_mlflow.evaluate(f"models:/{NAME}/1", "mixed.parquet", "label")
    assert not done.fitted
    text = load(done.run_id)
    assert {row[9] for row in read_tables(text)[0][1:]} <= {"nothing proved", "risk above target"}
    assert "upper bound is within" not in words(text)


@pytest.mark.usefixtures("certified")
def test_a_report_that_cannot_be_drawn_undoes_nothing(monkeypatch):
    def broken(*_):
        raise RuntimeError("no <ink>")

    monkeypatch.setattr("scrib_mlflow.report.page.draw", broken)
    done = scrib_mlflow.calibrate("models:/base/1", "rows.parquet", "label", seed=1)
    assert mlflow.MlflowClient().get_model_version(done.name, done.version)
    told = load(done.run_id)
    assert "could not be drawn: RuntimeError" in told
    assert "<ink>" not in told
    gated = scrib_mlflow.gate(done.model_uri)
    assert "could not be drawn" in load(gated.run_id)


@pytest.mark.usefixtures("certified")
def test_a_calibration_prints_its_verdict_first_and_the_next_steps_last():
    record = read_stored(f"models:/{NAME}/1").record
    names = {"name": NAME, "version": "1", "alias": "candidate", "model_uri": f"models:/{NAME}/1"}
    done = calibrate.Calibration(**names, run_id="abc", classifier=record)
    lines = calibrate.summary(done).splitlines()
    assert len(lines) <= 25
    assert lines[0] == headline(record)
    table = [line.split() for line in lines if line.endswith("certified")]
    assert [row[0] for row in table] == list(record.classes)
    assert f"python -m scrib_mlflow gate --model_uri models:/{NAME}/1" in lines[-3]
    assert f"mlflow models serve -m models:/{NAME}@candidate --env-manager local" in lines[-2]
    assert "report.html of run abc" in lines[-1]


@pytest.mark.usefixtures("certified")
def test_a_headline_leaves_out_what_is_waived():
    record = read_stored(f"models:/{NAME}/1").record
    assert "every class risk is at most its target, if" in headline(record)
    waived = replace(record, waived=("hard",), risk_targets={"easy": 0.1, "middle": 0.1})
    told = headline(waived)
    assert "every class risk but that of hard is at most its target" in told
    none = replace(record, waived=record.classes, risk_targets={}, overall_target=0.1)
    told = headline(none)
    assert "the overall risk is at most its target, of single classes nothing is proved" in told
    assert "every class" not in told
