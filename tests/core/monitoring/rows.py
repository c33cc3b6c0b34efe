"""Rows of a set classifier with answers, made at random, and monitors of them."""

import numpy as np

from scrib_mlflow.core.inputs import mix
from scrib_mlflow.core.monitoring import Batch, Served, begin, make_baseline
from scrib_mlflow.core.targets import Constraint

TARGET, LEVEL = 0.1, 0.05


def names(k=3):
    """Return the names of k classes."""
    return tuple(map(str, range(k)))


def claims(k=3, target=TARGET):
    return [
        Constraint(
            name=f"class {j}",
            kind="risk",
            classes=(j,),
            target=target,
            penalty=1e4,
            two_sided_penalty=0.0,
        )
        for j in range(k)
    ]


def served(answers, top=None, sizes=None, scored=None, hashes=None):
    """Return answers, where -1 is a set of two classes."""
    answers = np.asarray(answers)
    n = len(answers)
    return Served(
        answers,
        mix(np.zeros(n, int)) if hashes is None else hashes,
        np.where(answers >= 0, 1, 2) if sizes is None else sizes,
        np.ones(n, dtype=bool) if scored is None else scored,
        top,
    )


def baseline(random, n=1_000, k=3, *, grouped=False):
    """Return a baseline of answers drawn by `draw`."""
    fit, _, labels = draw(random, n, k)
    rows, _, labels = draw(random, n, k)
    sets = np.eye(k, dtype=bool)[np.maximum(fit.answers, 0)]
    sets[fit.answers < 0] = True
    return make_baseline(names(k), (fit, sets), rows, (rows, labels), grouped=grouped)


def draw(random, n, k=3, risk=TARGET, abstention=0.3):
    """Return answers of which each class has a share `risk` wrong, their order, and labels."""
    labels = random.integers(0, k, n)
    wrong = random.random(n) < risk
    answers = np.where(wrong, (labels + 1) % k, labels)
    answers[random.random(n) < abstention] = -1
    order = random.integers(0, 2**63, n).astype(np.uint64)
    return served(answers, random.random(n)), order, labels


def monitor(of=None, *, random=None, k=3, target=TARGET, **more):
    """Return a monitor that has seen no batch."""
    if of is None:
        of = baseline(random or np.random.default_rng(0), k=k)
    settings = {"miss_target": 0.2, "level": LEVEL, "seed": 0, "group_test": None} | more
    return begin(names(k), claims(k, target), of, **settings)


def labelled(answers, labels, **more):
    """Return a batch of answers with labels, in the order of the rows."""
    labels = np.asarray(labels)
    return Batch(served(answers), np.arange(len(labels), dtype=np.uint64), labels, **more)
