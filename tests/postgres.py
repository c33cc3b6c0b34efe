"""PostgreSQL of Debian, in a folder of its own, as MLflow's backend.

Each test gets a database of its own, copied from one that MLflow has made its tables in.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import mlflow
import pytest
import sqlalchemy

from scrib_mlflow.workflows.demo import HOST, free_port

SECONDS = 60
OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
TABLES = "with_tables"


@pytest.fixture(scope="session")
def postgres():
    """The address of a PostgreSQL server, whose database `with_tables` is for copies."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip("psycopg2 is not installed, which connects to PostgreSQL")
    with _running(programs[-1].parent) as address:
        _execute(address, f"CREATE DATABASE {TABLES}")
        client = mlflow.MlflowClient(f"{address}/{TABLES}")
        client.search_experiments()  # makes them
        yield address


def new_store(address):
    """Return the URI of a new database with empty tables of MLflow."""
    name = f"copy_{uuid4().hex}"
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"
    _execute(address, others.format(TABLES), f"CREATE DATABASE {name} TEMPLATE {TABLES}")
    place = "UPDATE experiments SET artifact_location = 'mlflow-artifacts:/0'"
    _execute(address, place, database=name)
    return f"{address}/{name}"


def _execute(address, *statements, database="postgres"):
    engine = sqlalchemy.create_engine(f"{address}/{database}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))
    engine.dispose()


@contextmanager
def _running(programs):
    """Yield the address of a server, which is stopped in the end, by its process id."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's are closed to other users
    user = {}
    if os.getuid() == 0:  # as whom it refuses to run
        names = {each.pw_name: each for each in pwd.getpwall()}
        other = names.get("postgres") or names["nobody"]
        os.chown(folder, other.pw_uid, other.pw_gid)
        user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    data, port = folder / "data", free_port()
    try:
        first = [programs / "initdb", "-D", data, "-A", "trust", "-U", "mlflow", "-E", "UTF8"]
        subprocess.run(
            [*first, "--locale", "C"], check=True, capture_output=True, cwd=folder, **user
        )
        command = [programs / "postgres", "-D", data, "-h", HOST, "-p", str(port), "-k", folder]
        command += [word for option in OPTIONS for word in ("-c", option)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user)
        try:
            _wait_until_up(programs / "pg_isready", port, process, folder / "log")
            yield f"postgresql+psycopg2://mlflow@{HOST}:{port}"
        finally:
            process.send_signal(signal.SIGINT)  # ends connections, and the server
            process.wait(SECONDS)
    finally:
        shutil.rmtree(folder)


def _wait_until_up(program, port, process, log):
    deadline = time.monotonic() + SECONDS
    while subprocess.run([program, "-q", "-h", HOST, "-p", str(port)], check=False).returncode:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
