"""Monitors that have seen batches of made-up answers."""

import numpy as np

from scrib_mlflow.core.monitoring import Batch, add_batch, begin, make_baseline, served_sets
from scrib_mlflow.core.targets import Constraint

LEVEL = 0.05
ABSTAIN, EMPTY, UNSCORED = 0.2, 0.05, 0.01


def draw_rows(k, n, random, *, wrong=0.05, frequencies=None, shift=0.0):
    """Return labels, sets, which rows are scored, and highest scores."""
    labels = random.choice(k, n, p=frequencies)
    errors = random.random(n) < np.broadcast_to(wrong, k)[labels]
    answers = np.where(errors, (labels + 1 + random.integers(0, k - 1, n)) % k, labels)
    sets = np.zeros((n, k), dtype=bool)
    sets[np.arange(n), answers] = True
    kind = random.random(n)
    several = kind < ABSTAIN
    sets[several, (answers[several] + 1) % k] = True
    sets[(kind >= ABSTAIN) & (kind < ABSTAIN + EMPTY)] = False
    scored = random.random(n) >= UNSCORED
    sets[~scored] = False
    top = np.where(scored, np.clip(random.beta(6, 2, n) - shift, 0, 1), np.nan)
    return labels, sets, scored, top


def start(classes, *, targets=0.1, seed=0, rows=5000, frequencies=None, grouped=False, known=True):
    """Return a monitor that has seen nothing, with a claim a class and a baseline if `known`."""
    k, random = len(classes), np.random.default_rng(seed)
    _, fitted, *fit = draw_rows(k, rows, random, frequencies=frequencies)
    labels, sets, scored, top = draw_rows(k, rows, random, frequencies=frequencies)
    served = served_sets(sets, scored, top)
    known_labels = labels if known else np.full(rows, -1)
    baseline = make_baseline(
        classes,
        (served_sets(fitted, *fit), fitted),
        served,
        (served, known_labels),
        grouped=grouped,
    )
    targets = np.broadcast_to(targets, k).tolist()
    claims = [
        Constraint(
            name=name,
            kind="risk",
            classes=(j,),
            target=targets[j],
            penalty=1.0,
            two_sided_penalty=0.0,
        )
        for j, name in enumerate(classes)
    ]
    return begin(
        classes, claims, baseline, miss_target=0.05, level=LEVEL, seed=seed, group_test=None
    )


def batch_of(labels, sets, scored, top, random, *, labelled=None, missed=0.03):
    """Return a batch, in which `labelled` rows have a label."""
    served = served_sets(sets, scored, top)
    given = named = None
    if labelled is not None:
        given = np.where(labelled, labels, -1)
        named = random.random(len(labels)) >= missed
        named |= served.answers == labels
    order = random.integers(0, 2**63, len(labels)).astype(np.uint64)
    return Batch(served, order, given, named)


def watch(monitor, batches, n=1000, *, seed=1, share=0.0, missed=0.03, only_open=False, **rows):
    """Return a monitor after more batches, of which a share of the rows is labelled."""
    random = np.random.default_rng(seed)
    for _ in range(batches):
        labels, sets, scored, top = draw_rows(len(monitor.classes), n, random, **rows)
        labelled = random.random(n) < share
        if only_open:
            labelled &= sets.sum(axis=1) != 1
        given = batch_of(
            labels, sets, scored, top, random, labelled=labelled if share else None, missed=missed
        )
        day = monitor.n_batches + 1
        time = f"2026-{1 + day // 28 % 12:02d}-{1 + day % 28:02d} 04:00:00"
        monitor = add_batch(monitor, given, time)
    return monitor
