"""Trials: a command, one fault in one of its calls, what must hold then, and the command again."""

import os
import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import mlflow
import pandas as pd
import pyarrow.parquet as pq
from mlflow.exceptions import MlflowException

from tests.clients import ONCE, RETRYING, Pool, client_pool
from tests.conftest import using
from tests.models import draw_mixture, read_record, register_mixture
from tests.proxy import KINDS, Fault, Proxy, proxy_before
from tests.test_remote import running_server

# All faults in all calls take hours; else each call meets one, and each that writes meets all. Of a
# command with many calls a part of these is drawn.
EVERY = os.environ.get("SCRIB_EVERY_FAULT") == "1"
READ_KINDS = ("500", "drop", "outage", "kill_before")  # nothing is lost or half done by reading
LOST_RETRIED = "lost, tried again"  # by MLflow itself, which makes things twice
IDENTIFIER = re.compile(r"/artifacts/.*|/m-[0-9a-f]+")
NAME, LATE = "base-scrib", "late-scrib"
N_ROWS = 200
BASE = ["--model_uri", "models:/base/1", "--data", "rows.parquet", "--label", "label"]
RULE = ["--risk_targets", "0.3", "--rule", "thresholds"]


@dataclass(frozen=True)
class Site:
    """A server with models and rows, a proxy before it, and what starts commands there."""

    folder: Path
    address: str
    proxy: Proxy
    pool: Pool

    def run(self, words, *faults, retrying=False, delay=0.0):
        """Run a command through the proxy to its end."""
        self.proxy.begin(*faults, delay=delay)
        started = self.pool.start(words, self.folder, self.environment(retrying=retrying))
        self.proxy.pid.set_result(started.pid)
        ended = started.wait()
        self.proxy.idle()
        return ended

    def environment(self, *, retrying=False):
        """Return what tells a command where the server is."""
        return {"MLFLOW_TRACKING_URI": self.proxy.address, **(RETRYING if retrying else ONCE)}

    def save(self, name="saved"):
        """Keep what the store holds now; files of artifacts stay anyway."""
        _copy(self.folder / "server" / "mlflow.db", self.folder / f"{name}.db")

    def restore(self, name="saved"):
        """Put the store back to what it held."""
        self.proxy.idle()
        _copy(self.folder / f"{name}.db", self.folder / "server" / "mlflow.db")

    def look(self):
        """Return what the registry holds, past the proxy."""
        client = mlflow.MlflowClient(self.address)
        models = {model.name: dict(model.aliases) for model in client.search_registered_models()}
        return State(models, tuple(client.search_model_versions()))


class State(NamedTuple):
    """What a registry holds."""

    models: dict  # aliases by name
    versions: tuple

    def alias(self, name, alias):
        """Return the version that has an alias, "" for none."""
        return str(self.models.get(name, {}).get(alias, ""))

    def known(self):
        """Return name and number of every version."""
        return {(version.name, str(version.version)) for version in self.versions}

    def of(self, run_id):
        """Return the versions that a run has made."""
        return [v for v in self.versions if v.tags.get("scrib.run_id", v.run_id) == run_id]


def _copy(source, target):
    """Copy a store as it is used: other connections see it whole, before or after."""
    with sqlite3.connect(source) as one, sqlite3.connect(target, timeout=60) as other:
        one.backup(other)
    one.close()
    other.close()


@contextmanager
def fault_site(empty_store, folder):
    """Yield a site on sqlite, where what the store holds can be saved and restored."""
    with (
        client_pool(folder) as pool,  # loads while the server starts
        running_server(empty_store, folder) as address,
        site_of(folder, address, pool) as site,
    ):
        site.save()
        yield site


