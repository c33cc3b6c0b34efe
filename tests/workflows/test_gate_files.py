"""Stored files that were changed are noticed by the gate."""

import json
from pathlib import Path

import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow.records import seal
from tests.workflows.gates import NAME, champion, failed, tags


def stored_file(version="1"):
    """Return the path of a version's scrib.json in the artifact store."""
    uri = f"models:/{NAME}/{version}"
    source = mlflow.models.Model.load(uri).flavors["python_function"]["artifacts"]["scrib"]["path"]
    model_id = mlflow.models.get_model_info(uri).model_id
    place = mlflow.MlflowClient().get_logged_model(model_id).artifact_location
    return Path(place.removeprefix("file://")) / source


def change(version="1", *, noted=()):
    """Change a number of a stored scrib.json, and the digests noted in some places."""
    path = stored_file(version)
    record = json.loads(path.read_text())
    claim = record["certificate"]["claims"][1]
    claim["n_wrong"] = claim["n_certain"] // 2
    path.write_text(json.dumps(record))
    client, name, digest = mlflow.MlflowClient(), "scrib.certificate_digest", seal(path.read_text())
    if "version" in noted:
        client.set_model_version_tag(NAME, version, name, digest)
    if "run" in noted:
        client.set_tag(tags(version)["scrib.run_id"], name, digest)


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        ((), "the version's tag names"),
        (("version",), "the run that made it names"),
        (("version", "run"), "its counts do not give"),
    ],
    ids=["file", "file and tag", "file, tag and run"],
)
def test_a_changed_scrib_json_is_noticed_by_digests_and_by_its_own_numbers(certified, noted, words):
    change(noted=noted)
    done = scrib_mlflow.gate(f"models:/{NAME}/1")
    assert failed(done) == ["intact"]
    assert words in done.decision.checks[0].detail
    assert champion() == ""
