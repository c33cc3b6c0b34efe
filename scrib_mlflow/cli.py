"""The command line: one command for each entry point of MLproject.

Commands import what they need when they run, so that help is there at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import traceback
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import click
from pydantic.fields import FieldInfo
from tqdm import tqdm

from scrib_mlflow import __version__, messages, options
from scrib_mlflow.options import Settings

CALIBRATE = """Turn a registered classifier into a certified set classifier.

The result is a new registered version, under the alias candidate. It answers with one class where
that is safe, and abstains elsewhere. If it is certified, each class keeps its risk target on new
rows, with the confidence that you choose. The run holds tables, figures and a report.

The registered model scores the labelled rows. Some rows draw a path of set classifiers, from the
one most likely to keep the targets to the one that abstains least. The other rows test them in this
order. The last one that passes is certified.

\b
Examples:
  python -m scrib_mlflow calibrate --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage
  python -m scrib_mlflow calibrate --model_uri models:/sleep@champion \\
      --data validation.csv --label stage --rule optimal \\
      --risk_targets "{N1: 0.2, default: 0.1}" --require_certificate
  mlflow run . -e calibrate --env-manager local \\
      -P model_uri=models:/sleep/3 -P data=validation.parquet \\
      -P label=stage -P risk_targets=targets.yaml
"""
EVALUATE = """Measure a registered set classifier on labelled rows.

Prints and logs, for each class, the risk with its exact upper bound and the share of rows that
abstain. The bounds hold for rows that the fit has not seen.

\b
Example:
  python -m scrib_mlflow evaluate --data test.parquet --label stage \\
      --model_uri models:/sleep-scrib@candidate
"""
GATE = """Move a registry alias to a set classifier if it meets a policy.

The gate checks three things. Is the certificate intact, with targets as strict as the policy's? Do
fresh rows refute it (or, with --evidence fresh, certify it by themselves)? Does it abstain too
often? Exit code 0: the alias is on the version. 1: it was refused, and the table says why. 3: not
decided. 4: nobody knows whether the alias moved; run it again.

\b
Examples:
  python -m scrib_mlflow gate --alias champion \\
      --model_uri models:/sleep-scrib@candidate
  python -m scrib_mlflow gate --model_uri models:/sleep-scrib/4 \\
      --alias champion --data test.parquet --label stage \\
      --max_abstention 0.4 --max_abstention_increase 0.02
  mlflow run . -e gate --env-manager local -P alias=champion \\
      -P model_uri=models:/sleep-scrib/4 \\
      -P risk_targets="{N1: 0.2, default: 0.1}"
"""
PREDICT = """Answer the rows of a table with a registered set classifier.

Writes the columns that key names and the answers: the label or "" where it abstains, why, and which
classes remain. A row that cannot be scored abstains with the reason invalid_scores. The folder is
there when all rows are answered, and not before; Spark writes straight to it, and it is whole once
_scrib.json is in it. Exit code 0: the output is whole. Another one: it is not.

\b
Examples:
  python -m scrib_mlflow predict --data nights.parquet --output answers \\
      --model_uri models:/sleep-scrib@champion --key patient,epoch
  mlflow run . -e predict --env-manager local \\
      -P model_uri=models:/sleep-scrib@champion -P data=/data/nights \\
      -P output=/data/answers -P key=patient,epoch -P engine=spark \\
      -P spark_options="{spark.master: 'local[4]'}"
"""
MONITOR = """Watch a promoted set classifier by batches of its answers.

A certificate holds as long as rows come from where its rows came from. Run this on every batch,
such as a night's: it compares how often the model abstains, what it answers and its scores with
those of the certify rows. With labels, even few and late, it tests whether the risks are still at
most their targets. Evidence adds up from batch to batch, and the chance of a false alarm stays at
most --false_alarms however many batches come. The version's tag scrib_monitor says ok or alarm.
Exit code 0: counted; with --fail_on_alarm, 5: there is an alarm.

