"""The certificate: what certify rows prove about the risks of a rule that was fixed before them.

Each risk with a target is a claim (c of them). Its null hypothesis "the risk is above its target"
is tested by the exact binomial tail, on as many rows as an acceptance plan takes; as `core.groups`
says where rows come in groups, and by bets where rows are weighted. All claims must pass; `path`
tests one rule after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scrib_mlflow.core import counts, groups as grouping, inputs, targets
from scrib_mlflow.core.bounds import acceptance_rows, binomial_tail, risk_upper, risk_upper_kl
from scrib_mlflow.core.groups import LEAST_GROUPS, GroupCounts, GroupSums, GroupTest, TestName
from scrib_mlflow.core.inputs import NAN, Bools, Floats, Ints, Labelled, Labels
from scrib_mlflow.core.rules import Fit, Rule, predict_rows
from scrib_mlflow.core.targets import Constraint, Target, claim_targets, claimed
from scrib_mlflow.errors import InvalidDataError, InvalidWeightsError
from scrib_mlflow.messages import percents

SHARES = np.linspace(0.05, 0.99, 20)  # of the highest bet; each is best for another true risk
ROUNDING = 1e-9
UNTESTED = "no set classifier of the path passed, and this one was not to be tested"
MANY_LAST = 1000  # rows at the end of an order that are looked at together
Status = Literal[
    "certified", "passes alone", "not certified", "silent", "no data", "too few groups"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSums:
    """What the groups of one claim add up to, each capped: n_i certain and e_i wrong rows."""

    certain: float  # sum of n_i
    wrong: float  # sum of e_i
    certain_squared: float  # sum of n_i^2
    wrong_squared: float  # sum of e_i^2
    product: float  # sum of n_i e_i
    log_capital: float | None  # of the exact test's bets at their best; None where it was not made


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What certify rows say of one risk."""

    name: str  # a class, a risk group or `overall_name`
    classes: tuple[str, ...]
    target: float
    n: int
    n_certain: int
    n_wrong: int
    risk: float  # of what is claimed, so of capped rows where groups are; NaN without certain rows
    p_value: float  # of "the risk is above its target"; 1 without certain rows
    risk_upper: float  # by itself; 1 without certain rows, NaN where rows are weighted
    risk_upper_simultaneous: float  # of all claims at once
    risk_upper_kl: float  # the paper's Theorem 4.2, from plain counts
    status: Status
    n_groups: int | None = None  # groups with certain rows; None where rows are not grouped
    n_effective: float | None = None  # independent rows that the certain ones are worth
    p_value_iid: float | None = None  # of all certain rows, as if independent: descriptive
    risk_upper_iid: float | None = None
    n_tested: int | None = None  # certain rows that the acceptance plan tests; None if groups do
    n_tested_wrong: int | None = None  # of these
    group_sums: ClaimSums | None = None  # from which the p-value follows
    log_capital: float | None = None  # of the bets on weighted rows, from which it follows there


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
    approximate: bool  # rows are grouped, and tested by the design effect
    n_groups: int | None
    claims: tuple[Claim, ...]
    waived: tuple[str, ...]  # classes of which nothing is claimed
    group_test: TestName | None = None  # None where rows are not grouped
    group_cap: int | None = None  # rows of a claim that a group counts for at most
    max_group_rows: int | None = None  # that any group has, as declared; groups count in full then


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
    group_cap: int | None = None,
    group_test: TestName = "approximate",
    max_group_rows: int | None = None,
    sample_weight: ArrayLike | None = None,
    max_weight: float | None = None,
    trust: ArrayLike | None = None,
    seed: int = 0,
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
        Which rows belong together, such as the patient of each row.
    group_cap : int, optional
        How many certain rows of a class one group counts for at most, fixed before these rows were
        looked at; groups with more count for as many, their errors in proportion. Needed with
        groups, unless `max_group_rows` is given: large groups may be the risky ones, and those that
        are not among these rows could decide the risk.
    group_test : "approximate" or "exact"
        By the design effect, which needs 30 groups with certain rows of each claim, or by bets
        that hold for any groups and prove less.
    max_group_rows : int, optional
        The most certain rows of a class that any group has, declared beforehand. The risk of rows
        is claimed then, without a cap; only the exact test can do that.
    sample_weight : (n,) array, optional
        Weights that make the rows stand for others, as a function of the row. Other weights than 0
        and 1 need `max_weight`; upper bounds are NaN then.
    max_weight : float, optional
        The highest weight that a row can have, fixed before the weights were looked at.
    seed : int
        Of the random order in which rows are tested.

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
    codes, how = None, None
    if groups is not None:
        codes = grouping.check_groups(groups, len(rows.used))[rows.used]
        how = grouping.make_group_test(group_test, group_cap, max_group_rows)
    order = np.random.default_rng(inputs.check_seed(seed)).permutation(len(rows.labels))
    tally = tally_sets(
        sets, rows.labels, constraints, codes, shares, group_test=how, order=order, level=level
    )
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
    capital = None if tally.bets is None else bet_capital(tally.bets.winnings)
    numbers = _numbers(tally, constraints, level)
    groups, tested = tally.groups, tally.tested
    how = None if groups is None else groups.test
    cap = None if how is None else int(how.cap) if np.isfinite(how.cap) else None
    return Certificate(
        confidence=1.0 - level,
        level=level,
        passed=passed,
        p_value=float(p.max()) if len(p) else 1.0,
        approximate=how is not None and not how.exact,
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
                n_groups=None if groups is None else len(groups.by_claim[c].certain),
                n_tested=None if tested is None else int(tested.n[c]),
                n_tested_wrong=None if tested is None else int(tested.n_wrong[c]),
                group_sums=None if groups is None else _claim_sums(groups, c, constraint.target),
                log_capital=None if capital is None else float(capital[c]),
                **{  # NAN, so that results equal themselves
                    name: NAN if np.isnan(values[c]) else float(values[c])
                    for name, values in numbers.items()
                },
            )
            for c, constraint in enumerate(claimed(constraints))
        ),
        waived=tuple(name for name in classes if name in set(map(str, waived))),
        group_test=None if how is None else "exact" if how.exact else "approximate",
        group_cap=cap if how is not None and not how.declared else None,
        max_group_rows=cap if how is not None and how.declared else None,
    )


