"""A standalone Spark master and its workers on this machine, and sessions that use them.

A process has one SparkSession at most, so what asks a cluster runs in a Python of its own.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from scrib_mlflow.workflows.demo import HOST, free_port, stop
from tests.conftest import PATIENCE

ROOT = Path(__file__).parent.parent
OPTIONS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # both workers have a part of the rows only where both are there when the work begins
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


@dataclass(frozen=True)
class Cluster:
    """A running master, and the processes of its workers."""

    master: str
    page: str
    workers: tuple[subprocess.Popen, ...]

    def options(self, **others):
        """Return the settings of a session that uses this cluster."""
        return {"spark.master": self.master, **OPTIONS, **others}

    def alive(self):
        """Return the workers that the master knows to be alive."""
        found = requests.get(self.page, timeout=5).json()["workers"]
        return [worker for worker in found if worker["state"] == "ALIVE"]


@contextmanager
def cluster(folder, n_workers=2):
    """Yield a master with workers of one core each; all are stopped in the end, come what may."""
    port, page_port = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    address = ("--host", HOST, "--port", str(port), "--webui-port", str(page_port))
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder / "master", "master.Master", *address))
        workers = []
        for i in range(n_workers):
            place = folder / f"worker-{i}"
            words = ("--host", HOST, "--port", str(free_port()), "--webui-port", str(free_port()))
            words += ("--cores", "1", "--memory", "1g", "--work-dir", str(place / "work"), master)
            workers.append(stack.enter_context(_daemon(place, "worker.Worker", *words)))
        found = Cluster(master, f"http://{HOST}:{page_port}/json/", tuple(workers))
        _wait_for_workers(found, folder)
        yield found


@contextmanager
def _daemon(folder, name, *words):
    """Run a daemon of Spark; its log is in the folder."""
    import pyspark  # noqa: PLC0415  # tests without it are skipped before

    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_CONF_DIR": str(folder),  # none of this machine's own settings
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,  # so that executors are stopped with their worker
        )
        try:
            yield process
        finally:
            stop(process)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # an executor that has outlived its worker


def _wait_for_workers(found, folder):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(requests.RequestException, ValueError):
            if len(found.alive()) == len(found.workers):
                return
        time.sleep(0.2)
    logs = {path: path.read_text(errors="replace")[-500:] for path in folder.glob("*/log.txt")}
    raise TimeoutError(f"no {len(found.workers)} workers after {PATIENCE} s: {logs}")


def kill_worker(worker):
    """Kill a worker and its executors at once, as a machine that loses its power."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(20)


def begin(script, *words, folder):
    """Start a script in a Python of its own, which has no SparkSession yet."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process, timeout=PATIENCE):
    """Wait for a script, and return what it printed."""
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-5000:]
    return output


def elsewhere(script, *words, folder, timeout=PATIENCE):
    """Run a script in a Python of its own, and return what it printed."""
    return end(begin(script, *words, folder=folder), timeout)
