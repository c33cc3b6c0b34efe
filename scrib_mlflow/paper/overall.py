"""Overall risk: accuracy-ambiguity curves of methods over random halves, as in the paper."""

from __future__ import annotations

from scrib_mlflow.core.chains import Progress
from scrib_mlflow.core.curves import Curve, draw_curves
from scrib_mlflow.paper.outputs import Outputs
from scrib_mlflow.paper.splits import random_halves

DROPOUT = "dropout"  # what the paper's further SGR ranks rows by


def measure_curves(
    outputs: Outputs, repeats: int, seed: int, progress: Progress | None = None
) -> list[tuple[Curve, ...]]:
    """Return the curves of every split; groups stay whole, as the paper's patients do."""
    curves: list[tuple[Curve, ...]] = []
    named = outputs.named()
    for split in random_halves(outputs, repeats, seed, by_group=True, progress=progress):
        fitted, measured = split.fitted, ~split.fitted
        trust = {}
        if outputs.trust is not None:
            trust[DROPOUT] = (outputs.trust[fitted], outputs.trust[measured])
        drawn = draw_curves(
            outputs.scores[fitted],
            named[fitted],
            outputs.scores[measured],
            named[measured],
            classes=outputs.classes,
            trust=trust,
            seed=seed,
        )
        curves.append(drawn)
    return curves