def _claim_sums(groups: Grouped, c: int, target: float) -> ClaimSums:
    counted, (cap, exact, _) = groups.by_claim[c], groups.test
    sums = grouping.sum_groups([counted])
    return ClaimSums(
        certain=float(sums.certain[0]),
        wrong=float(sums.wrong[0]),
        certain_squared=float(sums.certain_squared[0]),
        wrong_squared=float(sums.wrong_squared[0]),
        product=float(sums.product[0]),
        log_capital=grouping.log_capital(counted, cap, target) if exact else None,
    )


def _numbers(tally: Tally, constraints: Sequence[Constraint], level: float) -> dict[str, Floats]:
    """Return risks and bounds of all claims, by their names in `Claim`."""
    certain, wrong = tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)
    unknown = np.full(len(certain), NAN)
    if tally.bets is not None:
        bounds = ("risk_upper", "risk_upper_simultaneous", "risk_upper_kl")
        of_rows = {"risk": tally.bets.risk, "n_effective": tally.bets.worth}
        return of_rows | dict.fromkeys(bounds, unknown)
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
        "p_value_iid": binomial_tail(certain, wrong, claim_targets(constraints)),
        "risk_upper_iid": risk_upper(wrong, certain, 1 - level),
    }
    if tally.groups is not None:
        sums = grouping.sum_groups(tally.groups.by_claim)
        unknown = np.full(len(certain), NAN)
        numbers["risk"] = np.divide(sums.wrong, sums.certain, out=unknown, where=certain > 0)
        numbers["n_effective"] = grouping.effective_counts(sums, level)[0]
    return numbers


def _upper(tally: Tally, level: float) -> Floats:
    if tally.groups is not None and tally.groups.test.exact:
        cap = tally.groups.test.cap
        by_claim = tally.groups.by_claim
        return np.array([grouping.exact_upper(counted, cap, level) for counted in by_claim])
    return np.maximum.reduce([risk_upper(e, n, 1 - level) for n, e in _worth(tally, level)])


def _status(tally: Tally, c: int, *, alone: bool, passed: bool) -> Status:
    if tally.n[c] == 0:
        return "no data"
    if tally.n_certain[c] == 0:
        return "silent"
    if tally.groups is not None and not tally.groups.enough(c):
        return "too few groups"
    if passed:
        return "certified"
    return "passes alone" if alone else "not certified"


