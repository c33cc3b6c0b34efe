"""One start: print the seconds of imports and of two fits, in a process that has loaded nothing."""

from __future__ import annotations

import importlib
import json
import time

ROWS = 500


def main() -> None:
    """Time each step once, in the order in which a user meets them."""
    clock = [time.perf_counter()]
    package = importlib.import_module("scrib_mlflow")
    clock.append(time.perf_counter())
    fit = package.fit_thresholds
    clock.append(time.perf_counter())
    data = importlib.import_module("scrib_mlflow.synthetic").draw_scores(ROWS)
    seconds = {"import": clock[1] - clock[0], "core": clock[2] - clock[1]}
    for name in ("first", "second"):
        start = time.perf_counter()
        fit(*data)
        seconds[name] = time.perf_counter() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
