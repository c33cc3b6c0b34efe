"""A registered classifier, and files of rows for it."""

import shutil
import sqlite3

import pytest

import scrib_mlflow
from tests.conftest import copy_store, using
from tests.models import draw_mixture, draw_table, register_mixture, register_pipeline


@pytest.fixture
def base(store):
    """A registered classifier, and files of rows for it."""
    uri = register_pipeline()
    draw_table(600, seed=2).to_parquet("fit.parquet")
    draw_table(500, seed=3).to_csv("other.csv", index=False)
    return uri


@pytest.fixture(scope="session")
def mixture_folder(empty_store, tmp_path_factory):
    """A store with a registered classifier, made once."""
    folder = tmp_path_factory.mktemp("mixture")
    with using(copy_store(empty_store, folder), folder):
        register_mixture()
    return folder


@pytest.fixture(scope="session")
def certified_folder(empty_store, tmp_path_factory):
    """A store with a certified version, one that is not, and files of rows."""
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
    uri = register_mixture()
    draw_mixture(3000, seed=1).to_parquet("rows.parquet")
    return uri
