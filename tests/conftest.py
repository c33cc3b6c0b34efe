"""Stores for tests: real sqlite ones, made once in a test run, and copied.

Compiled kernels are kept in a folder of their own for each state of the files that hold some,
because numba looks at the file of the function called only; a kernel that it calls may have
changed.

Reports have no figures, which take longer to draw than most of what is tested; a test that wants
them asks for `real_page`.
"""

import fcntl
import hashlib
import os
import pickle
import shutil
import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 600  # seconds to wait for another process: the machine may be busy with others
SOURCES = [
    path
    for folder in ("scrib_mlflow/core", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if b"compiling" in path.read_bytes() or path.stem == "compiling"
]
STATE = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / STATE)
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # workers share the cores; waiting threads burn them
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # four processes that nobody needs
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
for name in ("TRACKING_URI", "REGISTRY_URI", "RUN_ID", "EXPERIMENT_ID", "EXPERIMENT_NAME"):
    os.environ.pop(f"MLFLOW_{name}", None)


LONG = ("test_project", "test_browser", "test_remote", "test_serve", "spark", "reproduce")


def pytest_collection_modifyitems(items):
    """Start with the files that take long, so that no worker is left alone with one in the end.

    Skip the tests of Spark where there is no Java; where there is no pyspark they say so.
    """
    items.sort(key=lambda item: not any(name in item.path.name for name in LONG))
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        reason = "java is not installed (Debian: openjdk-17-jre-headless)"
        for item in items:
            if "spark" in item.path.name:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter):
    """Print the figures that slow tests record, for the docs to quote."""
    for kind in ("passed", "failed"):
        for report in terminalreporter.getreports(kind):
            for name, text in report.user_properties:
                if name == "figures" and "slow" in report.keywords:
                    terminalreporter.section(report.nodeid.rsplit("::", 1)[-1])
                    terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def drawn():
    """Leave the figures out of every report, but for those made within `with drawn():`."""
    from scrib_mlflow.report import monitoring, page  # noqa: PLC0415  # few tests need them

    pages = {module: module.draw for module in (page, monitoring)}

    @contextmanager
    def with_figures():
        with pytest.MonkeyPatch.context() as patch:
            for module, draw in pages.items():
                patch.setattr(module, "draw", draw)
            yield

    with pytest.MonkeyPatch.context() as patch:
        for module in pages:
            patch.setattr(module, "draw", lambda _: {})
        yield with_figures


@pytest.fixture
def real_page(drawn):
    """Reports with their figures."""
    with drawn():
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory, worker_id):
    """Return a function that makes a folder once in a test run, however many workers it has.

    Each worker gets a copy of it, with what making it returned.
    """

    def make_or_copy(name, make):
        own = tmp_path_factory.getbasetemp()
        folder = (own if worker_id == "master" else own.parent) / f"made {name}"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
            if not (folder / "made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                (folder / "made").write_bytes(pickle.dumps(make(folder)))
        result = pickle.loads((folder / "made").read_bytes())  # noqa: S301  # just written
        return copy_folder(folder, own / name), result

    return make_or_copy


@pytest.fixture(scope="session")
def empty_store(made_once, drawn):
    """A fresh sqlite store; its migrations take seconds."""

    def make(folder):
        import mlflow  # noqa: PLC0415  # most tests of the core run without it

        mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}").search_experiments()

    return made_once("store", make)[0] / "mlflow.db"


def copy_store(source, folder, artifacts=None):
    """Copy a store into a folder of its own, artifacts of new runs included."""
    path = folder / "mlflow.db"
    shutil.copy(source, path)
    place = artifacts or str(folder / "mlruns" / "0")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE experiments SET artifact_location = ?", [place])
    database.close()
    return f"sqlite:///{path}"


def copy_folder(source, folder):
    """Copy a folder with a store and all its artifacts."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    with sqlite3.connect(folder / "mlflow.db") as database:
        for table, column in (
            ("runs", "artifact_uri"),
            ("experiments", "artifact_location"),
            ("model_versions", "storage_location"),
            ("model_versions", "source"),
            ("logged_models", "artifact_location"),
        ):
            database.execute(
                f"UPDATE {table} SET {column} = replace({column}, ?, ?)",  # noqa: S608
                [str(source), str(folder)],
            )
    database.close()
    return folder


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
        os.environ.pop("MLFLOW_EXPERIMENT_ID", None)  # of `mlflow.set_experiment`
        os.chdir(before[1])


def using_copy(source, folder):
    """Make a copy of a folder with a store, and its store, the current ones."""
    return using(f"sqlite:///{copy_folder(source, folder) / 'mlflow.db'}", folder)


@pytest.fixture
def store(empty_store, tmp_path):
    """An empty store in the test's own folder, which is the current one as well."""
    with using(copy_store(empty_store, tmp_path), tmp_path) as uri:
        yield uri


