"""What sets do on labelled rows: rates, risks and their bounds, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.bounds import risk_upper, risk_upper_kl
from scrib_mlflow.core.checks import as_number, check_trust
from scrib_mlflow.core.counts import Counts, count_sets
from scrib_mlflow.core.fits import NAN, Fit
from scrib_mlflow.core.rows import Labelled, check_rows
from scrib_mlflow.core.rules import Rule, predict_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """The rows of one class. Counts are weights where rows are weighted."""

    n: int | float
    n_certain: int | float
    n_wrong: int | float
    risk: float  # NaN without certain rows
    risk_upper: float  # exact; NaN where rows are weighted
    risk_upper_kl: float  # the paper's Theorem 4.2; NaN where rows are weighted
    miscoverage: float
    abstention_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """Sets on labelled rows."""

    classes: tuple[str, ...]
    n: int | float
    n_certain: int | float
    n_wrong: int | float
    abstention_rate: float
    chance_ambiguity: float
    size_ambiguity: float
    empty_rate: float
    overall_risk: float
    overall_risk_upper: float
    confidence: float
    by_class: dict[str, ClassReport]


def evaluate_sets(
    scores: ArrayLike,
    labels: ArrayLike,
    rule: Fit | Rule | Sequence[float],
    *,
    confidence: float = 0.95,
    classes: Sequence[object] | None = None,
    sample_weight: ArrayLike | None = None,
    trust: ArrayLike | None = None,
) -> SetReport:
    """Measure a rule on labelled rows.

    The bounds hold for a rule that was fixed before these rows were looked at; on the rows of its
    own fit they prove nothing.

    Parameters
    ----------
    scores : (n, k) array
    labels : (n,) or (n, k) array
        Class names or indices, or soft labels.
    rule : Fit, Rule or sequence of k floats
    confidence : float
        Of each upper bound by itself.
    classes : sequence, optional
        Class names in column order; those of the fit, or the column numbers.
    sample_weight : (n,) array, optional
        With weights that are not 0 or 1, and with soft labels, counts are no longer binomial:
        bounds are NaN then.
    trust : (n,) array, optional
        For a selective rule that was fitted on trust.

    Returns
    -------
    SetReport
    """
    as_number("confidence", confidence, low=0, high=1)
    names = rule.classes if isinstance(rule, Fit) and classes is None else classes
    plain = rule.rule if isinstance(rule, Fit) else rule
    rows = check_rows(scores, labels, names, sample_weight, least_rows=1)
    if trust is not None:
        trust = check_trust(trust, len(rows.kept))[rows.kept]
    sets = predict_sets(rows.scores, plain, trust=trust)
    return measure_sets(sets, rows, confidence)


def measure_sets(sets: NDArray[np.bool_], rows: Labelled, confidence: float) -> SetReport:
    """Measure sets on the labelled rows they were made for."""
    counts = count_sets(sets, *rows[1:4])
    return report_counts(counts, rows.classes, confidence, counted=rows.counted)


def report_counts(
    counts: Counts, classes: tuple[str, ...], confidence: float, *, counted: bool
) -> SetReport:
    """Return rates, risks and bounds; the bounds are NaN unless every row is `counted` as one."""
    number = _whole if counted else float
    total = counts.members.sum()
    wrong = counts.wrong.sum()
    errors, certain = np.append(counts.wrong, wrong), np.append(counts.certain, counts.all_certain)
    exact, chernoff = np.full(len(errors), NAN), np.full(len(errors), NAN)
    if counted:
        exact = risk_upper(errors, certain, confidence)
        chernoff = risk_upper_kl(errors, certain, confidence)
    return SetReport(
        classes=classes,
        n=number(total),
        n_certain=number(counts.all_certain),
        n_wrong=number(wrong),
        abstention_rate=_rate(total - counts.all_certain, total),
        chance_ambiguity=_rate(total - counts.all_certain - counts.all_empty, total),
        size_ambiguity=_rate(counts.all_size, total),
        empty_rate=_rate(counts.all_empty, total),
        overall_risk=_rate(wrong, counts.all_certain),
        overall_risk_upper=float(exact[-1]),
        confidence=float(confidence),
        by_class={
            name: ClassReport(
                n=number(counts.members[j]),
                n_certain=number(counts.certain[j]),
                n_wrong=number(counts.wrong[j]),
                risk=_rate(counts.wrong[j], counts.certain[j]),
                risk_upper=float(exact[j]),
                risk_upper_kl=float(chernoff[j]),
                miscoverage=_rate(counts.missed[j], counts.members[j]),
                abstention_rate=_rate(counts.members[j] - counts.certain[j], counts.members[j]),
            )
            for j, name in enumerate(classes)
        },
    )


def _rate(part: float, whole: float) -> float:
    """Return part / whole, NaN where there is nothing."""
    return max(float(part / whole), 0.0) if whole > 0 else NAN


def _whole(count: float) -> int:
    return round(count)
