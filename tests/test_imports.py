"""What importing costs and needs, in a Python of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scrib_mlflow

PACKAGE = Path(scrib_mlflow.__file__).parent
HEAVY = ("numba", "mlflow", "numpy", "scipy", "pandas", "pydantic", "sklearn")


def loaded(code, names):
    """Return which of these modules are loaded after running code."""
    script = f"import sys\n{code}\nprint(*[n for n in {names!r} if n in sys.modules])"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded("import scrib_mlflow", HEAVY) == []


def test_served_file_loads_numpy_only():
    assert loaded("import scrib_mlflow.serving", HEAVY) == ["numpy"]


def test_core_loads_neither_mlflow_nor_slow_parts_of_scipy():
    names = ("mlflow", "pandas", "pydantic", "scipy.optimize", "scipy.stats")
    code = "import scrib_mlflow; scrib_mlflow.fit_thresholds; scrib_mlflow.evaluate_sets"
    assert loaded(code, names) == []


@pytest.mark.parametrize("command", ["calibrate", "evaluate", "gate", "monitor", "predict", "plan"])
def test_commands_load_numba_when_they_fit_and_matplotlib_when_they_draw(command):
    assert loaded(f"import scrib_mlflow.workflows.{command}", ("numba", "matplotlib")) == []


def test_kernels_are_compiled_functions_once_one_was_called():
    code = """
from scrib_mlflow.core import bounds, loss
from scrib_mlflow.core.compiling import Kernel
before = [name for name, value in vars(bounds).items() if isinstance(value, Kernel)]
bounds.allowed_errors(0.1, 50, 0.95)
assert before and not [v for m in (bounds, loss) for v in vars(m).values() if isinstance(v, Kernel)]
"""
    assert loaded(code, ("numba",)) == ["numba"]


def test_looking_up_a_model_loads_few_modules_and_compiles_nothing():
    code = "import sys, scrib_mlflow.registry.stores; print('numba' in sys.modules, *sys.modules)"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    compiled, *names = run.stdout.split()
    assert compiled == "False"
    assert sum(name.startswith("scrib_mlflow") for name in names) < 20


def test_paper_loads_its_extras_only_when_they_are_used():
    names = ("torch", "bayes_opt", "mlflow", "pandas")
    code = "import experiments.optimisers, experiments.dropout"
    assert loaded(f"{code}, experiments.risks", names) == []


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'fit_treshold'"):
        _ = scrib_mlflow.fit_treshold


SMALL_FIT = """
import numpy as np
import scrib_mlflow.core.bounds as bounds
print(bounds.__file__, bounds.allowed_errors(0.1, 50, 0.95)[-1])
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to become a user who may not write",
)
@pytest.mark.parametrize("home", ["writable", "missing"])
def test_kernels_compile_where_the_package_is_read_only(tmp_path, home):
    shutil.copytree(PACKAGE, tmp_path / "site" / "scrib_mlflow", ignore=lambda *_: {"__pycache__"})
    owned = tmp_path / "home"
    owned.mkdir()
    os.chown(owned, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    environment = {
        "HOME": str(owned if home == "writable" else tmp_path / "nowhere"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path[1:]]),
        "PATH": os.environ["PATH"],
    }
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    command += ["-c", SMALL_FIT]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd="/", check=False
    )
    if "Permission denied" in run.stderr and "setpriv" in run.stderr:
        pytest.skip("this Python cannot be run by another user")
    assert run.returncode == 0, run.stderr
    assert str(tmp_path) in run.stdout
    assert bool(list(owned.rglob("*.nbi"))) == (home == "writable")
