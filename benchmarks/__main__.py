"""Print the tables: ``python -m benchmarks [NAME] [--data DIR] [--quick]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    candidates,
    classes,
    curves,
    errors,
    frontier,
    groups,
    growth,
    guarantee,
    house,
    losses,
    monitor,
    moves,
    rules,
    scale,
    seeds,
    selection,
    serving,
    start,
    times,
)

# Growth comes first: a child's peak memory counts from its parent's, which has to be small then.
BENCHMARKS = {
    "growth": lambda chosen: growth.run(quick=chosen.quick),
    "start": lambda chosen: start.run(quick=chosen.quick),
    "times": lambda _: times.run(),
    "losses": lambda chosen: losses.run(chosen.data, quick=chosen.quick),
    "seeds": lambda chosen: seeds.run(chosen.data, quick=chosen.quick),
    "classes": lambda chosen: classes.run(chosen.data),
    "moves": lambda _: moves.run(),
    "rules": lambda chosen: rules.run(chosen.data, quick=chosen.quick),
    "candidates": lambda chosen: candidates.run(chosen.data, quick=chosen.quick),
    "errors": lambda chosen: errors.run(chosen.data, quick=chosen.quick),
    "curves": lambda chosen: curves.run(quick=chosen.quick),
    "frontier": lambda chosen: frontier.run(quick=chosen.quick),
    "guarantee": lambda chosen: guarantee.run(chosen.data, quick=chosen.quick),
    "selection": lambda chosen: selection.run(chosen.data, quick=chosen.quick),
    "groups": lambda chosen: groups.run(quick=chosen.quick),
    "monitor": lambda chosen: monitor.run(quick=chosen.quick),
    "house": lambda _: house.run(),
    "scale": lambda chosen: scale.run(quick=chosen.quick),
    "serving": lambda chosen: serving.run(quick=chosen.quick),
}


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", default="all", choices=[*BENCHMARKS, "all"])
    parser.add_argument(
        "--data", type=_folder, metavar="DIR", help="folder of saved model outputs (*.npz)"
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs, rougher figures")
    chosen = parser.parse_args()
    for name in BENCHMARKS if chosen.name == "all" else [chosen.name]:
        BENCHMARKS[name](chosen)


def _folder(text: str) -> Path:
    """Return the path of a folder that exists."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder; give one that holds *.npz files")
    return path


if __name__ == "__main__":
    main()
