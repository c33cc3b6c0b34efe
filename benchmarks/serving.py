"""What a set classifier costs beside the classifier inside it: to load, to serve, to call.

All are asked in turn, so that a busy machine slows all of them, and every answer is checked.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
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
QUICK_REQUESTS = {1: 150, 100: 100, 10_000: 10}
SLICES, QUICK_SLICES = 12, 4  # of saturation, for each model and size
SLICE_SECONDS = 2.0
CLIENTS = 4  # connections that ask again at once
WORKERS = 2  # of each server
LIMITS = {1: 1.1, 100: 1.1, 10_000: 1.2}
CALL_LIMITS = {1: "", 100: "", 10_000: "1.5"}
LOAD_LIMIT, BAD_LIMIT = 1.2, 10
MODELS = ("base", "thresholds", "optimal")
MANY, QUICK_MANY = (150, 1_000), (150,)  # classes
HEADERS = {"Content-Type": "application/json"}

Taken = dict[str, list[float]]  # seconds by model


def run(*, quick: bool) -> None:
    """Register the models in a store of their own, and print what each answer takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "MLFLOW_LOGGING_LEVEL": "ERROR",
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        progress("serving: a classifier, and set classifiers of both rules made of it")
        made = run_fresh("one_registration", str(folder), **environment)
        repeats = QUICK_REQUESTS if quick else REQUESTS
        loads = _load_rows(folder, made["uris"], environment, QUICK_LOADS if quick else LOADS)
        served = _http_rows(folder, made["uris"], environment, quick=quick)
        progress("serving: predict in one process")
        arguments = [str(folder / "asked.parquet"), json.dumps(made["uris"]), json.dumps(repeats)]
        called = run_fresh("one_predict", *arguments, **environment)
        calls = [
            row
            for size in repeats
            for row in _rows(
                f"predict, {size:,} rows", called["taken"][str(size)], CALL_LIMITS[size]
            )
        ]
        many = [
            _many_row(run_fresh("one_many", str(folder / f"{k}"), str(k), **environment))
            for k in (QUICK_MANY if quick else MANY)
            if progress(f"serving: {k:,} classes") is None
        ]
    versions = ", ".join(f"{each} {version(each)}" for each in ("mlflow", "pandas", "scikit-learn"))
    abstain = ", ".join(f"{rule} {share:.0%}" for rule, share in made["abstain"].items())
    print_table(
        "Served, base: pipeline of scikit-learn, 20 features, 5 classes, predict_proba; "
        f"the others: its set classifiers, which abstain: {abstain}\n"
        f"median and 95th percentile in milliseconds, asked in turn; {versions}",
        ["step", "model", "times", "median", "p95", "ratio to base", "limit"],
        [*loads, *served["idle"], *calls],
    )
    print_table(
        f"Saturated: {CLIENTS} connections that ask again at once, {WORKERS} workers, slices of "
        f"{SLICE_SECONDS:g} s in turn; every answer is the one expected",
        ["step", "model", "answers", "answers/s", "times slower", "limit"],
        served["saturated"],
    )
    print_table(
        "Bad rows, in process: a batch beside a clean one of the same size",
        ["rows", "pattern", "milliseconds", "times a clean batch", "good rows reached", "limit"],
        [_bad_row(each) for each in called["bad"]],
    )
    print_table(
        "Many classes, in process; kilobytes are of a response of 100 rows",
        ["classes", "abstains", "candidates", "left out", "base ms", "ms", "ratio", "kB"],
        many,
    )


def _bad_row(seen: dict[str, Any]) -> list[str]:
    cells = [f"{seen['rows']:,}", seen["pattern"], f"{seen['milliseconds']:.1f}"]
    return [*cells, f"{seen['ratio']:.1f}", f"{seen['reached']:.0%}", f"{BAD_LIMIT}"]


def _many_row(seen: dict[str, float]) -> list[str]:
    return [
        f"{seen['classes']:,.0f}",
        f"{seen['abstain']:.0%}",
        f"{seen['candidates']:.1f}",
        f"{seen['more']:.1f}",
        f"{seen['base']:.1f}",
        f"{seen['set']:.1f}",
        f"{seen['set'] / seen['base']:.2f}",
        f"{seen['kilobytes']:.0f}",
    ]


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
        row
        for clock in ("wall", "processor")
        for row in _rows(
            f"load and first answer, {clock} time",
            {model: [each[clock] for each in seen] for model, seen in runs.items()},
            f"{LOAD_LIMIT}",
        )
    ]


