"""Rows that are chosen to be labelled, and the certificate that their labels give."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import scrib_mlflow
from scrib_mlflow import ScribError
from scrib_mlflow.registry import runs
from scrib_mlflow.workflows import calibrate as calibrating, select as selecting
from tests.conftest import using_copy
from tests.fuzz import SIZES, broken_records, campaign, read_back
from tests.models import CLASSES, FEATURES, draw_mixture, fit_pipeline, read_record
from tests.pages import read_tables

POOL, LABELS = 4000, 700
CALIBRATE = {"label": "label", "certify_data": "back.parquet"}


def write_rows(*, groups=0):
    """Write a few labelled rows, a pool, and the labels that only labellers know."""
    few = draw_mixture(300, seed=11)
    truth = draw_mixture(POOL, seed=12)
    truth.insert(0, "id", [f"row {i:04}" for i in range(POOL)])
    if groups:
        few["patient"] = [f"old {i % groups}" for i in range(len(few))]
        truth["patient"] = [f"new {i % (4 * groups)}" for i in range(POOL)]
    few.to_parquet("few.parquet")
    truth.to_parquet("truth.parquet")
    truth.drop(columns="label").to_parquet("pool.parquet")


def select(**options):
    """Select rows of the mixture."""
    given = {"key": "id", "rows": LABELS, "output": "to_label", "risk_targets": 0.05} | options
    return scrib_mlflow.select("models:/base/1", "few.parquet", "label", "pool.parquet", **given)


def label_rows(path="to_label/rows.parquet", to="back.parquet", *, without=0, change=None):
    """Fill in the true classes, but for some rows; return what comes back."""
    rows = pd.read_parquet(path)
    truth = pd.read_parquet("truth.parquet").set_index("id")["label"]
    rows["label"] = truth.loc[rows["id"]].to_numpy()
    rows.loc[rows.index[:without], "label"] = None
    rows = rows if change is None else change(rows)
    rows.to_parquet(to, index=False)
    return rows


def calibrate(run_id, **options):
    return scrib_mlflow.calibrate(selection=run_id, **(CALIBRATE | options))


@pytest.fixture(scope="session")
def selected_folder(made_once, mixture_folder, drawn):
    """A store with a selection by key, whose rows came back with labels, and its certificate."""

    def make(folder):
        with using_copy(mixture_folder, folder), drawn():
            write_rows()
            chosen = select()
            label_rows()
            done = calibrate(chosen.run_id)
            return chosen, done

    return made_once("selected", make)


@pytest.fixture
def chosen(selected_folder, tmp_path):
    """The selection, in a store of the test's own."""
    folder, (selection, _) = selected_folder
    with using_copy(folder, tmp_path):
        yield selection


@pytest.fixture
def certified_labels(selected_folder, tmp_path):
    """What calibrate made of the labels, in a store of the test's own."""
    folder, (_, done) = selected_folder
    with using_copy(folder, tmp_path):
        yield done


@pytest.fixture
def pools(mixture_folder, tmp_path):
    """A store with a classifier, and the files of rows."""
    with using_copy(mixture_folder, tmp_path):
        write_rows()
        yield tmp_path


def scores_of(rows):
    """Return the classifier's scores, by scikit-learn alone."""
    return fit_pipeline(draw_mixture(600, seed=100)).predict_proba(rows[FEATURES])


def certain(scores, rule):
    return scrib_mlflow.predict_sets(scores, rule).sum(axis=1) == 1


def test_rows_to_label_hold_key_and_inputs_and_nothing_that_leads(chosen):
    rows = pd.read_parquet("to_label/rows.parquet")
    assert list(rows.columns) == ["id", *FEATURES, "scrib_selection", "label"]
    assert rows["label"].isna().all()
    assert set(rows["scrib_selection"]) == {chosen.run_id}
    pool = pd.read_parquet("pool.parquet").set_index("id")
    pd.testing.assert_frame_equal(rows[FEATURES], pool.loc[rows["id"]].reset_index(drop=True))
    assert not rows["id"].is_monotonic_increasing
    sheet = Path("to_label/labelling.md").read_text(encoding="utf-8")
    assert f"calibrate --selection {chosen.run_id}" in sheet


