"""A server that asks who is there: whoever may not write is told before anything is scored."""

import mlflow
import pytest
import requests

import scrib_mlflow
from scrib_mlflow.errors import StoreError
from tests.conftest import PATIENCE, using
from tests.models import draw_table, register_pipeline
from tests.test_remote import running_server

pytestmark = pytest.mark.slow
pytest.importorskip("flask_wtf", reason="mlflow[auth] is not installed (extra: heavy)")
ADMIN, READER = ("admin", "a-long-admin-password"), ("reader", "a-long-reader-password")


@pytest.fixture
def server(empty_store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", ADMIN[1])
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "tests only")
    settings = tmp_path / "auth.ini"
    settings.write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{tmp_path / 'auth.db'}\nadmin_username = {ADMIN[0]}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    monkeypatch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(settings))
    with running_server(empty_store, tmp_path, "--app-name", "basic-auth") as address:
        yield address


def become(monkeypatch, user):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user[0])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", user[1])


def test_who_may_not_write_is_told_before_anything_is_scored(server, tmp_path, monkeypatch):
    become(monkeypatch, ADMIN)
    with using(server, tmp_path):
        base = register_pipeline()
        draw_table(300, seed=2).to_parquet("rows.parquet")
        scrib_mlflow.calibrate(base, "rows.parquet", "label")
        made = requests.post(
            f"{server}/api/2.0/mlflow/users/create",
            json={"username": READER[0], "password": READER[1]},
            auth=ADMIN,
            timeout=PATIENCE,
        )
        assert made.ok, made.text
        become(monkeypatch, READER)
        with pytest.raises(StoreError, match=r"no run can be started: .*[Pp]ermission"):
            scrib_mlflow.calibrate(base, "rows.parquet", "label")
        become(monkeypatch, ("reader", "wrong"))
        with pytest.raises(StoreError, match="does not answer"):
            scrib_mlflow.calibrate(base, "rows.parquet", "label")
        become(monkeypatch, ADMIN)
        every = mlflow.search_runs(search_all_experiments=True, output_format="list")
        assert len(every) == 2  # the training, one calibration
