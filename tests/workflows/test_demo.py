"""The demo, as a newcomer runs it."""

import json
import re
import subprocess
import sys

import pytest

from scrib_mlflow.errors import ScribError
from scrib_mlflow.options import Demo
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.workflows import demo


@pytest.mark.slow
def test_the_demo_shows_an_answer_and_an_abstention_and_stops_its_server(tmp_path):
    command = [sys.executable, "-m", "scrib_mlflow", "demo", "--folder", "shown"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answered, abstained = re.findall(r"^{.*?^}", run.stdout, re.MULTILINE | re.DOTALL)
    assert json.loads(answered)["prediction"] != ""
    assert len(json.loads(abstained)["candidates"]) >= 2
    assert "digits-scrib version 1, alias candidate" in run.stderr
    assert "Passed: the alias champion is on version 1 (new)." in run.stderr
    assert "the alias champion stays on version 1." in run.stderr
    assert "ok: no alarm in 1 batch (297 rows)." in run.stderr
    assert "ALARM since batch 2" in run.stderr
    log = (tmp_path / "shown" / "server.log").read_text(encoding="utf-8")
    assert "Finished server process" in log or "Shutting down" in log
    assert [path.name for path in tmp_path.iterdir()] == ["shown"]


def test_the_demo_deletes_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "precious").write_text("data", encoding="utf-8")
    settings = read_settings(Demo, {"folder": str(tmp_path)})
    with pytest.raises(ScribError, match="not of an earlier demo"):
        demo.run(settings)
    assert (tmp_path / "precious").exists()
