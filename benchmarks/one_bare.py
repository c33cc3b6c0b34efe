"""One bare script: the MLflow calls of a command, and nothing of this package.

``python -m benchmarks.one_bare COMMAND URI DATA VERSION_FOLDER RUN_FOLDER``; the folders hold the
files of a version and of a calibrate run that were made before.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import Model

LABEL = "label"
TEXTS = ("*.json", "*.md", "*.html")


def main(command: str, uri: str, data: str, version: str, run: str) -> None:
    """Make the calls of a command."""
    client = mlflow.MlflowClient()
    client.search_experiments(max_results=1)
    client.search_registered_models(max_results=1)
    name = uri.removeprefix("models:/").partition("/")[0].partition("@")[0]
    client.get_registered_model(name)
    mlflow.models.get_model_info(uri)
    with mlflow.start_run(experiment_id=_experiment(name)):
        mlflow.log_params({f"option{i}": i for i in range(20)})
        if command != "gate":
            rows = pd.read_parquet(data)
            mlflow.log_input(mlflow.data.from_pandas(rows.head(1000)), context="data")
            model = mlflow.pyfunc.load_model(uri)
            model.predict(rows.drop(columns=LABEL))
            _log(Path(run))
        if command == "calibrate":
            _register(Path(version), uri, rows.drop(columns=LABEL).head(200))
        if command == "gate":
            _move(client, name, uri)


def _experiment(name: str) -> str:
    found = mlflow.get_experiment_by_name(f"{name}-bare")
    return str(found.experiment_id if found else mlflow.create_experiment(f"{name}-bare"))


def _log(folder: Path) -> None:
    """Log what a run of ours holds."""
    mlflow.log_metrics({f"metric/{i}": i / 40 for i in range(40)})
    mlflow.set_tags({f"tag{i}": i for i in range(12)})
    mlflow.log_table(pd.DataFrame({"class": ["a"] * 5}), "classes.json")
    for pattern in TEXTS:
        for path in folder.glob(pattern):
            mlflow.log_text(path.read_text(encoding="utf-8"), path.name)
    for path in folder.glob("*.parquet"):
        mlflow.log_artifact(str(path))
    _log_figures(len([*folder.glob("figures/*.png")]))


def _log_figures(n: int) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  # as late as a script would

    for number in range(n):
        figure = Figure(figsize=(8, 4), layout="constrained")
        figure.subplots(2, 2)
        mlflow.log_figure(figure, f"figures/{number}.png", save_kwargs={"dpi": 150})


def _register(version: Path, uri: str, rows: pd.DataFrame) -> None:
    """Save and try a model, log and try it, and register it."""
    saved = Model.load(str(version))
    packed: dict[str, Any] = {
        "python_model": str(version / "serving.py"),
        "artifacts": {"base_model": uri, "scrib": str(next(version.rglob("scrib.json")))},
        "signature": saved.signature,
        "input_example": rows.head(2),
        "pip_requirements": ["mlflow"],
    }
    with tempfile.TemporaryDirectory() as folder:
        mlflow.pyfunc.save_model(f"{folder}/model", **packed)
        mlflow.pyfunc.load_model(f"{folder}/model").predict(rows)
    info = mlflow.pyfunc.log_model(name="model", **packed)
    mlflow.pyfunc.load_model(info.model_uri).predict(rows)
    made = mlflow.register_model(info.model_uri, "bare")
    client = mlflow.MlflowClient()
    client.update_model_version("bare", made.version, description="bare")
    client.set_registered_model_alias("bare", "candidate", made.version)


def _move(client: mlflow.MlflowClient, name: str, uri: str) -> None:
    """Read a version's file, log a decision, and move an alias."""
    version = uri.rpartition("/")[2]
    mlflow.artifacts.download_artifacts(artifact_uri=f"{uri}/MLmodel")
    mlflow.log_text("{}", "decision.json")
    mlflow.log_text("<p>", "report.html")
    _log_figures(1)
    mlflow.set_tags({f"tag{i}": i for i in range(6)})
    for number in range(4):
        client.set_model_version_tag(name, version, f"tag{number}", "x")
    client.set_registered_model_alias(name, "champion", version)


if __name__ == "__main__":
    main(*sys.argv[1:])
