"""What is served where a version abstains, end to end and for both rules."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mlflow.types.schema import DataType
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import scrib_mlflow
from scrib_mlflow import serving
from scrib_mlflow.errors import ScribError
from tests.conftest import using_copy
from tests.models import CLASSES, FEATURES, case_hashes, draw_mixture, probabilities, read_record
from tests.pages import Page, read_tables

both_rules = pytest.mark.parametrize("version", [1, 2], ids=["thresholds", "optimal"])
SERVED = ["prediction", "abstain", "reason", "prediction_set", "set_size", "candidates"]


def load(version):
    return mlflow.pyfunc.load_model(f"models:/base-scrib/{version}")


def expected_candidates(record, rows):
    """Return the candidates of rows that abstain, by the formula itself."""
    limits = [float(value) for value in record["rule"]["candidate_thresholds"]]
    named = []
    for row in probabilities(record, rows):
        ranked = np.argsort(-row)
        named.append(
            [CLASSES[j] for place, j in enumerate(ranked) if place < 2 or row[j] >= limits[j]]
        )
    return named


@both_rules
def test_candidates_are_the_two_most_probable_and_those_that_the_certify_rows_add(both, version):
    rows, record = draw_mixture(600, seed=9), read_record(version)
    answers = load(version).predict(rows[FEATURES])
    expected = expected_candidates(record, rows)
    for answer, named in zip(answers.to_dict("records"), expected, strict=True):
        assert answer["candidates"] == (named if answer["abstain"] else [answer["prediction"]])
    assert answers["abstain"].sum() > 50
    assert list(answers.columns) == SERVED


@both_rules
def test_the_thresholds_are_order_statistics_of_the_certify_rows_that_abstain(both, version):
    record, rows = read_record(version), pd.read_parquet("rows.parquet")
    labels = np.array([CLASSES.index(name) for name in rows["label"]])
    run_id = mlflow.MlflowClient().get_model_version("base-scrib", str(version)).run_id
    used = pd.read_parquet(
        mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="rows.parquet")
    )
    certify = np.isin(case_hashes(rows[FEATURES], labels), used.query("part == 'certify'")["hash"])
    asked = certify & load(version).predict(rows[FEATURES])["abstain"].to_numpy()
    for j in range(3):
        ranked = np.sort(probabilities(record, rows)[asked & (labels == j), j])
        m = int(0.05 * (len(ranked) + 1) + 1e-9)
        limit = float(record["rule"]["candidate_thresholds"][j])
        assert m > 0
        assert (ranked >= limit).sum() == len(ranked) - m + 1


@both_rules
def test_evaluate_says_how_often_candidates_hold_the_true_class(both_folder, tmp_path, version):
    with using_copy(both_folder, tmp_path / "copy"):
        done = scrib_mlflow.evaluate(f"models:/base-scrib/{version}", "fresh.parquet", "label")
        rows = pd.read_parquet("fresh.parquet")
        asked = rows.join(load(version).predict(rows[FEATURES])).query("abstain")
        held = [label in named for label, named in zip(asked.label, asked.candidates, strict=True)]
        held = pd.Series(held, asked.index)
        metrics = mlflow.get_run(done.run_id).data.metrics
        assert metrics["candidate_coverage"] == pytest.approx(held.mean())
        assert metrics["mean_candidates"] == pytest.approx(asked["candidates"].str.len().mean())
        for name in CLASSES:
            own = held[asked.label == name]
            assert metrics[f"candidate_coverage/{name}"] == pytest.approx(own.mean())
            assert done.report.by_class[name].n_named == len(own)
        assert min(held.groupby(asked.label).mean()) > 0.88


@both_rules
def test_the_gate_asks_for_candidates_that_hold_the_true_class(both_folder, tmp_path, version):
    with using_copy(both_folder, tmp_path / "copy"):
        uri = f"models:/base-scrib/{version}"
        rows = pd.read_parquet("fresh.parquet")
        asked = load(version).predict(rows[FEATURES])["abstain"]
        wrong = rows["label"].where(~asked, "hard")  # nearly all of these are other classes
        rows.assign(label=wrong).to_parquet("wrong.parquet")
        wanted = {"min_candidate_coverage": 0.9}
        assert scrib_mlflow.gate(uri, **wanted).decision.passed
        fresh = {"data": "fresh.parquet", "label": "label"}
        assert scrib_mlflow.gate(uri, **fresh, **wanted).decision.passed
        refused = scrib_mlflow.gate(uri, **fresh | {"data": "wrong.parquet"}, **wanted)
        (check,) = [each for each in refused.decision.checks if each.name == "candidates"]
        assert not check.passed
        assert check.detail.startswith("hard: ")
        asked_less = scrib_mlflow.gate(uri, **fresh | {"data": "wrong.parquet"})
        assert "candidates" not in [each.name for each in asked_less.decision.checks]


@both_rules
def test_the_report_says_where_the_true_class_is_missing_among_the_candidates(both, version):
    run_id = mlflow.MlflowClient().get_model_version("base-scrib", str(version)).run_id
    text = mlflow.artifacts.load_text(mlflow.get_run(run_id).info.artifact_uri + "/report.html")
    header, *body = next(t for t in read_tables(text) if "candidates" in t[0])
    column, true = header.index("candidates"), header.index("true class")
    missing = [row for row in body if row[column].endswith("true class missing")]
    for row in body:
        names = [name for name in CLASSES if f"{name} " in f"{row[column]} "]
        assert (row[true] in names) == (row not in missing)
        assert len(names) >= 2
    assert "candidates hold it" in Page(text).sections["abstention"]


def test_mode_paper_takes_the_fit_rows_and_says_so(mixture):
    options = {"mode": "paper", "risk_targets": 0.01}
    done = scrib_mlflow.calibrate(mixture, "rows.parquet", "label", **options)
    rule, rows = done.classifier.rule, pd.read_parquet("rows.parquet")
    assert rule.recalibration is None  # nothing of it in the paper: candidates go by the scores
    assert rule.max_candidates == 10
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(
        rows[FEATURES], params={"explain": True}
    )
    scores = np.array(answers["scores"].tolist())
    for j, name in enumerate(CLASSES):
        own = np.sort(scores[answers["abstain"] & (rows["label"] == name), j])
        m = int(0.05 * (len(own) + 1) + 1e-9)
        assert m > 0
        assert (own >= rule.candidate_thresholds[j]).sum() == len(own) - m + 1
    description = mlflow.MlflowClient().get_model_version(done.name, done.version).description
    assert "but on the rows that were fitted, which proves nothing" in description


@pytest.mark.parametrize("rule", ["thresholds", "optimal"])
def test_of_more_candidates_than_a_row_may_name_the_others_are_counted(mixture, rule):
    options = {"rule": rule, "max_candidates": 2, "candidate_coverage": 0.9999}
    done = scrib_mlflow.calibrate(mixture, "rows.parquet", "label", risk_targets=0.05, **options)
    model = mlflow.pyfunc.load_model(done.model_uri)
    outputs = model.metadata.get_output_schema()
    assert outputs.input_names() == [*SERVED, "more_candidates"]
    assert outputs.input_types()[-1] == DataType.long
    rows = draw_mixture(200, seed=9)[FEATURES]
    answers = model.predict(rows)
    asked = answers[answers["abstain"]]
    assert set(asked["candidates"].str.len()) == {2}
    assert set(asked["more_candidates"]) == {1}  # too few abstained to leave a class out
    assert set(answers[~answers["abstain"]]["more_candidates"]) == {0}
    found = scrib_mlflow.predict(done.model_uri, rows).answers
    assert found["more_candidates"].tolist() == answers["more_candidates"].tolist()
    assert done.classifier.certify_report.mean_candidates == 2
    text = mlflow.MlflowClient().get_model_version(done.name, done.version).description
    assert "No answer names more than 2" in text


def test_what_cannot_be_asked_of_candidates_is_refused(mixture):
    for options, words in (
        ({"max_candidates": 1}, "max_candidates"),
        ({"candidate_coverage": 1.0}, "candidate_coverage"),
    ):
        with pytest.raises(ScribError, match=words):
            scrib_mlflow.calibrate(mixture, "rows.parquet", "label", **options)


# Rows that cannot be scored, and the index


@both_rules
def test_answers_have_the_index_of_the_rows(both, version):
    rows = draw_mixture(30, seed=9)
    rows.index = pd.Index([f"patient {i}" for i in range(30)], name="who")[::-1]
    model = load(version)
    joined = rows.join(model.predict(rows[FEATURES]))
    plain = model.predict(rows[FEATURES].reset_index(drop=True))
    assert joined["candidates"].tolist() == plain["candidates"].tolist()
    assert joined.index.name == "who"
    none = model.predict(rows[FEATURES].head(0))
    assert len(none) == 0
    assert list(none.columns) == SERVED


odd = st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0])
changes = st.lists(st.tuples(st.integers(0, 79), st.integers(0, 3), odd), max_size=60)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(n=st.integers(2, 80), changed=changes, version=st.sampled_from([1, 2]), data=st.data())
def test_any_frame_gets_an_answer_a_row_in_order_within_the_bound(
    both, loaded, n, changed, version, data
):
    model, calls = loaded[version]
    rows = draw_mixture(80, seed=9)[FEATURES].head(n).copy()
    for row, column, value in changed:
        if row < n:
            rows.iloc[row, column] = value
    rows.index = data.draw(st.permutations(range(n)))
    calls.clear()
    finite = np.isfinite(rows).all(axis=1).to_numpy()
    if not finite.any():
        return
    answers = model.predict(rows)
    assert len(calls) <= serving.call_limit(n)
    assert answers.index.tolist() == rows.index.tolist()
    assert (answers["reason"] == "invalid_scores").tolist() == (~finite).tolist()
    alone = model.predict(rows[finite])
    pd.testing.assert_frame_equal(answers[finite], alone)


@pytest.fixture(scope="module")
def loaded(both_folder):
    """Both versions, and a list that grows with every call of the classifier in them."""
    from tests.conftest import using  # noqa: PLC0415

    found = {}
    with using(f"sqlite:///{both_folder / 'mlflow.db'}", both_folder):
        for version in (1, 2):
            model, calls = load(version), []
            native = model.unwrap_python_model().native
            model.unwrap_python_model().native = Counting(native, calls)
            found[version] = model, calls
    return found


class Counting:
    """A classifier that notes how many rows it is asked for."""

    def __init__(self, model, calls):
        self.model, self.calls = model, calls

    def predict_proba(self, rows):
        self.calls.append(len(rows))
        return self.model.predict_proba(rows)


@pytest.fixture
def picky(store):
    """A set classifier over a model that fails on towns that it has not seen."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"town": random.choice(["A", "B", "C"], 3_000)})
    rows["label"] = np.where(random.random(3_000) < 0.9, rows["town"], "A")
    model = make_pipeline(OneHotEncoder(handle_unknown="error"), LogisticRegression())
    model.fit(rows[["town"]], rows["label"])
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            model,
            name="model",
            signature=mlflow.models.infer_signature(rows[["town"]]),
            pip_requirements=["mlflow", "scikit-learn", "skops"],
            registered_model_name="picky",
        )
    rows.to_parquet("rows.parquet")
    return scrib_mlflow.calibrate("models:/picky/1", "rows.parquet", "label", risk_targets=0.3)