\b
Examples:
  python -m scrib_mlflow monitor --model_uri models:/sleep-scrib@champion \\
      --data answers
  python -m scrib_mlflow monitor --model_uri models:/sleep-scrib@champion \\
      --data audited.parquet --label stage --late_labels true --key epoch
  mlflow run . -e monitor --env-manager local \\
      -P model_uri=models:/sleep-scrib@champion -P data=/data/answers \\
      -P fail_on_alarm=true -P on_alarm=demote
"""
PLAN = """Say what your labelled rows can certify, before any fit.

Prints, for each class, the lowest target that its rows can certify, how many certain rows your
target needs, and the chance to pass.

\b
Example:
  python -m scrib_mlflow plan --data validation.parquet --label stage \\
      --risk_targets 0.05
"""
COMPARE = """Compare SCRIB with other methods on your rows.

Prints how often each method abstains and by how much it misses the targets: SCRIB, the optimal
rule, SCRIB- (one threshold for all classes), SGR (a bound on the overall risk), LABEL (mis-coverage
by class) and the top class. Each is fitted on a random half of the rows and measured on the other
half, several times. The rows that calibrate would certify on take no part: you can choose a method
by this table, and the certificate still holds.

\b
Examples:
  python -m scrib_mlflow compare --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage \\
      --risk_targets "{N1: 0.2, default: 0.1}"
  mlflow run . -e compare --env-manager local \\
      -P model_uri=models:/sleep/3 -P data=validation.parquet \\
      -P label=stage -P group=patient -P repeats=50
"""
FRONTIER = """Show what each target costs in abstention, before calibrate.

Prints how often a set classifier abstains at each of many targets, which class costs the most
abstention, and which targets calibrate is predicted to certify. Targets move for all classes
together, and for one class at a time. Each set classifier is fitted on half of the rows that
calibrate would fit, and measured on the other half. The labels of the certify rows are not used:
you can choose targets by this table, and the certificate still holds.

\b
Examples:
  python -m scrib_mlflow frontier --model_uri models:/sleep/3 \\
      --data validation.parquet --label stage --group patient
  mlflow run . -e frontier --env-manager local \\
      -P model_uri=models:/sleep/3 -P data=validation.parquet \\
      -P label=stage -P risk_targets="{N1: 0.2, default: 0.1}" \\
      -P lowest=0.02 -P highest=0.3
"""
SELECT = """Choose the rows to label: those whose labels can prove most.

A certificate is about the rows that are answered, so labels of other rows prove nothing. A few
labelled rows and a pool of unlabelled ones draw a path of set classifiers, which is fixed then.
Rows are drawn at random from those that some of them answer. Prints what more or fewer labels would
prove, so that you can choose the number. Label the rows, then pass them to calibrate with
--selection: the test is as exact as on any other rows.

\b
Examples:
  python -m scrib_mlflow select --model_uri models:/sleep/3 \\
      --data labelled.parquet --label stage --pool nights.parquet \\
      --rows 3000 --key epoch --output to_label
  python -m scrib_mlflow calibrate --selection RUN_ID \\
      --certify_data to_label/rows.parquet --label stage
"""
REGISTER = """Register the model of a calibrate run that could not register it.

\b
Example:
  python -m scrib_mlflow register --run_id 0123456789abcdef0123456789abcdef
"""
DEMO = """See it all on real data: train, register, calibrate, gate, serve.

Takes a minute or two. Everything stays in one folder; nothing else on this machine changes.

\b
Example:
  python -m scrib_mlflow demo --folder scrib_demo
