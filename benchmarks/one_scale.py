"""One calibration of the scale benchmark: register a classifier, draw rows, or measure."""

from __future__ import annotations

import cProfile
import json
import logging
import os
import pstats
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.one_size import peak_memory

CLASSES = np.array(list("ABCDE"))
SHARES = (0.55, 0.2, 0.15, 0.08, 0.02)
INPUTS = [f"x{i}" for i in range(10)]
APART = 0.9  # of the classes' centres
PART = 250_000  # rows drawn at a time
TARGET = 0.05
EVERY = 0.02  # seconds between two looks at the memory
FUNCTIONS = {  # whose time is whose: of the local engine or of Spark's
    "reading": ("read_rows", "read_table"),
    "scoring": ("score", "score_table"),
    "fitting": ("draw_path",),
    "certifying": ("certify_path",),
}


def register(folder: str) -> dict[str, Any]:
    """Train a classifier and register it in a store of its own."""
    mlflow = _store(folder)
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  # seconds, and only here

    rows = _draw(20_000, seed=1)
    model = LogisticRegression(max_iter=500).fit(rows[INPUTS], rows["label"])
    mlflow.sklearn.log_model(
        model,
        name="model",
        input_example=rows[INPUTS].head(2),
        registered_model_name="scale",
        pip_requirements=["mlflow", "scikit-learn", "skops"],
    )
    return {}


def draw(folder: str, n: str) -> dict[str, Any]:
    """Write n rows, part by part."""
    path = _path(folder, n)
    if path.exists():
        return {}
    kinds = [(name, pa.float32()) for name in INPUTS]
    schema = pa.schema([*kinds, ("label", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, int(n), PART):
            rows = _draw(min(PART, int(n) - start), seed=1000 + start)
            writer.write_table(pa.Table.from_pandas(rows, schema=schema, preserve_index=False))
    return {}


def measure(folder: str, n: str, engine: str, rule: str) -> dict[str, Any]:
    """Return seconds of the parts of a calibration, the rows of each, and the peak memory."""
    _store(folder)
    from scrib_mlflow.options import Calibrate  # noqa: PLC0415
    from scrib_mlflow.parameters import read_settings  # noqa: PLC0415
    from scrib_mlflow.workflows import calibrate  # noqa: PLC0415

    settings = read_settings(
        Calibrate,
        {
            "model_uri": "models:/scale/1",
            "data": str(_path(folder, n)),
            "label": "label",
            "risk_targets": TARGET,
            "rule": rule,
            "engine": engine,
        },
    )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    profile = cProfile.Profile()
    began = time.perf_counter()
    with PeakMemory() as memory:
        done = profile.runcall(calibrate.run, settings)
    whole = time.perf_counter() - began
    record = done.classifier
    assert record.certify_data is not None  # noqa: S101  # mode=certified has them
    fitted = min(record.fit_data.n_used, settings.max_fit_rows)
    rows = {"reading": int(n), "scoring": int(n), "fitting": fitted}
    rows["certifying"] = record.certify_data.n_used
    peaks = {"peak": memory.peak / 2**30, "with files": peak_memory() / 2**10}
    return {"whole": whole, **peaks, "rows": rows, **_seconds(profile)}


class PeakMemory:
    """The most memory of its own that this process had: without the files that it maps.

    What the system holds of a file in memory it gives back when memory is short.
    """

    def __enter__(self) -> PeakMemory:
        """Begin to look."""
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.peak = max(self.peak, _own_memory())


def _own_memory() -> int:
    """Return bytes of memory that belong to no file; where /proc is missing, the peak of all."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return int(peak_memory() * 2**20)
    return next(int(line.split()[1]) * 2**10 for line in lines if line.startswith("RssAnon:"))


def _seconds(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds spent inside the functions that have a part of their own."""
    found: dict[str, float] = {}
    for (file, _, name), numbers in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for part, functions in FUNCTIONS.items():
            if name in functions and "scrib_mlflow" in file:
                found[part] = found.get(part, 0.0) + numbers[3]
    return found


def _draw(n: int, seed: int) -> pd.DataFrame:
    """Return rows of five classes, normal around centres of their own."""
    centres = APART * np.random.default_rng(0).normal(size=(len(CLASSES), len(INPUTS)))
    random = np.random.default_rng(seed)
    labels = random.choice(len(CLASSES), size=n, p=SHARES)
    inputs = centres[labels] + random.normal(size=(n, len(INPUTS)))
    return pd.DataFrame(inputs.astype(np.float32), columns=INPUTS).assign(label=CLASSES[labels])


def _path(folder: str, n: str) -> Path:
    return Path(folder) / f"rows_{n}.parquet"


def _store(folder: str) -> Any:
    """Return mlflow, on a store in the folder."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    os.chdir(folder)
    import mlflow  # noqa: PLC0415  # after its store is named

    return mlflow


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    found = {"register": register, "draw": draw, "measure": measure}[step](*arguments)
    print(json.dumps(found))
