"""One process with all models: print the seconds of their answers, asked in turn."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from mlflow.pyfunc import PyFuncModel, load_model

BAD = 1e300  # a value that the model takes, and the words "refused" below


def main(rows: Path, uris: dict[str, str], repeats: dict[str, int]) -> None:
    """Time the models at every number of rows, and then a set classifier on bad rows."""
    asked = pd.read_parquet(rows)
    models = {name: load_model(uri, suppress_warnings=True) for name, uri in uris.items()}
    taken = {}
    for size, count in repeats.items():
        part = asked.head(int(size))
        taken[size] = {name: [_seconds(model, part)] for name, model in models.items()}
        for _ in range(count):
            for name, model in models.items():
                taken[size][name].append(_seconds(model, part))
    print(json.dumps({"taken": taken, "bad": _bad_rows(models["thresholds"], asked)}))


def _bad_rows(model: PyFuncModel, asked: pd.DataFrame) -> list[dict[str, object]]:
    """Time batches with rows that the model inside refuses, each next to a clean one."""
    wrapped = model.unwrap_python_model()
    wrapped.native = Refusing(wrapped.native)
    found: list[dict[str, object]] = []
    for n in (100, 2_000, 20_000):
        clean = pd.concat([asked] * 2, ignore_index=True).head(n)
        for pattern, bad in _patterns(clean).items():
            known = bad.isna().any(axis=1) | (bad == BAD).any(axis=1)
            seconds, ratios = [], []
            for _ in range(7):
                wrapped.native.calls = 0
                seconds.append(_seconds(model, bad))
                ratios.append(seconds[-1] / _seconds(model, clean))
            answers = model.predict(bad)
            if list(answers.index) != list(bad.index) or not answers["abstain"][known].all():
                raise RuntimeError(f"{pattern}: a row is lost, or a bad one is answered")
            answered = float((answers["reason"] != "not_scored")[~known].mean()) if n else 0.0
            found.append(
                {
                    "rows": n,
                    "pattern": pattern,
                    "milliseconds": 1e3 * float(np.median(seconds)),
                    "ratio": float(np.median(ratios)),
                    "reached": answered if (~known).any() else float("nan"),
                }
            )
    return found


class Refusing:
    """A classifier that also raises for a value it does not know, as encoders do."""

    def __init__(self, model: object) -> None:
        """Wrap a classifier."""
        self.model = model

    def predict_proba(self, rows: pd.DataFrame) -> np.ndarray:
        """Return its probabilities."""
        if (rows["feature_19"].to_numpy() == BAD).any():
            raise ValueError("refused")
        return self.model.predict_proba(rows)  # type: ignore[attr-defined]


def _patterns(clean: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return copies of rows, some of them bad."""
    n, random = len(clean), np.random.default_rng(0)
    every = np.arange(0, n, 2)
    few = random.choice(n, 3, replace=False)

    def changed(rows: np.ndarray, column: str, value: float) -> pd.DataFrame:
        bad = clean.copy()
        bad.loc[rows, column] = value
        return bad

    return {
        "every second null": changed(every, "feature_03", np.nan),
        "every second refused": changed(every, "feature_19", BAD),
        "one refused": changed(few[:1], "feature_19", BAD),
        "three refused": changed(few, "feature_19", BAD),
        "first half refused": changed(np.arange(n // 2), "feature_19", BAD),
        "nulls in a tenth of all cells": clean.mask(random.random(clean.shape) < 0.1),
    }


def _seconds(model: PyFuncModel, rows: pd.DataFrame) -> float:
    start = time.perf_counter()
    model.predict(rows)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
