"""Compiled kernels are kept in a folder of their own for each state of the sources.

Numba looks at the file of the function called only; a kernel that it calls may have changed.
"""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "scrib_mlflow" / "core").glob("*.py"))
STATE = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / STATE)
