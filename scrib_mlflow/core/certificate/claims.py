"""The certificate: what certify rows prove about the risks of a rule that was fixed before them.

Each risk with a target is a claim (c of them). Its null hypothesis "the risk is above its target"
is tested by the exact binomial tail; by effective counts where rows come in groups, and by bets
where rows are weighted. All claims must pass; `path` tests one rule after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core import counts, inputs, targets
from scrib_mlflow.core.bounds import binomial_tail, risk_upper, risk_upper_kl
from scrib_mlflow.core.counts import LEAST_GROUPS, GroupSums
from scrib_mlflow.core.inputs import NAN, Bools, Floats, Ints, Labelled, Labels
from scrib_mlflow.core.rules import Fit, Rule, predict_rows
from scrib_mlflow.core.targets import Constraint, Target, claim_targets, claimed
from scrib_mlflow.errors import InvalidWeightsError
from scrib_mlflow.messages import percent

SHARES = np.linspace(0.05, 0.99, 20)  # of the highest bet; each is best for another true risk
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
    scores, labels, rule, classes, trust
        As for `evaluate_sets`; labels are one class a row.
    risk_targets, overall_target, risk_groups, waive
        As for `fit_thresholds`; nothing is claimed of a class that is waived.
    confidence : float
        Between 0.5 and 1.
    groups : (n,) array, optional
        Which rows belong together, such as the patient of each row. The certificate is approximate
        then, and needs 30 groups with certain rows of each claim.
    sample_weight : (n,) array, optional
        Weights that make the rows stand for others, as a function of the row. Other weights than 0
        and 1 need `max_weight`; upper bounds are NaN then.
    max_weight : float, optional
        The highest weight that a row can have, fixed before the weights were looked at.

    Returns
    -------
    Certificate
    """
    level = 1.0 - inputs.as_number("confidence", confidence, low=0.5, high=1)
    rows, sets = predict_rows(
        scores, labels, rule, classes=classes, sample_weight=sample_weight, trust=trust, hard=True
    )
    shares = check_shares(rows, max_weight, grouped=groups is not None)
    wanted = targets.Targets(
        risk_targets=risk_targets,
        overall_target=overall_target,
        risk_groups=risk_groups,
        waive=waive,
    )
    constraints = targets.make_constraints(wanted, rows.classes)
    codes = None if groups is None else counts.check_groups(groups, len(rows.used))[rows.used]
    tally = tally_sets(sets, rows.labels, constraints, codes, shares)
    return make_certificate(tally, constraints, rows.classes, level=level, waived=waive)


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
        p_value=float(p.max()) if len(p) else 1.0,
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
                **{  # NAN, so that results equal themselves
                    name: NAN if np.isnan(values[c]) else float(values[c])
                    for name, values in numbers.items()
                },
            )
            for c, constraint in enumerate(claimed(constraints))
        ),
        waived=tuple(name for name in classes if name in set(map(str, waived))),
    )


def _numbers(tally: Tally, constraints: Sequence[Constraint], level: float) -> dict[str, Floats]:
    """Return risks and bounds of all claims, by their names in `Claim`."""
    certain, wrong = tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)
    unknown = np.full(len(certain), NAN)
    if tally.bets is not None:
        bounds = ("risk_upper", "risk_upper_simultaneous", "risk_upper_kl")
        return {"risk": tally.bets.risk} | dict.fromkeys(bounds, unknown)
    # Counts of disjoint classes are independent where rows are; elsewhere the levels add up.
    members = [j for claim in claimed(constraints) for j in claim.classes]
    each = level / max(len(certain), 1)
    if tally.groups is None and len(set(members)) == len(members):
        each = float(-np.expm1(np.log1p(-level) / max(len(certain), 1)))
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


def _upper(tally: Tally, level: float) -> Floats:
    return np.maximum.reduce([risk_upper(e, n, 1 - level) for n, e in _worth(tally, level)])


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


