"""The other pandas: whichever of 2 and 3 is not installed, in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent
OTHER = "pandas>=3,<4" if pd.__version__.startswith("2.") else "pandas>=2.2,<3"
FILES = ("tests/test_serving.py", "tests/rows", "tests/report", "tests/workflows")


@pytest.mark.slow
def test_tables_and_served_answers_are_the_same_under_the_other_pandas(tmp_path):
    uv = [sys.executable, "-m", "uv"]
    if subprocess.run([*uv, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("uv is not installed")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [*uv, "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True
    )
    needed = ["-e", str(ROOT), OTHER, "pytest>=9", "pytest-xdist", "hypothesis"]
    subprocess.run([*uv, "pip", "install", "-q", "--python", str(python), *needed], check=True)
    run = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "MLFLOW" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