"""
CONTEXT = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}
MISUSED, UNDECIDED = 2, 3  # exit codes; errors.py says what they mean
FIRST_COLUMN = 30  # as wide as click lets it be
LIMITS = {  # as JSON schema names them
    "exclusiveMinimum": "{}<x",
    "minimum": "{}<=x",
    "exclusiveMaximum": "x<{}",
    "maximum": "x<={}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionHelp:
    """What help and the reference say of an option."""

    name: str
    value: str  # what to type; empty for a flag
    limits: str
    default: str
    required: bool
    text: str


def describe(kind: type[Settings]) -> dict[str, list[OptionHelp]]:
    """Return the options of a command under their headings, those that most people need first."""
    command, schema = kind.__name__.lower(), kind.model_json_schema()
    first = options.MOST_USED.get(command, "").split()
    headings = {"Most used": first, "Options": [], **{name: [] for name in options.SECTIONS}}
    for name, shape in schema["properties"].items():
        if name not in first:
            own = "description" in shape  # settings outside the package bring their texts
            headings["Options" if own else options.section_of(command, name)].append(name)
    return {
        heading: [_describe(command, name, schema) for name in names]
        for heading, names in headings.items()
        if names
    }


def _describe(command: str, name: str, schema: Mapping[str, Any]) -> OptionHelp:
    """Return the help of an option: its field's own words, else those of the tables."""

    def look_up(key: str, table: Mapping[str, str]) -> str:
        return shape.get(key) or table.get(f"{command}.{name}") or table.get(name, "")

    shape = schema["properties"][name]
    kinds = [part for part in shape.get("anyOf", [shape]) if part["type"] != "null"]
    return OptionHelp(
        name=name,
        value=_value(kinds) or look_up("value", options.VALUES),
        limits=_limits(kinds[0]),
        default=_plain(shape.get("default")) or look_up("unset", options.UNSET),
        required=name in schema.get("required", ()),
        text=look_up("description", ChainMap(*options.SECTIONS.values())),
    )


def _plain(default: Any) -> str:
    """Return a default as text; no value and a flag that is off are empty."""
    if default in (None, []) or default is False:
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _value(kinds: Sequence[Mapping[str, Any]]) -> str:
    """Return what to type for one of these types of a JSON schema."""
    if "enum" in kinds[0]:
        return f"[{'|'.join(kinds[0]['enum'])}]"
    if len(kinds) > 1:
        return "NUMBER|YAML|FILE"
    values = {"number": "FLOAT", "integer": "INTEGER", "array": "NAMES", "object": "YAML|FILE"}
    return values.get(kinds[0]["type"], "")


def _limits(kind: Mapping[str, Any]) -> str:
    """Return the range of a number, such as 0<x<=1."""
    ends = [end.format(kind[key]) for key, end in LIMITS.items() if key in kind]
    return "".join(ends).replace("xx", "x")