class Bets(NamedTuple):
    """Weighted rows: what bets against each claim's opposite have won, and its weighted risk."""

    winnings: Floats  # (c, bets) logarithms
    risk: Floats  # (c,) NaN without certain rows


class Tally(NamedTuple):
    """Rows of each claim, counted; with sums over groups, or with bets where rows are weighted."""

    n: Ints  # (c,)
    n_certain: Ints  # (c,)
    n_wrong: Ints  # (c,) certain rows whose member is another class
    groups: GroupSums | None = None
    bets: Bets | None = None


def tally_sets(
    sets: Bools,  # (n, k)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    groups: Ints | None = None,  # (n,) codes from 0
    weights: Floats | None = None,  # (n,) shares of the highest possible weight
) -> Tally:
    """Count the rows of each claim."""
    certain, wrong = counts.certain_and_wrong(sets, labels)
    return tally_answers(certain, wrong, labels, constraints, sets.shape[1], groups, weights)


def tally_answers(
    certain: Bools,  # (n,)
    wrong: Bools,  # (n,)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    k: int,
    groups: Ints | None = None,  # (n,) codes from 0
    weights: Floats | None = None,  # (n,) shares of the highest possible weight
) -> Tally:
    """Count the rows of each claim, of which it is known whether they are certain and wrong."""
    members = targets.claim_members(constraints, k)
    n, n_certain, n_wrong = (
        members @ inputs.class_sizes(labels, k, rows) for rows in (None, certain, wrong)
    )
    rows = (member[labels] & certain for member in members.astype(np.bool_))
    if groups is not None:
        return Tally(n, n_certain, n_wrong, groups=counts.sum_groups(groups, wrong, rows))
    if weights is None:
        return Tally(n, n_certain, n_wrong)
    winnings, risks = [], []
    for of, target in zip(rows, claim_targets(constraints), strict=True):
        winnings.append(log_winnings(weights[of], wrong[of], target))
        risks.append(np.average(wrong[of], weights=weights[of]) if of.any() else NAN)
    return Tally(n, n_certain, n_wrong, bets=Bets(np.array(winnings), np.array(risks)))


def log_winnings(
    weights: Floats,  # (n,) of certain rows, at most 1
    wrong: Bools,  # (n,)
    target: float,
) -> Floats:
    """Return the logarithm of what each bet of `SHARES` has made of 1 after these rows."""
    z = weights * (wrong - target)
    return np.array([np.log1p(-share / (1 - target) * z).sum() for share in SHARES])


def p_values(tally: Tally, constraints: Sequence[Constraint], *, level: float) -> Floats:
    """Return the p-value of "the risk is above its target" for each claim; 1 without certain rows.

    The level matters only where rows are grouped, and then slightly.
    """
    if tally.bets is not None:
        return bet_p_values(tally.bets.winnings)
    limits = claim_targets(constraints)
    return np.maximum.reduce([binomial_tail(*worth, limits) for worth in _worth(tally, level)])


def bet_p_values(winnings: Floats) -> Floats:
    """Return p-values from the log winnings (c, bets) of each claim."""
    evidence = special.logsumexp(winnings, axis=1) - np.log(winnings.shape[1])
    return np.exp(-np.maximum(evidence, 0.0))


def independent_counts(tally: Tally, level: float) -> tuple[Floats, Floats]:
    """Return certain and wrong rows of each claim, as many as they are worth if independent."""
    if tally.groups is not None:
        return counts.effective_counts(tally.n_certain, tally.n_wrong, tally.groups, level)
    return tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)