@contextmanager
def site_of(folder, address, pool):
    """Yield a site with two certified versions, the first of which is the champion."""
    with proxy_before(address) as proxy:
        site = Site(folder, address, proxy, pool)
        with using(address, folder):
            register_mixture(rows=200)
            draw_mixture(600, seed=1).to_parquet("rows.parquet")
            draw_mixture(N_ROWS, seed=2).to_parquet("fresh.parquet")
        for words in (
            calibrate_words("--seed", "0"),
            ["gate", "--model_uri", f"models:/{NAME}/1", *FRESH],
            calibrate_words("--seed", "1"),
        ):
            pool.warm(words, folder, site.environment())
        yield site


def calibrate_words(*others):
    return ["calibrate", *BASE, *RULE, *others]


FRESH = ["--data", "fresh.parquet", "--label", "label", "--max_abstention_increase", "0.5"]


def unregistered_run(site):
    """Add a calibrate run whose model is not registered, and return its id."""
    words = calibrate_words("--seed", "3", "--registered_model_name", LATE)
    assert site.run(words).code == 0
    client = mlflow.MlflowClient(site.address)
    (version,) = client.search_model_versions(f"name = '{LATE}'")
    client.delete_registered_model(LATE)
    return version.run_id


@dataclass
class Figures:
    """What came of the trials of a command."""

    command: str
    n_calls: int
    n_planned: int
    outcomes: Counter = field(default_factory=Counter)  # by kind of fault and how it ended
    broken: list = field(default_factory=list)
    n_again: int = 0
    slowest_again: float = 0.0
    normal: float = 0.0

    def table(self):
        """Return all of it as text."""
        ends = sorted({end for _, end in self.outcomes})
        kinds = [
            kind for kind in (*KINDS, LOST_RETRIED) if any(k == kind for k, _ in self.outcomes)
        ]
        lines = [
            f"{self.command}: {self.n_calls} calls, {sum(self.outcomes.values())} faults of "
            f"{self.n_planned}, {self.n_again} reruns (slowest {self.slowest_again:.1f} s, without "
            f"a fault {self.normal:.1f} s), {len(self.broken)} broken promises",
            " " * 18 + "".join(f"{end:>13}" for end in ends),
        ]
        lines += [
            f"{kind:18}" + "".join(f"{self.outcomes[kind, end]:>13}" for end in ends)
            for kind in kinds
        ]
        return "\n".join([*lines, *self.broken])


def is_write(call):
    """Return whether a call may change something."""
    return call.method != "GET" and not call.path.endswith("/search")


def is_of_registry(call):
    return "/registered-models/" in call.path or "/model-versions/" in call.path


def plan(log, *, all_writes=True):
    """Return which faults can be tried at which calls: of equal calls in a row, at the first."""
    trials, before, n_reads = [], None, 0
    for call in log:
        shape = call.method, IDENTIFIER.sub("", call.path)
        if shape == before and not EVERY:
            continue
        before = shape
        if EVERY or (is_write(call) and (all_writes or is_of_registry(call))):
            kinds = [*KINDS, *([LOST_RETRIED] if is_write(call) else [])]
        else:
            kinds = [READ_KINDS[n_reads % len(READ_KINDS)]]
            n_reads += 1
        trials += [(kind, call.number) for kind in kinds]
    return trials


class Promises(NamedTuple):
    """What holds of a command, whatever happens to one of its calls.

    `check` and `finished` return what does not hold, in words: after the fault, and after the
    command has run again. `again` returns the words of what finishes it, none where nothing is to
    be finished.
    """

    words: list
    check: Callable
    again: Callable
    finished: Callable


def walk(site, name, promises, *, all_writes=True, most=None):
    """Try faults in the calls of a command, at most so many, and return what came of it."""
    site.restore()
    before = site.look()
    plain = site.run(promises.words)
    assert plain.code == 0, plain.text
    log = list(site.proxy.log)
    trials = plan(log, all_writes=all_writes)
    figures = Figures(name, len(log), len(trials), normal=plain.seconds)
    if most and not EVERY:
        trials = random.Random(0).sample(trials, most)  # noqa: S311  # nothing secret
    broken = promises.finished(site, before)
    assert not broken, broken
    for kind, number in trials:
        site.restore()
        _try(site, promises, before, Fault(kind.split(",")[0], number), kind, figures)
    return figures


