"""The folder that `predict` writes: whole, or not there at all.

Parts are written to a folder beside it, which takes its name when every row is answered.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.parquet as pq

from scrib_mlflow.errors import OutputError, ScribError
from scrib_mlflow.results import PartRecord, Predictions, from_json, to_json

MANIFEST = "_scrib.json"
PROGRESS = "_progress.json"
PARTIAL, REPLACED = ".partial", ".replaced"  # endings of folders beside the output
FOOTER = b"scrib"  # key of what a part says of itself
PLANS = {
    "model_uri": "the model",
    "certificate_digest": "the model's certificate",
    "source": "the path of the data",
    "key": "key",
    "explain": "explain",
    "batch_rows": "batch_rows",
    "engine": "engine",
    "files": "the files of the data",
}


def local_path(place: str) -> Path | None:
    """Return a path of this machine's file system, None where a URI means another one."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if len(parts.scheme) > 1 else Path(place)  # one letter is a Windows drive


def check_apart(output: Path, data: str) -> None:
    """Raise where the output would lie among the data, or the data in the output."""
    if output.name in {"", ".", ".."}:
        raise OutputError(f"output is {str(output)!r}; name a folder that is not there yet")
    if output.is_symlink() or output.is_mount():
        raise OutputError(
            f"output {output} is a link or a mount, which cannot be replaced; name a folder in it"
        )
    old = beside(output, REPLACED)
    if old.exists() and not (old / MANIFEST).is_file():
        raise OutputError(f"{old} is in the way and is none of predict's; move it, or delete it")
    source = local_path(data)
    if source is None:
        return
    written, read = output.resolve(), source.resolve()
    for folder in (written, beside(written, PARTIAL), beside(written, REPLACED)):
        if folder == read or folder in read.parents:
            raise OutputError(
                f"output {output} holds the data {data}, or would; choose another folder"
            )
    if read in written.parents:
        raise OutputError(
            f"output {output} lies inside the data folder {data}, so it would be read as data the "
            "next time; choose a folder elsewhere"
        )


def beside(output: Path, ending: str) -> Path:
    """Return a folder beside the output."""
    return output.with_name(output.name + ending)


@contextmanager
def writing(output: Path | str) -> Iterator[None]:
    """Say what to do where the output cannot be written."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        told = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
        raise OutputError(
            f"output {output} cannot be written: {told}; make room or choose another folder, and "
            "run the same command again: it goes on with the parts that are whole"
        ) from error


def read_manifest(output: Path) -> Predictions | None:
    """Return what a finished output says of itself, None where it says nothing."""
    try:
        found = from_json((output / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ScribError):
        return None
    if not isinstance(found, Predictions):
        return None
    return (
        found if all(n_rows_of(output / part.name) == part.n_rows for part in found.parts) else None
    )


def is_taken(output: Path) -> bool:
    """Return whether something is there already; an empty folder is nothing."""
    return output.exists() and not (output.is_dir() and not any(output.iterdir()))


def check_replaceable(output: Path, known: Predictions | None, *, overwrite: bool) -> None:
    """Raise unless what is there may be replaced: only what `predict` has written, and if asked."""
    if not (output / MANIFEST).is_file():
        raise OutputError(
            f"output {output} is there and was not written by predict; choose another folder"
        )
    if not overwrite:
        what = "it is damaged" if known is None else "it is of another model, other rows or columns"
        raise OutputError(f"output {output} is there, but {what}; replace it with overwrite=true")


def n_rows_of(path: Path) -> int | None:
    """Return how many rows a file has by its footer, which is written last."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def begin(output: Path, plan: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the folder to write parts to, and why earlier ones are not kept, "" where they are.

    The plan says what must be the same for parts of an earlier run to be kept.
    """
    folder = beside(output, PARTIAL)
    known: dict[str, Any] = {}
    if is_taken(folder):
        known = _read_plan(folder)
    wanted = json.loads(json.dumps(plan))
    others = [PLANS[name] for name in PLANS if name in known and known[name] != wanted.get(name)]
    if known != wanted:
        delete(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # a folder of parts has its plan from the first moment on: without one it is not ours
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        new.chmod(0o777 & ~_umask())
        write_text(new / PROGRESS, json.dumps(wanted, indent=2))
        new.rename(folder)
    return folder, f"not the same as in {folder}: {', '.join(others)}" if others else ""


@contextmanager
def worth_keeping(folder: Path) -> Iterator[None]:
    """Leave no folder behind where what fails has finished no part."""
    try:
        yield
    except BaseException:
        if not any(folder.glob("part-*")):
            delete(folder)
        raise


def _read_plan(folder: Path) -> dict[str, Any]:
    """Return the plan of a folder of parts, or say that it is something else."""
    try:
        known = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if not isinstance(known, dict) or not known.keys() >= {"model_uri", "certificate_digest"}:
        raise OutputError(f"{folder} is in the way and is none of predict's; move it, or delete it")
    return known


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_part(folder: Path, name: str, table: pa.Table, footer: str) -> None:
    """Write a part under another name, and rename it when it is on the disk."""
    told = {**(table.schema.metadata or {}), FOOTER: footer.encode()}
    temporary = folder / f".{name}.{os.getpid()}"
    try:
        with temporary.open("wb") as file:
            pq.write_table(table.replace_schema_metadata(told), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_part(path: Path, footer: str, n_rows: int) -> Counter[str] | None:
    """Return how often each reason stands in a whole part, None where it must be made anew."""
    try:
        with pq.ParquetFile(path) as file:
            told = (file.schema_arrow.metadata or {}).get(FOOTER, b"").decode()
            if told != footer or file.metadata.num_rows != n_rows:
                return None
            return count_reasons(file.read())
    except (OSError, ValueError, pa.ArrowException):
        return None


def count_reasons(table: pa.Table) -> Counter[str]:
    """Return how many rows have which reason; it is "" where a label is given."""
    counted = table.column("reason").value_counts().to_pylist()
    return Counter({pair["values"]: pair["counts"] for pair in counted})


def finish(output: Path, folder: Path, manifest: Predictions) -> None:
    """Give the folder of parts its manifest and its name; what had the name before goes."""
    belonging = {PROGRESS, *(part.name for part in manifest.parts)}
    for path in [*folder.iterdir()]:
        if path.name not in belonging:
            delete(path)
    missing = [part for part in manifest.parts if n_rows_of(folder / part.name) != part.n_rows]
    if missing:
        raise OutputError(
            f"{folder / missing[0].name} is not whole any more; does another predict write to "
            f"{output}? run the same command again"
        )
    write_text(folder / MANIFEST, to_json(manifest))
    old = beside(output, REPLACED)
    delete(old)  # of a run that was stopped here; nobody else's, which was checked at first
    if output.exists():
        output.rename(old)
    folder.rename(output)
    _sync(output.parent)
    delete(output / PROGRESS)  # last, so that what is interrupted here can still be resumed
    delete(old)


def part_records(rows: Mapping[str, int]) -> tuple[PartRecord, ...]:
    """Return parts by name, with their rows."""
    return tuple(PartRecord(name=name, n_rows=n) for name, n in sorted(rows.items()))


def give_up(output: Path) -> None:
    """Delete parts that are worth nothing."""
    delete(beside(output, PARTIAL))


def delete(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text under another name, and rename it when it is on the disk."""
    temporary = path.with_name(f"._{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do so."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
