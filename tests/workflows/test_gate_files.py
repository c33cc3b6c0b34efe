"""Stored files that were changed are noticed by the gate."""

import json
from pathlib import Path

import mlflow
import pytest

import scrib_mlflow
from tests.workflows.gates import NAME, champion, failed, tags


def stored_file(version="1"):
    """Return the path of a version's scrib.json in the artifact store."""
    uri = f"models:/{NAME}/{version}"
    source = mlflow.models.Model.load(uri).flavors["python_function"]["artifacts"]["scrib"]["path"]
    model_id = mlflow.models.get_model_info(uri).model_id
    place = mlflow.MlflowClient().get_logged_model(model_id).artifact_location
    return Path(place.removeprefix("file://")) / source


@pytest.mark.parametrize("what", ["thresholds", "targets", "certified", "counts"])
def test_a_changed_scrib_json_is_noticed(certified, what):
    version = "2" if what == "certified" else "1"
    path = stored_file(version)
    record = json.loads(path.read_text())
    if what == "thresholds":
        record["rule"]["thresholds"][0] -= 0.1
    elif what == "targets":
        record["risk_targets"]["hard"] = 0.01
    elif what == "certified":
        record["certified"] = True
    else:
        record["certificate"]["claims"][0]["n_wrong"] = 0
    path.write_text(json.dumps(record))
    done = scrib_mlflow.gate(f"models:/{NAME}/{version}")
    assert "intact" in failed(done)
    assert champion() == ""


def test_a_changed_scrib_json_with_a_changed_tag_is_noticed_by_its_own_numbers(certified):
    from scrib_mlflow.records import seal  # noqa: PLC0415

    path = stored_file("2")
    record = json.loads(path.read_text())
    record["certified"] = True
    path.write_text(json.dumps(record))
    client = mlflow.MlflowClient()
    digest = seal(path.read_text())
    client.set_model_version_tag(NAME, "2", "scrib.certificate_digest", digest)
    client.set_tag(tags("2")["scrib.run_id"], "scrib.certificate_digest", digest)
    done = scrib_mlflow.gate(f"models:/{NAME}/2")
    assert "intact" in failed(done)


def reseal(version, change):
    """Change a stored scrib.json, and every digest that names it."""
    from scrib_mlflow.records import seal  # noqa: PLC0415

    path = stored_file(version)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    digest = seal(path.read_text())
    client = mlflow.MlflowClient()
    client.set_model_version_tag(NAME, version, "scrib.certificate_digest", digest)
    client.set_tag(tags(version)["scrib.run_id"], "scrib.certificate_digest", digest)


@pytest.mark.parametrize("what", ["target", "level", "wrong", "path"])
def test_numbers_that_do_not_add_up_are_noticed_whatever_the_digests_say(certified, what):
    def change(record):
        certificate = record["certificate"]
        if what == "target":
            record["risk_targets"]["hard"] = 0.01
        elif what == "level":
            certificate["level"] = 0.5
        elif what == "wrong":
            certificate["claims"][1]["n_wrong"] = certificate["claims"][1]["n_certain"] // 2
        else:
            record["path"]["p_values"] = [0.5] * len(record["path"]["p_values"])

    reseal("1", change)
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1")) == ["intact"]


def test_a_version_whose_run_names_another_file_is_noticed(certified):
    mlflow.MlflowClient().set_tag(tags()["scrib.run_id"], "scrib.certificate_digest", "0" * 32)
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1")) == ["intact"]
