"""Fresh processes: a module of this package, run by a Python of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def run_fresh(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run ``python -m benchmarks.<module>`` and return the JSON object that it prints."""
    done = subprocess.run(  # noqa: S603  # this Python, and modules of this package
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)