class Bets(NamedTuple):
    """Weighted rows: what bets against each claim's opposite have won, and its weighted risk."""

    winnings: Floats  # (c, bets) logarithms
    risk: Floats  # (c,) NaN without certain rows
    worth: Floats  # (c,) certain rows of the highest weight that theirs add up to


class Grouped(NamedTuple):
    """Certain and wrong rows by group, and how they are to be tested."""

    test: GroupTest
    total: int  # groups with any row
    by_claim: tuple[GroupCounts, ...]

    def enough(self, c: int) -> bool:
        """Return whether a claim has groups enough for its test; bets know that themselves."""
        return self.test.exact or len(self.by_claim[c].certain) >= LEAST_GROUPS


class Tested(NamedTuple):
    """The certain rows of each claim that an acceptance plan tests, counted."""

    n: Ints  # (c,)
    n_wrong: Ints  # (c,)


class Tally(NamedTuple):
    """Rows of each claim, counted; with groups, or with bets where rows are weighted."""

    n: Ints  # (c,)
    n_certain: Ints  # (c,)
    n_wrong: Ints  # (c,) certain rows whose member is another class
    groups: Grouped | None = None
    bets: Bets | None = None
    tested: Tested | None = None  # None where all certain rows are


def tally_sets(
    sets: Bools,  # (n, k)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    groups: Ints | None = None,  # (n,) codes from 0
    weights: Floats | None = None,  # (n,) shares of the highest possible weight
    *,
    group_test: GroupTest | None = None,
    order: Ints | None = None,  # (n,) row numbers, in an order like chance
    level: float = 0.05,
) -> Tally:
    """Count the rows of each claim.

    With an order, an acceptance plan for tests at a level takes the first certain rows of each
    claim; neither it nor the test of groups may depend on what the rows show.
    """
    certain, wrong = counts.certain_and_wrong(sets, labels)
    k = sets.shape[1]
    plan = None if order is None else AcceptancePlan(order, level)
    return tally_answers(
        certain, wrong, labels, constraints, k, groups, weights, group_test=group_test, plan=plan
    )


class AcceptancePlan(NamedTuple):
    """Which certain rows are tested: the first in an order, as many as a test at a level needs."""

    order: Ints  # (n,) row numbers
    level: float


def tally_answers(
    certain: Bools,  # (n,)
    wrong: Bools,  # (n,)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    k: int,
    groups: Ints | None = None,  # (n,) codes from 0
    weights: Floats | None = None,  # (n,) shares of the highest possible weight
    *,
    group_test: GroupTest | None = None,
    plan: AcceptancePlan | None = None,  # for rows that have neither groups nor weights
    answers: Ints | None = None,  # (n,) the class that each certain row gets
) -> Tally:
    """Count the rows of each claim, of which it is known whether they are certain and wrong.

    With answers, labels of -1 are those that nobody knows: such a row counts as an error of every
    class that it could be. That proves less than any label would, if all rows are tested.
    """
    members = targets.claim_members(constraints, k)
    rows: Iterable[Bools]
    if answers is None:
        n, n_certain, n_wrong = (
            members @ inputs.class_sizes(labels, k, some) for some in (None, certain, wrong)
        )
        rows = (member[labels] & certain for member in members.astype(np.bool_))
    else:
        plan, wrong = None, wrong | (labels < 0)
        possible = [_possible(labels, answers, member) for member in members.astype(np.bool_)]
        rows = [of & certain for of in possible]
        n = np.array([np.count_nonzero(of) for of in possible])
        n_certain = np.array([np.count_nonzero(of) for of in rows])
        n_wrong = np.array([np.count_nonzero(of & wrong) for of in rows])
    if groups is not None:
        how = group_test or GroupTest()
        by_claim = grouping.count_groups(groups, wrong, rows, np.inf if how.declared else how.cap)
        if how.declared:
            _check_declared(by_claim, how.cap)
        total = len(np.unique(groups))
        return Tally(n, n_certain, n_wrong, groups=Grouped(how, total, by_claim))
    if weights is None:
        if plan is None:
            return Tally(n, n_certain, n_wrong)
        tested = _take_tested(
            n_certain, n_wrong, certain, wrong, labels, constraints, members, plan
        )
        return Tally(n, n_certain, n_wrong, tested=tested)
    winnings, risks, worth = [], [], []
    for of, target in zip(rows, claim_targets(constraints), strict=True):
        winnings.append(log_winnings(weights[of], wrong[of], target))
        worth.append(weights[of].sum())
        risks.append(np.average(wrong[of], weights=weights[of]) if worth[-1] > 0 else NAN)
    bets = Bets(*(np.array(values, dtype=np.float64) for values in (winnings, risks, worth)))
    return Tally(n, n_certain, n_wrong, bets=bets)


