"""The gate's decision by itself: evidence and a policy in, checks out; no store."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import scrib_mlflow
from scrib_mlflow import ThresholdRule
from scrib_mlflow.core.certificate import Certificate, Claim, certify_sets
from scrib_mlflow.core.reports import ClassReport, SetReport
from scrib_mlflow.core.rules import Fit
from scrib_mlflow.errors import ScribError
from scrib_mlflow.options import Gate
from scrib_mlflow.parameters import read_settings
from scrib_mlflow.records import Base, DataRecord, LedgerEntry, RiskGroup, ScoreSource
from scrib_mlflow.results import Fresh, PathRecord, Policy, SetClassifier
from scrib_mlflow.workflows.gate import make_policy
from scrib_mlflow.workflows.intact import find_damage
from scrib_mlflow.workflows.policy import decide
from tests.models import CLASSES

NAN = math.nan
TARGET, LEVEL = 0.1, 0.05
CERTAIN, WRONG = 400, 20  # of each class; five percent wrong prove at most ten
P_OVERALL = float(stats.binom.cdf(1, CERTAIN, 0.04))
P = float(stats.binom.cdf(WRONG, CERTAIN, TARGET))
UPPER = float(stats.beta.ppf(1 - LEVEL, WRONG + 1, CERTAIN - WRONG))
ROWS = DataRecord(source="rows.parquet", digest="d" * 32, n_rows=1500, n_used=1500)
USE = LedgerEntry(digest="d", key="k", number=1, level=LEVEL, total=LEVEL, ledger="report")


def report(abstention=0.2, **of_class):
    """Return a report; a class abstains as often as all do, unless it is named."""
    by_class = {
        name: ClassReport(
            n=500,
            n_certain=CERTAIN,
            n_wrong=WRONG,
            risk=WRONG / CERTAIN,
            risk_upper=UPPER,
            risk_upper_kl=UPPER,
            miscoverage=0.1,
            abstention_rate=of_class.get(name, abstention),
        )
        for name in CLASSES
    }
    return SetReport(
        classes=CLASSES,
        n=1500,
        n_certain=3 * CERTAIN,
        n_wrong=3 * WRONG,
        abstention_rate=abstention,
        chance_ambiguity=abstention,
        size_ambiguity=1.2,
        empty_rate=0.0,
        overall_risk=WRONG / CERTAIN,
        overall_risk_upper=UPPER,
        confidence=0.95,
        by_class=by_class,
    )


def naming(**held):
    """Return a report of 100 abstentions a class, with so many that name it; 95 unless said."""
    known = {name: held.get(name, 95) for name in CLASSES}
    plain = report()
    by_class = {
        name: replace(each, n_named=100, candidate_coverage=known[name] / 100)
        for name, each in plain.by_class.items()
    }
    return replace(plain, by_class=by_class, candidate_coverage=sum(known.values()) / 300)


def claim(name="hard", **changes):
    """Return what the rows say of a class."""
    made = Claim(
        name=name,
        classes=(name,),
        target=TARGET,
        n=500,
        n_certain=CERTAIN,
        n_wrong=WRONG,
        risk=WRONG / CERTAIN,
        p_value=P,
        risk_upper=UPPER,
        risk_upper_simultaneous=UPPER,
        risk_upper_kl=UPPER,
        status="certified",
    )
    return replace(made, **changes)


CERTIFICATE = Certificate(
    confidence=0.95,
    level=LEVEL,
    passed=True,
    p_value=P,
    approximate=False,
    n_groups=None,
    claims=tuple(claim(name) for name in CLASSES),
    waived=(),
)
PATH = PathRecord(digest="p", n_steps=9, power=0.9, p_values=(P / 9, P, 0.3), chosen=1)
RULE = ThresholdRule(thresholds=(0.3, 0.3, 0.3))
RECORD = SetClassifier(
    classes=CLASSES,
    rule=RULE,
    scores=ScoreSource(call="predict_proba"),
    class_miscoverage=(0.1, 0.1, 0.1),
    risk_targets=dict.fromkeys(CLASSES, TARGET),
    overall_target=None,
    waived=(),
    confidence=0.95,
    mode="certified",
    certified=True,
    base=Base(uri="models:/base/1", name="base", version="1", model_id="m"),
    fit_data=ROWS,
    certify_data=ROWS,
    path_data=None,
    group=None,
    key=None,
    certificate=CERTIFICATE,
    path=PATH,
    use=USE,
    fit=Fit(method="scrib", rule=RULE, classes=CLASSES, loss=0.2, constraints=(), n_rows=500),
    fit_report=report(0.5),
    certify_report=report(),
    n_shared=0,
    package_version="1",
)
PAPER = replace(
    RECORD,
    mode="paper",
    certified=False,
    certificate=None,
    path=None,
    use=None,
    certify_report=None,
)
REFUSED = replace(  # certified mode, but the test did not pass
    RECORD,
    certified=False,
    certificate=replace(
        CERTIFICATE,
        passed=False,
        p_value=0.3,
        claims=(
            claim("easy", status="passes alone"),
            claim("hard", status="not certified", n_wrong=60, risk_upper=0.183),
            claim("middle", status="silent", n_certain=0),
        ),
    ),
    path=replace(PATH, p_values=(0.3,), chosen=None),
)
WAIVED = replace(
    RECORD,
    waived=("hard",),
    risk_targets={"easy": TARGET, "middle": TARGET},
    certificate=replace(CERTIFICATE, claims=(claim("easy"), claim("middle"))),
)
OVERALL = replace(
    WAIVED,
    overall_target=0.04,
    certificate=replace(
        WAIVED.certificate,
        claims=(
            *WAIVED.certificate.claims,
            claim("overall", classes=CLASSES, target=0.04, n_wrong=1, p_value=P_OVERALL),
        ),
    ),
)

TOGETHER = replace(  # two classes have one target, and one of them no other
    WAIVED,
    risk_groups={"slow": RiskGroup(classes=("middle", "hard"), target=0.04)},
    certificate=replace(
        WAIVED.certificate,
        claims=(
            *WAIVED.certificate.claims,
            claim("slow", classes=("hard", "middle"), target=0.04, n_wrong=1, p_value=P_OVERALL),
        ),
    ),
)


def together(target, *names):
    """Return a policy that asks about classes together, and about none by itself."""
    group = RiskGroup(classes=names, target=target)
    return asking(risk_targets={}, risk_groups={"some": group})


def by_groups(**options):
    """Return a record whose rows come in 60 groups, of 8 rows of each class."""
    labels = np.tile(np.repeat([0, 1, 2], 8), 60)
    scores = np.eye(3)[np.where(np.arange(len(labels)) % 101, labels, (labels + 1) % 3)]
    found = certify_sets(
        scores,
        labels,
        [0.5] * 3,
        TARGET,
        classes=CLASSES,
        groups=np.repeat(np.arange(60), 24),
        **options,
    )
    assert found.passed
    path = replace(PATH, p_values=(found.p_value / 9, found.p_value))
    return replace(RECORD, group="patient", certificate=found, path=path)


GROUPED = {"approximate": by_groups(group_cap=5)}
GROUPED["exact"] = by_groups(group_cap=5, group_test="exact")
GROUPED["declared"] = by_groups(max_group_rows=8, group_test="exact")
UNCAPPED = replace(  # as versions before the cap wrote it
    GROUPED["approximate"],
    certificate=replace(
        GROUPED["approximate"].certificate,
        group_cap=None,
        group_test=None,
        claims=tuple(
            replace(each, group_sums=None) for each in GROUPED["approximate"].certificate.claims
        ),
    ),
)
POLICY = Policy(
    alias="champion",
    evidence="certificate",
    risk_targets=dict.fromkeys(CLASSES, TARGET),
    overall_target=None,
    confidence=0.95,
    max_abstention=None,
    max_class_abstention={},
    max_abstention_increase=None,
    allow_overlap=False,
    ledger="report",
)
FRESH = Fresh(
    data=ROWS,
    report=report(0.3),
    certificate=CERTIFICATE,
    refuted=(),
    n_shared=0,
    n_compared=1500,
    n_expected=0.0,
    overlapping=False,
    use=None,
    champion_abstention=None,
)
FAILED = replace(FRESH, certificate=REFUSED.certificate)
MIXED = replace(FRESH, n_shared=100, n_expected=2.0, overlapping=True)
UNKNOWN = replace(FRESH, n_shared=None, n_compared=0)


def asking(**changes):
    """Return a policy."""
    return replace(POLICY, **changes)


def with_path_test(**changes):
    """Return a record whose path was tested like this."""
    return replace(RECORD, path=replace(PATH, **changes))


def used(number):
    """Return a record that is this use of its rows."""
    return replace(RECORD, use=replace(USE, number=number))


def find(checks, name):
    """Return the one check with a name."""
    (check,) = [check for check in checks if check.name == name]
    return check


# Which checks there are


@pytest.mark.parametrize(
    ("policy", "fresh", "names"),
    [
        pytest.param(POLICY, None, ["certified", "confidence", "targets"], id="certificate"),
        pytest.param(
            asking(overall_target=0.2, ledger="spend"),
            None,
            ["certified", "confidence", "targets", "overall target", "ledger"],
            id="certificate, overall, spend",
        ),
        pytest.param(
            POLICY,
            FRESH,
            ["certified", "confidence", "targets", "unseen rows", "fresh rows"],
            id="certificate and fresh rows",
        ),
        pytest.param(
            asking(evidence="fresh", ledger="spend", overall_target=0.2),
            FRESH,
            ["unseen rows", "fresh certificate"],
            id="fresh rows alone",
        ),
        pytest.param(
            asking(
                max_abstention=0.9, max_class_abstention={"hard": 0.9}, max_abstention_increase=0.1
            ),
            FRESH,
            [
                *("certified", "confidence", "targets", "unseen rows", "fresh rows"),
                *("abstention", "class abstention", "champion"),
            ],
            id="caps",
        ),
    ],
)
def test_a_policy_asks_what_it_names_and_the_files_always(policy, fresh, names):
    checks = decide(RECORD, "", policy, fresh)
    assert [check.name for check in checks] == ["intact", *names]
    assert all(check.passed for check in checks)
    assert all(check.detail for check in checks)


def test_damaged_files_are_refused_whatever_the_evidence():
    for policy in (POLICY, asking(evidence="fresh")):
        checks = decide(RECORD, "it was changed", policy, FRESH)
        assert [check.name for check in checks if not check.passed] == ["intact"]
        assert checks[0].detail == "it was changed"


# Each check, passed and refused


@pytest.mark.parametrize(
    ("record", "policy", "fresh", "name", "passed", "words"),
    [
        # certified
        pytest.param(RECORD, POLICY, None, "certified", True, ["0.95"], id="certified"),
        pytest.param(
            GROUPED["approximate"],
            *(POLICY, None, "certified", True, ["approximate", "at most 5 rows of a class"]),
            id="certified by groups",
        ),
        pytest.param(
            GROUPED["exact"],
            *(POLICY, None, "certified", True, ["each patient", "at most 5 rows"]),
            id="certified by groups exactly",
        ),
        pytest.param(
            UNCAPPED,
            *(POLICY, None, "certified", False, ["without a cap", "calibrate it again"]),
            id="certified by groups before there was a cap",
        ),
        pytest.param(PAPER, POLICY, None, "certified", False, ["mode=paper"], id="no certificate"),
        pytest.param(
            *(REFUSED, POLICY, None, "certified", False),
            ["hard: 60 of 400", "18.3 %", "middle: silent"],
            id="certificate did not pass, class by class",
        ),
        pytest.param(
            replace(RECORD, certificate=None), POLICY, None, "certified", False, [], id="word alone"
        ),
        pytest.param(
            replace(RECORD, certified=False),
            POLICY,
            None,
            "certified",
            False,
            [],
            id="not the word",
        ),
        # confidence: of the certificate, else of the record
        pytest.param(RECORD, POLICY, None, "confidence", True, [], id="same confidence"),
        pytest.param(RECORD, asking(confidence=0.9), None, "confidence", True, [], id="lower"),
        pytest.param(
            *(RECORD, asking(confidence=0.99), None, "confidence", False, ["0.95", "0.99"]),
            id="higher confidence",
        ),
        pytest.param(
            *(RECORD, asking(confidence=0.95 + 1e-12), None, "confidence", True, []),
            id="confidence computed on another machine",
        ),
        pytest.param(
            *(RECORD, asking(confidence=0.95 + 1e-6), None, "confidence", False, []),
            id="confidence slightly higher",
        ),
        pytest.param(
            replace(RECORD, certificate=replace(CERTIFICATE, confidence=NAN)),
            *(POLICY, None, "confidence", False, []),
            id="undefined confidence",
        ),
        pytest.param(
            replace(PAPER, confidence=0.8),
            *(asking(confidence=0.9), None, "confidence", False, ["0.8"]),
            id="confidence without certificate",
        ),
        # targets
        pytest.param(
            *(RECORD, asking(risk_targets={"hard": TARGET, "easy": 0.5}), None, "targets", True),
            [],
            id="equal and looser targets",
        ),
        pytest.param(
            RECORD,
            asking(risk_targets={"hard": 0.05, "easy": 0.1, "middle": 0.2}),
            *(None, "targets", False),
            ["hard: 10.0 % is certified, 5.0 % is asked for"],
            id="stricter target of one class",
        ),
        pytest.param(
            RECORD,  # whose bounds, 7.2 %, are below the target
            asking(risk_targets=dict.fromkeys(CLASSES, (UPPER + TARGET) / 2)),
            *(None, "targets", False, ["easy", "hard", "middle"]),
            id="bounds below a stricter target do not count",
        ),
        pytest.param(
            *(WAIVED, POLICY, None, "targets", False, ["hard", "10.0 %"]), id="target of a waived"
        ),
        pytest.param(
            *(WAIVED, asking(risk_targets=WAIVED.risk_targets), None, "targets", True, []),
            id="policy that waives too",
        ),
        pytest.param(
            replace(RECORD, risk_targets={**RECORD.risk_targets, "hard": NAN}),
            *(POLICY, None, "targets", False, ["hard"]),
            id="undefined target",
        ),
        # overall target: follows from the classes' targets where every class has one
        pytest.param(
            *(RECORD, asking(overall_target=TARGET), None, "overall target", True, ["10.0 %"]),
            id="overall follows from classes",
        ),
        pytest.param(
            RECORD,
            asking(overall_target=0.09),
            *(None, "overall target", False, ["10.0 %", "9.0 %"]),
            id="stricter overall than the classes",
        ),
        pytest.param(
            replace(RECORD, overall_target=0.04),
            *(asking(overall_target=0.05), None, "overall target", True, ["4.0 %"]),
            id="own overall target, stricter than the classes",
        ),
        pytest.param(
            replace(RECORD, overall_target=0.5),
            *(asking(overall_target=0.2), None, "overall target", True, ["10.0 %"]),
            id="own overall target, looser than the classes",
        ),
        pytest.param(
            *(
                WAIVED,
                asking(overall_target=0.2),
                None,
                "overall target",
                False,
                ["overall_target"],
            ),
            id="nothing overall follows where a class is waived",
        ),
        pytest.param(
            *(OVERALL, asking(overall_target=0.05), None, "overall target", True, ["4.0 %"]),
            id="own overall target where a class is waived",
        ),
        pytest.param(
            *(OVERALL, asking(overall_target=0.03), None, "overall target", False, ["4.0 %"]),
            id="stricter than the own overall target",
        ),
        # risk groups: follow from a certified one and from classes, as long as they do not overlap
        pytest.param(
            *(TOGETHER, together(0.05, "hard", "middle"), None, "target of some", True, ["4.0 %"]),
            id="risk group that is certified",
        ),
        pytest.param(
            *(TOGETHER, together(0.03, "hard", "middle"), None, "target of some", False, ["4.0 %"]),
            id="risk group, stricter than certified",
        ),
        pytest.param(
            *(TOGETHER, together(0.1, *CLASSES), None, "target of some", True, ["10.0 %"]),
            id="risk group and a class beside it",
        ),
        pytest.param(
            *(TOGETHER, together(0.2, "easy", "hard"), None, "target of some", False, ["nothing"]),
            id="part of a certified risk group proves nothing",
        ),
        pytest.param(
            *(TOGETHER, asking(overall_target=0.1), None, "overall target", True, ["10.0 %"]),
            id="overall from a risk group and a class",
        ),
        pytest.param(
            *(RECORD, together(0.1, "easy", "hard"), None, "target of some", True, ["10.0 %"]),
            id="risk group that follows from its classes",
        ),
        pytest.param(
            replace(RECORD, risk_targets={**RECORD.risk_targets, "hard": NAN}),
            *(together(0.2, *CLASSES), None, "target of some", False, ["nothing"]),
            id="risk group with an undefined target in it",
        ),
        # repeats: said, never refused
        pytest.param(
            replace(RECORD, n_shared=1200),
            *(POLICY, None, "repeats", True, ["1,200 of 1,500"]),
            id="certify rows that equal fit rows",
        ),
        # ledger
        pytest.param(RECORD, asking(ledger="spend"), None, "ledger", True, ["0.0304"], id="use 1"),
        pytest.param(
            *(used(3), asking(ledger="spend"), None, "ledger", True, ["use 3", "0.0034"]),
            id="use 3",
        ),
        pytest.param(
            *(used(60), asking(ledger="spend"), None, "ledger", False, ["ledger=spend"]),
            id="use 60",
        ),
        pytest.param(
            with_path_test(p_values=(0.04, P)),
            *(asking(ledger="spend"), None, "ledger", False, ["0.04"]),
            id="the highest p-value of the path counts",
        ),
        pytest.param(
            *(PAPER, asking(ledger="spend"), None, "ledger", False, []), id="not in the ledger"
        ),
        pytest.param(
            replace(RECORD, use=None),
            *(asking(ledger="spend"), None, "ledger", False, []),
            id="certificate without use",
        ),
        pytest.param(
            replace(RECORD, path=None),
            *(asking(ledger="spend"), None, "ledger", False, []),
            id="use without path",
        ),
        pytest.param(
            *(REFUSED, asking(ledger="spend"), None, "ledger", False, []), id="nothing chosen"
        ),
        # unseen rows
        pytest.param(
            *(RECORD, POLICY, FRESH, "unseen rows", True, ["0 of 1,500"]), id="unseen rows"
        ),
        pytest.param(
            RECORD,
            POLICY,
            replace(MIXED, overlapping=False),
            *("unseen rows", True, ["100 of 1,500", "2"]),
            id="as many as by chance",
        ),
        pytest.param(
            *(RECORD, POLICY, MIXED, "unseen rows", False, ["100 of 1,500"]), id="seen rows"
        ),
        pytest.param(
            RECORD,
            asking(allow_overlap=True),
            *(MIXED, "unseen rows", True, ["allow_overlap"]),
            id="seen rows, allowed",
        ),
        pytest.param(
            *(RECORD, POLICY, UNKNOWN, "unseen rows", False, ["allow_overlap"]),
            id="rows that cannot be compared",
        ),
        pytest.param(
            *(RECORD, asking(allow_overlap=True), UNKNOWN, "unseen rows", True, []),
            id="rows that cannot be compared, allowed",
        ),
        # not refuted
        pytest.param(
            *(RECORD, POLICY, FAILED, "fresh rows", True, ["1,500"]),
            id="rows that prove nothing do not refute",
        ),
        pytest.param(
            RECORD,
            POLICY,
            replace(FAILED, refuted=("hard", "overall")),
            *("fresh rows", False, ["hard: 60 of 400", "overall"]),
            id="refuted claims, also such as the policy does not ask for",
        ),
        # fresh certificate
        pytest.param(
            PAPER,
            asking(evidence="fresh"),
            *(FRESH, "fresh certificate", True, ["1,500"]),
            id="fresh rows certify what has no certificate",
        ),
        pytest.param(
            RECORD,
            asking(evidence="fresh"),
            *(FAILED, "fresh certificate", False, ["hard: 60 of 400"]),
            id="fresh rows do not certify",
        ),
        # abstention: of fresh rows, else of certify rows, else of fit rows
        pytest.param(
            *(RECORD, asking(max_abstention=0.3), FRESH, "abstention", True, ["30.0 %"]),
            id="cap equals the rate of fresh rows",
        ),
        pytest.param(
            *(RECORD, asking(max_abstention=0.299), FRESH, "abstention", False, ["30.0 %"]),
            id="cap below the rate of fresh rows",
        ),
        pytest.param(
            *(RECORD, asking(max_abstention=0.2), None, "abstention", True, ["20.0 %"]),
            id="cap on certify rows",
        ),
        pytest.param(
            *(RECORD, asking(max_abstention=0.199), None, "abstention", False, ["20.0 %"]),
            id="cap below the rate of certify rows",
        ),
        pytest.param(
            *(PAPER, asking(max_abstention=0.4), None, "abstention", False, ["50.0 % of the fit"]),
            id="cap on fit rows",
        ),
        pytest.param(
            replace(RECORD, certify_report=report(NAN)),
            *(asking(max_abstention=1.0), None, "abstention", False, ["-"]),
            id="undefined abstention",
        ),
        pytest.param(
            replace(RECORD, certify_report=report(0.2, hard=0.4)),
            asking(max_class_abstention={"hard": 0.4, "easy": 0.2}),
            *(None, "class abstention", True, []),
            id="caps of classes",
        ),
        pytest.param(
            replace(RECORD, certify_report=report(0.2, hard=0.4)),
            asking(max_class_abstention={"hard": 0.3, "easy": 0.2}),
            *(None, "class abstention", False, ["hard: 40.0 %", "30.0 %"]),
            id="cap of one class",
        ),
        pytest.param(
            *(WAIVED, asking(max_class_abstention={"hard": 1e-6}), FRESH, "class abstention"),
            *(False, ["hard"]),
            id="cap of a waived class",
        ),
        pytest.param(
            RECORD,
            asking(max_class_abstention={"hard": 1.0}),
            replace(FRESH, report=report(0.2, hard=NAN)),
            *("class abstention", False, ["hard"]),
            id="undefined abstention of a class",
        ),
        # candidates: P(Bin(100, 0.9) <= 81) is 0.0046, above 0.05 / 3 is P(... <= 83), 0.0206
        pytest.param(
            replace(RECORD, certify_report=naming()),
            *(asking(min_candidate_coverage=0.9), None, "candidates", True, ["95.0 %"]),
            id="candidates",
        ),
        pytest.param(
            replace(RECORD, certify_report=naming(hard=83)),
            *(asking(min_candidate_coverage=0.9), None, "candidates", True, []),
            id="candidates of a class, by chance",
        ),
        pytest.param(
            replace(RECORD, certify_report=naming(hard=81)),
            asking(min_candidate_coverage=0.9),
            *(None, "candidates", False, ["hard: 81.0 % of 100 abstentions", "90.0 %"]),
            id="candidates of a class, refuted",
        ),
        pytest.param(
            replace(RECORD, certify_report=naming()),
            asking(min_candidate_coverage=0.9),
            replace(FRESH, report=naming(easy=50)),
            *("candidates", False, ["easy: 50.0 % of 100 abstentions"]),
            id="candidates on fresh rows",
        ),
        pytest.param(
            *(RECORD, asking(min_candidate_coverage=0.9), None, "candidates", False),
            ["has not measured its candidates"],
            id="candidates of older versions",
        ),
        pytest.param(
            replace(RECORD, certify_report=report(0.0)),
            *(asking(min_candidate_coverage=0.9), None, "candidates", True, ["never abstains"]),
            id="no candidates are needed",
        ),
        pytest.param(
            replace(PAPER, fit_report=naming(hard=50)),
            *(asking(min_candidate_coverage=0.9), None, "candidates", False, ["of the fit rows"]),
            id="candidates on fit rows",
        ),
        # champion
        pytest.param(
            *(RECORD, asking(max_abstention_increase=0.0), FRESH, "champion", True, []),
            id="no champion",
        ),
        pytest.param(
            *(RECORD, asking(max_abstention_increase=0.0), None, "champion", True, []),
            id="no champion, no rows",
        ),
        pytest.param(
            RECORD,
            asking(max_abstention_increase=0.1),
            replace(FRESH, report=report(0.8), champion_abstention=0.7),  # 0.1 + 0.7 < 0.8
            *("champion", True, ["80.0 %", "70.0 %"]),
            id="as much more as is allowed",
        ),
        pytest.param(
            RECORD,
            asking(max_abstention_increase=0.09),
            replace(FRESH, champion_abstention=0.2),
            *("champion", False, ["30.0 %", "20.0 %", "9.0 %"]),
            id="more than is allowed",
        ),
        pytest.param(
            RECORD,
            asking(max_abstention_increase=1.0),
            replace(FRESH, champion_abstention=NAN),
            *("champion", False, []),
            id="undefined champion",
        ),
    ],
)
def test_each_check_passes_or_says_why_not(record, policy, fresh, name, passed, words):
    check = find(decide(record, "", policy, fresh), name)
    assert check.passed is passed
    for word in words:
        assert word in check.detail
    assert check.detail


def test_repeats_are_not_told_where_there_are_none():
    for record in (RECORD, replace(PAPER, n_shared=3)):
        assert "repeats" not in [check.name for check in decide(record, "", POLICY, None)]


# Damage


def certified_like(**changes):
    """Return a record with another certificate."""
    return replace(RECORD, certificate=replace(CERTIFICATE, **changes))


def claimed_like(**changes):
    """Return a record whose claim of `hard` differs."""
    others = [claim(name) for name in CLASSES if name != "hard"]
    return certified_like(claims=(claim("hard", **changes), *others))


def grouped_like(test="approximate", *, sums=None, **changes):
    """Return a record by groups whose first claim differs."""
    record = GROUPED[test]
    first, *others = record.certificate.claims
    if sums:
        changes["group_sums"] = replace(first.group_sums, **sums)
    claims = (replace(first, **changes), *others)
    return replace(record, certificate=replace(record.certificate, claims=claims))


DIGEST = "d732c6be860e019351f99173fa6ae612"  # b2sum --length 128, of "text"


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(RECORD, id="certified"),
        pytest.param(PAPER, id="no certificate"),
        pytest.param(REFUSED, id="certificate that did not pass"),
        pytest.param(WAIVED, id="waived class"),
        pytest.param(OVERALL, id="overall target"),
        pytest.param(TOGETHER, id="risk group"),
        *(pytest.param(record, id=f"groups, {test}") for test, record in GROUPED.items()),
        pytest.param(UNCAPPED, id="groups before there was a cap"),
        pytest.param(certified_like(p_value=P + 1e-12), id="p-value of another machine"),
        pytest.param(certified_like(level=0.03), id="smaller level"),
    ],
)
def test_whole_records_have_no_damage(record):
    assert find_damage(record, "text", {}) == ""


@pytest.mark.parametrize(
    ("record", "words"),
    [
        pytest.param(replace(PAPER, certified=True), "holds no certificate", id="the word alone"),
        pytest.param(
            replace(RECORD, risk_targets={**RECORD.risk_targets, "hard": 0.01}),
            "targets of its certificate",
            id="another target",
        ),
        pytest.param(
            replace(RECORD, risk_targets={"easy": TARGET, "middle": TARGET}),
            "targets of its certificate",
            id="target left out",
        ),
        pytest.param(
            replace(RECORD, overall_target=0.2), "targets of its certificate", id="overall added"
        ),
        pytest.param(
            replace(TOGETHER, risk_groups={}), "targets of its certificate", id="risk group lost"
        ),
        pytest.param(
            replace(TOGETHER, risk_groups={"slow": RiskGroup(classes=CLASSES, target=0.04)}),
            "targets of its certificate",
            id="risk group of other classes",
        ),
        pytest.param(
            replace(OVERALL, overall_target=0.01),
            "targets of its certificate",
            id="another overall target",
        ),
        pytest.param(
            replace(REFUSED, risk_targets={"easy": TARGET}),
            "targets of its certificate",
            id="targets of one that did not pass",
        ),
        pytest.param(replace(REFUSED, certified=True), "counts", id="certified by hand"),
        pytest.param(replace(RECORD, path=None), "counts", id="no path"),
        pytest.param(with_path_test(chosen=None), "counts", id="nothing chosen"),
        pytest.param(
            with_path_test(p_values=(P / 9, P), chosen=2), "counts", id="chosen beyond the path"
        ),
        pytest.param(with_path_test(chosen=2), "counts", id="chosen one that failed"),
        pytest.param(with_path_test(p_values=(0.3, P)), "counts", id="one before failed"),
        pytest.param(with_path_test(p_values=(NAN, P)), "counts", id="undefined p-value before"),
        pytest.param(with_path_test(p_values=(P, P / 2)), "counts", id="p-value of another rule"),
        pytest.param(certified_like(passed=False), "counts", id="did not pass"),
        pytest.param(
            replace(
                RECORD,
                risk_targets={},
                certificate=replace(CERTIFICATE, claims=()),
            ),
            "counts",
            id="nothing claimed",
        ),
        pytest.param(certified_like(level=0.5), "counts", id="higher level"),
        pytest.param(replace(RECORD, confidence=0.99), "counts", id="higher confidence"),
        pytest.param(certified_like(p_value=P / 2), "counts", id="another p-value"),
        pytest.param(claimed_like(status="passes alone"), "counts", id="another status"),
        pytest.param(claimed_like(p_value=0.06), "counts", id="p-value above the level"),
        pytest.param(claimed_like(p_value=NAN), "counts", id="undefined p-value"),
        pytest.param(claimed_like(n_wrong=CERTAIN // 2), "counts", id="more wrong rows"),
        pytest.param(claimed_like(n_certain=WRONG), "counts", id="fewer certain rows"),
        pytest.param(claimed_like(n_certain=0, n_wrong=0), "counts", id="no certain rows"),
        pytest.param(claimed_like(p_value=P / 2), "counts", id="p-value of other counts"),
        pytest.param(replace(RECORD, group="patient"), "counts", id="groups without groups"),
        pytest.param(grouped_like(n_groups=29), "counts", id="too few groups"),
        pytest.param(grouped_like(group_sums=None), "counts", id="groups without sums"),
        pytest.param(grouped_like(sums={"wrong": 0.0}), "counts", id="fewer wrong in groups"),
        pytest.param(grouped_like(sums={"certain": 999.0}), "counts", id="more than the cap"),
        pytest.param(
            grouped_like("exact", sums={"log_capital": 5.0}), "counts", id="other winnings"
        ),
        pytest.param(
            grouped_like("exact", sums={"log_capital": 99.0}, p_value=float(np.exp(-99.0))),
            "counts",
            id="more won than can be",
        ),
    ],
)
def test_what_does_not_follow_from_its_own_numbers_is_damaged(record, words):
    assert words in find_damage(record, "text", {})


@pytest.mark.parametrize(
    ("digests", "words"),
    [
        ({}, ""),
        ({"the tag": DIGEST}, ""),
        ({"the tag": DIGEST, "the run": DIGEST}, ""),
        ({"the tag": ""}, "the tag does not say"),
        ({"the tag": "0" * 32}, "the tag names"),
        ({"the tag": DIGEST, "the run": ""}, "the run does not say"),
        ({"the tag": DIGEST, "the run": "0" * 32}, "the run names"),
    ],
    ids=lambda value: None if isinstance(value, str) else ", ".join(value) or "none",
)
def test_every_digest_must_be_that_of_the_file(digests, words):
    damage = find_damage(RECORD, "text", digests)
    assert words in damage
    assert bool(damage) == bool(words)


# From options to a policy


def policy_of(record=RECORD, **options):
    """Return the policy that options give."""
    return make_policy(read_settings(Gate, {"model_uri": "models:/m/1", **options}), record)


@pytest.mark.parametrize(
    ("record", "options", "expected"),
    [
        pytest.param(RECORD, {}, {}, id="as the version was made for"),
        pytest.param(
            replace(RECORD, confidence=0.8), {}, {"confidence": 0.8}, id="confidence of the version"
        ),
        pytest.param(RECORD, {"confidence": 0.9}, {"confidence": 0.9}, id="confidence"),
        pytest.param(
            RECORD,
            {"risk_targets": {"hard": 0.05, "default": 0.2}},
            {"risk_targets": {"easy": 0.2, "hard": 0.05, "middle": 0.2}},
            id="default target",
        ),
        pytest.param(
            *(RECORD, {"waive": ["hard"]}, {"risk_targets": {"easy": 0.1, "middle": 0.1}}),
            id="waived class of the version",
        ),
        pytest.param(
            RECORD,
            {"risk_targets": 0.3, "waive": ["hard"]},
            {"risk_targets": {"easy": 0.3, "middle": 0.3}},
            id="waived class of the policy",
        ),
        pytest.param(
            WAIVED, {}, {"risk_targets": WAIVED.risk_targets}, id="version that waives a class"
        ),
        pytest.param(
            OVERALL,
            {},
            {"risk_targets": WAIVED.risk_targets, "overall_target": 0.04},
            id="overall target of the version",
        ),
        pytest.param(
            TOGETHER,
            {},
            {"risk_targets": WAIVED.risk_targets, "risk_groups": TOGETHER.risk_groups},
            id="risk group of the version",
        ),
        pytest.param(
            TOGETHER,
            {"risk_groups": "{fast: {classes: [easy, middle], target: 0.3}}"},
            {
                "risk_targets": WAIVED.risk_targets,
                "risk_groups": {"fast": RiskGroup(classes=("easy", "middle"), target=0.3)},
            },
            id="risk group of the policy",
        ),
        pytest.param(
            TOGETHER,
            {"risk_targets": 0.1},
            {"risk_groups": {}},
            id="targets of the policy alone, without risk groups",
        ),
        pytest.param(
            OVERALL,
            {"risk_targets": 0.1},
            {"overall_target": None},
            id="targets of the policy alone",
        ),
        pytest.param(
            RECORD,
            {"waive": list(CLASSES), "overall_target": 0.2},
            {"risk_targets": {}, "overall_target": 0.2},
            id="overall target alone",
        ),
        pytest.param(
            RECORD,
            {"max_class_abstention": 0.3, "waive": ["hard"], "risk_targets": 0.1},
            {
                "risk_targets": {"easy": 0.1, "middle": 0.1},
                "max_class_abstention": {"easy": 0.3, "middle": 0.3},
            },
            id="cap of all classes spares the waived",
        ),
        pytest.param(
            RECORD,
            {"max_class_abstention": {"hard": 1e-6}, "waive": ["hard"], "risk_targets": 0.1},
            {
                "risk_targets": {"easy": 0.1, "middle": 0.1},
                "max_class_abstention": {"hard": 1e-6},
            },
            id="cap that names a waived class",
        ),
    ],
)
def test_options_give_a_policy(record, options, expected):
    assert policy_of(record, **options) == replace(POLICY, **expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk_targets": {"nobody": 0.1}}, "unknown class 'nobody'"),
        ({"risk_targets": {"easy": 0.3}}, "no target covers class 'hard'"),
        ({"risk_targets": 1.5}, "risk_targets is 1.5"),
        ({"risk_targets": 0.2, "waive": ["hrad"]}, "unknown class 'hrad'"),
        ({"waive": ["nobody"]}, "unknown class 'nobody'"),
        ({"waive": list(CLASSES)}, "asks about no risk"),
        ({"max_class_abstention": {"nobody": 0.1}}, "unknown class 'nobody'"),
        ({"evidence": "hope"}, "evidence is 'hope'"),
        ({"champion": "x"}, "no parameter 'champion'"),
    ],
    ids=str,
)
def test_options_that_give_no_policy_are_told_in_a_sentence(options, words):
    with pytest.raises(ScribError, match=words):
        policy_of(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alias": "latest"}, "alias is 'latest'"),
        ({"data": "fresh.parquet"}, "label is missing"),
        ({"label": "label"}, "data is missing"),
        ({"group": "x0"}, "group needs fresh rows"),
        ({"engine": "spark"}, "engine=spark needs fresh rows"),
        ({"evidence": "fresh"}, "evidence=fresh needs fresh rows"),
        ({"max_abstention_increase": 0.1}, "max_abstention_increase needs fresh rows"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused_before_any_store_is_asked(options, words):
    with pytest.raises(ScribError, match=words):
        scrib_mlflow.gate("models:/m/1", **options)
