"""The certificate: what certify rows prove about the risks of a rule that was fixed before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scrib_mlflow.core.betting import check_shares
from scrib_mlflow.core.bounds import risk_upper, risk_upper_kl
from scrib_mlflow.core.checks import as_number, check_trust
from scrib_mlflow.core.fits import NAN, Fit
from scrib_mlflow.core.groups import check_groups
from scrib_mlflow.core.rows import check_rows
from scrib_mlflow.core.rules import Rule, predict_sets
from scrib_mlflow.core.tally import (
    LEAST_GROUPS,
    Tally,
    binomial_tail,
    claim_targets,
    claimed,
    counts_without_errors,
    highest,
    independent_counts,
    p_values,
    passes,
    tally_sets,
)
from scrib_mlflow.core.targets import Constraint, Target, Targets, make_constraints
from scrib_mlflow.errors import ScribError

Status = Literal[
    "certified", "passes alone", "not certified", "silent", "no data", "too few groups"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What certify rows say of one risk."""

    name: str  # a class, a risk group or "overall"
    classes: tuple[str, ...]
    target: float
    n: int
    n_certain: int
    n_wrong: int
    risk: float  # NaN without certain rows
    p_value: float  # of "the risk is above its target"; 1 without certain rows
    risk_upper: float  # by itself; 1 without certain rows, NaN where rows are weighted
    risk_upper_simultaneous: float  # of all claims at once
    risk_upper_kl: float  # the paper's Theorem 4.2, from plain counts
    status: Status
    n_groups: int | None = None  # groups with certain rows; None where rows are not grouped
    n_effective: float | None = None  # independent rows that the certain ones are worth
    p_value_iid: float | None = None  # as if the rows of a group were independent
    risk_upper_iid: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Whether every risk is proved to be at most its target, and what rows say of each.

    The upper bounds hold for a rule that was fixed beforehand; those of a rule that `certify_path`
    chose on the same rows are descriptive.
    """

    confidence: float
    level: float  # the error probability spent: 1 - confidence
    passed: bool
    p_value: float  # the highest of the claims'
    approximate: bool  # rows are grouped
    n_groups: int | None
    claims: tuple[Claim, ...]
    waived: tuple[str, ...]  # classes of which nothing is claimed


class PathTest(NamedTuple):
    """A fixed-sequence test along a path of rules."""

    p_values: tuple[float, ...]  # of the rules tested
    chosen: int | None  # the last rule that passed
    certificate: Certificate  # of the chosen rule; of the first where none passed


def certify_sets(
    scores: ArrayLike,
    labels: ArrayLike,
    rule: Fit | Rule | Sequence[float],
    risk_targets: Target | None = 0.1,
    *,
    confidence: float = 0.95,
    classes: Sequence[object] | None = None,
    overall_target: float | None = None,
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
    waive: Sequence[str] = (),
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    max_weight: float | None = None,
    trust: ArrayLike | None = None,
) -> Certificate:
    """Prove on labelled rows that a rule keeps its risk targets, or say where that fails.

    The proof holds for a rule that was fixed before these rows were looked at; on the rows of its
    own fit it proves nothing. A rule with any risk above its target passes with a probability of at
    most 1 - confidence.

    Parameters
    ----------
    scores : (n, k) array
    labels : (n,) array
        Class names or indices.
    rule : Fit, Rule or sequence of k floats
    risk_targets : float or mapping of class names to floats, optional
        The highest share of wrong rows among the certain rows of a class.
    confidence : float
        Between 0.5 and 1.
    classes : sequence, optional
        Class names in column order; those of the fit, or the column numbers.
    overall_target : float, optional
        The highest share of wrong rows among all certain rows.
    risk_groups : mapping of names to (class names, target), optional
        Targets for the rows of several classes together.
    waive : sequence of class names
        Classes of which nothing shall be claimed.
    groups : (n,) array, optional
        Which rows belong together, such as the patient of each row. The certificate is approximate
        then, and needs 30 groups with certain rows of each claim.
    sample_weight : (n,) array, optional
        Weights that make the rows stand for others, as a function of the row. Other weights than 0
        and 1 need `max_weight`; upper bounds are NaN then.
    max_weight : float, optional
        The highest weight that a row can have, fixed before the weights were looked at.
    trust : (n,) array, optional
        For a selective rule that was fitted on trust.

    Returns
    -------
    Certificate
    """
    level = 1.0 - as_number("confidence", confidence, low=0.5, high=1)
    names = rule.classes if isinstance(rule, Fit) and classes is None else classes
    rows = check_rows(scores, labels, names, sample_weight, least_rows=1)
    shares = check_shares(rows, max_weight, grouped=groups is not None)
    targets = Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
        waive=waive,
    )
    constraints = make_constraints(targets, rows.classes)
    if trust is not None:
        trust = check_trust(trust, len(rows.kept))[rows.kept]
    sets = predict_sets(rows.scores, rule.rule if isinstance(rule, Fit) else rule, trust=trust)
    codes = None if groups is None else check_groups(groups, len(rows.kept))[rows.kept]
    tally = tally_sets(sets, rows.labels, constraints, codes, shares)
    return make_certificate(tally, constraints, rows.classes, level=level, waived=waive)


def certify_path(
    tallies: Iterable[Tally],
    constraints: Sequence[Constraint],
    classes: tuple[str, ...],
    *,
    level: float,
    waived: Sequence[str] = (),
) -> PathTest:
    """Test rules in order up to the first that fails, and choose the last that passed.

    Each is given by its tally on the same certify rows, on which neither the rules nor their order
    may depend. Tallies are taken one by one: hand in a generator,
    ``(tally_sets(predict_sets(scores, rule), labels, constraints) for rule in rules)``.
    """
    found: list[float] = []
    chosen, shown = None, None
    for index, tally in enumerate(tallies):
        p = p_values(tally, constraints, level=level)
        found.append(highest(p))
        passed = passes(tally, p, level)
        if passed or shown is None:
            shown = tally
        if not passed:
            break
        chosen = index
    if shown is None:
        msg = "the path has no rule to test; give it at least one"
        raise ScribError(msg)
    certificate = make_certificate(shown, constraints, classes, level=level, waived=waived)
    return PathTest(tuple(found), chosen, certificate)


def make_certificate(
    tally: Tally,
    constraints: Sequence[Constraint],
    classes: tuple[str, ...],
    *,
    level: float,
    waived: Sequence[str] = (),
) -> Certificate:
    """Return the certificate that the counts of certify rows give."""
    p = p_values(tally, constraints, level=level)
    passed = passes(tally, p, level)
    numbers = _numbers(tally, constraints, level)
    groups = tally.groups
    return Certificate(
        confidence=1.0 - level,
        level=level,
        passed=passed,
        p_value=highest(p),
        approximate=groups is not None,
        n_groups=None if groups is None else groups.total,
        claims=tuple(
            Claim(
                name=constraint.name,
                classes=tuple(classes[j] for j in constraint.classes),
                target=constraint.target,
                n=int(tally.n[c]),
                n_certain=int(tally.n_certain[c]),
                n_wrong=int(tally.n_wrong[c]),
                p_value=float(p[c]),
                status=_status(tally, c, alone=bool(p[c] <= level), passed=passed),
                n_groups=None if groups is None else int(groups.counts[c]),
                **{name: _plain(values[c]) for name, values in numbers.items()},
            )
            for c, constraint in enumerate(claimed(constraints))
        ),
        waived=tuple(name for name in classes if name in set(map(str, waived))),
    )


def _numbers(
    tally: Tally, constraints: Sequence[Constraint], level: float
) -> dict[str, NDArray[np.float64]]:
    """Return risks and bounds of all claims, by their names in `Claim`."""
    certain, wrong = tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)
    unknown = np.full(len(certain), NAN)
    if tally.bets is not None:
        bounds = ("risk_upper", "risk_upper_simultaneous", "risk_upper_kl")
        return {"risk": tally.bets.risk} | dict.fromkeys(bounds, unknown)
    each = _level_of_each(tally, constraints, level)
    numbers = {
        "risk": np.divide(wrong, certain, out=unknown, where=certain > 0),
        "risk_upper": _upper(tally, level),
        "risk_upper_simultaneous": _upper(tally, each),
        "risk_upper_kl": risk_upper_kl(wrong, certain, 1 - level),
    }
    if tally.groups is not None:
        numbers["n_effective"] = independent_counts(tally, level)[0]
        numbers["p_value_iid"] = binomial_tail(certain, wrong, claim_targets(constraints))
        numbers["risk_upper_iid"] = risk_upper(wrong, certain, 1 - level)
    return numbers


def _upper(tally: Tally, level: float) -> NDArray[np.float64]:
    """Return upper bounds; groups are not worth more with errors than they would be without."""
    n, wrong = independent_counts(tally, level)
    bound = risk_upper(wrong, n, 1 - level)
    if tally.groups is None:
        return bound
    n, wrong = counts_without_errors(tally, level)
    return np.maximum(bound, risk_upper(wrong, n, 1 - level))


def _level_of_each(tally: Tally, constraints: Sequence[Constraint], level: float) -> float:
    """Return the level at which each of several bounds must hold for all to hold at once.

    Counts of disjoint classes are independent where rows are; elsewhere the levels add up.
    """
    claims = claimed(constraints)
    members = [j for claim in claims for j in claim.classes]
    if tally.groups is None and len(set(members)) == len(members):
        return float(-np.expm1(np.log1p(-level) / max(len(claims), 1)))
    return level / len(claims)


def _status(tally: Tally, c: int, *, alone: bool, passed: bool) -> Status:
    if tally.n[c] == 0:
        return "no data"
    if tally.n_certain[c] == 0:
        return "silent"
    if tally.groups is not None and tally.groups.counts[c] < LEAST_GROUPS:
        return "too few groups"
    if passed:
        return "certified"
    return "passes alone" if alone else "not certified"


def _plain(value: float) -> float:
    """Return a float, and the one NaN with which results equal themselves."""
    return NAN if np.isnan(value) else float(value)
