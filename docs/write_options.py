"""Write MLproject and the option tables of docs/reference.md from the settings models.

make options
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from experiments.reproduce import Reproduce
from scrib_mlflow import cli
from scrib_mlflow.cli import OptionHelp
from scrib_mlflow.options import VALUE_NOTES, Settings

ROOT = Path(__file__).parent.parent
PROJECT, REFERENCE = ROOT / "MLproject", ROOT / "docs" / "reference.md"
KINDS: dict[str, type[Settings]] = {
    **{name: command.kind for name, command in cli.main.commands.items()},
    "reproduce": Reproduce,
}
PATHS = ("plan", "frontier", "compare", "calibrate", "evaluate")  # MLflow looks for their data
TABLES = ("calibrate", "evaluate")  # have a twin whose data MLflow leaves to Spark
HERE = '      here: {type: path, default: "."}'
HEAD = """# Written by `make options` from the settings models: change those, not this file.
name: scrib_mlflow

conda_env: conda.yaml

# here: the folder in which you call `mlflow run`, which MLflow writes out in full. Relative paths
# start there, and not in the folder of this file, which can be a copy that MLflow has made.
# NAME_table: data is a table of Spark's catalog, or an address that only Spark reads. MLflow looks
# for the file of a path and copies what lies elsewhere; it must leave such data alone.
entry_points:
"""
TWIN = """
  {0}_table:
    <<: *{0}
    parameters:
      <<: *{0}_parameters
      data: {{type: string}}
"""
BLOCK = re.compile(r"(<!-- options of (\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
TABLE_HEAD = "| option | value | default | meaning |\n|---|---|---|---|\n"


def main() -> None:
    """Write both files."""
    PROJECT.write_text(mlproject(), encoding="utf-8")
    REFERENCE.write_text(reference(REFERENCE.read_text(encoding="utf-8")), encoding="utf-8")


def mlproject() -> str:
    """Return MLproject: an entry point for each command, which passes all its options."""
    points = [_entry_point(name) for name in KINDS]
    return HEAD + "\n".join([*points, "  main: *calibrate\n"])


def _entry_point(name: str) -> str:
    fields = KINDS[name].model_fields
    program = "experiments" if name == "reproduce" else f"scrib_mlflow {name}"
    pairs = " ".join(f"--{field}\0{{{field}}}" for field in [*fields, "here"])  # stay on one line
    command = textwrap.wrap(f"python -m {program} {pairs}", 94, break_on_hyphens=False)
    twin = name in TABLES
    lines = [
        f"  {name}:" + f" &{name}" * twin,
        "    parameters:" + f" &{name}_parameters" * twin,
        *(f"      {field}: {{{_parameter(name, field)}}}" for field in fields),
        HERE,
        "    command: >-",
        *(f"      {line}".replace("\0", " ") for line in command),
    ]
    return "\n".join(lines) + "\n" + TWIN.format(name) * twin


def _parameter(name: str, field: str) -> str:
    """Return the type and the default; a command reads empty text as no value."""
    info = KINDS[name].model_fields[field]
    if info.is_required():
        return "type: path" if field == "data" and name in PATHS else "type: string"
    if info.annotation in (int, float):
        return f"type: float, default: {info.default}"
    text = "" if info.default in (None, ()) else str(info.default)
    return f"type: string, default: {json.dumps(text)}"


def reference(text: str) -> str:
    """Return the reference with the tables between its markers made anew."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{_options_of(block[2])}\n{block[3]}", text)


def _options_of(name: str) -> str:
    """Return the options that are as for calibrate by name, and a table of the others."""
    if name == "values":
        return "".join(f"- {_code(key)}: {note}\n" for key, note in VALUE_NOTES.items())
    usual = [] if name == "calibrate" else _flat(KINDS["calibrate"])
    same = [f"`{option.name}`" for option in _flat(KINDS[name]) if option in usual]
    text = f"As for `calibrate`: {', '.join(same)}." if same else ""
    parts = [textwrap.fill(text, 100, break_on_hyphens=False), _table(name, usual)]
    return "\n\n".join(part for part in parts if part)


def _table(name: str, usual: list[OptionHelp]) -> str:
    rows = []
    for heading, listed in cli.describe(KINDS[name]).items():
        others = [option for option in listed if option not in usual]
        rows += [f"| **{heading}** | | | |\n"] if others else []
        rows += [_row(option) for option in others]
    return TABLE_HEAD + "".join(rows)


def _flat(kind: type[Settings]) -> list[OptionHelp]:
    return [option for listed in cli.describe(kind).values() for option in listed]


def _row(option: OptionHelp) -> str:
    value = _code(option.value.strip("[]")) if option.value else "flag"
    default = option.default or ("none" if option.value else "off")
    cells = (
        f"`{option.name}`",
        f"{value}, `{option.limits}`" if option.limits else value,
        "required" if option.required else default,
        option.text,
    )
    return f"| {' | '.join(cells)} |\n"


def _code(values: str) -> str:
    return " or ".join(f"`{value}`" for value in values.split("|"))


if __name__ == "__main__":
    main()
