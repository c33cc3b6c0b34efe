"""What a set classifier costs beside the classifier inside it: to load, to serve, to call.

Both are asked in turn, so that a busy machine slows both.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from benchmarks.fresh import run_fresh
from benchmarks.tables import print_table, progress
from scrib_mlflow.workflows.demo import serve

LOADS = 5
QUICK_LOADS = 3
REQUESTS = {1: 1000, 100: 500, 10_000: 40}  # by rows
QUICK_REQUESTS = {1: 100, 100: 60, 10_000: 8}
LIMITS = {1: 1.15, 100: 1.15, 10_000: 1.5}  # on the ratio of medians
LOAD_LIMIT = 1.2
MODELS = ("base", "wrapper")
HEADERS = {"Content-Type": "application/json"}

Taken = dict[str, list[float]]  # seconds by model


def run(*, quick: bool) -> None:
    """Register both models in a store of their own, and print what each answer takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "MLFLOW_LOGGING_LEVEL": "ERROR",
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        progress("serving: a classifier, and a set classifier made of it")
        made = run_fresh("one_registration", str(folder), **environment)
        uris = {model: made[model] for model in MODELS}
        repeats = QUICK_REQUESTS if quick else REQUESTS
        rows = [
            *_load_rows(folder, uris, environment, QUICK_LOADS if quick else LOADS),
            *_request_rows(folder, uris, environment, repeats),
            *_call_rows(folder, uris, environment, repeats),
        ]
    versions = ", ".join(f"{each} {version(each)}" for each in ("mlflow", "pandas", "scikit-learn"))
    print_table(
        "Served, base: pipeline of scikit-learn, 20 features, 5 classes, predict_proba; wrapper: "
        f"its set classifier, abstains on {made['abstain']:.0%} of the rows\n"
        f"median and 95th percentile in milliseconds, asked in turn; {versions}",
        ["step", "times", "base", "p95", "wrapper", "p95", "ratio of medians", "limit"],
        rows,
    )


def _load_rows(
    folder: Path, uris: dict[str, str], environment: dict[str, str], loads: int
) -> list[list[str]]:
    """Time loads and first answers, each in a process of its own."""
    runs: dict[str, list[dict[str, float]]] = {model: [] for model in MODELS}
    for j in range(loads):
        progress(f"serving: load {j + 1} of {loads}")
        for model in MODELS if j % 2 else MODELS[::-1]:
            seen = run_fresh("one_load", str(folder / "asked.parquet"), uris[model], **environment)
            runs[model].append(seen)
    return [
        _row(f"load and first answer, {clock} time", _clocked(runs, clock), f"{LOAD_LIMIT}")
        for clock in ("wall", "processor")
    ]


def _clocked(runs: dict[str, list[dict[str, float]]], clock: str) -> Taken:
    """Return the seconds of one clock."""
    return {model: [each[clock] for each in seen] for model, seen in runs.items()}


def _request_rows(
    folder: Path, uris: dict[str, str], environment: dict[str, str], repeats: dict[int, int]
) -> list[list[str]]:
    """Time requests to two servers over connections that are kept open."""
    bodies = _bodies(folder, repeats)
    rows = []
    with contextlib.ExitStack() as stack:
        progress("serving: two servers")
        store = environment["MLFLOW_TRACKING_URI"]
        hosts = {
            model: urlsplit(stack.enter_context(serve(uri, store, folder / f"{model}.log"))).netloc
            for model, uri in uris.items()
        }
        for size, count in repeats.items():
            progress(f"serving: requests of {size:,} rows")
            links = {model: http.client.HTTPConnection(hosts[model]) for model in uris}
            taken: Taken = {model: [] for model in uris}
            for j in range(count + 2):
                for model in MODELS if j % 2 else MODELS[::-1]:
                    seconds = _ask(links[model], bodies[size])
                    if j >= 2:  # the first ones warm up
                        taken[model].append(seconds)
            rows.append(_row(f"HTTP request, {size:,} rows", taken, f"{LIMITS[size]}"))
    return rows


def _call_rows(
    folder: Path, uris: dict[str, str], environment: dict[str, str], repeats: dict[int, int]
) -> list[list[str]]:
    """Time predict in one process that has loaded both."""
    progress("serving: predict in one process")
    taken = run_fresh(
        "one_predict",
        str(folder / "asked.parquet"),
        *(uris[model] for model in MODELS),
        json.dumps(repeats),
        **environment,
    )
    return [_row(f"predict, {size:,} rows", taken[str(size)], "") for size in repeats]


def _bodies(folder: Path, sizes: dict[int, int]) -> dict[int, bytes]:
    """Return requests in the form that MLflow reads fastest."""
    whole = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    return {
        n: json.dumps({"dataframe_split": whole | {"data": whole["data"][:n]}}).encode()
        for n in sizes
    }


def _ask(link: http.client.HTTPConnection, body: bytes) -> float:
    """Return the seconds of one request, its answer read."""
    start = time.perf_counter()
    link.request("POST", "/invocations", body, HEADERS)
    response = link.getresponse()
    answer = response.read()
    seconds = time.perf_counter() - start
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"the server answered {response.status}: {answer[:500]!r}")
    return seconds


def _row(step: str, taken: dict[str, Any], limit: str) -> list[str]:
    """Return the cells of one step."""
    base, wrapper = (taken[model] for model in MODELS)
    ratio = f"{median(wrapper) / median(base):.3f}"
    return [step, str(len(base)), *_figures(base), *_figures(wrapper), ratio, limit]


def _figures(seconds: Sequence[float]) -> list[str]:
    """Return the median and the 95th percentile in milliseconds."""
    high = quantiles(seconds, n=20, method="inclusive")[-1]
    return [f"{1e3 * value:.1f}" for value in (median(seconds), high)]
