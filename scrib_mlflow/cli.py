"""The command line: one command for each entry point of MLproject.

Commands import what they need when they run, so that help is there at once.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import ModuleType
from typing import Any

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from scrib_mlflow import __version__, settings

CALIBRATE = """Make a registered classifier a set classifier, and register it.

Scores the labelled rows with the registered model, finds a threshold for each class so that the
risk targets are kept and as few rows as possible abstain, logs tables and figures, and registers
a model that serves sets, under the alias candidate.

\b
Examples:
  python -m scrib_mlflow calibrate --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage
  python -m scrib_mlflow calibrate --model_uri models:/sleep@champion \\
      --data validation.csv --label stage --risk_targets "{N1: 0.2, default: 0.1}"
  mlflow run . -e calibrate --env-manager local -P model_uri=models:/sleep/3 \\
      -P data=validation.parquet -P label=stage -P risk_targets=targets.yaml
"""
EVALUATE = """Measure a registered set classifier on labelled rows.

Logs and prints risks with exact upper bounds, class by class, and how often it abstains. The
bounds hold for rows that the fit has not seen.

\b
Example:
  python -m scrib_mlflow evaluate --model_uri models:/sleep-scrib@candidate \\
      --data test.parquet --label stage
"""
REGISTER = """Register the model of a calibrate run that could not register it.

\b
Example:
  python -m scrib_mlflow register --run_id 0123456789abcdef0123456789abcdef
"""
DEMO = """The whole story on real data, in a minute or two: train, register, calibrate, serve.

Everything stays in one folder; nothing else on this machine is touched.

\b
Example:
  python -m scrib_mlflow demo --folder scrib_demo
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Class-specific risk control with abstention for models of an MLflow registry.

    \b
    The usual order:
      calibrate   a registered classifier becomes a set classifier
      evaluate    measure it on other rows
      then        mlflow models serve -m models:/NAME-scrib@candidate --env-manager local

    Each command has its own help: python -m scrib_mlflow calibrate --help. Where the store is says
    MLFLOW_TRACKING_URI, as for MLflow itself.
    """  # noqa: D301  # \b keeps click from filling the lines


def _command(name: str, kind: type[settings.Settings], text: str) -> None:
    """Add a command with an option for every setting."""

    def call(**given: Any) -> None:
        from scrib_mlflow.errors import ScribError  # noqa: PLC0415  # as late as the others

        _quiet()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is tidied up
        try:
            parameters = importlib.import_module("scrib_mlflow.adapters.parameters")
            chosen = parameters.read_settings(kind, given)
            workflow: ModuleType = importlib.import_module(f"scrib_mlflow.workflows.{name}")
            done = workflow.run(chosen, say=_say)
        except ScribError as error:
            _say(f"error: {error}")
            sys.exit(1)
        except Exception as error:
            if not _is_outside(error):
                raise
            _say(f"error: {type(error).__name__}: {' '.join(str(error).split())[:1000]}")
            sys.exit(1)
        _print(workflow.summary(done))

    for field_name, field in reversed(kind.model_fields.items()):
        call = _option(field_name, field)(call)
    main.command(name, help=text)(call)


def _is_outside(error: Exception) -> bool:
    """Return whether an error is of MLflow, a file or the network, not a defect of ours."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    return isinstance(error, MlflowException | OSError)


def _option(name: str, field: FieldInfo) -> Any:
    required = field.default is PydanticUndefined
    shown = "" if required or field.default in {None, ()} else f"  [default: {field.default}]"
    return click.option(
        f"--{name}", required=required, metavar="TEXT", help=f"{field.description}{shown}"
    )


def _quiet() -> None:
    """Leave out what MLflow would tell in between, unless the user has asked for it."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print(text: str) -> None:
    click.echo(text)


_command("calibrate", settings.Calibrate, CALIBRATE)
_command("evaluate", settings.Evaluate, EVALUATE)
_command("register", settings.Register, REGISTER)
_command("demo", settings.Demo, DEMO)
