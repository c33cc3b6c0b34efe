"""The model that `spark_udf` runs in Spark's workers: scores or sets of rows, or why not.

A row that the model cannot score must not fail its task, because only the driver can tell the user
which row it was. MLflow runs this file under a name of its own, as it does the served file.
"""

from __future__ import annotations

if __name__ != "scrib_mlflow.engines.spark.worker":
    import json
    from typing import Any

    import mlflow
    import numpy as np
    import pandas as pd
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import PythonModel
    from numpy.typing import NDArray

    from scrib_mlflow import serving

    LONGEST = 300

    class SparkModel(PythonModel):
        """Answers every row with numbers in columns of their own, and with an error or none."""

        def load_context(self, context: Any) -> None:
            """Load the model, and how it is to be asked."""
            with open(context.artifacts["asked"], encoding="utf-8") as file:  # noqa: PTH123
                asked = json.load(file)
            self.classes = asked["classes"]
            self.source = asked["source"]  # None for a set classifier
            self.model = mlflow.pyfunc.load_model(
                context.artifacts["model"], suppress_warnings=True
            )
            self.native = serving.native_model(self.model)

        def predict(
            self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
        ) -> pd.DataFrame:
            """Return one row of numbers for each row."""
            rows = model_input
            if hasattr(rows, "reset_index"):
                rows = rows.reset_index(drop=True)
            return self._sets(rows) if self.source is None else self._scores(rows)

        def _scores(self, rows: Any) -> pd.DataFrame:
            k = len(self.classes)

            def score(part: Any) -> NDArray[np.float64]:
                output = serving.call_model(self.model, self.native, self.source, part)
                return serving.read_scores(output, self.source, k)

            scores, failed = serving.score_rows(score, rows, k)
            errors = _not_finite(scores, self.classes)
            for row, error in failed.items():
                errors[row] = _told(error)
            return pd.DataFrame(_columns("s", scores) | {"error": errors})

        def _sets(self, rows: Any) -> pd.DataFrame:
            index = {name: j for j, name in enumerate(self.classes)}
            n = serving.row_count(rows)
            scores = np.full((n, len(index)), np.nan)
            sets = np.zeros(scores.shape, dtype=np.bool_)
            errors = np.full(n, "", dtype=np.object_)
            try:
                answers = self.model.predict(rows, params={"explain": True})
            except MlflowException as error:
                if serving.NONE_SCORED not in str(error):
                    raise
                errors[:] = _told(error)
                return pd.DataFrame(_columns("s", scores) | _columns("m", sets) | {"error": errors})
            good = np.flatnonzero((answers["reason"] != "invalid_scores").to_numpy())
            errors[:] = "invalid_scores"
            errors[good] = ""
            if len(good):
                scores[good] = answers["scores"].to_numpy()[good].tolist()
            for row, members in enumerate(answers["prediction_set"]):
                sets[row, [index[name] for name in members]] = True
            return pd.DataFrame(_columns("s", scores) | _columns("m", sets) | {"error": errors})

    def _columns(letter: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {f"{letter}{j}": values[:, j] for j in range(values.shape[1])}

    def _not_finite(scores: NDArray[np.float64], classes: list[str]) -> NDArray[np.object_]:
        """Return "" for rows with finite scores, and what the others have."""
        errors = np.full(len(scores), "", dtype=np.object_)
        finite = np.isfinite(scores)
        for row in np.flatnonzero(~finite.all(axis=1)):
            j = int(np.argmin(finite[row]))
            errors[row] = f"it has the score {scores[row, j]} for class {classes[j]!r}"
        return errors

    def _told(error: Exception) -> str:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"

    mlflow.models.set_model(SparkModel())
