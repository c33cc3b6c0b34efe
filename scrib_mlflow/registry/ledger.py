"""The ledger: how often rows have certified something, kept as tags of runs.

A use is written down before it is counted, so of uses at the same time each sees the others: no
two get a number lower than their order of writing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlflow
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException

from scrib_mlflow.core.certificate.claims import spending
from scrib_mlflow.errors import StoreError
from scrib_mlflow.messages import brief
from scrib_mlflow.options import Ledger
from scrib_mlflow.records import LedgerEntry

DIGEST, KEY = "scrib.ledger_digest", "scrib.ledger_key"
NUMBER, LEVEL = "scrib.ledger_number", "scrib.ledger_level"
NUMBERS = re.compile("[1-9][0-9]{0,8}")
LOOKED = "scrib.used_certify_rows"  # "true" where a use showed labels and certified nothing


def enter(
    run_id: str, digest: str, tested: str, level: float, ledger: Ledger, *, looks: bool = False
) -> LedgerEntry:
    """Enter a use of rows and return which it is; the same test again is the same use.

    `tested` names everything that the outcome depends on; `level` is the error probability that a
    certificate has by itself; `looks` says that labels are shown and nothing is certified.
    """
    key = hashlib.blake2b(f"{tested}\n{level!r}\n{ledger}".encode(), digest_size=16).hexdigest()
    client = mlflow.MlflowClient()
    client.set_tag(run_id, KEY, key)
    if looks:
        client.set_tag(run_id, LOOKED, "true")
    client.set_tag(run_id, DIGEST, digest)
    runs = [run for run in _uses(digest) if run.info.run_id != run_id]
    others = [run.data.tags for run in runs]
    again = [
        _number(run) for run in runs if run.data.tags.get(KEY) == key and NUMBER in run.data.tags
    ]
    known = {run.data.tags[KEY]: _level(run, level) for run in runs if KEY in run.data.tags}
    known.pop(key, None)
    number = min(again) if again else len(known) + 1
    spent = spending(level, number) if ledger == "spend" else level
    client.set_tag(run_id, NUMBER, str(number))
    client.set_tag(run_id, LEVEL, repr(spent))
    return LedgerEntry(
        digest=digest,
        key=key,
        number=number,
        level=spent,
        total=min(spent + sum(known.values()), 1.0),
        ledger=ledger,
        n_looks=len({tags.get(KEY) for tags in others if tags.get(LOOKED) == "true"} - {key}),
    )


@contextmanager
def not_counted_if_it_fails(run_id: str) -> Iterator[None]:
    """Strike a use out where it fails: for what comes before labels are read."""
    try:
        yield
    except BaseException:
        with suppress(MlflowException, OSError):  # else it counts, which is on the safe side
            mlflow.MlflowClient().delete_tag(run_id, DIGEST)
        raise


def number_of(run_id: str) -> int | None:
    """Return which use of its rows a run is, None where it is none or the store does not say."""
    with suppress(MlflowException, OSError, StoreError):
        run = mlflow.get_run(run_id)
        return _number(run) if {DIGEST, NUMBER} <= run.data.tags.keys() else None
    return None


def _number(run: Run) -> int:
    """Return which use of its rows a run says that it is."""
    tag = run.data.tags[NUMBER]
    if not NUMBERS.fullmatch(tag):
        raise _unreadable(run, NUMBER)
    return int(tag)


def _level(run: Run, usual: float) -> float:
    """Return the error probability that a run says it has spent, the usual one if it says none."""
    with suppress(ValueError):
        level = float(run.data.tags.get(LEVEL, usual))
        if 0 < level < 1:
            return level
    raise _unreadable(run, LEVEL)


def _unreadable(run: Run, tag: str) -> StoreError:
    return StoreError(
        f"the tag {tag} of run {run.info.run_id} is {brief(run.data.tags[tag])}, so nobody knows "
        "how often these rows have certified something; put it back to what the run's "
        "description says"
    )


def _uses(digest: str) -> list[Run]:
    """Return all runs that have used rows, in whatever experiment, deleted ones too."""
    experiments = mlflow.search_experiments(view_type=ViewType.ALL)
    return mlflow.search_runs(
        [experiment.experiment_id for experiment in experiments],
        f"tags.`{DIGEST}` = '{digest}'",
        run_view_type=ViewType.ALL,
        output_format="list",
    )
