"""Small texts that every room needs: reasons, masked URIs, percent, safe names, progress."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

LONGEST_REASON = 300  # characters
UNSAFE = re.compile(r"[^\w.\- ]")  # what MLflow refuses in a metric's name, and its separators
LONGEST_NAME = 200  # characters of a class in a metric's name
MOST_DECIMALS = 6  # of a percentage
TINY = 1e-6  # of a percent: as good as 0
MOST_LISTED = 12  # names in a hint


def reason(error: Exception) -> str:
    """Return what an error of MLflow says, on one line of bearable length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def shown(uri: str) -> str:
    """Return a store's URI without a password."""
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


def safe_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return class names as MLflow allows them in metrics, all different."""
    taken: set[str] = set()
    safe = []
    for index, name in enumerate(classes):
        plain = UNSAFE.sub("_", name).strip()[:LONGEST_NAME]
        if not plain.strip(". "):
            plain = f"class_{index}"
        chosen, count = plain, 1
        while chosen.lower() in taken:  # some databases do not tell a from A
            count += 1
            chosen = f"{plain}_{count}"
        taken.add(chosen.lower())
        safe.append(chosen)
    return tuple(safe)


def percent(rate: float) -> str:
    """Return a rate in percent, a dash where it is undefined.

    One decimal is enough, but for rates so near 0 or 1 that they would look alike.
    """
    if math.isnan(rate):
        return "-"
    return f"{_written(rate, _decimals(rate))} %"


def percents(*rates: float) -> list[str]:
    """Return rates that are compared, with decimals enough to tell those apart that differ."""
    known = {rate for rate in rates if not math.isnan(rate)}
    texts: dict[float, str] = {}
    for more in range(MOST_DECIMALS):
        texts = {rate: f"{_written(rate, _decimals(rate) + more)} %" for rate in known}
        if len({*texts.values()}) == len(known):
            break
    return [texts.get(rate, "-") for rate in rates]


def _decimals(rate: float) -> int:
    """Return the decimals of a percentage: one, and near 0 or 100 as many as two digits need."""
    far = 100 * min(abs(rate), abs(1 - rate))
    if far >= 1 or far < TINY:
        return 1
    return min(1 - math.floor(math.log10(far)), MOST_DECIMALS)


def _written(rate: float, decimals: int) -> str:
    """Return a percentage, without zeros at its end that say nothing."""
    number, _, digits = f"{100 * rate:.{decimals}f}".partition(".")
    return f"{number}.{digits.rstrip('0') or '0'}"


def share_hint(number: float, before: str = "; ", *, low: float = 0.0) -> str:
    """Return what a percentage may mean where a share below 1 is wanted, "" if nothing."""
    share = number / 100
    return f"{before}did you mean {share:g}?" if 1 <= number < 100 and share > low else ""


def chance_percent(chance: float) -> str:
    """Return a predicted chance in whole percent; no prediction is sure, at either end."""
    if chance < 0.01:
        return "<1 %"
    return ">99 %" if chance > 0.99 else f"{100 * chance:.0f} %"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name most like this one, or the list of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"


def _listed(names: Sequence[str]) -> str:
    first = ", ".join(map(repr, names[:MOST_LISTED]))
    return first if len(names) <= MOST_LISTED else f"{first} and {len(names) - MOST_LISTED} more"


def progress(items: Any = None, *, what: str, unit: str, total: int | None = None) -> Any:
    """Return a bar over items, or one to update by hand; a log file gets none."""
    return tqdm(
        items, total=total, desc=what, unit=f" {unit}", unit_scale=True, disable=None, leave=False
    )
