"""Files of rows that people are to label: parquet, csv, or tasks for Label Studio."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
import pandas as pd
from mlflow.types import Schema

from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.rows import hashes, tables
from scrib_mlflow.rows.tables import DRAWN_BY

Format = Literal["parquet", "csv", "label_studio"]
FILES: dict[Format, str] = {
    "parquet": "rows.parquet",
    "csv": "rows.csv",
    "label_studio": "tasks.json",
}
RETURNED: dict[Format, str] = {"label_studio": "export.csv"}  # where it is another file
SHEET, LABELS = "labelling.md", "labels.xml"


def digest(content: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def check_format(
    rows: pd.DataFrame,
    inputs: Sequence[str],
    schema: Schema | None,
    named: Sequence[str],  # columns of a key and of groups
    kind: Format,
) -> None:
    """Raise unless rows read from a csv are the same: labels come back in one, or in parquet."""
    if kind == "parquet":
        return
    written = pd.DataFrame(_values(rows)) if kind == "label_studio" else rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILES["csv"]
        written.to_csv(path, index=False)
        source = tables.open_table("rows", str(path), None)
        again = source.take(np.arange(len(rows)), source.columns)
    for name in [*dict.fromkeys([*named, *inputs])]:
        one, other = (
            _hashes(each[[name]], schema if name in inputs else None, keyed=name in named)
            for each in (rows, again)
        )
        if not np.array_equal(one, other):
            raise InvalidDataError(
                f"column {name!r} of pool does not survive a csv, so its rows could not be told "
                "to be unchanged when they come back; choose format=parquet"
            )


def _hashes(column: pd.DataFrame, schema: Schema | None, *, keyed: bool) -> np.ndarray:
    """Return hashes of the values of a column: as a key, or as the model is given them."""
    if keyed:
        return hashes.key_hashes(column.iloc[:, 0])
    wanted = None
    if schema is not None and schema.has_input_names():
        wanted = Schema([each for each in schema if each.name == column.columns[0]])
    return hashes.feature_sums(tables.as_typed(column, wanted))


def write(
    folder: Path,
    rows: pd.DataFrame,
    kind: Format,
    *,
    label: str,
    run_id: str,
    shown: Sequence[str],
    classes: Sequence[str],
) -> None:
    """Write rows with an empty column for the label, and the run that has drawn them."""
    rows = rows.assign(**{DRAWN_BY: run_id})
    path = folder / FILES[kind]
    if kind == "label_studio":
        _write_tasks(folder, rows, label=label, shown=shown, classes=classes)
        return
    rows = rows.assign(**{label: pd.Series([None] * len(rows), dtype=object)})
    if kind == "parquet":
        rows.astype({label: "string"}).to_parquet(path, index=False)
    else:
        rows.to_csv(path, index=False)


def _write_tasks(
    folder: Path, rows: pd.DataFrame, *, label: str, shown: Sequence[str], classes: Sequence[str]
) -> None:
    """Write tasks, and the interface that shows a row and lets one class be chosen.

    A task holds its columns one by one, so that they come back in the csv that Label Studio
    exports, and once more together, as a table to be shown; a single text is shown as it is.
    """
    text = len(shown) == 1 and shown[0].isidentifier() and _is_text(rows[shown[0]])
    tasks = [
        {"data": data if text else {**data, "row": {n: data[n] for n in shown}}}
        for data in _values(rows)
    ]
    (folder / FILES["label_studio"]).write_text(
        json.dumps(tasks, ensure_ascii=False), encoding="utf-8"
    )
    tag, value = ("Text", shown[0]) if text else ("Table", "row")
    to_show = f'<{tag} name="row" value="${value}"/>'
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in classes)
    (folder / LABELS).write_text(
        f'<View>\n  {to_show}\n  <Choices name={quoteattr(label)} toName="row" '
        f'choice="single" required="true">\n{choices}\n  </Choices>\n</View>\n',
        encoding="utf-8",
    )


def _values(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON has them: floats bit for bit, what it lacks as pandas writes it."""
    plain = json.loads(rows.to_json(orient="records", date_format="iso", double_precision=15))
    exact = rows.astype(object).where(rows.notna(), None).to_dict(orient="records")
    return [
        {
            str(name): value if isinstance(value, str | int | float | bool | None) else other[name]
            for name, value in one.items()
        }
        for one, other in zip(exact, plain, strict=True)
    ]


def _is_text(values: pd.Series) -> bool:
    return bool(pd.api.types.infer_dtype(values, skipna=True) == "string")
