"""One load: print the seconds until a model's first answer, in a process that has loaded nothing.

The import of mlflow, which every process pays alike, is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mlflow.pyfunc
import pandas as pd


def main(rows: Path, uri: str) -> None:
    """Load a model, and let it answer one row."""
    asked = pd.read_parquet(rows).head(1)
    start, busy = time.perf_counter(), time.process_time()
    mlflow.pyfunc.load_model(uri).predict(asked)
    seconds = {"wall": time.perf_counter() - start, "processor": time.process_time() - busy}
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
