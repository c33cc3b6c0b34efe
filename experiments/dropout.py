"""SGR + Dropout: a small network whose Monte-Carlo dropout says how much to trust a row.

The scores are the probabilities with dropout off, so that SGR on the scores and SGR on the trust
answer with the same classes and differ in which rows abstain. The trust is the negative variance,
over 100 passes with dropout on, of the probability of the class that is answered. Dropout stands
before every layer of weights but the first, as in the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.outputs import require
from scrib_mlflow.core.inputs import as_floats, check_seed
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError

HIDDEN = 128
DROPOUT_RATE = 0.5
EPOCHS, BATCH, LEARNING_RATE = 60, 64, 1e-3
PASSES = 100


class DropoutScores(NamedTuple):
    """What the network says of unseen rows."""

    scores: NDArray[np.float64]  # (n, k) probabilities, dropout off
    trust: NDArray[np.float64]  # (n,) negative variance of the answered class's probability


def score_with_dropout(
    features: ArrayLike,
    labels: ArrayLike,
    unseen: ArrayLike,
    *,
    seed: int = 0,
    passes: int = PASSES,
    epochs: int = EPOCHS,
) -> DropoutScores:
    """Train on (n, d) features and class indices; return scores and trust of unseen (m, d) rows.

    Deterministic by seed: one thread, generators of its own, and nothing global left changed.
    """
    require("torch")
    import torch  # noqa: PLC0415  # an extra, and seconds

    trained, asked = _standardised(features, unseen)
    classes = _class_indices(labels, len(trained))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check_seed(seed))
            network = _network(torch, trained.shape[1], int(classes.max()) + 1)
            _train(torch, network, torch.from_numpy(trained), torch.from_numpy(classes), epochs)
            return _scored(torch, network, torch.from_numpy(asked), passes)
    finally:
        torch.set_num_threads(threads)


def _standardised(
    features: ArrayLike, unseen: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return both tables, shifted and scaled by the first."""
    tables = as_floats("features", features), as_floats("unseen features", unseen)
    for name, table in zip(("features", "unseen features"), tables, strict=True):
        if table.ndim != 2 or len(table) == 0 or table.shape[1] != tables[0].shape[-1]:
            raise InvalidDataError(
                f"{name} must be rows of as many columns as the others, got shape {table.shape} "
                f"beside {tables[0].shape}"
            )
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise InvalidDataError(
                f"{name}[{row}, {column}] is {table[row, column]}; drop or impute such rows"
            )
    centre, spread = tables[0].mean(axis=0), tables[0].std(axis=0)
    spread[spread == 0] = 1.0
    first, second = (((table - centre) / spread).astype(np.float32) for table in tables)
    return first, second


def _class_indices(labels: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return labels as class indices from 0, each class with rows."""
    classes = np.asarray(labels)
    if classes.shape != (n,) or classes.dtype.kind not in "iu":
        raise InvalidLabelsError(
            f"labels must be one class index for each of the {n} rows, got shape {classes.shape}"
        )
    found = np.unique(classes)
    if len(found) < 2 or found[0] != 0 or found[-1] != len(found) - 1:
        raise InvalidLabelsError(
            f"labels must be class indices from 0, each with a row to train on, got {found}"
        )
    return classes.astype(np.int64)


def _network(torch: Any, d: int, k: int) -> Any:
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(d, HIDDEN),
        layers.ReLU(),
        layers.Dropout(DROPOUT_RATE),
        layers.Linear(HIDDEN, HIDDEN),
        layers.ReLU(),
        layers.Dropout(DROPOUT_RATE),
        layers.Linear(HIDDEN, k),
    )


def _train(torch: Any, network: Any, features: Any, labels: Any, epochs: int) -> None:
    """Minimise the cross entropy with Adam, as the paper trains its networks."""
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(features)).split(BATCH):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(features[rows]), labels[rows])
            loss.backward()
            optimiser.step()


def _scored(torch: Any, network: Any, features: Any, passes: int) -> DropoutScores:
    """Return the scores with dropout off, and the trust over passes with it on."""
    with torch.no_grad():
        network.eval()
        scores = torch.softmax(network(features).double(), dim=1)
        answered = scores.argmax(dim=1, keepdim=True)
        network.train()
        drawn = torch.stack(
            [
                torch.softmax(network(features).double(), dim=1).gather(1, answered)[:, 0]
                for _ in range(passes)
            ]
        )
        trust = -drawn.var(dim=0, correction=0)
    return DropoutScores(scores.numpy(), trust.numpy())
