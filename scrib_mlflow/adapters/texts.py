"""Reports in words: tables for a terminal and for MLflow's Markdown, within its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scrib_mlflow.core.evaluate import SetReport
from scrib_mlflow.results import DataRecord

MOST_CLASSES = 20  # of a table in a description
MOST_PRINTED = 40  # of a table in a terminal
MOST_CHARACTERS = 4000  # MLflow cuts what is longer
INVISIBLE = "\u00a0\u200c\u200d"  # but harmless: a wide space, joiners of letters
HEADER = ("class", "rows", "certain", "wrong", "risk", "upper bound", "target", "abstains")


def class_rows(
    report: SetReport, targets: Mapping[str, float], *, bounds: bool, most: int | None = None
) -> list[tuple[str, ...]]:
    """Return a header and a row a class; of many classes those with the greatest excess."""
    names = worst_first(report, targets)[:most] if most else report.classes
    names = [name for name in report.classes if name in set(names)]
    rows = [HEADER if bounds else tuple(word for word in HEADER if word != "upper bound")]
    for name in names:
        found = report.by_class[name]
        cells = [name, f"{found.n:,}", f"{found.n_certain:,}", f"{found.n_wrong:,}"]
        cells.append(percent(found.risk))
        if bounds:
            cells.append(percent(found.risk_upper))
        cells.append(percent(targets[name]) if name in targets else "none")
        cells.append(percent(found.abstention_rate))
        rows.append(tuple(cells))
    return rows


def worst_first(report: SetReport, targets: Mapping[str, float]) -> list[str]:
    """Return the classes by falling excess of risk over target, silent ones first."""

    def excess(name: str) -> float:
        risk = report.by_class[name].risk
        if name not in targets:
            return -1.0
        return 1.0 if math.isnan(risk) else risk - targets[name]

    return sorted(report.classes, key=excess, reverse=True)


def visible(text: str) -> str:
    """Return a text without characters that break a page or turn its reading order."""
    line = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in INVISIBLE else "\ufffd" for c in line)


def percent(rate: float) -> str:
    """Return a rate in percent, a dash where it is undefined."""
    return "-" if math.isnan(rate) else f"{100 * rate:.1f} %"


def plain_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def plain_list(rows: Sequence[Sequence[str]]) -> str:
    """Return rows whose last column is long text, the others aligned to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for *cells, text in rows:
        head = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([*head, text]).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    safe = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    # MLflow's UI sets columns close; the header keeps them apart, or a number that is longer
    room = [MOST_CHARACTERS, *map(len, safe[0][1:])]
    header, *body = [
        [
            f"{text}\u00a0\u00a0" if row is safe[0] or len(text) > width else text
            for text, width in zip(row, room, strict=True)
        ]
        for row in safe
    ]
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *body])


def folded(report: SetReport, most: int) -> list[str]:
    """Return the line below a table that does not show all classes, none where it does."""
    if len(report.classes) <= most:
        return []
    return [
        f"The {most} of {len(report.classes)} classes with the greatest excess; all of them are in "
        "classes.json of the run."
    ]


def abstentions(report: SetReport) -> str:
    """Return in a sentence how often a set classifier abstains, and how."""
    return (
        f"It answers {percent(1 - report.abstention_rate)} of the rows and abstains on "
        f"{percent(report.abstention_rate)}: {percent(report.chance_ambiguity)} with several "
        f"candidates, {percent(report.empty_rate)} with an empty set. Of its answers "
        f"{percent(report.overall_risk)} are wrong."
    )


def empty_hint(report: SetReport) -> str:
    """Return what to try when most abstentions are empty sets, "" when not."""
    if report.empty_rate <= 0.5 * report.abstention_rate:
        return ""
    return (
        "Most abstentions are empty sets, which name no class by themselves; a higher "
        "empty_weight, such as 1.1, prefers sets with candidates where the data allow it."
    )


def class_markdown(
    report: SetReport, targets: Mapping[str, float], *, bounds: bool, room: int = MOST_CHARACTERS
) -> str:
    """Return the table of the classes in Markdown, folded until it fits."""
    for most in (MOST_CLASSES, 10, 5, 2, 1):
        table = markdown_table(class_rows(report, targets, bounds=bounds, most=most))
        text = "\n\n".join([table, *folded(report, most)])
        if len(text) <= room:
            return text
    return ""


def unread(record: DataRecord) -> str:
    """Return in a sentence which rows took no part, so that they can still certify."""
    return (
        f"The other {record.n_rows - record.n_used:,} rows are those that calibrate, told the "
        "same, would certify on: they were not scored, and their labels served the split alone. A "
        "certificate on them holds whatever you pick by this table. With path_data name "
        "certify_fraction as well (0.7, if you named none here): its default would certify on rows "
        "that were looked at."
    )
