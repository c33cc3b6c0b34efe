"""Gates take turns on a real registry, also behind one that has died."""

import threading
import time

import mlflow

from scrib_mlflow.registry import alias


def test_gates_hold_the_turn_one_at_a_time_also_behind_a_dead_one(store, monkeypatch):
    monkeypatch.setattr(alias, "DEAD_AFTER", 1.5)
    client = mlflow.MlflowClient(store)
    client.create_registered_model("model")
    client.set_registered_model_tag("model", "scrib.gate_turn.champion.dead", "1")
    inside, most = [], []

    def gate(number):
        own = mlflow.MlflowClient(store)
        with alias.turn(own, "model", "champion", f"run{number}"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.7)
            inside.remove(number)

    threads = [threading.Thread(target=gate, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
    assert client.get_registered_model("model").tags == {}


def test_other_aliases_and_other_tags_do_not_wait(store):
    client = mlflow.MlflowClient(store)
    client.create_registered_model("model")
    client.set_registered_model_tag("model", "scrib.gate_turn.staging.x", "1")
    client.set_registered_model_tag("model", "scrib.gate_turn.champion.x", "no number")
    start = time.monotonic()
    with alias.turn(client, "model", "champion", "run"):
        pass
    assert time.monotonic() - start < alias.DEAD_AFTER
