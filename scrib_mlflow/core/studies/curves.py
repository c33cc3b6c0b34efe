"""Accuracy-ambiguity curves: how right the certain rows are, against how many rows abstain.

A method is fitted to one target of the overall risk after another and measured on other rows; each
target gives a point. Ambiguity is the rate of abstention, P(|H| != 1), accuracy 1 - overall risk.

A method that reaches further would have the larger area. So all curves get the same end points:
without abstention the accuracy of the top class on the measured rows, and where every row abstains
accuracy 1. Between points lines are straight, so that a short reach gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scrib_mlflow.core import inputs
from scrib_mlflow.core.counts import count_rows
from scrib_mlflow.core.inputs import NAN, SLACK, Floats, Labelled
from scrib_mlflow.core.optimal import fit_recalibration, recalibrate
from scrib_mlflow.core.rules import Rule, SelectiveRule, predict_sets
from scrib_mlflow.core.search import fit_thresholds
from scrib_mlflow.core.studies import baselines
from scrib_mlflow.core.studies.baselines import OPTIMAL, SCRIB, SGR, SHARED
from scrib_mlflow.errors import ScribError

DELTA = 0.8  # as in the paper: how likely SGR may miss its target
STRIDE = 0.01  # between targets
LEAST_TARGETS = 5  # the stride is shorter where there would be fewer
MANY_CLASSES = 20  # with more, a search takes seconds
FEW_TARGETS = 8  # about so many for many classes
PENALTY = 1e4
TWO_SIDED = 1e-4 * PENALTY  # the paper's, for points that are spread along the curve
EFFORT = 0.1  # of a search that starts from the thresholds of the target before
METHODS = (SCRIB, OPTIMAL, SHARED, SGR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What a method reaches on the measured rows, one point a target."""

    method: str
    targets: tuple[float, ...]  # of the overall risk, ascending
    ambiguity: tuple[float, ...]  # rate of abstention
    risk: tuple[float, ...]  # overall; NaN where nothing is certain
    top_risk: float  # of the top class without abstention, the same for all methods
    auc: float  # of accuracy over ambiguity from 0 to 1; NaN where nothing is ever certain
    rmse: float  # of the risk as an answer to its target, where something is certain

    def points(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return ambiguities, ascending from 0 to 1, and accuracies, with both end points."""
        return anchored(self.ambiguity, self.risk, self.top_risk)


def draw_curves(
    fit_scores: ArrayLike,
    fit_labels: ArrayLike,
    test_scores: ArrayLike,
    test_labels: ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    waive: Sequence[str] = (),
    trust: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    methods: Sequence[str] | None = None,
    stride: float | None = None,
    delta: float = DELTA,
    effort: float = EFFORT,
    seed: int = 0,
) -> tuple[Curve, ...]:
    """Fit methods to targets of the overall risk, and measure each on other rows.

    Targets run from one stride up to the risk of the top class on the fit rows. SCRIB and SCRIB-
    have the overall target alone, a penalty of 1e4 and a two-sided one of 1, and start from the
    thresholds of the target before. The optimal rule is one threshold on the highest recalibrated
    probability. LABEL, without an overall target, and top-1, the end point of all, have no curve.

    Parameters
    ----------
    fit_scores, fit_labels, test_scores, test_labels
        Rows to fit and rows to measure; labels are hard.
    classes, waive, seed
        As for `fit_thresholds`.
    trust : mapping, optional
        By name what SGR is to rank rows by as well: of the fit rows, and of the rows to measure.
    methods : sequence of str, optional
        Of "SCRIB", "optimal", "SCRIB-" and "SGR"; by default all that the scores allow.
    stride : float, optional
        Between targets: 0.01, or with more than 20 classes an eighth of the risk of the top class
        where that is more; in any case a fifth of that risk where that is less.
    delta : float
        How likely SGR may miss its target.
    effort : float
        Of each search, as a multiple of the usual.

    Returns
    -------
    tuple of Curve
        In the order of the methods, SGR on trust last.
    """
    fitted, measured = (
        inputs.check_rows(*part, classes, hard=True)
        for part in ((fit_scores, fit_labels), (test_scores, test_labels))
    )
    if fitted.scores.shape[1] != measured.scores.shape[1]:
        raise ScribError(
            f"scores to fit have {fitted.scores.shape[1]} columns, those to measure "
            f"{measured.scores.shape[1]}; pass scores of the same classes"
        )
    top_risk = _top_risk(fitted)
    usual = max(STRIDE, top_risk / FEW_TARGETS * (len(fitted.classes) > MANY_CLASSES))
    targets = spread_targets(top_risk, usual if stride is None else stride)
    common = {"classes": fitted.classes, "waive": waive}
    searched = {**common, "effort": effort, "seed": inputs.check_seed(seed)}
    if methods is None:
        calibrated = all(inputs.are_probabilities(rows.scores) for rows in (fitted, measured))
        methods = [name for name in METHODS if name != OPTIMAL or calibrated]
    jobs: list[tuple[str, Iterable[Rule], Labelled, Floats | None]] = []
    for name in methods:
        if name == OPTIMAL:
            jobs.append((name, *_optimal_rules(fitted, measured, targets), None))
        elif name == SGR:
            jobs.append((name, _sgr_rules(fitted, targets, delta=delta, **common), measured, None))
        elif name in METHODS:
            options = {**searched, "threshold_groups": "all" if name == SHARED else "class"}
            jobs.append((name, _threshold_rules(fitted, targets, **options), measured, None))
        else:
            raise ScribError(f"methods has {name!r}; known are {', '.join(METHODS)}")
    for name, (of_fit, of_measured) in (trust or {}).items():
        ranks = inputs.check_trust(of_fit, len(fitted.scores))
        rules = _sgr_rules(fitted, targets, delta=delta, trust=ranks, **common)
        ranks = inputs.check_trust(of_measured, len(measured.scores))
        jobs.append((f"{SGR} on {name}", rules, measured, ranks))
    return tuple(_draw(*job, targets, _top_risk(measured)) for job in jobs)


def spread_targets(top_risk: float, stride: float = STRIDE) -> tuple[float, ...]:
    """Return targets a stride apart, up to the risk of the top class."""
    inputs.as_number("stride", stride, low=0, high=1)
    step = min(stride, top_risk / LEAST_TARGETS)
    count = int(top_risk / step + SLACK) if step > 0 else 0
    return tuple(round(step * (i + 1), 12) for i in range(count))


def anchored(
    ambiguity: Sequence[float], risk: Sequence[float], top_risk: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return points by ambiguity, with both end points; accuracies of equal ones are averaged."""
    across, up = np.asarray(ambiguity, dtype=np.float64), 1 - np.asarray(risk, dtype=np.float64)
    inside = ~np.isnan(up) & (across > 0)  # without abstention the end point stands alone
    across = np.concatenate([[0.0], across[inside], [1.0]])
    up = np.concatenate([[1 - top_risk], up[inside], [1.0]])
    at, index = np.unique(across, return_inverse=True)
    means = np.bincount(index, up) / np.bincount(index)
    return tuple(at.tolist()), tuple(means.tolist())


def area(across: Sequence[float], up: Sequence[float]) -> float:
    """Return the area under straight lines between points."""
    heights = np.asarray(up)
    return float(np.diff(across) @ (heights[1:] + heights[:-1]) / 2)


def _top_risk(rows: Labelled) -> float:
    return float((rows.scores.argmax(axis=1) != rows.labels).mean())


def _threshold_rules(rows: Labelled, targets: Sequence[float], **options: Any) -> Iterator[Rule]:
    """Yield SCRIB's rules, each found from the thresholds of the one before."""
    labels, initial = inputs.labels_for(rows.labels, rows.classes), None
    options |= {"penalty": PENALTY, "two_sided_penalty": TWO_SIDED}
    for target in targets:
        fit = fit_thresholds(
            rows.scores, labels, None, overall_target=target, initial=initial, **options
        )
        initial = fit.thresholds
        yield fit.rule


def _sgr_rules(rows: Labelled, targets: Sequence[float], **options: Any) -> Iterator[Rule]:
    labels = inputs.labels_for(rows.labels, rows.classes)
    for target in targets:
        yield baselines.fit_sgr(rows.scores, labels, target, **options).rule


def _optimal_rules(
    fitted: Labelled, measured: Labelled, targets: Sequence[float]
) -> tuple[list[Rule], Labelled]:
    """Return rules of recalibrated scores, and the rows to measure with theirs.

    Under one target the optimal rule is a threshold on the highest score: that of the least loss.
    """
    recalibration = fit_recalibration(inputs.check_probabilities(fitted.scores), fitted.labels)
    fitted, measured = (
        rows._replace(scores=recalibrate(recalibration, inputs.check_probabilities(rows.scores)))
        for rows in (fitted, measured)
    )
    wrong = fitted.scores.argmax(axis=1) != fitted.labels
    values, answered, errors = baselines.count_by_trust(fitted.scores.max(axis=1), wrong)
    rules: list[Rule] = []
    for target in targets:
        off = errors / answered - target
        penalties = PENALTY * np.maximum(off, 0.0) ** 2 + TWO_SIDED * off**2
        best = int(np.argmin(penalties - answered / len(wrong)))
        rules.append(SelectiveRule(threshold=baselines.cut_above(values, best)))
    return rules, measured


def _draw(
    method: str,
    rules: Iterable[Rule],  # one a target
    rows: Labelled,
    trust: Floats | None,  # (n,) what the rules rank rows by, where not the highest score
    targets: tuple[float, ...],
    top_risk: float,
) -> Curve:
    """Return the curve of a method's rules on the rows to measure."""
    ambiguity, risk = [], []
    for rule in rules:
        counts = count_rows(predict_sets(rows.scores, rule, trust=trust), rows)
        ambiguity.append(float(1 - counts.all_certain / len(rows.scores)))
        risk.append(float(counts.wrong.sum() / counts.all_certain) if counts.all_certain else NAN)
    off = np.array(risk) - targets
    off = off[~np.isnan(off)]
    return Curve(
        method=method,
        targets=targets,
        ambiguity=tuple(ambiguity),
        risk=tuple(risk),
        top_risk=top_risk,
        auc=area(*anchored(ambiguity, risk, top_risk)) if len(off) else NAN,
        rmse=float(np.sqrt(np.mean(off**2))) if len(off) else NAN,
    )
