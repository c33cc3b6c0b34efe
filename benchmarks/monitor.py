"""How often a monitor raises false alarms, and how soon it notices a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.tables import print_table, progress
from scrib_mlflow import draw_path, predict_sets
from scrib_mlflow.core import monitoring
from scrib_mlflow.core.inputs import mix
from scrib_mlflow.core.monitoring import Batch, Served, evidence
from scrib_mlflow.core.rules import Rule
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import SIGNAL, draw_scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TARGET, LEVEL = 0.1, 0.05
CLASSES = tuple("01234")
SEED = 4_000_037  # far from those that constants were chosen on
RUNS, FEW = 20_000, 2_000  # of streams of labelled rows, which take no time
STREAMS = 1_000  # of these for other monitors
EVERY = 50  # rows between two looks
QUIET_ROWS, QUIET_RISK, NEW_ROWS = 10_000, 0.08, 4_000
RISKS = (0.13, 0.15, 0.2, 0.3)
NOISE = 3**0.5
BASELINE_ROWS = 5_000
PROCESSES = 2
EXPLAINED = 0.05  # a p-value from which class frequencies explain a drift
MANY = 10**6


def run(*, quick: bool) -> None:
    """Print all tables."""
    _print_labelled_false_alarms(quick=quick)
    _print_delays(quick=quick)
    _print_drift(quick=quick)
    _print_cost()


# Labelled rows: streams of errors, all runs at once.


def draw_errors(risks: Sequence[float], rows: int, streams: int, seed: int) -> Ints:
    """Return (streams, batches) how many rows of each batch are wrong."""
    random = np.random.default_rng([SEED, seed])
    return random.binomial(rows, np.asarray(risks), (streams, len(risks)))


def log_evidence(wrong: Ints, rows: int) -> Floats:
    """Return (streams, batches) the evidence against "the risk is at most its target"."""
    streams, batches = wrong.shape
    lost, won = (
        evidence.error_growth(TARGET, np.array([each]), np.ones(1), 1.0) for each in (1.0, 0.0)
    )
    wealth = evidence.begin(streams, len(lost))
    found = np.empty(wrong.shape)
    for t in range(batches):
        wealth = evidence.new_batch(wealth, np.full(streams, True))
        grown = np.outer(wrong[:, t], lost) + np.outer(rows - wrong[:, t], won)
        wealth = wealth._replace(accounts=wealth.accounts + grown)
        found[:, t] = evidence.log_evidence(wealth)
    return found


def _print_labelled_false_alarms(*, quick: bool) -> None:
    runs = FEW if quick else RUNS
    lines = []
    for risk in (TARGET, 0.8 * TARGET):
        for batches, rows in ((60, 250), (60, 5_000), (1_000, 50)):
            progress(f"monitor: {batches} batches of {rows} labelled rows")
            alarms = []
            for claims in (1, 5):
                streams = draw_errors([risk] * batches, rows, runs, seed=claims)
                highest = log_evidence(streams, rows).max(axis=1)
                by_run = highest[: runs // claims * claims].reshape(-1, claims).max(axis=1)
                alarms.append(_share(by_run >= np.log(claims / LEVEL)))
            lines.append([f"{risk:.2f}", f"{batches:,} of {rows:,}", *alarms])
    print_table(
        f"False alarms of labelled rows, target {TARGET:.0%}, level {LEVEL:.0%}: share of "
        f"{runs:,} runs (one claim; a fifth as many runs of five)",
        ["risk", "batches", "one claim", "five claims"],
        lines,
    )


def _share(alarms: NDArray[np.bool_]) -> str:
    """Return how often there is an alarm, with its standard error."""
    share = alarms.mean()
    return f"{share:.2%} ± {(share * (1 - share) / len(alarms)) ** 0.5:.2%}"


def look_ours(wrong: Ints) -> NDArray[np.bool_]:
    """Return (streams, looks) at which looks there is an alarm."""
    return log_evidence(wrong, EVERY) >= np.log(1 / LEVEL)


def look_clopper_pearson(wrong: Ints) -> NDArray[np.bool_]:
    """Return the same of a lower bound that is computed anew at every look."""
    errors = np.cumsum(wrong, axis=1)
    rows = EVERY * np.arange(1, wrong.shape[1] + 1)
    return stats.beta.ppf(LEVEL, errors, rows - errors + 1) > TARGET


def look_mapie(wrong: Ints, level: float) -> NDArray[np.bool_]:
    """Return the same of MAPIE's lower sequence, rows of a batch in an order by chance."""
    from mapie.exchangeability_testing.bounds import (  # noqa: PLC0415  # may be missing
        GammaExponentialMixtureBound,
    )

    mixture = GammaExponentialMixtureBound(v_opt=1.0, c=1, alpha_opt=level / 2)
    random = np.random.default_rng([SEED, 99])
    found = np.zeros(wrong.shape, dtype=np.bool_)
    looks = EVERY * np.arange(1, wrong.shape[1] + 1)
    for i, counts in enumerate(wrong):
        rows = (np.arange(EVERY) < counts[:, None]).astype(np.float64)
        errors = random.permuted(rows, axis=1).ravel()
        total = np.cumsum(errors)
        before = np.append(0.5, total[:-1] / np.arange(1, len(errors)))
        spread = np.cumsum((errors - before) ** 2)[looks - 1]
        excess = total[looks - 1] - TARGET * looks  # above the bound, where it is worth as much
        found[i] = [
            s > 0 and mixture.log_supermg(s, v) > np.log(2 / level)
            for s, v in zip(excess.tolist(), spread.tolist(), strict=True)
        ]
    return found


