"""What gates at the same time have left: a chain of champions, or not."""

from typing import NamedTuple

import mlflow

PASSED, REFUSED = 0, 1


class Gated(NamedTuple):
    """How a gate of a version has ended, and what its run says."""

    code: int
    passed: bool
    champion: str  # that it has decided against
    champion_abstention: float | None
    abstention: float | None


def read_gates(name, codes):
    """Return what the last gates of versions have decided, by version."""
    client = mlflow.MlflowClient()
    found = {}
    for version, code in codes.items():
        run_id = client.get_model_version(name, version).tags["scrib.gate_run_id"]
        said = mlflow.artifacts.load_dict(f"runs:/{run_id}/decision.json")
        fresh = said["fresh"] or {"champion_abstention": None, "report": {"abstention_rate": None}}
        found[version] = Gated(
            code,
            said["passed"],
            said["champion"],
            fresh["champion_abstention"],
            fresh["report"]["abstention_rate"],
        )
    return found


def check_chain(name, alias, gates, first=""):
    """Check that who has passed had the alias one after the other, each decided on the one before.

    `first` is who had it before. Nobody is refused or fails for the race alone. A gate that finds,
    when it looks for the last time, that a later one has taken the alias over decides again,
    against that one, and may take it back. Then its last decision leads back to itself: the chain
    ends there, and nothing is known of those before.
    """
    client = mlflow.MlflowClient()
    last = str(client.get_registered_model(name).aliases.get(alias, ""))
    chain = []
    while last != first:
        assert last in gates, f"{last!r} was on the alias; the chain is {chain}: {gates}"
        if last in chain:
            break
        chain.append(last)
        assert client.get_model_version(name, last).tags["scrib.previous_champion"] == (
            gates[last].champion
        )
        last = gates[last].champion
    passed = {version for version, gated in gates.items() if gated.code == PASSED}
    assert set(chain) <= passed, gates
    assert last != first or set(chain) == passed, gates
    for gated in gates.values():
        assert gated.code in {PASSED, REFUSED}, gates
        assert gated.passed == (gated.code == PASSED), gates
        assert gated.champion in {first, *passed}, gates
    return chain[::-1]
