"""Small texts that every room needs: reasons, masked URIs, percent, safe names, progress."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

LONGEST_REASON = 300  # characters
LONGEST_VALUE = 300  # characters of a value in a message
LONGEST_ERROR = 2000  # characters of an error of ours
LONGEST_LOOKED_AT = 20_000  # characters that are searched for secrets; the others are not shown
HIDDEN = "***"  # in place of a secret
TELLING = r"""[\w.\-]{0,40}(?:passw(?:or)?d|passphrase|pwd|token|secret|signature|credential
    |(?:api|access|account|shared|storage)[_.\-]?key)[\w.\-]{0,40}"""  # in a name
SHORT = "(?:pass|key|sig|auth)"  # a whole name, which means a secret only in a query
SECRETS = re.compile(
    rf"""(?P<of_user>://[^\s:/@?\#]{{0,200}}:)  # a raw / or @ may be in it, but a port has none
        (?:(?!\d+[/?\#])(?:[^\s?\#]{{0,500}}|[^\s@]{{0,500}})|[^\s/?\#]{{0,500}})(?=@)
    |(?P<named>(?:(?<![\w.\-%]){TELLING}\s*|(?<=[?&;]){SHORT})=\s*)
        (?:\{{[^}}]*\}}|'[^']*'|"[^"]*"|(?!\s)[^&;\#\s'"]*)
    |(?P<encoded>(?:(?<=%3B)|(?<=%3F)|(?<=%26)|(?<==)|(?<=\+)|(?<=%20))
        (?:{TELLING}|{SHORT})(?:\+|%20)*%3D(?:\+|%20)*)
        (?:%7B(?:(?!%7D)[^&\s])*%7D|(?:(?!%3B|%26)[^&;\s'"])*)""",
    re.IGNORECASE | re.VERBOSE,
)
TELLING_NAME = re.compile(TELLING, re.IGNORECASE | re.VERBOSE)
UNSAFE = re.compile(r"[^\w.\- ]")  # what MLflow refuses in a metric's name, and its separators
LONGEST_NAME = 200  # characters of a class in a metric's name
MOST_DECIMALS = 6  # of a percentage
TINY = 1e-6  # of a percent: as good as 0
MOST_LISTED = 12  # names in a hint


def reason(error: BaseException) -> str:
    """Return what an error of another library says: on one line, of bearable length, no secrets."""
    text = shown(" ".join(str(error)[:LONGEST_LOOKED_AT].split()))
    return cut(text or type(error).__name__, LONGEST_REASON)


def shown(text: str) -> str:
    """Return a URI, or a text that may hold some, without passwords, tokens and signatures."""
    return SECRETS.sub(lambda found: f"{found[found.lastgroup or 0]}{HIDDEN}", text)


def shown_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without secrets: neither in URIs nor under a name that tells of one."""
    return {name: _shown_option(name, value) for name, value in values.items()}


def _shown_option(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return shown_options(value)
    if not isinstance(value, str):
        return value
    return HIDDEN if "." in name and TELLING_NAME.fullmatch(name) else shown(value)


def cut(text: str, longest: int) -> str:
    """Return a text, or its beginning where it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}\u2026"


def bounded(text: str) -> str:
    """Return the text of an error as it may be printed and stored: a line that ends, no secrets."""
    line = "".join(c if c.isprintable() else " " for c in text[:LONGEST_LOOKED_AT])
    return cut(shown(line), LONGEST_ERROR)


def brief(value: Any) -> str:
    """Return a value as a message can hold it: of an object with many values only its type."""
    if isinstance(value, str):
        return cut(repr(value[:LONGEST_LOOKED_AT]), LONGEST_VALUE)
    if isinstance(value, int | float | bool | list | tuple | dict):
        return cut(repr(value), LONGEST_VALUE)
    kind = type(value)
    return f"a {kind.__module__.split('.')[0]}.{kind.__qualname__}".replace("a builtins.", "a ")


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
