"""What sets answer on labelled rows, counted for a reader: who is taken for whom, and how often."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrib_mlflow.core.fits import NAN

MOST_POINTS = 200  # of a curve


class Answers(NamedTuple):
    """Labelled rows, with the scores and the set of each."""

    scores: NDArray[np.float64]  # (n, k) NaN in rows that could not be scored
    labels: NDArray[np.int32]  # (n,)
    sets: NDArray[np.bool_]  # (n, k)


class SetCount(NamedTuple):
    """One set, and how often it occurs."""

    members: tuple[int, ...]  # class indices
    n: int
    n_held: int  # rows whose true class is a member


class RiskCoverage(NamedTuple):
    """What plain top-1 would risk if it answered the rows with the highest scores only."""

    coverage: tuple[float, ...]  # share of rows that are answered, rising
    risk: tuple[float, ...]  # wrong among them


def valid_rows(answers: Answers) -> NDArray[np.bool_]:
    """Return which rows could be scored."""
    return np.asarray(np.isfinite(answers.scores).all(axis=1))


def confusion_counts(answers: Answers) -> NDArray[np.int64]:
    """Return (k, k + 1) rows by true class and answer; the last column counts abstentions."""
    k = answers.sets.shape[1]
    certain = np.count_nonzero(answers.sets, axis=1) == 1
    answer = np.where(certain, answers.sets.argmax(axis=1), k)
    code = answers.labels.astype(np.int64) * (k + 1) + answer
    return np.bincount(code, minlength=k * (k + 1)).reshape(k, k + 1)


def outcome_counts(answers: Answers) -> NDArray[np.int64]:
    """Return (k, 4) rows by true class that are right, wrong, ambiguous and empty."""
    n, k = answers.sets.shape
    sizes = np.count_nonzero(answers.sets, axis=1)
    wrong = ~answers.sets[np.arange(n), answers.labels]
    outcome = np.where(sizes == 1, wrong, np.where(sizes == 0, 3, 2))
    code = answers.labels.astype(np.int64) * 4 + outcome
    return np.bincount(code, minlength=4 * k).reshape(k, 4)


def count_by_set(answers: Answers) -> list[SetCount]:
    """Return every set that occurs, the most frequent first, the first to occur of equal ones."""
    first, code, count = _distinct(np.packbits(answers.sets, axis=1))
    n = len(answers.labels)
    held = np.bincount(code, answers.sets[np.arange(n), answers.labels], len(count))
    return [
        SetCount(
            tuple(np.flatnonzero(answers.sets[first[i]]).tolist()), int(count[i]), int(held[i])
        )
        for i in np.lexsort((first, -count))
    ]


def risk_coverage(answers: Answers) -> RiskCoverage:
    """Return the risk of the top class among ever more rows, by falling highest score.

    Rows with equal scores are answered together: no threshold tells them apart.
    """
    valid = valid_rows(answers)
    scores, labels = answers.scores[valid], answers.labels[valid]
    if not len(scores):
        return RiskCoverage((), ())
    highest = scores.max(axis=1)
    order = np.argsort(-highest, kind="stable")
    wrong = np.cumsum(scores.argmax(axis=1)[order] != labels[order])
    ranked = highest[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    if len(ends) > MOST_POINTS:
        wanted = np.linspace(ends[0], ends[-1], MOST_POINTS)
        ends = np.unique(ends[np.searchsorted(ends, wanted)])
    answered = ends + 1
    coverage, risk = answered / len(answers.labels), wrong[ends] / answered
    return RiskCoverage(tuple(coverage.tolist()), tuple(risk.tolist()))


def own_point(answers: Answers) -> tuple[float, float]:
    """Return the share of rows that the sets answer, and the risk of these answers."""
    certain = np.count_nonzero(answers.sets, axis=1) == 1
    held = answers.sets[np.arange(len(certain)), answers.labels]
    n_certain = int(np.count_nonzero(certain))
    risk = np.count_nonzero(certain & ~held) / n_certain if n_certain else NAN
    return n_certain / len(certain), risk


def choose_examples(answers: Answers, most: int) -> NDArray[np.intp]:
    """Return rows that abstain, of as many kinds as there is room for, the frequent ones first.

    A kind is a set together with a true class; of each its first row comes before any second.
    """
    abstains = np.count_nonzero(answers.sets, axis=1) != 1
    rows = np.flatnonzero(abstains & valid_rows(answers))
    if not len(rows):
        return rows
    members = np.packbits(answers.sets[rows], axis=1)
    label = answers.labels[rows].astype(np.int32)[:, None].view(np.uint8)
    _, code, count = _distinct(np.hstack([members, label]))
    by_kind = np.argsort(code, kind="stable")
    starts = np.cumsum(count) - count
    turn = np.empty(len(rows), dtype=np.int64)  # 0 for the first row of its kind
    turn[by_kind] = np.arange(len(rows)) - starts[code[by_kind]]
    chosen = np.lexsort((rows, -count[code], turn))[:most]
    return rows[chosen]


def _distinct(
    rows: NDArray[np.uint8],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return where each distinct row is first, which one every row is, and how many there are."""
    n, width = rows.shape
    whole: NDArray[Any]
    if width <= 8:  # numbers are sorted many times faster than bytes
        padded = np.zeros((n, 8), dtype=np.uint8)
        padded[:, :width] = rows
        whole = padded.view(np.uint64).ravel()
    else:
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, width))).ravel()
    _, first, code, count = np.unique(
        whole, return_index=True, return_inverse=True, return_counts=True
    )
    return first, code, count