def test_rows_are_drawn_from_those_that_some_rule_answers(chosen):
    rows, selection = pd.read_parquet("to_label/rows.parquet"), chosen.selection
    assert len(rows) == rows["id"].nunique() == selection.n_drawn == LABELS
    rules = [step.rule for step in selection.path.steps]
    pool = pd.read_parquet("pool.parquet")
    answered = np.any([certain(scores_of(pool), rule) for rule in rules], axis=0)
    assert set(rows["id"]) <= set(pool["id"][answered])
    assert 0.02 < 1 - answered.mean() < 0.9  # there are others
    assert selection.n_path + selection.n_open == POOL
    assert selection.n_path == pytest.approx(0.3 * POOL, abs=1)
    assert LABELS < selection.n_answered < selection.n_open


def test_the_path_and_all_that_its_test_needs_are_in_the_run(chosen):
    path = mlflow.artifacts.download_artifacts(run_id=chosen.run_id, artifact_path="selection.json")
    text = Path(path).read_text(encoding="utf-8")
    assert scrib_mlflow.from_json(text) == chosen.selection
    tags = mlflow.get_run(chosen.run_id).data.tags
    assert tags["scrib.selection_digest"]
    assert "models:/base/1" in tags["scrib.model_uri"]


def test_more_labels_are_predicted_to_prove_more(chosen):
    curve = chosen.selection.curve
    assert [point.labels for point in curve] == [175, 350, 700, 1400, 2800]
    expected = [point.expected_abstention for point in curve]
    assert expected == sorted(expected, reverse=True)
    assert all(set(point.chances) == set(CLASSES) for point in curve)
    printed = selecting.summary(chosen)
    assert "700 rows are to be labelled: they are in to_label." in printed
    assert "expected abstention" in printed
    assert f"--selection {chosen.run_id} --certify_data to_label/rows.parquet" in printed


def test_the_certificate_is_the_test_of_the_frozen_path_on_these_labels(certified_labels):
    record = certified_labels.classifier
    assert record.certified
    rows = pd.read_parquet("back.parquet")
    sets = scrib_mlflow.predict_sets(scores_of(rows), record.rule)
    single = sets.sum(axis=1) == 1
    for j, name in enumerate(CLASSES):
        claim = next(c for c in record.certificate.claims if c.name == name)
        of = single & (rows["label"] == name).to_numpy()
        assert (claim.n_certain, claim.n_wrong) == (of.sum(), (of & ~sets[:, j]).sum())
        tail = stats.binom.cdf(claim.n_tested_wrong, claim.n_tested, claim.target)
        assert claim.p_value == pytest.approx(tail)
        assert claim.p_value <= 0.05
    assert record.rule in [
        s.rule.__class__(**{**vars_of(s.rule), **candidates_of(record.rule)})
        for s in scrib_mlflow.from_json(selection_text(record)).path.steps
    ]


def vars_of(rule):
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}


def candidates_of(rule):
    return {name: getattr(rule, name) for name in ("candidate_thresholds", "max_candidates")}


def selection_text(record):
    run_id = record.selection.run_id
    path = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="selection.json")
    return Path(path).read_text(encoding="utf-8")


def test_abstention_and_sets_are_those_of_the_open_pool(certified_labels):
    record = certified_labels.classifier
    pool = pd.read_parquet("pool.parquet")
    rate = 1 - certain(scores_of(pool), record.rule).mean()
    measured = record.certify_report.abstention_rate
    assert measured == pytest.approx(rate, abs=0.02)  # of 70 % of these rows
    back = pd.read_parquet("back.parquet")
    assert 1 - certain(scores_of(back), record.rule).mean() < measured - 0.02
    truth = pd.read_parquet("truth.parquet")
    abstains = ~certain(scores_of(truth), record.rule)
    for name in CLASSES:
        true = abstains[truth["label"] == name].mean()
        estimated = record.certify_report.by_class[name].abstention_rate
        assert estimated == pytest.approx(true, abs=0.08)
    assert record.certify_report.candidate_coverage > 0.85
    page = Path(
        mlflow.artifacts.download_artifacts(
            run_id=certified_labels.run_id, artifact_path="report.html"
        )
    ).read_text(encoding="utf-8")
    assert "each as often as it stands for rows of the pool" in page
    (sets,) = [each for each in read_tables(page) if each[0][0] == "set"]
    counts = {row[0]: int(row[1].replace(",", "")) for row in sets[1:]}
    n_open = record.selection.n_open
    assert sum(counts.values()) == n_open
    assert counts["one class: certain"] == round((1 - measured) * n_open)


