"""Certificates against scipy.stats, row-by-row loops, and the rates that they promise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from scrib_mlflow.core.bounds import acceptance_rows, allowed_errors
from scrib_mlflow.core.certificate import (
    Tally,
    certify_path,
    certify_sets,
    make_certificate,
    tally_sets,
)
from scrib_mlflow.core.certificate.claims import (
    SHARES,
    bet_p_values,
    binomial_tail,
    log_winnings,
    p_values,
    passes,
    recomputed_p_value,
    refuted,
)
from scrib_mlflow.core.groups import GroupSums, effective_counts, sum_groups
from scrib_mlflow.core.targets import Constraint, Targets, make_constraints
from scrib_mlflow.errors import (
    InvalidDataError,
    InvalidLabelsError,
    InvalidWeightsError,
    ScribError,
)

CLASSES = ("a", "b", "c")
LEVEL = 0.05


def risk(name, classes, target):
    return Constraint(
        name=name, kind="risk", classes=classes, target=target, penalty=1.0, two_sided_penalty=0.0
    )


def singles(*targets):
    return tuple(risk(CLASSES[j], (j,), target) for j, target in enumerate(targets))


def counted(*triples):
    """Return a tally from (n, n_certain, n_wrong) of each claim."""
    return Tally(*(np.array(column) for column in zip(*triples, strict=True)))


def certified(triples, targets, level=LEVEL, **options):
    return make_certificate(counted(*triples), singles(*targets), CLASSES, level=level, **options)


def grouped(counts):
    """Return rows, as sets, labels and codes, of one class from (certain, wrong) of each group."""
    codes = np.repeat(np.arange(len(counts)), [n for n, _ in counts])
    wrong = np.concatenate([np.arange(n) < e for n, e in counts])
    return np.column_stack([~wrong, wrong, wrong & False]), np.zeros(len(codes), int), codes


def naive_effective(counts, level):
    """Return effective certain rows of one claim, by the textbook."""
    counts = [(n, e) for n, e in counts if n > 0]
    m, n, e = len(counts), sum(n for n, _ in counts), sum(e for _, e in counts)
    rate = e / n
    if e == 0:
        size = n**2 / sum(n_i**2 for n_i, _ in counts)
    else:
        variance = m / (m - 1) * sum((e_i - rate * n_i) ** 2 for n_i, e_i in counts) / n**2
        size = n / max(1, variance / (rate * (1 - rate) / n))
    return size * (stats.t.ppf(1 - level, n - 1) / stats.t.ppf(1 - level, m - 1)) ** 2


@given(st.data())
def test_rows_are_counted_claim_by_claim(data):
    n = data.draw(st.integers(1, 30))
    row = st.tuples(*[st.booleans()] * 3, st.integers(0, 2), st.integers(0, 4))
    table = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
    sets, labels, codes = table[:, :3].astype(bool), table[:, 3], table[:, 4]
    claims = {"a": (0,), "c": (2,), "both": (0, 1), "overall": (0, 1, 2)}
    constraints = [risk(name, of, 0.2) for name, of in claims.items()]
    cap = Constraint(
        name="a", kind="abstention", classes=(0,), target=0.5, penalty=1, two_sided_penalty=0
    )
    tally = tally_sets(sets, labels, [cap, *constraints], codes)
    for c, of in enumerate(claims.values()):
        rows = [i for i in range(n) if labels[i] in of]
        certain = [i for i in rows if sets[i].sum() == 1]
        wrong = [i for i in certain if not sets[i, labels[i]]]
        assert (tally.n[c], tally.n_certain[c], tally.n_wrong[c]) == (
            len(rows),
            len(certain),
            len(wrong),
        )
        by_group = [
            (sum(codes[i] == g for i in certain), sum(codes[i] == g for i in wrong))
            for g in range(5)
        ]
        sums = sum_groups(tally.groups.by_claim)
        assert sums.groups[c] == sum(n > 0 for n, _ in by_group)
        assert sums.certain_squared[c] == sum(n**2 for n, _ in by_group)
        assert sums.wrong_squared[c] == sum(e**2 for _, e in by_group)
        assert sums.product[c] == sum(n * e for n, e in by_group)
    assert tally.groups.total == len(set(codes.tolist()))


@given(st.integers(0, 2000), st.floats(0, 1), st.sampled_from([0.01, 0.1, 0.37, 0.9]))
def test_p_values_are_binomial_tails_on_both_sides(n, share, target):
    wrong = round(share * n)
    tally, constraints = counted((n, n, wrong)), singles(target)
    assert p_values(tally, constraints, level=LEVEL) == pytest.approx(
        stats.binom.cdf(wrong, n, target), rel=1e-9, abs=1e-200
    )
    assert refuted(tally, constraints, LEVEL).p_values == pytest.approx(
        stats.binom.sf(wrong - 1, n, target), rel=1e-9, abs=1e-200
    )


def test_all_pass_together_at_the_level_of_each_without_a_factor():
    triples = [(100, 80, 3), (100, 46, 1), (90, 29, 0)]
    found = certified(triples, (0.1, 0.1, 0.1))
    each = [stats.binom.cdf(e, n, 0.1) for _, n, e in triples]
    assert 0.05 / 3 < max(each) <= 0.05
    assert found.passed
    assert found.p_value == pytest.approx(max(each))
    assert {claim.status for claim in found.claims} == {"certified"}


def test_one_class_in_the_way_leaves_none_certified():
    found = certified([(100, 80, 0), (100, 28, 0)], (0.1, 0.1))
    assert not found.passed
    assert [claim.status for claim in found.claims] == ["passes alone", "not certified"]


def test_a_p_value_equal_to_the_level_passes():
    rows = [(4, 4, 0)]  # 0.5^4 = 0.0625, exactly
    assert certified(rows, (0.5,), level=0.0625).passed
    assert not certified(rows, (0.5,), level=np.nextafter(0.0625, 0)).passed


@pytest.mark.parametrize(
    ("rows", "status"), [((50, 0, 0), "silent"), ((0, 0, 0), "no data"), ((9, 9, 9), None)]
)
def test_classes_without_certain_rows_never_pass(rows, status):
    found = certified([(100, 80, 0), rows], (0.1, 0.1))
    claim = found.claims[1]
    assert not found.passed
    assert claim.status == (status or "not certified")
    assert (claim.p_value, claim.risk_upper, claim.risk_upper_simultaneous) == (1.0, 1.0, 1.0)
    assert np.isnan(claim.risk) == (status is not None)
    assert found == certified([(100, 80, 0), rows], (0.1, 0.1))  # NaN and all


def test_nothing_claimed_is_nothing_certified():
    targets = Targets(risk_targets=None, miscoverage_targets=0.1)
    constraints = make_constraints(targets, CLASSES)
    tally = tally_sets(np.eye(3, dtype=bool), np.arange(3), constraints)
    found = make_certificate(tally, constraints, CLASSES, level=LEVEL)
    assert (found.passed, found.p_value, found.claims) == (False, 1.0, ())
    assert not refuted(tally, constraints, LEVEL).refuted.any()


def test_bounds_of_disjoint_claims_are_sidaks_and_of_overlapping_ones_bonferronis():
    rows = [(90, 60, 2), (90, 70, 3)]
    disjoint = certified(rows, (0.1, 0.2)).claims
    both = (risk("a", (0,), 0.1), risk("overall", (0, 1), 0.2))
    overlapping = make_certificate(counted(*rows), both, CLASSES, level=LEVEL).claims
    for claims, each in ((disjoint, 1 - 0.95**0.5), (overlapping, 0.025)):
        for claim, (_, n, wrong) in zip(claims, rows, strict=True):
            assert claim.risk_upper == pytest.approx(stats.beta.ppf(0.95, wrong + 1, n - wrong))
            assert claim.risk_upper_simultaneous == pytest.approx(
                stats.beta.ppf(1 - each, wrong + 1, n - wrong)
            )
            assert claim.risk_upper_kl > claim.risk_upper
            assert claim.n_groups is claim.n_effective is None
            assert claim.p_value_iid == claim.p_value


def test_refutation_pays_for_the_number_of_claims():
    tail = stats.binom.sf(9, 50, 0.1)
    assert LEVEL / 3 < tail <= LEVEL
    alone = refuted(counted((50, 50, 10)), singles(0.1), LEVEL)
    assert alone.refuted.all()
    among = refuted(counted((50, 50, 10), (50, 0, 0), (0, 0, 0)), singles(0.1, 0.1, 0.1), LEVEL)
    assert not among.refuted.any()
    worse = refuted(counted((50, 50, 11), (50, 2, 0), (0, 0, 0)), singles(0.1, 0.1, 0.1), LEVEL)
    assert worse.refuted.tolist() == [True, False, False]


def test_true_claims_are_refuted_no_more_often_than_the_level():
    random = np.random.default_rng(0)
    constraints = singles(0.1, 0.1, 0.1)
    runs = 3_000
    alarms = 0
    for wrong in random.binomial(60, 0.1, (runs, 3)):
        tally = counted(*((60, 60, e) for e in wrong))
        alarms += refuted(tally, constraints, LEVEL).refuted.any()
    assert alarms / runs <= LEVEL + 3 * np.sqrt(LEVEL / runs)


@pytest.mark.parametrize(
    "counts",
    [
        [(5, 0), (9, 3), (1, 1), (20, 2), (0, 0)],
        [(5, 0), (9, 0), (40, 0)],
        [(1, 0)] * 30 + [(1, 1)] * 3,
        [(6, 1)] * 10,
    ],
)
def test_effective_rows_follow_the_design_effect(counts):
    sets, labels, codes = grouped(counts)
    constraints = singles(0.2)
    tally = tally_sets(sets, labels, constraints, codes)
    n = naive_effective(counts, LEVEL)
    wrong = n * sum(e for _, e in counts) / sum(n for n, _ in counts)
    found = make_certificate(tally, constraints, CLASSES, level=LEVEL)
    claim = found.claims[0]
    assert claim.n_effective == pytest.approx(n)
    none = naive_effective([(n, 0) for n, _ in counts], LEVEL)  # what no error would prove
    p = max(stats.beta.sf(0.2, wrong + 1, n - wrong), stats.beta.sf(0.2, 1, none))
    assert claim.p_value == pytest.approx(p)
    bound = max(stats.beta.ppf(0.95, wrong + 1, n - wrong), stats.beta.ppf(0.95, 1, none))
    assert claim.risk_upper == pytest.approx(bound)
    assert claim.p_value_iid == pytest.approx(stats.binom.cdf(claim.n_wrong, claim.n_certain, 0.2))
    assert claim.risk_upper_iid <= claim.risk_upper_kl
    assert claim.n_groups == sum(n > 0 for n, _ in counts)
    assert found.approximate
    assert found.n_groups == sum(n > 0 for n, _ in counts)
    against = stats.beta.cdf(0.2, wrong, n - wrong + 1) if wrong else 1.0
    assert refuted(tally, constraints, LEVEL).p_values[0] == pytest.approx(against)


def test_simultaneous_bounds_of_groups_share_the_level():
    counts = [(5, 0), (9, 3), (3, 1), (20, 2)] * 9
    sets, labels, codes = grouped(counts * 2)
    labels[len(labels) // 2 :] = 1
    sets[len(labels) // 2 :] = sets[len(labels) // 2 :][:, [1, 0, 2]]
    constraints = singles(0.2, 0.2)
    tally = tally_sets(sets, labels, constraints, codes)
    n = naive_effective(counts, LEVEL / 2)
    wrong = n * tally.n_wrong[0] / tally.n_certain[0]
    for claim in make_certificate(tally, constraints, CLASSES, level=LEVEL).claims:
        assert claim.risk_upper_simultaneous == pytest.approx(
            stats.beta.ppf(1 - LEVEL / 2, wrong + 1, n - wrong)
        )


@pytest.mark.parametrize(("groups", "passed"), [(1, False), (29, False), (30, True)])
def test_few_groups_certify_nothing(groups, passed):
    sets, labels, codes = grouped([(50, 0)] * groups)
    tally = tally_sets(sets, labels, singles(0.2), codes)
    found = make_certificate(tally, singles(0.2), CLASSES, level=LEVEL)
    assert found.passed is passed
    assert found.claims[0].status == ("certified" if passed else "too few groups")
    assert (found.p_value <= LEVEL) == (groups > 1)  # still told
    if groups == 1:
        assert found.claims[0].risk_upper == found.p_value == 1.0


@pytest.mark.parametrize(
    ("groups", "icc", "rate"),
    [(10, 0.02, 0.053), (10, 0.1, 0.081), (20, 0.2, 0.09), (30, 0.5, 0.092), (50, 0.2, 0.07)],
)
def test_false_certificates_of_groups_are_as_rare_as_documented(groups, icc, rate):
    random = np.random.default_rng(0)
    runs = 20_000
    n = random.integers(1, 120, (runs, groups))
    shape = 1 / icc - 1
    e = random.binomial(n, random.beta(0.1 * shape, 0.9 * shape, n.shape))
    held = np.full(runs, groups)
    certain, wrong = n.sum(axis=1), e.sum(axis=1)
    sums = GroupSums(held, certain, wrong, (n**2).sum(1), (e**2).sum(1), (n * e).sum(1))
    targets = np.full(runs, 0.1)
    false = binomial_tail(*effective_counts(sums, LEVEL), targets) <= LEVEL
    assert false.mean() == pytest.approx(rate, abs=0.012)
    assert (stats.binom.cdf(wrong, certain, 0.1) <= LEVEL).mean() > 0.13


def test_a_path_is_walked_to_the_first_failure_and_not_beyond():
    labels = np.zeros(400, dtype=int)
    place = np.arange(400)
    drawn = []

    def path(*wrong_of):
        for certain, wrong in wrong_of:
            drawn.append(certain)
            right = place >= wrong
            sets = np.column_stack([right | (place >= certain), ~right | (place >= certain)])
            yield tally_sets(sets, labels, singles(0.1))

    steps = [(100, 2), (200, 12), (300, 40), (400, 0)]
    found = certify_path(path(*steps), singles(0.1), CLASSES, level=LEVEL, waived=("b", "c"))
    wanted = [stats.binom.cdf(wrong, certain, 0.1) for certain, wrong in steps[:3]]
    assert found.p_values == pytest.approx(wanted)
    assert drawn == [100, 200, 300]
    assert found.chosen == 1
    assert found.certificate.passed
    assert found.certificate.claims[0].n_certain == 200
    assert found.certificate.waived == ("b", "c")
    none = certify_path(path(*steps[2:]), singles(0.1), CLASSES, level=LEVEL)
    assert (none.chosen, none.certificate.passed, len(none.p_values)) == (None, False, 1)
    assert none.certificate.claims[0].n_certain == 300
    every = certify_path(path(*steps[:2]), singles(0.1), CLASSES, level=LEVEL)
    assert (every.chosen, len(every.p_values)) == (1, 2)
    with pytest.raises(ScribError, match="no rule"):
        certify_path([], singles(0.1), CLASSES, level=LEVEL)


def test_a_path_deploys_a_bad_rule_no_more_often_than_the_level():
    random = np.random.default_rng(1)
    runs, n = 1_500, 150
    labels = np.zeros(n, dtype=int)
    # Row u is wrong with probability 0.2 u, so a rule that is certain below t has a risk of t / 10:
    # only the last one's is above its target, by a hair.
    cuts, constraints = (0.3, 0.6, 0.9, 1.0), singles(0.0999)
    bad = 0
    for _ in range(runs):
        u = random.random(n)
        right = random.random(n) >= 0.2 * u
        path = (np.column_stack([right | (u > cut), ~right | (u > cut)]) for cut in cuts)
        tallies = (tally_sets(sets, labels, constraints) for sets in path)
        bad += certify_path(tallies, constraints, CLASSES, level=LEVEL).chosen == len(cuts) - 1
    assert 0 < bad / runs <= LEVEL + 3 * np.sqrt(LEVEL / runs)


def rows_of(n_certain, n_wrong, n=100):
    """Return scores and labels of class a; thresholds of 0.5 are certain of the first rows."""
    scores = np.full((n, 2), 0.7)
    scores[:n_certain, 1] = 0.2
    scores[:n_wrong] = 0.2, 0.7
    return scores, np.array(["a"] * n)


def test_confidence_is_that_of_the_certificate():
    scores, labels = rows_of(22, 0)
    asked = {"classes": ["a", "b"], "waive": ["b"]}
    at90 = certify_sets(scores, labels, [0.5, 0.5], 0.1, confidence=0.9, **asked)
    at95 = certify_sets(scores, labels, [0.5, 0.5], 0.1, **asked)
    assert (at90.passed, at95.passed) == (True, False)
    assert (at90.confidence, at95.confidence) == (0.9, 0.95)
    assert at95.level == pytest.approx(0.05)
    assert at95.claims[0].risk_upper == pytest.approx(1 - 0.05 ** (1 / 22))
    assert at95.claims[0].p_value == pytest.approx(0.9**22)
    assert [claim.name for claim in at95.claims] == ["a"]
    assert at95.waived == ("b",)


def test_groups_and_an_overall_target_are_claims_too():
    scores, labels = rows_of(60, 1)
    found = certify_sets(
        scores,
        labels,
        [0.5, 0.5],
        {"a": 0.2},
        classes=["a", "b"],
        overall_target=0.1,
        risk_groups={"all": (["a", "b"], 0.15)},
    )
    assert [(claim.name, claim.classes, claim.target) for claim in found.claims] == [
        ("a", ("a",), 0.2),
        ("overall", ("a", "b"), 0.1),
        ("all", ("a", "b"), 0.15),
    ]
    assert found.passed


def test_rows_of_weight_0_do_not_count_and_their_groups_neither():
    scores, labels = rows_of(60, 3)
    names = np.array([f"patient {i**2 % 61}" for i in range(100)], dtype=object)
    weights = (np.arange(100) >= 3).astype(float)
    asked = {"classes": ["a", "b"], "waive": ["b"], "groups": names, "group_cap": 3}
    found = certify_sets(scores, labels, [0.5, 0.5], 0.1, sample_weight=weights, **asked)
    kept = certify_sets(
        scores[3:], labels[3:], [0.5, 0.5], 0.1, **asked | {"groups": names[3:].astype(str)}
    )
    assert found == kept
    assert found.claims[0].n_wrong == 0
    assert found.n_groups == len(set(names[3:]))


def test_groups_may_be_numbers_among_other_objects():
    scores, labels = rows_of(60, 3)
    options = {"classes": ["a", "b"], "group_cap": 1}
    mixed = np.array([np.int64(i) for i in range(99)] + ["last"], dtype=object)
    found = certify_sets(scores, labels, [0.5, 0.5], groups=mixed, **options)
    assert found == certify_sets(scores, labels, [0.5, 0.5], groups=np.arange(100), **options)


@pytest.mark.parametrize("missing", [None, float("nan"), np.datetime64("NaT")])
def test_rows_without_a_group_are_refused(missing):
    scores, labels = rows_of(60, 3)
    groups = np.array([*range(99), missing], dtype=object)
    with pytest.raises(InvalidDataError, match=r"groups\[99\] is missing"):
        certify_sets(scores, labels, [0.5, 0.5], classes=["a", "b"], groups=groups)
    with pytest.raises(InvalidDataError, match="one for each of the 100 rows"):
        certify_sets(scores, labels, [0.5, 0.5], classes=["a", "b"], groups=groups[:9])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"confidence": 0.05}, ScribError, "confidence must lie between 0.5 and 1"),
        ({"sample_weight": [0.5] * 100}, InvalidWeightsError, "not binomial.*max_weight"),
        (
            {"sample_weight": [0.5] * 100, "max_weight": 2.0, "groups": range(100)},
            InvalidWeightsError,
            "groups and weights",
        ),
        ({"sample_weight": [3.0] * 100, "max_weight": 2.0}, InvalidWeightsError, "a row weighs 3"),
        ({"labels": np.full((100, 2), 0.5)}, InvalidLabelsError, "one class a row"),
    ],
)
def test_what_cannot_be_certified_is_refused(options, error, text):
    scores, labels = rows_of(60, 3)
    asked = {"labels": labels, "classes": ["a", "b"]} | options
    with pytest.raises(error, match=text):
        certify_sets(scores, rule=[0.5, 0.5], **asked)


def test_bets_win_what_their_products_say():
    random = np.random.default_rng(0)
    weights, wrong = random.random(40), random.random(40) < 0.1
    products = [
        np.prod([1 - share / 0.9 * w * (e - 0.1) for w, e in zip(weights, wrong, strict=True)])
        for share in SHARES
    ]
    p = bet_p_values(log_winnings(weights, wrong, 0.1)[None])
    assert p == pytest.approx(1 / np.mean(products))
    assert bet_p_values(log_winnings(weights, np.ones(40, dtype=bool), 0.1)[None]) == 1.0


def test_weighted_rows_are_certified_by_bets():
    scores, labels = rows_of(80, 2)
    weights = np.linspace(0.5, 2.0, 100)
    asked = {"classes": ["a", "b"], "waive": ["b"], "sample_weight": weights, "max_weight": 2.0}
    found = certify_sets(scores, labels, [0.5, 0.5], 0.2, **asked)
    claim = found.claims[0]
    assert found.passed
    assert not found.approximate
    assert claim.risk == pytest.approx(weights[:2].sum() / weights[:80].sum())
    assert (claim.n, claim.n_certain, claim.n_wrong) == (100, 80, 2)
    assert np.isnan([claim.risk_upper, claim.risk_upper_simultaneous, claim.risk_upper_kl]).all()
    looser = certify_sets(scores, labels, [0.5, 0.5], 0.2, **asked | {"max_weight": 20.0})
    assert looser.p_value > found.p_value  # a bound too high costs evidence
    silent = certify_sets(scores, labels, [0.1, 0.1], 0.2, **asked)
    assert (silent.p_value, silent.claims[0].status) == (1.0, "silent")
    assert silent == certify_sets(scores, labels, [0.1, 0.1], 0.2, **asked)  # NaN and all


def test_bets_are_seldom_wrong_where_plain_counts_often_are():
    random = np.random.default_rng(0)
    runs, n = 1_500, 300
    weights = np.where(random.random((runs, n)) < 0.5, 0.2, 1.0)
    wrong = random.random((runs, n)) < np.where(weights == 1.0, 0.12, 0.0)  # weighted risk of 0.1
    winnings = np.array(list(map(log_winnings, weights, wrong, [0.1] * runs)))
    assert (bet_p_values(winnings) <= LEVEL).mean() <= LEVEL
    assert (stats.binom.cdf(wrong.sum(axis=1), n, 0.1) <= LEVEL).mean() > 0.5
    fewer = wrong & (random.random((runs, n)) < 0.3)
    winnings = np.array(list(map(log_winnings, weights, fewer, [0.1] * runs)))
    assert (bet_p_values(winnings) <= LEVEL).mean() > 0.8


def test_a_claim_that_is_not_a_number_does_not_pass():
    assert not passes(counted((9, 9, 0)), np.array([np.nan]), LEVEL)


@pytest.mark.parametrize("target", [0.01, 0.05, 0.1])
def test_errors_never_prove_more_than_none_would(target):
    m, size = 40, 50
    groups = np.repeat(np.arange(m), size)
    labels = np.zeros(m * size, dtype=np.int32)
    constraints = make_constraints(Targets(risk_targets=target), ("a", "b"))[:1]
    found = []
    for errors in range(6):
        sets = np.zeros((m * size, 2), dtype=bool)
        sets[:, 0] = True
        wrong = np.arange(errors) * size  # one in each of some groups
        sets[wrong] = [False, True]
        tally = tally_sets(sets, labels, constraints, groups)
        found.append(p_values(tally, constraints, level=0.05)[0])
    assert min(found) == found[0]


def test_one_group_refutes_as_if_its_rows_were_independent():
    sets = np.zeros((100, 2), dtype=bool)
    sets[:, 1] = True
    labels, constraints = np.zeros(100, dtype=np.int32), make_constraints(Targets(), ("a", "b"))
    tally = tally_sets(sets, labels, constraints, np.zeros(100, dtype=np.int64))
    assert refuted(tally, constraints, 0.05).refuted[0]


@pytest.mark.parametrize("target", [0.05, 0.1, 0.3])
def test_an_acceptance_plan_is_exact_and_never_less_powerful(target):
    for n in range(1, 400):
        m = acceptance_rows(n, target, LEVEL)
        all_rows, planned = (allowed_errors(target, n, 1 - LEVEL)[each] for each in (n, m))
        assert all_rows == planned
        if all_rows >= 0:
            assert stats.binom.cdf(planned, m, target) <= LEVEL
            assert stats.binom.cdf(planned, m, target / 2) >= stats.binom.cdf(
                planned, n, target / 2
            )
            assert m == 1 or stats.binom.cdf(planned, m - 1, target) > LEVEL
        else:
            assert m == n


def test_an_acceptance_plan_tests_the_first_rows_of_each_claim_in_its_order():
    random = np.random.default_rng(3)
    sets = np.eye(3, dtype=bool)[random.integers(0, 2, 5_000)]
    sets[random.random(5_000) < 0.2] = True
    labels, order = random.integers(0, 2, 5_000), random.permutation(5_000)
    constraints = (*singles(0.55, 0.08), risk("overall", (0, 1, 2), 0.02))
    tally = tally_sets(sets, labels, constraints, order=order, level=LEVEL)
    assert (tally.tested.n_wrong < tally.n_wrong).any()  # some of the rows left out are wrong
    for c, constraint in enumerate(constraints):
        certain = [i for i in order if sets[i].sum() == 1 and labels[i] in constraint.classes]
        n = acceptance_rows(len(certain), constraint.target, LEVEL)
        assert tally.n_certain[c] == len(certain)
        assert tally.tested.n[c] == n
        assert tally.tested.n_wrong[c] == sum(not sets[i, labels[i]] for i in certain[:n])
    found = make_certificate(tally, constraints, CLASSES, level=LEVEL)
    for claim in found.claims:
        tested = claim.n_tested_wrong, claim.n_tested, claim.target
        assert claim.p_value == pytest.approx(stats.binom.cdf(*tested))
        assert (claim.risk_upper <= claim.target) == (claim.p_value <= LEVEL)
        assert claim.p_value_iid == pytest.approx(
            stats.binom.cdf(claim.n_wrong, claim.n_certain, claim.target)
        )
        assert recomputed_p_value(claim, LEVEL) == pytest.approx(claim.p_value)


def test_errors_after_the_tested_rows_do_not_fail_a_claim():
    scores, labels = rows_of(100, 4)
    found = certify_sets(scores, labels, [0.5, 0.5], 0.1, classes=["a", "b"], waive=["b"])
    assert found.claims[0].n_tested == 89
    late = np.random.default_rng(0).permutation(100)[-11:]  # the order of seed 0
    scores[late] = [0.1, 0.9]
    scores[np.setdiff1d(np.arange(100), late)] = [0.9, 0.1]
    found = certify_sets(scores, labels, [0.5, 0.5], 0.1, classes=["a", "b"], waive=["b"])
    claim = found.claims[0]
    assert (claim.n_certain, claim.n_wrong, claim.n_tested, claim.n_tested_wrong) == (
        100,
        11,
        89,
        0,
    )
    assert found.passed


@pytest.mark.parametrize(
    "change",
    [
        {"n_tested_wrong": 0},
        {"n_tested": 80},
        {"n_wrong": 1},
        {"n_certain": 200},
    ],
)
def test_counts_that_were_changed_do_not_give_the_p_value(change):
    scores, labels = rows_of(100, 3)
    asked = {"classes": ["a", "b"], "waive": ["b"]}
    claim = certify_sets(scores, labels, [0.5, 0.5], 0.1, **asked).claims[0]
    assert claim.n_tested_wrong > 0
    assert recomputed_p_value(claim, LEVEL) == claim.p_value
    assert recomputed_p_value(replace(claim, **change), LEVEL) != claim.p_value


@pytest.mark.parametrize("test", ["approximate", "exact"])
def test_group_sums_give_the_p_value_and_no_others_do(test):
    random = np.random.default_rng(2)
    codes = np.repeat(np.arange(60), 5)
    wrong = random.random(300) < 0.03
    scores = np.column_stack([~wrong, wrong]) * 0.8 + 0.1
    asked = {"classes": ["a", "b"], "waive": ["b"], "groups": codes, "group_cap": 4}
    found = certify_sets(scores, np.zeros(300, int), [0.5, 0.5], 0.1, group_test=test, **asked)
    claim = found.claims[0]
    sums = claim.group_sums
    assert recomputed_p_value(claim, LEVEL) == pytest.approx(claim.p_value, rel=1e-12)
    changes = [{"wrong": 0.0}, {"certain": 1e4}, {"wrong_squared": 0.0}, {"certain_squared": 9.0}]
    if test == "exact":
        changes.append({"log_capital": 30.0})
    for change in changes:
        changed = replace(claim, group_sums=replace(sums, **change))
        assert recomputed_p_value(changed, LEVEL) != pytest.approx(claim.p_value)
