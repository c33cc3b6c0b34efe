"""What the pages show must be there: links, commands, options and the names of functions."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from scrib_mlflow import options

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def page(path):
    return path.read_text(encoding="utf-8")


def anchors(path):
    """Return the anchors that GitHub gives the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", page(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(text, start):
    """Return the words after each mention of a command, in blocks and between backticks."""
    joined = text.replace("\\\n", " ")
    found = re.findall(re.escape(start) + r"([^`\n|#]*)", joined)
    return [shlex.split(each.replace("…", " ").rstrip("),;.")) for each in found]


def entry_points():
    return yaml.safe_load(page(ROOT / "MLproject"))["entry_points"]


def flags(words):
    return {word[2:] for word in words if word.startswith("--")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path):
    for link in LINK.findall(FENCE.sub("", page(path))):
        place, _, anchor = link.partition("#")
        if place.startswith("http"):
            continue
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_has_the_options_that_it_is_shown_with(path):
    if path.name == "CHANGELOG.md":  # which also names what is gone
        return
    text = page(path)
    for words in commands(text, "python -m scrib_mlflow"):
        if path.name == "paper.md" and words[0] == "reproduce":  # what printed the page
            continue
        if words and re.fullmatch("[a-z]+", words[0]):
            known = getattr(options, words[0].capitalize()).model_fields
            assert flags(words) <= {*known, "help"}, words
    for words in commands(text, "python -m experiments"):
        assert flags(words) <= {*entry_points()["reproduce"]["parameters"]}, words
    benchmarks = page(ROOT / "benchmarks" / "__main__.py")
    for words in commands(text, "python -m benchmarks"):
        if words and not words[0].startswith((".", "-")):
            assert f'"{words[0]}": lambda' in benchmarks, words


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_mlflow_run_of_a_page_names_an_entry_point_and_its_parameters(path):
    for words in commands(page(path), "mlflow run "):
        if "-e" not in words or words[words.index("-e") + 1] == "COMMAND":
            continue
        entry = entry_points()[words[words.index("-e") + 1]]
        given = {b.partition("=")[0] for a, b in pairwise(words) if a == "-P"}
        assert given <= {*entry["parameters"]}, words


@pytest.mark.parametrize("head", ["Without a registry", "With scikit-learn", "Piece by piece"])
def test_the_examples_with_arrays_run(head):
    section = page(ROOT / "docs" / "python.md").partition(f"## {head}")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    exec(code, {})  # noqa: S102  # our own page


def test_every_function_and_file_that_the_design_follows_is_in_the_package():
    walk = page(ROOT / "docs" / "design.md").partition("## One calibrate")[2]
    code = "".join(page(path) for path in (ROOT / "scrib_mlflow").rglob("*.py"))
    known = {
        *re.findall(r"^ *(?:def|class) (\w+)", code, re.MULTILINE),
        "data",
        "search",
        "optimal",
        "selection",
    }
    named = re.findall(r"`([^`]+)`", walk)
    names = re.findall(r"`(?:[a-z]+\.)?(\w+)(?:\(settings\))?`", walk.replace(".json", "/json"))
    assert len(names) > 40
    assert {*names} <= known
    for file in (each for each in named if each.endswith(".py")):
        assert (ROOT / "scrib_mlflow" / file).is_file(), file
