"""Figures inside a page: SVG that follows the page's colours, with names of its own."""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET  # reads what matplotlib has just written

import matplotlib
from matplotlib.figure import Figure

from scrib_mlflow.adapters.figures import BLACK, BLUE, GREY, ORANGE

COLOURS = {BLACK: "currentColor", BLUE: "var(--blue)", ORANGE: "var(--orange)", GREY: "var(--grey)"}
SPACE = re.compile(r"\{.*?\}")
LEFT_OUT = {"metadata", "style"}


def inline_svg(figure: Figure, name: str, words: str) -> str:
    """Return a figure as an SVG element for a page; `words` say what is seen.

    Its ids start with `name`, so that several of them on a page do not meet.
    """
    target = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", UserWarning)  # of letters that the browser does have
        figure.savefig(target, format="svg", transparent=True)
    root = ET.fromstring(target.getvalue())  # noqa: S314
    for parent in [*root.iter()]:
        for child in [*parent]:
            if SPACE.sub("", child.tag) in LEFT_OUT:
                parent.remove(child)
    for element in root.iter():
        _rename(element, name)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": words}
    return ET.tostring(root, encoding="unicode")


def _rename(element: ET.Element, name: str) -> None:
    """Give an element plain names, ids of its own, and the page's colours."""
    element.tag = SPACE.sub("", element.tag)
    given = {SPACE.sub("", key): value for key, value in element.attrib.items()}
    element.attrib = {key: _rewrite(key, value, name) for key, value in given.items()}


def _rewrite(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = value.replace("url(#", f"url(#{name}-")
    for colour, other in COLOURS.items():
        value = value.replace(colour.lower(), other)
    return value
