"""Stores for tests: real sqlite ones, made once and copied.

Compiled kernels are kept in a folder of their own for each state of the sources, because numba
looks at the file of the function called only; a kernel that it calls may have changed.
"""

import hashlib
import os
import shutil
import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNELS = ("scrib_mlflow/core/**/*.py", "experiments/surface.py")
SOURCES = sorted(path for pattern in KERNELS for path in ROOT.glob(pattern))
STATE = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / STATE)
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_RUN_ID"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items):
    """Skip the tests of Spark where there is no Java; where there is no pyspark they say so."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        reason = "java is not installed (Debian: openjdk-17-jre-headless)"
        for item in items:
            if "spark" in item.path.name:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """A fresh sqlite store; its migrations take seconds, so it is made once."""
    import mlflow  # noqa: PLC0415  # most tests of the core run without it

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


def copy_store(source, folder, artifacts=None):
    """Copy a store into a folder of its own, artifacts of new runs included."""
    path = folder / "mlflow.db"
    shutil.copy(source, path)
    place = artifacts or str(folder / "mlruns" / "0")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE experiments SET artifact_location = ?", [place])
    database.close()
    return f"sqlite:///{path}"


@contextmanager
def using(uri, folder):
    """Make a store and a folder the current ones."""
    import mlflow  # noqa: PLC0415

    before = os.environ.get("MLFLOW_TRACKING_URI"), Path.cwd()
    mlflow.set_tracking_uri(uri)
    os.chdir(folder)
    try:
        yield uri
    finally:
        while mlflow.active_run():
            mlflow.end_run()
        mlflow.set_tracking_uri(before[0])
        os.chdir(before[1])


@pytest.fixture
def store(empty_store, tmp_path):
    """An empty store in the test's own folder, which is the current one as well."""
    with using(copy_store(empty_store, tmp_path), tmp_path) as uri:
        yield uri


@pytest.fixture(scope="session")
def calibrated_folder(empty_store, tmp_path_factory):
    """A store with a classifier and the set classifier that `mode=paper` made of it."""
    import scrib_mlflow  # noqa: PLC0415
    from tests.models import draw_table, register_pipeline  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("calibrated")
    with using(copy_store(empty_store, folder), folder):
        draw_table(600, seed=2).to_parquet("fit.parquet")
        draw_table(500, seed=3).to_csv("other.csv", index=False)
        done = scrib_mlflow.calibrate(
            register_pipeline(), "fit.parquet", "label", risk_targets=0.05, mode="paper"
        )
    return folder, done


@pytest.fixture
def calibrated(calibrated_folder):
    """What `calibrate` returned, in its store, which tests read and do not change."""
    folder, done = calibrated_folder
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        yield done


@pytest.fixture(scope="session")
def loose_folder(empty_store, tmp_path_factory):
    """A store with a set classifier whose answers have every reason, and with rows for it."""
    import scrib_mlflow  # noqa: PLC0415
    from tests.models import draw_table, register_pipeline  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("loose")
    with using(copy_store(empty_store, folder), folder):
        draw_table(600, seed=2).to_parquet("fit.parquet")
        done = scrib_mlflow.calibrate(
            register_pipeline(), "fit.parquet", "label", risk_targets=0.3, mode="paper"
        )
    return folder, done


@pytest.fixture
def loose(loose_folder, tmp_path):
    """That set classifier in its store, with the test's own folder as the current one."""
    folder, done = loose_folder
    with using(f"sqlite:///{folder / 'mlflow.db'}", tmp_path):
        yield done


@pytest.fixture
def base(store):
    """A registered classifier, and files of rows for it."""
    from tests.models import draw_table, register_pipeline  # noqa: PLC0415

    uri = register_pipeline()
    draw_table(600, seed=2).to_parquet("fit.parquet")
    draw_table(500, seed=3).to_csv("other.csv", index=False)
    return uri


@pytest.fixture(scope="session")
def mixture_folder(empty_store, tmp_path_factory):
    """A store with a registered classifier, made once."""
    from tests.models import register_mixture  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("mixture")
    with using(copy_store(empty_store, folder), folder):
        register_mixture()
    return folder


@pytest.fixture(scope="session")
def certified_folder(empty_store, tmp_path_factory):
    """A store with a certified version, one that is not, and files of rows."""
    import scrib_mlflow  # noqa: PLC0415
    from tests.models import draw_mixture, register_mixture  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("certified")
    with using(copy_store(empty_store, folder), folder):
        uri = register_mixture()
        draw_mixture(3000, seed=1).to_parquet("rows.parquet")
        draw_mixture(2000, seed=2).to_parquet("fresh.parquet")
        done = scrib_mlflow.calibrate(uri, "rows.parquet", "label", risk_targets=0.1)
        assert done.classifier.certified
        scrib_mlflow.calibrate(uri, "rows.parquet", "label", risk_targets=0.1, mode="paper")
    return folder


@pytest.fixture
def certified(certified_folder, tmp_path):
    """A copy of that store, which a test may change."""
    folder = tmp_path / "store"
    shutil.copytree(certified_folder, folder)
    path = folder / "mlflow.db"
    with sqlite3.connect(path) as database:
        for table, column in (
            ("runs", "artifact_uri"),
            ("experiments", "artifact_location"),
            ("model_versions", "storage_location"),
            ("model_versions", "source"),
            ("logged_models", "artifact_location"),
        ):
            database.execute(
                f"UPDATE {table} SET {column} = replace({column}, ?, ?)",  # noqa: S608
                [str(certified_folder), str(folder)],
            )
    database.close()
    with using(f"sqlite:///{path}", folder) as uri:
        yield uri


@pytest.fixture
def mixture(store):
    """A registered classifier, and a file of rows that it was not trained on."""
    from tests.models import draw_mixture, register_mixture  # noqa: PLC0415

    uri = register_mixture()
    draw_mixture(3000, seed=1).to_parquet("rows.parquet")
    return uri