def test_version_and_gate_say_how_rows_were_drawn(certified_labels):
    done = certified_labels
    tags = mlflow.MlflowClient().get_model_version(done.name, done.version).tags
    assert tags["scrib.selection"] == done.classifier.selection.run_id
    printed = calibrating.summary(done)
    assert "if new rows come from where the 4,000 rows of the pool came from" in printed
    assert "700 rows that were drawn to be labelled at random from the" in printed
    gated = scrib_mlflow.gate(done.model_uri)
    assert gated.moved
    detail = next(c.detail for c in gated.decision.checks if c.name == "certified")
    assert "its 700 certify rows were drawn by run" in detail
    run = mlflow.get_run(done.run_id)
    assert run.data.metrics["abstention_rate"] == done.classifier.certify_report.abstention_rate


def test_the_gate_refuses_rows_of_the_selection_as_seen(certified_labels):
    rows = pd.read_parquet("back.parquet").drop(columns="scrib_selection")
    rows.to_parquet("again.parquet")
    gated = scrib_mlflow.gate(certified_labels.model_uri, data="again.parquet", label="label")
    assert not gated.moved
    assert not next(c.passed for c in gated.decision.checks if c.name == "unseen rows")


def test_a_path_tested_once_is_one_use_and_other_labels_are_another(certified_labels):
    run_id = certified_labels.classifier.selection.run_id
    assert certified_labels.classifier.use.number == 1
    assert calibrate(run_id).classifier.use.number == 1
    rows = label_rows()
    other = {"easy": "hard", "hard": "middle", "middle": "easy"}
    rows.loc[0, "label"] = other[rows.loc[0, "label"]]
    rows.to_parquet("other.parquet", index=False)
    assert calibrate(run_id, certify_data="other.parquet").classifier.use.number == 2
    again = select(output="more", seed=1)
    label_rows("more/rows.parquet")
    assert calibrate(again.run_id).classifier.use.number == 3  # of the same pool


def changed_input(rows):
    rows.loc[3, "x1"] += 0.5
    return rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.iloc[2:], "2 are missing (row "),
        (lambda rows: rows.assign(id=["new", *rows["id"][1:]]), "1 is missing"),
        (
            lambda rows: pd.concat([rows, rows.head(1).assign(id="row from elsewhere")]),
            "1 is added (row from elsewhere)",
        ),
        (changed_input, "1 is changed (row "),
        (lambda rows: rows.assign(label=""), "is empty; label the rows"),
        (lambda rows: rows.assign(label="unheard of"), "'unheard of'"),
        (lambda rows: rows.drop(columns="x2"), "has no column 'x2', which the rows had"),
        (lambda rows: rows.drop(columns="id"), "has no column 'id', which key names"),
    ],
)
def test_rows_that_are_not_exactly_those_drawn_are_refused(chosen, change, said):
    label_rows(change=change)
    with pytest.raises(ScribError) as error:
        calibrate(chosen.run_id)
    assert said in str(error.value)
    versions = mlflow.MlflowClient().search_model_versions("name = 'base-scrib'")
    assert len(versions) == 1  # of the fixture


def test_the_order_of_the_rows_that_come_back_does_not_matter(certified_labels):
    label_rows(change=lambda rows: rows.sample(frac=1, random_state=3).assign(note="x"))
    again = calibrate(certified_labels.classifier.selection.run_id).classifier
    assert again.certificate == certified_labels.classifier.certificate