def _try(site, promises, before, fault, kind, figures):
    """Let one call of the command go wrong, look, and finish it."""
    ended = site.run(promises.words, fault, retrying=kind == LOST_RETRIED)
    end = "killed" if ended.code == -9 else f"exit {ended.code}"
    end = end if fault.hit else "not reached"
    figures.outcomes[kind, end] += 1
    found = promises.check(site, before, ended)
    if ended.code != 0 and "Traceback" in ended.text:
        found.append(f"a traceback: {_end(ended)}")
    words = promises.again(site, before, ended)
    last = ended
    if words:
        last = site.run(words)
        figures.n_again += 1
        figures.slowest_again = max(figures.slowest_again, last.seconds)
        if last.code != 0:
            found.append(f"again: exit {last.code}: {_end(last)}")
        if last.seconds > 2 * figures.normal + 2:
            found.append(f"again: takes {last.seconds:.1f} s")
    if last.code == 0:
        found += [f"afterwards: {text}" for text in promises.finished(site, before)]
    call = f"{fault.hit.method} {fault.hit.path}" if fault.hit else "never reached"
    figures.broken += [f"- {kind} at call {fault.number}, {call} ({end}): {text}" for text in found]


def _end(ended):
    """Return the last words of a command, as one short line."""
    words = ended.text.split()
    return " ".join(words[-60:])[-200:]


def check_registry(site, before, now):
    """Return what is wrong with a registry, whatever happened to it."""
    found = [f"{name} is gone" for name in before.models if name not in now.models]
    found += [f"version {key} is gone" for key in sorted(before.known() - now.known())]
    for version in now.versions:
        key = version.name, str(version.version)
        if key not in before.known() and version.tags.get("scrib.certified") == "true":
            found += _overclaims(site, *key)
    return found


def _overclaims(site, name, version):
    """Return what is wrong with a version that says that it is certified."""
    with using(site.address, site.folder):
        try:
            rows = pd.read_parquet("fresh.parquet").head(2)
            mlflow.pyfunc.load_model(f"models:/{name}/{version}").predict(rows)
            holds = read_record(version, name)["certified"]
        except Exception as error:  # whatever it is, it is no certified model
            return [f"{name} version {version} says certified, but: {error!r}"]
    return [] if holds else [f"{name} version {version} says certified, scrib.json does not"]


def registering(words, name, *, run_id=""):
    """Return the promises of what registers a version: `calibrate`, and `register` of a run."""
    finish = partial(finish_registering, words, name, run_id)
    return Promises(words, partial(check_versions, name), finish, partial(registered, name))


def check_versions(name, site, before, ended):
    """Return what is wrong after a fault with the versions of a name."""
    now = site.look()
    found, new = check_registry(site, before, now), _made(before, now)
    if before.alias(NAME, "champion") != now.alias(NAME, "champion"):
        found.append("the alias champion has moved")
    has = now.alias(name, "candidate")
    if has not in {before.alias(name, "candidate"), *(str(v.version) for v in new)}:
        found.append(f"the alias is on {has!r}")
    if ended.code not in {0, 3, -9}:
        found.append(f"exit {ended.code} for a fault: {_end(ended)}")
    if ended.code > 0 and new and "--run_id" not in ended.text:
        found.append("it left a version, and does not say how to finish it")
    return found


def finish_registering(words, name, run_id, site, _, ended):
    """Return the words that finish it: those that it has printed, or that a look at runs gives."""
    if ended.code == 0:
        return []
    if run_id:
        return words
    printed = re.findall(r"--run_id (\w+)", ended.text)
    found = printed or logged_runs(site, name)
    return ["register", "--run_id", found[0]] if found else words


