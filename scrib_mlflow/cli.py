"""The command line: one command for each entry point of MLproject.

Commands import what they need when they run, so that help is there at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from types import ModuleType
from typing import Any

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from tqdm import tqdm

from scrib_mlflow import __version__, options
from scrib_mlflow.options import Settings

CALIBRATE = """Make a registered classifier a set classifier, certify it, and register it.

Scores the labelled rows with the registered model. Some of them draw a path of set classifiers,
from the one most likely to keep the risk targets to the one that abstains least; the others test it
in that order, and the last that passes is certified. Each has a threshold for every class or, with
rule=optimal, a price, which abstains less where scores are probabilities of three or more classes.
Logs tables and figures, and registers a model that serves sets, under the alias candidate.

\b
Examples:
  python -m scrib_mlflow calibrate --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage
  python -m scrib_mlflow calibrate --model_uri models:/sleep@champion \\
      --data validation.csv --label stage --risk_targets "{N1: 0.2, default: 0.1}" \\
      --rule optimal
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
GATE = """Move a registry alias to a set classifier, if the evidence meets the policy.

Asks whether its certificate is intact and its targets are as strict as the policy's, whether fresh
rows refute it (or, with evidence=fresh, certify it by themselves), and whether it abstains too
often. Exit code 0: the alias is on the version. 1: it is where it was, and the table says why.

\b
Examples:
  python -m scrib_mlflow gate --model_uri models:/sleep-scrib@candidate --alias champion
  python -m scrib_mlflow gate --model_uri models:/sleep-scrib/4 --alias champion \\
      --data test.parquet --label stage --max_abstention 0.4 --max_abstention_increase 0.02
  mlflow run . -e gate --env-manager local -P model_uri=models:/sleep-scrib/4 \\
      -P alias=champion -P risk_targets="{N1: 0.2, default: 0.1}"
"""
PREDICT = """Answer the rows of a table with a registered set classifier, into parquet files.

Writes the columns that key names and the answers: the label or "" where it abstains, why, and which
classes remain. A row that cannot be scored abstains with the reason invalid_scores. The folder is
there when all rows are answered, and not before; Spark writes straight to it, and it is whole once
_scrib.json is in it. Exit code 0: the output is whole. 1: something failed.

\b
Examples:
  python -m scrib_mlflow predict --model_uri models:/sleep-scrib@champion \\
      --data nights.parquet --output answers --key patient,epoch
  mlflow run . -e predict --env-manager local -P model_uri=models:/sleep-scrib@champion \\
      -P data=/data/nights -P output=/data/answers -P key=patient,epoch -P engine=spark \\
      -P spark_options="{spark.master: 'local[4]'}"
"""
PLAN = """Say what can be certified with labelled rows, before anything is fitted.

For each class: the lowest target that its rows can certify, the certain rows that its target
needs, and the chance of passing.

\b
Example:
  python -m scrib_mlflow plan --data validation.parquet --label stage --risk_targets 0.05
"""
COMPARE = """Compare SCRIB with other methods on rows that calibrate would fit.

The classifier's scores under SCRIB, the optimal rule, SCRIB- (one threshold for all classes), SGR
(a bound on the overall risk), LABEL (mis-coverage by class) and plain top-1. All are fitted on the
same random half of the rows and measured on the other half, several times. The rows that calibrate
would certify on take no part, so choosing by this table spends no certificate.

\b
Examples:
  python -m scrib_mlflow compare --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage --risk_targets "{N1: 0.2, default: 0.1}"
  mlflow run . -e compare --env-manager local -P model_uri=models:/sleep/3 \\
      -P data=validation.parquet -P label=stage -P group=patient -P repeats=50
"""
FRONTIER = """Say which targets can be afforded: abstention against target, before calibrate.

Fits a set classifier at each of many targets, all classes together and one class at a time around
the chosen ones, on half of the rows that calibrate would fit, and measures them on the other half.
Says how often it abstains at each target, which class is the expensive one, and which targets
calibrate is predicted to certify with the rows that it keeps for that. Their labels stay unread, so
picking targets by this table spends no certificate.

\b
Examples:
  python -m scrib_mlflow frontier --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage --group patient
  mlflow run . -e frontier --env-manager local -P model_uri=models:/sleep/3 \\
      -P data=validation.parquet -P label=stage -P risk_targets="{N1: 0.2, default: 0.1}" \\
      -P lowest=0.02 -P highest=0.3
"""
REGISTER = """Register the model of a calibrate run that could not register it.

\b
Example:
  python -m scrib_mlflow register --run_id 0123456789abcdef0123456789abcdef
"""
DEMO = """The whole story on real data, in a minute or two: train, register, calibrate, gate, serve.

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
      plan        what can be certified with the rows at hand
      frontier    which targets can be afforded, by rows that certify nothing
      compare     which method suits them, by rows that certify nothing
      calibrate   a registered classifier becomes a certified set classifier
      evaluate    measure it on other rows
      gate        move an alias to it, if it keeps what a policy asks for
      predict     answer the rows of a table, into parquet files
      or          mlflow models serve -m models:/NAME-scrib@candidate --env-manager local

    Each command has its own help: python -m scrib_mlflow calibrate --help. Where the store is says
    MLFLOW_TRACKING_URI, as for MLflow itself.
    """  # noqa: D301  # \b keeps click from filling the lines


def make_command(name: str, kind: type[Settings], text: str, module: str) -> click.Command:
    """Return a command with an option for every setting; the module has its `run`."""

    def call(**given: Any) -> None:
        from scrib_mlflow.errors import ScribError  # noqa: PLC0415  # as late as the others

        _quiet()
        _show_logs()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is tidied up
        try:
            parameters = importlib.import_module("scrib_mlflow.parameters")
            chosen = parameters.read_settings(kind, given)
            workflow: ModuleType = importlib.import_module(module)
            done = workflow.run(chosen)
        except ScribError as error:
            _say(f"error: {error}")
            sys.exit(1)
        except Exception as error:
            if not _is_outside(error):
                raise
            _say(f"error: {type(error).__name__}: {' '.join(str(error).split())[:1000]}")
            sys.exit(1)
        _print(workflow.summary(done))
        if hasattr(workflow, "exit_code"):
            sys.exit(workflow.exit_code(done))

    for field_name, field in reversed(kind.model_fields.items()):
        call = _option(field_name, field)(call)
    return click.command(name, help=text)(call)


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


class _Terminal(logging.Handler):
    """Shows what the package logs, above a bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        tqdm.write(self.format(record), file=sys.stderr)


def _show_logs() -> None:
    """Show what the package and its experiments log; nothing of other libraries."""
    for name in ("scrib_mlflow", "experiments"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        if not any(isinstance(handler, _Terminal) for handler in logger.handlers):
            logger.addHandler(_Terminal())


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print(text: str) -> None:
    click.echo(text)


for _name, _kind, _text in (
    ("calibrate", options.Calibrate, CALIBRATE),
    ("evaluate", options.Evaluate, EVALUATE),
    ("gate", options.Gate, GATE),
    ("predict", options.Predict, PREDICT),
    ("plan", options.Plan, PLAN),
    ("frontier", options.Frontier, FRONTIER),
    ("compare", options.Compare, COMPARE),
    ("register", options.Register, REGISTER),
    ("demo", options.Demo, DEMO),
):
    main.add_command(make_command(_name, _kind, _text, f"scrib_mlflow.workflows.{_name}"))
