"""The seal of a logged model: a digest of all its files, and a signature for those who want one.

It is made when a set classifier is logged, and stands in tags of the run and of the version. So a
change of any file shows: of the classifier inside, of the served code, of the certificate.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import mlflow
from mlflow.exceptions import MlflowException

from scrib_mlflow.errors import UnreadableModelError
from scrib_mlflow.messages import reason
from scrib_mlflow.records import seal as digest_of

CERTIFICATE_DIGEST = "scrib.certificate_digest"  # tags of a run and of its version
FILES_DIGEST = "scrib.files_digest"
SIGNATURE = "scrib.signature"
FILES = "files.json"  # artifact of a run: the digest of every file, by path
KEY = "SCRIB_SIGNING_KEY"  # environment variable; the key itself is stored nowhere
NOT_SEALED = {"registered_model_meta"}  # MLflow writes it where a version is downloaded
COMPILED = "__pycache__"  # Python writes it where code is imported
CHUNK = 1 << 20  # bytes
MOST_NAMED = 3  # files in a message
VERIFIED = True, "it fits the certificate and all files"


class Seal(NamedTuple):
    """What shows that a model is as it was logged."""

    files: str  # the digest of `files.json`
    signature: str  # over this and the certificate, "" where there was no key

    def tags(self) -> dict[str, str]:
        """Return it as tags of a run or of a version."""
        signed = {SIGNATURE: self.signature} if self.signature else {}
        return {FILES_DIGEST: self.files, **signed}


def read_seal(tags: Mapping[str, str]) -> Seal:
    """Return the seal that tags hold; what they lack is ""."""
    return Seal(tags.get(FILES_DIGEST, ""), tags.get(SIGNATURE, ""))


@contextmanager
def downloaded(uri: str) -> Iterator[Path]:
    """Yield a copy of a model's files, without what Python compiled from them."""
    with tempfile.TemporaryDirectory() as place:
        try:
            path = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=place)
        except (MlflowException, OSError) as error:
            raise UnreadableModelError(
                f"the files of {uri} cannot be read: {reason(error)}"
            ) from error
        folder = Path(path)
        for file in folder.rglob(f"{COMPILED}/*"):
            if file.is_file():
                file.unlink()
        yield folder


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a model, by its path there."""
    return {
        name: _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (name := path.relative_to(folder).as_posix()) not in NOT_SEALED
    }


def _digest(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            made.update(chunk)
    return made.hexdigest()


def files_text(digests: Mapping[str, str]) -> str:
    """Return digests as `files.json` holds them."""
    return json.dumps(dict(sorted(digests.items())), indent=1)


def make_seal(digests: Mapping[str, str], certificate_digest: str) -> Seal:
    """Return the seal of a model with these files, signed if there is a key."""
    files = digest_of(files_text(digests))
    return Seal(files, sign(certificate_digest, files))


def sign(certificate_digest: str, files_digest: str) -> str:
    """Return the signature that the key of this machine gives, "" without a key."""
    key = os.environ.get(KEY, "")
    if not key:
        return ""
    signed = json.dumps([certificate_digest, files_digest])
    return hmac.new(key.encode(), signed.encode(), hashlib.sha256).hexdigest()


def check_signature(certificate_digest: str, seal: Seal) -> tuple[bool, str]:
    """Return whether a seal has the signature that it needs, and what to say of it.

    "" says nothing: there is neither a signature nor a key to ask for one.
    """
    if not os.environ.get(KEY):
        unchecked = f"signed, but {KEY} is not set here, so nobody has checked it"
        return True, unchecked if seal.signature else ""
    if not seal.signature:
        return False, f"{KEY} is set, but the version is not signed; calibrate with the key"
    if hmac.compare_digest(seal.signature, sign(certificate_digest, seal.files)):
        return VERIFIED
    return False, f"it is not the one that {KEY} gives for these files"


def find_changes(digests: Mapping[str, str], noted: Mapping[str, str], run_id: str) -> str:
    """Return which files are not as they were sealed, "" where all of them are.

    `noted` are the digests that were noted then, by where they stand.
    """
    now = digest_of(files_text(digests))
    for place, noted_digest in noted.items():
        if not noted_digest:
            return f"{place} does not say which files were registered"
        if noted_digest != now:
            return f"{_changed(digests, noted_digest, run_id)} not what {place} names"
    return ""


def _changed(digests: Mapping[str, str], noted: str, run_id: str) -> str:
    """Return which files differ from those of the run, as far as it tells."""
    with tempfile.TemporaryDirectory() as place, suppress(MlflowException, OSError, ValueError):
        path = mlflow.artifacts.download_artifacts(
            run_id=run_id, artifact_path=FILES, dst_path=place
        )
        text = Path(path).read_text(encoding="utf-8")
        if digest_of(text) == noted:
            before = json.loads(text)
            names = sorted({*before, *digests})
            other = [name for name in names if before.get(name) != digests.get(name)]
            some = ", ".join(other[:MOST_NAMED]) + " …" * (len(other) > MOST_NAMED)
            return f"its files were changed ({some}): they are"
    return "its files are"
