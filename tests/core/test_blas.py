"""BLAS keeps to one thread while the core works, and has its own again afterwards."""

import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from scrib_mlflow import fit_optimal, fit_thresholds
from scrib_mlflow.core import compiling, dual
from scrib_mlflow.synthetic import draw_scores


def blas_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_a_fit_sees_one_thread_of_blas(monkeypatch):
    seen = []
    real = dual.minimise

    def minimise(*args, **options):
        seen.append(blas_threads())
        return real(*args, **options)

    monkeypatch.setattr(dual, "minimise", minimise)
    scores, labels = draw_scores(300)
    with threadpool_limits(2, user_api="blas"):
        for fit in (fit_optimal, fit_thresholds):
            fit(scores, labels, 0.2)
            assert seen.pop() == {1}
            assert blas_threads() == {2}


def test_of_calls_that_overlap_the_last_one_lifts_the_limit(monkeypatch):
    seen = []

    class Pools:
        @contextmanager
        def limit(self, **_):
            seen.append("set")
            yield
            seen.append("lifted")

    monkeypatch.setattr(compiling, "_thread_pools", Pools)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with compiling.one_blas_thread():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    with compiling.one_blas_thread():
        leave.set()
        thread.join()
        assert seen == ["set"]
    assert seen == ["set", "lifted"]


def test_what_is_served_does_without_it():
    code = "import sys, scrib_mlflow.serving; sys.exit('threadpoolctl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
