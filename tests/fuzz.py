"""Broken input with fixed seeds, and campaigns that read it: what fails can be done again."""

import json
import random
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from scrib_mlflow import from_json, to_json
from scrib_mlflow.errors import ScribError
from scrib_mlflow.messages import LONGEST_ERROR

EXECUTING = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class")
STRANGE = [
    *(
        "",
        " ",
        "\0",
        "\ud800",
        "\u202e",
        "%",
        "%s",
        "{0}",
        "=",
        ":",
        "://",
        "@",
        "?",
        "#",
        "[",
        "]",
    ),
    *("..", "/", "\\", "~", "'", '"', "\n", "\r", "${HOME}", "$(touch x)", "`touch x`", "a" * 5000),
    *(
        "-1",
        "0",
        "65536",
        "abc",
        "[::1",
        "[::1]",
        "xn--",
        "user:pw@",
        ";",
        "&",
        "*",
        "!",
        "|",
        "<",
        ">",
    ),
]
SIZES = ("few", pytest.param("many", marks=pytest.mark.slow))

seen: list[str] = []
watched = False


def watch(event, _):
    if watched and event in EXECUTING:
        seen.append(event)


sys.addaudithook(watch)  # it stays, and is idle outside of `watching`


@contextmanager
def watching():
    """Raise where something is executed meanwhile."""
    global watched  # noqa: PLW0603  # of the hook
    seen.clear()
    watched = True
    try:
        yield
    finally:
        watched = False
    assert not seen


def campaign(what, inputs, read, record_property):
    """Let inputs be read; record what became of them."""
    counts, failures = Counter(), []
    for each in inputs:
        try:
            with watching():
                read(each)
            counts["read"] += 1
        except ScribError as error:
            counts["refused"] += 1
            text = str(error)
            text.encode()  # it can be printed
            if not text or "\n" in text or len(text) > LONGEST_ERROR + 1:
                failures.append((f"says {text[:300]!a}", ascii(each)))
        except Exception as error:
            counts["traceback"] += 1
            failures.append((f"{type(error).__name__}: {str(error)[:300]!a}", ascii(each)))
    n = sum(counts.values())
    record_property(
        "figures",
        f"{what}: {n:,} inputs, {counts['read']:,} read, {counts['refused']:,} refused, "
        f"{counts['traceback']:,} tracebacks",
    )
    assert not failures, (
        Counter(told for told, _ in failures).most_common(20),
        failures[0][1][:999],
    )
    assert counts["refused"] > n / 100


def mutated(content, chance):
    """Return bytes with one to eight changes."""
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(content) + 1)
        end = min(at + chance.choice((1, 1, 2, 4, 8, 64)), len(content))
        old = content[at:end]
        new = chance.choice(
            [
                chance.randbytes(len(old)),
                b"",
                chance.randbytes(8) + old,
                old * chance.choice((2, 3, 100)),
                bytes([chance.choice((0, 255, 127, 128))]) * len(old),
                bytes(byte ^ 1 << chance.randrange(8) for byte in old),
            ]
        )
        cut = chance.random() < 0.02
        content = content[:at] + new + (b"" if cut else content[end:])
    return content


ODD = (None, True, -1, 0, 1e308, 10**400, "", "NaN", "Infinity", "a" * 9000, [], {}, [[[]]], "é\0")
ODD += ({"kind": "x"}, [None], {"": {}}, -0.0, 2**63, "\u202e", ["a", "a"])


def altered(value, chance):
    """Return a value of JSON with a part changed, added or missing."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        name = chance.choice([*value])
        rest = {other: part for other, part in value.items() if other != name}
        if chance.random() < 0.1:
            return rest
        return {**value, name: altered(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value[:at], altered(value[at], chance), *value[at + 1 :]]
    return chance.choice(ODD)


def broken_json(text, chance):
    """Return a JSON text, damaged as bytes, as a value, or by depth and size."""
    kind = chance.randrange(8)
    if kind < 3:
        return mutated(text.encode(), chance).decode(errors="replace")
    if kind < 7:
        return json.dumps(altered(json.loads(text), chance))
    at, deep = chance.randrange(len(text)), chance.choice((100, 3000, 200_000))
    opening = chance.choice(("[", '{"a":', '{"":[', "9"))
    return text[:at] + opening * deep + text[at:]


def broken_records(text, size, seed):
    chance = random.Random(seed)
    return (broken_json(text, chance) for _ in range(4000 if size == "many" else 150))


def read_back(text):
    to_json(from_json(text))
