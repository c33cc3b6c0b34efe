"""The report is drawn for whatever classes, scores and sets there may be."""

import io
from dataclasses import asdict, replace

import numpy as np
import pytest

import scrib_mlflow
from scrib_mlflow.core.reports import Answers
from scrib_mlflow.report import page, words
from scrib_mlflow.report.facts import Facts, class_table
from scrib_mlflow.serving import candidate_sets
from tests.pages import Page, read_tables

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=http://evil.example onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "a\x00b\x1b",
    "\u202eturned",
    "$x_1$ & url(#a)",
    "two\nlines",
    "long" * 80,
)
INLINE = {"figures/thresholds.png", "figures/values.png", "figures/risk_coverage.png"}
SECTIONS = "certificate abstention examples sets scores confusion risk-coverage run"


def make(classes, scores, labels, rule, *, targets=None, keys=None):
    """Return a report of rows, as if they had been evaluated."""
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels, dtype=np.int32)
    known = np.isfinite(scores).all(axis=1)
    sets = np.zeros(scores.shape, dtype=bool)
    sets[known] = scrib_mlflow.predict_sets(scores[known], rule)
    measured = scrib_mlflow.evaluate_sets(
        sets.astype(float),
        np.array(classes, dtype=object)[labels],
        [0.5] * len(classes),
        classes=classes,
    )
    targets = dict.fromkeys(classes, 0.1) if targets is None else targets
    table = class_table(measured, targets)
    return page.Report(
        title=f"evaluate: {classes[0]}",
        facts=Facts(
            stamp="measured",
            tone="plain",
            verdict=words.measured_sentence(table, fitted=False),
            provisos=(f"Of {classes[-1]}.",),
            report=measured,
            which="rows",
            table=table,
            asked=table,
            heading="Risks",
        ),
        sentences=(),
        rule=rule,
        rows=page.ReportRows(
            answers=Answers(scores, labels, sets, candidate_sets(asdict(rule), scores)),
            table=f"{classes[0]}.parquet",
            places=np.arange(len(labels)) + 1000,
            keys=keys,
        ),
        elsewhere="",
        made_from=(("data", classes[0]),),
        parameters=(("label", classes[0]),),
    )


def thresholds(*values):
    return scrib_mlflow.ThresholdRule(thresholds=tuple(map(float, values)))


