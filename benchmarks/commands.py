"""What commands cost beside bare scripts with the same MLflow calls, and how soon a typo is told.

Both are run in turn, in fresh processes, on a store of their own: 2,000 rows, three classes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import mlflow
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from benchmarks.tables import print_table, progress
from scrib_mlflow import calibrate

REPEATS, QUICK_REPEATS = 5, 2
ROWS = 2_000
FEATURES = ["x0", "x1", "x2"]


def run(*, quick: bool) -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        store = f"sqlite:///{place / 'mlflow.db'}"
        mlflow.set_tracking_uri(store)
        version, of_run = _prepare(place)
        environment = {"MLFLOW_TRACKING_URI": store}
        ours, bare, typos, imports = _scripts(place, version, of_run)
        taken: dict[str, list[float]] = {}
        for repeat in range(1 + (QUICK_REPEATS if quick else REPEATS)):
            progress(f"commands: {repeat}")
            for group, scripts in {"ours": ours, "bare": bare, "typo": typos | imports}.items():
                for name, arguments in scripts.items():
                    seconds = _seconds(arguments, place, environment, fails=name in typos)
                    if repeat:  # the first fills caches
                        taken.setdefault(f"{group} {name}", []).append(seconds)
    rows = []
    for name in ours:
        mine, other = median(taken[f"ours {name}"]), median(taken[f"bare {name}"])
        rows.append([name, f"{mine:.2f}", f"{other:.2f}", f"{mine / other:.2f}"])
    print_table(
        f"Commands beside bare scripts, seconds, medians of {len(taken['typo import mlflow'])}",
        ["command", "ours", "bare", "ratio"],
        rows,
    )
    told = [[name, f"{median(taken[f'typo {name}']):.2f}"] for name in typos | imports]
    print_table("How soon a typo is told", ["", "seconds"], told)


def _prepare(place: Path) -> tuple[Path, Path]:
    """Register a classifier and a set classifier; return the files of its version and its run."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 2 * ROWS)
    table = pd.DataFrame(
        random.normal(size=(2 * ROWS, 3)) + 2 * np.eye(3)[labels], columns=FEATURES
    )
    table = table.assign(label=np.array(["a", "b", "c"])[labels])
    table[ROWS:].to_parquet(place / "rows.parquet", index=False)
    model = LogisticRegression().fit(table[FEATURES][:ROWS], table["label"][:ROWS])
    experiment = mlflow.create_experiment("bench", artifact_location=str(place / "artifacts"))
    with mlflow.start_run(experiment_id=experiment):
        mlflow.sklearn.log_model(
            model,
            name="model",
            registered_model_name="base",
            input_example=table[FEATURES][:2],
            pip_requirements=["mlflow"],
        )
        done = calibrate("models:/base/1", str(place / "rows.parquet"), "label")
    download = mlflow.artifacts.download_artifacts
    version = download(artifact_uri=done.model_uri, dst_path=str(place / "version"))
    of_run = download(run_id=done.run_id, dst_path=str(place / "of_run"))
    return Path(version), Path(of_run)


def _scripts(place: Path, version: Path, of_run: Path) -> list[dict[str, list[str]]]:
    """Return what follows `python`, by name: commands, bare scripts, typos, imports."""
    data, command = str(place / "rows.parquet"), ["-m", "scrib_mlflow"]
    rows = ["--data", data, "--label", "label"]
    base, made = "models:/base/1", "models:/base-scrib/1"
    ours = {
        "calibrate": [*command, "calibrate", "--model_uri", base, *rows],
        "evaluate": [*command, "evaluate", "--model_uri", made, *rows],
        "gate": [*command, "gate", "--model_uri", made],
    }
    bare = {
        name: ["-m", "benchmarks.one_bare", name, uri, data, str(version), str(of_run)]
        for name, uri in (("calibrate", base), ("evaluate", made), ("gate", made))
    }
    typos = {
        "model": [*command, "calibrate", "--model_uri", "models:/bass/1", *rows],
        "option": [*command, "calibrate", "--model_uri", base, *rows, "--risk_targets", "10"],
        "file": [*command, "gate", "--model_uri", made, "--data", "no.csv", "--label", "label"],
    }
    return [ours, bare, typos, {"import mlflow": ["-c", "import mlflow"]}]


def _seconds(
    arguments: Sequence[str], place: Path, environment: dict[str, str], *, fails: bool
) -> float:
    """Return how long a fresh Python takes."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    start = time.perf_counter()
    done = subprocess.run(  # noqa: S603  # this Python, and modules of this project
        [sys.executable, *arguments],
        env={**os.environ, **environment, "PYTHONPATH": path},
        cwd=place,
        capture_output=True,
        check=False,
        text=True,
    )
    seconds = time.perf_counter() - start
    if (done.returncode != 0) != fails:
        raise RuntimeError(f"{arguments}: {done.stdout}{done.stderr}")
    return seconds
