"""Draw the README's picture from the folder of `make demo`: what is answered, what abstains.

make demo && .venv/bin/python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

DEMO = Path("scrib_demo")
PICTURE = Path(__file__).with_name("picture.png")
SHOWN = 5


def main() -> None:
    """Let the demo's set classifier answer its test rows, and draw some of them."""
    mlflow.set_tracking_uri(f"sqlite:///{DEMO.absolute() / 'mlflow.db'}")
    test = pd.read_parquet(DEMO / "test.parquet")
    pixels = test.drop(columns="digit")
    answers = mlflow.pyfunc.load_model("models:/digits-scrib@candidate").predict(pixels)
    figure = Figure(figsize=(9, 3.3), layout="constrained")
    rows = figure.subfigures(2, 1)
    titles = ("certain: one label is served", "abstains: the candidates are served")
    for part, abstains, title in zip(rows, (False, True), titles, strict=True):
        chosen = np.flatnonzero(answers["abstain"] == abstains)[:SHOWN]
        part.suptitle(title, fontsize=10, x=0.01, ha="left", weight="bold")
        for axes, row in zip(part.subplots(1, SHOWN), chosen, strict=True):
            axes.imshow(pixels.iloc[row].to_numpy().reshape(8, 8), cmap="gray_r")
            said = " or ".join(answers["candidates"].iloc[row])
            axes.set_title(f"{said}   (truth: {test['digit'].iloc[row]})", fontsize=9)
            axes.axis("off")
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
