"""Stored files that were changed are noticed by the gate."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException

import scrib_mlflow
from scrib_mlflow.errors import ModelError, StoreError
from scrib_mlflow.records import seal
from scrib_mlflow.results import SCHEMA_VERSION
from tests.models import register_mixture
from tests.workflows.gates import NAME, champion, failed, tags


def stored_file(version="1"):
    """Return the path of a version's scrib.json in the artifact store."""
    uri = f"models:/{NAME}/{version}"
    source = mlflow.models.Model.load(uri).flavors["python_function"]["artifacts"]["scrib"]["path"]
    model_id = mlflow.models.get_model_info(uri).model_id
    place = mlflow.MlflowClient().get_logged_model(model_id).artifact_location
    return Path(place.removeprefix("file://")) / source


def stored_folder(version="1"):
    """Return the folder of a version's files in the artifact store."""
    return stored_file(version).parent.parent.parent


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


def swap_the_classifier(folder):
    """Put other numbers into the classifier that is inside."""
    register_mixture(seed=7)
    (other,) = Path(mlflow.artifacts.download_artifacts("models:/base/2")).glob("*.skops")
    (inside,) = (folder / "artifacts").rglob("*.skops")
    shutil.copy(other, inside)


def delete_a_file(folder):
    next((folder / "artifacts").rglob("requirements.txt")).unlink()


def edit_the_served_code(folder):
    path = folder / "serving.py"
    path.write_text(path.read_text() + "\nTOUCHED = True\n")


def add_a_file(folder):
    (folder / "artifacts" / "more.py").write_text("print('here')")


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (swap_the_classifier, "model.skops"),
        (delete_a_file, "requirements.txt"),
        (edit_the_served_code, "serving.py"),
        (add_a_file, "more.py"),
    ],
)
def test_a_version_with_another_file_than_was_registered_is_refused_and_never_run(
    certified, damage, file, monkeypatch
):
    damage(stored_folder())
    loaded = []
    monkeypatch.setattr(mlflow.pyfunc, "load_model", lambda *_, **__: loaded.append(1))
    done = scrib_mlflow.gate(f"models:/{NAME}/1", data="fresh.parquet", label="label")
    assert failed(done)[0] == "intact"
    assert file in done.decision.checks[0].detail
    assert not loaded
    assert champion() == ""
    for command in (scrib_mlflow.evaluate, predict):
        with pytest.raises(ModelError, match=f"not as it was registered: .*{file}") as refused:
            command(f"models:/{NAME}/1", "fresh.parquet", "label", verify=True)
        assert refused.value.exit_code == 1


def predict(uri, data, _, **options):
    return scrib_mlflow.predict(uri, data, output="out", **options)


def test_a_whole_version_is_verified_and_what_mlflow_adds_to_a_folder_is_no_damage(certified):
    mlflow.pyfunc.load_model(f"models:/{NAME}/1")  # writes into a local artifact store
    cache = stored_folder() / "__pycache__"
    cache.mkdir()
    (cache / "serving.cpython-311.pyc").write_bytes(b"")
    assert scrib_mlflow.evaluate(
        f"models:/{NAME}/1", "fresh.parquet", "label", verify=True
    ).report.n
    assert scrib_mlflow.gate(f"models:/{NAME}/1").moved


def test_a_certificate_that_is_copied_onto_another_model_is_refused(certified):
    """Its tags are copied as well, but the run that made the other model has none."""
    copy = stored_folder().parent / "copy"
    shutil.copytree(stored_folder(), copy)
    swap_the_classifier(copy)
    with mlflow.start_run():
        scrib = json.loads(stored_file().read_text())
        Path("scrib.json").write_text(stored_file().read_text())
        logged = mlflow.pyfunc.log_model(
            name="set_classifier",
            python_model=str(copy / "serving.py"),
            artifacts={"base_model": "models:/base/2", "scrib": "scrib.json"},
            pip_requirements=["mlflow"],
        )
    assert scrib["certified"]
    made = mlflow.register_model(logged.model_uri, NAME, tags=tags())
    done = scrib_mlflow.gate(f"models:/{NAME}/{made.version}")
    assert failed(done) == ["intact"]
    assert champion() == ""


