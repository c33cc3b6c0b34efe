"""One calibrate and one gate, watched: which modules and functions of the package they run."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scrib_mlflow

PACKAGE = str(Path(scrib_mlflow.__file__).parent)
ROWS = 6_000


def run(folder: str) -> dict[str, Any]:
    """Return how many modules and functions a calibrate and a gate with fresh rows run through."""
    from benchmarks import one_scale  # noqa: PLC0415  # it loads what looking up must not

    one_scale.register(folder)
    one_scale.draw(folder, str(ROWS))
    one_scale.draw(folder, str(ROWS - 1))
    rows, fresh = (str(Path(folder) / f"rows_{n}.parquet") for n in (ROWS, ROWS - 1))
    calibrate, gate = scrib_mlflow.calibrate, scrib_mlflow.gate  # imports are not counted
    candidate = "models:/scale-scrib@candidate"
    return {
        "calibrate": _watch(lambda: calibrate("models:/scale/1", rows, "label", risk_targets=0.2)),
        "gate": _watch(lambda: gate(candidate, data=fresh, label="label", allow_overlap=True)),
    }


def look_up() -> dict[str, Any]:
    """Return how many modules of the package finding a model by its name loads."""
    from scrib_mlflow.registry import stores  # noqa: PLC0415

    loaded = [name for name in sys.modules if name.split(".")[0] == "scrib_mlflow"]
    return {"modules": len(loaded), "numba": "numba" in sys.modules, "of": stores.__name__}


def _watch(step: Callable[[], object]) -> dict[str, int]:
    """Count the modules and functions of the package that a step calls, in any thread."""
    seen = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        if event == "call" and file.startswith(PACKAGE) and file.endswith(".py") and name[0] != "<":
            seen.add((file, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {"modules": len({file for file, _ in seen}), "functions": len(seen)}


if __name__ == "__main__":
    print(json.dumps({"run": run, "look_up": look_up}[sys.argv[1]](*sys.argv[2:])))