def _possible(labels: Labels, answers: Ints, member: Bools) -> Bools:
    """Return (n,) which rows are of these classes, or would be wrong if they were."""
    others = np.count_nonzero(member) - member[answers] > 0
    return np.where(labels < 0, others, member[np.maximum(labels, 0)])


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
    if tally.groups is not None and tally.groups.test.exact:
        each = zip(tally.groups.by_claim, limits, strict=True)
        cap = tally.groups.test.cap
        return np.exp([-grouping.log_capital(counted, cap, target) for counted, target in each])
    return np.maximum.reduce([binomial_tail(*worth, limits) for worth in _worth(tally, level)])


def unproved(certificate: Certificate) -> Certificate:
    """Return what rows say of a rule that was not to be tested, which proves nothing of it."""
    claims = tuple(
        replace(claim, status="passes alone") if claim.status == "certified" else claim
        for claim in certificate.claims
    )
    return replace(certificate, passed=False, claims=claims)


def group_test_of(certificate: Certificate | None) -> GroupTest | None:
    """Return how a certificate tested groups; None where it did not, or did not cap them."""
    if certificate is None or certificate.group_test is None:
        return None
    declared, exact = certificate.max_group_rows, certificate.group_test == "exact"
    cap = certificate.group_cap if declared is None else declared
    return None if cap is None else GroupTest(cap, exact, declared is not None)


def recomputed_p_value(claim: Claim, level: float) -> float:
    """Return the p-value that a claim's own counts give; 1 where they cannot be true."""
    sums, target = claim.group_sums, claim.target
    if claim.log_capital is not None:
        right = claim.n_certain - claim.n_wrong  # at most as if all of them had the highest weight
        most = right * np.log1p(SHARES.max() * target / (1 - target))
        return float(np.exp(-max(claim.log_capital, 0.0))) if claim.log_capital <= most else 1.0
    if sums is None:
        n, wrong = claim.n_certain, claim.n_wrong
        if claim.n_tested is not None and claim.n_tested_wrong is not None:
            n, wrong = claim.n_tested, claim.n_tested_wrong
            others = claim.n_certain - n
            planned = n == acceptance_rows(claim.n_certain, target, level)
            if not (planned and 0 <= claim.n_wrong - wrong <= others):
                return 1.0
        return float(binomial_tail(n, wrong, target)) if 0 <= wrong <= n else 1.0
    groups = claim.n_groups or 0
    # n_i is at least 1, and by Cauchy and Schwarz squares are at least what equal groups have
    possible = groups <= sums.certain <= claim.n_certain + ROUNDING
    possible &= 0 <= sums.wrong <= sums.certain + ROUNDING
    possible &= sums.certain**2 <= groups * sums.certain_squared * (1 + ROUNDING)
    possible &= sums.wrong**2 <= groups * sums.wrong_squared * (1 + ROUNDING)
    possible &= sums.wrong_squared <= sums.wrong * sums.certain
    if not possible:
        return 1.0
    if sums.log_capital is not None:
        most = groups * -np.log1p(-target)  # nothing wrong, and all of it staked
        return float(np.exp(-sums.log_capital)) if sums.log_capital <= most else 1.0
    numbers = (groups, *list(astuple(sums))[:5])
    worth = group_worth(GroupSums(*(np.array([number]) for number in numbers)), level)
    return max(float(binomial_tail(n, wrong, target)[0]) for n, wrong in worth)


def bet_p_values(winnings: Floats) -> Floats:
    """Return p-values from the log winnings (c, bets) of each claim."""
    return np.exp(-np.maximum(bet_capital(winnings), 0.0))


def bet_capital(winnings: Floats) -> Floats:
    """Return (c,) the logarithm of what all bets together made of 1."""
    return special.logsumexp(winnings, axis=1) - np.log(winnings.shape[1])