def test_a_row_without_a_label_counts_as_an_error_of_every_class_it_could_be(chosen, caplog):
    label_rows(without=4)
    done = calibrate(chosen.run_id)
    assert "4 of the 700 rows came back without a label" in caplog.text
    assert done.classifier.selection.n_unlabelled == 4
    rows = pd.read_parquet("back.parquet")
    record = done.classifier
    sets = scrib_mlflow.predict_sets(scores_of(rows), record.rule)
    single, unknown = sets.sum(axis=1) == 1, rows["label"].isna().to_numpy()
    for j, claim in enumerate(record.certificate.claims):
        of = single & (rows["label"] == claim.name).to_numpy()
        against = single & unknown & ~sets[:, j]
        assert claim.n_certain == of.sum() + against.sum()
        assert claim.n_wrong == (of & ~sets[:, j]).sum() + against.sum()
        tail = stats.binom.cdf(claim.n_wrong, claim.n_certain, claim.target)
        assert claim.p_value == pytest.approx(tail)
        assert claim.n_tested is None
        counted = record.certify_report.by_class[claim.name]
        assert (counted.n_certain, counted.n_wrong) == (claim.n_certain, claim.n_wrong)
        assert counted.risk >= claim.risk - 1e-12
        if record.certified:  # else the rule may answer rows of the kind that was not drawn
            assert counted.risk == pytest.approx(claim.risk)
        bound = stats.beta.ppf(0.95, claim.n_wrong + 1, claim.n_certain - claim.n_wrong)
        assert counted.risk_upper == pytest.approx(bound)
        logged = mlflow.get_run(done.run_id).data.metrics[f"risk_upper/{claim.name}"]
        assert logged == pytest.approx(bound)
    wrong = (
        single
        & ~sets[
            np.arange(len(rows)),
            rows["label"].map({name: j for j, name in enumerate(CLASSES)}).fillna(0).astype(int),
        ]
    )
    assert record.certify_report.n_wrong == (wrong | (single & unknown)).sum()
    assert record.certify_report.overall_risk >= (wrong | (single & unknown)).sum() / single.sum()
    printed = calibrating.summary(done)
    assert "counts as an error of every class that it could be" in printed
    if record.certified:
        assert scrib_mlflow.gate(done.model_uri).decision.checks[0].passed


def test_options_are_as_they_were_fixed(chosen):
    label_rows()
    for options, said in (
        ({"risk_targets": 0.2}, "risk_targets was fixed when the rows were drawn, as 0.05"),
        ({"seed": 4}, "seed was fixed"),
        ({"data": "few.parquet"}, "data does not go with selection"),
        ({"path_data": "pool.parquet"}, "path_data does not go with selection"),
        ({"model_uri": "models:/base/2"}, "model_uri was fixed .* as 'models:/base/1'"),
        ({"certify_data": None}, "certify_data is missing"),
    ):
        with pytest.raises(ScribError, match=said):
            calibrate(chosen.run_id, **options)
    with pytest.raises(ScribError, match="must be a run of select"):
        calibrate("0" * 32)
    done = calibrate(chosen.run_id, risk_targets=0.05, registered_model_name="chosen")
    assert done.name == "chosen"


@pytest.mark.parametrize("name", ["selection.json", "selection.parquet"])
def test_a_selection_that_was_changed_certifies_nothing(chosen, name):
    label_rows()
    place = mlflow.get_run(chosen.run_id).info.artifact_uri.removeprefix("file://")
    path = Path(place) / name
    if name == "selection.json":
        content = json.loads(path.read_text(encoding="utf-8"))
        content["settings"]["risk_targets"] = 0.01
        path.write_text(json.dumps(content), encoding="utf-8")
    else:
        rows = pd.read_parquet(path)
        rows["score 0"] = rows["score 1"]
        rows.to_parquet(path)
    with pytest.raises(ScribError, match="was changed"):
        calibrate(chosen.run_id)


def test_rows_that_were_drawn_are_refused_wherever_they_would_stand_for_all(chosen):
    label_rows()
    uri, version = "models:/base/1", "models:/base-scrib/1"
    for attempt in (
        lambda: scrib_mlflow.calibrate(uri, "back.parquet", "label"),
        lambda: scrib_mlflow.calibrate(uri, "few.parquet", "label", certify_data="back.parquet"),
        lambda: scrib_mlflow.evaluate(version, "back.parquet", "label"),
        lambda: scrib_mlflow.gate(version, data="back.parquet", label="label"),
        lambda: scrib_mlflow.frontier(uri, "back.parquet", "label"),
        lambda: select(output="more") if label_pool() else None,
    ):
        with pytest.raises(ScribError, match="were drawn by select"):
            attempt()