def test_a_version_whose_run_is_gone_is_refused_because_nothing_confirms_its_tags(certified):
    run_id = tags()["scrib.run_id"]
    _forget(run_id)
    done = scrib_mlflow.gate(f"models:/{NAME}/1")
    assert failed(done) == ["intact"]
    assert f"the run that made it ({run_id}) is not in this store" in done.decision.checks[0].detail


def _forget(run_id):
    """Delete a run for good, as `mlflow gc` does."""
    path = mlflow.get_tracking_uri().removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
            database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", [run_id])  # noqa: S608


def test_a_run_that_cannot_be_read_is_an_error_and_no_pass(certified, monkeypatch):
    def failing(*_):
        raise MlflowException("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow, "get_run", failing)
        with pytest.raises(StoreError, match="cannot be read: connection reset") as error:
            scrib_mlflow.gate(f"models:/{NAME}/1")
    assert error.value.exit_code == 3
    assert champion() == ""


def test_with_a_key_only_what_was_signed_with_it_passes(mixture, monkeypatch):
    given = ("models:/base/1", "rows.parquet", "label")
    options = {"risk_targets": 0.1, "rule": "thresholds"}
    scrib_mlflow.calibrate(*given, **options)
    monkeypatch.setenv("SCRIB_SIGNING_KEY", "secret one")
    scrib_mlflow.calibrate(*given, **options)

    def signature(version):
        done = scrib_mlflow.gate(f"models:/{NAME}/{version}")
        found = [check for check in done.decision.checks if check.name == "signature"]
        return [(check.passed, check.detail) for check in found], champion()

    assert signature(1) == (
        [
            (
                False,
                "SCRIB_SIGNING_KEY is set, but the version is not signed; calibrate with the key",
            )
        ],
        "",
    )
    assert signature(2) == ([(True, "it fits the certificate and all files")], "2")
    monkeypatch.setenv("SCRIB_SIGNING_KEY", "another")
    ((passed, detail),) = signature(2)[0]
    assert not passed
    assert "is not the one that SCRIB_SIGNING_KEY gives" in detail
    monkeypatch.delenv("SCRIB_SIGNING_KEY")
    ((passed, detail),) = signature(2)[0]
    assert passed
    assert "nobody has checked it" in detail
    stored = json.dumps([tags("2"), mlflow.get_run(tags("2")["scrib.run_id"]).to_dictionary()])
    assert "secret one" not in stored + stored_file("2").read_text()


def test_a_signed_version_passes_where_the_run_that_made_it_is_unknown(mixture, monkeypatch):
    monkeypatch.setenv("SCRIB_SIGNING_KEY", "secret one")
    scrib_mlflow.calibrate(
        "models:/base/1", "rows.parquet", "label", risk_targets=0.1, rule="thresholds"
    )
    _forget(tags()["scrib.run_id"])
    assert scrib_mlflow.gate(f"models:/{NAME}/1").moved
    swap_the_classifier(stored_folder())
    assert failed(scrib_mlflow.gate(f"models:/{NAME}/1")) == ["intact"]


def test_a_version_of_before_files_were_sealed_is_still_read(certified):
    path = stored_file()
    path.write_text(
        path.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 6')
    )
    client, run_id = mlflow.MlflowClient(), tags()["scrib.run_id"]
    digest = seal(path.read_text())
    client.set_tag(run_id, "scrib.certificate_digest", digest)
    client.delete_tag(run_id, "scrib.files_digest")
    client.set_model_version_tag(NAME, "1", "scrib.certificate_digest", digest)
    client.delete_model_version_tag(NAME, "1", "scrib.files_digest")
    assert scrib_mlflow.gate(f"models:/{NAME}/1").moved


def test_a_newer_version_whose_seal_was_taken_away_is_refused(certified):
    mlflow.MlflowClient().delete_model_version_tag(NAME, "1", "scrib.files_digest")
    done = scrib_mlflow.gate(f"models:/{NAME}/1")
    assert failed(done) == ["intact"]
    assert "does not say which files were registered" in done.decision.checks[0].detail


def test_a_version_that_is_not_signed_is_refused_where_its_run_is_unknown_too(
    certified, monkeypatch
):
    _forget(tags()["scrib.run_id"])
    monkeypatch.setenv("SCRIB_SIGNING_KEY", "secret one")
    done = scrib_mlflow.gate(f"models:/{NAME}/1")
    assert failed(done) == ["intact", "signature"]
    assert champion() == ""
