"""One process with both models: print the seconds of their answers, asked in turn."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pandas as pd
from mlflow.pyfunc import PyFuncModel, load_model


def main(rows: Path, base: str, wrapper: str, repeats: dict[str, int]) -> None:
    """Time both models at every number of rows."""
    asked = pd.read_parquet(rows)
    models = {
        name: load_model(uri, suppress_warnings=True)
        for name, uri in {"base": base, "wrapper": wrapper}.items()
    }
    taken = {}
    for size, count in repeats.items():
        part = asked.head(int(size))
        taken[size] = {name: [_seconds(model, part)] for name, model in models.items()}
        for _ in range(count):
            for name, model in models.items():
                taken[size][name].append(_seconds(model, part))
    print(json.dumps(taken))


def _seconds(model: PyFuncModel, rows: pd.DataFrame) -> float:
    start = time.perf_counter()
    model.predict(rows)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