def label_pool():
    """Hand out the rows that were drawn as if they were a pool."""
    pd.read_parquet("back.parquet").to_parquet("pool.parquet")
    return True


def test_labels_come_back_by_csv(pools):
    chosen = select(format="csv", rule="thresholds", risk_targets=0.08)
    rows = pd.read_csv("to_label/rows.csv")
    truth = pd.read_parquet("truth.parquet").set_index("id")["label"]
    rows["label"] = truth.loc[rows["id"]].to_numpy()
    rows.to_csv("back.csv", index=False)
    done = calibrate(chosen.run_id, certify_data="back.csv")
    assert done.classifier.certified
    assert done.classifier.rule.kind == "thresholds"


def test_labels_come_back_by_an_export_of_label_studio(pools):
    chosen = select(format="label_studio")
    tasks = json.loads(Path("to_label/tasks.json").read_text(encoding="utf-8"))
    data = tasks[0]["data"]
    assert data["row"] == {name: data[name] for name in FEATURES}
    interface = Path("to_label/labels.xml").read_text(encoding="utf-8")
    assert all(f'<Choice value="{name}"/>' in interface for name in CLASSES)
    truth = pd.read_parquet("truth.parquet").set_index("id")["label"]
    # as its csv export: the columns of a task, and the choice under the name of its control
    export = pd.DataFrame(
        {**task["data"], "label": truth[task["data"]["id"]], "annotator": 1, "lead_time": 2.5}
        for task in tasks
    )
    export.to_csv("export.csv", index=False)
    assert calibrate(chosen.run_id, certify_data="export.csv").classifier.certified
    assert chosen.labelled == "to_label/export.csv"


def test_rows_without_a_key_are_known_by_what_they_hold(pools):
    pool = pd.read_parquet("pool.parquet")
    truth = pd.read_parquet("truth.parquet")
    pool.drop(columns="id").to_parquet("pool.parquet")
    chosen = select(key=None)
    rows = pd.read_parquet("to_label/rows.parquet")
    assert "id" not in rows
    joined = rows.drop(columns="label").merge(truth.drop(columns="id"), on=FEATURES)
    joined.to_parquet("back.parquet", index=False)
    assert calibrate(chosen.run_id).classifier.certified
    joined.iloc[1:].to_parquet("back.parquet", index=False)
    with pytest.raises(ScribError, match="1 is missing"):
        calibrate(chosen.run_id)


def test_whole_groups_are_drawn_and_certified_as_such(mixture_folder, tmp_path):
    with using_copy(mixture_folder, tmp_path):
        write_rows(groups=60)
        chosen = select(group="patient", rows=1200, risk_targets=0.1)
        rows = pd.read_parquet("to_label/rows.parquet")
        rules = [step.rule for step in chosen.selection.path.steps]
        pool = pd.read_parquet("pool.parquet")
        answered = np.any([certain(scores_of(pool), rule) for rule in rules], axis=0)
        drawn = pool["patient"].isin(rows["patient"])
        assert set(rows["id"]) == set(pool["id"][drawn & answered])
        assert rows["patient"].nunique() == chosen.selection.n_groups
        assert len(rows) == pytest.approx(1200, rel=0.1)
        assert rows["patient"].is_monotonic_increasing  # rows of a group together
        label_rows()
        record = calibrate(chosen.run_id).classifier
        assert record.certified
        assert record.certificate.group_cap == chosen.selection.group_test.cap
        assert record.certificate.n_groups == chosen.selection.n_groups
        label_rows(without=1)
        with pytest.raises(ScribError, match="group_test=exact"):
            calibrate(chosen.run_id)