def _worth(tally: Tally, level: float) -> list[tuple[Floats, Floats]]:
    """Return certain and wrong rows as if independent, of which the least favourable ones count.

    A few scattered errors make the rows of a group look independent, which they may not be: more
    errors must never prove more than none would. So groups count without errors as well.
    """
    worth = [independent_counts(tally, level)]
    if tally.groups is not None:
        none = np.zeros_like(tally.groups.product)
        sums = tally.groups._replace(wrong_squared=none, product=none)
        no_errors = tally._replace(n_wrong=np.zeros_like(tally.n_wrong), groups=sums)
        worth.append(independent_counts(no_errors, level))
    return worth


def passes(tally: Tally, p: Floats, level: float) -> bool:
    """Return whether the p-values prove all claims at once.

    A rule with any risk above its target passes with a probability of at most `level`: that of the
    claim which is false. So there is no factor for the number of claims. Claims with too few groups
    never pass, nor does a rule of which nothing is claimed.
    """
    enough = tally.groups is None or bool((tally.groups.counts >= LEAST_GROUPS).all())
    return enough and len(p) > 0 and bool((p <= level).all())


class Refutation(NamedTuple):
    """What rows say against the claims."""

    p_values: Floats  # (c,) of "the risk is at most its target"
    refuted: Bools  # (c,)


def refuted(tally: Tally, constraints: Sequence[Constraint], level: float) -> Refutation:
    """Return which claims the rows refute; true claims survive with probability 1 - level.

    One claim is enough to refute a rule, so each is tested at level / claims.
    """
    each = level / max(len(tally.n), 1)
    certain, wrong = independent_counts(tally, each)
    if tally.groups is not None:  # one group says nothing of groups; better refute too much then
        known = tally.groups.counts >= 2
        certain = np.where(known, certain, tally.n_certain)
        wrong = np.where(known, wrong, tally.n_wrong)
    some = wrong > 0
    right = np.where(some, certain - wrong, 0.0)
    tail = special.betainc(np.where(some, wrong, 1.0), right + 1, claim_targets(constraints))
    p = np.where(some, tail, 1.0)
    return Refutation(p, p <= each)


def check_shares(rows: Labelled, max_weight: float | None, *, grouped: bool) -> Floats | None:
    """Return weights as shares of the highest possible one; None where each row counts as one."""
    if rows.counted and max_weight is None:
        return None
    if grouped:
        raise InvalidWeightsError(
            "rows have groups and weights, which no certificate covers; leave one of them out"
        )
    if max_weight is None:
        raise InvalidWeightsError(
            "sample_weight has other weights than 0 and 1: weighted errors are not binomial, so "
            "the exact certificate does not hold. Pass max_weight, the highest weight a row can "
            "have, fixed before looking at the weights; or keep each row with probability "
            "weight / max_weight and certify the kept ones without weights"
        )
    most = inputs.as_number("max_weight", max_weight, low=0, high=np.inf)
    if rows.weights.max() > most:
        raise InvalidWeightsError(
            f"a row weighs {rows.weights.max():g}, more than max_weight = {most:g}; "
            "find a bound that no row can exceed, and certify on rows not looked at before"
        )
    return rows.weights / most


def explain(claim: Claim) -> str:
    """Return what keeps a claim from passing."""
    if claim.status == "silent":
        return f"silent, none of its {claim.n:,} rows is certain"
    if claim.status == "no data":
        return "no rows"
    if claim.status == "too few groups":
        return f"only {claim.n_groups} groups with certain rows"
    return (
        f"{claim.n_wrong:,} of {claim.n_certain:,} certain rows wrong, upper bound "
        f"{percent(claim.risk_upper)} above the target {percent(claim.target)}"
    )


def reasons(certificate: Certificate) -> list[str]:
    """Return why a certificate does not pass, claim by claim."""
    return [
        f"{claim.name}: {explain(claim)}"
        for claim in certificate.claims
        if claim.status not in {"certified", "passes alone"}
    ] or ["nothing is claimed"]


def spending(level: float, number: int) -> float:
    """Return the part of an error probability that certificate `number` spends, from 1 on."""
    return level * 6 / (math.pi * number) ** 2
