"""One call goes wrong, whichever it is: nothing is lost or overclaimed, and once more finishes it.

The slow tests walk through the calls of a command and let them fail one by one, in every way that
`tests/proxy.py` knows. They print their figures in the summary of pytest; `SCRIB_EVERY_FAULT=1`
tries every fault at every call, which takes hours.
"""

from concurrent.futures import ThreadPoolExecutor

import mlflow
import pytest
from click.testing import CliRunner

import scrib_mlflow
from scrib_mlflow.cli import main
from scrib_mlflow.errors import ScribError
from tests.clients import ONCE, RETRYING
from tests.conftest import PATIENCE, using
from tests.models import draw_mixture
from tests.proxy import HOLD, Fault, proxy_before
from tests.registry.chains import PASSED, REFUSED, check_chain, read_gates
from tests.registry.trials import FRESH, NAME, gating, predicting, walk
from tests.test_remote import running_server

GATE = ["gate", "--model_uri", f"models:/{NAME}/2"]
GATE_1 = ["gate", "--model_uri", f"models:/{NAME}/1"]


CALIBRATE = ["calibrate", "--model_uri", "models:/base/1", "--data", "rows.parquet"]
CALIBRATE += ["--label", "label", "--risk_targets", "0.2", "--rule", "thresholds"]
ALIAS_PATH = "/api/2.0/mlflow/registered-models/alias"
SET_ALIAS = {"where": "registered-models/alias", "method": "POST"}


@pytest.fixture(scope="module")
def proxy(certified_folder, tmp_path_factory):
    """A proxy before a server with a certified version, and with one that is not."""
    folder = tmp_path_factory.mktemp("quick")
    with (
        running_server(certified_folder / "mlflow.db", folder) as address,
        proxy_before(address) as found,
        using(found.address, folder),
    ):
        draw_mixture(1500, seed=5).to_parquet("rows.parquet")
        yield found


@pytest.fixture
def run(proxy, monkeypatch, drawn):
    """A function that runs a command here, with faults, and returns what it does and says."""

    def command(words, *faults, retrying=False):
        for name, value in (RETRYING if retrying else ONCE).items():
            monkeypatch.setenv(name, value)
        proxy.begin(*faults)
        done = CliRunner().invoke(main, words)
        proxy.begin()
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert all(fault.hit for fault in faults[:1])  # later ones may no longer be reached
        return done

    return command


def versions(name=NAME):
    return mlflow.MlflowClient().search_model_versions(f"name = '{name}'")


def test_a_lost_answer_to_a_new_version_that_mlflow_asks_for_again_makes_no_twin(run):
    done = run(CALIBRATE, Fault("lost", where="model-versions/create"), retrying=True)
    assert done.exit_code == 0, done.output
    (found,) = mlflow.MlflowClient().search_registered_models(f"name = '{NAME}'")
    made = [each for each in versions() if int(each.version) > 2]
    assert len(made) == 1
    assert made[0].description
    assert str(found.aliases["candidate"]) == str(made[0].version)


def test_a_lost_answer_to_the_alias_is_no_failure(run):
    done = run([*GATE_1, "--alias", "lost"], Fault("lost", **SET_ALIAS))
    assert done.exit_code == 0, done.output


def test_an_alias_that_nobody_can_look_at_any_more_is_said_to_be_unknown(run):
    done = run([*GATE_1, "--alias", "unknown"], Fault("cut", **SET_ALIAS))
    assert done.exit_code == 4, done.output
    again = run([*GATE_1, "--alias", "unknown"])
    assert again.exit_code == 0, again.output


