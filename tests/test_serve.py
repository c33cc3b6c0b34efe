"""Real requests to a real ``mlflow models serve``."""

import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest
import requests

from scrib_mlflow.workflows.demo import serve
from tests.conftest import PATIENCE, using
from tests.fuzz import SIZES, broken_json
from tests.models import CLASSES, FEATURES, draw_table

ROWS = draw_table(30, seed=11)[FEATURES]


@pytest.fixture(scope="module")
def address(calibrated_folder, tmp_path_factory):
    folder, done = calibrated_folder
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    log = tmp_path_factory.mktemp("server") / "server.log"
    alias = f"models:/{done.name}@{done.alias}"
    with using(uri, folder), serve(alias, uri, log) as found:
        yield found


def post(address, body, kind="application/json"):
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return requests.post(
        f"{address}/invocations", data=text, headers={"Content-Type": kind}, timeout=PATIENCE
    )


def strict(answer):
    """Return an answer's JSON, which must have neither NaN nor Infinity."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    return json.loads(answer.text, parse_constant=refuse)


def records(rows):
    return json.loads(rows.to_json(orient="records"))


def test_every_form_of_request_gets_the_answers_of_the_loaded_model(address, calibrated):
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(ROWS)
    expected = json.loads(expected.to_json(orient="records"))
    by_column = {name: ROWS[name].tolist() for name in FEATURES}
    bodies = [
        {"dataframe_records": records(ROWS)},
        {"dataframe_split": ROWS.to_dict(orient="split")},
        {"inputs": by_column},
        {"instances": records(ROWS)},
    ]
    for body in bodies:
        answer = post(address, body)
        assert answer.status_code == 200, answer.text
        assert strict(answer)["predictions"] == expected
    answer = post(address, ROWS.to_csv(index=False), "text/csv")
    assert strict(answer)["predictions"] == expected
    assert {row["abstain"] for row in expected} == {True, False}


def test_a_bad_row_abstains_and_the_others_are_served(address):
    rows = records(ROWS)
    good = strict(post(address, {"dataframe_records": rows}))["predictions"]
    rows[4]["x1"] = None
    answer = post(address, {"dataframe_records": rows})
    assert answer.status_code == 200
    found = strict(answer)["predictions"]
    assert found[4] == {
        "prediction": "",
        "abstain": True,
        "reason": "invalid_scores",
        "prediction_set": [],
        "set_size": 0,
        "candidates": [],
    }
    assert found[:4] + found[5:] == good[:4] + good[5:]


def test_explain_adds_numbers_in_class_order(address):
    rows = records(ROWS.head(3))
    rows[1]["x0"] = None
    answer = post(address, {"dataframe_records": rows, "params": {"explain": True}})
    found = strict(answer)["predictions"]
    assert len(found[0]["scores"]) == len(found[0]["thresholds"]) == len(CLASSES)
    assert math.isclose(sum(found[0]["scores"]), 1)
    assert found[1]["scores"] == []
    assert len(found[2]["class_miscoverage"]) == len(CLASSES)


def test_no_rows_get_no_answers(address):
    answer = post(address, {"dataframe_split": {"columns": FEATURES, "data": []}})
    assert answer.status_code == 200
    assert strict(answer) == {"predictions": []}


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": [{"x0": 1.0}]},
        {"dataframe_records": [{**dict.fromkeys(FEATURES, 1.0), "x2": "word"}]},
        {"dataframe_records": [{**dict.fromkeys(FEATURES, 1.0), "x2": None}]},
        {"dataframe_records": [{**dict.fromkeys(FEATURES, 1.0)}], "params": {"explain": "maybe"}},
        {"dataframe_records": []},
        {"rows": []},
        {"input_data": {"columns": FEATURES, "data": [[1.0] * 4]}},  # Azure's form
        "{not json",
    ],
)
def test_an_input_error_is_a_4xx_without_a_stack_trace(address, body):
    answer = post(address, body)
    assert 400 <= answer.status_code < 500
    assert "stack_trace" not in answer.text
    assert "Traceback" not in answer.text
    assert strict(answer)["message"]


@pytest.mark.parametrize("size", SIZES)
def test_answers_are_the_same_when_many_ask_at_once(size, address, record_property):
    """Good requests and bad ones, in any order: nobody gets an answer to what another one asked."""
    times, at_once = (800, 16) if size == "many" else (8, 8)
    bodies = [{"dataframe_records": records(ROWS.iloc[i : i + 5])} for i in range(0, 25, 5)]
    bodies += [{"dataframe_records": [{**records(ROWS)[0], "x1": None}, records(ROWS)[1]]}]
    bodies += [{"dataframe_records": [{"x0": 1.0}]}, "{not json"]

    def ask(body):
        answer = post(address, body)
        return answer.status_code, answer.text

    alone = [ask(body) for body in bodies]
    assert Counter(code for code, _ in alone) == {200: 6, 400: 2}
    asked = random.Random(60).choices(range(len(bodies)), k=times * len(bodies))
    with ThreadPoolExecutor(at_once) as pool:
        together = list(pool.map(lambda i: ask(bodies[i]), asked))
    wrong = sum(alone[i] != found for i, found in zip(asked, together, strict=True))
    record_property(
        "figures",
        f"{len(asked):,} requests, {at_once} at a time: "
        f"{sum(code == 200 for code, _ in together):,} answered, "
        f"{sum(code == 400 for code, _ in together):,} refused, {wrong} otherwise than alone",
    )
    assert wrong == 0


ALONE = """
import sys
for name in ("scrib_mlflow", "numba", "scrib_mlflow.serving"):
    sys.modules[name] = None  # importing it fails
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
answers = mlflow.pyfunc.load_model(sys.argv[2]).predict(pandas.read_json(sys.stdin))
print(answers.to_json(orient="records"))
"""


def test_the_model_needs_neither_this_package_nor_numba(calibrated, calibrated_folder, tmp_path):
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(ROWS)
    uri = f"sqlite:///{calibrated_folder[0] / 'mlflow.db'}"
    run = subprocess.run(
        [sys.executable, "-c", ALONE, uri, calibrated.model_uri],
        input=ROWS.to_json(),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == json.loads(expected.to_json(orient="records"))


@pytest.mark.slow
def test_mlflow_models_predict_answers_a_file(calibrated, calibrated_folder, tmp_path):
    (tmp_path / "rows.json").write_text(
        json.dumps({"dataframe_records": records(ROWS)}), encoding="utf-8"
    )
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", calibrated.model_uri]
    command += ["-i", "rows.json", "-t", "json", "-o", "answers.json", "--env-manager", "local"]
    uri = f"sqlite:///{calibrated_folder[0] / 'mlflow.db'}"
    subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": uri},
        capture_output=True,
        check=True,
    )
    found = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))["predictions"]
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(ROWS)
    assert found == json.loads(expected.to_json(orient="records"))


@pytest.mark.slow
def test_an_environment_that_uv_builds_from_the_requirements_serves_it(
    calibrated, calibrated_folder, tmp_path
):
    expected = mlflow.pyfunc.load_model(calibrated.model_uri).predict(ROWS)
    uri = f"sqlite:///{calibrated_folder[0] / 'mlflow.db'}"
    with serve(calibrated.model_uri, uri, tmp_path / "server.log", manager="uv") as found:
        answer = post(found, {"dataframe_records": records(ROWS)})
    assert strict(answer)["predictions"] == json.loads(expected.to_json(orient="records"))
    assert "scrib" not in Path(
        mlflow.pyfunc.get_model_dependencies(calibrated.model_uri)
    ).read_text(encoding="utf-8")


def broken_bodies(size):
    chance = random.Random(50)
    rows = draw_table(6, seed=11)[FEATURES]
    by_column = {name: rows[name].tolist() for name in FEATURES}
    bodies = [
        {"dataframe_records": records(rows), "params": {"explain": True}},
        {"dataframe_split": json.loads(rows.to_json(orient="split"))},
        {"inputs": by_column},
        {"instances": records(rows), "params": {"exhaustive": True}},
    ]
    for _ in range(2000 if size == "many" else 60):
        yield broken_json(json.dumps(chance.choice(bodies)), chance)


def stumbles(body):
    """Return whether MLflow itself fails, before the model sees anything of the request."""
    try:
        parts = json.loads(body)
    except RecursionError:
        return True
    except ValueError:
        return False
    split = parts.get("dataframe_split") if isinstance(parts, dict) else None
    names = split.get("columns") if isinstance(split, dict) else None
    return isinstance(names, list) and any(isinstance(name, list | dict) for name in names)


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_request_is_answered_or_refused_without_a_traceback(
    size, address, record_property
):
    counts, failures = Counter(), []
    for body in broken_bodies(size):
        answer = post(address, body.encode(errors="surrogatepass"))
        counts[answer.status_code] += 1
        most = 9000 + 20 * len(body)  # MLflow shows rows that it refuses, as wide as the widest
        if answer.status_code == 200:
            json.loads(answer.text)
        elif answer.status_code == 500 and stumbles(body):
            assert answer.text == "Internal Server Error"
        elif answer.status_code >= 500 or "Traceback" in answer.text or len(answer.text) > most:
            failures.append((answer.status_code, ascii(answer.text[:500]), ascii(body[:200])))
    codes = ", ".join(f"{n:,} with {code}" for code, n in sorted(counts.items()))
    record_property("figures", f"{sum(counts.values()):,} broken requests: {codes}")
    assert not failures, Counter(told for _, told, _ in failures).most_common(9)
    assert requests.get(f"{address}/ping", timeout=PATIENCE).ok  # it goes on in any case
