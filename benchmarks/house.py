"""The size and shape of the code, and what one calibrate and one gate run through."""

from __future__ import annotations

import ast
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.fresh import run_fresh
from benchmarks.tables import print_table, progress

ROOT = Path(__file__).parent.parent
PACKAGE = "scrib_mlflow"
# Before the rooms: commit 2774341, counted by the same rules (by a study for what runs).
BEFORE = {
    "modules in the package": "168",
    "lines in the package": "24,512",
    "most modules in one folder": "58",
    "knots of rooms that import each other": "2",
    "modules that one calibrate runs through": "73",
    "functions that one calibrate runs through": "441",
    "modules that one gate runs through": "44",
    "functions that one gate runs through": "266",
    "share of import lines": "9.3 %",
    "modules loaded by looking up a model": "60 and numba",
    "lines of the README": "362",
}


def run() -> None:
    """Print every figure beside what it was before the rooms."""
    modules = {_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = sum(len(text.splitlines()) for text in texts.values())
    imports = sum(_import_lines(tree) for tree in trees.values())
    progress("house: one calibrate, one gate, and looking up a model")
    with tempfile.TemporaryDirectory() as folder:
        ran = run_fresh("one_house", "run", folder)
    loaded = run_fresh("one_house", "look_up")
    now = {
        "modules in the package": f"{len(modules)}",
        "lines in the package": f"{lines:,}",
        "most modules in one folder": str(
            max(Counter(p.parent for p in modules.values()).values())
        ),
        "knots of rooms that import each other": str(len(_knots(trees))),
        "modules that one calibrate runs through": str(ran["calibrate"]["modules"]),
        "functions that one calibrate runs through": str(ran["calibrate"]["functions"]),
        "modules that one gate runs through": str(ran["gate"]["modules"]),
        "functions that one gate runs through": str(ran["gate"]["functions"]),
        "share of import lines": f"{100 * imports / lines:.1f} %",
        "modules loaded by looking up a model": _loaded(loaded["modules"], numba=loaded["numba"]),
        "lines of the README": str(len((ROOT / "README.md").read_text("utf-8").splitlines())),
    }
    print_table(
        "The house", ["", "before", "now"], [[what, BEFORE[what], now[what]] for what in BEFORE]
    )


def _loaded(modules: int, *, numba: bool) -> str:
    return f"{modules} and numba" if numba else f"{modules}, no numba"


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _import_lines(tree: ast.Module) -> int:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def _room(name: str) -> str:
    """Return the room of a module: a sub-package, or the module itself where it has none."""
    parts = name.split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == ["core"] else parts[:1])


def _knots(trees: dict[str, ast.Module]) -> set[frozenset[str]]:
    """Return the sets of rooms that import each other when they are loaded."""
    reach: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for target in _imported(tree) & set(trees):
            if _room(target) != _room(name):
                reach[_room(name)].add(_room(target))
    rooms = {_room(name) for name in trees} - {""}
    for middle in rooms:
        for room in rooms:
            if middle in reach[room]:
                reach[room] |= reach[middle]
    knots = {frozenset(b for b in rooms if b in reach[a] and a in reach[b]) for a in rooms}
    return knots - {frozenset()}


def _imported(tree: ast.Module) -> set[str]:
    """Return the modules that a module may import when it is loaded."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    return names | {str(node.module) for node in nodes}