def test_an_alias_that_moves_after_the_gate_has_given_up_is_said_to_be_unknown(
    run, proxy, monkeypatch
):
    for name, value in {**ONCE, "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}.items():
        monkeypatch.setenv(name, value)
    proxy.begin(Fault(HOLD, **SET_ALIAS))
    done = CliRunner().invoke(main, [*GATE_1, "--alias", "late"])
    proxy.go.set()
    proxy.idle()
    assert done.exit_code == 4, done.output
    assert str(mlflow.MlflowClient().get_registered_model(NAME).aliases["late"]) == "1"


def test_a_registry_that_is_gone_before_the_alias_moves_is_no_refusal(run):
    done = run([*GATE_1, "--alias", "outage"], Fault("outage", **SET_ALIAS))
    assert done.exit_code in {3, 4}, done.output
    assert "outage" not in mlflow.MlflowClient().get_registered_model(NAME).aliases


def test_a_gate_that_is_held_up_before_the_alias_moves_decides_against_who_came_between(run, proxy):
    made = run([*CALIBRATE, "--seed", "2", "--alias", "other"])
    assert made.exit_code == 0, made.output
    other = str(mlflow.MlflowClient().get_registered_model(NAME).aliases["other"])
    proxy.begin(Fault(HOLD, **SET_ALIAS))
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(scrib_mlflow.gate, f"models:/{NAME}/1", alias="raced")
        assert proxy.held.wait(PATIENCE)
        quick = scrib_mlflow.gate(f"models:/{NAME}/{other}", alias="raced")
        proxy.go.set()
        passed = {"1": slow.result(PATIENCE).decision.passed, other: quick.decision.passed}
    codes = {version: PASSED if each else REFUSED for version, each in passed.items()}
    chain = check_chain(NAME, "raced", read_gates(NAME, codes))
    assert sorted(chain) == ["1", other]


def test_a_gate_that_fails_after_it_has_overwritten_another_says_unknown(run, proxy, monkeypatch):
    """It has the alias, but cannot decide against the version that another gate had put there."""
    for name, value in ONCE.items():
        monkeypatch.setenv(name, value)
    proxy.begin(
        Fault(HOLD, **SET_ALIAS),
        Fault("500", where="model-versions/set-tag", after=f"POST {ALIAS_PATH}", stays=True),
    )
    client = mlflow.MlflowClient()
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(scrib_mlflow.gate, f"models:/{NAME}/1", alias="overwritten")
        assert proxy.held.wait(PATIENCE)
        between = mlflow.MlflowClient(proxy.upstream)
        between.set_registered_model_alias(NAME, "overwritten", "2")
        between.set_registered_model_tag(NAME, "scrib.gate_moved.overwritten", "2 other nonce")
        proxy.go.set()
        with pytest.raises(ScribError, match="run it again") as failed:
            slow.result(PATIENCE)
    proxy.begin()
    assert str(client.get_registered_model(NAME).aliases["overwritten"]) == "1"
    assert failed.value.exit_code == 4
    assert client.get_model_version(NAME, "1").tags["scrib.gate"] == "passed"
    assert run([*GATE_1, "--alias", "overwritten"]).exit_code == 0


def test_a_registered_model_is_not_deleted_because_the_registry_does_not_answer(run):
    before = {str(each.version) for each in versions()}
    late = {"after": "PATCH /api/2.0/mlflow/logged-models/"}
    done = run(
        [*CALIBRATE, "--seed", "1"],
        Fault("500", where="registered-models/", method="GET", **late),
        Fault("500", where="model-versions/search", stays=True, **late),
        Fault("500", **SET_ALIAS, stays=True),
    )
    assert done.exit_code != 0
    assert before <= {str(each.version) for each in versions()}


def test_what_cannot_be_looked_up_is_not_taken_for_undone(run):
    before = {str(each.version) for each in versions()}
    made = "POST /api/2.0/mlflow/model-versions/create"
    done = run(
        [*CALIBRATE, "--seed", "3"],
        Fault("500", where="model-versions/search", after=made, stays=True),
        Fault("500", **SET_ALIAS, stays=True),
    )
    assert done.exit_code == 3
    assert "what it had made could not be undone" in done.output
    assert before <= {str(each.version) for each in versions()}


def check(figures, record_property):
    record_property("figures", figures.table())
    assert not figures.broken, figures.table()


@pytest.mark.slow
def test_a_fault_in_any_call_of_a_gate_leaves_the_alias_where_its_exit_code_says(
    site, record_property
):
    check(walk(site, "gate", gating(GATE)), record_property)


@pytest.mark.slow
def test_so_it_does_with_fresh_rows(site, record_property):
    promises = gating([*GATE, *FRESH])
    check(walk(site, "gate with data", promises, all_writes=False, most=40), record_property)


@pytest.mark.slow
def test_a_fault_in_any_call_of_predict_leaves_the_output_whole_or_none(site, record_property):
    check(walk(site, "predict", predicting(), most=40), record_property)
