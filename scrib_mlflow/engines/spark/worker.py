"""The model that `spark_udf` runs in Spark's workers: scores or sets of rows, or why not.

A row that the model cannot score must not fail its task, because only the driver can tell the user
which row it was. MLflow runs this file under a name of its own, as it does the served file; the
rows are scored by the local engine's lines.
"""

from __future__ import annotations

if __name__ != "scrib_mlflow.engines.spark.worker":
    import json
    from pathlib import Path
    from typing import Any

    import mlflow
    import numpy as np
    import pandas as pd
    from mlflow.pyfunc import PythonModel
    from numpy.typing import NDArray

    from scrib_mlflow.engines.local import answer
    from scrib_mlflow.records import ScoreSource
    from scrib_mlflow.rows.scoring import Scorer, as_served
    from scrib_mlflow.rows.tables import as_typed

    LONGEST = 300

    class SparkModel(PythonModel):
        """Answers every row with numbers in columns of their own, and with an error or none."""

        def load_context(self, context: Any) -> None:
            """Load the model, and how it is to be called."""
            plan = json.loads(Path(context.artifacts["plan"]).read_text(encoding="utf-8"))
            uri = context.artifacts["model"]
            self.model = mlflow.pyfunc.load_model(uri, suppress_warnings=True)
            self.classes = tuple(plan["classes"])
            source = plan["source"]  # None for a set classifier
            self.scorer = source and Scorer(
                model=self.model, source=ScoreSource(**source), classes=self.classes
            )

        def predict(
            self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
        ) -> pd.DataFrame:
            """Return one row of numbers for each row."""
            schema = self.model.metadata.get_input_schema()
            rows = as_typed(model_input.reset_index(drop=True), schema)
            if self.scorer is None:
                scores, sets, named = answer(
                    self.model, rows, self.classes, 0, "a batch", alone=False
                )
                both = _columns("m", sets) | _columns("c", named)
                return pd.DataFrame(_columns("s", scores) | both | {"error": ""})
            scores, failed = as_served(self.scorer, rows)
            errors = _not_finite(scores, self.classes)
            for row, error in failed.items():
                text = f"{type(error).__name__}: {' '.join(str(error).split())}"
                errors[row] = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
            return pd.DataFrame(_columns("s", scores) | {"error": errors})

    def _columns(letter: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {f"{letter}{j}": values[:, j] for j in range(values.shape[1])}

    def _not_finite(scores: NDArray[np.float64], classes: tuple[str, ...]) -> NDArray[np.object_]:
        """Return "" for rows with finite scores, and what the others have."""
        errors = np.full(len(scores), "", dtype=np.object_)
        finite = np.isfinite(scores)
        for row in np.flatnonzero(~finite.all(axis=1)):
            j = int(np.argmin(finite[row]))
            errors[row] = f"it has the score {scores[row, j]} for class {classes[j]!r}"
        return errors

    mlflow.models.set_model(SparkModel())