def _http_rows(
    folder: Path, uris: dict[str, str], environment: dict[str, str], *, quick: bool
) -> dict[str, list[list[str]]]:
    """Time requests to three servers over connections that are kept open, alone and saturated."""
    repeats = QUICK_REQUESTS if quick else REQUESTS
    bodies = _bodies(folder, repeats)
    rows: dict[str, list[list[str]]] = {"idle": [], "saturated": []}
    with contextlib.ExitStack() as stack:
        progress("serving: three servers")
        store = environment["MLFLOW_TRACKING_URI"]
        hosts = {
            model: urlsplit(
                stack.enter_context(serve(uri, store, folder / f"{model}.log", workers=WORKERS))
            ).netloc
            for model, uri in uris.items()
        }
        for size, count in repeats.items():
            body = bodies[size]
            expected = {model: _first_answer(hosts[model], body, size) for model in MODELS}
            progress(f"serving: requests of {size:,} rows")
            links = {model: http.client.HTTPConnection(hosts[model]) for model in uris}
            taken: Taken = {model: [] for model in uris}
            for j in range(count + 2):
                for model in MODELS if j % 2 else MODELS[::-1]:
                    seconds = _ask(links[model], body, expected[model])
                    if j >= 2:  # the first ones warm up
                        taken[model].append(seconds)
            rows["idle"] += _rows(f"HTTP request, {size:,} rows", taken, f"{LIMITS[size]}")
            progress(f"serving: saturated, {size:,} rows")
            rows["saturated"] += _saturated_rows(
                hosts, body, expected, size, QUICK_SLICES if quick else SLICES
            )
    return rows


def _saturated_rows(
    hosts: dict[str, str], body: bytes, expected: dict[str, bytes], size: int, slices: int
) -> list[list[str]]:
    """Count the answers of each server while it has always more to do than it can."""
    counts, seconds = dict.fromkeys(MODELS, 0), dict.fromkeys(MODELS, 0.0)
    for j in range(slices + 1):
        for model in MODELS if j % 2 else MODELS[::-1]:
            answers, took = _saturate(hosts[model], body, expected[model])
            if j:  # the first slice warms up
                counts[model] += answers
                seconds[model] += took
    rate = {model: counts[model] / seconds[model] for model in MODELS}
    return [
        [
            f"{size:,} rows",
            model,
            f"{counts[model]:,}",
            f"{rate[model]:,.1f}",
            f"{rate['base'] / rate[model]:.3f}",
            "" if model == "base" else f"{LIMITS[size]}",
        ]
        for model in MODELS
    ]


def _saturate(host: str, body: bytes, expected: bytes) -> tuple[int, float]:
    """Return how many answers all connections got, and in how many seconds."""
    counts, failures = [0] * CLIENTS, []
    end = time.perf_counter() + SLICE_SECONDS

    def ask_again(client: int) -> None:
        link = http.client.HTTPConnection(host)
        try:
            while time.perf_counter() < end:
                _ask(link, body, expected)
                counts[client] += 1
        except Exception as error:  # raised below, where it is seen
            failures.append(error)

    start = time.perf_counter()
    threads = [threading.Thread(target=ask_again, args=(j,)) for j in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts), time.perf_counter() - start


def _bodies(folder: Path, sizes: dict[int, int]) -> dict[int, bytes]:
    """Return requests in the form that MLflow reads fastest."""
    whole = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    return {
        n: json.dumps({"dataframe_split": whole | {"data": whole["data"][:n]}}).encode()
        for n in sizes
    }


def _first_answer(host: str, body: bytes, size: int) -> bytes:
    """Return what a server answers; every further answer must be the same."""
    answer = _answer(http.client.HTTPConnection(host), body)
    if len(json.loads(answer)["predictions"]) != size:
        raise RuntimeError(f"{size:,} rows did not get as many answers: {answer[:500]!r}")
    return answer


def _ask(link: http.client.HTTPConnection, body: bytes, expected: bytes) -> float:
    """Return the seconds of one request, its answer read."""
    start = time.perf_counter()
    answer = _answer(link, body)
    seconds = time.perf_counter() - start
    if answer != expected:
        raise RuntimeError(f"the server gave another answer: {answer[:500]!r}")
    return seconds


def _answer(link: http.client.HTTPConnection, body: bytes) -> bytes:
    link.request("POST", "/invocations", body, HEADERS)
    # servers with several workers send head and body apart, and wait for word of the head
    link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    response = link.getresponse()
    answer = response.read()
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"the server answered {response.status}: {answer[:500]!r}")
    return answer


def _rows(step: str, taken: Taken, limit: str) -> Iterator[list[str]]:
    """Yield the cells of one step, model by model."""
    for model in MODELS:
        ratio = f"{median(taken[model]) / median(taken['base']):.3f}"
        cells = [step, model, str(len(taken[model])), *_figures(taken[model])]
        yield [*cells, ratio, "" if model == "base" else limit]


def _figures(seconds: Sequence[float]) -> list[str]:
    """Return the median and the 95th percentile in milliseconds."""
    high = quantiles(seconds, n=20, method="inclusive")[-1]
    return [f"{1e3 * value:.1f}" for value in (median(seconds), high)]