def test_equal_rows_of_two_groups_come_back_in_any_order(mixture_folder, tmp_path):
    with using_copy(mixture_folder, tmp_path):
        write_rows(groups=60)
        half = pd.read_parquet("pool.parquet").drop(columns="id").head(POOL // 2)
        twice = pd.concat([half, half.assign(patient=half["patient"] + " again")])
        twice.to_parquet("pool.parquet", index=False)
        chosen = select(group="patient", rows=1200, risk_targets=0.1, key=None)
        rows = pd.read_parquet("to_label/rows.parquet")
        assert rows.duplicated(FEATURES).any()
        truth = pd.read_parquet("truth.parquet")[[*FEATURES, "label"]]
        back = rows.drop(columns="label").merge(truth, on=FEATURES).sample(frac=1, random_state=1)
        back.to_parquet("back.parquet", index=False)
        assert calibrate(chosen.run_id).classifier.certificate.n_groups > 0
        back["patient"] = back["patient"].iloc[0]
        back.to_parquet("back.parquet", index=False)
        with pytest.raises(ScribError, match=r"rows that were drawn: .* missing"):
            calibrate(chosen.run_id)


def test_an_alias_that_moves_changes_nothing_about_a_selection(pools):
    client = mlflow.MlflowClient()
    client.set_registered_model_alias("base", "prod", "1")
    given = {"key": "id", "rows": LABELS, "output": "to_label", "risk_targets": 0.05}
    chosen = scrib_mlflow.select(
        "models:/base@prod", "few.parquet", "label", "pool.parquet", **given
    )
    label_rows()
    register_other(client)
    client.set_registered_model_alias("base", "prod", "2")
    done = calibrate(chosen.run_id)
    assert done.classifier.certified
    assert done.classifier.base.uri == "models:/base/1"
    client.delete_registered_model_alias("base", "prod")
    client.delete_registered_model("base")
    register_other(client)
    with pytest.raises(ScribError, match="is not the model that scored the pool"):
        calibrate(chosen.run_id, registered_model_name="other")


def register_other(client):
    """Register a classifier with the same inputs and classes that gives other scores."""
    model = fit_pipeline(draw_mixture(100, seed=5))
    inputs = draw_mixture(5, seed=6)[FEATURES]
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            model,
            name="model",
            signature=mlflow.models.infer_signature(inputs, model.predict(inputs)),
            registered_model_name="base",
            pip_requirements=["scikit-learn"],
            serialization_format="cloudpickle",
        )


def test_copies_in_a_pool_are_told_and_dropped_where_asked(pools, caplog):
    pool = pd.read_parquet("pool.parquet").drop(columns="id")
    pd.concat([pool, pool]).to_parquet("pool.parquet", index=False)
    chosen = select(key=None, rows=1500)
    assert "4,000 of the 8,000 rows of the pool repeat another one" in caplog.text
    rows = pd.read_parquet("to_label/rows.parquet")
    assert rows.duplicated(FEATURES).any()
    truth = pd.read_parquet("truth.parquet")[[*FEATURES, "label"]]
    rows.drop(columns="label").merge(truth, on=FEATURES).to_parquet("back.parquet")
    done = calibrate(chosen.run_id)
    told = "nothing is proved: select anew with duplicates=drop"
    assert told in caplog.text
    assert told in calibrating.summary(done)
    chosen = select(key=None, rows=1500, duplicates="drop", output="once")
    rows = pd.read_parquet("once/rows.parquet")
    assert len(rows) == 1500
    assert not rows.duplicated(FEATURES).any()
    assert chosen.selection.n_path + chosen.selection.n_open == POOL
    rows.drop(columns="label").merge(truth, on=FEATURES).to_parquet("back.parquet")
    assert calibrate(chosen.run_id).classifier.n_repeated == 0


def test_groups_that_a_csv_would_not_give_back_are_refused_before_anybody_labels(
    mixture_folder, tmp_path
):
    with using_copy(mixture_folder, tmp_path):
        write_rows(groups=60)
        pool = pd.read_parquet("pool.parquet")
        pool["patient"] = pool["patient"].str.removeprefix("new ").str.zfill(4)
        pool.to_parquet("pool.parquet")
        for kind in ("csv", "label_studio"):
            with pytest.raises(ScribError, match="'patient' of pool does not survive a csv"):
                select(group="patient", format=kind)


def test_keys_of_bytes_are_refused_where_label_studio_would_change_them(pools):
    pool = pd.read_parquet("pool.parquet")
    pool["id"] = [name.encode() for name in pool["id"]]
    pool.to_parquet("pool.parquet")
    with pytest.raises(ScribError, match="'id' of pool does not survive"):
        select(format="label_studio")


