"""Demo: the whole story on handwritten digits, in a folder of its own."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
from mlflow.data.pandas_dataset import from_pandas

from scrib_mlflow.errors import InvalidSettingsError, StoreError
from scrib_mlflow.options import Demo
from scrib_mlflow.workflows import calibrate, gate, monitor

LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"
START_SECONDS = 180
STOP_SECONDS = 20
ANSWER_SECONDS = 60
TRAIN_ROWS, WORSE_ROWS, VALIDATION_ROWS = 300, 60, 1200  # of 1,797; the others are fresh
COVERAGE = 0.9  # of the candidates of abstentions
TARGET = 0.15  # about what 84 certify rows a digit can certify
BATCH_ROWS = 300  # that are monitored
MOST_MORE = 0.02  # that a new version may abstain more often than the champion
NEEDED = ("mlflow", "scikit-learn", "skops")  # to load the classifier
MARK = "made_by_scrib_demo"
UNSET = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_REGISTRY_URI")


@contextmanager
def serve(
    model_uri: str, tracking_uri: str, log: Path, manager: str = "local", workers: int = 1
) -> Iterator[str]:
    """Yield the address of a server for the model; it is stopped in the end, come what may."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model_uri]
    command += ["--env-manager", manager, "-h", HOST, "-p", str(port), "-w", str(workers)]
    beside = str(Path(sys.executable).parent)  # MLflow looks there for uvicorn, if told to
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    environment = {**os.environ, "MLFLOW_TRACKING_URI": tracking_uri, "PATH": path}
    with log.open("w", encoding="utf-8") as file:
        server = subprocess.Popen(  # noqa: S603  # our own words, and a URI from the registry
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            _wait_until_up(server, port, log)
            yield f"http://{HOST}:{port}"
        finally:
            stop(server)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def stop(server: subprocess.Popen[Any]) -> None:
    """Stop a server and the workers that it has started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, kind)
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
            return


def ask(address: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a served model's answers to rows in MLflow's split form."""
    body = json.dumps({"dataframe_split": rows}).encode()
    request = Request(  # noqa: S310  # a server of our own
        f"{address}/invocations", body, {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
        return json.load(answer)["predictions"]


def _wait_until_up(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urlopen(f"http://{HOST}:{port}/ping", timeout=1):
            return
        time.sleep(0.2)
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
    raise StoreError(f"the server did not start; {log} ends with: {' / '.join(last)}")


class Shown(NamedTuple):
    """What the demo has shown: two rows as they were served, with the digits that they are."""

    folder: Path
    answered: dict[str, Any]
    answered_digit: str
    abstained: dict[str, Any]
    abstained_digit: str


def run(settings: Demo) -> Shown:
    """Train, register, calibrate, promote, refuse, serve and monitor, saying what comes when."""
    folder = _fresh_folder(Path(settings.folder).absolute())
    with _private_store(folder) as store:
        LOGGER.info("== 1. a classifier for handwritten digits, trained on 300 rows and registered")
        rows = _digits()
        _register_base(rows["train"])
        for name in ("validation", "fresh"):
            rows[name].to_parquet(folder / f"{name}.parquet")
        LOGGER.info(
            "== 2. calibrate: at most 15 % wrong for each digit when it is answered, certified"
        )
        done = _calibrate("models:/digits/1", folder)
        LOGGER.info("== 3. gate: its certificate holds, and fresh rows do not refute it")
        _gate(done.model_uri, folder)
        LOGGER.info(f"== 4. a worse classifier, trained on {WORSE_ROWS} rows, goes the same way")
        _register_base(rows["train"].head(WORSE_ROWS))
        _gate(_calibrate("models:/digits/2", folder).model_uri, folder)
        alias = f"models:/{done.name}@champion"
        LOGGER.info(f"== 5. mlflow models serve -m {alias} --env-manager local, and two requests")
        with serve(alias, store, folder / "server.log") as address:
            shown = _ask(address, rows["fresh"], folder)
        LOGGER.info("== 6. monitor: a batch like those before, with labels")
        _monitor(alias, rows["fresh"], label="digit")
        LOGGER.info("== 7. and one without labels, from a scanner that moves digits to the side")
        _monitor(alias, _moved(rows["validation"].tail(BATCH_ROWS).drop(columns="digit")))
        return shown


def _monitor(model_uri: str, rows: pd.DataFrame, **parameters: Any) -> None:
    done = monitor.monitor(model_uri, rows, **parameters)
    LOGGER.info(f"\n{monitor.summary(done)}\n")


def _moved(pixels: pd.DataFrame) -> pd.DataFrame:
    """Return pictures of 8 by 8 pixels whose columns have moved one to the right."""
    pictures = pixels.to_numpy().reshape(-1, 8, 8)
    moved = np.roll(pictures, 1, axis=2).reshape(len(pixels), -1)
    return pd.DataFrame(moved, columns=pixels.columns)


def _calibrate(model_uri: str, folder: Path) -> calibrate.Calibration:
    rows = str(folder / "validation.parquet")
    targets = {"risk_targets": TARGET, "candidate_coverage": COVERAGE}
    done = calibrate.calibrate(model_uri, rows, "digit", **targets)
    LOGGER.info(f"\n{calibrate.summary(done)}\n")
    return done


def _gate(model_uri: str, folder: Path) -> None:
    rows = {"data": str(folder / "fresh.parquet"), "label": "digit"}
    decided = gate.gate(model_uri, **rows, max_abstention_increase=MOST_MORE)
    LOGGER.info(f"\n{gate.summary(decided)}\n")


def summary(shown: Shown) -> str:
    """Return what a person wants to see at the end."""
    store, folder = (
        shlex.quote(f"sqlite:///{shown.folder}/mlflow.db"),
        shlex.quote(str(shown.folder)),
    )
    return f"""an answered row, in truth a {shown.answered_digit}:
{json.dumps(shown.answered, indent=2)}
an abstention, in truth a {shown.abstained_digit}; the candidates, the most probable first:
{json.dumps(shown.abstained, indent=2)}

the server is stopped; everything is in one folder, to look at or to delete:
  mlflow ui --backend-store-uri {store}
  rm -r {folder}"""


def _ask(address: str, rows: pd.DataFrame, folder: Path) -> Shown:
    """Post real rows and return one that was answered and one that was not.

    The latter is the first of those that name the fewest candidates.
    """
    answers = ask(address, rows.drop(columns="digit").to_dict(orient="split"))
    answered = next(i for i, answer in enumerate(answers) if not answer["abstain"])
    asked = [i for i, answer in enumerate(answers) if answer["abstain"]]
    abstained = min(asked, key=lambda i: len(answers[i]["candidates"]))
    digits = rows["digit"].tolist()
    return Shown(folder, answers[answered], digits[answered], answers[abstained], digits[abstained])


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas, about MLflow
            mlflow.log_input(from_pandas(train), context="training")
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
        raise InvalidSettingsError(
            f"{folder} is not empty and not of an earlier demo; choose another with --folder"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


@contextmanager
def _private_store(folder: Path) -> Iterator[str]:
    """Yield the URI of a store in the folder, which MLflow uses meanwhile."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    taken = {name: os.environ.pop(name) for name in UNSET if name in os.environ}
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    try:
        mlflow.create_experiment("demo", artifact_location=str(folder / "artifacts"))
        mlflow.set_experiment("demo")
        yield uri
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None stands for the default
        os.environ.update(taken)
