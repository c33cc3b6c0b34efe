"""Commands in processes of their own that start at once.

They are forks of a Python that has loaded everything, and has perhaps run some commands itself. So
one takes a second or two in place of ten, and can be killed like any other process. Reports have no
figures, as in other tests.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
END_SECONDS = 180
COMMANDS = ("calibrate", "evaluate", "gate", "monitor", "predict", "register")
# MLflow tries once, and waits for nobody; `RETRYING` tries again as MLflow does, without its pauses
ONCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
RETRYING = ONCE | {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # -9 where it was killed
    text: str  # what it printed
    seconds: float


class Started(NamedTuple):
    """A command that runs."""

    pool: "Pool"
    pid: int
    out: Path
    since: float

    def wait(self, seconds=END_SECONDS):
        """Wait until it has ended; one that does not is killed, and that is an error."""
        answer = self.pool.ask(wait=self.pid, seconds=seconds)
        text = self.out.read_text(encoding="utf-8", errors="replace")
        assert not answer["late"], f"no end after {seconds} s:\n{text}"
        return Ended(answer["code"], text, answer["at"] - self.since)


class Pool:
    """The Python that commands are forked from."""

    def __init__(self, process):
        self.process = process

    def ask(self, **request):
        """Return its answer to a request."""
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def warm(self, words, folder, environment):
        """Run a command in the pool itself, so that its forks have imported what it needs."""
        words = [str(word) for word in words]
        done = self.ask(warm=words, folder=str(folder), environment=environment)
        assert done["code"] == 0, done

    def start(self, words, folder, environment):
        """Start a command, given as the words after `python -m scrib_mlflow`."""
        out = Path(folder) / f"out-{time.monotonic_ns()}.txt"
        since = time.monotonic()
        pid = self.ask(
            words=[str(word) for word in words],
            folder=str(folder),
            environment=environment,
            out=str(out),
        )["pid"]
        return Started(self, pid, out, since)


@contextmanager
def client_pool(folder):
    """Yield a pool; what still runs in the end is killed with it."""
    with (Path(folder) / "pool.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield Pool(process)
        finally:
            process.stdin.close()
            process.wait(END_SECONDS)
            process.stdout.close()


def _load():
    """Import what the commands need, and compile or load the kernels."""
    import importlib  # noqa: PLC0415

    import scrib_mlflow  # noqa: PLC0415
    from scrib_mlflow.report import monitoring, page  # noqa: PLC0415
    from scrib_mlflow.synthetic import draw_scores  # noqa: PLC0415

    for name in COMMANDS:
        importlib.import_module(f"scrib_mlflow.workflows.{name}")
    page.draw = monitoring.draw = lambda _: {}
    scores, labels = draw_scores(300, seed=0)
    for rule in ("thresholds", "optimal"):
        scrib_mlflow.fit_certified(scores, labels, risk_targets=0.2, rule=rule)


def _run(words, folder, environment):
    """Be the command, and return its exit code."""
    from scrib_mlflow.cli import main  # noqa: PLC0415

    os.environ.update(environment)
    os.chdir(folder)
    try:
        main(words)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _be_client(request):
    """Be the command, from the fork to the end of the process."""
    descriptor = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    code = 1
    try:
        code = _run(request["words"], request["folder"], request["environment"])
        atexit._run_exitfuncs()  # MLflow ends runs there
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(pid, seconds):
    deadline = time.monotonic() + seconds
    late = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return {
                "code": os.waitstatus_to_exitcode(status),
                "late": late,
                "at": time.monotonic(),
            }
        if time.monotonic() > deadline:
            late = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _serve():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed while loading is no answer
    _load()
    running = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = _wait(request["wait"], request["seconds"])
            running.discard(request["wait"])
        elif "warm" in request:
            answer = {"code": _run(request["warm"], request["folder"], request["environment"])}
        else:
            pid = os.fork()
            if pid == 0:
                _be_client(request)
            running.add(pid)
            answer = {"pid": pid}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