def draw(k, n=300, *, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % k
    scores = random.random((n, k))
    scores[np.arange(n), labels] += 0.7
    return scores / scores.sum(axis=1, keepdims=True), labels


def names(k):
    return [f"c{j}" for j in range(k)]


def optimal(k):
    return scrib_mlflow.OptimalRule(
        multipliers=(9.0,) * k,
        charges=(7.0,) * k,
        recalibration=None,
        candidate_thresholds=(0.1,) * k,
    )


def hostile():
    return make(HOSTILE, *draw(8), thresholds(*[0.2] * 8), keys=[HOSTILE[0]] * 300)


def many():
    return make(names(150), *draw(150, 6000), thresholds(*[0.0145] * 150))


def without_rows():
    scores, labels = draw(4)
    kept = labels != 2
    return make(names(4), scores[kept], labels[kept], thresholds(*[0.3] * 4))


def invalid(share):
    scores, labels = draw(3)
    scores[: int(share * 300)] = np.nan
    return make(names(3), scores, labels, thresholds(*[0.3] * 3))


CASES = {
    "hostile names": hostile,
    "150 classes": many,
    "two classes": lambda: make(names(2), *draw(2), thresholds(0.5, 0.5)),
    "a class without rows": without_rows,
    "all abstain, empty": lambda: make(names(3), *draw(3), thresholds(2, 2, 2)),
    "all abstain, ambiguous": lambda: make(names(3), *draw(3), thresholds(*[-np.inf] * 3)),
    "none abstains": lambda: make(names(3), *draw(3), thresholds(-np.inf, np.inf, np.inf)),
    "waived": lambda: make(names(3), *draw(3), thresholds(*[0.3] * 3), targets={}),
    "huge logits": lambda: make(
        names(3), (draw(3)[0] - 0.5) * 3e307, draw(3)[1], thresholds(-1e307, 0, 1e306)
    ),
    "ties": lambda: make(
        names(3), np.full((60, 3), 0.25), np.arange(60) % 3, thresholds(0.1, 0.3, 0.3)
    ),
    "one row": lambda: make(names(2), [[0.4, 0.6]], [1], thresholds(0.5, 0.5)),
    "some rows without scores": lambda: invalid(0.1),
    "no row with scores": lambda: invalid(1),
    "optimal": lambda: make(names(4), *draw(4), optimal(4)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_report_is_one_page_that_loads_and_runs_nothing(case):
    made = CASES[case]()
    drawn = page.draw(made)
    text = page.render(made, drawn)
    shown = Page(text)
    assert list(shown.sections) == SECTIONS.split()
    assert shown.loads == []
    assert shown.scripts == 0
    assert len(set(shown.ids)) == len(shown.ids)
    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text
    for figure in [each for path, each in drawn.items() if path not in INLINE]:
        target = io.BytesIO()
        figure.savefig(target, format="png", dpi=30)
        assert target.getvalue().startswith(b"\x89PNG")


def test_names_are_shown_as_they_are_and_never_read_as_anything_else():
    text = "".join(Page(page.render(hostile(), {})).texts)
    for name in HOSTILE[:3] + HOSTILE[5:6]:
        assert name in text
    assert not set("\x00\x1b\u202e") & set(text)


def test_the_table_is_the_first_and_holds_the_counts_of_the_rows():
    made = make(names(3), *draw(3), thresholds(*[0.42] * 3))
    header, *body = read_tables(page.render(made, {}))[0]
    assert header[:5] == ["class", "rows", "certain", "wrong", "risk"]
    assert header[5:10] == ["top-1", "top-1 all", "upper bound", "target", "status"]
    answers = made.rows.answers
    for j, row in enumerate(body):
        own = answers.labels == j
        certain = own & (answers.sets.sum(axis=1) == 1)
        wrong = certain & ~answers.sets[:, j]
        assert row[:4] == [f"c{j}", str(own.sum()), str(certain.sum()), str(wrong.sum())]
        assert row[4] == f"{100 * wrong.sum() / certain.sum():.1f} %"


def test_of_many_classes_those_with_the_greatest_excess_come_first_and_the_others_are_folded():
    made = many()
    shown, folded = read_tables(page.render(made, {}))[:2]
    assert len(shown) == 21
    assert len(shown) + len(folded) == 152
    risks = [[float(row[4].split()[0]) for row in table[1:]] for table in (shown, folded)]
    assert min(risks[0]) >= max(risks[1])
    assert risks[0] == sorted(risks[0], reverse=True)


def test_empty_sets_are_named_and_explained_where_most_abstentions_are_empty():
    def sets(case, **given):
        given = tuple((name, str(value)) for name, value in given.items())
        return Page(page.render(replace(CASES[case](), parameters=given), {})).sections["sets"]

    assert "empty: no class reaches its threshold" in sets("all abstain, empty")
    assert "empty_weight" in sets("all abstain, empty", empty_weight=1.0)
    assert "empty_weight" not in sets("all abstain, empty", empty_weight=1.1)  # it is set already
    assert "empty_weight" not in sets("all abstain, empty")  # of evaluate, which has no such option
    assert "empty_weight" not in sets("all abstain, ambiguous", empty_weight=1.0)


def test_examples_show_rows_keys_and_scores_of_abstentions_only():
    scores, labels = draw(3)
    labels[::5] = (labels[::5] + 1) % 3  # so that some are no candidates
    keys = [f"key-{i}" for i in range(300)]
    made = make(names(3), scores, labels, thresholds(*[0.35] * 3), keys=keys)
    header, *body = next(t for t in read_tables(page.render(made, {})) if t[0][0] == "row")
    assert header == ["row", "key", "true class", "why", "candidates"]
    for row, key, label, why, told in body:
        i = int(row) - 1000
        assert key == keys[i]
        assert label == f"c{labels[i]}"
        members = [j for j in range(3) if scores[i, j] >= 0.35]
        assert len(members) != 1
        assert why == ("ambiguous" if members else "empty")
        text = " ".join(told.split())
        named = np.argsort(-scores[i])[:2].tolist()  # nothing has calibrated others
        for j in range(3):
            sign = "\u2265" if j in members else "<"
            assert (f"c{j} {scores[i, j]:.3f} {sign} 0.350" in text) == (j in named)
        assert text.index(f"c{named[0]} ") < text.index(f"c{named[1]} ")
        assert text.endswith("true class missing") == (labels[i] not in named)
    assert any(told.endswith("true class missing") for *_, told in body)


def test_a_page_without_rows_says_where_they_are():
    made = replace(make(names(3), *draw(3), thresholds(*[0.42] * 3)), rows=None, elsewhere="there")
    shown = Page(page.render(made, {}))
    assert list(shown.sections) == ["certificate", "abstention", "elsewhere", "run"]
    assert "there" in shown.sections["elsewhere"]
    assert list(page.draw(made)) == ["figures/classes.png"]