class Command(click.Command):
    """A command that is made of its settings; the module has its `run`."""

    def __init__(self, name: str, kind: type[Settings], text: str, module: str) -> None:
        params = [_option(name, field) for name, field in kind.model_fields.items()]
        here = click.Option(["--here"], expose_value=False, callback=_work_in, is_eager=True)
        super().__init__(
            name,
            params=[here, *params],
            callback=lambda **values: _run(kind, module, values),
            help=text,
            short_help=text.split("\n", 1)[0].removesuffix("."),
            context_settings=CONTEXT,
        )
        self.kind = kind

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, then what to type for their values."""
        headings = describe(self.kind)
        values = {option.value for shown in headings.values() for option in shown}
        notes = [(key, note) for key, note in options.VALUE_NOTES.items() if key in values]
        sections = {heading: [*map(_row, shown)] for heading, shown in headings.items()}
        for heading, rows in (sections | ({"Values": notes} if notes else {})).items():
            aligned = [(name.ljust(FIRST_COLUMN), text) for name, text in rows]
            with formatter.section(heading):
                formatter.write_dl(aligned)


def _row(option: OptionHelp) -> tuple[str, str]:
    default = f"default: {option.default}" if option.default else ""
    required = "required" if option.required else ""
    extra = "; ".join(part for part in (required, default, option.limits) if part)
    text = f"{option.text}  [{extra}]" if extra else option.text
    return f"--{option.name} {option.value}".strip(), text


def _option(name: str, field: FieldInfo) -> click.Parameter:
    """Return an option that takes any text, which its setting checks; a flag may have none."""
    flag: dict[str, Any] = (
        {"is_flag": False, "flag_value": "true"} if field.annotation is bool else {}
    )
    return click.Option([f"--{name}"], required=field.is_required(), **flag)


def _work_in(_: click.Context, __: click.Parameter, here: str | None) -> None:
    """Let relative paths start in a folder: `mlflow run` starts commands in that of the project.

    Processes that a command starts find the package in the project all the same.
    """
    if not here:
        return
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    try:
        os.chdir(here)
    except OSError as error:
        _fail(f"here is {here!r}, but must be a folder to work in: {error.strerror}", MISUSED)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _run(kind: type[Settings], module: str, values: Mapping[str, Any]) -> None:
    """Run a command and print its summary; what its user can put right is one line."""
    from scrib_mlflow import preflight  # noqa: PLC0415  # as late as the others
    from scrib_mlflow.errors import ScribError  # noqa: PLC0415
    from scrib_mlflow.parameters import read_settings  # noqa: PLC0415

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is tidied up
    try:
        with _logs_shown():
            settings = read_settings(kind, values)
            preflight.check(settings)
            workflow: ModuleType = importlib.import_module(module)
            result = workflow.run(settings)
    except ScribError as error:
        _fail(str(error), error.exit_code)
    except Exception as error:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        if not isinstance(error, MlflowException | OSError):  # a defect of ours
            click.echo(messages.shown(traceback.format_exc()), err=True)
            sys.exit(UNDECIDED)
        _fail(f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}", UNDECIDED)
    click.echo(workflow.summary(result))
    if hasattr(workflow, "exit_code"):
        sys.exit(workflow.exit_code(result))


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"error: {messages.bounded(text)}", err=True)
    sys.exit(code)


class _Terminal(logging.Handler):
    """Shows what the package logs, above a bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        tqdm.write(messages.shown(self.format(record)), file=sys.stderr)


@contextmanager
def _logs_shown() -> Iterator[None]:
    """Show what the package and its experiments log, once; nothing of other libraries."""
    loggers, shown = (
        [logging.getLogger(name) for name in ("scrib_mlflow", "experiments")],
        _Terminal(),
    )
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(shown)
        logger.propagate = False  # a model's library may have told the root to print as well
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(shown)
            logger.propagate = True


class Commands(click.Group):
    """Commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return [*self.commands]


@click.group(
    cls=Commands,
    context_settings=CONTEXT,
    subcommand_metavar="COMMAND [OPTIONS]",
)
@click.version_option(__version__)
def main() -> None:
    """Class-specific risk control with abstention, for models in an MLflow registry.

    You say how often each class may be wrong. You get a model that keeps to it, with a
    certificate, and abstains where it has to.

    The commands below stand in their usual order. Each has its own help:

    \b
      python -m scrib_mlflow calibrate --help

    Set MLFLOW_TRACKING_URI to choose the store, as usual. MLflow serves the result:

    \b
      mlflow models serve -m models:/NAME-scrib@candidate --env-manager local
    """  # noqa: D301  # \b keeps click from filling the lines


for _name, _kind, _text in (
    ("demo", options.Demo, DEMO),
    ("plan", options.Plan, PLAN),
    ("frontier", options.Frontier, FRONTIER),
    ("compare", options.Compare, COMPARE),
    ("select", options.Select, SELECT),
    ("calibrate", options.Calibrate, CALIBRATE),
    ("evaluate", options.Evaluate, EVALUATE),
    ("gate", options.Gate, GATE),
    ("predict", options.Predict, PREDICT),
    ("monitor", options.Monitor, MONITOR),
    ("register", options.Register, REGISTER),
):
    main.add_command(Command(_name, _kind, _text, f"scrib_mlflow.workflows.{_name}"))
