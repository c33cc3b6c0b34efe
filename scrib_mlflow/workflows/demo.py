"""Demo: the whole story on handwritten digits, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from scrib_mlflow.adapters import servers
from scrib_mlflow.adapters.parameters import read_settings
from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.settings import Calibrate, Demo, Gate
from scrib_mlflow.workflows import calibrate, gate

TRAIN_ROWS, WORSE_ROWS, VALIDATION_ROWS = 300, 60, 1200  # of 1,797; the others are fresh
TARGET = 0.15  # about what 84 certify rows a digit can certify
MOST_MORE = 0.02  # that a new version may abstain more often than the champion
NEEDED = ("mlflow", "scikit-learn", "skops")  # to load the classifier
MARK = "made_by_scrib_demo"
NOT_OURS = (
    "MLFLOW_RUN_ID",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_REGISTRY_URI",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the demo has shown: two rows as they were served."""

    folder: str
    answered: dict[str, Any]
    abstained: dict[str, Any]
    truths: tuple[str, str]


def run(settings: Demo, say: Callable[[str], None]) -> Shown:
    """Train, register, calibrate, promote, refuse and serve, saying what comes when."""
    folder = _fresh_folder(Path(settings.folder).absolute())
    with _private_store(folder) as store:
        say("== 1. a classifier for handwritten digits, trained on 300 rows and registered")
        rows = _digits()
        _register_base(rows["train"])
        for name in ("validation", "fresh"):
            rows[name].to_parquet(folder / f"{name}.parquet")
        say("== 2. calibrate: at most 15 % wrong for each digit when it is answered, certified")
        done = _calibrate("models:/digits/1", folder, say)
        say("== 3. gate: its certificate holds, and fresh rows do not refute it")
        _gate(done, folder, say)
        say(f"== 4. a worse classifier, trained on {WORSE_ROWS} rows, goes the same way")
        _register_base(rows["train"].head(WORSE_ROWS))
        _gate(_calibrate("models:/digits/2", folder, say), folder, say)
        alias = f"models:/{done.name}@champion"
        say(f"== 5. mlflow models serve -m {alias} --env-manager local, and two requests")
        with servers.serve(alias, store, folder / "server.log") as address:
            return _ask(address, rows["fresh"], folder)


def _calibrate(model_uri: str, folder: Path, say: Callable[[str], None]) -> calibrate.Calibration:
    values = {
        "model_uri": model_uri,
        "data": str(folder / "validation.parquet"),
        "label": "digit",
        "risk_targets": TARGET,
    }
    done = calibrate.run(read_settings(Calibrate, values), say)
    say(f"\n{calibrate.summary(done)}\n")
    return done


def _gate(done: calibrate.Calibration, folder: Path, say: Callable[[str], None]) -> None:
    values = {
        "model_uri": done.model_uri,
        "data": str(folder / "fresh.parquet"),
        "label": "digit",
        "max_abstention_increase": MOST_MORE,
    }
    decided = gate.run(read_settings(Gate, values), say)
    say(f"\n{gate.summary(decided)}\n")


def summary(shown: Shown) -> str:
    """Return what a person wants to see at the end."""
    return "\n".join(
        [
            f"an answered row, in truth a {shown.truths[0]}:",
            json.dumps(shown.answered, indent=2),
            f"an abstention, in truth a {shown.truths[1]}; a person looks at the candidates:",
            json.dumps(shown.abstained, indent=2),
            "",
            "the server is stopped; everything is in one folder, to look at or to delete:",
            f"  mlflow ui --backend-store-uri sqlite:///{shown.folder}/mlflow.db",
            f"  rm -r {shown.folder}",
        ]
    )


def _ask(address: str, rows: pd.DataFrame, folder: Path) -> Shown:
    """Post real rows and return one that was answered and one that was not."""
    answers = servers.ask(address, rows.drop(columns="digit").to_dict(orient="split"))
    by_state = {bool(answer["abstain"]): i for i, answer in reversed(list(enumerate(answers)))}
    answered, abstained = by_state[False], by_state[True]
    truths = rows["digit"].tolist()
    return Shown(
        folder=str(folder),
        answered=answers[answered],
        abstained=answers[abstained],
        truths=(truths[answered], truths[abstained]),
    )


def _digits() -> dict[str, pd.DataFrame]:
    from sklearn.datasets import load_digits  # noqa: PLC0415  # seconds that only the demo needs

    loaded = load_digits(as_frame=True)
    table = loaded["data"].assign(digit=loaded["target"].astype(str))
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    last = TRAIN_ROWS + VALIDATION_ROWS
    parts = {"train": (0, TRAIN_ROWS), "validation": (TRAIN_ROWS, last), "fresh": (last, None)}
    return {name: table.iloc[start:stop] for name, (start, stop) in parts.items()}


def _register_base(train: pd.DataFrame) -> None:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    pixels = train.drop(columns="digit")
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(pixels, train["digit"])
    with mlflow.start_run(run_name="train digits"):
        mlflow.sklearn.log_model(
            model,
            name="digits",
            input_example=pixels.head(2),
            signature=mlflow.models.infer_signature(pixels, model.predict(pixels)),
            pip_requirements=[f"{name}=={version(name)}" for name in NEEDED],
            registered_model_name="digits",
        )


def _fresh_folder(folder: Path) -> Path:
    """Return an empty folder; one that an earlier demo has made is made anew."""
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken and not (folder / MARK).exists():
        msg = f"{folder} is not empty and not of an earlier demo; choose another with --folder"
        raise InvalidSettingsError(msg)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


@contextmanager
def _private_store(folder: Path) -> Iterator[str]:
    """Yield the URI of a store in the folder, which MLflow uses meanwhile."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    taken = {name: os.environ.pop(name) for name in NOT_OURS if name in os.environ}
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    try:
        mlflow.create_experiment("demo", artifact_location=str(folder / "artifacts"))
        mlflow.set_experiment("demo")
        yield uri
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None stands for the default
        os.environ.update(taken)
