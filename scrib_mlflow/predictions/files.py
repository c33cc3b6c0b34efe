"""The folder that `predict` writes on this machine: whole, or not there.

Files are written to a new folder next to the output, which gets the output's name at the end.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scrib_mlflow.errors import OutputError
from scrib_mlflow.predictions.answers import Answers, Written, count_reasons
from scrib_mlflow.results import Predictions, to_json
from scrib_mlflow.rows import hashes

LOGGER = logging.getLogger(__name__)

MANIFEST = "_scrib.json"
PARTIAL, REPLACED = ".partial-", ".replaced-"  # what follows the output's name, before a number


def local_path(place: str) -> Path | None:
    """Return a path of this machine's file system, None where a URI means another one."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if len(parts.scheme) > 1 else Path(place)  # one letter is a Windows drive


def check_apart(output: Path, data: str) -> None:
    """Raise where the output cannot be a folder of its own, apart from the data."""
    if output.name in {"", ".", ".."}:
        raise OutputError(f"output is {str(output)!r}; name a folder that is not there yet")
    if output.is_symlink() or output.is_mount():
        raise OutputError(
            f"output {output} is a link or a mount, which cannot be replaced; name a folder in it"
        )
    source = local_path(data)
    if source is None:
        return
    written, read = output.resolve(), source.resolve()
    if written == read or written in read.parents:
        raise OutputError(f"output {output} holds the data {data}; choose another folder")
    if read in written.parents:
        raise OutputError(
            f"output {output} lies inside the data folder {data}, so it would be read as data the "
            "next time; choose a folder elsewhere"
        )


def check_free(output: Path, *, overwrite: bool) -> None:
    """Raise where something is at the output that may not be replaced."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        check_replaceable(output, ours=(output / MANIFEST).is_file(), overwrite=overwrite)


def check_replaceable(output: Path | str, *, ours: bool, overwrite: bool) -> None:
    """Raise unless an output is one that `predict` wrote, and may be replaced."""
    if not ours:
        raise OutputError(
            f"output {output} is there and was not written by predict, or not to its end: it has "
            f"no {MANIFEST}; choose another folder, or delete it yourself"
        )
    if not overwrite:
        raise OutputError(f"output {output} is there; replace it with overwrite=true")


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say what to do where the output cannot be written."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
        raise OutputError(
            f"output {output} cannot be written: {why}; make room or choose another folder, and "
            "run the same command again"
        ) from error


@contextmanager
def new_folder(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder that becomes the output at the end; if anything fails, it is deleted."""
    folder = _next_to(output, PARTIAL)
    with writing(output):
        folder.mkdir(parents=True)
    try:
        _name_leftovers(output, folder)
        yield folder
        with writing(output):
            _put(folder, output, overwrite=overwrite)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _next_to(output: Path, ending: str) -> Path:
    return output.with_name(f"{output.name}{ending}{uuid4().hex[:12]}")


def _name_leftovers(output: Path, folder: Path) -> None:
    """Log what other runs left: it may be of a run that goes on, so it is not ours to delete."""
    endings = (output.name + PARTIAL, output.name + REPLACED)
    for path in sorted(output.parent.iterdir()):
        if path.name.startswith(endings) and path != folder:
            LOGGER.warning(
                f"{path} is left of a predict that was killed, unless that still runs; delete it "
                "if you do not need it"
            )


def _put(folder: Path, output: Path, *, overwrite: bool) -> None:
    """Rename a folder to the output; an output that is there is deleted once this is done."""
    check_free(output, overwrite=overwrite)  # again: another run may have been faster
    old = _next_to(output, REPLACED)
    if output.exists():
        output.rename(old)
    try:
        folder.rename(output)
    except BaseException:
        if old.exists() and not output.exists():
            old.rename(output)
        raise
    _sync(output.parent)
    if (old / MANIFEST).is_file() or (old.exists() and not any(old.iterdir())):
        shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        LOGGER.warning(f"{old} is what {output} was before; it could not be deleted")


def write_answers(
    output: Path, folder: Path, batches: Iterable[Answers], columns: tuple[str, ...], most: int
) -> Written:
    """Write answers as parquet files of about so many rows; `columns` are those of the data."""
    sums = np.zeros(5, dtype=np.uint64)
    reasons: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    parts: dict[str, int] = {}
    for part in _parts(batches, most):
        sums += part.digest_sums
        reasons += count_reasons(part.table)
        kinds = {field.name: str(field.type) for field in part.table.schema}
        name = f"part-{len(parts):05d}.parquet"
        parts[name] = part.table.num_rows
        with writing(output), (folder / name).open("wb") as file:
            pq.write_table(part.table, file)
            _flush(file)
    digest = hashes.digest_of(columns, sums)
    return Written(digest=digest, columns=kinds, parts=parts, reasons=reasons)


def _parts(batches: Iterable[Answers], most: int) -> Iterator[Answers]:
    """Yield batches joined, until they have so many rows."""
    waiting: list[Answers] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.table.num_rows for each in waiting) >= most:
            yield _join(waiting)
            waiting = []
    if waiting:
        yield _join(waiting)


def _join(batches: list[Answers]) -> Answers:
    sums = sum((batch.digest_sums for batch in batches), np.zeros(5, dtype=np.uint64))
    return Answers(pa.concat_tables([batch.table for batch in batches]), sums)


def write_manifest(output: Path, folder: Path, record: Predictions) -> None:
    """Write what an output says of itself, which makes it whole."""
    with writing(output), (folder / MANIFEST).open("wb") as file:
        file.write(to_json(record).encode())
        _flush(file)
    _sync(folder)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do so."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
