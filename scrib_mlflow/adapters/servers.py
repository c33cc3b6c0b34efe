"""A model served by ``mlflow models serve``, in a process that ends when it is done with."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests

from scrib_mlflow.errors import StoreError

HOST = "127.0.0.1"
START_SECONDS = 180
STOP_SECONDS = 20
ANSWER_SECONDS = 60


@contextmanager
def serve(model_uri: str, tracking_uri: str, log: Path, manager: str = "local") -> Iterator[str]:
    """Yield the address of a server for the model; it is stopped in the end, come what may."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model_uri]
    command += ["--env-manager", manager, "-h", HOST, "-p", str(port)]
    beside = str(Path(sys.executable).parent)  # MLflow looks there for uvicorn, if told to
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    environment = {**os.environ, "MLFLOW_TRACKING_URI": tracking_uri, "PATH": path}
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(  # noqa: S603  # our own words, and a URI from the registry
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
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
    answer = requests.post(
        f"{address}/invocations", json={"dataframe_split": rows}, timeout=ANSWER_SECONDS
    )
    answer.raise_for_status()
    return answer.json()["predictions"]


def _wait_until_up(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(requests.RequestException):
            if requests.get(f"http://{HOST}:{port}/ping", timeout=1).ok:
                return
        time.sleep(0.2)
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
    msg = f"the server did not start; {log} ends with: {' / '.join(last)}"
    raise StoreError(msg)
