"""PostgreSQL as MLflow's backend, with a server of several workers: commands at the same time."""

import mlflow
import pytest

from tests.clients import client_pool
from tests.conftest import using
from tests.models import draw_mixture
from tests.postgres import new_store, postgres  # noqa: F401  # a fixture
from tests.proxy import Fault
from tests.registry.chains import check_chain
from tests.registry.test_slowed_gates import add_versions, gates_at_once, read
from tests.registry.trials import NAME, calibrate_words, registering, site_of
from tests.test_remote import serving

pytestmark = pytest.mark.slow
N_AT_ONCE = 8


@pytest.fixture(scope="module")
def site(postgres, tmp_path_factory):  # noqa: F811
    """A server on PostgreSQL, with models and rows."""
    folder = tmp_path_factory.mktemp("postgres")
    (folder / "server").mkdir()
    with (
        client_pool(folder) as pool,
        serving(new_store(postgres), folder / "server", "--workers", "4") as address,
        site_of(folder, address, pool) as found,
    ):
        yield found


@pytest.mark.parametrize("round_", range(3))
def test_calibrations_at_the_same_time_are_all_counted(site, round_, record_property):
    rows = f"rows-{round_}.parquet"
    draw_mixture(600, seed=20 + round_).to_parquet(site.folder / rows)
    started = [
        site.pool.start(
            calibrate_words("--data", rows, "--seed", seed), site.folder, site.environment()
        )
        for seed in range(N_AT_ONCE)
    ]
    ended = [each.wait() for each in started]
    assert [each.code for each in ended] == [0] * N_AT_ONCE, [e.text for e in ended if e.code]
    numbers = sorted(
        int(run.data.tags["scrib.ledger_number"])
        for run in calibrate_runs(site)
        if run.data.params["data"] == rows
    )
    # those that see each other have the same number: never one below the order of writing
    assert all(place <= number <= N_AT_ONCE for place, number in enumerate(numbers, start=1))
    record_property("figures", f"ledger numbers of {N_AT_ONCE} at once: {numbers}")
    later = site.run(calibrate_words("--data", rows, "--seed", N_AT_ONCE))
    assert later.code == 0, later.text
    assert int(newest(site).data.tags["scrib.ledger_number"]) == N_AT_ONCE + 1


def newest(site):
    return max(calibrate_runs(site), key=lambda run: run.info.start_time)


def calibrate_runs(site):
    client = mlflow.MlflowClient(site.address)
    (experiment,) = client.search_experiments(filter_string=f"name = '{NAME}'")
    return client.search_runs(
        [experiment.experiment_id], "attributes.run_name LIKE 'calibrate%'", max_results=1000
    )


def test_gates_at_the_same_time_come_one_after_the_other(site, record_property):
    versions = add_versions(site, [0.3] * 5)
    gates = read(site, gates_at_once(site, versions, [0.0] * 5, "--alias", "raced"))
    with using(site.address, site.folder):
        chain = check_chain(NAME, "raced", gates)
    assert [gated.code for gated in gates.values()] == [0] * 5
    back = "" if len(chain) == 5 else f"; {chain[-1]} had it twice"
    record_property("figures", f"5 gates at once, all moved: {' then '.join(chain)} last{back}")


@pytest.mark.parametrize("kind", ["500", "lost", "cut", "kill_before", "kill_after"])
@pytest.mark.parametrize("where", ["model-versions/create", "registered-models/alias"])
def test_a_registration_that_fails_can_be_finished(site, kind, where, record_property):
    before = site.look()
    name = f"{where.replace('/', '-')}-{kind}"
    words = calibrate_words("--seed", "5", "--registered_model_name", name)
    promises = registering(words, name)
    ended = site.run(words, Fault(kind, where=where, method="POST"))
    assert promises.check(site, before, ended) == []
    again = promises.again(site, before, ended)
    last = site.run(again) if again else ended
    assert last.code == 0, last.text
    assert promises.finished(site, before) == []
    rerun = " then exit 0 when run again" if again else ""
    record_property("figures", f"{kind} at {where}: exit {ended.code}{rerun}")