def _worth(tally: Tally, level: float) -> list[tuple[Floats, Floats]]:
    """Return certain and wrong rows as if independent, of which the least favourable ones count."""
    if tally.groups is not None:
        return group_worth(grouping.sum_groups(tally.groups.by_claim), level)
    n, wrong = (tally.n_certain, tally.n_wrong) if tally.tested is None else tally.tested
    return [(n.astype(np.float64), wrong.astype(np.float64))]


def group_worth(sums: GroupSums, level: float) -> list[tuple[Floats, Floats]]:
    """Return what grouped rows are worth, and what they would be without an error.

    A few scattered errors make the rows of a group look independent, which they may not be: more
    errors must never prove more than none would.
    """
    return [
        grouping.effective_counts(each, level) for each in (sums, grouping.without_errors(sums))
    ]


def passes(tally: Tally, p: Floats, level: float) -> bool:
    """Return whether the p-values prove all claims at once.

    A rule with any risk above its target passes with a probability of at most `level`: that of the
    claim which is false. So there is no factor for the number of claims. Claims with too few groups
    never pass, nor does a rule of which nothing is claimed.
    """
    enough = tally.groups is None or all(map(tally.groups.enough, range(len(p))))
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
    certain, wrong = tally.n_certain.astype(np.float64), tally.n_wrong.astype(np.float64)
    if tally.groups is not None:  # one group says nothing of groups; better refute too much then
        sums = grouping.sum_groups(tally.groups.by_claim)
        worth, worth_wrong = grouping.effective_counts(sums, each)
        certain = np.where(sums.groups >= 2, worth, certain)
        wrong = np.where(sums.groups >= 2, worth_wrong, wrong)
    some = wrong > 0
    right = np.where(some, certain - wrong, 0.0)
    tail = special.betainc(np.where(some, wrong, 1.0), right + 1, claim_targets(constraints))
    p = np.where(some, tail, 1.0)
    return Refutation(p, p <= each)


def _take_tested(
    n_certain: Ints,  # (c,)
    n_wrong: Ints,  # (c,)
    certain: Bools,  # (n,)
    wrong: Bools,  # (n,)
    labels: Labels,  # (n,)
    constraints: Sequence[Constraint],
    members: Ints,  # (c, k)
    plan: AcceptancePlan,
) -> Tested:
    """Return the rows that an acceptance plan tests: all but the last few in its order."""
    tested, tested_wrong = n_certain.copy(), n_wrong.copy()
    for c, target in enumerate(claim_targets(constraints)):
        tested[c] = acceptance_rows(int(n_certain[c]), float(target), plan.level)
        left, last = int(n_certain[c] - tested[c]), 0
        while left:
            step = max(2 * left, MANY_LAST)
            rows = plan.order[max(len(plan.order) - last - step, 0) : len(plan.order) - last][::-1]
            last += step
            rows = rows[certain[rows] & members[c, labels[rows]].astype(np.bool_)][:left]
            tested_wrong[c] -= np.count_nonzero(wrong[rows])
            left -= len(rows)
    return Tested(tested, tested_wrong)


def _check_declared(by_claim: Sequence[GroupCounts], declared: float) -> None:
    """Raise where a group has more certain rows of a claim than any should have."""
    most = max(counted.certain.max(initial=0.0) for counted in by_claim)
    if most > declared:
        raise InvalidDataError(
            f"a group has {most:,.0f} certain rows of one claim, but max_group_rows = "
            f"{declared:,.0f} says that none has more; give group_cap in its place, or find "
            "a number that no group can exceed and certify on rows not looked at before"
        )


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
    if claim.log_capital is not None:
        risk, target = percents(claim.risk, claim.target)
        return (
            f"weighted risk {risk} of {claim.n_certain:,} certain rows, which do "
            f"not prove the target {target}"
        )
    upper, target = percents(claim.risk_upper, claim.target)
    return (
        f"{claim.n_wrong:,} of {claim.n_certain:,} certain rows wrong, upper bound "
        f"{upper} above the target {target}"
    )


def reasons(certificate: Certificate) -> list[str]:
    """Return why a certificate does not pass, claim by claim."""
    return [
        f"{claim.name}: {explain(claim)}"
        for claim in certificate.claims
        if claim.status not in {"certified", "passes alone"}
    ] or [UNTESTED if certificate.claims else "nothing is claimed"]


def spending(level: float, number: int) -> float:
    """Return the part of an error probability that certificate `number` spends, from 1 on."""
    return level * 6 / (math.pi * number) ** 2