def registered(name, site, before):
    """Return what is wrong with a version that is to be registered."""
    now = site.look()
    found, new = check_registry(site, before, now), _made(before, now)
    if not new:
        return [*found, "no version is there"]
    runs = Counter(version.run_id for version in new)
    found += [f"{n} versions of run {run}" for run, n in runs.items() if n > 1]
    if now.alias(name, "candidate") not in {str(version.version) for version in new}:
        found.append("no new version has the alias")
    found += [f"version {v.version} has no description" for v in new if not v.description]
    if not mlflow.MlflowClient(site.address).get_registered_model(name).description:
        found.append("the registered model has no description")
    return found


def _made(before, now):
    return [v for v in now.versions if (v.name, str(v.version)) not in before.known()]


def logged_runs(site, name):
    """Return calibrate runs that have logged a model , unless they have ended well."""
    client = mlflow.MlflowClient(site.address)
    (experiment,) = client.search_experiments(filter_string=f"name = '{NAME}'")
    runs = client.search_runs(
        [experiment.experiment_id], f"tags.`scrib.registered_model_name` = '{name}'"
    )
    ended = {"FINISHED"}
    return [run.info.run_id for run in runs if run.info.status not in ended]


def gating(words):
    """Return the promises of a gate that moves the champion's alias from version 1 to 2."""
    return Promises(words, check_gate, lambda _, __, ended: words if ended.code else [], moved)


def check_gate(site, before, ended):
    """Return what is wrong after a fault with the alias, and with what the gate says of it."""
    now = site.look()
    found, has = check_registry(site, before, now), now.alias(NAME, "champion")
    if has not in {0: {"2"}, 3: {"1"}}.get(ended.code, {"1", "2"}):
        found.append(f"the alias is on {has!r}")
    if ended.code not in {0, 3, 4, -9}:
        found.append(f"exit {ended.code} for a fault: {_end(ended)}")
    if has == "2" and _tags(now)["scrib.gate"] != "passed":
        found.append(f"the champion's tag is {_tags(now)['scrib.gate']!r}")
    return found


def moved(site, before):
    """Return what is wrong where the alias is to be on version 2."""
    now = site.look()
    found, has = check_registry(site, before, now), now.alias(NAME, "champion")
    if has != "2":
        found.append(f"the alias is on {has!r}")
    for tag, value in (("scrib.gate", "passed"), ("scrib.previous_champion", "1")):
        if _tags(now).get(tag) != value:
            found.append(f"{tag} is {_tags(now).get(tag)!r}")
    return found


def _tags(state, version="2"):
    (found,) = [v for v in state.versions if (v.name, str(v.version)) == (NAME, version)]
    return {"scrib.gate": "", **found.tags}


def predicting():
    """Return the promises of predict: the output is whole, or not there."""
    words = ["predict", "--model_uri", f"models:/{NAME}/1", "--data", "fresh.parquet"]
    words += ["--output", "answers"]

    def check(site, before, ended):
        now, output = site.look(), site.folder / "answers"
        found = check_registry(site, before, now)
        if output.exists() and not _is_whole(output):
            found.append("the output is there, and not whole")
        if ended.code >= 0 and output.exists() != (ended.code == 0):
            found.append(f"exit {ended.code}, and output {output.exists()}: {_end(ended)}")
        return found

    def again(site, _, ended):
        if not ended.code:
            return []
        return [*words, *(["--overwrite"] if (site.folder / "answers").exists() else [])]

    def finished(site, _):
        output = site.folder / "answers"
        whole = _is_whole(output)
        for path in site.folder.glob("answers*"):  # of those that were killed as well
            shutil.rmtree(path)
        return [] if whole else ["the output is not whole"]

    return Promises(words, check, again, finished)


def _is_whole(output):
    with suppress(OSError, MlflowException):
        return (output / "_scrib.json").is_file() and pq.read_table(output).num_rows == N_ROWS
    return False