def _monitors() -> dict[str, Callable[[Ints], NDArray[np.bool_]]]:
    found = {"ours": look_ours, "Clopper-Pearson": look_clopper_pearson}
    try:
        import mapie  # noqa: F401, PLC0415
    except ImportError:
        progress("monitor: mapie is not installed (extra: dev), so its columns are left out")
        return found
    found["MAPIE, lower sequence"] = lambda wrong: look_mapie(wrong, LEVEL)
    found["MAPIE, RiskMonitoring"] = lambda wrong: look_mapie(wrong, LEVEL / 2)
    return found


def _print_delays(*, quick: bool) -> None:
    runs = STREAMS // 10 if quick else STREAMS
    monitors = _monitors()
    for quiet in (0, QUIET_ROWS // EVERY):
        lines = []
        for risk in (QUIET_RISK, TARGET, *RISKS):
            progress(f"monitor: risk {risk} after {quiet * EVERY:,} quiet rows")
            risks = [QUIET_RISK] * quiet + [risk] * (NEW_ROWS // EVERY)
            wrong = draw_errors(risks, EVERY, runs, seed=round(1_000 * risk) + quiet)
            cells = [_early_and_delay(look(wrong), quiet) for look in monitors.values()]
            predicted = evidence.rows_to_notice(TARGET, risk, 1 / LEVEL, quiet)
            lines.append(
                [f"{risk:.2f}", *cells, f"{predicted:,.0f}" if predicted < np.inf else "-"]
            )
        begins = f"after {quiet * EVERY:,} rows at {QUIET_RISK}" if quiet else "from the beginning"
        print_table(
            f"Risk {begins}, target {TARGET}, one look every {EVERY} rows, {runs:,} runs: alarms "
            f"within {NEW_ROWS:,} rows / their median delay in rows"
            + " (alarms before the change)"
            * bool(quiet),
            ["risk", *monitors, "rows_to_notice"],
            lines,
        )


def _median(rows: Ints) -> str:
    return f"{np.median(rows):,.0f}" if len(rows) else "-"


def _early_and_delay(alarms: NDArray[np.bool_], quiet: int) -> str:
    early = alarms[:, :quiet].any(axis=1)
    late = alarms[~early, quiet:]
    raised = late.any(axis=1)
    delays = EVERY * (late[raised].argmax(axis=1) + 1)
    shown = f"{raised.mean():.1%} / {_median(delays)}"
    return f"{shown} ({early.mean():.1%})" if quiet else shown


# Drift, on the paper's generator.


class Change(NamedTuple):
    """How the generator changes."""

    signal: float = 1.0
    variance: float = 1.0
    hard_share: float | None = None  # of the rows of the hard class


CHANGES = {
    "no change": Change(),
    "signal -10 %": Change(signal=0.9),
    "signal -20 %": Change(signal=0.8),
    "noise variance +69 %": Change(variance=1.69),
    "label shift, hard class 50 %": Change(hard_share=0.5),
}


class Watched(NamedTuple):
    """When the tests of one run raised an alarm, as a batch from 1; 0 is never."""

    any: int
    scores: int
    sets: int
    naive: int
    explained: bool  # at the alarm
    explained_later: bool  # at the end


def draw_rows(n: int, change: Change, seed: int) -> tuple[Floats, Ints]:
    """Return scores and labels after a change."""
    more = 4 if change.hard_share else 1
    signal = tuple(change.signal * s for s in SIGNAL)
    noise = NOISE * change.variance**0.5
    scores, labels = draw_scores(more * n, noise=noise, signal=signal, seed=seed)
    if change.hard_share is None:
        return scores, labels
    hard = np.flatnonzero(labels == 1)[: round(n * change.hard_share)]
    others = np.flatnonzero(labels != 1)[: n - len(hard)]
    rows = np.random.default_rng(seed).permutation(np.concatenate([hard, others]))
    return scores[rows], labels[rows]


@cache
def _fitted() -> tuple[Rule, Floats]:
    scores, labels = draw_scores(BASELINE_ROWS, noise=NOISE, seed=SEED)
    path = draw_path(
        scores, labels, TARGET, rule="optimal", certify_rows=10_000, answers="top", threads=1
    )
    return path.steps[0].rule, scores


def _serve(scores: Floats, rule: Rule) -> tuple[Served, NDArray[np.bool_]]:
    sets = predict_sets(scores, rule)
    return monitoring.served_sets(sets, np.full(len(sets), True), scores.max(axis=1)), sets


def watch(change: Change, quiet: int, batches: int, rows: int, seed: int) -> Watched:
    """Monitor batches, of which the first `quiet` come as the baseline did."""
    rule, fit_scores = _fitted()
    seeds = SEED + 10 * (seed + 1) + np.arange(3)
    scores, labels = draw_scores(BASELINE_ROWS, noise=NOISE, seed=seeds[0])
    certify, _ = _serve(scores, rule)
    baseline = monitoring.make_baseline(
        CLASSES, _serve(fit_scores, rule), certify, (certify, labels), grouped=False
    )
    monitor = monitoring.begin(
        CLASSES,
        make_constraints(Targets(risk_targets=TARGET), CLASSES),
        baseline,
        miss_target=None,
        level=LEVEL,
        seed=seed,
        group_test=None,
    )
    before, _ = draw_rows(max(quiet, 1) * rows, Change(), int(seeds[1]))
    after, _ = draw_rows((batches - quiet) * rows, change, int(seeds[2]))
    served, _ = _serve(np.concatenate([before[: quiet * rows], after]), rule)
    naive, explained = 0, None
    kinds = np.zeros(baseline.n_kinds, dtype=np.int64)
    for t in range(batches):
        of = slice(t * rows, (t + 1) * rows)
        part = Served(*(None if values is None else values[of] for values in served))
        order = mix(np.arange(of.start, of.stop) + (seed << 32))
        monitor = monitoring.add_batch(monitor, Batch(part, order), "")
        kinds += monitor.history[-1].kinds
        naive = naive or (t + 1) * (_chi_square(kinds, baseline.kinds) < LEVEL)
        if monitor.alarms and explained is None:
            explained = _is_explained(monitor)
    first = {"scores": 0, "sets": 0}
    for alarm in reversed(monitor.alarms):
        first[alarm.what] = alarm.batch
    either = min((batch for batch in first.values() if batch), default=0)
    return Watched(
        either, first["scores"], first["sets"], naive, bool(explained), _is_explained(monitor)
    )


def _is_explained(monitor: monitoring.Monitor) -> bool:
    mixture = monitoring.explain_drift(monitor)
    return mixture is not None and mixture.p_value >= EXPLAINED


def _chi_square(now: Ints, known: Sequence[int]) -> float:
    table = np.array([now, known])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def _watched(change: Change, quiet: int, batches: int, rows: int, runs: int) -> list[Watched]:
    with ProcessPoolExecutor(PROCESSES) as pool:
        jobs = [(change, quiet, batches, rows, seed) for seed in range(runs)]
        return list(pool.map(watch, *zip(*jobs, strict=True), chunksize=5))


def _print_drift(*, quick: bool) -> None:
    lines = []
    for batches, rows, runs in ((60, 250, 300), (60, 5_000, 60)):
        progress(f"monitor: drift, {batches} batches of {rows:,}, no change")
        done = _watched(Change(), 0, batches, rows, runs // 10 if quick else runs)
        parts = zip(*((w.any, w.scores, w.sets, w.naive) for w in done), strict=True)
        lines.append([f"{batches} of {rows:,} ({len(done)} runs)", *map(_raised, parts)])
    print_table(
        f"False alarms of drift without a change, level {LEVEL:.0%}, a baseline of "
        f"{BASELINE_ROWS:,} rows",
        ["batches", "any", "scores", "kinds", "chi-square at every batch"],
        lines,
    )
    runs, rows, new = (10 if quick else 60), 250, 20
    for quiet in (0, 20):
        lines = []
        for name, change in CHANGES.items():
            progress(f"monitor: drift, {name} after {quiet} batches")
            done = _watched(change, quiet, quiet + new, rows, runs)
            ours = [w for w in done if w.any > quiet]
            told = f"{_mean(w.explained for w in ours)} / {_mean(w.explained_later for w in ours)}"
            parts = zip(*((w.any, w.scores, w.sets, w.naive) for w in done), strict=True)
            lines.append([name, *(_delay(part, quiet, rows) for part in parts), told])
        print_table(
            f"Changes after {quiet * rows:,} quiet rows, batches of {rows}, {runs} runs: alarms "
            f"within {new * rows:,} rows / median delay{' (alarms before)' * bool(quiet)}; of our "
            "alarms, explained by class frequencies alone when raised / at the end",
            ["change", "any", "scores", "kinds", "chi-square at every batch", "explained"],
            lines,
        )


def _raised(batches: Iterable[int]) -> str:
    return _share(np.array(list(batches)) > 0)


def _mean(values: Iterable[bool]) -> str:
    listed = list(values)
    return f"{np.mean(listed):.0%}" if listed else "-"


def _delay(batches: Iterable[int], quiet: int, rows: int) -> str:
    first = np.array(list(batches))
    early = (first > 0) & (first <= quiet)
    late = first[first > quiet]
    share = len(late) / max(np.count_nonzero(~early), 1)
    shown = f"{share:.0%} / {_median(rows * (late - quiet))}"
    return f"{shown} ({early.mean():.0%})" if quiet else shown


# Cost.


def _print_cost() -> None:
    progress(f"monitor: {MANY:,} rows")
    rule, fit_scores = _fitted()
    scores, labels = draw_scores(MANY, noise=NOISE, seed=SEED + 5)
    served, _ = _serve(scores, rule)
    fitted = _serve(fit_scores, rule)
    baseline = monitoring.make_baseline(
        CLASSES, fitted, fitted[0], (fitted[0], labels[:BASELINE_ROWS]), grouped=False
    )
    claims = make_constraints(Targets(risk_targets=TARGET), CLASSES)
    before = monitoring.begin(
        CLASSES, claims, baseline, miss_target=TARGET, level=LEVEL, seed=0, group_test=None
    )
    order, named = mix(np.arange(MANY)), scores.argmax(axis=1) == labels
    groups = mix(np.arange(MANY) // 10)
    batches = {
        "answers alone": Batch(served, order),
        "all labelled": Batch(served, order, labels, named),
        "all labelled, groups of ten": Batch(served, order, labels, named, groups),
    }
    values = np.random.default_rng(SEED).random(MANY)
    lines = []
    for name, batch in batches.items():
        ours, sort = (
            min(_seconds(call) for _ in range(3))
            for call in (lambda b=batch: monitoring.add_batch(before, b, ""), values.argsort)
        )
        lines.append([name, f"{ours / sort:.0f}"])
    print_table(
        f"add_batch of {MANY:,} rows, as times of np.argsort of as many floats in the same run",
        ["batch", "times of a sort"],
        lines,
    )


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start
