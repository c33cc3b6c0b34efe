"""Slow and plain versions of what the package computes; imports nothing of it."""

import itertools

import numpy as np
from scipy import stats


def naive_counts(scores, labels, thresholds, weights=None):
    """Count row by row: n, certain, wrong and missed by class, then empty and total size."""
    k = scores.shape[1]
    weights = np.ones(len(scores)) if weights is None else weights
    by_class = np.zeros((4, k))
    empty = size = 0.0
    for row, label, weight in zip(scores, labels, weights, strict=True):
        members = [j for j in range(k) if row[j] >= thresholds[j]]
        shares = {int(label): weight} if np.ndim(label) == 0 else dict(enumerate(label * weight))
        row_weight = sum(shares.values())
        empty += row_weight * (len(members) == 0)
        size += row_weight * len(members)
        for j, share in shares.items():
            by_class[0, j] += share
            by_class[1, j] += share * (len(members) == 1)
            by_class[2, j] += share * (len(members) == 1 and j not in members)
            by_class[3, j] += share * (j not in members)
    return by_class, empty, size


def naive_loss(
    scores,
    labels,
    thresholds,
    *,
    groups,
    penalty=1e4,
    two_sided=0.0,
    chance=1.0,
    size=0.0,
    empty=1.0,
    error=0.0,
    weights=None,
    margin=None,
):
    """Return the loss; `groups` holds (kind, classes, target), `margin` (confidence, ratio)."""
    (n, certain, wrong, missed), n_empty, n_size = naive_counts(scores, labels, thresholds, weights)
    total = n.sum()
    loss = chance * (total - certain.sum() - n_empty) + empty * n_empty + size * n_size
    loss += error * wrong.sum()
    loss /= total
    penalties = np.broadcast_to(penalty, len(groups))
    both = np.broadcast_to(two_sided, len(groups))
    for (kind, classes, target), one, two in zip(groups, penalties, both, strict=True):
        of = list(classes)
        rows, errors = {
            "risk": (certain[of].sum(), wrong[of].sum()),
            "miscoverage": (n[of].sum(), missed[of].sum()),
            "abstention": (n[of].sum(), (n - certain)[of].sum()),
        }[kind]
        if rows == 0:
            excess = 1 - target
        else:
            allowed = target * rows
            if margin is not None and kind != "abstention":
                confidence, ratio = margin
                low = int(ratio * rows + 1e-9)
                allowed = most_errors(low, target, confidence)
                if weights is not None or np.ndim(labels) == 2:
                    more = most_errors(low + 1, target, confidence)
                    allowed += (ratio * rows - low) * (more - allowed)
                allowed /= ratio
            excess = min((errors - allowed) / rows, 1 - target)
        loss += one * max(excess, 0) ** 2 + two * excess**2
    return loss


def most_errors(n, target, confidence):
    """Return the most errors among n whose exact upper bound meets the target, -1 for none."""
    passing = stats.binom.cdf(np.arange(n + 1), n, target) <= 1 - confidence
    return int(passing.sum()) - 1


def every_cell(scores):
    """Yield all thresholds that differ on these scores, without 'never in'."""
    grids = []
    for column in scores.T:
        values = np.unique(column)
        grids.append([-np.inf, *((values[1:] + values[:-1]) / 2)])
    return itertools.product(*grids)


def keep_top(sets, scores):
    """Return sets in which the highest score's class joins a single other one, row by row."""
    joined = sets.copy()
    for row, line in zip(joined, scores.tolist(), strict=True):
        if row.sum() == 1:
            row[line.index(max(line))] = True
    return joined


def best_loss(scores, labels, target, penalty=1e4, error=0.0, *, top=False):
    """Return the least loss over all cells, with one risk target for every class.

    With `top` a row is certain only of the class of its highest score.
    """
    n, k = scores.shape
    highest = scores.argmax(axis=1)
    values = [np.unique(column) for column in scores.T]
    codes = [np.searchsorted(v, column) for v, column in zip(values, scores.T, strict=True)]
    last = np.arange(len(values[-1]))
    inside = codes[-1][:, None] >= last  # (n, cells of the last threshold)
    best = np.inf
    for cuts in itertools.product(*(range(len(v)) for v in values[:-1])):
        members = np.stack([code >= cut for code, cut in zip(codes[:-1], cuts, strict=True)])
        count = members.sum(axis=0)[:, None] + inside
        own, first = (
            np.where(
                (of == k - 1)[:, None],
                inside,
                members[np.minimum(of, k - 2), np.arange(n)][:, None],
            )
            for of in (labels, highest)
        )
        certain = (count == 1) & (first if top else True)
        loss = 1 - certain.mean(axis=0) + error * (certain & ~own).mean(axis=0)
        for j in range(k):
            rows = certain[labels == j].sum(axis=0)
            wrong = (certain & ~own)[labels == j].sum(axis=0)
            risk = np.where(rows > 0, wrong / np.maximum(rows, 1), 1.0)
            loss += penalty * np.maximum(risk - target, 0) ** 2
        best = min(best, loss.min())
    return best


def optimal_answer(probabilities, multipliers, charges, top=None):
    """Return the class worth most where its value is not negative, None where it abstains.

    With `top` no other class may be answered.
    """
    values = []
    for j, p in enumerate(probabilities):
        value = 1.0 + multipliers[j] * p
        for q, charge in zip(probabilities, charges, strict=True):
            value -= charge * q
        values.append(value)
    best = max(range(len(values)), key=lambda j: values[j]) if top is None else top
    return best if values[best] >= 0 else None


def all_answers(scores):
    """Yield, for every way to answer rows or not: certain rows, soft answers and right by class."""
    n, k = scores.shape
    for answers in itertools.product(range(k + 1), repeat=n):  # k stands for abstaining
        chosen = np.array(answers)
        certain = chosen < k
        right = np.zeros(k)
        np.add.at(right, chosen[certain], scores[certain, chosen[certain]])
        yield certain.sum(), scores[certain].sum(axis=0), right


def accepted_rows(allowed):
    """Return m[n], the least number of rows that allow as many errors as n do; n where none are."""
    return np.where(allowed >= 0, np.searchsorted(allowed, allowed), np.arange(len(allowed)))