@pytest.fixture(scope="session")
def base_folder(made_once, empty_store):
    """A store with a registered classifier, and files of rows for it."""

    def make(folder):
        from tests.models import draw_table, register_pipeline  # noqa: PLC0415

        with using(copy_store(empty_store, folder), folder):
            draw_table(600, seed=2).to_parquet("fit.parquet")
            draw_table(500, seed=3).to_csv("other.csv", index=False)
            return register_pipeline()

    return made_once("base", make)


@pytest.fixture
def base(base_folder, tmp_path):
    """A registered classifier in a store, with files of rows, all of which a test may change."""
    folder, uri = base_folder
    with using_copy(folder, tmp_path):
        yield uri


def paper_mode(folder, base_folder, risk_target):
    """Make a store with the set classifier that `mode=paper` makes."""
    import scrib_mlflow  # noqa: PLC0415

    source, uri = base_folder
    with using_copy(source, folder):
        return scrib_mlflow.calibrate(
            uri, "fit.parquet", "label", risk_targets=risk_target, mode="paper"
        )


@pytest.fixture(scope="session")
def calibrated_folder(made_once, base_folder, drawn):
    """A store with a classifier and the set classifier that `mode=paper` made of it."""
    with drawn():
        return made_once("calibrated", lambda folder: paper_mode(folder, base_folder, 0.05))


@pytest.fixture
def calibrated(calibrated_folder):
    """What `calibrate` returned, in its store, which tests read and do not change."""
    folder, done = calibrated_folder
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        yield done


@pytest.fixture(scope="session")
def loose_folder(made_once, base_folder):
    """A store with a set classifier whose answers have every reason, and with rows for it."""
    return made_once("loose", lambda folder: paper_mode(folder, base_folder, 0.3))


@pytest.fixture
def loose(loose_folder, tmp_path):
    """That set classifier in its store, with the test's own folder as the current one."""
    folder, done = loose_folder
    with using(f"sqlite:///{folder / 'mlflow.db'}", tmp_path):
        yield done


@pytest.fixture(scope="session")
def mixture_folder(made_once, empty_store):
    """A store with a registered classifier, and a file of rows that it was not trained on."""

    def make(folder):
        from tests.models import draw_mixture, register_mixture  # noqa: PLC0415

        with using(copy_store(empty_store, folder), folder):
            register_mixture()
            draw_mixture(3000, seed=1).to_parquet("rows.parquet")

    return made_once("mixture", make)[0]


@pytest.fixture
def mixture(mixture_folder, tmp_path):
    """That classifier in a store of the test's own."""
    with using_copy(mixture_folder, tmp_path):
        yield "models:/base/1"


@pytest.fixture(scope="session")
def certified_folder(made_once, mixture_folder, drawn):
    """A store with a certified version, one that is not, and files of rows."""

    def make(folder):
        import scrib_mlflow  # noqa: PLC0415
        from tests.models import draw_mixture  # noqa: PLC0415

        with using_copy(mixture_folder, folder), drawn():
            draw_mixture(2000, seed=2).to_parquet("fresh.parquet")
            given = ("models:/base/1", "rows.parquet", "label")
            options = {"risk_targets": 0.1, "rule": "thresholds"}
            assert scrib_mlflow.calibrate(*given, **options).classifier.certified
            scrib_mlflow.calibrate(*given, risk_targets=0.1, mode="paper")

    return made_once("certified", make)[0]


@pytest.fixture
def certified(certified_folder, tmp_path):
    """A copy of that store, which a test may change."""
    with using_copy(certified_folder, tmp_path / "store") as uri:
        yield uri


@pytest.fixture(scope="session")
def both_folder(made_once, mixture_folder, drawn):
    """A store where version 1 has thresholds, version 2 is optimal, and the classifier is gone."""

    def make(folder):
        import mlflow  # noqa: PLC0415

        import scrib_mlflow  # noqa: PLC0415
        from tests.models import draw_mixture  # noqa: PLC0415

        with using_copy(mixture_folder, folder), drawn():
            draw_mixture(2000, seed=2).to_parquet("fresh.parquet")
            for rule in ("thresholds", "optimal"):
                scrib_mlflow.calibrate(
                    "models:/base/1", "rows.parquet", "label", risk_targets=0.05, rule=rule
                )
            mlflow.MlflowClient().delete_registered_model("base")

    return made_once("both", make)[0]


@pytest.fixture
def both(both_folder):
    """That store, for tests that only read it."""
    with using(f"sqlite:///{both_folder / 'mlflow.db'}", both_folder) as uri:
        yield uri