def test_rows_that_the_calls_do_not_reach_say_so_and_commands_reach_them_all(picky):
    towns = pd.DataFrame({"town": ["A", "?"] * 200})
    model = mlflow.pyfunc.load_model(picky.model_uri)
    quick = model.predict(towns)
    assert len(quick) == 400
    assert set(quick["reason"]) == {"", "invalid_scores", "not_scored"}
    answered = quick["reason"] == ""
    assert 0 < answered.sum() < 200
    assert (quick.loc[answered, "prediction"] == "A").all()
    assert quick.loc[~answered, "abstain"].all()
    assert quick.loc[~answered, "candidates"].tolist() == [[]] * (~answered).sum()
    every = model.predict(towns, params={"exhaustive": True})
    assert every["reason"].tolist() == ["", "invalid_scores"] * 200
    towns.to_parquet("towns.parquet")
    done = scrib_mlflow.predict(picky.model_uri, "towns.parquet", "answers")
    assert done.predictions.reasons == {"invalid_scores": 200}
    towns.assign(label=["A", "B"] * 200).to_parquet("labelled.parquet")
    found = scrib_mlflow.evaluate(picky.model_uri, "labelled.parquet", "label")
    assert found.n_invalid == 200


def test_a_batch_of_which_no_row_can_be_scored_is_an_error_that_says_why(picky):
    model = mlflow.pyfunc.load_model(picky.model_uri)
    for n, words in ((1, serving.NONE_SCORED), (7, serving.NONE_SCORED), (3_000, "send fewer")):
        rows = pd.DataFrame({"town": ["?"] * n})
        with pytest.raises(mlflow.MlflowException, match=words) as caught:
            model.predict(rows)
        assert "unknown categories" in str(caught.value)
        with pytest.raises(mlflow.MlflowException, match=serving.NONE_SCORED):
            model.predict(rows, params={"exhaustive": True})


def test_explain_names_the_classes_in_the_order_of_the_scores(both):
    rows = draw_mixture(20, seed=9)[FEATURES]
    for version in (1, 2):
        answers = load(version).predict(rows, params={"explain": True})
        assert answers["classes"].tolist() == [[*CLASSES]] * 20
        top = [
            names[int(np.argmax(s))]
            for names, s in zip(answers["classes"], answers["scores"], strict=True)
        ]
        certain = ~answers["abstain"].to_numpy()
        assert (answers["prediction"][certain] == np.array(top)[certain]).all()
        assert json.loads(answers.to_json(orient="records"))[0]["classes"] == [*CLASSES]
