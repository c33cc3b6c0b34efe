"""Gates at the same time, slowed on purpose, each by its own way: they come one after the other."""

import random
from contextlib import ExitStack

import mlflow
import pytest

from tests.conftest import PATIENCE, using
from tests.proxy import HOLD, Fault, proxy_before
from tests.registry.chains import PASSED, REFUSED, check_chain, read_gates
from tests.registry.trials import NAME, calibrate_words, is_of_registry

pytestmark = pytest.mark.slow
END_SECONDS = 600


def add_versions(site, targets):
    """Register a certified version for each target, and return what it is called."""
    before = {version for _, version in site.look().known()}
    for seed, target in enumerate(targets, start=10):
        words = calibrate_words("--seed", seed, "--risk_targets", target)
        ended = site.run(words)
        assert ended.code == 0, ended.text
    client = mlflow.MlflowClient(site.address)
    made = {str(each.version): each for each in client.search_model_versions(f"name = '{NAME}'")}
    assert all(each.tags["scrib.certified"] == "true" for each in made.values())
    return sorted(set(made) - before, key=int)


def gates_at_once(site, versions, delays, *policy):
    """Run a gate of each version through a proxy of its own; return the codes by version."""
    with ExitStack() as stack:
        started = {}
        for i, (version, delay) in enumerate(zip(versions, delays, strict=True)):
            proxy = stack.enter_context(proxy_before(site.address))
            proxy.begin(delay=delay, uneven=random.Random(i))  # noqa: S311  # no secret
            words = ["gate", "--model_uri", f"models:/{NAME}/{version}", *policy]
            environment = {**site.environment(), "MLFLOW_TRACKING_URI": proxy.address}
            started[version] = site.pool.start(words, site.folder, environment)
        return {version: each.wait(END_SECONDS) for version, each in started.items()}


def read(site, ended):
    assert not [each.text for each in ended.values() if "Traceback" in each.text]
    codes = {version: each.code for version, each in ended.items()}
    assert set(codes.values()) <= {PASSED, REFUSED}, [e.text[-400:] for e in ended.values()]
    with using(site.address, site.folder):
        return read_gates(NAME, codes)


@pytest.mark.parametrize(
    "delays", [(0.0, 0.3), (0.02, 3.0), (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8), (0.02,) * 8]
)
def test_gates_slowed_by_each_its_own_way_come_one_after_the_other(site, delays, record_property):
    site.restore()
    versions = add_versions(site, [0.3] * len(delays))
    gates = read(site, gates_at_once(site, versions, delays))
    with using(site.address, site.folder):
        chain = check_chain(NAME, "champion", gates, first="1")
    codes = [gated.code for gated in gates.values()]
    assert codes == [PASSED] * len(delays)  # nothing else is in anybody's way
    record_property("figures", f"{len(delays)} gates, {delays}: {' then '.join(chain)} last")


def test_a_gate_compares_with_whoever_has_the_alias_when_it_moves(site, record_property):
    """Where each may not abstain more than the champion, later ones that do are refused."""
    site.restore()
    versions = add_versions(site, [0.1, 0.15, 0.2, 0.3, 0.12, 0.25])
    policy = ["--data", "fresh.parquet", "--label", "label", "--max_abstention_increase", "0"]
    delays = (0.0, 0.1, 0.02, 0.3, 0.05, 0.0)
    gates = read(site, gates_at_once(site, versions, delays, *policy))
    with using(site.address, site.folder):
        chain = check_chain(NAME, "champion", gates, first="1")
        own = {version: gated.abstention for version, gated in gates.items()}
        for version, gated in gates.items():
            if gated.champion in own:
                assert gated.champion_abstention == pytest.approx(own[gated.champion])
            may = own[version] <= gated.champion_abstention + 1e-9
            assert may == (gated.code == PASSED), gates
    codes = [gated.code for gated in gates.values()]
    record_property(
        "figures", f"{codes.count(0)} moved ({' then '.join(chain)}), {codes.count(1)} refused"
    )


def test_a_gate_may_be_held_up_at_any_call_of_the_registry_while_another_runs_to_its_end(
    site, record_property
):
    """To be held up at another call is, for the other gate, to be held up at the next of these."""
    site.restore()
    version, other = add_versions(site, [0.3, 0.3])
    site.save("raced")
    words = ["gate", "--model_uri", f"models:/{NAME}/{version}"]
    plain = site.run(words)
    n_back = 0
    numbers, slowest = [call.number for call in site.proxy.log if is_of_registry(call)], 0.0
    for number in numbers:
        site.restore("raced")
        site.proxy.begin(Fault(HOLD, number))
        held = site.pool.start(words, site.folder, site.environment())
        assert site.proxy.held.wait(PATIENCE)
        environment = {**site.environment(), "MLFLOW_TRACKING_URI": site.address}
        between = ["gate", "--model_uri", f"models:/{NAME}/{other}"]
        ended = {other: site.pool.start(between, site.folder, environment).wait()}
        slowest = max(slowest, ended[other].seconds)
        site.proxy.go.set()
        ended[version] = held.wait()
        gates = read(site, ended)
        with using(site.address, site.folder):
            assert len(check_chain(NAME, "champion", gates, first="1")) == 2, number
        n_back += "1" not in {gated.champion for gated in gates.values()}
    record_property(
        "figures",
        f"held at each of {len(numbers)} calls of the registry: the gate between took at most "
        f"{slowest:.1f} s, alone {plain.seconds:.1f} s; the held one took the alias back {n_back} "
        "times",
    )