def test_no_row_of_the_pool_may_have_the_key_of_a_labelled_row(pools):
    few = pd.read_parquet("few.parquet")
    few["id"] = [f"old {i}" for i in range(len(few))]
    few.to_parquet("few.parquet")
    chosen = select()
    assert {"fit keys", "path keys"} <= set(runs.read_row_hashes(chosen.run_id))
    few.loc[7, "id"] = "row 0007"
    few.to_parquet("few.parquet")
    with pytest.raises(ScribError, match="1 rows of pool have the key of a row in data"):
        select(output="more")


def test_scores_of_a_model_that_mlflow_lacks_are_selected_from_by_key(pools):
    for name in ("few", "pool"):
        table = pd.read_parquet(f"{name}.parquet")
        scores = pd.DataFrame(scores_of(table), columns=[f"p_{each}" for each in CLASSES])
        pd.concat([table.drop(columns=FEATURES), scores], axis=1).to_parquet(f"{name}.parquet")
    options = {
        "scores_from": f"columns:[{', '.join(f'p_{each}' for each in CLASSES)}]",
        "classes": [*CLASSES],
        "rows": LABELS,
        "risk_targets": 0.05,
    }
    given = {"data": "few.parquet", "label": "label", "pool": "pool.parquet"}
    with pytest.raises(ScribError, match="key is missing"):
        scrib_mlflow.select(**given, **options, output="to_label")
    chosen = scrib_mlflow.select(**given, **options, key="id", output="to_label")
    assert list(pd.read_parquet("to_label/rows.parquet")) == ["id", "scrib_selection", "label"]
    label_rows()
    done = calibrate(chosen.run_id)
    assert done.classifier.certified
    assert done.model_uri == f"runs:/{done.run_id}"


def test_targets_that_cannot_be_proved_leave_a_plain_fit_and_advice(pools):
    chosen = select(risk_targets=0.004, rows=300)
    assert chosen.selection.curve[2].chance < 0.05
    label_rows()
    done = calibrate(chosen.run_id)
    assert not done.classifier.certified
    assert done.version == "1"
    assert done.classifier.advice is not None
    printed = calibrating.summary(done)
    assert printed.startswith("Not certified")
    assert "It may also answer rows of the kind that was not drawn" in printed


def test_a_pool_that_is_no_pool_is_refused(pools):
    few = pd.read_parquet("few.parquet")
    truth = pd.read_parquet("truth.parquet")
    truth.drop(columns="id").head(500).to_parquet("few.parquet")
    with pytest.raises(ScribError, match="500 of the 4,000 rows of pool stand in data"):
        select()
    few.to_parquet("few.parquet")
    with pytest.raises(ScribError, match=r"only [\d,]+ rows that could be labelled are answered"):
        select(rows=3500)
    Path("there").mkdir()
    Path("there", "notes.txt").write_text("mine")
    with pytest.raises(ScribError, match="output there is there and not empty"):
        select(output="there")
    with pytest.raises(ScribError, match="holds the data"):
        select(output=str(pools))
    few.rename(columns={"label": "id"}).to_parquet("named.parquet")
    with pytest.raises(ScribError, match="label is 'id', which is a column of pool"):
        scrib_mlflow.select(
            "models:/base/1", "named.parquet", "id", "pool.parquet", key="id", output="to_label"
        )
    assert not Path("to_label").exists()
    pool = pd.read_parquet("pool.parquet")
    pool.assign(id=[f"{i:05}" for i in range(POOL)]).to_parquet("pool.parquet")
    with pytest.raises(ScribError, match="'id' of pool does not survive a csv"):
        select(format="csv")


def test_scrib_json_says_how_rows_were_drawn(certified_labels):
    record = read_record(certified_labels.version)
    assert record["schema_version"] == 8
    assert list(record["selection"]) == [
        *("run_id", "digest", "n_pool", "n_path", "n_open", "n_answered", "n_drawn"),
        *("n_unlabelled", "n_groups", "n_beyond"),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_selection_json_is_read_or_refused_in_a_line(
    size, selected_folder, record_property
):
    paths = sorted(selected_folder[0].rglob("selection.json"))
    text = paths[0].read_text(encoding="utf-8")
    campaign("selection.json", broken_records(text, size, seed=20), read_back, record_property)
